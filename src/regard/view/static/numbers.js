/** The types of a finding and of the selection, packed vectors, and numbers as people read them. */

/** @typedef {[string, string]} Span Text, and the role of the word it mentions. */
/**
 * @typedef {object} Read An input word; see `Read` in finding.py.
 * @property {string} word
 * @property {boolean} special
 * @property {number} looked
 * @property {number} layer
 * @property {number} head
 * @property {number} probability
 * @property {number} matters
 * @property {number[]} probabilities
 * @property {boolean} flips
 * @property {string} writes
 * @property {boolean} measured
 * @property {string[]} output
 * @property {number[]} places
 * @property {Span[]} headline
 * @property {Span[]} cut_headline
 * @property {Span[]} cut_caption
 */
/** @typedef {{shape: number[], scale: number, data: string}} Packed */
/**
 * @typedef {object} Row The numbers of the six steps, for the input words `words`.
 * @property {number[]} words
 * @property {Packed} q
 * @property {Packed[]} k Of each word.
 * @property {Packed[]} v
 * @property {Packed} output
 * @property {number[][][]} product
 * @property {(number | null)[][][]} scaled
 * @property {string[]} scaling How each layer scales the score.
 * @property {number[][][]} weight
 * @property {number} subwords Of the attending word; the row is that of the last of them.
 */
/**
 * @typedef {object} Finding One written word; see `Finding` in finding.py.
 * @property {string} kind
 * @property {string} model
 * @property {string} text
 * @property {string} word
 * @property {number} probability
 * @property {string[]} output
 * @property {number} position
 * @property {[number, number][]} alignment
 * @property {[string, number][]} alternatives
 * @property {Read[]} reads
 * @property {number} selected
 * @property {number} columns
 * @property {Span[]} caption
 * @property {string} note
 * @property {Record<string, string>} labels
 * @property {string} python
 * @property {number[][][]} attention
 * @property {number[][][]} effects
 * @property {[number, number, number, number][]} measured
 * @property {string} place
 * @property {CircuitLink[]} circuit
 * @property {Row | null} row
 * @property {(layer: number, head: number, word: number) => LinkNumbers | null} [numbers]
 */
/**
 * @typedef {object} CircuitLink One of the strongest links of all layers, between numbered words.
 * @property {string} place
 * @property {number} layer
 * @property {number} head
 * @property {number} key
 * @property {number} query
 * @property {number} attention
 * @property {number} effect
 * @property {boolean} measured
 */
/**
 * @typedef {object} LinkNumbers What a head computed for one link.
 * @property {Float64Array} q
 * @property {Float64Array} k
 * @property {Float64Array} v
 * @property {Float64Array} output
 * @property {number} product
 * @property {number | null} scaled
 * @property {string} scaling How the score is scaled.
 * @property {number} weight
 * @property {[string, number][]} row Words and their weights.
 * @property {number} at The place of the link in the row.
 * @property {number} joins How many subwords, or pairs of them, the link joins.
 */
/**
 * @typedef {object} State What the whole page shows.
 * @property {number} written The written word, by its place in the output; -1 for one that is read.
 * @property {number} asks The word that is read whose attention is shown; -1 for a written one.
 * @property {number} word The input word that is looked at.
 * @property {number} layer
 * @property {number} head
 * @property {boolean} cut
 */
/** @typedef {(change: Partial<State>) => void} Select */
/**
 * @typedef {object} Scene What the parts of the page are drawn from.
 * @property {Finding} finding
 * @property {State} state
 * @property {Select} select
 * @property {{canWrite: (position: number) => boolean, canRead: boolean}} can what can be selected
 */

/** @type {WeakMap<Packed, Float64Array>} */
const UNPACKED = new WeakMap();

/**
 * The vector at the given place of a packed array.
 * @param {Packed} packed
 * @param {...number} at
 * @returns {Float64Array}
 */
function vector(packed, ...at) {
  let values = UNPACKED.get(packed);
  if (values === undefined) {
    values = Float64Array.from(new Int16Array(bytes(packed.data)), (x) => x * packed.scale);
    UNPACKED.set(packed, values);
  }
  const width = packed.shape[packed.shape.length - 1];
  const start = at.reduce((sum, place, axis) => sum * packed.shape[axis] + place, 0) * width;
  return values.subarray(start, start + width);
}

/**
 * How a server is asked for a finding: by the number of its word where words are numbered.
 * @param {Finding} finding
 */
function asked({ kind, position, word }) {
  return kind === "translation" || kind === "vector" ? position : word;
}

/**
 * A probability as people read it: 92 %, 0.4 %, 0 %.
 * @param {number} part
 */
function rounded(part) {
  const places = part >= 0.0005 && part < 0.01 ? 1 : 0;
  return `${(100 * part).toFixed(places)}\u00a0%`;
}

/**
 * A number with a true minus.
 * @param {number} value
 * @param {number} places
 */
function fixed(value, places) {
  const text = value.toFixed(places);
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "−");
}

/**
 * The colour of a value in −1 … 1: blue above zero, orange below.
 * @param {number} value
 */
function shade(value) {
  const size = Math.round(100 * Math.min(1, Math.abs(value)));
  return `color-mix(in srgb, var(${value < 0 ? "--other" : "--accent"}) ${size}%, var(--empty))`;
}
