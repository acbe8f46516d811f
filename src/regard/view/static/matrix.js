/**
 * The matrix view: the whole map of one head on a canvas, from far away down to single cells.
 *
 * It draws from sparse rows: far away each pixel holds the strongest link under it, near by every
 * cell is a square with its number. The strips at the edges are summaries over everything, kept or
 * not: at the left how spread out each row is, at the top how much each word is looked at.
 */

import { strength } from "./colour.js";
import { make, share, visible } from "./dom.js";

/**
 * @typedef {object} Spot What is selected, by layer of the payload and by token.
 * @property {number} layer
 * @property {number[]} heads
 * @property {number} query a token that attends, −1 for none
 * @property {number} key a token that is attended to, −1 for none
 * @property {boolean} tokens tokens rather than words
 *
 * @typedef {object} Context
 * @property {import("./data.js").Reader} reader
 * @property {Spot} state
 * @property {(patch: Partial<Spot> & {view?: string}) => void} set
 * @property {() => import("./colour.js").Colours} colours
 *
 * @typedef {object} Shown
 * @property {HTMLElement} element
 * @property {() => void} update
 */

const EDGE = 10;
const NUMBERED = 40;
const LABELLED = 13;
const LARGEST = 64;

/**
 * @param {Context} context
 * @returns {Shown}
 */
export function matrixView(context) {
  const { reader, state, set } = context;
  // The corner of the map, in cells, and how many pixels a cell has; 0: all of it.
  const place = { x: 0, y: 0, cell: 0 };
  /** @type {{x: number, y: number} | null} */
  let pointed = null;
  let shownFor = "";
  /** @type {Map<number, {x: number, y: number}>} */
  const fingers = new Map();
  let travelled = 0;
  let apart = 0;

  const canvas = make("canvas", {
    tabindex: 0,
    role: "application",
    "aria-label": "Attention matrix; arrow keys move the cell, plus and minus zoom",
    onkeydown: (/** @type {KeyboardEvent} */ event) => pressed(event),
    onpointerdown: (/** @type {PointerEvent} */ event) => down(event),
    onpointermove: (/** @type {PointerEvent} */ event) => move(event),
    onpointerup: (/** @type {PointerEvent} */ event) => up(event),
    onpointercancel: (/** @type {PointerEvent} */ event) => fingers.delete(event.pointerId),
    onpointerleave: () => {
      pointed = null;
      paint();
    },
    ondblclick: (/** @type {MouseEvent} */ event) => zoom(2, event.offsetX, event.offsetY),
  });
  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      zoom(Math.exp(-event.deltaY * 0.0016), event.offsetX, event.offsetY);
    },
    { passive: false },
  );
  const live = make("p", { class: "live", "aria-live": "polite" });
  const box = make("div", { class: "matrix" }, canvas);
  const scale = make("i");
  const most = make("span");
  const legend = make("p", { class: "legend" }, "0", scale, most);
  /** @param {string} label @param {string} name @param {() => void} does */
  const button = (label, name, does) =>
    make("button", { class: "quiet", type: "button", "aria-label": name, onclick: does }, label);
  const element = make(
    "div",
    {},
    make(
      "div",
      { class: "bar-line" },
      live,
      make(
        "div",
        { class: "zoom" },
        button("Closer", "Zoom in", () => zoom(1.6)),
        button("Farther", "Zoom out", () => zoom(1 / 1.6)),
        button("All", "Show all", whole),
      ),
    ),
    box,
    legend,
    make(
      "p",
      { class: "note" },
      "Rows attend, columns are attended to. Strip on the left: entropy of the row; on top: attention " +
        "received by the column. Arrow keys move the cell, + and − zoom.",
    ),
  );

  const head = () => state.heads[0];
  /** The largest weight of the head, which has the darkest colour. */
  const largest = () =>
    reader.once(`largest ${state.layer} ${head()} ${state.tokens}`, () =>
      Float32Array.from(reader.rows(state.layer, head(), state.tokens).weights).reduce(
        (a, b) => Math.max(a, b),
        1e-9,
      ),
    );
  const sides = () => reader.sides(state.layer, state.tokens);

  /** Where the map begins: room for the words, and for the strips. */
  function corner() {
    const { queries, keys } = sides();
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    const most = size().wide < 560 ? 74 : 118;
    /** @param {string} role @param {import("./data.js").Units} units */
    const widest = (role, units) =>
      reader.once(`widest ${role} ${state.layer} ${state.tokens}`, () => {
        pen.font = "13px Inter, system-ui, sans-serif";
        const widths = units.list
          .slice(0, 400)
          .map((unit) => pen.measureText(visible(unit.label)).width);
        return Math.max(...widths);
      });
    const left = Math.min(most, widest("query", queries) + 6);
    const top = Math.min(78, widest("key", keys) * Math.SQRT1_2 + 14);
    return { left: Math.ceil(left + EDGE + 12), top: Math.ceil(top + EDGE + 6) };
  }

  function size() {
    return { wide: box.clientWidth, high: box.clientHeight };
  }

  function smallest() {
    const { queries, keys } = sides();
    const { wide, high } = size();
    const { left, top } = corner();
    return Math.min(
      (wide - left - 24) / keys.list.length,
      (high - top - 2) / queries.list.length,
      LARGEST,
    );
  }

  function whole() {
    place.cell = 0;
    paint();
  }

  /** @param {number} factor @param {number} [x] @param {number} [y] */
  function zoom(factor, x, y) {
    const { wide, high } = size();
    const { left, top } = corner();
    const [at, to] = [(x ?? (left + wide) / 2) - left, (y ?? (top + high) / 2) - top];
    const cell = place.cell;
    const next = Math.min(LARGEST, Math.max(smallest(), cell * factor));
    place.x += at / cell - at / next;
    place.y += to / cell - to / next;
    place.cell = next;
    paint();
  }

  /** Keep the map in its frame. */
  function settle() {
    const { queries, keys } = sides();
    const { wide, high } = size();
    const { left, top } = corner();
    if (place.cell === 0 || place.cell < smallest()) {
      Object.assign(place, { x: 0, y: 0, cell: smallest() });
    }
    place.x = Math.max(0, Math.min(place.x, keys.list.length - (wide - left - 24) / place.cell));
    place.y = Math.max(0, Math.min(place.y, queries.list.length - (high - top - 2) / place.cell));
  }

  /** @param {number} x @param {number} y */
  function cellAt(x, y) {
    const { queries, keys } = sides();
    const { left, top } = corner();
    const key = Math.floor((x - left) / place.cell + place.x);
    const query = Math.floor((y - top) / place.cell + place.y);
    if (x < left || y < top || key >= keys.list.length || query >= queries.list.length) return null;
    return { query, key };
  }

  /** @param {PointerEvent} event */
  function down(event) {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    travelled = 0;
    apart = spread();
  }

  function spread() {
    const [one, two] = [...fingers.values()];
    return two ? Math.hypot(one.x - two.x, one.y - two.y) : 0;
  }

  /** @param {PointerEvent} event */
  function move(event) {
    const before = fingers.get(event.pointerId);
    const here = { x: event.offsetX, y: event.offsetY };
    if (!before) {
      pointed = here;
      paint();
      return;
    }
    fingers.set(event.pointerId, here);
    travelled += Math.abs(here.x - before.x) + Math.abs(here.y - before.y);
    if (fingers.size === 2 && apart > 0) {
      zoom(spread() / apart, here.x, here.y);
      apart = spread();
      return;
    }
    box.classList.add("dragging");
    place.x -= (here.x - before.x) / place.cell;
    place.y -= (here.y - before.y) / place.cell;
    paint();
  }

  /** @param {PointerEvent} event */
  function up(event) {
    fingers.delete(event.pointerId);
    box.classList.remove("dragging");
    const at = travelled < 5 ? cellAt(event.offsetX, event.offsetY) : null;
    if (at) enter(at.query, at.key);
  }

  /** @param {number} query @param {number} key */
  function enter(query, key) {
    const { queries, keys } = sides();
    set({ query: queries.list[query].tokens[0], key: keys.list[key].tokens[0] });
  }

  function chosen() {
    const { queries, keys } = sides();
    return {
      query: state.query < 0 ? -1 : queries.of[state.query],
      key: state.key < 0 ? -1 : keys.of[state.key],
    };
  }

  /** @param {KeyboardEvent} event */
  function pressed(event) {
    const { queries, keys } = sides();
    const at = chosen();
    /** @type {Record<string, [number, number]>} */
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const step = steps[event.key];
    if (step) {
      const fast = event.shiftKey ? 10 : 1;
      const query = Math.min(
        queries.list.length - 1,
        Math.max(0, at.query < 0 ? 0 : at.query + step[0] * fast),
      );
      const key = Math.min(
        keys.list.length - 1,
        Math.max(0, at.key < 0 ? 0 : at.key + step[1] * fast),
      );
      pointed = null;
      set({ query: queries.list[query].tokens[0], key: keys.list[key].tokens[0] });
    } else if (event.key === "Enter" && at.query >= 0) {
      enter(at.query, Math.max(0, at.key));
    } else if (event.key === "+" || event.key === "=") {
      zoom(1.6);
    } else if (event.key === "-") {
      zoom(1 / 1.6);
    } else if (event.key === "0") {
      whole();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  function paint() {
    const { wide, high } = size();
    if (wide === 0) return;
    settle();
    const dense = Math.min(window.devicePixelRatio || 1, 2);
    canvas.width = Math.round(wide * dense);
    canvas.height = Math.round(high * dense);
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    if (place.cell * dense < 3) far(pen, dense);
    else near(pen, dense);
    edges(pen, dense);
    labels(pen, dense);
    marks(pen, dense);
    say();
  }

  /** What is in sight: first and last rows and columns. */
  function sight() {
    const { queries, keys } = sides();
    const { wide, high } = size();
    const { left, top } = corner();
    return {
      top: Math.floor(place.y),
      bottom: Math.min(queries.list.length, Math.ceil(place.y + (high - top) / place.cell)),
      left: Math.floor(place.x),
      right: Math.min(keys.list.length, Math.ceil(place.x + (wide - left) / place.cell)),
    };
  }

  /**
   * Cells smaller than a few pixels: each pixel holds the strongest link under it.
   * @param {CanvasRenderingContext2D} pen
   * @param {number} dense
   */
  function far(pen, dense) {
    const rows = reader.rows(state.layer, head(), state.tokens);
    const { left, top } = corner();
    const seen = sight();
    const cell = place.cell * dense;
    const wide = Math.max(
      1,
      Math.min(canvas.width - left * dense, Math.ceil((seen.right - place.x) * cell)),
    );
    const high = Math.max(
      1,
      Math.min(canvas.height - top * dense, Math.ceil((seen.bottom - place.y) * cell)),
    );
    const [columns, lines] = [Math.floor(wide), Math.floor(high)];
    const image = pen.createImageData(columns, lines);
    const most = new Float32Array(columns * lines);
    const reach = Math.max(1, Math.ceil(cell));
    for (let query = seen.top; query < seen.bottom; query += 1) {
      const y = Math.floor((query - place.y) * cell);
      for (let at = rows.offsets[query]; at < rows.offsets[query + 1]; at += 1) {
        const x = Math.floor((rows.keys[at] - place.x) * cell);
        const weight = rows.weights[at];
        for (let j = Math.max(0, y); j < Math.min(lines, y + reach); j += 1) {
          for (let i = Math.max(0, x); i < Math.min(columns, x + reach); i += 1) {
            if (weight > most[j * columns + i]) most[j * columns + i] = weight;
          }
        }
      }
    }
    const palette = context.colours();
    for (let i = 0; i < most.length; i += 1) {
      const [r, g, b] = palette.channels(strength(most[i] / largest()));
      image.data.set([r, g, b, 255], 4 * i);
    }
    pen.putImageData(image, Math.round(left * dense), Math.round(top * dense));
  }

  /**
   * Cells large enough to be squares, with numbers when there is room for them.
   * @param {CanvasRenderingContext2D} pen
   * @param {number} dense
   */
  function near(pen, dense) {
    const rows = reader.rows(state.layer, head(), state.tokens);
    const { left, top } = corner();
    const seen = sight();
    const palette = context.colours();
    const { wide, high } = size();
    pen.save();
    pen.scale(dense, dense);
    pen.beginPath();
    pen.rect(left, top, wide - left, high - top);
    pen.clip();
    const gap = place.cell >= 8 ? 1 : 0;
    const whole = reader.layer(state.layer).whole;
    pen.fillStyle = palette.ramp(0);
    if (!whole) {
      pen.fillRect(
        left,
        top,
        (seen.right - place.x) * place.cell - gap,
        (seen.bottom - place.y) * place.cell - gap,
      );
    }
    pen.font = `${Math.min(13, place.cell * 0.3)}px Inter, system-ui, sans-serif`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    for (let query = seen.top; query < seen.bottom; query += 1) {
      const y = top + (query - place.y) * place.cell;
      for (let at = rows.offsets[query]; at < rows.offsets[query + 1]; at += 1) {
        const key = rows.keys[at];
        if (key < seen.left || key >= seen.right) continue;
        const x = left + (key - place.x) * place.cell;
        const dark = strength(rows.weights[at] / largest());
        pen.fillStyle = palette.ramp(dark);
        pen.fillRect(x, y, place.cell - gap, place.cell - gap);
        if (place.cell >= NUMBERED && rows.weights[at] >= 0.005) {
          pen.fillStyle = palette.ink(dark);
          pen.fillText(rows.weights[at].toFixed(2), x + place.cell / 2, y + place.cell / 2);
        }
      }
    }
    pen.restore();
  }

  /**
   * The summaries: entropy of each row at the left, what each word received at the top.
   * @param {CanvasRenderingContext2D} pen
   * @param {number} dense
   */
  function edges(pen, dense) {
    const { queries, keys } = sides();
    const { left, top } = corner();
    const seen = sight();
    const palette = context.colours();
    const entropy = reader.entropy(state.layer, head());
    const received = reader.received(state.layer, head());
    const most = received.reduce((a, b) => Math.max(a, b), 1e-9);
    const gap = place.cell >= 8 ? 1 : 0;
    pen.save();
    pen.scale(dense, dense);
    pen.beginPath();
    pen.rect(0, top, left, canvas.height);
    pen.rect(left, 0, canvas.width, top);
    pen.clip();
    const thick = Math.max(place.cell - gap, 1 / dense);
    for (let i = seen.top; i < seen.bottom; i += 1) {
      const own = queries.list[i].tokens;
      const mean = own.reduce((sum, token) => sum + entropy[token], 0) / (own.length * 65535);
      pen.fillStyle = palette.ramp(-strength(mean));
      pen.fillRect(left - EDGE - 3, top + (i - place.y) * place.cell, EDGE, thick);
    }
    for (let i = seen.left; i < seen.right; i += 1) {
      const sum = keys.list[i].tokens.reduce((all, token) => all + received[token], 0);
      pen.fillStyle = palette.ramp(strength(sum / most));
      pen.fillRect(left + (i - place.x) * place.cell, top - EDGE - 3, thick, EDGE);
    }
    pen.restore();
  }

  /**
   * The words at the left and at the top, where cells are large enough; else some of them.
   * @param {CanvasRenderingContext2D} pen
   * @param {number} dense
   */
  function labels(pen, dense) {
    const { queries, keys } = sides();
    const { left, top } = corner();
    const { wide, high } = size();
    const seen = sight();
    const style = getComputedStyle(box);
    const every = Math.max(1, Math.ceil(LABELLED / place.cell));
    const room = left - EDGE - 14;
    pen.save();
    pen.scale(dense, dense);
    pen.font = `${place.cell >= 18 ? 13 : 11}px Inter, system-ui, sans-serif`;
    pen.textBaseline = "middle";
    const [ink, soft] = [style.getPropertyValue("--ink"), style.getPropertyValue("--soft")];
    const at = chosen();
    /** @param {string} word @param {number} most */
    const short = (word, most) => {
      let text = visible(word);
      while (text.length > 1 && pen.measureText(text).width > most) text = `${text.slice(0, -2)}…`;
      return text;
    };
    pen.textAlign = "right";
    for (let i = Math.ceil(seen.top / every) * every; i < seen.bottom; i += every) {
      const y = top + (i + 0.5 - place.y) * place.cell;
      if (y < top || y > high - 4) continue;
      pen.fillStyle = at.query === i ? ink : soft;
      pen.fillText(short(queries.list[i].label, room), left - EDGE - 8, y);
    }
    pen.textAlign = "left";
    for (let i = Math.ceil(seen.left / every) * every; i < seen.right; i += every) {
      const x = left + (i + 0.5 - place.x) * place.cell;
      if (x < left || x > wide - 8) continue;
      pen.save();
      pen.translate(x, top - EDGE - 8);
      pen.rotate(-Math.PI / 4);
      pen.fillStyle = at.key === i ? ink : soft;
      pen.fillText(short(keys.list[i].label, 104), 0, 0);
      pen.restore();
    }
    pen.restore();
  }

  /**
   * Frames round the chosen cell or row, and the cell under the pointer.
   * @param {CanvasRenderingContext2D} pen
   * @param {number} dense
   */
  function marks(pen, dense) {
    const { keys } = sides();
    const { left, top } = corner();
    const { wide, high } = size();
    const ink = getComputedStyle(box).getPropertyValue("--ink");
    const cell = Math.max(place.cell, 3);
    pen.save();
    pen.scale(dense, dense);
    pen.beginPath();
    pen.rect(left - 2, top - 2, wide, high);
    pen.clip();
    pen.strokeStyle = ink;
    pen.lineWidth = 1.5;
    const at = chosen();
    const y = top + (at.query - place.y) * place.cell;
    if (at.query >= 0 && at.key >= 0) {
      pen.strokeRect(left + (at.key - place.x) * place.cell - 0.5, y - 0.5, cell, cell);
    } else if (at.query >= 0) {
      pen.strokeRect(
        left - place.x * place.cell - 0.5,
        y - 0.5,
        keys.list.length * place.cell,
        cell,
      );
    }
    const under = pointed && cellAt(pointed.x, pointed.y);
    if (under) {
      pen.lineWidth = 1;
      const [x, z] = [(under.key - place.x) * place.cell, (under.query - place.y) * place.cell];
      pen.strokeRect(left + x - 0.5, top + z - 0.5, cell, cell);
    }
    pen.restore();
  }

  /** The cell in words. */
  function say() {
    const { queries, keys } = sides();
    const under = (pointed && cellAt(pointed.x, pointed.y)) ?? chosen();
    const layer = reader.layer(state.layer);
    if (under.query < 0) {
      const kept = layer.whole
        ? ""
        : `, ${Math.round(layer.kept[head()] * 100)} % of the weight drawn`;
      live.textContent = `${queries.list.length} × ${keys.list.length}${kept}`;
      return;
    }
    const name = `${visible(layer.name)}, head ${head()}: `;
    const word = make("b", { dir: "auto" }, visible(queries.list[under.query].label));
    if (under.key < 0) {
      live.replaceChildren(name, word);
      return;
    }
    const weight = reader.weight(state.layer, head(), state.tokens, under.query, under.key);
    const told =
      weight !== null
        ? share(weight)
        : layer.whole || (layer.kind === "masked" && under.key > under.query)
          ? "masked"
          : "masked, or too weak to be kept";
    live.replaceChildren(
      name,
      word,
      " → ",
      make("b", { dir: "auto" }, visible(keys.list[under.key].label)),
      " ",
      make("span", { class: "value" }, told),
    );
  }

  function update() {
    const stops = [0, 0.25, 0.5, 0.75, 1].map((x) => context.colours().ramp(strength(x)));
    scale.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
    most.textContent = largest().toFixed(2);
    const now = `${state.layer} ${state.tokens} ${size().wide}`;
    if (now !== shownFor) {
      place.cell = 0;
      shownFor = now;
    }
    settle();
    follow();
    paint();
  }

  /** Bring a chosen cell into sight. */
  function follow() {
    const at = chosen();
    const seen = sight();
    if (at.query >= 0 && (at.query < seen.top || at.query >= seen.bottom - 1)) {
      place.y = at.query - (seen.bottom - seen.top) / 2;
    }
    if (at.key >= 0 && (at.key < seen.left || at.key >= seen.right - 1)) {
      place.x = at.key - (seen.right - seen.left) / 2;
    }
    settle();
  }

  return { element, update };
}
