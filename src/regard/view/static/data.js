/** The payload: sparse rows are decoded on first use, and tokens merged to words. */

/**
 * @typedef {object} TextData
 * @property {string} text
 * @property {[string, number, number[]][]} units label, word number (−1: special), tokens
 *
 * @typedef {object} LayerData
 * @property {string} name
 * @property {"self" | "masked" | "cross"} kind
 * @property {string} queries
 * @property {string} keys
 * @property {number} heads
 * @property {boolean} whole
 * @property {string} counts
 * @property {string} places
 * @property {string} weights
 * @property {string} entropy
 * @property {string} received
 * @property {number} receivedMost
 *
 * @typedef {Record<"q" | "k" | "v" | "output", Packed> &
 *   {queries: number[], keys: number[][], product: number[][][],
 *    scaled: (number | null)[][][], scaling: string, weight: number[][][]}} StepsData per head
 *
 * @typedef {object} ExplainedData
 * @property {number} word
 * @property {string} text
 * @property {string} lookedAt
 * @property {string} sentence
 * @property {TableData} table
 *
 * @typedef {object} SideData
 * @property {string[]} words
 * @property {number} place
 * @property {TableData[]} tables
 * @property {string} translation
 *
 * @typedef {object} ComparedData
 * @property {string} word
 * @property {SideData[]} sides
 * @property {number[]} cosine
 * @property {string} sentence
 *
 * @typedef {object} Payload What the page shows: findings, the weights of the layers, answers.
 * @property {Record<string, TextData>} texts
 * @property {LayerData[]} layers
 * @property {(StepsData | null)[]} steps
 * @property {ExplainedData | null} explained
 * @property {ComparedData | null} compared
 * @property {Finding[]} findings
 * @property {Packed[]} vectors
 * @property {{word: string, table: TableData}[]} measures
 * @property {Record<string, string>} labels of a word that is read, and sentences
 * @property {{model: string, examples: Example[]} | null} served
 *
 * @typedef {object} Unit
 * @property {string} label
 * @property {number[]} tokens
 * @property {number} place
 *
 * @typedef {object} Units
 * @property {Unit[]} list
 * @property {Int32Array} of the unit of each token
 *
 * @typedef {object} Rows
 * @property {Uint32Array} offsets where the links of each row begin; one more at the end
 * @property {ArrayLike<number>} keys
 * @property {ArrayLike<number>} weights
 * @property {number} largest
 */

const UNIT = 65535;
/** @type {Payload} The payload of the page, once it is inflated. */
let PAYLOAD;

/** @returns {Promise<Payload>} */
async function inflated() {
  const held = document.getElementById("payload")?.textContent ?? "";
  const { deflated, ...rest } = JSON.parse(held);
  const stream = new Blob([bytes(deflated)]).stream();
  const bulk = new Response(stream.pipeThrough(new DecompressionStream("deflate")));
  return { ...rest, ...(await bulk.json()) };
}

/** @param {string} text @returns {ArrayBuffer} */
function bytes(text) {
  const plain = atob(text);
  const found = new Uint8Array(plain.length);
  for (let i = 0; i < plain.length; i += 1) found[i] = plain.charCodeAt(i);
  return found.buffer;
}

class Reader {
  /** @param {Payload} payload */
  constructor(payload) {
    this.payload = payload;
    /** @type {Map<string, any>} */
    this.known = new Map();
  }

  /**
   * @template T
   * @param {string} name
   * @param {() => T} compute
   * @returns {T}
   */
  once(name, compute) {
    if (!this.known.has(name)) this.known.set(name, compute());
    return this.known.get(name);
  }

  /** @param {number} layer */
  layer(layer) {
    return this.payload.layers[layer];
  }

  /**
   * The words that attend in a layer, and those that are attended to.
   * @param {number} layer
   * @returns {{queries: Units, keys: Units}}
   */
  sides(layer) {
    const { queries, keys } = this.layer(layer);
    return { queries: this.units(queries), keys: this.units(keys) };
  }

  /**
   * The words of a text, and each special token by itself.
   * @param {string} name of a text
   * @returns {Units}
   */
  units(name) {
    return this.once(`units ${name}`, () => {
      const list = this.payload.texts[name].units.map(([label, place, tokens]) => ({
        label,
        place,
        tokens,
      }));
      const of = new Int32Array(list.reduce((sum, { tokens }) => sum + tokens.length, 0));
      list.forEach(({ tokens }, i) => tokens.forEach((token) => (of[token] = i)));
      return { list, of };
    });
  }

  /**
   * The links of all heads of a layer between tokens, as they are in the payload.
   * @param {number} layer
   * @returns {Omit<Rows, "largest"> & {queries: number}}
   */
  decoded(layer) {
    return this.once(`decoded ${layer}`, () => {
      const data = this.layer(layer);
      const counts = new Uint16Array(bytes(data.counts));
      const offsets = new Uint32Array(counts.length + 1);
      for (let i = 0; i < counts.length; i += 1) offsets[i + 1] = offsets[i] + counts[i];
      const wide = this.units(data.keys).of.length > UNIT + 1;
      const keys = wide ? new Uint32Array(bytes(data.places)) : new Uint16Array(bytes(data.places));
      const weights = new Uint16Array(bytes(data.weights));
      return { offsets, keys, weights, queries: counts.length / data.heads };
    });
  }

  /**
   * The links of one head between units, strongest first; keys summed, queries averaged.
   * @param {number} layer
   * @param {number} head
   * @returns {Rows}
   */
  rows(layer, head) {
    return this.once(`rows ${layer} ${head}`, () => {
      const { queries, keys } = this.sides(layer);
      const source = this.decoded(layer);
      const first = head * source.queries;
      const sums = new Float64Array(keys.list.length);
      const there = new Uint8Array(keys.list.length);
      const offsets = new Uint32Array(queries.list.length + 1);
      /** @type {number[]} */
      const flatKeys = [];
      /** @type {number[]} */
      const flatWeights = [];
      queries.list.forEach((unit, i) => {
        /** @type {number[]} */
        const touched = [];
        for (const token of unit.tokens) {
          for (
            let at = source.offsets[first + token];
            at < source.offsets[first + token + 1];
            at += 1
          ) {
            const key = keys.of[source.keys[at]];
            if (!there[key]) {
              there[key] = 1;
              touched.push(key);
            }
            sums[key] += source.weights[at];
          }
        }
        touched.sort((a, b) => sums[b] - sums[a] || a - b);
        for (const key of touched) {
          flatKeys.push(key);
          flatWeights.push(sums[key] / (UNIT * unit.tokens.length));
          sums[key] = 0;
          there[key] = 0;
        }
        offsets[i + 1] = flatKeys.length;
      });
      const largest = flatWeights.reduce((a, b) => Math.max(a, b), 1e-9);
      const weights = Float32Array.from(flatWeights);
      return { offsets, keys: Uint32Array.from(flatKeys), weights, largest };
    });
  }

  /**
   * The weight of one cell between units: null where masked, or not kept.
   * @param {number} layer
   * @param {number} head
   * @param {number} query
   * @param {number} key
   * @returns {number | null}
   */
  weight(layer, head, query, key) {
    const rows = this.rows(layer, head);
    for (let at = rows.offsets[query]; at < rows.offsets[query + 1]; at += 1) {
      if (rows.keys[at] === key) return rows.weights[at];
    }
    return null;
  }

  /**
   * Per query token of a head, the entropy as a share of the highest possible.
   * @param {number} layer
   * @param {number} head
   */
  entropy(layer, head) {
    const data = this.layer(layer);
    const all = this.once(`entropy ${layer}`, () => new Uint16Array(bytes(data.entropy)));
    const count = all.length / data.heads;
    return all.subarray(head * count, (head + 1) * count);
  }

  /**
   * The mean entropy of a head, 0 … 1.
   * @param {number} layer
   * @param {number} head
   */
  meanEntropy(layer, head) {
    return this.once(`mean ${layer} ${head}`, () => {
      const rows = this.entropy(layer, head);
      return rows.reduce((sum, one) => sum + one, 0) / (rows.length * UNIT);
    });
  }

  /**
   * Per key token of a head, the sum of the weights it was given.
   * @param {number} layer
   * @param {number} head
   * @returns {Float32Array}
   */
  received(layer, head) {
    return this.once(`received ${layer} ${head}`, () => {
      const data = this.layer(layer);
      const all = this.once(`received ${layer}`, () => new Uint16Array(bytes(data.received)));
      const count = all.length / data.heads;
      const scale = data.receivedMost / UNIT;
      return Float32Array.from(all.subarray(head * count, (head + 1) * count), (x) => x * scale);
    });
  }
}
