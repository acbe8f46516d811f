/** A saved file: the payload stands in the page, and there is nobody to ask. */

import { render } from "./index.js";

const holder = document.getElementById("payload");
const place = document.getElementById("viewer");
if (holder && place) {
  const text = holder.textContent ?? "";
  holder.remove();
  /** @param {string} name */
  const get = (name) => {
    if (name === "payload") return text;
    if (name === "live") return [];
    return remembered();
  };
  render({ model: { get, set: remember }, el: place });
}

/** The state stands behind the # of the address, so that a place in the file can be pointed at. */
function remembered() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return "";
  }
}

/** @param {string} name @param {string} value */
function remember(name, value) {
  if (name !== "state") return;
  try {
    history.replaceState(null, "", `#${encodeURIComponent(value)}`);
  } catch {
    // A page inside a frame may not change its address; the view works all the same.
  }
}
