/** The page: one selection, and everything drawn from it. */

/**
 * @typedef {object} Host What answers questions: a server; a saved page has none.
 * @property {(kind: string, question: object) => Promise<any>} ask
 * @property {(question: {text: string, word: string | number}) => Promise<string>} page
 * @property {Example[]} examples
 */

/**
 * Shows a payload in an element.
 * @param {Element} root
 * @param {Payload} payload
 * @param {Host | null} host
 */
function show(root, payload, host) {
  /** @type {State} */
  const state = { written: -1, asks: -1, word: 0, layer: 0, head: 0, cut: false };
  let findings = unpacked(payload);
  let visits = 0;
  let reader = payload.layers.length > 0 ? new Reader(payload) : null;
  const name = payload.served?.model ?? findings[0]?.model ?? "";
  const top = bar(name, host, (text, word) => void visit(text, word));
  const live = make("h1", { "aria-live": "polite" });
  const main = make("main");
  const depths = deeper(() => reader, payload, host, layers, paint);
  const wrap = make("div.wrap", top.element, live, main, depths.element);
  root.replaceChildren(wrap);

  /** The finding about the written word that is selected. */
  const chosen = () => findings.find((one) => one.position === state.written) ?? findings[0];

  /** The finding that is shown: about a written word, or about one that is read. */
  function current() {
    if (state.asks < 0 || reader === null) return chosen();
    return attended(reader, textOf(reader), state.asks);
  }

  /**
   * @param {Partial<State>} change
   * @param {boolean} [step] whether the browser can go back from it
   * @returns {Promise<void>}
   */
  async function select(change, step = false) {
    const text = findings[0]?.text;
    try {
      if (change.written !== undefined) await write(change.written);
      if (change.asks !== undefined && change.asks >= 0) {
        await layers(change.asks);
        if (reader !== null && change.asks >= reader.units(textOf(reader)).list.length) return;
      }
    } catch (error) {
      top.tell(message(error), true);
      return;
    }
    if (text !== findings[0]?.text) return; // another sentence is shown by now
    const moved = change.written !== undefined || change.asks !== undefined;
    if (change.written !== undefined) change = { asks: -1, ...change };
    Object.assign(state, change);
    const finding = current();
    if (moved && change.word === undefined) change = { ...change, word: finding.selected };
    if (change.word !== undefined) {
      const { layer, head } = finding.reads[change.word];
      change = { cut: false, layer, head, ...change };
    }
    Object.assign(state, change);
    state.cut &&= finding.reads[state.word].measured;
    paint();
    remember(step);
  }

  /** Loads the finding about a written word unless it is there. @param {number} position */
  async function write(position) {
    if (host === null || findings.some((one) => one.position === position)) return;
    const { text } = findings[0];
    top.tell("Computing …");
    const found = await host.ask("figure", { text, word: position });
    if (text !== findings[0].text) return;
    findings = [...findings, ...unpacked(found)];
    top.tell("");
  }

  /**
   * Loads the weights of all layers, and the six steps of a word that is read, unless they are there.
   * @param {number} [unit] the word
   */
  async function layers(unit = -1) {
    if (host === null) return;
    const { text, reads } = findings[0];
    const isWord = reads[unit]?.special === false;
    if (reader !== null && (!isWord || hasSteps(reader, textOf(reader), unit))) return;
    const word = reads.slice(0, unit).filter((read) => !read.special).length;
    const found = await host.ask("attention", isWord ? { text, word } : { text });
    if (text === findings[0].text) reader = new Reader(found);
  }

  /**
   * Another sentence.
   * @param {string} text
   * @param {string | number | null} word
   * @param {boolean} [again] whether the browser came back to it
   * @returns {Promise<boolean>} whether it is shown
   */
  async function visit(text, word, again = false) {
    if (host === null) return false;
    visits += 1;
    const own = visits;
    top.update(text, word ?? "", "");
    top.tell("Computing …");
    wrap.setAttribute("aria-busy", "true");
    try {
      const found = await host.ask("figure", word === null ? { text } : { text, word });
      if (own !== visits) return false; // another sentence was asked for in the meantime
      findings = unpacked(found);
      reader = null;
      top.tell("");
      if (!again) history.pushState(null, "", `?${new URLSearchParams({ text })}`);
      await select({ written: findings[0].position });
      return true;
    } catch (error) {
      if (own === visits) top.tell(message(error), true);
      return false;
    } finally {
      if (own === visits) wrap.removeAttribute("aria-busy");
    }
  }

  /** Writes the selection into the URL of a served page. @param {boolean} step */
  function remember(step) {
    if (host === null || findings.length === 0) return;
    const { asks, word, layer, head, cut } = state;
    const about = chosen();
    const said = new URLSearchParams({ text: about.text, word: String(asked(about)) });
    for (const [key, value] of Object.entries({ read: word, layer, head }))
      said.set(key, String(value));
    if (cut) said.set("cut", "1");
    if (asks >= 0) said.set("asks", String(asks));
    const url = `?${said}`;
    if (step && url !== location.search) history.pushState(null, "", url);
    else history.replaceState(null, "", url);
  }

  function paint() {
    const finding = current();
    const read = finding.reads[state.word];
    const focus = document.activeElement?.getAttribute("data-focus") ?? "";
    document.title = finding.reads[finding.selected].headline.map(([text]) => text).join("");
    const shown = chosen();
    top.update(finding.text, asked(shown ?? finding), shown?.python ?? "");
    live.replaceChildren(...sentence(state.cut ? read.cut_headline : read.headline));
    const told = state.cut ? read.cut_caption : finding.caption;
    const can = {
      canWrite: (/** @type {number} */ i) =>
        host !== null || findings.some((one) => one.position === i),
      canRead: reader !== null || host !== null,
    };
    const running =
      finding.kind === "attention" ||
      finding.kind === "vector" ||
      Math.max(finding.reads.length, finding.output.length) > MANY;
    const pick = (/** @type {Partial<State>} */ change) => void select(change, !("head" in change));
    const scene = { finding, state, select: pick, can };
    const back =
      state.asks >= 0 && findings.length > 0
        ? make(
            "button.aside.back",
            {
              "data-focus": "back",
              onclick: () => pick({ written: shown.position }),
            },
            "← back to ",
            make("b", { dir: "auto" }, shown.word),
          )
        : "";
    main.replaceChildren(
      make(
        "div.card",
        back,
        running ? reading(scene) : links(scene),
        make(
          "div",
          { class: finding.kind === "attention" ? "two one" : "two" },
          finding.kind === "attention" ? "" : choices(scene),
          columns(scene),
        ),
      ),
      make("p.say", ...sentence(told)),
      finding.note === "" ? "" : make("p.note", finding.note),
      make("div.deep", grid(scene), six(scene)),
    );
    join(scene, main);
    reveal(main, state);
    depths.update(finding, state);
    refocus(root, focus);
  }

  const again = () => main.childElementCount > 0 && join({ finding: current(), state }, main);
  addEventListener("resize", again);
  void document.fonts.ready.then(again);
  if (host !== null) {
    addEventListener("popstate", () => void opened());
    void opened();
  } else if (findings.length > 0) void select({ written: findings[0].position });
  else if (reader !== null) void select({ asks: begin(reader) });
  else if (payload.compared !== null) {
    live.replaceChildren(
      make("em.look", { dir: "auto" }, payload.compared.word),
      " in two sentences",
    );
    top.update("", "", "");
    depths.update(null, state);
  }

  /** Shows what the URL asks for, or the first example. */
  async function opened() {
    const said = new URLSearchParams(location.search);
    const [first] = host?.examples ?? [];
    const text = said.get("text") ?? first?.text ?? "";
    if (text === "") return;
    const word = said.get("word") ?? (said.has("text") ? null : first?.word || null);
    const asking = word !== null && /^\d+$/.test(word) ? Number(word) : word;
    if (!(await visit(text, asking, true))) return;
    /** @param {string} key */
    const number = (key) => (/^\d+$/.test(said.get(key) ?? "") ? Number(said.get(key)) : null);
    const [read, layer, head, asks] = ["read", "layer", "head", "asks"].map(number);
    if (asks !== null) await select({ asks });
    const finding = current();
    if (read === null || read >= finding.reads.length) return;
    const there = finding.attention[layer ?? -1]?.[head ?? -1] !== undefined;
    await select({
      word: read,
      ...(there ? { layer: layer ?? 0, head: head ?? 0 } : {}),
      cut: said.has("cut"),
    });
  }
}

/**
 * The findings of a payload; vectors that several of them have are sent once, by number.
 * @param {Pick<Payload, "findings" | "vectors">} parts
 * @returns {Finding[]}
 */
function unpacked({ findings, vectors }) {
  return findings.map((finding) => {
    const row = /** @type {Record<string, unknown>} */ ({ ...finding.row });
    for (const name of ["q", "output"]) row[name] = vectors[Number(row[name])];
    for (const name of ["k", "v"]) {
      row[name] = /** @type {number[]} */ (row[name])?.map((place) => vectors[place]);
    }
    return { ...finding, row: /** @type {any} */ (row) };
  });
}

/**
 * The text whose words can be asked about.
 * @param {Reader} reader
 */
function textOf({ payload: { explained, texts, layers } }) {
  const name = explained?.text ?? "text";
  return name in texts ? name : layers[0].queries;
}

/**
 * The word that a page without findings starts with: the explained one, else the last.
 * @param {Reader} reader
 */
function begin(reader) {
  const { explained } = reader.payload;
  const { list } = reader.units(textOf(reader));
  const found = list.findIndex((unit) => unit.place === explained?.word);
  if (found >= 0) return found;
  const real = list.flatMap((unit, i) => (unit.place >= 0 ? [i] : []));
  return real.at(-1) ?? 0;
}

/**
 * Focuses the element that has taken the place of the one that had the focus.
 * @param {Element} root
 * @param {string} focus
 */
function refocus(root, focus) {
  const other = { asks: "back", back: "asks" }[focus];
  const all = /** @type {HTMLElement[]} */ ([...root.querySelectorAll("[data-focus]")]);
  const found = [focus, other].map((name) => all.find((one) => one.dataset.focus === name));
  (found[0] ?? found[1])?.focus({ preventScroll: true });
}

void inflated().then((payload) => {
  PAYLOAD = payload;
  const root = /** @type {Element} */ (document.getElementById("page"));
  show(root, payload, payload.served ? server(payload.served.examples) : null);
});
