/** Go deeper: the circuit, all heads, the matrix, all measures, layer by layer, two sentences, data. */

/**
 * @typedef {object} Deeper
 * @property {HTMLElement} element
 * @property {(finding: Finding | null, state: State) => void} update
 */

/**
 * The collapsed part of the page; each view is built when it is opened, for the current selection.
 * @param {() => Reader | null} reader
 * @param {PagePayload} payload
 * @param {Host | null} host
 * @param {() => Promise<void>} load gets what `reader` returns, if it can be had
 * @param {() => void} changed called when a finding has more to show
 * @returns {Deeper}
 */
function deeper(reader, payload, host, load, changed) {
  let open = "";
  /** @type {Finding | null} */
  let finding = null;
  /** @type {State} */
  let state;
  const names = make("div.doors", { role: "group", "aria-label": "Go deeper" });
  const panel = make("div.panel", { hidden: true });
  const element = make("section.deeper", names, panel);

  function doors() {
    const layers = reader() !== null || host !== null;
    const heads = reader()?.payload.layers.reduce((sum, layer) => sum + layer.heads, 0);
    /** @type {[string, string, boolean][]} */
    const all = [
      [
        "circuit",
        "Strongest links",
        finding !== null && (finding.circuit.length > 0 || canMeasure(finding)),
      ],
      ["heads", heads ? `All ${heads} heads` : "All heads", layers],
      ["matrix", "Matrix", layers],
      [
        "measures",
        "All measures",
        finding !== null && (canMeasure(finding) || own(finding) !== null),
      ],
      ["layers", "Layer by layer", finding !== null],
      ["compare", "Two sentences", host !== null || payload.compared !== null],
      ["data", "Data", finding !== null],
    ];
    const focus = names.querySelector(":focus")?.getAttribute("data-focus") ?? "";
    names.replaceChildren(
      make("b", "Go deeper"),
      ...all
        .filter(([, , there]) => there)
        .map(([name, label]) =>
          make(
            "button",
            {
              "data-focus": `door ${name}`,
              "data-door": name,
              "aria-expanded": String(open === name),
              onclick: () => {
                open = open === name ? "" : name;
                show();
              },
            },
            label,
          ),
        ),
    );
    refocus(names, focus);
  }

  /** @param {Finding} at */
  const canMeasure = (at) => host !== null && at.kind !== "attention";

  /** The measures of the selected word, if the page has them. @param {Finding} at */
  function own(at) {
    if (at.kind === "attention") return payload.explained;
    return payload.measures.find((one) => one.word === at.word) ?? null;
  }

  function show() {
    doors();
    panel.hidden = open === "";
    if (open === "") return;
    const [at, which] = [finding, open];
    const fill = (/** @type {Node} */ made) => {
      if (at === finding && which === open) panel.replaceChildren(made);
    };
    void view(at, which).then(fill, (error) => fill(failure(error)));
  }

  /** @param {Finding | null} at @param {string} which @returns {Promise<Node>} */
  async function view(at, which) {
    if (at === null || which === "compare") return comparison();
    if (which === "circuit") return circuit(await linked(at), state);
    if (which === "layers") return layerByLayer(at);
    if (which === "data") return data(at);
    if (which === "measures") return bars(await measured(at), "All measures");
    return heads(await read(), at, which);
  }

  async function read() {
    if (reader() === null) panel.replaceChildren(make("p.note", "Computing …"));
    await load();
    const there = reader();
    if (there === null) throw new Error("This page has no weights of other layers.");
    return there;
  }

  /** The finding with its strongest links, asked for if need be. @param {Finding} at */
  async function linked(at) {
    if (at.circuit.length > 0 || !canMeasure(at)) return at;
    panel.replaceChildren(make("p.note", "Cutting …"));
    const question = { text: at.text, word: asked(at), links: true };
    const [{ circuit, caption }] = (await host?.ask("figure", question)).findings;
    Object.assign(at, { circuit, caption });
    changed();
    return at;
  }

  /** @param {Finding} at @returns {Promise<TableData>} */
  async function measured(at) {
    const found = own(at);
    if (found !== null) return found.table;
    if (host === null) throw new Error("This page has the measures of its first word only.");
    panel.replaceChildren(make("p.note", "Measuring …"));
    return (await host.ask("measures", { text: at.text, word: asked(at) })).table;
  }

  /**
   * All heads, or the matrix of one; the first opens the second.
   * @param {Reader} from
   * @param {Finding} at
   * @param {string} which
   */
  function heads(from, at, which) {
    const place = spot(from, at, state);
    const context = {
      reader: from,
      state: place,
      colours: () => colours(isDark()),
      set: (/** @type {object} */ patch) => {
        Object.assign(place, patch);
        if ("view" in patch && patch.view === "matrix") shown(matrixView(context));
        else current.update();
      },
    };
    /** @type {Shown} */
    let current;
    const box = make("div.heads");
    /** @param {Shown} view */
    function shown(view) {
      current = view;
      box.replaceChildren(view.element);
      requestAnimationFrame(() => view.update());
    }
    shown(which === "matrix" ? matrixView(context) : overviewView(context));
    return box;
  }

  function comparison() {
    const box = make("div.comparison");
    const done = make("div");
    if (host !== null && finding !== null) box.append(form(host, done, finding, state));
    if (payload.compared !== null) done.append(compareView(payload.compared));
    box.append(done);
    return box;
  }

  return {
    element,
    update: (next, selection) => {
      [finding, state] = [next, selection];
      if (open === "" && payload.explained !== null && finding?.kind === "attention")
        open = "measures";
      if (open === "" && payload.compared !== null) open = "compare";
      if (open === "compare" && panel.childElementCount > 0) doors();
      else show();
    },
  };
}

/**
 * The layer, head, query and key that are selected, as the views of all layers number them.
 * @param {Reader} reader
 * @param {Finding} finding
 * @param {State} state
 * @returns {Spot}
 */
function spot(reader, finding, state) {
  const { layers } = reader.payload;
  const kinds = finding.place === "cross" ? ["cross"] : ["self", "masked"];
  const own = layers.flatMap((layer, i) => (kinds.includes(layer.kind) ? [i] : []));
  const layer = own[Math.min(state.layer, own.length - 1)] ?? 0;
  const { queries, keys } = reader.sides(layer);
  const last = queries.list.length - 1;
  return {
    layer,
    head: Math.min(state.head, layers[layer].heads - 1),
    query: finding.position < 0 ? last : Math.min(finding.position, last),
    key: state.word < keys.list.length ? state.word : -1,
  };
}

/**
 * Another sentence, and the word that both have: the selected one, or the one that attends.
 * @param {Host} host
 * @param {HTMLElement} done
 * @param {Finding} finding
 * @param {State} state
 */
function form(host, done, finding, state) {
  const { kind, position, reads } = finding;
  const own = position >= 0 && (kind === "attention" || kind === "vector");
  const common = reads[own ? position : state.word];
  const word = make("input", {
    type: "text",
    value: common.special ? "" : bare(common.word),
    "aria-label": "Word",
    size: 10,
  });
  const other = make("input", {
    type: "text",
    "aria-label": "Other sentence",
    class: "other",
    placeholder: "another sentence with that word",
  });
  const ask = async (/** @type {Event} */ event) => {
    event.preventDefault();
    done.replaceChildren(make("p.note", "Comparing …"));
    try {
      const found = await host.ask("compare", {
        word: word.value,
        one: finding.text,
        other: other.value,
      });
      done.replaceChildren(compareView(found.compared));
    } catch (error) {
      done.replaceChildren(failure(error));
    }
  };
  return make(
    "form",
    { onsubmit: ask },
    word,
    other,
    make("button", { type: "submit" }, "Compare"),
  );
}

/** @param {unknown} error */
function failure(error) {
  return make("p.note.failed", { role: "alert" }, message(error));
}
