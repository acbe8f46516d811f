/** The strongest links of all layers: source words, the source after the encoder, written words. */

const SPAN = 1040;
const REACH = 120;
const SIZE = 14;
/** Room for the names of the lines. */
const LEFT_EDGE = 112;
/** The smallest scale of the drawing. */
const LEAST = 0.86;
/** Texts of more words show those with links only. */
const ALL = 24;
/** Room for a letter, and between words. */
const [LETTER, GAP] = [9, 12];

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
  const used = lines.map(() => new Set());
  for (const link of finding.circuit) {
    const [from, to] = ends(link, two);
    used[from].add(link.key);
    used[to].add(link.query);
  }
  // The first two lines have the same words, in the same places.
  const isShown = (/** @type {number} */ line, /** @type {number} */ i) =>
    lines[line].words.length <= ALL || used[line].has(i) || (line < 2 && used[1 - line].has(i));
  const middles = lines.map(({ words }, line) =>
    spaced(words.map((word, i) => (isShown(line, i) ? LETTER * short(word).length + GAP : GAP))),
  );
  const wide = LEFT_EDGE + Math.max(...middles.map((line) => line.width));
  const most = Math.max(...finding.circuit.map((link) => Math.abs(link.effect)), 1e-9);
  const tall = 26 + (lines.length - 1) * (REACH + 22) + (two ? 46 : 10);
  const drawing = draw("svg", {
    class: "circuit",
    viewBox: `0 0 ${wide} ${tall}`,
    role: "img",
    "aria-label": `The ${finding.circuit.length} strongest links of all layers`,
  });
  drawing.style.minWidth = `${Math.round(LEAST * wide)}px`;
  /** @param {number} line */
  const y = (line) => 18 + line * (REACH + 22);
  /** @param {number} line @param {number} i */
  const x = (line, i) => LEFT_EDGE + middles[line].at[i];
  const thick = (/** @type {CircuitLink} */ link) =>
    Math.max(1, (9 * Math.abs(link.effect)) / most);
  for (const [link, aside] of beside([...finding.circuit].reverse(), thick)) {
    const [from, to] = ends(link, two);
    const own = two && link.place === "decoder";
    const turn = Math.sign(x(to, link.query) - x(from, link.key));
    const [x1, x2] = [
      x(from, link.key) + (own ? -turn : 1) * aside,
      x(to, link.query) + (own ? turn : 1) * aside,
    ];
    const lift = own ? 0 : turn * aside;
    const [y1, y2] = [y(from) + 6 - lift, (own ? y(to) + 6 : y(to) - SIZE) - lift];
    const [down, up] = own ? [34 + aside, 34 + aside] : [(y2 - y1) / 2, (y1 - y2) / 2];
    const d = `M${x1} ${y1}C${x1} ${y1 + down} ${x2} ${y2 + up} ${x2} ${y2}`;
    const title = `${PLACES[link.place] ?? link.place}, layer ${link.layer}, head ${link.head}: attention ${link.attention.toFixed(2)}, ${link.measured ? "" : "about "}${fixed(link.effect, 2)} when cut`;
    const path = draw(
      "path",
      { d, class: link.effect < 0 ? "for" : "against" },
      draw("title", title),
    );
    path.style.strokeWidth = String(thick(link));
    if (!link.measured) path.style.strokeDasharray = "2 5";
    if (link.layer === state.layer && link.head === state.head && link.place === finding.place)
      path.classList.add("own");
    drawing.append(path);
  }
  lines.forEach(({ name, words }, line) => {
    drawing.append(draw("text", { class: "line-name", x: 0, y: y(line) }, name));
    words.forEach((word, i) => {
      const kind = used[line].has(i) ? "used" : "unused";
      if (kind === "unused" && words.length > ALL) return;
      drawing.append(
        draw(
          "text",
          { class: kind, x: x(line, i), y: y(line), "text-anchor": "middle" },
          short(word),
        ),
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

/** @param {string} word */
const short = (word) => (word.length > 12 ? `${word.slice(0, 11)}…` : word);

/**
 * The middles of words in a line, which fills the drawing, or is wider than it.
 * @param {number[]} widths
 */
function spaced(widths) {
  const sum = widths.reduce((all, one) => all + one, 0);
  const width = Math.max(SPAN - LEFT_EDGE, sum);
  let before = 0;
  const at = widths.map((one) => {
    before += one;
    return ((before - one / 2) * width) / Math.max(sum, 1);
  });
  return { at, width };
}

/**
 * Links, and how far each is drawn from the middle: those between the same words lie side by side.
 * @param {CircuitLink[]} links
 * @param {(link: CircuitLink) => number} thick
 * @returns {[CircuitLink, number][]}
 */
function beside(links, thick) {
  const ends = (/** @type {CircuitLink} */ one) => `${one.place} ${one.key} ${one.query}`;
  return links.map((link, i) => {
    const same = links.map((one, j) => ({ one, j })).filter(({ one }) => ends(one) === ends(link));
    const sum = same.reduce((all, { one }) => all + thick(one) + 1, 0);
    const before = same.filter(({ j }) => j < i).reduce((all, { one }) => all + thick(one) + 1, 0);
    return [link, before + (thick(link) + 1 - sum) / 2];
  });
}
