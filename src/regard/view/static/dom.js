/** Elements, and numbers and texts as a person reads them. */

const SVG = "http://www.w3.org/2000/svg";
/** @type {Record<string, [number, number]>} Steps down and to the right. */
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** @typedef {string | number | boolean | null | undefined | EventListener | ((event: any) => void) | Partial<CSSStyleDeclaration>} Attribute */
/** @typedef {Node | string | null | Record<string, Attribute>} Part */

/**
 * An element, named as in CSS: `p.note`. Its parts are children, texts, which never become markup,
 * and attributes: `on…` listens, `style` is an object, `null` is left out.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K | `${K}.${string}`} name
 * @param {...Part} parts
 * @returns {HTMLElementTagNameMap[K]}
 */
function make(name, ...parts) {
  const [tag, ...classes] = name.split(".");
  const element = /** @type {HTMLElementTagNameMap[K]} */ (document.createElement(tag));
  element.classList.add(...classes);
  return dress(element, parts);
}

/**
 * The same for SVG.
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag
 * @param {...Part} parts
 * @returns {SVGElementTagNameMap[K]}
 */
function draw(tag, ...parts) {
  const element = /** @type {SVGElementTagNameMap[K]} */ (document.createElementNS(SVG, tag));
  return dress(element, parts);
}

/**
 * @template {Element} E
 * @param {E} element
 * @param {Part[]} parts
 * @returns {E}
 */
function dress(element, parts) {
  for (const part of parts) {
    if (part === null) continue;
    if (typeof part === "string" || part instanceof Node) element.append(part);
    else for (const [name, value] of Object.entries(part)) give(element, name, value);
  }
  return element;
}

/** @param {Element} element @param {string} name @param {Attribute} value */
function give(element, name, value) {
  if (typeof value === "function")
    element.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
  else if (typeof value === "object" && value !== null)
    Object.assign(/** @type {HTMLElement} */ (element).style, value);
  else if (value !== null && value !== undefined && value !== false)
    element.setAttribute(name, value === true ? "" : String(value));
}

/**
 * A token or word made visible: spaces and control characters are drawn as signs.
 * @param {string} text
 */
function visible(text) {
  const blank = text.trim() === "";
  return Array.from(text, (c) => (blank && c === " " ? "␣" : sign(c))).join("") || "∅";
}

/** @param {string} character */
function sign(character) {
  const code = character.codePointAt(0) ?? 0;
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  if ((code >= 0x7f && code < 0xa0) || (code >= 0xd800 && code < 0xe000)) return "\ufffd";
  // Marks that turn the direction of what follows would turn the page around them, too.
  if ((code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069)) return "\ufffd";
  return character;
}

/**
 * Whether a text runs from right to left, by its first letter that says so.
 * @param {string} text
 * @returns {"rtl" | "ltr"}
 */
function direction(text) {
  const strong =
    /\p{Script=Hebrew}|\p{Script=Arabic}|\p{Script=Syriac}|\p{Script=Thaana}|\p{Script=Nko}/u;
  const first = /\p{L}/u.exec(text);
  return first !== null && strong.test(first[0]) ? "rtl" : "ltr";
}

/** What an error says. @param {unknown} error */
function message(error) {
  return error instanceof Error ? error.message : String(error);
}

/**
 * A weight, with three decimals.
 * @param {number} weight
 */
function share(weight) {
  if (weight > 0 && weight < 0.0005) return "<0.001";
  return weight.toFixed(3);
}

/**
 * Arrow, page, Home and End keys move a number inside 0 … count − 1; null for any other key.
 * @param {KeyboardEvent} event
 * @param {number} at
 * @param {number} count
 * @returns {number | null}
 */
function moved(event, at, count) {
  const along = event.currentTarget;
  const turned = along instanceof Element && getComputedStyle(along).direction === "rtl";
  /** @type {Record<string, number>} */
  const steps = {
    ArrowDown: 1,
    ArrowRight: turned ? -1 : 1,
    ArrowUp: -1,
    ArrowLeft: turned ? 1 : -1,
    PageDown: 10,
    PageUp: -10,
    Home: -count,
    End: count,
  };
  const step = steps[event.key];
  if (step === undefined || event.ctrlKey || event.metaKey || event.altKey) return null;
  event.preventDefault();
  return Math.min(count - 1, Math.max(0, at + step));
}
