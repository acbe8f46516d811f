/** Where exactly, and how: layers × heads of the selected link, and its six steps. */

import { make } from "../../static/dom.js";
import { fixed, rounded, shade, vector } from "./numbers.js";
import { bare } from "./words.js";

/** @typedef {import("./numbers.js").Finding} Finding */
/** @typedef {import("./numbers.js").Selection} Selection */
/** @typedef {import("./numbers.js").Select} Select */

const SHOWN = 4;
const FAINT = 0.04;

/**
 * The weight of the link in every head; a bar below tells what cutting it there alone changes.
 * @param {Finding} finding
 * @param {Selection} state
 * @param {Select} select
 */
export function grid(finding, state, select) {
  const heads = finding.attention[0].length;
  const table = make("div", { class: "grid", role: "group", "aria-label": "layers and heads" });
  table.style.setProperty("--heads", String(heads));
  table.append(make("span", {}));
  for (let head = 0; head < heads; head++) table.append(make("span", { class: "top" }, `${head}`));
  const most = Math.max(0.5, ...finding.effects.flat(2).map(Math.abs));
  finding.attention.forEach((layer, l) => {
    table.append(make("span", {}, `layer ${l}`));
    layer.forEach((weights, h) => table.append(cell(finding, state, l, h, weights, most, select)));
  });
  const { word } = finding.reads[state.word];
  return make(
    "section",
    { class: "where" },
    make(
      "h2",
      {},
      "Where ",
      make("span", { dir: "auto" }, `${finding.word} → ${bare(word)}, layers × heads`),
    ),
    make("div", { class: "scroll" }, table),
    make("p", { class: "note effect" }, said(finding, state)),
  );
}

/**
 * @param {Finding} finding
 * @param {Selection} state
 * @param {number} layer
 * @param {number} head
 * @param {number[]} weights
 * @param {number} most
 * @param {Select} select
 */
function cell(finding, state, layer, head, weights, most, select) {
  const weight = state.cut ? 0 : weights[state.word];
  const effect = effectOf(finding, layer, head, state.word).value;
  const share = Math.min(1, Math.abs(effect) / most);
  const bar = make("i", { class: share < FAINT ? "none" : null });
  bar.style.width = `${100 * share}%`;
  const button = make(
    "button",
    {
      "data-focus": `cell ${layer} ${head}`,
      "data-cell": `${layer} ${head}`,
      "data-weight": weights[state.word],
      "aria-pressed": String(layer === state.layer && head === state.head),
      "aria-label": `layer ${layer}, head ${head}: ${weight.toFixed(2)}`,
      title: `layer ${layer}, head ${head}: weight ${weight.toFixed(3)}, effect ${fixed(effect, 2)}`,
      onclick: () => select({ layer, head }),
    },
    bar,
  );
  button.style.background = shade(weight);
  return button;
}

/**
 * What cutting the link in one head alone changes: measured, if it was cut, else estimated.
 * @param {Finding} finding
 * @param {number} layer
 * @param {number} head
 * @param {number} word
 */
function effectOf(finding, layer, head, word) {
  const found = finding.measured.find(([l, h, w]) => l === layer && h === head && w === word);
  const value = found === undefined ? finding.effects[layer][head][word] : found[3];
  return { value, measured: found !== undefined };
}

/**
 * @param {Finding} finding
 * @param {Selection} state
 */
function said(finding, state) {
  const { layer, head, word } = state;
  const { value, measured } = effectOf(finding, layer, head, word);
  const metric =
    finding.kind === "vector" ? "the cosine" : `log p(${finding.word}) − log p(${finding.instead})`;
  const weight = finding.attention[layer][head][word].toFixed(2);
  return (
    `Layer ${layer}, head ${head}: weight ${weight}. Cut in this head alone, ${metric} changes by ` +
    `${measured ? "" : "about "}${fixed(value, 2)} (${measured ? "measured" : "estimated"}). ` +
    "Colour: weight; bar: that change."
  );
}

/**
 * The six steps of the selected link in the selected head, with the model's own numbers.
 * @param {Finding} finding
 * @param {Selection} state
 */
export function six(finding, state) {
  const { layer, head } = state;
  const key = bare(finding.reads[state.word].word);
  const title = make(
    "h2",
    {},
    "How ",
    make(
      "span",
      { dir: "auto" },
      `${finding.word} → ${key} in layer ${layer}, head ${head}, in six steps, with the real numbers`,
    ),
  );
  const at = finding.row.words.indexOf(state.word);
  const body =
    at < 0
      ? make(
          "p",
          { class: "note" },
          `This file has the numbers of the ${finding.row.words.length} foremost words only; lens.steps(…) has all.`,
        )
      : flow(finding, state, at, key);
  const before =
    "The query and the score are those before the cut; in later layers they change, too.";
  const told = state.cut && at >= 0 && layer > 0 ? make("p", { class: "note" }, before) : "";
  return make("section", { class: "how" }, title, body, told);
}

/**
 * @param {Finding} finding
 * @param {Selection} state
 * @param {number} at
 * @param {string} key
 */
function flow(finding, state, at, key) {
  const { row } = finding;
  const { layer, head, cut } = state;
  const own = row.weight[layer][head][at];
  const weight = cut ? 0 : own;
  const q = vector(row.q, layer, head);
  const k = vector(row.k, layer, head, at);
  const v = vector(row.v, layer, head, at);
  const output = vector(row.output, layer, head);
  const left = 1 - own;
  const after = cut ? output.map((x, i) => (left > 1e-6 ? (x - own * v[i]) / left : 0)) : output;
  const scaled = row.scaled[layer][head][at];
  const root = `÷ √${q.length}`;
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
    step(
      "Score",
      big(fixed(row.product[layer][head][at], 2)),
      note(`q · k, ${q.length} products added up`),
    ),
    step(
      "Scale",
      big(cut || scaled === null ? "−∞" : fixed(scaled, 2)),
      note(
        cut
          ? `${root}, then the link is masked: this is what “cut” means`
          : `${root}, nothing masked`,
      ),
    ),
    step("Softmax", big(cut ? "0" : weight.toFixed(3)), softmax(finding, state, own)),
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
      note(`over ${finding.reads.length} words: what the head hands on`),
      cells(after, sizes[1]),
      outcome(finding, state),
    ),
  );
}

/**
 * @param {Finding} finding
 * @param {Selection} state
 */
function outcome(finding, state) {
  if (finding.kind === "vector") return note("and, with the other heads, the vector");
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
    {},
    state.cut ? "and, cut in all heads, " : "and, with the others, ",
    make("b", { class: state.cut && read.flips ? "cut" : "look", dir: "auto" }, told),
  );
}

/**
 * The largest weights of the head; without the link the others share its weight.
 * @param {Finding} finding
 * @param {Selection} state
 * @param {number} own
 */
function softmax(finding, state, own) {
  const { words } = finding.row;
  const weights = finding.row.weight[state.layer][state.head].map((weight, i) => {
    if (!state.cut) return weight;
    return words[i] === state.word || own > 1 - 1e-6 ? 0 : weight / (1 - own);
  });
  const order = weights.map((_, i) => i).sort((a, b) => weights[b] - weights[a]);
  const list = make("span", { class: "mini" });
  for (const i of order.slice(0, SHOWN)) {
    const bar = make("i", {});
    bar.style.width = `${100 * weights[i]}%`;
    const name = make("span", { dir: "auto" }, bare(finding.reads[words[i]].word));
    list.append(make("span", { title: weights[i].toFixed(4) }, name, make("span", {}, bar)));
  }
  return list;
}

/**
 * @param {string} name
 * @param {...(HTMLElement | string)} children
 */
function step(name, ...children) {
  return make("li", {}, make("h3", {}, name), ...children);
}

/** @param {string} text */
const note = (text) => make("p", { dir: "auto" }, text);

/** @param {string} text */
const big = (text) => make("strong", {}, text);

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
  const row = make("span", {
    class: "vector",
    role: "img",
    "aria-label": `${values.length} numbers`,
  });
  for (const value of values) {
    const one = make("i", { title: fixed(value, 3) });
    one.style.background = shade(value / most);
    row.append(one);
  }
  return row;
}
