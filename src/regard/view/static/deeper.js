/** Go deeper: the circuit, all heads, the matrix, all measures, layer by layer, two sentences, data. */

import { circuit } from "./circuit.js";
import { colours } from "./colour.js";
import { compareView } from "./compare.js";
import { Reader } from "./data.js";
import { make } from "./dom.js";
import { data } from "./download.js";
import { matrixView } from "./matrix.js";
import { layerByLayer, measures } from "./measures.js";
import { asked } from "./numbers.js";
import { overviewView } from "./overview.js";

/** @typedef {import("./numbers.js").Finding} Finding */
/** @typedef {import("./numbers.js").Selection} Selection */
/** @typedef {import("./page.js").Host} Host */

/**
 * @typedef {object} Deeper
 * @property {HTMLElement} element
 * @property {(finding: Finding, state: Selection) => void} update
 */

/**
 * The folded part of the page; each view is made when it is opened, for what is selected then.
 * @param {() => Reader | null} reader
 * @param {import("./page.js").PagePayload} payload
 * @param {Host | null} host
 * @param {(reader: Reader) => void} loaded
 * @returns {Deeper}
 */
export function deeper(reader, payload, host, loaded) {
  let open = "";
  /** @type {Finding} */
  let finding;
  /** @type {Selection} */
  let state;
  const names = make("div", { class: "doors", role: "group", "aria-label": "Go deeper" });
  const panel = make("div", { class: "panel", hidden: true });
  const element = make("section", { class: "deeper" }, names, panel);

  function doors() {
    const layers = reader() !== null || host !== null;
    const heads = reader()?.payload.layers.reduce((sum, layer) => sum + layer.heads, 0);
    /** @type {[string, string, boolean][]} */
    const all = [
      ["circuit", "Strongest links", finding.circuit.length > 0],
      ["heads", heads ? `All ${heads} heads` : "All heads", layers],
      ["matrix", "Matrix", layers],
      [
        "measures",
        "All measures",
        finding.kind !== "attention" ? host !== null || own() !== null : payload.explained !== null,
      ],
      ["layers", "Layer by layer", finding.reads.length > 0],
      ["compare", "Two sentences", host !== null || payload.compared !== null],
      ["data", "Data", finding.reads.length > 0],
    ];
    names.replaceChildren(
      make("b", {}, "Go deeper"),
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
  }

  /** The measures of the selected word, if the page has them. */
  function own() {
    return payload.measures.find((one) => one.word === finding.word) ?? null;
  }

  function show() {
    doors();
    panel.hidden = open === "";
    if (open === "") return;
    void Promise.resolve()
      .then(view)
      .then(
        (made) => made && panel.replaceChildren(made),
        (error) =>
          panel.replaceChildren(
            make("p", { class: "note failed", role: "alert" }, String(error.message)),
          ),
      );
  }

  /** @returns {Promise<Node | null>} */
  async function view() {
    const [at, which] = [finding, open];
    /** @type {Node} */
    let made;
    if (open === "circuit") made = circuit(finding, state);
    else if (open === "layers") made = layerByLayer(finding);
    else if (open === "data") made = data(finding);
    else if (open === "compare") made = comparison();
    else if (open === "measures") made = await measured();
    else made = heads(await read(), open);
    return at === finding && which === open ? made : null;
  }

  async function read() {
    const there = reader();
    if (there !== null) return there;
    if (host === null) throw new Error("This page has no weights of other layers.");
    panel.replaceChildren(make("p", { class: "note" }, "Looking …"));
    const made = new Reader(await host.ask("attention", { text: finding.text }));
    loaded(made);
    return made;
  }

  async function measured() {
    if (finding.kind === "attention" && payload.explained !== null) {
      const { text, word, lookedAt, methods } = payload.explained;
      return measures(payload.texts[text].words[word], payload.texts[lookedAt].words, methods);
    }
    let found = own();
    if (found === null && host !== null) {
      panel.replaceChildren(make("p", { class: "note" }, "Measuring …"));
      found = await host.ask("measures", {
        text: finding.text,
        word: asked(finding),
      });
    }
    if (found === null) throw new Error("This page has the measures of its first word only.");
    return measures(found.word, found.words, found.methods);
  }

  /**
   * All heads, or the matrix of one; the first opens the second.
   * @param {Reader} from
   * @param {string} which
   */
  function heads(from, which) {
    const place = spot(from, finding, state);
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
    /** @type {import("./matrix.js").Shown} */
    let current;
    const box = make("div", { class: "heads" });
    /** @param {import("./matrix.js").Shown} view */
    function shown(view) {
      current = view;
      box.replaceChildren(view.element);
      requestAnimationFrame(() => view.update());
    }
    shown(which === "matrix" ? matrixView(context) : overviewView(context));
    return box;
  }

  function comparison() {
    const box = make("div", { class: "comparison" });
    const done = make("div", {});
    if (host !== null) box.append(form(host, done, finding));
    if (payload.compared !== null) done.append(compareView(payload.compared));
    box.append(done);
    return box;
  }

  return {
    element,
    update: (next, selection) => {
      [finding, state] = [next, selection];
      if (open === "" && payload.explained !== null && finding.kind === "attention")
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
 * @param {Selection} state
 * @returns {import("./matrix.js").Spot}
 */
function spot(reader, finding, state) {
  const { layers } = reader.payload;
  const kinds = finding.place === "cross" ? ["cross"] : ["self", "masked"];
  const own = layers.flatMap((layer, i) => (kinds.includes(layer.kind) ? [i] : []));
  const layer = own[Math.min(state.layer, own.length - 1)] ?? 0;
  const { queries, keys } = reader.sides(layer, false);
  const query = queries.list[finding.position < 0 ? queries.list.length - 1 : finding.position];
  return {
    layer,
    heads: [Math.min(state.head, layers[layer].heads - 1)],
    query: query?.tokens[0] ?? -1,
    key: keys.list[state.word]?.tokens[0] ?? -1,
    tokens: false,
  };
}

/**
 * Another sentence, and the word that both have.
 * @param {Host} host
 * @param {HTMLElement} done
 * @param {Finding} finding
 */
function form(host, done, finding) {
  const common = finding.reads.find((read) => !read.special && read.word.length > 1)?.word ?? "";
  const word = make("input", { type: "text", value: common, "aria-label": "Word", size: 10 });
  const other = make("input", {
    type: "text",
    "aria-label": "Other sentence",
    class: "other",
    placeholder: "another sentence with that word",
  });
  const ask = async (/** @type {Event} */ event) => {
    event.preventDefault();
    done.replaceChildren(make("p", { class: "note" }, "Comparing …"));
    try {
      const found = await host.ask("compare", {
        word: word.value,
        one: finding.text,
        other: other.value,
      });
      done.replaceChildren(compareView(found.compared));
    } catch (error) {
      const told = error instanceof Error ? error.message : String(error);
      done.replaceChildren(make("p", { class: "note failed", role: "alert" }, told));
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

export function isDark() {
  const { theme } = document.documentElement.dataset;
  return theme === undefined
    ? matchMedia("(prefers-color-scheme: dark)").matches
    : theme === "dark";
}
