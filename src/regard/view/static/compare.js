/** Compare: one word in two sentences, and where its vectors part, layer by layer. */

import { draw, make, visible } from "./dom.js";

/** @typedef {import("./data.js").SideData} SideData */

const [WIDE, HIGH, LEFT, BELOW] = [600, 190, 30, 34];

/** @param {import("./data.js").ComparedData} compared */
export function compareView(compared) {
  return make(
    "div",
    { class: "compared" },
    compared.sentence ? make("p", { class: "lead" }, compared.sentence) : null,
    make("div", { class: "pair" }, side(compared.one, "one"), side(compared.other, "other")),
    chart(compared.cosine),
    make(
      "p",
      { class: "note" },
      "The cosine of the two vectors of ",
      make("b", { dir: "auto" }, visible(compared.word)),
      ", before any layer (0) and after each: 1 where the sentences make no difference to it.",
    ),
  );
}

/** @param {SideData} data @param {string} name */
function side(data, name) {
  const words = data.words.flatMap((word, i) => [
    i === data.place
      ? make("b", { class: "word" }, visible(word))
      : make("span", { class: "word" }, visible(word)),
    " ",
  ]);
  return make(
    "section",
    { class: name },
    make("p", { class: "sentence", dir: "auto" }, ...words),
    ...scored("pulled by", data.pulled),
    ...scored("nearest neighbours", data.neighbours),
    ...(data.translation
      ? [
          make("h3", {}, "translated as"),
          make("p", { class: "translation", dir: "auto" }, visible(data.translation)),
        ]
      : []),
  );
}

/** @param {string} title @param {[string, number][]} list */
function scored(title, list) {
  if (list.length === 0) return [];
  const most = Math.max(...list.map(([, value]) => Math.abs(value)), 1e-9);
  const rows = list.map(([word, value]) => {
    const bar = make("i");
    bar.style.width = `${(Math.abs(value) / most) * 100}%`;
    if (value < 0) bar.style.opacity = "0.4";
    return make(
      "li",
      {},
      make("span", { class: "word", dir: "auto" }, visible(word)),
      make("span", { class: "figure" }, value.toFixed(2).replace("-", "−")),
      make("span", { class: "room" }, bar),
    );
  });
  return [make("h3", {}, title), make("ol", {}, ...rows)];
}

/** @param {number[]} cosine */
function chart(cosine) {
  const low = Math.min(0, ...cosine);
  /** @param {number} i */
  const x = (i) =>
    LEFT + (cosine.length === 1 ? 0 : (i / (cosine.length - 1)) * (WIDE - LEFT - 20));
  /** @param {number} value */
  const y = (value) => HIGH - ((value - low) / (1 - low)) * (HIGH - 18);
  const line = cosine.map((value, i) => `${i === 0 ? "M" : "L"}${x(i)} ${y(value)}`).join("");
  const told = `Cosine by layer: ${cosine.map((value) => value.toFixed(2)).join(", ")}`;
  const every = Math.ceil(cosine.length / 14);
  return draw(
    "svg",
    { class: "chart", viewBox: `0 0 ${WIDE} ${HIGH + BELOW}`, role: "img", "aria-label": told },
    ...[1, 0].map((value) =>
      draw("path", { d: `M${LEFT} ${y(value)}H${WIDE}`, stroke: "var(--rule)", fill: "none" }),
    ),
    ...[1, 0].map((value) => draw("text", { x: 0, y: y(value) + 4 }, String(value))),
    draw("path", {
      d: line,
      fill: "none",
      stroke: "var(--ink)",
      "stroke-width": 1.75,
      "stroke-linejoin": "round",
    }),
    ...cosine.map((value, i) =>
      draw("circle", { cx: x(i), cy: y(value), r: 3.2, fill: "var(--ink)" }),
    ),
    ...cosine.flatMap((value, i) =>
      i % every > 0
        ? []
        : [
            draw(
              "text",
              { class: "value", x: x(i), y: y(value) - 9, "text-anchor": "middle" },
              value.toFixed(2),
            ),
            draw("text", { x: x(i), y: HIGH + 18, "text-anchor": "middle" }, String(i)),
          ],
    ),
    draw("text", { x: WIDE, y: HIGH + BELOW, "text-anchor": "end" }, "layer"),
  );
}
