/** What a word that is read attends to, from the weights of the layers: a finding without cuts. */

/** @type {Omit<Read, "word" | "special" | "looked" | "layer" | "head">} */
const UNCUT = {
  ...{ probability: 1, matters: 0, probabilities: [], flips: false, writes: "", measured: false },
  ...{ output: [], places: [], headline: [], cut_headline: [], cut_caption: [] },
};

/**
 * The layers in which a text is read: its attention to itself, else to another text.
 * @param {Reader} reader
 * @param {string} text
 * @returns {number[]}
 */
function layersOf(reader, text) {
  const own = reader.payload.layers.flatMap((layer, i) => (layer.queries === text ? [i] : []));
  const { explained } = reader.payload;
  const keys = explained?.text === text ? explained.lookedAt : text;
  const first = own.find((i) => reader.layer(i).keys === keys) ?? own[0];
  return own.filter((i) => reader.layer(i).keys === reader.layer(first).keys);
}

/**
 * Whether the six steps of a word are there.
 * @param {Reader} reader
 * @param {string} text
 * @param {number} unit
 */
function hasSteps(reader, text, unit) {
  const steps = reader.payload.steps[layersOf(reader, text)[0]];
  return steps?.queries.includes(reader.units(text).list[unit].tokens[0]) ?? false;
}

/**
 * The finding about one word: its weights in every head, and the word that has most of them.
 * @param {Reader} reader
 * @param {string} text
 * @param {number} unit
 * @returns {Finding}
 */
function attended(reader, text, unit) {
  const layers = layersOf(reader, text);
  const { queries, keys } = reader.sides(layers[0]);
  const attention = layers.map((layer) =>
    Array.from({ length: reader.layer(layer).heads }, (_, head) => {
      const rows = reader.rows(layer, head);
      const row = new Array(keys.list.length).fill(0);
      for (let at = rows.offsets[unit]; at < rows.offsets[unit + 1]; at += 1)
        row[rows.keys[at]] = rows.weights[at];
      return row;
    }),
  );
  const word = bare(queries.list[unit].label);
  const reads = keys.list.map(({ label, place }, i) => {
    let [looked, layer, head] = [-1, 0, 0];
    attention.forEach((heads, l) =>
      heads.forEach((row, h) => {
        if (row[i] > looked) [looked, layer, head] = [row[i], l, h];
      }),
    );
    return { ...UNCUT, word: label, special: place < 0, looked, layer, head };
  });
  const { explained } = reader.payload;
  const isExplained = explained?.text === text && explained.word === queries.list[unit].place;
  const sameText = reader.layer(layers[0]).keys === text;
  const candidates = reads.map((_, i) => i).filter((i) => !reads[i].special);
  const others = candidates.filter((i) => !(sameText && i === unit));
  const selected = [...(others.length > 0 ? others : candidates), 0].reduce((a, b) =>
    reads[b].looked > reads[a].looked ? b : a,
  );
  const itself = sameText && reads[unit].looked > reads[selected].looked;
  reads.forEach((read, i) => {
    const name = i !== selected ? "attends" : itself ? "attends to itself" : "attends most";
    const { looked, layer, head } = read;
    const words = { word, key: bare(read.word), weight: looked.toFixed(2), layer, head };
    read.headline = said(name, words);
  });
  return {
    kind: "attention",
    place: reader.layer(layers[0]).kind,
    model: "",
    text: reader.payload.texts[text].text,
    word,
    probability: 1,
    output: [],
    position: sameText ? unit : -1,
    alignment: [],
    alternatives: [],
    reads,
    selected,
    columns: 16,
    caption: [[isExplained && explained ? explained.sentence : told("weights"), ""]],
    note: "",
    labels: PAYLOAD.labels,
    python: "",
    attention,
    effects: [],
    measured: [],
    circuit: [],
    row: null,
    numbers: (layer, head, key) =>
      saved(reader, layers[layer], head, queries.list[unit].tokens, keys.list[key].tokens),
  };
}

/**
 * The numbers of the six steps of the strongest link between the tokens of two words, or null
 * where they were not saved.
 * @param {Reader} reader
 * @param {number} layer
 * @param {number} head
 * @param {number[]} from
 * @param {number[]} to
 * @returns {LinkNumbers | null}
 */
function saved(reader, layer, head, from, to) {
  const data = reader.payload.steps[layer];
  if (!data) return null;
  const keys = data.keys[head];
  const pairs = from
    .flatMap((query) => to.map((key) => [data.queries.indexOf(query), keys.indexOf(key)]))
    .filter(([i, j]) => i >= 0 && j >= 0);
  if (pairs.length === 0) return null;
  const weights = data.weight[head];
  const [i, at] = pairs.reduce((a, b) => (weights[b[0]][b[1]] > weights[a[0]][a[1]] ? b : a));
  const { list, of } = reader.units(reader.layer(layer).keys);
  return {
    q: vector(data.q, head, i),
    k: vector(data.k, head, at),
    v: vector(data.v, head, at),
    output: vector(data.output, head, i),
    product: data.product[head][i][at],
    scaled: data.scaled[head][i][at],
    scaling: data.scaling,
    weight: weights[i][at],
    row: weights[i].map((weight, j) => [list[of[keys[j]]].label, weight]),
    at,
    joins: pairs.length,
  };
}
