/** Explain: several answers to "why this word?", side by side, and links to cut. */

import { unpacked } from "./data.js";
import { make, number, visible } from "./dom.js";
import { strength } from "./colour.js";

/** @typedef {import("./index.js").Context} Context */
/** @typedef {import("./index.js").Shown} Shown */

/**
 * @typedef {object} Method
 * @property {string} name
 * @property {number[]} scores NaN: not known
 * @property {Float32Array[][] | null} heads
 * @property {number | null} agreement
 * @property {string} note
 */

const FEW = 14;
const WHY_NOT = "Cutting needs the model: look at this in a notebook or with regard serve.";

/**
 * @param {Context} context
 * @returns {Shown}
 */
export function explainView(context) {
  const { reader, state, set, ask, live } = context;
  const explained = /** @type {import("./data.js").ExplainedData} */ (reader.payload.explained);
  const own = reader.payload.texts[explained.text];
  const other = reader.payload.texts[explained.lookedAt];
  const same = explained.text === explained.lookedAt;
  const cutting = ask !== null && live.includes("cut");
  /** @type {Set<number>} */
  const cut = new Set(cutting ? state.cut.filter((word) => other.words[word] !== undefined) : []);
  let all = other.words.length <= FEW || cut.size > 0;
  let chosen = -1;
  let asked = 0;
  /** @type {Method[]} */
  const methods = explained.methods.map((method) => ({
    ...method,
    scores: method.scores.map((score) => score ?? NaN),
    heads: method.heads && unpacked(method.heads),
  }));
  let apart = methods.find(({ heads }) => heads !== null) ?? null;
  const best = methods.map((method) => strongest(method.scores));
  const shaded = methods.at(-1);

  const sentence = make("p", { class: "sentence", dir: "auto" });
  const table = make("table", { class: "answers" });
  const more = make("button", { class: "quiet", type: "button", onclick: () => grow() });
  const reason = make("p", { class: "note reason" }, cutting ? "" : WHY_NOT);
  const outcome = make("div", { class: "outcome", "aria-live": "polite" });
  outcome.style.display = "none";
  const chips = make("div", { class: "byhead" });
  const element = make(
    "div",
    {},
    sentence,
    explained.sentence ? make("p", { class: "lead" }, explained.sentence) : null,
    make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Answers" }, table),
    more,
    outcome,
    reason,
    chips,
  );

  function grow() {
    all = !all;
    fill();
  }

  /** The words in the table: all, or those that some method finds strongest, in their order. */
  function rows() {
    const words = [...other.words.keys()];
    if (all) return words;
    const worth = words.map((word) =>
      Math.max(
        ...methods.map(
          (m, i) => known(Math.abs(m.scores[word])) / (Math.abs(m.scores[best[i]]) || 1),
        ),
      ),
    );
    return words
      .sort((a, b) => worth[b] - worth[a])
      .slice(0, FEW)
      .sort((a, b) => a - b);
  }

  function fill() {
    const palette = context.colours();
    const most = shaded ? Math.max(...shaded.scores.map((s) => Math.abs(known(s))), 1e-9) : 1;
    const held = focused();
    sentence.replaceChildren(
      ...own.words.flatMap((word, i) => {
        const here = i === explained.word;
        const span = make("span", { class: here ? "chosen word" : "shaded word" }, visible(word));
        if (same && !here && shaded) {
          const dark = strength(known(shaded.scores[i]) / most) * 0.6;
          if (Math.abs(dark) > 0.08) {
            span.style.background = palette.ramp(dark);
            span.style.color = palette.ink(dark);
          }
        }
        return [span, " "];
      }),
    );
    const heads = methods.map((method) => {
      const agrees =
        method.agreement === null ? "" : `agrees with knockout ${number2(method.agreement)}`;
      return make(
        "th",
        { scope: "col", "data-method": method.name },
        method.heads === null ? make("b", {}, capital(method.name)) : title(method),
        make(
          "span",
          { class: "caption agreement" },
          agrees || (method.note ? "" : "what happens when cut"),
        ),
        method.note ? make("span", { class: "caption" }, method.note) : null,
      );
    });
    table.replaceChildren(
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          make("th", { scope: "col" }, make("b", {}, same ? "Word" : visible(explained.lookedAt))),
          ...heads,
          make("th"),
        ),
      ),
      make("tbody", {}, ...rows().map(row)),
    );
    more.textContent = all ? "only the strongest" : `all ${other.words.length} words`;
    more.style.display = other.words.length <= FEW ? "none" : "";
    byHead();
    const again = held && table.querySelector(held);
    if (again instanceof HTMLElement) again.focus({ preventScroll: true });
  }

  /** The button in the table that hears the keys, if one does: how to find it in the next table. */
  function focused() {
    const root = /** @type {ShadowRoot} */ (table.getRootNode());
    const button = root.activeElement;
    if (!button || !table.contains(button)) return null;
    const word = button.closest("tr")?.dataset.word;
    if (word !== undefined) return `tr[data-word="${word}"] .${button.className}`;
    const method = button.closest("th")?.dataset.method;
    return method === undefined ? null : `th[data-method="${CSS.escape(method)}"] button`;
  }

  /**
   * The name of a method that knows its heads: a button that shows them below.
   * @param {Method} method
   */
  function title(method) {
    const show = () => {
      apart = method;
      fill();
    };
    const said = {
      "aria-pressed": String(apart === method),
      "aria-label": `${method.name} by head`,
    };
    return make(
      "button",
      { type: "button", class: "method", ...said, onclick: show },
      capital(method.name),
    );
  }

  /** @param {number} word */
  function row(word) {
    const cells = methods.map((method, i) =>
      make(
        "td",
        { class: best[i] === word ? "best" : null, "data-method": method.name },
        bar(method, word),
      ),
    );
    const button = make(
      "button",
      {
        class: "cut",
        type: "button",
        disabled: !cutting,
        title: cutting ? null : WHY_NOT,
        "aria-pressed": String(cut.has(word)),
        "aria-label": `${cut.has(word) ? "Restore" : "Cut"} the link to ${other.words[word]}`,
        onclick: () => snip(word),
      },
      cut.has(word) ? "restore" : "cut",
    );
    return make(
      "tr",
      { class: cut.has(word) ? "gone" : null, "data-word": word },
      make(
        "td",
        {},
        make(
          "button",
          {
            class: "pick",
            type: "button",
            onclick: () => pick(word),
            "aria-pressed": String(chosen === word),
          },
          make("span", { class: "word", dir: "auto" }, visible(other.words[word])),
        ),
      ),
      ...cells,
      make("td", {}, button),
    );
  }

  /** @param {Method} method @param {number} word */
  function bar(method, word) {
    const scores = method.scores.map(known);
    const low = Math.min(0, ...scores);
    const high = Math.max(0, ...scores);
    const span = high - low || 1;
    const score = scores[word];
    const fillIn = make("i", { class: score < 0 ? "below" : null });
    fillIn.style.left = `${((Math.min(score, 0) - low) / span) * 100}%`;
    fillIn.style.width = `${(Math.abs(score) / span) * 100}%`;
    return make(
      "div",
      { class: "bar" },
      make("span", { class: "figure" }, number2(method.scores[word])),
      make("span", { class: "room" }, fillIn),
    );
  }

  /** @param {number} word */
  function pick(word) {
    chosen = chosen === word ? -1 : word;
    fill();
  }

  /** @param {number} word */
  function snip(word) {
    if (!ask) return;
    if (cut.has(word)) cut.delete(word);
    else cut.add(word);
    set({ cut: [...cut] });
    question();
  }

  /** What happens without the links that are cut. */
  function question() {
    if (!ask) return;
    outcome.style.display = cut.size > 0 ? "" : "none";
    if (cut.size === 0) return;
    asked += 1;
    const turn = asked;
    outcome.replaceChildren(make("span", { class: "caption" }, "asking …"), make("span"));
    const links = [...cut].map((each) => [explained.word, each]);
    ask("cut", { queries: explained.text, keys: explained.lookedAt, links }).then(
      (reply) => {
        if (turn === asked) told(reply);
      },
      (error) => {
        if (turn === asked)
          outcome.replaceChildren(
            make("span", { class: "failed note", role: "alert" }, error.message),
          );
      },
    );
  }

  /** @param {{before: string, after: string, note?: string}} reply */
  function told(reply) {
    if (reply.before === "" && reply.after === "") {
      outcome.replaceChildren(make("p", { class: "note" }, reply.note ?? ""));
      return;
    }
    const before = reply.before.split(" ");
    const after = reply.after.split(" ");
    const kept = common(before, after);
    outcome.replaceChildren(
      make("span", { class: "caption" }, "before"),
      make("span", { class: "before", dir: "auto" }, reply.before),
      make("span", { class: "caption" }, "after"),
      make(
        "span",
        { class: "after", dir: "auto" },
        ...after.flatMap((word, i) => [
          make("span", { class: kept.has(i) ? null : "changed" }, word),
          " ",
        ]),
      ),
      reply.note ? make("p", { class: "note" }, reply.note) : "",
    );
  }

  /** Where a word's score comes from: a square per layer and head. */
  function byHead() {
    const method = apart;
    if (!method?.heads) return;
    const word =
      chosen >= 0
        ? chosen
        : strongest(method.scores.map((s, i) => (same && i === explained.word ? NaN : s)));
    const grid = method.heads;
    const most = Math.max(...grid.flat().map((scores) => Math.abs(known(scores[word]))), 1e-9);
    const widest = Math.max(...grid.map((heads) => heads.length));
    const palette = context.colours();
    const box = make("div", { class: "chips" });
    box.style.gridTemplateColumns = `max-content repeat(${widest}, 20px)`;
    grid.forEach((heads, layer) => {
      box.append(make("span", { class: "name" }, explained.layerNames[layer] ?? `layer ${layer}`));
      for (let head = 0; head < widest; head += 1) {
        const score = known(heads[head]?.[word] ?? 0);
        const told = `${explained.layerNames[layer] ?? `layer ${layer}`}, head ${head}: ${number(score)}`;
        const chip = make("button", {
          type: "button",
          title: told,
          "aria-label": told,
          onclick: () => enter(layer, head),
        });
        chip.style.background = palette.ramp(strength(score / most));
        box.append(chip);
      }
    });
    chips.replaceChildren(
      make(
        "p",
        { class: "note" },
        `${capital(method.name)} from `,
        make("b", { dir: "auto" }, visible(own.words[explained.word])),
        " to ",
        make("b", { dir: "auto" }, visible(other.words[word])),
        ", by layer and head; choose another word in the table.",
      ),
      box,
    );
  }

  /** @param {number} layer @param {number} head */
  function enter(layer, head) {
    const name = explained.layerNames[layer];
    const found = reader.payload.layers.findIndex((one) => one.name === name);
    if (found < 0 && reader.payload.layers.length !== methods.find((m) => m.heads)?.heads?.length)
      return;
    const query = own.places.indexOf(explained.word);
    set({
      view: "head",
      layer: found < 0 ? layer : found,
      heads: [head],
      query,
      key: -1,
      tokens: false,
    });
  }

  if (cut.size > 0) question();
  return { element, update: fill };
}

/** @param {number[]} scores */
function strongest(scores) {
  let at = 0;
  scores.forEach((score, i) => {
    if (Number.isNaN(scores[at]) || score > scores[at]) at = i;
  });
  return at;
}

/** @param {number} score 0 for one that is not known */
function known(score) {
  return Number.isNaN(score) ? 0 : score;
}

/** @param {string} text */
function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** @param {number} value */
function number2(value) {
  if (Number.isNaN(value)) return "·";
  const text = value.toFixed(Math.abs(value) >= 100 ? 0 : 2);
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "−");
}

/**
 * The places in `after` of words that stand in `before`, too, in the same order: the longest such
 * row of words.
 * @param {string[]} before
 * @param {string[]} after
 * @returns {Set<number>}
 */
export function common(before, after) {
  const best = Array.from({ length: before.length + 1 }, () => new Uint32Array(after.length + 1));
  for (let i = before.length - 1; i >= 0; i -= 1) {
    for (let j = after.length - 1; j >= 0; j -= 1) {
      best[i][j] =
        before[i] === after[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
    }
  }
  /** @type {Set<number>} */
  const kept = new Set();
  for (let i = 0, j = 0; i < before.length && j < after.length;) {
    if (before[i] === after[j]) {
      kept.add(j);
      i += 1;
      j += 1;
    } else if (best[i + 1][j] >= best[i][j + 1]) i += 1;
    else j += 1;
  }
  return kept;
}
