/**
 * The matrix view: the whole map of one head on a canvas, from far away down to single cells.
 *
 * It draws from sparse rows: far away each pixel holds the strongest link under it, near by every
 * cell is a square with its number. The strips at the edges summarise all weights, kept or not: on
 * the left the entropy of each row, at the top the attention that each word receives.
 */

/**
 * @typedef {object} Spot What is selected: a layer of the payload, a head, and two words.
 * @property {number} layer
 * @property {number} head
 * @property {number} query the word that attends
 * @property {number} key the word that is attended to, −1 for none
 *
 * @typedef {object} Context
 * @property {Reader} reader
 * @property {Spot} state
 * @property {(patch: Partial<Spot> & {view?: string}) => void} set
 * @property {() => Colours} colours
 *
 * @typedef {object} Shown
 * @property {HTMLElement} element
 * @property {() => void} update
 *
 * @typedef {object} Frame Where the map lies on the canvas, and which part of it is in sight.
 * @property {CanvasRenderingContext2D} pen
 * @property {number} dense pixels of the screen in one of the page
 * @property {number} wide
 * @property {number} high
 * @property {number} left
 * @property {number} top
 * @property {{x: number, y: number, cell: number}} place the corner, in cells; pixels of a cell
 * @property {{top: number, bottom: number, left: number, right: number}} seen rows and columns
 */

const EDGE = 10;
const LARGEST = 64;
const LETTERS = "Inter, system-ui, sans-serif";

/** @param {Context} context @returns {Shown} */
function matrixView(context) {
  const { reader, state, set } = context;
  const place = { x: 0, y: 0, cell: 0 }; // no cell size yet: all of the map
  /** @type {{x: number, y: number} | null} */
  let pointed = null;
  let shownFor = "";
  const canvas = make("canvas", {
    tabindex: 0,
    role: "application",
    "aria-label": "Attention matrix; arrow keys move the cell, plus and minus zoom",
    onkeydown: pressed,
  });
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  handle(canvas, {
    zoom,
    drag: (x, y) => {
      place.x -= x / place.cell;
      place.y -= y / place.cell;
      paint();
    },
    point: (at) => {
      pointed = at;
      paint();
    },
    click: (at) => {
      const cell = cellAt(frame(), at);
      if (cell) set(cell);
    },
  });
  const live = make("p.live", { "aria-live": "polite" });
  const box = make("div.matrix", canvas);
  const scale = make("i");
  const most = make("span");
  const zooms = make(
    "div.zoom",
    tool("Closer", () => zoom(1.6), "Zoom in"),
    tool("Farther", () => zoom(1 / 1.6), "Zoom out"),
    tool("All", whole, "Show all"),
  );
  const element = make(
    "div",
    make("div.bar-line", live, zooms),
    box,
    make("p.legend", "0", scale, most),
    make(
      "p.note",
      "Rows attend, columns are attended to. Strip on the left: entropy of the row; on top: attention " +
        "received by the column. Arrow keys move the cell, + and − zoom.",
    ),
  );

  /** @returns {Frame} */
  function frame() {
    const { queries, keys } = reader.sides(state.layer);
    const [wide, high] = [box.clientWidth, box.clientHeight];
    /** @param {string} role @param {Units} units */
    const widest = (role, units) =>
      reader.once(`widest ${role} ${state.layer}`, () => {
        pen.font = `13px ${LETTERS}`;
        const some = units.list.slice(0, 400);
        return Math.max(...some.map(({ label }) => pen.measureText(visible(label)).width));
      });
    const room = Math.min(wide < 560 ? 74 : 118, widest("query", queries) + 6);
    const left = Math.ceil(room + EDGE + 12);
    const top = Math.ceil(Math.min(78, widest("key", keys) * Math.SQRT1_2 + 14) + EDGE + 6);
    const [across, down] = [wide - left - 24, high - top - 2];
    const [columns, rows] = [keys.list.length, queries.list.length];
    const smallest = Math.min(across / columns, down / rows, LARGEST);
    if (place.cell < smallest) Object.assign(place, { x: 0, y: 0, cell: smallest });
    place.x = Math.max(0, Math.min(place.x, columns - across / place.cell));
    place.y = Math.max(0, Math.min(place.y, rows - down / place.cell));
    const seen = {
      top: Math.floor(place.y),
      bottom: Math.min(rows, Math.ceil(place.y + (high - top) / place.cell)),
      left: Math.floor(place.x),
      right: Math.min(columns, Math.ceil(place.x + (wide - left) / place.cell)),
    };
    const dense = Math.min(window.devicePixelRatio || 1, 2);
    return { pen, dense, wide, high, left, top, place, seen };
  }

  function whole() {
    place.cell = 0;
    paint();
  }

  /** @param {number} factor @param {number} [x] @param {number} [y] */
  function zoom(factor, x, y) {
    const { wide, high, left, top } = frame();
    const [at, to] = [(x ?? (left + wide) / 2) - left, (y ?? (top + high) / 2) - top];
    const next = Math.min(LARGEST, place.cell * factor);
    place.x += at / place.cell - at / next;
    place.y += to / place.cell - to / next;
    place.cell = next;
    paint();
  }

  /** @param {KeyboardEvent} event */
  function pressed(event) {
    const { queries, keys } = reader.sides(state.layer);
    /** @type {Record<string, () => void>} */
    const zooming = {
      "+": () => zoom(1.6),
      "=": () => zoom(1.6),
      "-": () => zoom(1 / 1.6),
      0: whole,
    };
    const step = ARROWS[event.key];
    if (step) {
      const fast = event.shiftKey ? 10 : 1;
      /** @param {number} at @param {number} by @param {Units} units */
      const next = (at, by, { list }) => Math.min(list.length - 1, Math.max(0, at + by * fast));
      pointed = null;
      set({ query: next(state.query, step[0], queries), key: next(state.key, step[1], keys) });
    } else if (event.key in zooming) zooming[event.key]();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  function paint() {
    if (box.clientWidth === 0) return;
    const now = frame();
    canvas.width = Math.round(now.wide * now.dense);
    canvas.height = Math.round(now.high * now.dense);
    const rows = reader.rows(state.layer, state.head);
    const colours = context.colours();
    if (place.cell * now.dense < 3) far(now, rows, colours);
    pen.scale(now.dense, now.dense);
    if (place.cell * now.dense >= 3) {
      near(now, rows, reader.layer(state.layer).whole, colours);
    }
    edges(now, reader, state, colours);
    labels(now, reader, state);
    const under = pointed && cellAt(now, pointed);
    marks(now, [state, ...(under ? [under] : [])]);
    say(under ?? state);
  }

  /** @param {Frame} frame @param {{x: number, y: number}} at */
  function cellAt({ left, top }, at) {
    const { queries, keys } = reader.sides(state.layer);
    const key = Math.floor((at.x - left) / place.cell + place.x);
    const query = Math.floor((at.y - top) / place.cell + place.y);
    const inside = at.x >= left && key < keys.list.length;
    return inside && at.y >= top && query < queries.list.length ? { query, key } : null;
  }

  /** A cell in words. @param {{query: number, key: number}} cell */
  function say({ query, key }) {
    const { queries, keys } = reader.sides(state.layer);
    const layer = reader.layer(state.layer);
    const name = `${visible(layer.name)}, head ${state.head}: `;
    const word = make("b", { dir: "auto" }, visible(queries.list[query].label));
    if (key < 0) return live.replaceChildren(name, word);
    const weight = reader.weight(state.layer, state.head, query, key);
    const hidden = layer.whole || (layer.kind === "masked" && key > query);
    const told = hidden ? "masked" : "masked, or too small to be kept";
    live.replaceChildren(
      name,
      word,
      " → ",
      make("b", { dir: "auto" }, visible(keys.list[key].label)),
      " ",
      make("span.value", weight === null ? told : share(weight)),
    );
  }

  function update() {
    const stops = [0, 0.25, 0.5, 0.75, 1].map((x) => context.colours().ramp(strength(x)));
    scale.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
    most.textContent = reader.rows(state.layer, state.head).largest.toFixed(2);
    const now = `${state.layer} ${box.clientWidth}`;
    if (now !== shownFor) place.cell = 0;
    shownFor = now;
    const { seen } = frame(); // then bring the chosen cell into sight
    if (state.query < seen.top || state.query >= seen.bottom - 1)
      place.y = state.query - (seen.bottom - seen.top) / 2;
    if (state.key >= 0 && (state.key < seen.left || state.key >= seen.right - 1))
      place.x = state.key - (seen.right - seen.left) / 2;
    paint();
  }

  return { element, update };
}

/**
 * Wheel, mouse and fingers on a canvas: zooming, dragging, pointing and clicking.
 * @param {HTMLCanvasElement} canvas
 * @param {{zoom: (factor: number, x: number, y: number) => void,
 *          drag: (x: number, y: number) => void,
 *          point: (at: {x: number, y: number} | null) => void,
 *          click: (at: {x: number, y: number}) => void}} does
 */
function handle(canvas, does) {
  /** @type {Map<number, {x: number, y: number}>} */
  const fingers = new Map();
  let travelled = 0;
  /** How far two fingers are apart. */
  const spread = () => {
    const [one, two] = [...fingers.values()];
    return two ? Math.hypot(one.x - two.x, one.y - two.y) : 0;
  };
  /** @param {MouseEvent} event */
  const at = (event) => ({ x: event.offsetX, y: event.offsetY });
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, at(event));
    travelled = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const [before, here] = [fingers.get(event.pointerId), at(event)];
    if (!before) return does.point(here);
    const apart = spread();
    fingers.set(event.pointerId, here);
    travelled += Math.abs(here.x - before.x) + Math.abs(here.y - before.y);
    if (apart > 0) does.zoom(spread() / apart, here.x, here.y);
    else does.drag(here.x - before.x, here.y - before.y);
  });
  canvas.addEventListener("pointerup", (event) => {
    fingers.delete(event.pointerId);
    if (travelled < 5) does.click(at(event));
  });
  canvas.addEventListener("pointercancel", (event) => fingers.delete(event.pointerId));
  canvas.addEventListener("pointerleave", () => does.point(null));
  canvas.addEventListener("dblclick", (event) => does.zoom(2, event.offsetX, event.offsetY));
  const turned = (/** @type {WheelEvent} */ event) => {
    event.preventDefault();
    does.zoom(Math.exp(-event.deltaY * 0.0016), event.offsetX, event.offsetY);
  };
  canvas.addEventListener("wheel", turned, { passive: false });
}
