/** The page: a sentence or two, the viewer of what the model makes of them, and the address. */

import { render } from "../../view/static/index.js";
import { lasting, nowhere, read, written } from "./link.js";
import { pair } from "./pair.js";
import { ask } from "./post.js";
import { copy, save } from "./save.js";
import { sentence } from "./sentence.js";

/** @typedef {import("./link.js").Place} Place */

const SOON = 150;
const CHOOSE = "Pick a word to see what it looks at.";

const question = element("question");
const told = element("told");
const holder = element("viewer");
const actions = element("actions");
const [one, two, copies, saves] = ["one", "two", "copy", "save"].map(
  (name) => /** @type {HTMLButtonElement} */ (element(name)),
);

let place = nowhere();
/** The text whose words are on the page. */
let reading = "";
/** @type {string[]} */
let words = [];
let leave = () => {};
let later = 0;
let asking = new AbortController();

const single = sentence({
  looked: (text) => go({ ...nowhere(), text, state: lasting(place.state) }),
  picked: (word) => go({ ...place, word, state: lasting(place.state) }),
});
const double = pair({
  compared: ({ word, one: first, other }) =>
    go({ ...nowhere(), kind: "two", compared: word, one: first, other, state: themed() }),
});

/** @param {string} id */
function element(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found;
}

/**
 * Of the state, what has nothing to do with the text.
 * @returns {import("./link.js").State}
 */
function themed() {
  return place.state.theme === undefined ? {} : { theme: place.state.theme };
}

/**
 * To a place, of which the browser's history keeps the one before.
 * @param {Place} next
 */
function go(next) {
  if (later !== 0) remember();
  const address = written(next);
  if (address !== location.search) history.pushState(null, "", address);
  return show(next);
}

/** What is shown now, into the address. */
function remember() {
  clearTimeout(later);
  later = 0;
  history.replaceState(null, "", written(place));
}

/** @param {Place} next */
async function show(next) {
  clearTimeout(later);
  later = 0;
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  place = next;
  paper();
  one.setAttribute("aria-pressed", String(place.kind === "one"));
  two.setAttribute("aria-pressed", String(place.kind === "two"));
  try {
    if (place.kind === "two") await showPair(signal);
    else await showWord(signal);
  } catch (error) {
    if (signal.aborted) return;
    clear();
    tell(error instanceof Error ? error.message : String(error), true);
    if (place.kind === "one" && reading !== place.text) single.write(place.text);
  }
}

/** @param {AbortSignal} signal */
async function showWord(signal) {
  if (!question.contains(single.element)) question.replaceChildren(single.element);
  if (place.text === "") {
    clear();
    tell("");
    single.write("");
    document.title = "regard";
    return;
  }
  if (reading !== place.text) {
    clear();
    tell("Reading …");
    words = (await ask("words", { text: place.text }, signal)).words;
    reading = place.text;
    single.read(reading, words);
  } else if (!single.element.querySelector(".sentence")) {
    single.read(reading, words);
  }
  single.mark(place.word);
  if (place.word === null) {
    clear();
    tell(CHOOSE);
    document.title = `${place.text} – regard`;
    single.focus();
    return;
  }
  const { text, word } = place;
  const { payload, live } = await busy(ask("view", { text, word }, signal));
  // The sentence stands above; the viewer is headed by the word.
  payload.title = words[word] ?? "";
  single.translated(payload.texts.translation?.text ?? "");
  document.title = `${words[word]} in: ${text} – regard`;
  mount(payload, live, (kind, argument) =>
    kind === "cut"
      ? ask("cut", { text, links: /** @type {any} */ (argument).links })
      : ask(kind, { text, word, ...argument }),
  );
}

/** @param {AbortSignal} signal */
async function showPair(signal) {
  question.replaceChildren(double.element);
  const { compared: word, one: first, other } = place;
  double.show({ word, one: first, other });
  if (word === "" || first === "" || other === "") {
    clear();
    tell("");
    double.focus();
    document.title = "regard";
    return;
  }
  const { payload, live } = await busy(ask("compare", { word, one: first, other }, signal));
  document.title = `${word}, compared – regard`;
  mount(payload, live, () => Promise.reject(new Error("There is nothing more to ask.")));
}

/**
 * The viewer, told that its content is on the way.
 * @template T
 * @param {Promise<T>} answer
 * @returns {Promise<T>}
 */
async function busy(answer) {
  tell("Looking …");
  holder.setAttribute("aria-busy", "true");
  try {
    return await answer;
  } finally {
    holder.removeAttribute("aria-busy");
  }
}

/**
 * @param {object} payload
 * @param {string[]} live
 * @param {import("../../view/static/ask.js").Ask} answer
 */
function mount(payload, live, answer) {
  leave();
  tell("");
  actions.hidden = false;
  /** @type {Record<string, unknown>} */
  const given = { payload, live, state: place.state };
  const here = place;
  leave = render({
    el: holder,
    model: {
      get: (name) => given[name],
      set: (name, value) => {
        if (name !== "state" || place !== here) return; // what is next is on its way already
        place.state = JSON.parse(value);
        // Browsers allow the address to change only so often, and a slider moves faster.
        clearTimeout(later);
        later = setTimeout(remember, SOON);
        paper();
      },
      ask: answer,
    },
  });
}

function clear() {
  leave();
  leave = () => {};
  holder.shadowRoot?.replaceChildren();
  actions.hidden = true;
}

/** @param {string} sentence @param {boolean} [failed] */
function tell(sentence, failed = false) {
  told.textContent = sentence;
  told.classList.toggle("failed", failed);
}

/** The page is as light or dark as the viewer. */
function paper() {
  document.documentElement.dataset.theme = String(place.state.theme ?? "auto");
}

one.addEventListener("click", () => go({ ...nowhere(), text: reading, state: themed() }));
two.addEventListener("click", () => go({ ...nowhere(), kind: "two", state: themed() }));
copies.addEventListener("click", () => copy(copies, new URL(written(place), location.href).href));
saves.addEventListener("click", async () => {
  const { kind, text, word, compared, one: first, other } = place;
  try {
    if (kind === "two") await save({ word: compared, one: first, other }, compared);
    else if (word !== null) await save({ text, word }, words[word]);
  } catch (error) {
    tell(error instanceof Error ? error.message : String(error), true);
  }
});
addEventListener("popstate", () => show(read(location.search)));

fetch("api/health")
  .then((response) => response.json())
  .then(({ model }) => {
    element("model").textContent = String(model);
  })
  .catch(() => {});
show(read(location.search));
