/** What is on the page as data, to copy or to save. */

/**
 * Saves a text as a file.
 * @param {string} text
 * @param {string} name
 * @param {string} kind
 */
function saveText(text, name, kind) {
  const url = URL.createObjectURL(new Blob([text], { type: kind }));
  const link = make("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/**
 * Every link of the selected row: one line per layer, head and word.
 * @param {Finding} finding
 * @returns {Record<string, string | number>[]}
 */
function records(finding) {
  return finding.attention.flatMap((heads, layer) =>
    heads.flatMap((row, head) =>
      row.map((attention, i) => ({
        query: finding.word,
        key: finding.reads[i].word,
        place: finding.place,
        layer,
        head,
        attention,
        ...(finding.effects.length > 0 ? { effect: finding.effects[layer][head][i] } : {}),
        ...(finding.kind === "attention" ? {} : { matters: finding.reads[i].matters }),
      })),
    ),
  );
}

/** @param {Record<string, string | number>[]} rows */
function csv(rows) {
  const names = Object.keys(rows[0]);
  /** @param {string | number} value */
  const field = (value) =>
    typeof value === "number" ? String(value) : `"${value.replaceAll('"', '""')}"`;
  const lines = rows.map((row) => names.map((name) => field(row[name])).join(","));
  return [names.join(","), ...lines, ""].join("\n");
}

/** @param {Finding} finding */
function data(finding) {
  const rows = records(finding);
  const code = `import regard\n\nlens = regard.Lens.open(${JSON.stringify(finding.model)})\nlens.why(${JSON.stringify(finding.text)}, ${JSON.stringify(finding.word)}).to_frame()`;
  const frame = [make("p.note", "As a DataFrame: "), make("pre", { tabindex: 0 }, code)];
  return make(
    "div.data",
    make("p", `${rows.length.toLocaleString("en")} links of the selected word, one line each.`),
    make(
      "p.tools",
      tool("Save as CSV", () => saveText(csv(rows), "regard.csv", "text/csv")),
      tool("Save as JSON", () => saveText(JSON.stringify(rows), "regard.json", "application/json")),
    ),
    ...(finding.python === "" ? [] : frame),
  );
}
