/** What the model would write, and what each input word is worth. */

import { make } from "./dom.js";
import { rounded } from "./numbers.js";
import { readable } from "./links.js";
import { bare } from "./words.js";

/** @typedef {import("./numbers.js").Finding} Finding */
/** @typedef {import("./numbers.js").Selection} Selection */
/** @typedef {import("./numbers.js").Select} Select */

const CLEAR = 0.02;

/**
 * The probabilities of the alternatives, with marks for what they were before the cut.
 * @param {Finding} finding
 * @param {Selection} state
 */
export function choices(finding, state) {
  const read = finding.reads[state.word];
  const vector = finding.kind === "vector";
  /** @type {[string, number, number][]} */
  const rows = vector
    ? [["cosine", 1, state.cut ? read.probability : 1]]
    : finding.alternatives.map(([word, p], i) => [word, p, state.cut ? read.probabilities[i] : p]);
  const list = make("dl", { class: "choices" });
  for (const [word, before, now] of rows) {
    const fresh = state.cut && read.flips && word === read.writes;
    const bar = make("i", {});
    bar.style.width = `${100 * Math.max(0, now)}%`;
    const track = make("span", { class: "track" }, bar);
    if (state.cut) {
      const mark = make("u", { title: `with all links: ${rounded(before)}` });
      mark.style.left = `${100 * before}%`;
      track.append(mark);
    }
    const value = make("span", { class: "value" }, vector ? now.toFixed(2) : rounded(now));
    list.append(
      make("dt", { class: fresh ? "fresh" : null, dir: "auto", title: word }, word),
      make("dd", { class: fresh ? "fresh" : null }, track, value),
    );
  }
  return make(
    "section",
    {},
    make(
      "h2",
      {},
      finding.labels.choices,
      " ",
      make("span", { dir: "auto" }, finding.labels.before),
    ),
    list,
    state.cut ? make("p", { class: "note" }, "Mark: with all links.") : "",
  );
}

/**
 * For each input word a hollow bar, how much it is looked at, beside a solid one, what is lost.
 * @param {Finding} finding
 * @param {Selection} state
 * @param {Select} select
 */
export function columns(finding, state, select) {
  const strip = make("div", { class: "strip" });
  const { reads } = finding;
  const worth = (/** @type {number} */ i) => Math.max(reads[i].looked, reads[i].matters);
  const order = readable(finding, state);
  order.sort((a, b) => Number(b === state.word) - Number(a === state.word) || worth(b) - worth(a));
  for (const i of order.slice(0, finding.columns).sort((a, b) => a - b)) {
    strip.append(column(finding, state, i, select));
  }
  const rest = order.length - finding.columns;
  return make(
    "section",
    {},
    make("h2", {}, finding.labels.matters, " ", make("span", {}, finding.labels.each)),
    strip,
    make(
      "p",
      { class: "key" },
      make("span", { class: "looked" }, finding.labels.looked),
      finding.labels.lost ? make("span", { class: "lost" }, finding.labels.lost) : null,
      rest > 0 ? make("span", {}, `the ${finding.columns} foremost of ${order.length} words`) : "",
    ),
  );
}

/**
 * @param {Finding} finding
 * @param {Selection} state
 * @param {number} i
 * @param {Select} select
 */
function column(finding, state, i, select) {
  const read = finding.reads[i];
  const gone = state.cut && i === state.word;
  const cuts = finding.kind !== "attention";
  const looked = make("i", { class: "look" });
  const lost = make("i", { class: "matter" });
  looked.style.height = `${100 * read.looked}%`;
  lost.style.height = `${100 * Math.min(1, Math.max(0, read.matters))}%`;
  const points = Math.round(100 * read.matters);
  return make(
    "button",
    {
      class: `column${i === state.word ? " own" : ""}${gone ? " gone" : ""}`,
      "data-focus": `column ${i}`,
      "data-column": i,
      "aria-pressed": String(cuts ? gone : i === state.word),
      "aria-label": cuts
        ? `${gone ? "Restore" : "Cut"} ${read.word}: looked at ${read.looked.toFixed(2)}, ${points} points lost without it`
        : `${read.word}: ${read.looked.toFixed(2)}`,
      onclick: () => select(cuts ? { word: i, cut: !gone } : { word: i }),
    },
    make("b", {}, read.matters >= CLEAR ? `−${points}` : ""),
    make("span", { class: "bars" }, looked, cuts ? lost : null),
    make("span", { class: "name", dir: "auto", title: read.word }, bare(read.word)),
  );
}
