/** The header: the model, the input field, examples, and the tools of the page. */

/** @typedef {{label: string, text: string, word: string}} Example */

/**
 * @typedef {object} Bar
 * @property {HTMLElement} element
 * @property {(text: string, word: string | number, python: string) => void} update
 * @property {(sentence: string, failed?: boolean) => void} tell
 */

/**
 * @param {string} model
 * @param {Host | null} host
 * @param {(text: string, word: string | null) => void} go
 * @returns {Bar}
 */
function bar(model, host, go) {
  let line = "";
  /** @type {{text: string, word: string | number}} */
  let shown = { text: "", word: "" };
  const field = make("input", {
    type: "text",
    class: "field",
    dir: "auto",
    spellcheck: "false",
    autocomplete: "off",
    "aria-label": "Sentence",
    "data-focus": "field",
  });
  const text = make("p.field", { dir: "auto" });
  const told = make("p.told", { role: "status" });
  const chips = (host?.examples ?? []).map(({ label, text, word }) =>
    make("button", { onclick: () => go(text, word || null) }, label),
  );
  const python = tool("Python", () => void copied(python, "Python", line));
  const link = tool("Copy link", () => void copied(link, "Copy link", location.href));
  const save = tool("Save as HTML", () => void saved());
  const theme = tool("", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    dress();
  });

  async function saved() {
    if (host === null) return;
    try {
      saveText(await host.page(shown), "regard.html", "text/html");
    } catch (error) {
      tell(message(error), true);
    }
  }

  function dress() {
    const dark = isDark();
    theme.textContent = dark ? "☀\ufe0e" : "☾\ufe0e";
    theme.setAttribute(
      "aria-label",
      dark ? "Switch to the light theme" : "Switch to the dark theme",
    );
    dispatchEvent(new Event("resize"));
  }

  /** @param {string} sentence @param {boolean} [failed] */
  function tell(sentence, failed = false) {
    told.textContent = sentence;
    told.classList.toggle("failed", failed);
  }

  const entry = make(
    "form.entry",
    {
      role: "search",
      onsubmit: (/** @type {Event} */ event) => {
        event.preventDefault();
        go(field.value, null);
      },
    },
    field,
    make("button", { type: "submit", class: "enter" }, "type your own · Enter"),
  );
  const element = make(
    "header",
    make("p.brand", make("b", "regard"), " ", make("span", named(model))),
    make("p.tools", host && link, host && save, python, theme),
    host === null ? text : entry,
    chips.length > 0 ? make("p.chips", "Try ", ...chips) : null,
    told,
  );
  dress();
  return {
    element,
    tell,
    update: (now, word, code) => {
      [line, shown] = [code, { text: now, word }];
      python.title = code;
      python.hidden = code === "";
      text.textContent = now;
      if (document.activeElement !== field) field.value = now;
      chips.forEach((chip, i) =>
        chip.setAttribute("aria-pressed", String(host?.examples[i].text === now)),
      );
    },
  };
}

/**
 * A button, and what a screen reader says instead of its label.
 * @param {string} label
 * @param {() => void} act
 * @param {string | null} [name]
 */
function tool(label, act, name = null) {
  return make("button", { type: "button", "aria-label": name, onclick: act }, label);
}

/** @param {HTMLElement} button @param {string} label @param {string} text */
async function copied(button, label, text) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = text;
  }
  setTimeout(() => (button.textContent = label), 4000);
}

/** The name of a model, and the languages that it ends in. @param {string} model */
function named(model) {
  const pair = /-([a-z]{2})-([a-z]{2})$/.exec(model);
  if (pair === null) return model;
  const languages = new Intl.DisplayNames("en", { type: "language" });
  return `${model} · ${languages.of(pair[1])} → ${languages.of(pair[2])}`;
}
