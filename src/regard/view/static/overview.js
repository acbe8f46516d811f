/** The overview: every head of every layer as a small map, with its entropy; click to enter. */

const SIDE = 48;

/** @param {Context} context @returns {Shown} */
function overviewView(context) {
  const { reader, state, set } = context;
  const { layers } = reader.payload;
  const widest = Math.max(...layers.map((layer) => layer.heads));
  const grid = make("div.atlas", {
    role: "group",
    "aria-label": "All layers and heads",
    onkeydown: along,
  });
  grid.style.gridTemplateColumns = `max-content repeat(${widest}, minmax(34px, 84px))`;
  const live = make("p.live", { "aria-live": "polite" });
  const element = make(
    "div",
    live,
    grid,
    make(
      "p.note",
      "Each map is one head: rows attend, columns are attended to. The bar below is its entropy: " +
        "short where each word attends to few others. Click a map to enlarge it.",
    ),
  );
  /** @type {HTMLButtonElement[][]} */
  const buttons = [];
  let drawn = "";

  grid.append(make("span"));
  for (let head = 0; head < widest; head += 1) {
    grid.append(make("span.column", String(head)));
  }
  layers.forEach((layer, i) => {
    grid.append(make("span.name", { dir: "auto" }, visible(layer.name)));
    const row = Array.from({ length: layer.heads }, (_, head) => {
      const entropy = reader.meanEntropy(i, head);
      const gauge = make("i", { style: { width: `${Math.round(entropy * 100)}%` } });
      const told = `${layer.name}, head ${head}, entropy ${entropy.toFixed(2)} of 1`;
      return make(
        "button",
        {
          type: "button",
          "aria-label": told,
          "data-entropy": entropy.toFixed(4),
          tabindex: -1,
          onclick: () => set({ view: "matrix", layer: i, head }),
          onmouseenter: () => say(i, head),
          onfocus: () => say(i, head),
        },
        make("canvas", { width: SIDE, height: SIDE }),
        make("span.gauge", gauge),
      );
    });
    buttons.push(row);
    grid.append(...row, ...Array.from({ length: widest - layer.heads }, () => make("span")));
  });

  /** @param {number} layer @param {number} head */
  function say(layer, head) {
    const entropy = reader.meanEntropy(layer, head);
    live.replaceChildren(
      make("b", `${visible(reader.layer(layer).name)}, head ${head}`),
      ` entropy ${entropy.toFixed(2)} of 1`,
    );
  }

  /** @param {KeyboardEvent} event */
  function along(event) {
    const active = /** @type {any} */ (document.activeElement);
    const layer = buttons.findIndex((row) => row.includes(active));
    if (layer < 0) return;
    const head = buttons[layer].indexOf(active);
    const step = ARROWS[event.key];
    if (!step) return;
    event.preventDefault();
    const row = buttons[Math.min(buttons.length - 1, Math.max(0, layer + step[0]))];
    const next = row[Math.min(row.length - 1, Math.max(0, head + step[1]))];
    for (const button of buttons.flat()) button.tabIndex = button === next ? 0 : -1;
    next.focus();
  }

  /** @param {number} layer @param {number} head */
  function paint(layer, head) {
    const canvas = /** @type {HTMLCanvasElement} */ (buttons[layer][head].firstElementChild);
    const rows = reader.decoded(layer);
    const { queries } = rows;
    const keys = reader.sides(layer).keys.of.length;
    const [high, wide] = [Math.min(SIDE, queries), Math.min(SIDE, keys)];
    canvas.width = wide;
    canvas.height = high;
    const most = new Float32Array(wide * high);
    for (let query = 0; query < queries; query += 1) {
      const line = Math.floor((query * high) / queries) * wide;
      const row = head * queries + query;
      for (let at = rows.offsets[row]; at < rows.offsets[row + 1]; at += 1) {
        const pixel = line + Math.floor((rows.keys[at] * wide) / keys);
        most[pixel] = Math.max(most[pixel], rows.weights[at]);
      }
    }
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    pen.putImageData(painted(pen, most, wide, UNIT, context.colours()), 0, 0);
  }

  function update() {
    const { layer, head } = state;
    const own = buttons[layer][head];
    for (const button of buttons.flat()) button.tabIndex = button === own ? 0 : -1;
    if (live.textContent === "") say(layer, head);
    const theme = String(context.colours().dark);
    if (drawn === theme) return;
    drawn = theme;
    // One layer at a time, so that a long text does not hold up the page.
    const next = (/** @type {number} */ i) => {
      if (i >= layers.length || drawn !== theme) return;
      for (let each = 0; each < layers[i].heads; each += 1) paint(i, each);
      setTimeout(() => next(i + 1), 0);
    };
    next(0);
  }

  return { element, update };
}
