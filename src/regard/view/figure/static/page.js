/** The page: one selection, and everything drawn from it. */

import { make } from "../../static/dom.js";
import { choices, columns } from "./bars.js";
import { join, links } from "./links.js";
import { grid, six } from "./steps.js";
import { sentence } from "./words.js";

/** @typedef {import("./numbers.js").Finding} Finding */
/** @typedef {import("./numbers.js").Selection} Selection */

/**
 * Shows findings in an element.
 * @param {Element} root
 * @param {Finding[]} findings
 */
export function show(root, findings) {
  /** @type {Selection} */
  const state = { finding: 0, word: 0, layer: 0, head: 0, cut: false };
  const live = make("h1", { "aria-live": "polite" });
  const main = make("main", {});
  root.replaceChildren(make("div", { class: "wrap" }, bar(findings[0]), live, main));

  /** @param {Partial<Selection>} change */
  function select(change) {
    if (change.finding !== undefined)
      change = { word: findings[change.finding].selected, ...change };
    if (change.word !== undefined && (change.word !== state.word || change.finding !== undefined)) {
      const { layer, head } = findings[change.finding ?? state.finding].reads[change.word];
      change = { cut: false, layer, head, ...change };
    }
    Object.assign(state, change);
    paint();
  }

  function paint() {
    const finding = findings[state.finding];
    const read = finding.reads[state.word];
    const focus = document.activeElement?.getAttribute("data-focus");
    live.replaceChildren(...sentence(state.cut ? read.cut_headline : read.headline));
    const told = state.cut ? read.cut_caption : finding.caption;
    main.replaceChildren(
      make(
        "div",
        { class: "card" },
        links(findings, state, select),
        make("div", { class: "two" }, choices(finding, state), columns(finding, state, select)),
      ),
      make("p", { class: "say" }, ...sentence(told)),
      finding.note === "" ? "" : make("p", { class: "note" }, finding.note),
      make("div", { class: "deep" }, grid(finding, state, select), six(finding, state)),
    );
    join(main, finding, state);
    if (focus !== null && focus !== undefined) refocus(main, focus);
  }

  select({ finding: 0 });
  addEventListener("resize", () => join(main, findings[state.finding], state));
  void document.fonts.ready.then(() => join(main, findings[state.finding], state));
}

/**
 * @param {Element} main
 * @param {string} focus
 */
function refocus(main, focus) {
  const all = /** @type {HTMLElement[]} */ ([...main.querySelectorAll("[data-focus]")]);
  all.find((one) => one.dataset.focus === focus)?.focus({ preventScroll: true });
}

/** @param {Finding} finding */
function bar(finding) {
  const copy = make(
    "button",
    { title: finding.python, onclick: () => void copied(copy, finding.python) },
    "Python",
  );
  return make(
    "header",
    {},
    make("p", { class: "brand" }, make("b", {}, "regard"), " ", make("span", {}, finding.model)),
    make("p", { class: "tools" }, copy, make("button", { onclick: turn }, "Light or dark")),
    make("p", { class: "field", dir: "auto" }, finding.text),
  );
}

/**
 * @param {HTMLElement} button
 * @param {string} text
 */
async function copied(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = text;
  }
  setTimeout(() => (button.textContent = "Python"), 4000);
}

function turn() {
  const { dataset } = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  dataset.theme = (dataset.theme ?? (dark ? "dark" : "light")) === "dark" ? "light" : "dark";
}

const found = document.getElementById("payload");
const place = document.getElementById("page");
if (found !== null && place !== null) show(place, JSON.parse(found.textContent ?? "").findings);
