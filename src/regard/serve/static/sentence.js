/** One sentence: written in a field, then read as words to pick from. */

import { make, visible } from "../../view/static/dom.js";

const EXAMPLES = [
  "The animal didn't cross the street because it was too tired.",
  "The animal didn't cross the street because it was too wide.",
  "He hit the ball with the bat and ran.",
];

/**
 * @param {{looked: (text: string) => void, picked: (word: number) => void}} heard
 */
export function sentence({ looked, picked }) {
  const field = make("textarea", {
    id: "text",
    rows: 1,
    spellcheck: "false",
    autocomplete: "off",
    dir: "auto",
    placeholder: "A sentence",
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      form.requestSubmit();
    },
  });
  const form = make(
    "form",
    {
      onsubmit: (/** @type {Event} */ event) => {
        event.preventDefault();
        if (field.value.trim() !== "") looked(field.value.trim());
      },
    },
    make("label", { for: "text" }, "Type a sentence, then pick the word to look into."),
    field,
    make("button", { class: "go", type: "submit" }, "Look"),
    make(
      "div",
      { class: "examples" },
      "For example",
      make("ul", {}, ...EXAMPLES.map((text) => make("li", {}, example(text)))),
    ),
  );
  const words = make("p", { class: "sentence", dir: "auto", onkeydown: along });
  const translation = make("p", { class: "translation", dir: "auto" });
  const shown = make(
    "div",
    {},
    words,
    translation,
    make(
      "p",
      { class: "beside" },
      make(
        "button",
        { class: "quiet", type: "button", onclick: () => write() },
        "Change the sentence",
      ),
    ),
  );
  const element = make("div", {}, form);

  /** @param {string} text */
  function example(text) {
    return make("button", { class: "quiet", type: "button", onclick: () => looked(text) }, text);
  }

  /** @param {KeyboardEvent} event */
  function along(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const all = [...words.querySelectorAll("button")];
    const at = all.indexOf(/** @type {HTMLButtonElement} */ (event.target));
    if (step === undefined || at < 0) return;
    event.preventDefault();
    const turned = getComputedStyle(words).direction === "rtl" ? -step : step;
    all[Math.min(all.length - 1, Math.max(0, at + turned))].focus();
  }

  /** The field, to write in. */
  function write() {
    element.replaceChildren(form);
    field.focus();
  }

  return {
    element,
    /** @param {string} text */
    write: (text) => {
      field.value = text;
      write();
    },
    /**
     * The sentence, its words to be picked.
     * @param {string} text
     * @param {string[]} names the words, in order
     */
    read: (text, names) => {
      field.value = text;
      translation.textContent = "";
      const parts = split(text, names);
      words.replaceChildren(
        ...parts.map(({ word, part }) =>
          word < 0
            ? part
            : make(
                "button",
                {
                  class: "word",
                  type: "button",
                  "data-word": word,
                  "aria-pressed": "false",
                  onclick: () => picked(word),
                },
                visible(part),
              ),
        ),
      );
      element.replaceChildren(shown);
    },
    /** @param {number | null} word */
    mark: (word) => {
      for (const button of words.querySelectorAll("button")) {
        button.setAttribute("aria-pressed", String(Number(button.dataset.word) === word));
      }
    },
    /** @param {string} text */
    translated: (text) => {
      translation.textContent = text;
    },
    focus: () => words.querySelector("button")?.focus(),
  };
}

/**
 * The text in parts: words by their number, and what stands between them (number −1).
 * @param {string} text
 * @param {string[]} names
 * @returns {{word: number, part: string}[]}
 */
export function split(text, names) {
  /** @type {{word: number, part: string}[]} */
  const parts = [];
  let at = 0;
  names.forEach((name, word) => {
    const found = text.indexOf(name, at);
    // A model that spells a word in its own way still has its words set apart.
    const between = found < 0 ? (word === 0 ? "" : " ") : text.slice(at, found);
    if (between !== "") parts.push({ word: -1, part: between });
    parts.push({ word, part: name });
    if (found >= 0) at = found + name.length;
  });
  return parts;
}
