/** All measures side by side: how much each word is worth, by every method. */

import { make } from "./dom.js";
import { fixed } from "./numbers.js";
import { bare } from "./words.js";

/** @typedef {import("./data.js").MethodData} MethodData */

const FOREMOST = 24;

/**
 * A table with a row per word and a column per method; each column has its own scale.
 * @param {string} word
 * @param {string[]} words
 * @param {MethodData[]} methods
 */
export function measures(word, words, methods) {
  const scores = methods.map((method) => method.scores.map((score) => score ?? 0));
  const most = scores.map((column) => Math.max(...column.map(Math.abs), 1e-9));
  const worth = words.map((_, i) =>
    Math.max(...scores.map((column, m) => Math.abs(column[i]) / most[m])),
  );
  const shown = words
    .map((_, i) => i)
    .sort((a, b) => worth[b] - worth[a])
    .slice(0, FOREMOST)
    .sort((a, b) => a - b);
  const head = methods.map((method) =>
    make(
      "th",
      { scope: "col" },
      method.name,
      method.note === "" ? null : make("span", {}, method.note),
      method.agreement === null
        ? null
        : make("span", {}, `agrees with cutting ${fixed(method.agreement, 2)}`),
    ),
  );
  const rows = shown.map((i) =>
    make(
      "tr",
      { "data-word": i },
      make("th", { scope: "row", dir: "auto" }, bare(words[i])),
      ...methods.map((_, m) => {
        const bar = make("i", { class: scores[m][i] < 0 ? "below" : null });
        bar.style.width = `${(100 * Math.abs(scores[m][i])) / most[m]}%`;
        const value = methods[m].scores[i];
        const text = value === null ? "·" : fixed(value, 2);
        return make(
          "td",
          {},
          make("span", { class: "bar" }, bar),
          make("span", { class: "number" }, text),
        );
      }),
    ),
  );
  const rest = words.length - shown.length;
  return make(
    "div",
    {},
    make("p", {}, "What each word is worth to ", make("b", { dir: "auto" }, bare(word)), ":"),
    make(
      "div",
      { class: "scroll", tabindex: 0, role: "group", "aria-label": "All measures" },
      make(
        "table",
        { class: "measures" },
        make("thead", {}, make("tr", {}, make("td", {}), ...head)),
        make("tbody", {}, ...rows),
      ),
    ),
    rest > 0
      ? make("p", { class: "note" }, `The ${shown.length} foremost of ${words.length} words.`)
      : null,
  );
}

/**
 * Layer by layer: the strongest head of each layer, for each word that is looked at.
 * @param {import("./numbers.js").Finding} finding
 */
export function layerByLayer(finding) {
  const all = finding.reads.map((_, i) => i).filter((i) => !finding.reads[i].special);
  const shown = all
    .sort((a, b) => finding.reads[b].looked - finding.reads[a].looked)
    .slice(0, FOREMOST)
    .sort((a, b) => a - b);
  const rows = finding.attention.map((heads, layer) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, `layer ${layer}`),
      ...shown.map((i) => {
        const weights = heads.map((row) => row[i]);
        const best = Math.max(...weights);
        const cell = make(
          "td",
          { title: `head ${weights.indexOf(best)}: ${best.toFixed(3)}` },
          best.toFixed(2),
        );
        cell.style.background = `color-mix(in srgb, var(--shade) ${Math.round(55 * best)}%, transparent)`;
        return cell;
      }),
    ),
  );
  return make(
    "div",
    {},
    make(
      "div",
      { class: "scroll", tabindex: 0, role: "group", "aria-label": "Layer by layer" },
      make(
        "table",
        { class: "layers" },
        make(
          "thead",
          {},
          make(
            "tr",
            {},
            make("td", {}),
            ...shown.map((i) =>
              make("th", { scope: "col", dir: "auto" }, bare(finding.reads[i].word)),
            ),
          ),
        ),
        make("tbody", {}, ...rows),
      ),
    ),
    make(
      "p",
      { class: "note" },
      "The weight of the strongest head of each layer, from the selected word.",
    ),
  );
}
