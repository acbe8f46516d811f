/** The permalink: all that is asked and shown, in the query of the address. Nothing is stored. */

/** @typedef {Record<string, string | number | boolean | number[]>} State what the viewer shows */

/**
 * @typedef {object} Place
 * @property {"one" | "two"} kind one sentence, or two that are compared
 * @property {string} text
 * @property {number | null} word its number in the text
 * @property {string} compared the word that both sentences have
 * @property {string} one
 * @property {string} other
 * @property {State} state
 */

/** @type {Record<string, "text" | "number" | "numbers" | "flag">} */
const KINDS = {
  view: "text",
  layer: "number",
  heads: "numbers",
  tokens: "flag",
  query: "number",
  key: "number",
  threshold: "number",
  cut: "numbers",
  theme: "text",
};

/** What goes without saying. @type {Record<string, string>} */
const USUAL = { tokens: "false", key: "-1", threshold: "0.05", theme: "auto", cut: "" };

/** What belongs to one word, and not to the next that is picked. */
const OF_A_WORD = ["query", "key", "cut"];

/** @returns {Place} */
export function nowhere() {
  return { kind: "one", text: "", word: null, compared: "", one: "", other: "", state: {} };
}

/**
 * @param {string} query as `location.search`
 * @returns {Place}
 */
export function read(query) {
  const given = new URLSearchParams(query);
  const word = given.get("word");
  return {
    kind: given.has("compare") ? "two" : "one",
    text: given.get("text") ?? "",
    word: word !== null && /^\d{1,6}$/.test(word) ? Number(word) : null,
    compared: given.get("compare") ?? "",
    one: given.get("one") ?? "",
    other: given.get("other") ?? "",
    state: Object.fromEntries(
      Object.entries(KINDS).flatMap(([name, kind]) => {
        const value = given.get(name);
        return value === null ? [] : [[name, meant(value, kind)]];
      }),
    ),
  };
}

/**
 * @param {Place} place
 * @returns {string} a query that `read` understands
 */
export function written(place) {
  const said = new URLSearchParams();
  if (place.kind === "two") {
    said.set("compare", place.compared);
    said.set("one", place.one);
    said.set("other", place.other);
  } else if (place.text !== "") {
    said.set("text", place.text);
    if (place.word !== null) said.set("word", String(place.word));
  }
  for (const name of Object.keys(KINDS)) {
    const value = place.state[name];
    const text = value === undefined ? undefined : String(value);
    if (text !== undefined && text !== USUAL[name]) said.set(name, text);
  }
  return `?${said.toString().replaceAll("%2C", ",")}`;
}

/**
 * What of the state goes on when another word is picked.
 * @param {State} state
 * @returns {State}
 */
export function lasting(state) {
  return Object.fromEntries(Object.entries(state).filter(([name]) => !OF_A_WORD.includes(name)));
}

/** @param {string} value @param {"text" | "number" | "numbers" | "flag"} kind */
function meant(value, kind) {
  if (kind === "text") return value;
  if (kind === "flag") return value === "true";
  if (kind === "number") return Number(value);
  return value
    .split(",")
    .filter((part) => part !== "")
    .map(Number);
}
