/** Two sentences, and the word that both have. */

import { make } from "../../view/static/dom.js";

/** @typedef {{word: string, one: string, other: string}} Pair */

/** @type {Pair} */
const EXAMPLE = {
  word: "bat",
  one: "He hit the ball with the bat and ran.",
  other: "The bat is a mammal.",
};

/**
 * @param {{compared: (pair: Pair) => void}} heard
 */
export function pair({ compared }) {
  const word = make("input", {
    id: "both",
    autocomplete: "off",
    spellcheck: "false",
    dir: "auto",
    placeholder: EXAMPLE.word,
  });
  const [one, other] = ["one", "other"].map((name) =>
    make("textarea", {
      id: `text-${name}`,
      rows: 1,
      spellcheck: "false",
      autocomplete: "off",
      dir: "auto",
      placeholder: name === "one" ? EXAMPLE.one : EXAMPLE.other,
      onkeydown: (/** @type {KeyboardEvent} */ event) => {
        if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
        event.preventDefault();
        element.requestSubmit();
      },
    }),
  );
  const element = make(
    "form",
    {
      onsubmit: (/** @type {Event} */ event) => {
        event.preventDefault();
        const said = [word, one, other].map((field) => field.value.trim());
        const empty = said.every((text) => text === "");
        if (empty) show(EXAMPLE);
        const missing = [word, one, other].find((field) => field.value.trim() === "");
        if (missing) missing.focus();
        else compared(empty ? EXAMPLE : { word: said[0], one: said[1], other: said[2] });
      },
    },
    make(
      "div",
      { class: "pair" },
      make("div", {}, make("label", { for: "both" }, "A word"), word),
      make(
        "div",
        { class: "texts" },
        make("div", {}, make("label", { for: "text-one" }, "in one sentence"), one),
        make("div", {}, make("label", { for: "text-other" }, "and in another"), other),
      ),
    ),
    make("button", { class: "go", type: "submit" }, "Compare"),
  );

  /** @param {Pair} given */
  function show(given) {
    word.value = given.word;
    one.value = given.one;
    other.value = given.other;
  }

  return { element, show, focus: () => word.focus() };
}
