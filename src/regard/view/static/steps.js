/** The steps: for one pair of tokens in one head, the six steps with the real numbers. */

import { savedCell, savedQueries } from "./cells.js";
import { strength } from "./colour.js";
import { direction, make, moved, number, share, visible } from "./dom.js";

/** @typedef {import("./index.js").Context} Context */
/** @typedef {import("./index.js").Shown} Shown */
/** @typedef {import("./cells.js").Cell} Cell */

const AROUND = 40;
const PRINTED = 8;

/**
 * @param {Context} context
 * @returns {Shown}
 */
export function stepsView(context) {
  const { reader, state, set, ask, live } = context;
  const asking = strip("query", "Token that asks");
  const lookedAt = strip("key", "Token that is looked at");
  const body = make("div", {});
  const element = make(
    "div",
    {},
    make(
      "div",
      { class: "strips" },
      make("span", { class: "caption" }, "asks"),
      asking,
      make("span", { class: "caption" }, "is looked at"),
      lookedAt,
    ),
    body,
  );
  let wanted = "";
  /** @type {Map<string, Promise<Cell>>} */
  const answers = new Map();

  /** @param {"query" | "key"} role @param {string} label */
  function strip(role, label) {
    return make("div", {
      class: "strip",
      role: "listbox",
      tabindex: 0,
      "aria-label": label,
      "data-role": role,
      onkeydown: (/** @type {KeyboardEvent} */ event) => {
        const layer = reader.layer(state.layer);
        const count =
          reader.payload.texts[role === "query" ? layer.queries : layer.keys].tokens.length;
        const next = moved(event, cellNow()[role], count);
        if (next !== null) set({ ...cellNow(), [role]: next });
      },
    });
  }

  /** The cell that is shown: what was chosen, else something that is there. */
  function cellNow() {
    const saved = savedQueries(reader, state.layer);
    const { queries } = reader.decoded(state.layer);
    let query = state.query;
    if (query < 0)
      query = saved.length > 0 ? saved[Math.floor(saved.length / 2)] : Math.min(1, queries - 1);
    const rows = reader.decoded(state.layer);
    const at = rows.offsets[state.heads[0] * queries + query];
    const key =
      state.key >= 0
        ? state.key
        : at < rows.offsets[state.heads[0] * queries + query + 1]
          ? rows.keys[at]
          : 0;
    return { query, key };
  }

  /**
   * @param {HTMLElement} box
   * @param {string} name of the text
   * @param {"query" | "key"} role
   */
  function fill(box, name, role) {
    const text = reader.payload.texts[name];
    box.dir = direction(text.text);
    const cell = cellNow();
    const palette = context.colours();
    const first = Math.max(0, cell[role] - AROUND);
    const last = Math.min(text.tokens.length, cell[role] + AROUND);
    const saved = new Set(savedQueries(reader, state.layer));
    const items = [];
    for (let i = first; i < last; i += 1) {
      const item = make(
        "span",
        {
          class: text.places[i] < 0 ? "item word special" : "item word",
          role: "option",
          dir: "auto",
          "data-token": i,
          "aria-selected": String(cell[role] === i),
          onclick: () => set({ ...cellNow(), [role]: i }),
        },
        visible(text.tokens[i]),
      );
      if (role === "key") {
        const weight = reader.weight(state.layer, state.heads[0], true, cell.query, i) ?? 0;
        item.style.background = weight > 0.004 ? palette.ramp(strength(weight)) : "";
        item.style.color = weight > 0.004 ? palette.ink(strength(weight)) : "";
      } else if (!live.includes("steps") && !saved.has(i)) {
        item.style.opacity = "0.45";
      }
      items.push(item);
    }
    box.replaceChildren(first > 0 ? "… " : "", ...items, last < text.tokens.length ? " …" : "");
  }

  function update() {
    const layer = reader.layer(state.layer);
    fill(asking, layer.queries, "query");
    fill(lookedAt, layer.keys, "key");
    const { query, key } = cellNow();
    const [at, head] = [state.layer, state.heads[0]];
    const now = `${at} ${head} ${query} ${key}`;
    wanted = now;
    const saved = savedCell(reader, at, head, query, key);
    if (saved) {
      tell(saved);
    } else if (ask && live.includes("steps")) {
      const answer = answers.get(now) ?? ask("steps", { layer: at, head, query, key });
      answers.set(now, answer);
      answer.then(
        (cell) => {
          if (wanted === now) tell(cell);
        },
        (error) => {
          answers.delete(now);
          if (wanted === now)
            body.replaceChildren(make("p", { class: "note failed", role: "alert" }, error.message));
        },
      );
    } else {
      body.replaceChildren(make("p", { class: "note absent" }, absent()));
    }
  }

  function absent() {
    const saved = savedQueries(reader, state.layer);
    const texts = reader.payload.texts[reader.layer(state.layer).queries].tokens;
    const some = saved.slice(0, 8).map((token) => visible(texts[token]));
    return saved.length === 0
      ? "This file was saved without the numbers of the steps. Save it with steps=[…] for some words, or look at it in a notebook or with regard serve."
      : `The numbers of this pair are not in this file; it has those of ${some.join(", ")}${saved.length > 8 ? ", …" : ""}.`;
  }

  /** @param {Cell} cell */
  function tell(cell) {
    const layer = reader.layer(state.layer);
    const keys = reader.payload.texts[layer.keys].tokens;
    const asks = visible(reader.payload.texts[layer.queries].tokens[cell.query]);
    const looked = visible(keys[cell.key]);
    const size = extent([cell.q, cell.k]);
    const products = cell.q.map((value, i) => value * cell.k[i]);
    const worth = extent([cell.v, cell.z]);
    const six = [
      step(
        "Query and key",
        [
          [
            "What ",
            bold(asks),
            " asks for, and what ",
            bold(looked),
            ` offers: ${cell.q.length} numbers each.`,
          ],
        ],
        vector("q", cell.q, size),
        vector("k", cell.k, size),
      ),
      cell.factor === null
        ? step("Score", [[`Compared by ${cell.comparedBy}: `, bold(number(cell.score))]])
        : step(
            "Score",
            [["Multiplied place by place and added up: q · k = ", bold(number(cell.score))]],
            vector("q × k", products, extent([products])),
          ),
      step("Scale and mask", scaling(cell)),
      step("Softmax", [softened(cell)], softmax(cell, keys)),
      step(
        "Value times weight",
        [[`The value of `, bold(looked), ` counts ${share(cell.weight)}.`]],
        vector("v", cell.v, worth),
        vector(
          "w × v",
          cell.v.map((x) => x * cell.weight),
          worth,
        ),
      ),
      step(
        "Sum",
        [
          [
            `The same over all ${cell.keys} keys, added up: what this head gives to `,
            bold(asks),
            ".",
          ],
        ],
        vector("z", cell.z, worth),
      ),
    ];
    six.forEach((one, i) => one.prepend(make("span", { class: "numeral" }, String(i + 1))));
    body.replaceChildren(make("ol", { class: "steps" }, ...six));
  }

  /** @param {Cell} cell */
  function softened(cell) {
    if (cell.entered === null || cell.logsumexp === null)
      return ["The weight is ", bold(share(0)), "."];
    const power = `e^(${number(cell.entered)} − ${number(cell.logsumexp).replace(/^−(.*)/, "(−$1)")})`;
    return [`Over the row, so that all sum to 1: ${power} = `, bold(number(cell.weight))];
  }

  /** @param {Cell} cell @param {string[]} keys */
  function softmax(cell, keys) {
    const rows = cell.row.map((key, i) => {
      const meter = make("i", { class: "meter" });
      meter.style.width = `${(cell.rowWeights[i] / Math.max(cell.rowWeights[0], 1e-9)) * 100}%`;
      return make(
        "tr",
        { class: key === cell.key ? "here" : null, "data-key": key },
        make("td", { class: "word", dir: "auto" }, visible(keys[key])),
        make("td", { class: "figure" }, number(cell.rowEntered[i] ?? -Infinity)),
        make("td", { class: "figure weight" }, small(cell.rowWeights[i])),
        make("td", { class: "track" }, meter),
      );
    });
    const rest = 1 - cell.rowWeights.reduce((sum, weight) => sum + weight, 0);
    const others = cell.keys - cell.row.length;
    const note =
      others > 0
        ? make("p", { class: "note" }, `and ${others} others, together ${small(Math.max(rest, 0))}`)
        : null;
    return make("div", {}, make("table", { class: "softmax" }, make("tbody", {}, ...rows)), note);
  }

  /**
   * @param {string} name
   * @param {number[]} values
   * @param {number} most
   */
  function vector(name, values, most) {
    const canvas = make("canvas", {
      width: values.length,
      height: 1,
      role: "img",
      "aria-label": `${name}, ${values.length} numbers`,
    });
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    const palette = context.colours();
    values.forEach((value, i) => {
      pen.fillStyle = palette.ramp(value / most);
      pen.fillRect(i, 0, 1, 1);
    });
    const printed = values
      .slice(0, PRINTED)
      .map((value) => number(value))
      .join("  ");
    return make(
      "div",
      { class: "vector" },
      make("span", { class: "name" }, name),
      canvas,
      make(
        "span",
        { class: "values" },
        values.length > PRINTED ? `${printed}  … ${values.length} numbers` : printed,
      ),
    );
  }

  return { element, update };
}

/**
 * @param {string} title
 * @param {(string | HTMLElement)[][]} lines
 * @param {...HTMLElement} figures
 */
function step(title, lines, ...figures) {
  const said = lines.map((line) => make("p", {}, ...line));
  return make("li", {}, make("div", {}, make("h2", {}, title), ...said, ...figures));
}

/** @param {string} text */
function bold(text) {
  return make("b", { dir: "auto" }, text);
}

/** @param {number[][]} vectors */
function extent(vectors) {
  return Math.max(...vectors.flat().map(Math.abs), 1e-9);
}

/**
 * @param {Cell} cell
 * @returns {(string | HTMLElement)[][]}
 */
function scaling(cell) {
  /** @type {(string | HTMLElement)[][]} */
  const lines = [];
  if (cell.factor === null || cell.factor === 1) {
    lines.push(["No scaling: the score is used as it is, ", bold(number(cell.scaled))]);
  } else {
    const root = Math.abs(cell.factor * Math.sqrt(cell.q.length) - 1) < 1e-6;
    const how = root ? `divided by √${cell.q.length}` : `times ${number(cell.factor)}`;
    lines.push([`${number(cell.score)} ${how} = `, bold(number(cell.scaled))]);
  }
  if (cell.entered === null) {
    lines.push([
      "Masked: this key may not be looked at, so that the score becomes ",
      bold("−∞"),
      ".",
    ]);
  } else if (Math.abs(cell.entered - cell.scaled) > 1e-6) {
    lines.push([
      `A bias of ${number(cell.entered - cell.scaled)} is added: `,
      bold(number(cell.entered)),
    ]);
  } else {
    lines.push([
      cell.hidden > 0
        ? `Not masked (${cell.hidden} of ${cell.keys} keys of this row are).`
        : "Nothing is masked in this row.",
    ]);
  }
  return lines;
}

/**
 * A weight in a table, with four decimals.
 * @param {number} weight
 */
function small(weight) {
  return weight > 0 && weight < 0.00005 ? "<0.0001" : weight.toFixed(4);
}
