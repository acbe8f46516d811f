/** The figure of a text that is read as a whole: words shaded by attention, and a strip of it all. */

const STRIP = 60;

/** @param {Scene} scene */
function reading(scene) {
  const { finding, state } = scene;
  const own = finding.kind === "attention" || finding.kind === "vector";
  const most = Math.max(1e-9, ...finding.reads.map((read) => (read.special ? 0 : read.looked)));
  const text = make("div.text", { dir: direction(finding.text), tabindex: 0 });
  for (const i of readable(scene)) text.append(textWord(scene, i, most, own), " ");
  text.setAttribute("role", "group");
  text.setAttribute("aria-label", finding.labels.reads);
  const long = finding.reads.length > STRIP;
  return make(
    "div.figure.reading",
    make("p.label", finding.labels.reads, long ? strip(finding, most, text) : null),
    text,
    make(
      "div.link",
      make("span.from", { dir: "auto" }, finding.word),
      " → ",
      make(
        "span",
        { class: state.cut ? "gone" : "to", dir: "auto" },
        bare(finding.reads[state.word].word),
      ),
      " ",
      scissors(scene),
    ),
    own ? null : written(scene),
  );
}

/** @param {Scene} scene @param {number} i @param {number} most @param {boolean} own */
function textWord({ finding, state, select, can }, i, most, own) {
  const { word, looked } = finding.reads[i];
  const asks = own && i === finding.position;
  const chosen = i === state.word;
  const kinds = ["word", asks ? "on" : "", chosen ? (state.cut ? "gone" : "hit") : ""];
  const attributes = {
    class: kinds.filter(Boolean).join(" "),
    dir: "auto",
    "data-read": i,
    title: `${word}: ${looked.toFixed(3)}`,
  };
  const acts = !own || can.canRead;
  const element = acts
    ? make(
        "button",
        {
          ...attributes,
          "data-focus": `read ${i}`,
          tabindex: chosen ? 0 : -1,
          "aria-pressed": String(chosen),
          onclick: () => select(own ? asking(finding, i, can) : { word: i }),
          onkeydown: (/** @type {KeyboardEvent} */ event) => {
            const own = /** @type {HTMLElement} */ (event.currentTarget);
            const all = /** @type {HTMLElement[]} */ ([...(own.parentElement?.children ?? [])]);
            const next = moved(event, all.indexOf(own), all.length);
            if (next !== null) all[next].focus();
          },
        },
        visible(word),
      )
    : make("span", attributes, visible(word));
  if (!asks && !chosen && looked > 0) {
    const size = Math.round(58 * Math.min(1, looked / most));
    if (size > 2)
      element.style.background = `color-mix(in srgb, var(--shade) ${size}%, transparent)`;
  }
  return element;
}

/**
 * The selection of another word that attends: with what its vector depends on, if that is known.
 * @param {Finding} finding
 * @param {number} i
 * @param {Scene["can"]} can
 */
function asking(finding, i, can) {
  if (finding.position < 0) return { word: i }; // the text that attends is another
  return finding.kind === "vector" && can.canWrite(i) ? { written: i } : { asks: i };
}

/**
 * What is written, as running text; a word can be selected.
 * @param {Scene} scene
 */
function written(scene) {
  const words = outputWords(scene);
  const dir = direction(words.map(({ word }) => word).join(" "));
  const line = make("div.text.written", { dir });
  for (const one of words) line.append(writtenWord(scene, one), " ");
  return make("div", make("p.label", scene.finding.labels.writes), line);
}

/**
 * The whole text as one strip, dark where it is looked at; a click goes there.
 * @param {Finding} finding
 * @param {number} most
 * @param {HTMLElement} text
 */
function strip(finding, most, text) {
  const canvas = make("canvas.whole", {
    height: 1,
    width: Math.min(1200, finding.reads.length),
    role: "img",
    "aria-label": "attention over the whole text; darker is more",
    onclick: (/** @type {MouseEvent} */ event) => {
      centre(text, Math.floor((event.offsetX / canvas.clientWidth) * finding.reads.length));
    },
  });
  requestAnimationFrame(() => {
    const pen = canvas.getContext("2d");
    if (pen === null) return;
    pen.fillStyle = getComputedStyle(canvas).color;
    const per = finding.reads.length / canvas.width;
    for (let x = 0; x < canvas.width; x += 1) {
      let top = 0;
      for (let i = Math.floor(x * per); i < Math.max((x + 1) * per, x * per + 1); i += 1)
        if (finding.reads[i] && !finding.reads[i].special)
          top = Math.max(top, finding.reads[i].looked);
      pen.globalAlpha = Math.min(1, top / most);
      pen.fillRect(x, 0, 1, 1);
    }
  });
  return canvas;
}

/**
 * Scrolls to the selected word.
 * @param {Element} root
 * @param {State} state
 */
function reveal(root, state) {
  const text = /** @type {HTMLElement | null} */ (root.querySelector(".text"));
  if (text && text.scrollHeight > text.clientHeight) centre(text, state.word);
}

/** Scrolls a text until a word is in its middle. @param {HTMLElement} text @param {number} i */
function centre(text, i) {
  const word = /** @type {HTMLElement | null} */ (text.querySelector(`[data-read="${i}"]`));
  if (word) text.scrollTop = word.offsetTop - text.clientHeight / 2;
}
