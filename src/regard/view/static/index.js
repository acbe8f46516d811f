/**
 * The viewer: `render({model, el})` shows a payload in `el`, in a shadow root of its own.
 *
 * The same module runs in a saved file, in a notebook (anywidget) and on the page of a server. The
 * model is asked for "payload" (JSON, as text or object), "live" (the kinds of question that are
 * answered now) and "state" (where to begin); see ask.js for the rest.
 */

import { channel } from "./ask.js";
import { colours } from "./colour.js";
import { compareView } from "./compare.js";
import { controls } from "./controls.js";
import { Reader } from "./data.js";
import { make, moved, percent } from "./dom.js";
import { explainView } from "./explain.js";
import { headView } from "./head.js";
import { matrixView } from "./matrix.js";
import { overviewView } from "./overview.js";
import { beginning, fitted, moving } from "./state.js";
import { stepsView } from "./steps.js";
import { STYLE } from "./style.js";

/** @typedef {import("./state.js").State} State */
/** @typedef {import("./ask.js").Model} Model */

/**
 * @typedef {object} Context
 * @property {Reader} reader
 * @property {State} state
 * @property {(patch: Partial<State>) => void} set
 * @property {import("./ask.js").Ask | null} ask
 * @property {string[]} live
 * @property {() => import("./colour.js").Colours} colours
 *
 * @typedef {object} Shown
 * @property {HTMLElement} element
 * @property {() => void} update
 */

/** @type {{name: State["view"], label: string, made: (context: Context) => Shown}[]} */
const VIEWS = [
  { name: "explain", label: "Explain", made: explainView },
  { name: "compare", label: "Compare", made: compareView },
  { name: "head", label: "Head", made: headView },
  { name: "matrix", label: "Matrix", made: matrixView },
  { name: "overview", label: "Overview", made: overviewView },
  { name: "steps", label: "Steps", made: stepsView },
];

/**
 * @param {{model: Model, el: HTMLElement}} host
 * @returns {() => void} what takes the viewer away again
 */
export function render({ model, el }) {
  const root = el.shadowRoot ?? el.attachShadow({ mode: "open" });
  root.replaceChildren();
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(STYLE);
  root.adoptedStyleSheets = [sheet];
  const { ask, close } = channel(model);
  let leave = () => {};
  const show = () => {
    leave();
    root.replaceChildren();
    try {
      const given = model.get("payload");
      const reader = new Reader(typeof given === "string" ? JSON.parse(given) : given);
      leave = viewer(root, reader, model, ask);
    } catch (error) {
      const said = error instanceof Error ? error.message : String(error);
      root.append(make("div", { class: "viewer", role: "alert" }, said));
    }
  };
  show();
  model.on?.("change:payload", show);
  return () => {
    model.off?.("change:payload", show);
    leave();
    close();
  };
}

/**
 * @param {ShadowRoot} root
 * @param {Reader} reader
 * @param {Model} model
 * @param {import("./ask.js").Ask | null} ask
 * @returns {() => void}
 */
function viewer(root, reader, model, ask) {
  const { payload } = reader;
  const open = VIEWS.filter(({ name }) => {
    if (name === "explain") return payload.explained !== null;
    if (name === "compare") return payload.compared !== null;
    return payload.layers.length > 0;
  });
  const state = beginning(
    reader,
    open.map(({ name }) => name),
    model.get("state"),
  );
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const dark = () =>
    state.theme === "auto" ? hostIsDark(prefersDark.matches) : state.theme === "dark";
  let palette = colours(dark());

  /** @type {Map<string, Shown>} */
  const shown = new Map();
  let current = "";
  /** @type {Context} */
  const context = {
    reader,
    state,
    ask,
    live: model.get("live") ?? [],
    colours: () => palette,
    set: (patch) => {
      Object.assign(state, moving(reader, state, patch.layer), patch);
      model.set?.("state", JSON.stringify({ ...state, search: "" }));
      model.save_changes?.();
      update();
    },
  };

  const bar = controls(context);
  const main = make("div", { class: "main", role: "tabpanel", tabindex: -1 });
  const theme = make("button", {
    class: "theme",
    type: "button",
    onclick: () => context.set({ theme: dark() ? "light" : "dark" }),
  });
  const tabs = open.map(({ name, label }) =>
    make(
      "button",
      {
        type: "button",
        role: "tab",
        "data-view": name,
        onclick: () => context.set({ view: name }),
      },
      label,
    ),
  );
  /** @param {KeyboardEvent} event */
  const along = (event) => {
    const at = open.findIndex(({ name }) => name === state.view);
    const next = moved(event, at, open.length);
    if (next === null) return;
    context.set({ view: open[next].name });
    tabs[next].focus();
  };
  const frame = make(
    "div",
    { class: "viewer", onkeydown: (/** @type {KeyboardEvent} */ event) => keys(event) },
    make(
      "div",
      { class: "inner" },
      make("header", { class: "top" }, make("h1", { dir: "auto" }, heading(payload)), theme),
      make(
        "div",
        { class: "tabs", role: "tablist", "aria-label": "Views", onkeydown: along },
        ...tabs,
      ),
      bar.element,
      main,
      footer(reader),
    ),
  );

  /** @param {KeyboardEvent} event */
  function keys(event) {
    const target = /** @type {HTMLElement} */ (event.composedPath()[0]);
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (target.matches("input, select")) {
      if (event.key === "Escape") target.blur();
      return;
    }
    const digit = Number(event.key);
    if (digit >= 1 && digit <= open.length) {
      context.set({ view: open[digit - 1].name });
      tabs[digit - 1].focus();
    } else if (event.key === "/") {
      bar.search.focus();
    } else if (event.key === "t") {
      context.set({ tokens: !state.tokens });
    } else if (event.key === "Escape") {
      context.set({ query: -1, key: -1 });
    } else if ((event.key === "[" || event.key === "]") && payload.layers.length > 0) {
      const layer = state.layer + (event.key === "[" ? -1 : 1);
      if (layer >= 0 && layer < payload.layers.length) context.set({ layer });
    } else {
      return;
    }
    event.preventDefault();
  }

  function update() {
    fitted(reader, state);
    palette = colours(dark());
    frame.classList.toggle("dark", dark());
    theme.textContent = dark() ? "Light" : "Dark";
    theme.setAttribute("aria-label", dark() ? "Show on light paper" : "Show on dark paper");
    tabs.forEach((tab, i) => {
      const chosen = open[i].name === state.view;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
    });
    const { name, label, made } = open.find((view) => view.name === state.view) ?? open[0];
    const view = shown.get(name) ?? made(context);
    shown.set(name, view);
    bar.update();
    if (current !== name) {
      current = name;
      main.setAttribute("aria-label", label);
      // Who came here by keyboard from inside the view before stays where keys are heard.
      const inside = main.contains(root.activeElement);
      main.replaceChildren(view.element);
      if (inside) main.focus({ preventScroll: true });
    }
    view.update();
  }

  root.append(frame);
  let width = 0;
  const resized = new ResizeObserver(() => {
    if (main.clientWidth === width) return; // taller by what a view itself has shown
    width = main.clientWidth;
    shown.get(current)?.update();
  });
  if (open.length === 0) {
    main.textContent = "There is nothing to show: the payload has no layers.";
  } else {
    update();
    resized.observe(main);
    prefersDark.addEventListener("change", update);
  }
  return () => {
    resized.disconnect();
    prefersDark.removeEventListener("change", update);
  };
}

/**
 * A notebook says in its page whether it is dark; elsewhere the system does.
 * @param {boolean} system
 */
function hostIsDark(system) {
  const said = document.body?.dataset.jpThemeLight;
  return said === undefined ? system : said === "false";
}

/** @param {import("./data.js").Payload} payload */
function heading(payload) {
  if (payload.title) return payload.title;
  const first = payload.layers[0]?.queries ?? Object.keys(payload.texts)[0];
  const text = payload.texts[first]?.text ?? payload.compared?.word ?? "";
  return text.length > 160 ? `${text.slice(0, 160)}…` : text;
}

/** @param {Reader} reader */
function footer(reader) {
  const { sparse, layers } = reader.payload;
  const held = sparse.whole
    ? "Every weight is here, none left out."
    : `Of each row the ${sparse.most} strongest links of ${percent(sparse.threshold)} or more: ` +
      `together ${percent(sparse.kept)} of the weight.`;
  /** @type {[string, string][]} */
  const rows = [
    ["1 … 6", "views"],
    ["← → ↑ ↓", "move among words, cells, maps"],
    ["[ ]", "layer before, layer after"],
    ["t", "words or tokens"],
    ["/", "find a word; Enter for the next"],
    ["+ − 0", "zoom the matrix, show all of it"],
    ["Enter", "hold a word; a cell's six steps; enter a map"],
    ["Esc", "let go"],
  ];
  return make(
    "footer",
    { class: "foot" },
    make("p", { class: "held" }, layers.length > 0 ? held : ""),
    make(
      "details",
      {},
      make("summary", {}, "Keys"),
      make("dl", {}, ...rows.flatMap(([key, does]) => [make("dt", {}, key), make("dd", {}, does)])),
    ),
  );
}

export default { render };
