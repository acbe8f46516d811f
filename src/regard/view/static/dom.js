/** Elements, and numbers and texts as a person reads them. */

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {string | number | boolean | null | undefined | EventListener | ((event: any) => void)} Attribute */
/** @typedef {Node | string | null} Child */

/**
 * An element; a text child goes in as text and never as markup. `on…` listens, `null` is left out.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, Attribute>} [attributes]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  return dress(element, attributes, children);
}

/**
 * The same for SVG.
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, Attribute>} [attributes]
 * @param {...Child} children
 * @returns {SVGElementTagNameMap[K]}
 */
export function draw(tag, attributes = {}, ...children) {
  const element = /** @type {SVGElementTagNameMap[K]} */ (document.createElementNS(SVG, tag));
  return dress(element, attributes, children);
}

/**
 * @template {Element} E
 * @param {E} element
 * @param {Record<string, Attribute>} attributes
 * @param {Child[]} children
 * @returns {E}
 */
function dress(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") {
      element.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    } else if (value === true) {
      element.setAttribute(name, "");
    } else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, String(value));
    }
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/**
 * A token or word made visible: spaces and control characters are drawn as signs.
 * @param {string} text
 */
export function visible(text) {
  if (text.trim() === "" && text !== "") {
    return Array.from(text, (c) => (c === " " ? "␣" : sign(c))).join("");
  }
  return Array.from(text, sign).join("") || "∅";
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
export function direction(text) {
  const strong =
    /\p{Script=Hebrew}|\p{Script=Arabic}|\p{Script=Syriac}|\p{Script=Thaana}|\p{Script=Nko}/u;
  const first = /\p{L}/u.exec(text);
  return first !== null && strong.test(first[0]) ? "rtl" : "ltr";
}

/**
 * A weight, with three decimals.
 * @param {number} weight
 */
export function share(weight) {
  if (weight > 0 && weight < 0.0005) return "<0.001";
  return weight.toFixed(3);
}

/**
 * A number of any size, with a true minus.
 * @param {number} value
 */
export function number(value) {
  if (value === -Infinity) return "−∞";
  const size = Math.abs(value);
  const text =
    size !== 0 && (size < 1e-4 || size >= 1e4) ? value.toExponential(2) : value.toFixed(4);
  return (Number(text) === 0 ? text.replace("-", "") : text).replaceAll("-", "−");
}

/**
 * A percentage without needless decimals.
 * @param {number} part
 */
export function percent(part) {
  const hundred = part * 100;
  const places = hundred >= 99.95 || hundred === 0 ? 0 : hundred >= 10 ? 1 : 2;
  return `${Number(hundred.toFixed(places))} %`;
}

/**
 * Arrow keys, Home and End move a number inside 0 … count − 1; null for any other key.
 * @param {KeyboardEvent} event
 * @param {number} at
 * @param {number} count
 * @param {number} [page]
 * @returns {number | null}
 */
export function moved(event, at, count, page = 10) {
  const along = event.currentTarget;
  const turned = along instanceof Element && getComputedStyle(along).direction === "rtl";
  /** @type {Record<string, number>} */
  const steps = {
    ArrowDown: 1,
    ArrowRight: turned ? -1 : 1,
    ArrowUp: -1,
    ArrowLeft: turned ? 1 : -1,
    PageDown: page,
    PageUp: -page,
    Home: -count,
    End: count,
  };
  const step = steps[event.key];
  if (step === undefined || event.ctrlKey || event.metaKey || event.altKey) return null;
  event.preventDefault();
  return Math.min(count - 1, Math.max(0, at + step));
}
