/** The colours of weights, from pale to dark; on dark paper, from dark to pale. */

const LIGHT_BLUE = ["#eff2f6", "#c9dcee", "#8fbbdd", "#4a90c4", "#1b629f", "#0b3767"];
const LIGHT_ORANGE = ["#eff2f6", "#f9dcbf", "#f0b27c", "#d9813a", "#a9560f", "#6b3204"];
const DARK_BLUE = ["#20242a", "#223a4f", "#24557c", "#2c7ab3", "#5eaee4", "#cfe8fa"];
const DARK_ORANGE = ["#20242a", "#4a3018", "#7d4a17", "#b5691c", "#e59a4d", "#fbdfc2"];

/**
 * @typedef {object} Colours
 * @property {boolean} dark
 * @property {(share: number) => [number, number, number]} channels red, green, blue of −1 … 1
 * @property {(share: number) => string} ramp the same, for CSS
 * @property {(share: number) => string} ink what reads on that colour
 */

/** @param {boolean} dark @returns {Colours} */
function colours(dark) {
  const blue = table(dark ? DARK_BLUE : LIGHT_BLUE);
  const orange = table(dark ? DARK_ORANGE : LIGHT_ORANGE);
  /** @type {Colours["channels"]} */
  const channels = (share) =>
    (share < 0 ? orange : blue)[Math.round(Math.min(Math.abs(share), 1) * 255)];
  return {
    dark,
    channels,
    ramp: (share) => `rgb(${channels(share).join(" ")})`,
    ink: (share) => {
      const [r, g, b] = channels(share);
      return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#1f2430" : "#ffffff";
    },
  };
}

/** Whether the page is shown on dark paper. */
function isDark() {
  const { theme } = document.documentElement.dataset;
  return theme === undefined
    ? matchMedia("(prefers-color-scheme: dark)").matches
    : theme === "dark";
}

/**
 * 256 colours between the stops.
 * @param {string[]} stops
 * @returns {[number, number, number][]}
 */
function table(stops) {
  const parts = stops.map((stop) => [1, 3, 5].map((i) => parseInt(stop.slice(i, i + 2), 16)));
  return Array.from({ length: 256 }, (_, i) => {
    const place = (i / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    const mixed = parts[low].map((c, j) => Math.round(c + (parts[low + 1][j] - c) * (place - low)));
    return /** @type {[number, number, number]} */ (mixed);
  });
}

/**
 * How dark a weight is drawn: the root, so that small weights can be seen.
 * @param {number} weight
 */
function strength(weight) {
  return Math.sqrt(Math.min(weight, 1));
}
