/** The probabilities of the next word, and what each input word contributes. */

const CLEAR = 0.02;

/**
 * The probabilities of the alternatives, with marks for what they were before the cut.
 * @param {Scene} scene
 */
function choices({ finding, state }) {
  const read = finding.reads[state.word];
  const vector = finding.kind === "vector";
  /** @type {[string, number, number][]} */
  const rows = vector
    ? [["cosine", 1, state.cut ? read.probability : 1]]
    : finding.alternatives.map(([word, p], i) => [word, p, state.cut ? read.probabilities[i] : p]);
  const list = make("dl.choices");
  for (const [word, before, now] of rows) {
    const fresh = state.cut && read.flips && word === read.writes;
    const track = make("span.track", make("i", { style: { width: `${100 * Math.max(0, now)}%` } }));
    if (state.cut) {
      const title = `with all links: ${rounded(before)}`;
      track.append(make("u", { title, style: { left: `${100 * before}%` } }));
    }
    const value = make("span.value", vector ? now.toFixed(2) : rounded(now));
    list.append(
      make("dt", { class: fresh ? "fresh" : null, dir: "auto", title: word }, word),
      make("dd", { class: fresh ? "fresh" : null }, track, value),
    );
  }
  return make(
    "section",
    make("h2", finding.labels.choices, " ", make("span", { dir: "auto" }, finding.labels.before)),
    list,
    state.cut ? make("p.note", "Mark: with all links.") : "",
  );
}

/**
 * For each input word, a hollow bar for attention and a solid one for the cost of a cut.
 * @param {Scene} scene
 */
function columns(scene) {
  const { finding, state } = scene;
  const { reads } = finding;
  const worth = (/** @type {number} */ i) => Math.max(reads[i].looked, reads[i].matters);
  const order = readable(scene);
  order.sort((a, b) => Number(b === state.word) - Number(a === state.word) || worth(b) - worth(a));
  const shown = order.slice(0, finding.columns).sort((a, b) => a - b);
  const rest = order.length - finding.columns;
  return make(
    "section",
    make("h2", finding.labels.matters, " ", make("span", finding.labels.each)),
    make("div.strip", ...shown.map((i) => column(scene, i))),
    make(
      "p.key",
      make("span.looked", finding.labels.looked),
      finding.labels.lost ? make("span.lost", finding.labels.lost) : null,
      rest > 0 ? make("span", `the top ${finding.columns} of ${order.length} words`) : "",
    ),
  );
}

/**
 * Turns the names of the columns if one of them does not fit, and scrolls to the selected column.
 * @param {Element} root
 */
function turn(root) {
  const strip = /** @type {HTMLElement} */ (root.querySelector(".strip"));
  strip.classList.remove("turned");
  const names = /** @type {HTMLElement[]} */ ([...strip.querySelectorAll(".name")]);
  const narrow = names.some((name) => name.scrollWidth > name.clientWidth);
  strip.classList.toggle("turned", narrow || strip.scrollWidth > strip.clientWidth);
  const own = /** @type {HTMLElement | null} */ (strip.querySelector(".own"));
  if (own === null) return;
  const middle = own.offsetLeft + own.offsetWidth / 2;
  strip.scrollLeft = middle - strip.clientWidth / 2;
}

/** @param {Scene} scene @param {number} i */
function column({ finding, state, select }, i) {
  const read = finding.reads[i];
  const gone = state.cut && i === state.word;
  const cuts = read.measured;
  const share = Math.min(1, Math.max(0, read.matters));
  const looked = make("i.look", { style: { height: `${100 * read.looked}%` } });
  const lost = make("i.matter", { style: { height: `${100 * share}%` } });
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
    make("b", read.matters >= CLEAR ? `−${points}` : ""),
    make("span.bars", looked, cuts ? lost : null),
    make("span.name", { dir: "auto", title: read.word }, bare(read.word)),
  );
}
