/** Words and sentences as elements. */

import { make } from "./dom.js";

/** @typedef {import("./numbers.js").Span} Span */

/**
 * The elements of a sentence: mentioned words stand apart by colour, and keep their direction.
 * @param {Span[]} told
 * @returns {(HTMLElement | string)[]}
 */
export function sentence(told) {
  return told.map(([text, role]) =>
    role === "" ? text : make("em", { class: role, dir: "auto" }, text),
  );
}

/**
 * A word without the punctuation behind it.
 * @param {string} word
 */
export function bare(word) {
  return word.replace(/[.,;:!?…。、，！？]+$/u, "") || word;
}
