/** The six steps of one cell that a saved file holds, put together as the live answer is. */

import { bytes } from "./data.js";

/** @typedef {import("./data.js").Reader} Reader */

/**
 * @typedef {object} Cell
 * @property {number} head
 * @property {number} query token
 * @property {number} key token
 * @property {number | null} factor
 * @property {string} comparedBy
 * @property {number[]} q
 * @property {number[]} k
 * @property {number[]} v
 * @property {number[]} z
 * @property {number} score
 * @property {number} scaled
 * @property {number | null} entered null where masked
 * @property {number} weight
 * @property {number[]} row keys that are listed, strongest first
 * @property {(number | null)[]} rowEntered
 * @property {number[]} rowWeights
 * @property {number | null} logsumexp
 * @property {number} keys how many there are
 * @property {number} hidden how many of them may not be looked at
 */

const SHOWN = 12;

/**
 * The cell, or null where it was not saved.
 * @param {Reader} reader
 * @param {number} layer
 * @param {number} head
 * @param {number} query
 * @param {number} key
 * @returns {Cell | null}
 */
export function savedCell(reader, layer, head, query, key) {
  const data = reader.payload.steps[layer];
  if (!data) return null;
  const size = data.keysPerHead;
  /** @param {"keys" | "hidden"} name */
  const whole = (name) => reader.once(`${name} ${layer}`, () => new Uint32Array(bytes(data[name])));
  const keys = whole("keys").subarray(head * size, (head + 1) * size);
  const i = data.queries.indexOf(query);
  const j = keys.indexOf(key);
  if (i < 0 || j < 0) return null;
  /**
   * @param {"q" | "k" | "v" | "z" | "score" | "scaled" | "entered" | "weight" | "logsumexp"} name
   * @param {number} at
   * @param {number} length
   */
  const part = (name, at, length) => {
    const all = reader.once(`${name} ${layer}`, () => new Float32Array(bytes(data[name])));
    return Array.from(all.subarray(at * length, (at + 1) * length));
  };
  const row = head * data.queries.length + i;
  const [score, scaled, entered, weights] = /** @type {const} */ ([
    "score",
    "scaled",
    "entered",
    "weight",
  ]).map((name) => part(name, row, size));
  /** @param {number} value */
  const finite = (value) => (Number.isFinite(value) ? value : null);
  let order = Array.from(weights.keys()).sort((a, b) => weights[b] - weights[a] || a - b);
  order = order.slice(0, SHOWN).includes(j)
    ? order.slice(0, SHOWN)
    : [...order.slice(0, SHOWN - 1), j];
  return {
    head,
    query,
    key,
    factor: data.factor,
    comparedBy: data.comparedBy,
    q: part("q", row, data.width),
    z: part("z", row, data.valueWidth),
    k: part("k", head * size + j, data.width),
    v: part("v", head * size + j, data.valueWidth),
    score: score[j],
    scaled: scaled[j],
    entered: finite(entered[j]),
    weight: weights[j],
    row: order.map((at) => keys[at]),
    rowEntered: order.map((at) => finite(entered[at])),
    rowWeights: order.map((at) => weights[at]),
    logsumexp: finite(part("logsumexp", row, 1)[0]),
    keys: reader.payload.texts[reader.layer(layer).keys].tokens.length,
    hidden: whole("hidden")[row],
  };
}

/**
 * Which tokens a saved file has the steps of.
 * @param {Reader} reader
 * @param {number} layer
 * @returns {number[]}
 */
export function savedQueries(reader, layer) {
  return reader.payload.steps[layer]?.queries ?? [];
}
