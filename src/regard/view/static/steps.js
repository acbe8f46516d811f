/** Where exactly, and how: layers × heads of the selected link, and its six steps. */

const SHOWN = 4;
const FAINT = 0.04;

/**
 * The weight of the link in every head; a bar below tells what cutting it there alone changes.
 * @param {Scene} scene
 */
function grid(scene) {
  const { finding, state } = scene;
  const heads = Math.max(...finding.attention.map((layer) => layer.length));
  const table = make("div.grid", { role: "group", "aria-label": "layers and heads" });
  table.style.setProperty("--heads", String(heads));
  table.append(make("span"));
  for (let head = 0; head < heads; head++) table.append(make("span.top", `${head}`));
  const most = Math.max(0.5, ...finding.effects.flat(2).map(Math.abs));
  finding.attention.forEach((layer, l) => {
    table.append(make("span", `layer ${l}`));
    layer.forEach((weights, h) => table.append(cell(scene, l, h, weights, most)));
    for (let head = layer.length; head < heads; head++) table.append(make("span"));
  });
  const { word } = finding.reads[state.word];
  return make(
    "section.where",
    make(
      "h2",
      "Where ",
      make("span", { dir: "auto" }, `${finding.word} → ${bare(word)}, layers × heads`),
    ),
    make("div.scroll", table),
    make("p.note.effect", about(scene)),
  );
}

/**
 * @param {Scene} scene
 * @param {number} layer
 * @param {number} head
 * @param {number[]} weights
 * @param {number} most
 */
function cell({ finding, state, select }, layer, head, weights, most) {
  const weight = state.cut ? 0 : weights[state.word];
  const effect = effectOf(finding, layer, head, state.word)?.value ?? 0;
  const share = Math.min(1, Math.abs(effect) / most);
  const kind = share < FAINT ? "none" : null;
  return make(
    "button",
    {
      "data-focus": `cell ${layer} ${head}`,
      "data-cell": `${layer} ${head}`,
      "data-weight": weights[state.word],
      "aria-pressed": String(layer === state.layer && head === state.head),
      "aria-label": `layer ${layer}, head ${head}: ${weight.toFixed(2)}`,
      title: `layer ${layer}, head ${head}: weight ${weight.toFixed(3)}, effect ${fixed(effect, 2)}`,
      style: { background: shade(weight) },
      onclick: () => select({ layer, head }),
    },
    make("i", { class: kind, style: { width: `${100 * share}%` } }),
  );
}

/**
 * What cutting the link in one head alone changes: measured, if it was cut, else estimated.
 * @param {Finding} finding
 * @param {number} layer
 * @param {number} head
 * @param {number} word
 */
function effectOf(finding, layer, head, word) {
  if (finding.effects.length === 0) return null;
  const found = finding.measured.find(([l, h, w]) => l === layer && h === head && w === word);
  const value = found === undefined ? finding.effects[layer][head][word] : found[3];
  return { value, measured: found !== undefined };
}

/** The sentence about the selected cell. @param {Scene} scene */
function about({ finding, state: { layer, head, word } }) {
  const weight = finding.attention[layer][head][word].toFixed(2);
  const effect = effectOf(finding, layer, head, word);
  if (effect === null) return told("head", { layer, head, weight });
  const { metric } = finding.labels;
  const words = { layer, head, weight, metric, effect: fixed(effect.value, 2) };
  return told(effect.measured ? "measured" : "estimated", words);
}

/**
 * The six steps of the selected link in the selected head, with the model's own numbers.
 * @param {Scene} scene
 */
function six(scene) {
  const { finding, state } = scene;
  const { layer, head } = state;
  const key = bare(finding.reads[state.word].word);
  const link = told("six steps", { word: finding.word, key, layer, head });
  const numbers = linkNumbers(finding, state);
  const title = make(
    "h2",
    "How ",
    make("span", { dir: "auto" }, link + part(finding, state, numbers)),
  );
  const body = numbers === null ? make("p.note", told("no steps")) : flow(scene, numbers, key);
  const changes = state.cut && numbers !== null && layer > 0;
  return make("section.how", title, body, changes ? make("p.note", told("before the cut")) : "");
}

/**
 * Which of several subwords the numbers are those of.
 * @param {Finding} finding
 * @param {State} state
 * @param {LinkNumbers | null} numbers
 */
function part({ attention, row }, { word, layer, head }, numbers) {
  if (numbers === null || numbers.joins === 1) return "";
  const words = { count: numbers.joins, mean: attention[layer][head][word].toFixed(2) };
  return `; ${told(row === null ? "strongest pair" : "last subword", words)}`;
}

/**
 * The numbers of the selected link in the selected head, or null where there are none.
 * @param {Finding} finding
 * @param {State} state
 * @returns {LinkNumbers | null}
 */
function linkNumbers(finding, { word, layer, head }) {
  const { row } = finding;
  if (row === null) return finding.numbers?.(layer, head, word) ?? null;
  const at = row.words.indexOf(word);
  if (at < 0) return null;
  return {
    q: vector(row.q, layer, head),
    k: vector(row.k[at], layer, head),
    v: vector(row.v[at], layer, head),
    output: vector(row.output, layer, head),
    product: row.product[layer][head][at],
    scaled: row.scaled[layer][head][at],
    scaling: row.scaling[layer],
    weight: row.weight[layer][head][at],
    row: row.weight[layer][head].map((weight, i) => [finding.reads[row.words[i]].word, weight]),
    at,
    joins: row.subwords,
  };
}

/** @param {Scene} scene @param {LinkNumbers} numbers @param {string} key */
function flow(scene, numbers, key) {
  const { finding, state } = scene;
  const { cut } = state;
  const { q, k, v, output, product, scaled, scaling, weight: own } = numbers;
  const weight = cut ? 0 : own;
  const left = 1 - own;
  const after = cut ? output.map((x, i) => (left > 1e-6 ? (x - own * v[i]) / left : 0)) : output;
  const width = q.length;
  const scale = cut ? "scale, cut" : scaled === null ? "scale, masked" : "scale";
  const sizes = [extent(q, k), extent(v, output)];
  return make(
    "ol",
    { class: cut ? "flow cut" : "flow" },
    step(
      "Query and key",
      note(finding.labels.query),
      cells(q, sizes[0]),
      note(`k, of ${key}`),
      cells(k, sizes[0]),
    ),
    step("Score", big(fixed(product, 2)), note(told("product", { width }))),
    step(
      "Scale",
      big(cut || scaled === null ? "−∞" : fixed(scaled, 2)),
      note(told(scale, { scaling })),
    ),
    step("Softmax", big(cut ? "0" : weight.toFixed(3)), softmax(numbers, cut)),
    step(
      "Weight × value",
      note(`v, of ${key}`),
      cells(v, sizes[1]),
      note(`× ${cut ? "0" : weight.toFixed(3)}`),
      cells(
        v.map((x) => x * weight),
        sizes[1],
      ),
    ),
    step(
      "Sum",
      note(told("sum", { count: finding.reads.length })),
      cells(after, sizes[1]),
      outcome(scene),
    ),
  );
}

/** @param {Scene} scene */
function outcome({ finding, state }) {
  if (finding.alternatives.length === 0) return note("and, with the other heads, the vector");
  const read = finding.reads[state.word];
  const p = state.cut
    ? read.flips
      ? read.probabilities[finding.alternatives.findIndex(([word]) => word === read.writes)]
      : read.probability
    : finding.probability;
  const word = state.cut ? read.writes : finding.word;
  const told = p === undefined ? word : `${word} ${rounded(p)}`;
  return make(
    "p",
    state.cut ? "and, cut in all heads, " : "and, with the others, ",
    make("b", { class: state.cut && read.flips ? "cut" : "look", dir: "auto" }, told),
  );
}

/**
 * The largest weights of the head; without the link the others share its weight.
 * @param {LinkNumbers} numbers
 * @param {boolean} cut
 */
function softmax({ row, at, weight: own }, cut) {
  const shares = row.map(([word, weight], i) => {
    const share = !cut ? weight : i === at || own > 1 - 1e-6 ? 0 : weight / (1 - own);
    return /** @type {[string, number]} */ ([word, share]);
  });
  shares.sort((a, b) => b[1] - a[1]);
  const list = make("span.mini");
  for (const [word, share] of shares.slice(0, SHOWN)) {
    const bar = make("i", { style: { width: `${100 * share}%` } });
    const name = make("span", { dir: "auto" }, bare(word));
    list.append(make("span", { title: share.toFixed(4) }, name, make("span", bar)));
  }
  return list;
}

/** @param {string} name @param {...(HTMLElement | string)} children */
function step(name, ...children) {
  return make("li", make("h3", name), ...children);
}

/** @param {string} text */
const note = (text) => make("p", { dir: "auto" }, text);

/** @param {string} text */
const big = (text) => make("strong", text);

/** @param {...Float64Array} vectors */
function extent(...vectors) {
  return Math.max(1e-9, ...vectors.flatMap((one) => Array.from(one, Math.abs)));
}

/**
 * A vector as a row of coloured cells.
 * @param {Float64Array} values
 * @param {number} most
 */
function cells(values, most) {
  const row = [...values].map((value) =>
    make("i", { title: fixed(value, 3), style: { background: shade(value / most) } }),
  );
  return make("span.vector", { role: "img", "aria-label": `${values.length} numbers` }, ...row);
}
