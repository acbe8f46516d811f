/** Words and sentences as elements. */

/**
 * The elements of a sentence: mentioned words stand apart by colour, and keep their direction.
 * @param {Span[]} told
 * @returns {(HTMLElement | string)[]}
 */
function sentence(told) {
  return told.map(([text, role]) =>
    role === "" ? text : make("em", { class: role, dir: "auto" }, text),
  );
}

/**
 * A word without the punctuation behind it.
 * @param {string} word
 */
function bare(word) {
  return word.replace(/[.,;:!?…。、，！？]+$/u, "") || word;
}
