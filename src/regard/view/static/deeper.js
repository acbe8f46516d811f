/** Go deeper: the circuit, all heads, the matrix, all measures, layer by layer, two sentences, data. */

/**
 * @typedef {object} Deeper
 * @property {HTMLElement} element
 * @property {(finding: Finding | null, state: State) => void} update
 */

/**
 * The collapsed part of the page; each view is built when it is opened, for the current selection.
 * @param {() => Reader | null} reader
 * @param {Payload} payload
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

  /**
   * What there is to open: name, label, whether it is there, and what makes it.
   * @param {Finding | null} at
   * @returns {[string, string, boolean, () => Node | Promise<Node>][]}
   */
  function doors(at) {
    const compare = host !== null || payload.compared !== null;
    if (at === null) return [["compare", "Two sentences", compare, comparison]];
    const count = reader()?.payload.layers.reduce((sum, layer) => sum + layer.heads, 0);
    const layers = reader() !== null || host !== null;
    const links = at.circuit.length > 0 || canMeasure(at);
    const measures = canMeasure(at) || own(at) !== null;
    const circuits = async () => circuit(await linked(at), state);
    return [
      ["circuit", "Strongest links", links, circuits],
      ["heads", count ? `All ${count} heads` : "All heads", layers, () => heads(at, overviewView)],
      ["matrix", "Matrix", layers, () => heads(at, matrixView)],
      ["measures", "All measures", measures, async () => bars(await measured(at), "All measures")],
      ["layers", "Layer by layer", true, () => layerByLayer(at)],
      ["compare", "Two sentences", compare, comparison],
      ["data", "Data", true, () => data(at)],
    ];
  }

  function buttons() {
    const focus = names.querySelector(":focus")?.getAttribute("data-focus") ?? "";
    const there = doors(finding).filter(([, , isThere]) => isThere);
    const made = there.map(([name, label]) => {
      const onclick = () => {
        open = open === name ? "" : name;
        show();
      };
      const marked = { "data-focus": `door ${name}`, "data-door": name, onclick };
      return make("button", { ...marked, "aria-expanded": String(open === name) }, label);
    });
    names.replaceChildren(make("b", "Go deeper"), ...made);
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
    buttons();
    panel.hidden = open === "";
    const [at, which] = [finding, open];
    const door = doors(at).find(([name]) => name === which);
    if (door === undefined) return;
    const fill = (/** @type {Node} */ made) => {
      if (at === finding && which === open) panel.replaceChildren(made);
    };
    void (async () => door[3]())().then(fill, (error) => fill(failure(error)));
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
   * @param {Finding} at
   * @param {(context: Context) => Shown} made
   */
  async function heads(at, made) {
    const from = await read();
    const place = spot(from, at, state);
    /** @type {Shown} */
    let current;
    const box = make("div.heads");
    /** @type {Context} */
    const context = {
      reader: from,
      state: place,
      colours: () => colours(isDark()),
      set: (patch) => {
        Object.assign(place, patch);
        if (patch.view === "matrix") shown(matrixView(context));
        else current.update();
      },
    };
    /** @param {Shown} view */
    function shown(view) {
      current = view;
      box.replaceChildren(view.element);
      requestAnimationFrame(() => view.update());
    }
    shown(made(context));
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
      if (open === "compare" && panel.childElementCount > 0) buttons();
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
