// The live page: photos come in, are captioned a few at a time, looked at and corrected.
(() => {
  const { element, percent } = explanations;
  const READING = 2, ASKING = 5; // photos that are read, and questions that are under way, at a time
  const CARDS = 24; // explanations that are remembered
  const SAME_ERRORS = 3; // equal errors in a row after which the queue waits for a person
  const [FEW, MOST] = [10, 0.5]; // captions from which on it is said that more than this share are one and the same
  const CHECKED = ["accepted", "corrected"];

  const decisions = served.folder ? new ServerStore() : null; // without it captions are shown and not corrected
  const rows = [];
  const byId = new Map();
  const cards = new Map();
  let lastKey = 0;
  let chosen = null; // the row in the pane
  let looking = null; // aborts the question about it
  let errors = { sentence: null, count: 0 };

  function button(text, act) {
    const made = element("button", text, "plain");
    made.type = "button";
    made.addEventListener("click", act);
    return made;
  }

  // --- rows ---

  function makeRow(fields) {
    const row = { key: ++lastKey, id: null, name: "", size: 0, type: "", added: Date.now(), captioner: "", settings: "",
      captions: [], error: null, thumbnail: null, status: "unchecked", text: null, revision: 0, serverId: null, phase: "reading", file: null,
      ...fields };
    rows.push(row);
    if (row.id) byId.set(row.id, row);
    return row;
  }

  const proposed = (row) => row.captions[0]?.text ?? "";
  const textOf = (row) => row.text ?? proposed(row);
  const stateOf = (row) => (row.phase !== "done" ? "waiting" : row.error ? "failed" : row.status);
  const sure = (row) => row.captions[0]?.confidence ?? 0;
  /** How sure the captioner is of the caption that is shown; undefined where a person wrote it. */
  const confidenceOf = (row) => (row.status === "corrected" ? undefined : row.captions[0]?.confidence);

  /** A name that no other photo has. */
  function uniqueName(name) {
    const taken = new Set(rows.map((row) => row.name));
    const [, stem, suffix = ""] = /^(.*?)(\.[^./]*)?$/s.exec(name);
    let other = name;
    for (let number = 2; taken.has(other); number++) other = `${stem} (${number})${suffix}`;
    return other;
  }

  const photoOf = async (row) => row.file ?? (row.serverId ? decisions.photo(row.serverId) : null);

  // --- photos come in ---

  const isPhoto = (file) =>
    file.type.startsWith("image/") || served.suffixes.some((suffix) => file.name.toLowerCase().endsWith(suffix));

  /** Take files in: [file, name with folders]. */
  async function add(files) {
    await beginning;
    const isLeftAlone = (part) => part.startsWith(".") || served.systemFolders.includes(part.toLowerCase());
    const photos = files.filter(([file, name]) => isPhoto(file) && ![...name.split("/").slice(1), file.name].some(isLeftAlone));
    if (photos.length < files.length) announce(`${count(files.length - photos.length, "file")} left out: no photos by their names.`, true);
    for (const [file, name] of photos) reading.add(makeRow({ path: name, name: uniqueName(name), size: file.size, type: file.type, file }));
    refresh();
  }

  async function read(row) {
    try {
      row.id = await idOf(row.file, row.path);
      const same = byId.get(row.id);
      if (same) {
        rows.splice(rows.indexOf(row), 1);
        announce(`${row.name} is there already, as ${same.name}.`, true);
        if (!chosen) choose(same);
        return;
      }
      byId.set(row.id, row);
      row.thumbnail = await thumbnailOf(row.file);
      row.phase = "waiting";
      if (row.size > served.maxBody) fail(row, `The photo has ${megabytes(row.size)} and the server takes ${megabytes(served.maxBody)} at most; make it smaller, or start the server with a higher --max-body.`);
      if (row.phase === "waiting") asking.add(row);
    } catch (error) {
      fail(row, `The file cannot be read (${error.message || error.name}).`);
    } finally {
      refresh(row);
    }
  }

  // --- captions ---

  async function caption(row) {
    row.phase = "asking";
    refresh(row);
    const { captioner } = choices;
    const settings = settingsFor(captioner);
    try {
      const photo = await photoOf(row);
      const query = { captioner, name: row.name, ...settings };
      const response = await server.ask("/v1/captions", { photo, query });
      const { captions } = await response.json();
      Object.assign(row, { captions, captioner, settings: JSON.stringify(settings), error: null });
      errors = { sentence: null, count: 0 };
      const kept = decisions ? await decisions.add(row, photo) : {};
      const same = byId.get(kept.serverId) ?? row; // by its content, which a browser hashes on https and here alone
      Object.assign(same, kept, { captions, node: null });
      if (decisions) byId.set(kept.serverId, same);
      if (same !== row) rows.splice(rows.indexOf(row), 1);
      if (same !== row && row === chosen) choose(same);
      row.phase = "done";
    } catch (error) {
      fail(row, error.message);
      errors = { sentence: error.message, count: error.message === errors.sentence ? errors.count + 1 : 1 };
      if (errors.count >= SAME_ERRORS && !asking.isPaused && isBusy()) stopFor(error.message);
    }
    refresh(row);
    if (row === chosen) show(row);
    else if (!chosen && !row.error && isWide()) choose((shownFirst = row), { focus: false });
    if (isBusy()) return;
    announce(`${count(rows.length, "photo")} captioned.`);
    refreshNow();
    if (shownFirst && chosen === shownFirst && !isTyped()) choose(listed[0] ?? chosen, { focus: false });
    shownFirst = null;
  }

  /** The row that was shown because it was the first to be captioned; null once somebody has looked at it. */
  let shownFirst = null;
  for (const type of ["pointerdown", "keydown"]) document.addEventListener(type, () => { shownFirst = null; }, true);

  function fail(row, sentence) {
    Object.assign(row, { error: sentence, phase: "done" });
  }

  /** Captions fail one like the other: wait until somebody has looked. */
  function stopFor(sentence) {
    asking.pause(true);
    say("stopped", `Captions have stopped, because photo after photo fails in the same way: ${sentence}`, [
      button("Settings", openSettings),
      button("Go on", goOn),
    ]);
  }

  function goOn() {
    say("stopped", "");
    errors.count = 0;
    asking.pause(false);
    refresh();
  }

  const reading = new Queue(READING, read);
  const asking = new Queue(ASKING, caption);
  const isBusy = () => rows.some((row) => row.phase !== "done");

  function again(those) {
    cards.clear();
    for (const row of those) {
      row.phase = "waiting";
      refresh(row);
    }
    asking.add(...those);
  }

  // --- the list: of rows far from the window the browser draws nothing (content-visibility) ---

  const filters = $(".filters");
  const list = $(".list");
  let listed = []; // the rows that are shown, in their order

  function drawRow(row) {
    const node = element("div", undefined, `row ${stateOf(row)}`);
    node.setAttribute("role", "option");
    node.id = `row-${row.key}`;
    node.addEventListener("click", () => choose(row));
    const text = element("div", undefined, "text");
    const meta = element("p", undefined, "small meta");
    const empty = { done: "(empty caption)", reading: "being read", asking: "being captioned" }[row.phase] ?? "waiting";
    const line = element("p", row.error ?? (textOf(row) || empty), `caption${textOf(row) ? "" : " none"}`);
    const name = element("span", row.name.split("/").pop(), "name");
    name.title = row.name;
    meta.append(name);
    const confidence = confidenceOf(row);
    if (confidence !== undefined) meta.append(element("span", percent(confidence), "confidence"));
    if (confidence !== undefined && row.captions[0].doubt) meta.append(element("span", row.captions[0].doubt, "bad"));
    if (row.phase === "done" && stateOf(row) !== "unchecked") meta.append(element("span", stateOf(row), "badge"));
    text.append(line, meta);
    node.append(smallPicture(row), text);
    return node;
  }

  function smallPicture(row) {
    const picture = element("img");
    picture.alt = "";
    picture.loading = "lazy";
    if (row.thumbnail) picture.src = row.thumbnailUrl ??= URL.createObjectURL(row.thumbnail);
    else if (row.serverId) picture.src = `/v1/corrections/photos/${row.serverId}/thumbnail`;
    else picture.hidden = true;
    return picture;
  }

  function shownRows() {
    const { text, status, order } = Object.fromEntries(["text", "status", "order"].map((name) => [name, $(`[name='${name}']`, filters).value]));
    const words = text.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const hasByName = text.trim() === matching.query ? matching.captions : new Set();
    const rank = (row) => (row.phase !== "done" ? 2 : row.error ? 1 : 0);
    const compare = {
      "least-sure": (one, other) => rank(one) - rank(other) || sure(one) - sure(other) || one.key - other.key,
      newest: (one, other) => other.added - one.added || other.key - one.key,
      name: (one, other) => one.name.localeCompare(other.name, undefined, { numeric: true }),
    }[order];
    return rows.filter((row) => {
      const content = `${row.name} ${textOf(row)} ${row.error ?? ""}`.toLowerCase();
      return (!status || stateOf(row) === status) && (hasByName.has(textOf(row)) || words.every((word) => content.includes(word)));
    }).sort(compare);
  }

  /** What the server knows of the words of captions: keywords, and whether a query finds them, a puppy for "dog", too. */
  async function wordsOf(captions, query = "") {
    return (await server.ask("/page/words", { method: "POST", json: { captions, query } })).json();
  }

  let matching = { query: "", captions: new Set() };
  let finding;
  function find() {
    clearTimeout(finding);
    refreshNow();
    finding = setTimeout(async () => {
      const query = $("[name='text']", filters).value.trim();
      const captions = [...new Set(rows.map(textOf).filter(Boolean))];
      const words = query ? await wordsOf(captions, query) : [];
      matching = { query, captions: new Set(captions.filter((_, at) => words[at]?.matches)) };
      refreshNow();
    }, 150);
  }

  let refreshing = null;
  /** Show what has changed, of a row too, a few times a second at most. */
  function refresh(row) {
    if (row) row.node = null;
    refreshing ??= setTimeout(() => {
      refreshing = null;
      refreshNow();
    }, 120);
  }

  function refreshNow() {
    listed = shownRows();
    for (const row of listed) row.node ??= drawRow(row);
    const isInOrder = list.children.length === listed.length && listed.every((row, at) => row.node === list.children[at]);
    if (!isInOrder) list.replaceChildren(...listed.map((row) => row.node));
    markChosen();
    const has = rows.length > 0;
    $(".welcome").hidden = has;
    $(".photos").hidden = !has;
    const counts = {};
    for (const row of rows) counts[stateOf(row)] = (counts[stateOf(row)] ?? 0) + 1;
    const parts = ["unchecked", "accepted", "corrected", "skipped", "failed", "waiting"].filter((state) => counts[state]);
    const total = listed.length === rows.length ? count(rows.length, "photo") : `${listed.length} of ${count(rows.length, "photo")}`;
    $(".shown").textContent = `${total}: ${parts.map((state) => `${counts[state]} ${state}`).join(", ")}`;
    const waiting = counts.waiting ?? 0;
    $(".work").hidden = !waiting;
    $(".work progress").value = rows.length ? (rows.length - waiting) / rows.length : 0;
    $(".work .counts").textContent = `${rows.length - waiting} of ${rows.length} captioned`;
    $("[data-action='pause']").textContent = asking.isPaused ? "Go on" : "Pause";
    judge();
    if (chosen) showPosition();
    document.documentElement.dataset.ready = String(!waiting && !looking);
  }

  function markChosen() {
    for (const node of list.querySelectorAll("[aria-selected='true']")) node.removeAttribute("aria-selected");
    const node = listed.includes(chosen) ? chosen.node : null;
    node?.setAttribute("aria-selected", "true");
    if (node) list.setAttribute("aria-activedescendant", node.id);
    else list.removeAttribute("aria-activedescendant");
  }

  /** Say where the captions tell that the model, and not the photo, is the trouble. */
  function judge() {
    const captioned = rows.filter((row) => row.phase === "done" && row.captions.length);
    const counts = new Map();
    for (const row of captioned) counts.set(proposed(row), (counts.get(proposed(row)) ?? 0) + 1);
    const empty = counts.get("") ?? 0;
    counts.delete("");
    const [text, most] = [...counts].reduce((best, one) => (one[1] > best[1] ? one : best), ["", 0]);
    say("empty", empty && `${empty} of ${count(captioned.length, "caption")} ${empty === 1 ? "is" : "are"} empty: the model ends before its first word.`);
    const isOne = captioned.length >= FEW && most > MOST * captioned.length;
    say("same", isOne && `${most} of ${captioned.length} photos have one and the same caption, “${text}”: the model seems to say it whatever it sees.`);
  }

  // --- the chosen photo ---

  const pane = $(".pane");
  const field = $("#caption");
  const isWide = () => matchMedia("(min-width: 60rem)").matches;

  function choose(row, { focus = true } = {}) {
    if (row !== chosen) {
      if (isTyped() && !confirm("Leave the photo without saving what you wrote?")) return;
      chosen = row;
      pane.hidden = false;
      show(row);
    }
    markChosen();
    row.node?.scrollIntoView({ block: "nearest" });
    if (!isWide() && document.body.dataset.view !== "pane" && focus) {
      document.body.dataset.view = "pane";
      history.pushState({ view: "pane" }, "");
      $(".looking", pane).scrollTop = 0;
      fit();
    }
  }

  function backToList() {
    delete document.body.dataset.view;
    list.focus();
    chosen?.node?.scrollIntoView({ block: "nearest" });
  }

  /** Show a row in the pane; what somebody has typed into its caption stays. */
  function show(row) {
    $("h2", pane).textContent = $("h2", pane).title = row.name;
    $(".conflict", pane).hidden = true;
    setNotice();
    if (field.dataset.id !== String(row.key) || !isTyped()) setText(row);
    const others = row.captions.slice(1);
    $(".others", pane).hidden = !others.length;
    $(".others ol", pane).replaceChildren(...others.map((one) => {
      const line = element("li");
      const text = one.text || "(empty caption)";
      line.append(decisions ? button(text, () => use(one.text)) : text, element("span", percent(one.confidence), "small score"));
      return line;
    }));
    showPosition();
    explain(row);
  }

  function setText(row) {
    field.dataset.id = row.key;
    field.dataset.before = field.value = textOf(row);
    $(".keywords", pane).textContent = "";
    fit();
    showDecision();
  }

  const isTyped = () => field.value.trim() !== (field.dataset.before ?? "").trim();

  let naming;
  function fit() {
    clearTimeout(naming);
    naming = setTimeout(async () => {
      const caption = field.value;
      const [{ keywords }] = caption ? await wordsOf([caption]) : [{ keywords: [] }];
      if (caption === field.value) $(".keywords", pane).textContent = keywords.length ? `Keywords: ${keywords.join(", ")}` : "";
    }, 150);
    field.style.height = "auto";
    field.style.height = `${field.scrollHeight + 2}px`;
  }

  function showDecision() {
    const isOwn = chosen && field.value.trim() === proposed(chosen);
    $(".editor [type='submit']").textContent = isOwn ? "Accept" : "Save";
    $("[data-action='uncheck']").hidden = !chosen || ["unchecked", "waiting", "failed"].includes(stateOf(chosen));
    $("#caption-help").textContent = isTyped() ? "Enter saves it and moves on; Escape discards it." : "";
  }

  function showPosition() {
    const at = listed.indexOf(chosen);
    $(".position", pane).textContent = at < 0 ? "not among those shown" : `${at + 1} of ${listed.length}`;
    const badge = $("header .badge", pane);
    badge.textContent = stateOf(chosen);
    badge.className = `badge ${stateOf(chosen)}`;
    // above the words of a captioner, whose they are not
    const isOfAnother = chosen.status === "accepted" && chosen.captioner !== choices.captioner;
    $(".own", pane).hidden = chosen.status !== "corrected" && !isOfAnother;
    $(".own", pane).textContent = `Your caption: ${textOf(chosen)}`;
    showDecision();
  }

  function use(text) {
    field.value = text;
    fit();
    showDecision();
    field.focus();
  }

  function setNotice(...content) {
    const notice = $(".notice", pane);
    notice.replaceChildren(...content);
    notice.hidden = !content.length;
  }

  /**
   * Ask where the model looked, and show it.
   *
   * @param {object} row - the photo.
   * @param {{words?: string[], captioner?: string}} [change] - the beginning of the caption, and whose it is.
   */
  async function explain(row, change = {}) {
    looking?.abort();
    looking = null;
    const place = $(".card", pane);
    const isOfServer = !captionerOf(choices.captioner).abilities.saliency.length;
    if (row.phase !== "done" || row.error || isOfServer) {
      const sentence = row.phase === "done" ? "The captioner is on a server, which gives captions alone." : "The caption comes in a moment.";
      explanations.close(place);
      place.replaceChildren(element("p", row.error ?? sentence, row.error ? "bad" : "small"));
      delete place.dataset.id;
      showPlain(row, place);
      return;
    }
    const captioners = change.captioner ? [change.captioner] : [...new Set([choices.captioner, choices.beside].filter(Boolean))];
    const query = { captioner: captioners, name: row.name, ...settingsFor(...captioners) };
    delete query.num_return_sequences; // the best one is explained
    if (choices.saliency) query.saliency = choices.saliency;
    if (change.words) query.prefix = change.words.join(" ");
    const control = looking = new AbortController();
    const back = () => button("Back to the whole caption", () => { setNotice(); explain(row); });
    try {
      const html = await cardOf(row, query, place, control.signal);
      if (control.signal.aborted) return;
      explanations.close(place);
      place.innerHTML = html; // made by the server's own template, in which texts are escaped
      place.dataset.id = row.id;
      await explanations.openArticle($("article", place), onRunnerUp(row, captioners));
      if (control.signal.aborted) return;
      if (served.captioners.length === 1) $(".model h3", place).textContent = "The captioner says"; // its name says little
      offerCaptions(place, row);
      if (change.words) {
        setNotice(element("span", `From “${change.words.join(" ")}” on.`), back());
        $(".words button", place)?.focus({ preventScroll: true });
      }
    } catch (error) {
      if (control.signal.aborted) return;
      setNotice(element("p", error.message, "bad"), ...(change.words ? [back()] : []));
    }
    place.removeAttribute("aria-busy");
    looking = null;
    refresh();
  }

  /** The card of an explanation as HTML; the bare photo is shown until it is there. */
  async function cardOf(row, query, place, signal) {
    const key = JSON.stringify([row.id, query]);
    if (!cards.has(key)) {
      if (place.dataset.id !== row.id) {
        explanations.close(place);
        place.replaceChildren();
        showPlain(row, place);
      }
      place.setAttribute("aria-busy", "true");
      const photo = await photoOf(row);
      cards.set(key, await (await server.ask("/page/explanation", { photo, query, signal })).text());
      if (cards.size > CARDS) cards.delete(cards.keys().next().value);
    }
    return cards.get(key);
  }

  async function showPlain(row, place) {
    const photo = await photoOf(row).catch(() => null);
    if (!photo || row !== chosen || place.querySelector("article")) return;
    const picture = element("img", undefined, "plain");
    picture.alt = textOf(row) || row.name;
    picture.src = URL.createObjectURL(photo);
    picture.addEventListener("load", () => URL.revokeObjectURL(picture.src));
    picture.addEventListener("error", () => picture.remove());
    place.append(picture);
  }

  function onRunnerUp(row, captioners) {
    if (!captioners.every((name) => captionerOf(name).abilities.settings.includes("prefix"))) return undefined;
    return (words, section) => {
      const title = $("h3", section.closest(".model")).textContent;
      explain(row, { words, captioner: captioners.find((name) => name === title) ?? captioners[0] });
    };
  }

  /** Beside captions that are not the one in the field, a button that takes them there. */
  function offerCaptions(place, row) {
    for (const section of decisions ? place.querySelectorAll(".explained") : []) {
      const { text } = section.dataset;
      if (text === textOf(row)) continue;
      const offer = button("Use this caption", () => use(text));
      offer.classList.add("use");
      $(".words", section).append(offer);
    }
  }

  // --- decisions ---

  const hasUnknown = (text) => text.split(/\s+/).includes(served.unknown);

  async function decide(status, text = field.value.trim()) {
    const row = chosen;
    if (!decisions || !row?.id || row.phase !== "done" || $(".editor [type='submit']").disabled) return; // one at a time
    if (CHECKED.includes(status) && !text) return complain("A caption that is accepted cannot be empty; write one, or skip the photo.");
    if (CHECKED.includes(status) && hasUnknown(text))
      return complain(`${served.unknown} stands for a word; write that word, and the caption can be accepted.`);
    const next = nextUnchecked(row);
    for (const one of document.querySelectorAll(".decide button")) one.disabled = true;
    try {
      const change = { status, text: status === "unchecked" ? proposed(row) : text };
      if (!row.serverId) Object.assign(row, await decisions.add(row, await photoOf(row)));
      Object.assign(row, await decisions.decide(row, change));
      if (status === "unchecked") row.text = null;
      row.error = null;
    } catch (error) {
      if (row !== chosen) say("many", `${row.name}: ${error.message}`);
      else if (error instanceof Conflict) showConflict(row, error.theirs, status, text);
      else complain(error.message);
      return;
    } finally {
      for (const one of document.querySelectorAll(".decide button")) one.disabled = false;
    }
    row.node = null;
    if (row === chosen) setText(row);
    refreshNow();
    if (row !== chosen || status === "unchecked") return;
    if (next) choose(next);
    announce(next ? `${row.name}: ${status}. Now ${next.name}: ${textOf(next)}` : `${row.name}: ${status}. No unchecked photo is left among those shown.`, !next);
    if (document.activeElement === field) isWide() ? list.focus() : field.blur(); // letters are keys again
  }

  /** The row after another that waits for a person, in the order of the list; from its end on from its start. */
  function nextUnchecked(row) {
    const at = listed.indexOf(row);
    const after = [...listed.slice(at + 1), ...listed.slice(0, Math.max(at, 0))];
    return after.find((one) => stateOf(one) === "unchecked") ?? null;
  }

  function complain(sentence) {
    const place = $(".conflict", pane);
    place.replaceChildren(element("p", sentence, "bad"));
    place.hidden = false;
    field.focus();
  }

  /** Somebody else was faster: both captions, to choose from. */
  function showConflict(row, theirs, status, text) {
    const place = $(".conflict", pane);
    const both = element("dl");
    both.append(element("dt", `Theirs (${theirs.status})`), element("dd", theirs.caption),
      element("dt", `Mine (${status})`), element("dd", text));
    const buttons = element("div", undefined, "decide");
    const theirButton = button("Keep theirs", () => {
      place.hidden = true;
      take(theirs);
      setText(row);
      refresh(row);
    });
    const myButton = button("Keep mine", () => {
      place.hidden = true;
      row.revision = theirs.revision;
      decide(status, text);
    });
    buttons.append(theirButton, myButton);
    place.replaceChildren(element("p", "This caption was changed elsewhere in the meantime, in another tab or by somebody else.", "bad"), both, buttons);
    place.hidden = false;
    theirButton.focus();
  }

  // --- many decisions at once ---

  const many = $("#many");
  const sidecars = $(".sidecars");
  let manyLines = []; // [row, its line]

  function showMany() {
    const acceptable = listed.filter((row) => stateOf(row) === "unchecked" && row.serverId && textOf(row) && !hasUnknown(textOf(row)));
    manyLines = acceptable.toSorted((one, other) => sure(other) - sure(one)).map((row) => {
      const { doubt } = row.captions[0];
      const line = element("li"), label = element("label"), tick = element("input");
      tick.type = "checkbox";
      tick.checked = !doubt; // what is marked is for a person to look at
      label.append(tick, smallPicture(row), element("span", textOf(row), "caption"), element("span", percent(row.captions[0].confidence), "small"));
      if (doubt) label.append(element("span", doubt, "small bad"));
      line.append(label);
      return [row, line];
    });
    $(".lines", many).replaceChildren(...manyLines.map(([, line]) => line));
    countMany();
    many.showModal();
  }

  const ticked = () => manyLines.filter(([, line]) => !line.hidden && $("input", line).checked).map(([row]) => row);

  function countMany() {
    const least = $("#least-sure").value;
    $("output", many).textContent = `${least}%`;
    for (const [row, line] of manyLines) line.hidden = 100 * sure(row) < least;
    const shown = manyLines.filter(([, line]) => !line.hidden);
    const marked = shown.some(([row]) => row.captions[0].doubt) ? " Those that are marked are not ticked." : "";
    const rank = " The captioner is not calibrated: confidence ranks captions and does not say how many are right.";
    $(".counts", many).textContent = `${shown.length} of ${count(manyLines.length, "unchecked photo")} in the list.${marked}${
      captionerOf(choices.captioner).is_calibrated ? "" : rank}`;
    $("[data-action='accept-many']").textContent = `Accept ${count(ticked().length, "caption")}`;
    $("[data-action='accept-many']").disabled = !ticked().length;
  }

  async function decideMany(those, status) {
    const changes = those.map((row) => [row, { status, text: status === "unchecked" ? proposed(row) : textOf(row) }]);
    try {
      const { rows: changed, conflicts } = await decisions.decideMany(changes);
      const decided = changed.map(take);
      conflicts.forEach(take);
      const stay = conflicts.length ? ` ${count(conflicts.length, "caption")} changed elsewhere in the meantime and stay as they are.` : "";
      const undo = () => decideMany(decided.filter((row, at) => row.revision === changed[at].revision), "unchecked");
      const buttons = status === "accepted" && changed.length ? [button("Undo", undo)] : [];
      say("many", `${count(changed.length, "caption")} ${status === "accepted" ? "accepted" : "unchecked again"}.${stay}`, [...buttons, button("Close", () => say("many", ""))], "");
    } catch (error) {
      say("many", error.message);
    }
    refreshNow();
  }

  many?.addEventListener("input", countMany);
  sidecars?.addEventListener("change", () => askSidecars("GET"));

  const { choices, captionerOf, settingsFor, open: openSettings } = liveSettings((isAnew) => {
    cards.clear();
    goOn();
    if (chosen) show(chosen);
    if (isAnew) again(rows.filter((row) => row.phase === "done" && row.status === "unchecked"));
  });

  // --- sentences ---

  const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
  const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;

  /** A sentence at the top of the page until it is taken back by another or by none. */
  const banners = new Map();
  function say(name, sentence, buttons = [], className = "bad") {
    if (banners.get(name)?.dataset.text === (sentence || "")) return;
    banners.get(name)?.remove();
    banners.delete(name);
    if (!sentence) return;
    const line = element("li", sentence, className);
    line.dataset.text = sentence;
    for (const one of buttons) line.append(" ", one);
    banners.set(name, line);
    $(".banners").append(line);
  }

  /** Tell screen readers; and if it is for everybody, show it for a while. */
  let vanishing;
  function announce(sentence, isShown = false) {
    const place = $(".announcer");
    place.textContent = sentence;
    place.classList.toggle("shown", isShown);
    clearTimeout(vanishing);
    if (isShown) vanishing = setTimeout(() => place.classList.remove("shown"), 6000);
  }

  // --- export: the table that `showtell train` reads ---

  function showExport() {
    const checked = rows.filter((row) => CHECKED.includes(row.status)).length;
    $("#export .counts").textContent = `${count(rows.length, "photo")}, of which ${checked} accepted or corrected.`;
    const quoted = (path) => (/^[\w./@:+-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`); // for a shell
    const checkpoint = served.trainable[choices.captioner] ?? Object.values(served.trainable)[0] ?? "CHECKPOINT";
    $("#export code").textContent = `showtell train adapt/corrections data.path=${quoted(served.folder)} training.start_from=${quoted(checkpoint)}`;
    $("#export").showModal();
    if (sidecars) askSidecars("GET");
  }

  /** Say which sidecars would be written, or write them ("POST"), and what was not, and why. */
  async function askSidecars(method) {
    const write = $("[data-action='write-sidecars']");
    write.disabled = true;
    const outcome = $(".outcome", sidecars);
    outcome.textContent = method === "POST" ? "Being written …" : "Photos are being looked for …";
    try {
      const query = { keywords: $("[name='keywords']", sidecars).checked };
      const answer = await (await server.ask("/v1/sidecars", { method, query, once: true })).json();
      const { folder, written, same, left_out: leftOut } = answer;
      const parts = [method === "POST" && `${count(written.length, "sidecar")} written below ${folder}.`,
        same.length && `${count(same.length, "photo")} had the caption already.`, leftOut.length && `Not written: ${leftOut.length}.`];
      outcome.textContent = parts.filter(Boolean).join(" ");
      $(".left-out", sidecars).replaceChildren(...leftOut.map((sentence) => element("li", sentence)));
      const number = method === "POST" ? 0 : written.length + (query.keywords ? same.length : 0);
      write.textContent = `Write ${count(number, "sidecar")}`;
      write.disabled = !number;
    } catch (error) {
      outcome.textContent = error.message;
    }
  }

  // --- what people do ---

  const actions = {
    choose: () => $("#files").click(),
    "choose-folder": () => $("#folder").click(),
    settings: openSettings,
    close: (pressed) => pressed.closest("dialog").close(),
    keys: () => $("#keys").showModal(),
    pause: () => { asking.pause(!asking.isPaused); refreshNow(); },
    back: () => history.back(),
    previous: () => step(-1),
    next: () => step(1),
    skip: () => decide("skipped"),
    uncheck: () => decide("unchecked"),
    again: () => again([chosen]),
    export: showExport,
    many: showMany,
    "write-sidecars": () => askSidecars("POST"),
    "accept-many": () => { many.close(); decideMany(ticked(), "accepted"); },
  };

  document.addEventListener("click", ({ target }) => {
    const pressed = target.closest("button[data-action]");
    if (pressed) actions[pressed.dataset.action](pressed);
  });

  function step(by) {
    const at = listed.indexOf(chosen) + by;
    const row = listed[Math.min(Math.max(at, 0), listed.length - 1)];
    if (row) choose(row, { focus: false });
  }

  $(".editor").addEventListener("submit", (event) => {
    event.preventDefault();
    decide(field.value.trim() === proposed(chosen) ? "accepted" : "corrected");
  });
  field.addEventListener("input", () => {
    fit();
    showDecision();
  });
  field.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key === "Enter") {
      event.preventDefault();
      $(".editor").requestSubmit();
    }
    if (event.key === "Escape") {
      event.preventDefault();
      if (isTyped()) setText(chosen);
      else list.focus();
    }
  });

  const letters = {
    a: () => $(".editor").requestSubmit(),
    e: () => { field.focus(); field.select(); },
    s: () => decide("skipped"),
    u: () => decide("unchecked"),
    j: () => step(1),
    k: () => step(-1),
    "/": () => $("[name='text']", filters).focus(),
    "?": () => $("#keys").showModal(),
  };
  document.addEventListener("keydown", (event) => {
    const { target, key } = event;
    if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented) return;
    if (target.closest("input, textarea, select, dialog")) return;
    const page = Math.max(1, Math.floor(list.clientHeight / (listed[0]?.node.offsetHeight || 1)) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1 };
    if (target === list) Object.assign(steps, { PageDown: page, PageUp: -page, Home: -rows.length, End: rows.length });
    if (steps[key] && listed.length) {
      event.preventDefault();
      step(steps[key]);
    } else if (target === list && key === "Enter" && chosen) choose(chosen);
    else if (choices.letters === "on" && letters[key.toLowerCase()] && (chosen || "/?".includes(key))) {
      event.preventDefault();
      letters[key.toLowerCase()]();
    }
  });

  filters.addEventListener("input", find);

  takeFiles(add);
  addEventListener("popstate", () => backToList());
  addEventListener("beforeunload", (event) => {
    if (isBusy() || (chosen && isTyped())) event.preventDefault();
  });

  // --- what the server keeps ---

  /** Show what the server knows of a photo, if that is newer than what is here. */
  function take(known) {
    let row = byId.get(known.id);
    if (row?.revision >= known.revision) return row;
    row ??= makeRow({ id: known.id, name: known.name, added: Date.parse(known.created), phase: "done" });
    row.captioner = known.captioner;
    if (proposed(row) !== known.proposed) row.captions = [{ text: known.proposed, confidence: known.confidence ?? undefined, doubt: known.doubt }];
    Object.assign(row, ServerStore.fromRow(known), { node: null });
    if (row === chosen && !isTyped()) setText(row);
    return row;
  }

  /** Take what other browsers did; but not of the caption that is being written: saving it will show both. */
  async function sync() {
    for (const known of decisions ? await decisions.rows() : [])
      if (!(chosen && isTyped() && [chosen.id, chosen.serverId].includes(known.id))) take(known);
  }
  addEventListener("focus", () => sync().then(() => refresh(), (error) => say("server", error.message)));

  // --- begin ---

  async function begin() {
    await sync();
    refreshNow();
    if (listed.length && isWide()) choose(listed[0], { focus: false });
  }

  server.watch((sentence) => say("server", sentence));
  const beginning = begin().catch((error) => say("begin", `The session could not be opened: ${error.message}`));
})();
