/** The figure: input above, output below, thin lines for the alignment, one thick ribbon. */

const LARGE = 21;
const SMALL = 16;
/** Texts of more words are shown as running text. */
const MANY = 40;

/**
 * The words and an empty drawing; `join` draws the ribbons once the words have their places.
 * @param {Scene} scene
 */
function links(scene) {
  const { finding, state, select, can } = scene;
  const read = finding.reads[state.word];
  const shown = readable(scene);
  const above = make("div.line.above", {
    role: "radiogroup",
    "aria-label": finding.labels.reads,
    dir: direction(finding.text),
  });
  for (const i of shown) above.append(readWord(scene, shown, i));
  const written = outputWords(scene);
  const below = make("div.line.below", {
    role: "group",
    "aria-label": finding.labels.writes,
    dir: direction(written.map(({ word }) => word).join(" ")),
  });
  for (const one of written) below.append(writtenWord(scene, one));
  const drawing = draw("svg", { class: "ribbons", "aria-hidden": "true" });
  const many = finding.output.some((_, i) => i !== finding.position && can.canWrite(i));
  const attends = make(
    "button.aside",
    { "data-focus": "asks", onclick: () => select({ asks: state.word }) },
    "what ",
    make("b", { dir: "auto" }, bare(read.word)),
    " attends to while it is read",
  );
  return make(
    "div.figure",
    make("p.label", finding.labels.reads, can.canRead && !read.special ? attends : null),
    make("div.duo", drawing, above, make("div.reach"), below, scissors(scene)),
    make("p.label", finding.labels.writes + (many ? " · click a word to see where it looked" : "")),
  );
}

/**
 * The button that cuts the selected link, or restores it.
 * @param {Scene} scene
 */
function scissors({ finding, state, select }) {
  const read = finding.reads[state.word];
  if (!read.measured) return make("b", read.looked.toFixed(2));
  return make(
    "button",
    {
      class: state.cut ? "scissors cut" : "scissors",
      "data-focus": "scissors",
      "aria-pressed": String(state.cut),
      "aria-label": `${state.cut ? "Restore" : "Cut"} the link to ${read.word}, attention ${read.looked.toFixed(2)}`,
      onclick: () => select({ cut: !state.cut }),
    },
    icon(state.cut),
    state.cut ? "restore" : "cut",
    state.cut ? "" : make("b", read.looked.toFixed(2)),
  );
}

/**
 * The input words that are shown: special tokens only while selected.
 * @param {Scene} scene
 */
function readable({ finding, state }) {
  const all = finding.reads.map((_, i) => i);
  return all.filter((i) => !finding.reads[i].special || i === state.word);
}

/** @param {Scene} scene @param {number[]} shown @param {number} i */
function readWord({ finding, state, select }, shown, i) {
  const { word, looked } = finding.reads[i];
  const own = i === state.word;
  const place = shown.indexOf(i);
  return make(
    "button",
    {
      class: own ? (state.cut ? "word gone" : "word hit") : "word",
      role: "radio",
      dir: "auto",
      "data-focus": own ? "read" : null,
      "data-read": i,
      "aria-checked": String(own),
      "aria-label": `${word}, looked at ${looked.toFixed(2)}`,
      tabindex: own ? 0 : -1,
      title: word,
      onclick: () => select({ word: i }),
      onkeydown: (/** @type {KeyboardEvent} */ event) => {
        const next = moved(event, place, shown.length);
        if (next !== null && next !== place) select({ word: shown[next] });
      },
    },
    word,
  );
}

/** @typedef {{word: string, place: number}} OutputWord its place before a cut, −1 if it is new */

/**
 * The words of the output as they are shown.
 * @param {Scene} scene
 * @returns {OutputWord[]}
 */
function outputWords({ finding, state }) {
  if (!state.cut) return finding.output.map((word, place) => ({ word, place }));
  const { output, places } = finding.reads[state.word];
  return output.map((word, i) => ({ word, place: places[i] }));
}

/** @param {Scene} scene @param {OutputWord} one */
function writtenWord({ finding, select, can }, { word, place }) {
  const own = place === finding.position;
  const before = finding.output[place];
  const kind = word !== before ? "word flip" : own ? "word on" : "word";
  const struck =
    word === before || place < 0 ? null : make("s", { "aria-label": `before: ${before}` }, before);
  const attributes = { class: kind, dir: "auto", "data-written": place, title: word };
  if (place < 0 || !can.canWrite(place)) return make("span", attributes, word, struck);
  const pick = {
    "data-focus": `written ${place}`,
    "aria-pressed": String(own),
    onclick: () => select({ written: place }),
  };
  return make("button", { ...attributes, ...pick }, word, struck);
}

/** @param {boolean} cut */
function icon(cut) {
  const path = cut
    ? "M3 8a5 5 0 1 1 1.5 3.6M3 4.5V8h3.5"
    : "M5.5 5.5L14 11M5.5 10.5L14 5M1.6 4a2.2 2.2 0 1 0 4.4 0a2.2 2.2 0 1 0-4.4 0M1.6 12a2.2 2.2 0 1 0 4.4 0a2.2 2.2 0 1 0-4.4 0";
  return draw(
    "svg",
    { class: "sign", viewBox: "0 0 16 16", "aria-hidden": "true" },
    draw("path", { d: path }),
  );
}

/**
 * Sizes the columns and the lines, then draws the ribbons between the words where they now stand.
 * @param {Pick<Scene, "finding" | "state">} scene
 * @param {Element} root
 */
function join({ finding, state }, root) {
  turn(root);
  const duo = /** @type {HTMLElement | null} */ (root.querySelector(".duo"));
  if (duo === null) return;
  const drawing = /** @type {SVGElement} */ (root.querySelector(".ribbons"));
  const columns = getComputedStyle(duo).display === "grid";
  fit(duo, columns);
  const box = duo.getBoundingClientRect();
  drawing.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
  const wrapped = duo.classList.contains("wrapped");
  /** @param {string} which */
  const at = (which) => {
    const found = duo.querySelector(which)?.getBoundingClientRect();
    if (found === undefined) return null;
    const { left, top, width, height } = found;
    return { x: left - box.left, y: top - box.top, width, height };
  };
  const lines = wrapped ? [] : finding.alignment.filter(([a]) => a !== finding.position);
  const thin = lines.map(([a, b]) => [at(`[data-read="${b}"]`), at(`[data-written="${a}"]`)]);
  const paths = thin.map(([one, other]) =>
    one && other ? draw("path", { class: "thin", d: curve(one, other, columns).d }) : null,
  );
  const one = at(`[data-read="${state.word}"]`);
  const other = at(`[data-written="${finding.position}"]`);
  if (one === null || other === null) return;
  const { d, x, y } = curve(one, other, columns);
  const ribbon = draw("path", { class: state.cut ? "ribbon cut" : "ribbon", d });
  const weight = finding.reads[state.word].looked;
  ribbon.style.strokeWidth = state.cut ? "3" : String(Math.max(1.5, 9 * weight));
  ribbon.dataset.weight = String(weight);
  drawing.replaceChildren(...paths.filter((path) => path !== null), ribbon);
  const button = /** @type {HTMLElement} */ (root.querySelector(".scissors"));
  const reach = at(".reach");
  const half = button.offsetWidth / 2;
  button.style.left = `${Math.min(box.width - half, Math.max(half, x))}px`;
  button.style.top = `${reach && !columns ? reach.y + reach.height / 2 : y}px`;
}

/**
 * The largest letters at which each line holds all its words; if none, the lines wrap.
 * @param {HTMLElement} duo
 * @param {boolean} columns
 */
function fit(duo, columns) {
  const rows = /** @type {HTMLElement[]} */ ([...duo.querySelectorAll(".line")]);
  for (const row of rows) row.style.fontSize = "";
  duo.classList.remove("wrapped");
  if (columns) return;
  for (const row of rows) row.style.fontSize = `${LARGE}px`;
  const room = Math.min(...rows.map((row) => (row.clientWidth + 1) / row.scrollWidth));
  if (room >= 1) return;
  const size = Math.max(SMALL, Math.floor(LARGE * room));
  for (const row of rows) row.style.fontSize = `${size}px`;
  if (size === SMALL || rows.some((row) => row.scrollWidth > row.clientWidth + 1)) {
    duo.classList.add("wrapped");
  }
}

/** @typedef {{x: number, y: number, width: number, height: number}} Box */

/**
 * A curve from the lower edge of one box to the upper of another, or from side to side; and its middle.
 * @param {Box} one
 * @param {Box} other
 * @param {boolean} columns
 */
function curve(one, other, columns) {
  if (columns) {
    const [x1, x2] = [one.x + one.width + 3, other.x - 3];
    const [y1, y2] = [one.y + one.height / 2, other.y + other.height / 2];
    const x = (x1 + x2) / 2;
    return { d: `M${x1} ${y1}C${x} ${y1} ${x} ${y2} ${x2} ${y2}`, x, y: (y1 + y2) / 2 };
  }
  const [x1, x2] = [one.x + one.width / 2, other.x + other.width / 2];
  const [y1, y2] = [one.y + one.height, other.y];
  const bend = 0.55 * (y2 - y1);
  const d = `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`;
  return { d, x: (x1 + x2) / 2, y: (y1 + y2) / 2 };
}
