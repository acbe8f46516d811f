/** Tables: the scores of each word by every method, and its weights layer by layer. */

/**
 * @typedef {object} TableData See `Table` in table.py.
 * @property {string} title
 * @property {string[]} rows
 * @property {string[]} columns
 * @property {string[]} notes
 * @property {(number | null)[][]} values null: not known
 * @property {string} footer
 */

const FOREMOST = 24;

/**
 * A table with bars; each column has its own scale.
 * @param {TableData} data
 * @param {string} label
 */
function bars({ title, rows, columns, notes, values, footer }, label) {
  const most = columns.map((_, j) => Math.max(...values.map((row) => Math.abs(row[j] ?? 0)), 1e-9));
  const head = columns.map((name, j) =>
    make("th", { scope: "col" }, name, notes[j] ? make("span", notes[j]) : null),
  );
  const body = rows.map((word, i) => {
    const cells = values[i].map((value, j) => {
      const width = `${(100 * Math.abs(value ?? 0)) / most[j]}%`;
      const bar = make("i", { class: (value ?? 0) < 0 ? "below" : null, style: { width } });
      const number = make("span.number", value === null ? "·" : fixed(value, 2));
      return make("td", make("span.bar", bar), number);
    });
    return make("tr", make("th", { scope: "row", dir: "auto" }, bare(word)), ...cells);
  });
  return make(
    "div",
    title === "" ? null : make("p", { dir: "auto" }, title),
    scrolled(label, "measures", make("tr", make("td"), ...head), body),
    footer === "" ? null : make("p.note", footer),
  );
}

/**
 * @param {string} label
 * @param {string} kind
 * @param {HTMLElement} head
 * @param {HTMLElement[]} rows
 */
function scrolled(label, kind, head, rows) {
  const table = make("table", { class: kind }, make("thead", head), make("tbody", ...rows));
  const about = { class: "scroll", tabindex: 0, role: "group", "aria-label": label };
  return make("div", about, table);
}

/**
 * Layer by layer: the strongest head of each layer, for each word that is looked at.
 * @param {Finding} finding
 */
function layerByLayer(finding) {
  const all = finding.reads.map((_, i) => i).filter((i) => !finding.reads[i].special);
  const shown = all
    .sort((a, b) => finding.reads[b].looked - finding.reads[a].looked)
    .slice(0, FOREMOST)
    .sort((a, b) => a - b);
  const rows = finding.attention.map((heads, layer) => {
    const cells = shown.map((i) => {
      const weights = heads.map((row) => row[i]);
      const best = Math.max(...weights);
      const title = `head ${weights.indexOf(best)}: ${best.toFixed(3)}`;
      const background = `color-mix(in srgb, var(--shade) ${Math.round(55 * best)}%, transparent)`;
      return make("td", { title, style: { background } }, best.toFixed(2));
    });
    return make("tr", make("th", { scope: "row" }, `layer ${layer}`), ...cells);
  });
  const names = shown.map((i) =>
    make("th", { scope: "col", dir: "auto" }, bare(finding.reads[i].word)),
  );
  return make(
    "div",
    scrolled("Layer by layer", "layers", make("tr", make("td"), ...names), rows),
    make("p.note", told("layers")),
  );
}
