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

/**
 * A sentence of the page, from its template in wording.py, with words for the names in braces.
 * @param {string} name
 * @param {Record<string, string | number>} words
 * @returns {Span[]}
 */
function said(name, words) {
  return PAYLOAD.labels[name].split(/\{([^}]+)\}/).map((part, i) => {
    const [field, role = ""] = part.split(":");
    return i % 2 === 0 ? [part, ""] : [String(words[field]), role];
  });
}

/**
 * The same as plain text.
 * @param {string} name
 * @param {Record<string, string | number>} [words]
 */
function told(name, words = {}) {
  return said(name, words)
    .map(([text]) => text)
    .join("");
}
