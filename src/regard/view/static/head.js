/**
 * The head view: who asks on the left, who is looked at on the right, lines by weight.
 *
 * Only the rows in sight exist as elements, so that a text of any length opens at once.
 */

import { draw, make, moved, share, visible } from "./dom.js";
import { hits } from "./state.js";

/** @typedef {import("./index.js").Context} Context */
/** @typedef {import("./index.js").Shown} Shown */
/** @typedef {import("./data.js").Units} Units */

const PITCH = 28;
const SPARE = 6;

/** @typedef {{head: number, query: number, key: number, weight: number}} Link */
/** @typedef {"query" | "key"} Role */

/**
 * @param {Context} context
 * @returns {Shown}
 */
export function headView(context) {
  const { reader, state, set } = context;
  /** @type {{role: Role, unit: number} | null} */
  let hovered = null;
  let scrolledFor = "";
  let hoveredIn = "";
  /** @type {Record<Role, {units: Units | null, made: Map<number, {item: HTMLElement, value: HTMLElement}>}>} */
  const pools = {
    query: { units: null, made: new Map() },
    key: { units: null, made: new Map() },
  };

  const strands = draw("svg", { class: "strands", "aria-hidden": "true" });
  const from = list("query", "from", "Words that ask");
  const to = list("key", "to", "Words that are looked at");
  const sheet = make("div", { class: "sheet" }, strands, from, to);
  const pane = make("div", { class: "pane", onscroll: () => paint() }, sheet);
  const left = make("div", { class: "caption" });
  const right = make("div", { class: "caption" });
  const live = make("p", { class: "live", "aria-live": "polite" });
  const element = make("div", {}, live, make("div", { class: "columns" }, left, right, pane));

  /**
   * @param {Role} role
   * @param {string} side
   * @param {string} label
   */
  function list(role, side, label) {
    return make("div", {
      class: `list ${side}`,
      role: "listbox",
      tabindex: 0,
      "aria-label": label,
      onkeydown: (/** @type {KeyboardEvent} */ event) => along(event, role),
      onmouseleave: () => over(null),
    });
  }

  /** @param {Role} role */
  const units = (role) => {
    const { queries, keys } = reader.sides(state.layer, state.tokens);
    return role === "query" ? queries : keys;
  };

  /**
   * @param {KeyboardEvent} event
   * @param {Role} role
   */
  function along(event, role) {
    const { list: all } = units(role);
    const at = chosen(role);
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      event.preventDefault();
      const other = event.key === "ArrowLeft" ? from : to;
      other.focus();
      return;
    }
    const next = at < 0 && event.key.startsWith("Arrow") ? 0 : moved(event, at, all.length);
    if (next === null) return;
    event.preventDefault();
    hovered = null;
    hold(role, next);
    reveal(next);
  }

  /**
   * @param {Role} role
   * @param {number} unit
   */
  function hold(role, unit) {
    const token = units(role).list[unit].tokens[0];
    set(role === "query" ? { query: token, key: -1 } : { key: token, query: -1 });
  }

  /** @param {Role} role */
  function chosen(role) {
    const token = role === "query" ? state.query : state.key;
    return token < 0 ? -1 : units(role).of[token];
  }

  /** @param {number} unit */
  function reveal(unit) {
    const top = unit * PITCH;
    const height = pane.clientHeight;
    if (top < pane.scrollTop || top + PITCH > pane.scrollTop + height) {
      pane.scrollTop = Math.max(0, top - height / 2);
    }
  }

  /** @param {{role: Role, unit: number} | null} what */
  function over(what) {
    hovered = what;
    paint();
  }

  /** The word that is looked from or at: the one under the pointer, else the one held. */
  function focus() {
    if (hovered) return hovered;
    if (chosen("query") >= 0) return { role: /** @type {Role} */ ("query"), unit: chosen("query") };
    if (chosen("key") >= 0) return { role: /** @type {Role} */ ("key"), unit: chosen("key") };
    return null;
  }

  /**
   * The links to draw: those of the word in focus, else those of every row in sight.
   * @param {{role: Role, unit: number} | null} focused
   * @param {number} first
   * @param {number} last
   * @returns {Link[]}
   */
  function links(focused, first, last) {
    const count = units("query").list.length;
    let [low, high] = [Math.max(0, first), Math.min(count, last)];
    if (focused?.role === "query") [low, high] = [focused.unit, focused.unit + 1];
    if (focused?.role === "key") [low, high] = [0, count];
    /** @type {Link[]} */
    const found = [];
    for (const head of state.heads) {
      const rows = reader.rows(state.layer, head, state.tokens);
      for (let query = low; query < high; query += 1) {
        for (let at = rows.offsets[query]; at < rows.offsets[query + 1]; at += 1) {
          const [key, weight] = [rows.keys[at], rows.weights[at]];
          if (focused?.role === "key" && key !== focused.unit) continue;
          found.push({ head, query, key, weight });
        }
      }
    }
    return found;
  }

  function paint() {
    const height = pane.clientHeight;
    const first = Math.floor(pane.scrollTop / PITCH) - SPARE;
    const last = Math.ceil((pane.scrollTop + height) / PITCH) + SPARE;
    const focused = focus();
    const found = links(focused, first, last);
    const wide = sheet.clientWidth;
    const [near, far] = [from.offsetWidth + 10, wide - to.offsetWidth - 10];
    const offset = pane.scrollTop;
    strands.setAttribute("width", String(wide));
    strands.setAttribute("height", String(height));
    /** @param {number} unit */
    const middle = (unit) => unit * PITCH + PITCH / 2 - offset;
    const palette = context.colours();
    const drawn = found.filter(({ weight }) => weight > 0 && weight >= state.threshold);
    drawn.sort((a, b) => a.weight - b.weight);
    const apart = Math.min(5, 16 / state.heads.length);
    const paths = drawn.map(({ head, query, key, weight }) => {
      const shift = (state.heads.indexOf(head) - (state.heads.length - 1) / 2) * apart;
      const [y, z, x] = [middle(query) + shift, middle(key) + shift, (near + far) / 2];
      return draw("path", {
        d: `M${near} ${y}C${x} ${y} ${x} ${z} ${far} ${z}`,
        fill: "none",
        stroke: palette.head(head),
        "stroke-width": 0.6 + 7.4 * weight,
        "stroke-dasharray": palette.dash(head) || null,
        opacity: 0.16 + 0.74 * Math.sqrt(weight),
        "data-head": head,
        "data-query": query,
        "data-key": key,
        "data-weight": weight.toFixed(5),
      });
    });
    strands.replaceChildren(...paths);
    const values = means(found, focused);
    items(from, "query", first, last, focused, values);
    items(to, "key", first, last, focused, values);
    say(focused, values);
  }

  /**
   * Per unit of the other side, the mean weight over the chosen heads.
   * @param {Link[]} found
   * @param {{role: Role, unit: number} | null} focused
   * @returns {Map<number, number>}
   */
  function means(found, focused) {
    /** @type {Map<number, number>} */
    const sums = new Map();
    if (!focused) return sums;
    for (const { query, key, weight } of found) {
      const unit = focused.role === "query" ? key : query;
      sums.set(unit, (sums.get(unit) ?? 0) + weight / state.heads.length);
    }
    return sums;
  }

  /**
   * Bring the elements of one column up to date. Those in sight stay what they are: an element that
   * was made anew under the pointer would be entered anew.
   * @param {HTMLElement} box
   * @param {Role} role
   * @param {number} first
   * @param {number} last
   * @param {{role: Role, unit: number} | null} focused
   * @param {Map<number, number>} values
   */
  function items(box, role, first, last, focused, values) {
    const all = units(role);
    const pool = pools[role];
    const [low, high] = [Math.max(0, first), Math.min(all.list.length, last)];
    if (pool.units !== all) {
      pool.units = all;
      pool.made.clear();
      box.replaceChildren();
    }
    for (const [i, { item }] of pool.made) {
      if (i >= low && i < high) continue;
      item.remove();
      pool.made.delete(i);
    }
    const active = focused?.role === role ? `${role}-${focused.unit}` : "";
    box.setAttribute("aria-activedescendant", active);
    const marked = new Set(role === "query" ? hits(all, state.search) : []);
    const most = Math.max(...values.values(), 1e-9);
    for (let i = low; i < high; i += 1) {
      const known = pool.made.get(i) ?? added(box, role, i);
      const here = focused?.role === role && focused.unit === i;
      const value = focused && focused.role !== role ? (values.get(i) ?? null) : null;
      const faint = focused !== null && !here && (focused.role === role || (value ?? 0) < most / 4);
      const { classList } = known.item;
      classList.toggle("strong", here);
      classList.toggle("active", here);
      classList.toggle("faint", faint);
      classList.toggle("found", marked.has(i));
      known.item.setAttribute("aria-selected", String(here));
      const told = value !== null && value >= Math.min(state.threshold, 0.005);
      known.value.textContent = told ? share(value) : "";
    }
  }

  /**
   * @param {HTMLElement} box
   * @param {Role} role
   * @param {number} i
   */
  function added(box, role, i) {
    const unit = units(role).list[i];
    const value = make("span", { class: "value" });
    const item = make(
      "div",
      {
        id: `${role}-${i}`,
        class: "item",
        role: "option",
        title: unit.tokens.length > 1 ? `${unit.tokens.length} tokens` : null,
        onmouseenter: () => over({ role, unit: i }),
        onclick: () => {
          if (chosen(role) === i) set({ query: -1, key: -1 });
          else hold(role, i);
        },
      },
      make(
        "span",
        { class: unit.place < 0 ? "word special" : "word", dir: "auto" },
        visible(unit.label),
      ),
      value,
    );
    item.style.top = `${i * PITCH}px`;
    box.append(item);
    const made = { item, value };
    pools[role].made.set(i, made);
    return made;
  }

  /**
   * The links of the word in focus in one line, for those who do not see lines.
   * @param {{role: Role, unit: number} | null} focused
   * @param {Map<number, number>} values
   */
  function say(focused, values) {
    const layer = reader.layer(state.layer);
    if (!focused) {
      const window = layer.kind === "masked" ? " Each word sees only what came before it." : "";
      live.replaceChildren(`Point at a word to see what it looks at.${window}`);
      return;
    }
    const other = units(focused.role === "query" ? "key" : "query");
    const best = [...values].sort((a, b) => b[1] - a[1]).slice(0, 3);
    const word = visible(units(focused.role).list[focused.unit].label);
    const told = best.map(([unit, value]) => `${visible(other.list[unit].label)} ${share(value)}`);
    const averaged = state.heads.length > 1 ? ` (mean of ${state.heads.length} heads)` : "";
    const verb = focused.role === "query" ? " looks at " : " is looked at by ";
    live.replaceChildren(
      make("b", { dir: "auto" }, word),
      told.length > 0
        ? verb + told.join(", ") + averaged
        : focused.role === "query"
          ? " looks at nothing"
          : " is not looked at",
    );
  }

  function update() {
    const layer = reader.layer(state.layer);
    left.textContent = layer.kind === "cross" ? visible(layer.queries) : "asks";
    right.textContent = layer.kind === "cross" ? visible(layer.keys) : "is looked at";
    const rows = Math.max(units("query").list.length, units("key").list.length);
    sheet.style.height = `${rows * PITCH}px`;
    // A word that was found or chosen elsewhere is brought into sight, once.
    const unit = Math.max(chosen("query"), chosen("key"));
    const here = `${state.tokens} ${state.layer}`;
    if (here !== hoveredIn) hovered = null;
    hoveredIn = here;
    const now = `${state.query} ${state.key} ${here}`;
    if (now !== scrolledFor && unit >= 0 && element.isConnected) reveal(unit);
    scrolledFor = now;
    paint();
  }

  return { element, update };
}
