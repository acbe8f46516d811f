/** What is chosen: view, layer, heads, words or tokens, the cell, and how strong a link must be. */

/** @typedef {import("./data.js").Reader} Reader */

/**
 * @typedef {object} State
 * @property {"head" | "matrix" | "overview" | "steps" | "explain" | "compare"} view
 * @property {number} layer
 * @property {number[]} heads
 * @property {boolean} tokens tokens rather than words
 * @property {number} query a token that asks, −1 for none
 * @property {number} key a token that is looked at, −1 for none
 * @property {number} threshold links below are not drawn
 * @property {number[]} cut words whose links from the explained word are cut
 * @property {string} search
 * @property {number} hit which of the words found
 * @property {"auto" | "light" | "dark"} theme
 */

/**
 * @param {Reader} reader
 * @param {State["view"][]} open
 * @param {unknown} given what a host remembered, as JSON or object
 * @returns {State}
 */
export function beginning(reader, open, given) {
  const { layers, explained } = reader.payload;
  /** @type {State} */
  const state = {
    view: open[0] ?? "head",
    layer: 0,
    heads: [],
    tokens: false,
    query: -1,
    key: -1,
    threshold: 0.05,
    cut: [],
    search: "",
    hit: 0,
    theme: "auto",
  };
  if (explained) {
    const text = reader.payload.texts[explained.text];
    state.query = text.places.indexOf(explained.word);
    const layer = layers.findIndex(
      (one) => one.queries === explained.text && one.keys === explained.lookedAt,
    );
    state.layer = Math.max(layer, 0);
  }
  const remembered = sensible(given, state);
  Object.assign(state, moving(reader, state, remembered.layer), remembered);
  if (!open.includes(state.view)) state.view = open[0];
  fitted(reader, state);
  return state;
}

/**
 * Of what a host remembered, that which is of the right kind.
 * @param {unknown} given
 * @param {State} state
 * @returns {Partial<State>}
 */
function sensible(given, state) {
  let found = given;
  if (typeof given === "string" && given !== "") {
    try {
      found = JSON.parse(given);
    } catch {
      return {};
    }
  }
  if (typeof found !== "object" || found === null) return {};
  const known = /** @type {Record<string, unknown>} */ (found);
  const usual = /** @type {Record<string, unknown>} */ (/** @type {unknown} */ (state));
  return Object.fromEntries(
    Object.entries(known).filter(
      ([name, value]) =>
        name in usual &&
        typeof value === typeof usual[name] &&
        Array.isArray(value) === Array.isArray(usual[name]) &&
        (typeof value !== "number" || Number.isInteger(value) || name === "threshold") &&
        (name !== "threshold" || (Number(value) >= 0 && Number(value) <= 1)) &&
        (name !== "theme" || ["auto", "light", "dark"].includes(String(value))),
    ),
  );
}

/**
 * What is chosen in one layer means nothing in another that is about another text.
 * @param {Reader} reader
 * @param {State} state
 * @param {number | undefined} layer where it goes
 * @returns {Partial<State>} what has to be let go
 */
export function moving(reader, state, layer) {
  const { layers } = reader.payload;
  const here = layers[state.layer];
  const there = layers[layer ?? state.layer];
  if (!here || !there) return {};
  return {
    ...(here.queries === there.queries ? {} : { query: -1 }),
    ...(here.keys === there.keys ? {} : { key: -1 }),
  };
}

/**
 * Bring layer, heads and cell inside what there is.
 * @param {Reader} reader
 * @param {State} state
 */
export function fitted(reader, state) {
  const { layers, texts } = reader.payload;
  if (layers.length === 0) return;
  state.layer = Math.min(Math.max(0, Math.trunc(state.layer)), layers.length - 1);
  const layer = layers[state.layer];
  state.heads = state.heads.filter(
    (head) => Number.isInteger(head) && head >= 0 && head < layer.heads,
  );
  if (state.heads.length === 0) {
    state.heads = Array.from({ length: layer.heads <= 4 ? layer.heads : 3 }, (_, head) => head);
  }
  if (!(state.query < texts[layer.queries].tokens.length)) state.query = -1;
  if (!(state.key < texts[layer.keys].tokens.length)) state.key = -1;
}

/**
 * The units among those of a text that hold what is searched for.
 * @param {import("./data.js").Units} units
 * @param {string} search
 * @returns {number[]}
 */
export function hits(units, search) {
  const wanted = search.trim().toLowerCase();
  if (wanted === "") return [];
  return units.list.flatMap((unit, i) => (unit.label.toLowerCase().includes(wanted) ? [i] : []));
}
