/** Taking it along: the address to the clipboard, the view to a file. */

import { post } from "./post.js";

const WHILE = 1600;

/**
 * @param {HTMLButtonElement} button says for a while that it is done
 * @param {string} address
 */
export async function copy(button, address) {
  try {
    await navigator.clipboard.writeText(address);
    said(button, "Copied");
  } catch {
    // A browser may forbid it; the address stands where it always does.
    said(button, "Copy the address above");
  }
}

/**
 * @param {object} question what the page to be saved shows
 * @param {string} word
 */
export async function save(question, word) {
  const response = await post("page", question);
  const address = URL.createObjectURL(await response.blob());
  const link = document.createElement("a");
  link.href = address;
  link.download = `regard-${word.replace(/[^\p{L}\p{N}]+/gu, "-")}.html`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

/** @param {HTMLButtonElement} button @param {string} text */
function said(button, text) {
  const before = button.dataset.label ?? button.textContent ?? "";
  button.dataset.label = before;
  button.textContent = text;
  setTimeout(() => {
    button.textContent = before;
  }, WHILE);
}
