/** The line of controls: layer, heads, words or tokens, threshold, search. */

import { make, percent, visible } from "./dom.js";
import { hits } from "./state.js";

/** @typedef {import("./index.js").Context} Context */

/**
 * @param {Context} context
 * @returns {{element: HTMLElement, search: HTMLInputElement, update: () => void}}
 */
export function controls(context) {
  const { reader, state, set } = context;
  const { layers } = reader.payload;
  const layer = make(
    "select",
    { "aria-label": "Layer", onchange: () => set({ layer: Number(layer.value) }) },
    ...layers.map((one, i) => make("option", { value: i }, visible(one.name))),
  );
  const heads = make("div", { class: "heads", role: "group", "aria-label": "Heads" });
  const all = make("button", {
    class: "quiet",
    type: "button",
    onclick: () => {
      const count = reader.layer(state.layer).heads;
      const every = Array.from({ length: count }, (_, head) => head);
      set({ heads: state.heads.length === count ? [0] : every });
    },
  });
  const [words, tokens] = [false, true].map((each) =>
    make(
      "button",
      { type: "button", onclick: () => set({ tokens: each }) },
      each ? "Tokens" : "Words",
    ),
  );
  const slider = make("input", {
    type: "range",
    min: 0,
    max: 100,
    step: 1,
    "aria-label": "Weakest link drawn",
    // The square gives fine steps to small weights, where most links are.
    oninput: () => set({ threshold: (Number(slider.value) / 100) ** 2 }),
  });
  const level = make("output");
  const search = make("input", {
    type: "search",
    placeholder: "Find a word",
    "aria-label": "Find a word",
    oninput: () => find(0),
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Enter") find(state.hit + (event.shiftKey ? -1 : 1));
    },
  });
  const count = make("span", { class: "caption", "aria-live": "polite" });

  /** @param {number} hit */
  function find(hit) {
    const { found, role, units } = searched();
    const at = found.length === 0 ? 0 : (hit + found.length) % found.length;
    const token = found.length === 0 ? -1 : units.list[found[at]].tokens[0];
    set({ search: search.value, hit: at, query: -1, key: -1, [role]: token });
  }

  /** The words found: of those that ask, or, if there are none, of those that are looked at. */
  function searched() {
    const { queries, keys } = reader.sides(state.layer, state.tokens);
    const asking = hits(queries, search.value);
    if (asking.length > 0) return { found: asking, role: "query", units: queries };
    return { found: hits(keys, search.value), role: "key", units: keys };
  }

  const groups = {
    layer: make("label", {}, "Layer", layer),
    heads: make("div", { class: "group" }, "Heads", heads, all),
    units: make(
      "div",
      { class: "switch", role: "group", "aria-label": "Words or tokens" },
      words,
      tokens,
    ),
    threshold: make("label", {}, "Links from", slider, level),
    search: make("div", { class: "group" }, search, count),
  };
  /** @type {Record<string, (keyof typeof groups)[]>} */
  const wanted = {
    head: ["layer", "heads", "units", "threshold", "search"],
    matrix: ["layer", "heads", "units", "search"],
    overview: [],
    steps: ["layer", "heads"],
    explain: [],
    compare: [],
  };
  const element = make("div", { class: "controls" }, ...Object.values(groups));

  function update() {
    const shown = wanted[state.view];
    for (const [name, group] of Object.entries(groups)) {
      const wants = shown.includes(/** @type {keyof typeof groups} */ (name));
      group.style.display = wants ? "" : "none";
    }
    element.style.display = shown.length === 0 ? "none" : "";
    if (layers.length === 0) return;
    layer.value = String(state.layer);
    groups.layer.style.display = shown.includes("layer") && layers.length > 1 ? "" : "none";
    const single = state.view !== "head";
    headButtons(single);
    const many = reader.layer(state.layer).heads;
    all.textContent = state.heads.length === many ? "one" : "all";
    all.style.display = single || many === 1 ? "none" : "";
    groups.heads.style.display = shown.includes("heads") && many > 1 ? "" : "none";
    words.setAttribute("aria-pressed", String(!state.tokens));
    tokens.setAttribute("aria-pressed", String(state.tokens));
    slider.value = String(Math.round(Math.sqrt(state.threshold) * 100));
    level.textContent = percent(state.threshold);
    const { found } = searched();
    count.textContent =
      search.value.trim() === ""
        ? ""
        : found.length === 0
          ? "not there"
          : `${Math.min(state.hit, found.length - 1) + 1} of ${found.length}`;
  }

  /** @param {boolean} single whether one head is looked at, or several */
  function headButtons(single) {
    const many = reader.layer(state.layer).heads;
    const palette = context.colours();
    while (heads.childElementCount > many) heads.lastElementChild?.remove();
    for (let head = heads.childElementCount; head < many; head += 1) {
      const button = make(
        "button",
        {
          type: "button",
          "aria-label": `Head ${head}`,
          onclick: () => toggled(head),
          ondblclick: () => set({ heads: [head] }),
        },
        String(head),
        make("i"),
      );
      heads.append(button);
    }
    [...heads.children].forEach((button, head) => {
      const pressed = single ? state.heads[0] === head : state.heads.includes(head);
      button.setAttribute("aria-pressed", String(pressed));
      const mark = /** @type {HTMLElement} */ (button.lastElementChild);
      mark.style.background = single ? "currentColor" : palette.head(head);
    });
  }

  /** @param {number} head */
  function toggled(head) {
    if (state.view !== "head") {
      set({ heads: [head, ...state.heads.filter((other) => other !== head)] });
      return;
    }
    const without = state.heads.filter((other) => other !== head);
    const chosen =
      without.length === state.heads.length
        ? [...state.heads, head].sort((a, b) => a - b)
        : without;
    set({ heads: chosen.length > 0 ? chosen : [head] });
  }

  return { element, search, update };
}
