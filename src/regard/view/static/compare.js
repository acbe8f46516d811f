/** Compare: one word in two sentences, and where its vectors part, layer by layer. */

const [WIDE, HIGH, LEFT, BELOW] = [600, 190, 30, 38];

/** @param {ComparedData} compared */
function compareView(compared) {
  return make(
    "div.compared",
    compared.sentence ? make("p.lead", compared.sentence) : null,
    make("div.pair", ...compared.sides.map((one, i) => side(one, i === 0 ? "one" : "other"))),
    chart(compared.cosine),
    make(
      "p.note",
      "The cosine of the two vectors of ",
      make("b", { dir: "auto" }, visible(compared.word)),
      ", at the input and after each layer: 1 where the sentences make no difference to it.",
    ),
  );
}

/** @param {SideData} data @param {string} name */
function side({ words, place, tables, translation }, name) {
  const sentence = words.flatMap((word, i) => [
    i > 0 && !/^[.,;:!?…。、，！？]+$/u.test(word) ? " " : "",
    make(i === place ? "b" : "span", { class: "word" }, visible(word)),
  ]);
  return make(
    "section",
    { class: name },
    make("p.sentence", { dir: "auto" }, ...sentence),
    ...tables
      .filter((table) => table.rows.length > 0)
      .map((table) => bars({ ...table, title: "" }, table.columns[0])),
    translation === "" ? null : make("h3", "translated as"),
    make("p.translation", { dir: "auto" }, translation),
  );
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
  const told = `Cosine at the input and after each layer: ${cosine.map((value) => value.toFixed(2)).join(", ")}`;
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
            draw(
              "text",
              { class: "layer", x: x(i), y: HIGH + 18, "text-anchor": "middle" },
              i === 0 ? "input" : String(i - 1),
            ),
          ],
    ),
    draw("text", { x: WIDE, y: HIGH + BELOW - 4, "text-anchor": "end" }, "layer"),
  );
}
