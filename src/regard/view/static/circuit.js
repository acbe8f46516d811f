/** The strongest links of all layers: source words, the source after the encoder, written words. */

const SPAN = 1040;
const REACH = 120;
const SIZE = 14;

/**
 * Two or three lines of words, and the links between them; thick where a cut changes most.
 * @param {Finding} finding
 * @param {{layer: number, head: number}} state
 */
function circuit(finding, state) {
  const reads = finding.reads.map((read) => bare(read.word));
  const two = finding.place === "cross";
  const { reads: read, writes } = finding.labels;
  const lines = [
    { name: read, words: reads },
    { name: two ? "after the encoder" : "", words: reads },
  ];
  if (two) lines.push({ name: writes, words: finding.output.slice(0, finding.position + 1) });
  const most = Math.max(...finding.circuit.map((link) => Math.abs(link.effect)), 1e-9);
  const tall = 26 + (lines.length - 1) * (REACH + 22) + (two ? 46 : 10);
  const drawing = draw("svg", {
    class: "circuit",
    viewBox: `0 0 ${SPAN} ${tall}`,
    role: "img",
    "aria-label": `The ${finding.circuit.length} strongest links of all layers`,
  });
  /** @param {number} line */
  const y = (line) => 18 + line * (REACH + 22);
  /** @param {number} line @param {number} i */
  const x = (line, i) => {
    const { words } = lines[line];
    return 96 + ((i + 0.5) * (SPAN - 100)) / Math.max(words.length, 4);
  };
  const used = new Set();
  for (const link of [...finding.circuit].reverse()) {
    const [from, to] = ends(link, two);
    used.add(`${from} ${link.key}`).add(`${to} ${link.query}`);
    const own = two && link.place === "decoder";
    const [x1, x2] = [x(from, link.key), x(to, link.query)];
    const [y1, y2] = [y(from) + 6, own ? y(to) + 6 : y(to) - SIZE];
    const [down, up] = own ? [34, 34] : [(y2 - y1) / 2, (y1 - y2) / 2];
    const d = `M${x1} ${y1}C${x1} ${y1 + down} ${x2} ${y2 + up} ${x2} ${y2}`;
    const title = `${PLACES[link.place] ?? link.place}, layer ${link.layer}, head ${link.head}: attention ${link.attention.toFixed(2)}, ${link.measured ? "" : "about "}${fixed(link.effect, 2)} when cut`;
    const path = draw(
      "path",
      { d, class: link.effect < 0 ? "for" : "against" },
      draw("title", title),
    );
    path.style.strokeWidth = String(Math.max(1, (9 * Math.abs(link.effect)) / most));
    if (!link.measured) path.style.strokeDasharray = "2 5";
    if (link.layer === state.layer && link.head === state.head && link.place === finding.place)
      path.classList.add("own");
    drawing.append(path);
  }
  lines.forEach(({ name, words }, line) => {
    drawing.append(draw("text", { class: "line-name", x: 0, y: y(line) }, name));
    words.forEach((word, i) => {
      const shown = word.length > 12 ? `${word.slice(0, 11)}…` : word;
      const kind = used.has(`${line} ${i}`) ? "used" : "unused";
      if (kind === "unused" && words.length > 24) return;
      drawing.append(
        draw("text", { class: kind, x: x(line, i), y: y(line), "text-anchor": "middle" }, shown),
      );
    });
  });
  return make(
    "div",
    make("div.scroll", drawing),
    make(
      "p.note",
      told("circuit", { count: finding.circuit.length, metric: finding.labels.metric }),
    ),
  );
}

/** @type {Record<string, string>} */
const PLACES = { encoder: "encoder", decoder: "decoder", cross: "cross-attention" };

/**
 * The lines of words between which a link runs.
 * @param {CircuitLink} link
 * @param {boolean} two
 */
function ends(link, two) {
  if (!two || link.place === "encoder") return [0, 1];
  return link.place === "cross" ? [1, 2] : [2, 2];
}
