// The live page: photos come in, are captioned a few at a time, looked at, corrected and exported.
(() => {
  const { element, percent } = explanations;
  const $ = (selector, parent = document) => parent.querySelector(selector);
  const served = JSON.parse($("#served").textContent);
  const READING = 2, ASKING = 5; // photos that are read, and questions that are under way, at a time
  const THUMBNAIL = 144; // pixels of a side
  const CARDS = 24; // explanations that are remembered
  const SAME_ERRORS = 3; // equal errors in a row after which the queue waits for a person
  const [FEW, MOST] = [10, 0.5]; // captions from which on it is said that more than this share are one and the same

  const kept = new BrowserStore();
  const decisions = served.hasCorrections ? new ServerStore() : kept;
  const tabs = new BroadcastChannel("showtell");
  const rows = [];
  const byId = new Map();
  const cards = new Map();
  let isKept = false; // whether the browser has a database
  let lastKey = 0;
  let choices = { captioner: served.captioners[0].name, beside: "", occlusion: "", letters: "on", decoding: {} };
  let chosen = null; // the row in the pane
  let looking = null; // aborts the question about it
  let eraser = null;
  let errors = { sentence: null, count: 0 };

  // --- rows ---

  function makeRow(fields) {
    const row = { key: ++lastKey, id: null, name: "", size: 0, type: "", added: Date.now(), captioner: "", settings: "",
      captions: [], error: null, thumbnail: null, status: "unchecked", text: null, revision: 0, phase: "reading", file: null,
      ...fields };
    rows.push(row);
    if (row.id) byId.set(row.id, row);
    return row;
  }

  const proposed = (row) => row.captions[0]?.text ?? "";
  const textOf = (row) => row.text ?? proposed(row);
  const stateOf = (row) => (row.phase !== "done" ? "waiting" : row.error ? "failed" : row.status);
  const confidenceOf = (row) => row.captions[0]?.confidence;

  /** A name that no other photo has. */
  function uniqueName(name) {
    const taken = new Set(rows.map((row) => row.name));
    if (!taken.has(name)) return name;
    const [, stem, suffix] = /^(.*?)(\.[^./]*)?$/s.exec(name);
    for (let number = 2; ; number++) {
      const other = `${stem} (${number})${suffix ?? ""}`;
      if (!taken.has(other)) return other;
    }
  }

  async function keep(row, photo) {
    if (!isKept || !row.id) return;
    try {
      await kept.put(row, photo);
    } catch (error) {
      const why = error.name === "QuotaExceededError" ? "it has no room left" : error.message;
      say("kept", `This browser cannot keep all photos of the session (${why}): do not reload the page before you have exported.`);
    }
  }

  async function photoOf(row) {
    return row.file ?? (isKept && await kept.photo(row.id)) ?? (served.hasCorrections ? decisions.photo(row.id) : null);
  }

  // --- photos come in ---

  const isPhoto = (file) =>
    file.type.startsWith("image/") || served.suffixes.some((suffix) => file.name.toLowerCase().endsWith(suffix));

  /** Take files in: [file, name with folders]. */
  async function add(files) {
    await beginning;
    const photos = files.filter(([file]) => isPhoto(file) && !file.name.startsWith("."));
    const others = files.length - photos.length;
    if (others) announce(`${count(others, "file")} left out: no photos by their names.`, true);
    for (const [file, name] of photos) {
      const row = makeRow({ name: uniqueName(name), size: file.size, type: file.type, file });
      reading.add(row);
    }
    refresh();
  }

  async function read(row) {
    try {
      const content = await row.file.arrayBuffer();
      row.id = await sha256(content);
      if (byId.has(row.id)) {
        const same = byId.get(row.id);
        rows.splice(rows.indexOf(row), 1);
        announce(`${row.name} is there already, as ${same.name}.`, true);
        if (!chosen) choose(same);
        return;
      }
      byId.set(row.id, row);
      row.thumbnail = await thumbnailOf(row.file);
      row.phase = "waiting";
      if (row.size > served.maxBody) fail(row, `The photo has ${megabytes(row.size)} and the server takes ${megabytes(served.maxBody)} at most; make it smaller, or start the server with a higher --max-body.`);
      await keep(row, row.file);
      if (row.phase === "waiting") asking.add(row);
    } catch (error) {
      fail(row, `The file cannot be read (${error.message || error.name}).`);
    } finally {
      changed(row);
    }
  }

  /** A small square of a photo as a JPEG; null if the browser cannot show photos of this kind. */
  async function thumbnailOf(photo) {
    try {
      const bitmap = await createImageBitmap(photo, { resizeHeight: THUMBNAIL, resizeQuality: "medium" });
      const canvas = new OffscreenCanvas(THUMBNAIL, THUMBNAIL);
      const scale = Math.max(1, THUMBNAIL / bitmap.width);
      const [width, height] = [bitmap.width * scale, bitmap.height * scale];
      const context = canvas.getContext("2d");
      context.fillStyle = "#fff"; // behind what is transparent
      context.fillRect(0, 0, THUMBNAIL, THUMBNAIL);
      context.drawImage(bitmap, (THUMBNAIL - width) / 2, (THUMBNAIL - height) / 2, width, height);
      bitmap.close();
      return await canvas.convertToBlob({ type: "image/jpeg", quality: 0.8 });
    } catch {
      return null; // shown as a photo without a picture; the server may read it all the same
    }
  }

  // --- captions ---

  const captionerOf = (name) => served.captioners.find((one) => one.name === name) ?? served.captioners[0];

  /** The settings of a question, of those that a captioner knows. */
  function settingsFor(...names) {
    const known = (field) => names.every((name) => captionerOf(name).abilities.settings.includes(field));
    return Object.fromEntries(Object.entries(choices.decoding).filter(([field]) => known(field)));
  }

  const headersOf = (photo) => ({ "Content-Type": photo.type.startsWith("image/") ? photo.type : "application/octet-stream" });

  async function caption(row) {
    if (!byId.has(row.id)) return; // the session was cleared
    row.phase = "asking";
    changed(row);
    const { captioner } = choices;
    const settings = settingsFor(captioner);
    try {
      const photo = await photoOf(row);
      const query = { captioner, name: row.name, ...settings };
      if (captionerOf(captioner).is_calibrated && !Object.keys(settings).length) query.calibrated = true;
      const response = await server.ask("/v1/captions", { method: "POST", body: photo, query, headers: headersOf(photo) });
      const { captions } = await response.json();
      Object.assign(row, { captions, captioner, settings: JSON.stringify(settings), error: null, phase: "done" });
      errors = { sentence: null, count: 0 };
      if (served.hasCorrections) Object.assign(row, await decisions.add(row, photo));
    } catch (error) {
      fail(row, error.message);
      errors = error.message === errors.sentence ? { ...errors, count: errors.count + 1 } : { sentence: error.message, count: 1 };
      if (errors.count >= SAME_ERRORS && !asking.isPaused && isBusy()) stopFor(error.message);
    }
    await keep(row);
    changed(row);
    if (row === chosen) show(row);
    else if (!chosen && !row.error && isWide()) choose((shownFirst = row), { focus: false });
    if (isBusy()) return;
    announce(`${count(rows.length, "photo")} captioned.`);
    refreshNow();
    if (shownFirst && chosen === shownFirst && !isTyped()) choose(list.rows[0] ?? chosen, { focus: false });
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
      ["Settings", () => $("#settings").showModal()],
      ["Go on", () => { say("stopped", ""); errors.count = 0; asking.pause(false); refresh(); }],
    ]);
    refresh();
  }

  const reading = new Queue(READING, read);
  const asking = new Queue(ASKING, caption);
  const isBusy = () => rows.some((row) => row.phase !== "done");

  function again(those) {
    cards.clear();
    for (const row of those) {
      row.phase = "waiting";
      row.version = (row.version ?? 0) + 1;
    }
    asking.add(...those);
    refresh();
  }

  // --- the list ---

  const filters = $(".filters");
  const list = new VirtualList($(".list"), {
    draw: drawRow,
    onChoose: (row, isEntered) => choose(row, { focus: isEntered || !isWide() }),
  });

  function drawRow(row) {
    const node = element("div", undefined, `row ${stateOf(row)}`);
    const picture = element("img");
    picture.alt = "";
    if (row.thumbnail) picture.src = row.thumbnailUrl ??= URL.createObjectURL(row.thumbnail);
    else if (row.isOnServer) picture.src = `/v1/corrections/photos/${row.id}/thumbnail`;
    else picture.hidden = true;
    const text = element("div", undefined, "text");
    const [line, meta] = [element("p", undefined, "caption"), element("p", undefined, "small meta")];
    const empty = row.phase === "done" ? "(empty caption)" : row.phase === "reading" ? "being read" : row.phase === "asking" ? "being captioned" : "waiting";
    line.textContent = row.error ?? (textOf(row) || empty);
    line.classList.toggle("none", !textOf(row));
    meta.append(element("span", row.name, "name"));
    const confidence = confidenceOf(row);
    if (confidence !== undefined) meta.append(element("span", percent(confidence), "confidence"));
    if (row.phase === "done" && stateOf(row) !== "unchecked") meta.append(element("span", stateOf(row), "badge"));
    text.append(line, meta);
    node.append(picture, text);
    return node;
  }

  function shownRows() {
    const words = filters.querySelector("[name='text']").value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const status = filters.querySelector("[name='status']").value;
    const most = Number(filters.querySelector("[name='most']").value) / 100;
    const order = filters.querySelector("[name='order']").value;
    const shown = rows.filter((row) => {
      const text = `${row.name} ${textOf(row)} ${row.error ?? ""}`.toLowerCase();
      return (!status || stateOf(row) === status) && words.every((word) => text.includes(word))
        && (most === 1 || (confidenceOf(row) ?? 2) <= most);
    });
    const rank = (row) => (row.phase !== "done" ? 2 : row.error ? 1 : 0);
    const compare = {
      "least-sure": (one, other) => rank(one) - rank(other) || (confidenceOf(one) ?? 0) - (confidenceOf(other) ?? 0) || one.key - other.key,
      newest: (one, other) => other.added - one.added || other.key - one.key,
      name: (one, other) => one.name.localeCompare(other.name, undefined, { numeric: true }),
    }[order];
    return shown.sort(compare);
  }

  let refreshing = null;
  function changed(row) {
    list.change(row);
    refresh();
  }

  /** Show what has changed, a few times a second at most. */
  function refresh() {
    refreshing ??= setTimeout(() => {
      refreshing = null;
      refreshNow();
    }, 120);
  }

  function refreshNow() {
    const shown = shownRows();
    list.show(shown);
    const has = rows.length > 0;
    $(".welcome").hidden = has;
    $(".photos").hidden = !has;
    $("footer .kept").textContent = keptSentence();
    $("footer button").hidden = !has;
    const counts = {};
    for (const row of rows) counts[stateOf(row)] = (counts[stateOf(row)] ?? 0) + 1;
    const parts = ["unchecked", "accepted", "corrected", "skipped", "failed", "waiting"].filter((state) => counts[state]);
    const total = shown.length === rows.length ? count(rows.length, "photo") : `${shown.length} of ${count(rows.length, "photo")}`;
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
      chosen = row;
      leaveEraser();
      pane.hidden = false;
      show(row);
    }
    list.choose(row);
    if (!isWide() && document.body.dataset.view !== "pane" && focus) {
      document.body.dataset.view = "pane";
      history.pushState({ view: "pane" }, "");
      $(".looking", pane).scrollTop = 0;
      fit();
    }
  }

  function backToList() {
    delete document.body.dataset.view;
    list.choose(chosen);
    list.list.focus();
  }

  /** Show a row in the pane; what somebody has typed into its caption stays. */
  function show(row) {
    $("h2", pane).textContent = $("h2", pane).title = row.name;
    $(".conflict", pane).hidden = true;
    setNotice();
    if (field.dataset.id !== String(row.key) || !isTyped()) setText(row);
    $("[data-action='erase']", pane).hidden = Boolean(row.error);
    const others = row.captions.slice(1);
    $(".others", pane).hidden = !others.length;
    $(".others ol", pane).replaceChildren(...others.map((one) => {
      const line = element("li");
      const button = element("button", one.text || "(empty caption)", "plain");
      button.type = "button";
      button.addEventListener("click", () => use(one.text));
      line.append(button, element("span", percent(one.confidence), "small score"));
      return line;
    }));
    showPosition();
    explain(row);
  }

  function setText(row) {
    field.dataset.id = row.key;
    field.dataset.before = field.value = textOf(row);
    fit();
    showDecision();
  }

  const isTyped = () => field.value.trim() !== (field.dataset.before ?? "").trim();

  function fit() {
    field.style.height = "auto";
    field.style.height = `${field.scrollHeight + 2}px`;
  }

  function showDecision() {
    const isOwn = chosen && field.value.trim() === proposed(chosen);
    $(".editor [type='submit']").textContent = isOwn ? "Accept" : "Save";
    $("[data-action='uncheck']").hidden = !chosen || ["unchecked", "waiting", "failed"].includes(stateOf(chosen));
    const confidence = chosen && confidenceOf(chosen);
    $("#caption-help").textContent = isTyped() ? "Enter saves it and goes on; Escape leaves it."
      : confidence === undefined || confidence === null ? "" : `confidence ${percent(confidence)}${chosen.captions[0].calibrated ? ", calibrated" : ""}`;
  }

  function showPosition() {
    const at = list.rows.indexOf(chosen);
    $(".position", pane).textContent = at < 0 ? "not among those shown" : `${at + 1} of ${list.rows.length}`;
    const badge = $("header .badge", pane);
    badge.textContent = stateOf(chosen);
    badge.className = `badge ${stateOf(chosen)}`;
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
   * @param {{words?: string[], captioner?: string, photo?: Blob, before?: string}} [change] - the beginning of the caption
   *   and whose it is; a changed photo, and the caption before.
   */
  async function explain(row, change = {}) {
    looking?.abort();
    looking = null;
    const place = $(".card", pane);
    if (row.phase !== "done" || row.error) {
      explanations.close(place);
      place.replaceChildren(element("p", row.error ?? "The caption comes in a moment.", row.error ? "bad" : "small"));
      showPlain(row, place);
      return;
    }
    const captioners = change.captioner ? [change.captioner] : [...new Set([choices.captioner, choices.beside].filter(Boolean))];
    const query = { captioner: captioners, name: row.name, ...settingsFor(...captioners) };
    delete query.num_return_sequences; // the best one is explained
    if (choices.occlusion) query.occlusion = choices.occlusion;
    if (change.words) query.prefix = change.words.join(" ");
    const key = change.photo ? null : JSON.stringify([row.id, query]);
    const control = looking = new AbortController();
    let html = cards.get(key);
    if (!html) {
      if (!place.dataset.id || place.dataset.id !== row.id) {
        explanations.close(place);
        place.replaceChildren();
        showPlain(row, place);
      }
      place.setAttribute("aria-busy", "true");
      try {
        const photo = change.photo ?? await photoOf(row);
        const ask = { method: "POST", body: photo, query, headers: headersOf(photo), signal: control.signal };
        html = await (await server.ask("/page/explanation", ask)).text();
      } catch (error) {
        if (control.signal.aborted) return;
        looking = null;
        place.removeAttribute("aria-busy");
        setNotice(element("p", error.message, "bad"), ...(change.words || change.photo ? [backButton(row)] : []));
        refresh();
        return;
      }
      if (control.signal.aborted) return;
      if (key) {
        cards.set(key, html);
        if (cards.size > CARDS) cards.delete(cards.keys().next().value);
      }
    }
    explanations.close(place);
    place.innerHTML = html; // made by the server's own template, in which texts are escaped
    place.dataset.id = row.id;
    try {
      await explanations.openArticle($("article", place), onRunnerUp(row, captioners));
    } catch (error) {
      if (!control.signal.aborted) setNotice(element("p", `The explanation cannot be shown: ${error.message}`, "bad"));
    }
    if (control.signal.aborted) return;
    place.removeAttribute("aria-busy");
    looking = null;
    offerCaptions(place, row);
    if (change.words) setNotice(element("span", `From “${change.words.join(" ")}” on.`), backButton(row));
    if (change.photo) setNotice(...compare(change.before, $(".explained:last-child", place).dataset.text), backButton(row));
    if (change.words || change.photo) $(".words button", place)?.focus({ preventScroll: true });
    refresh();
  }

  /** The bare photo until its explanation is there. */
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

  function backButton(row) {
    const button = element("button", "Back to the whole photo and its caption", "plain");
    button.type = "button";
    button.addEventListener("click", () => {
      setNotice();
      explain(row);
    });
    return button;
  }

  /** Beside captions that are not the one in the field, a button that takes them there. */
  function offerCaptions(place, row) {
    for (const section of place.querySelectorAll(".explained")) {
      const { text } = section.dataset;
      if (text === textOf(row)) continue;
      const button = element("button", "Use this caption", "plain use");
      button.type = "button";
      button.addEventListener("click", () => use(text));
      $(".words", section).append(button);
    }
  }

  /** Two captions, the words that went struck out and those that came underlined. */
  function compare(before, after) {
    const [old, now] = [before.split(" "), after.split(" ")];
    const common = Array.from({ length: old.length + 1 }, () => new Uint16Array(now.length + 1)); // of what follows
    for (let i = old.length - 1; i >= 0; i--)
      for (let j = now.length - 1; j >= 0; j--)
        common[i][j] = old[i] === now[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    const line = element("span");
    for (let i = 0, j = 0; i < old.length || j < now.length; ) {
      const isSame = i < old.length && j < now.length && old[i] === now[j];
      const isGone = !isSame && (j === now.length || (i < old.length && common[i + 1][j] >= common[i][j + 1]));
      line.append(element(isSame ? "span" : isGone ? "del" : "ins", isGone ? old[i] : now[j]), " ");
      if (isSame || isGone) i++;
      if (isSame || !isGone) j++;
    }
    const isEqual = before === after;
    return [element("span", isEqual ? "Without the erased region the caption is the same: " : "Without the erased region: "), line];
  }

  // --- erasing ---

  async function startEraser() {
    const row = chosen;
    let bitmap;
    try {
      bitmap = await createImageBitmap(await photoOf(row));
    } catch {
      setNotice(element("p", "This browser cannot show photos of this kind, so nothing can be erased in them.", "bad"));
      return;
    }
    if (row !== chosen) return;
    leaveEraser();
    looking?.abort();
    const place = $(".card", pane);
    explanations.close(place);
    place.replaceChildren();
    delete place.dataset.id;
    eraser = new Eraser(place, bitmap);
    const bar = element("div", undefined, "erasing");
    const button = (text, act) => {
      const made = element("button", text, "plain");
      made.type = "button";
      made.addEventListener("click", act);
      bar.append(made);
      return made;
    };
    const tools = ["rectangle", "brush"].map((tool) => button(tool[0].toUpperCase() + tool.slice(1), () => pick(tool)));
    const pick = (tool) => {
      eraser.tool = tool;
      tools.forEach((one, index) => one.setAttribute("aria-pressed", String(["rectangle", "brush"][index] === tool)));
      eraser.draw();
    };
    const undo = button("Take back", () => eraser.undo());
    const done = button("Caption without it", () => eraser.onDone());
    button("Leave", () => eraser.onLeave());
    done.classList.add("primary");
    eraser.onChange = () => { undo.disabled = done.disabled = !eraser.marks.length; };
    eraser.onDone = async () => {
      if (!eraser.marks.length) return;
      const photo = await eraser.result();
      leaveEraser();
      setNotice(element("span", "The changed photo is being captioned."));
      explain(row, { photo, before: proposed(row) });
    };
    eraser.onLeave = () => {
      leaveEraser();
      show(row);
    };
    pick("rectangle");
    eraser.onChange();
    place.prepend(bar);
    $(".tools", pane).hidden = true;
    setNotice(element("span", "Draw over what the model shall not see; it is filled with the photo's mean colour."));
    eraser.canvas.focus();
  }

  function leaveEraser() {
    if (!eraser) return;
    const { photo } = eraser;
    eraser = null;
    $(".card", pane).replaceChildren();
    photo.close();
    $(".tools", pane).hidden = false;
  }

  // --- decisions ---

  async function decide(status, text = field.value.trim()) {
    const row = chosen;
    if (!row?.id || row.phase !== "done") return;
    if (["accepted", "corrected"].includes(status)) {
      if (!text) return complain("A caption that is accepted cannot be empty; write one, or skip the photo.");
      if (text.split(/\s+/).includes(served.unknown))
        return complain(`${served.unknown} stands for a word; write that word, and the caption can be accepted.`);
    }
    const next = nextUnchecked(row);
    for (const button of document.querySelectorAll(".decide button")) button.disabled = true;
    try {
      const change = { status, text: status === "unchecked" ? proposed(row) : text };
      if (served.hasCorrections && !row.isOnServer) Object.assign(row, await decisions.add(row, await photoOf(row)));
      Object.assign(row, await decisions.decide(row, change));
      if (status === "unchecked") row.text = null;
      row.error = null;
      if (served.hasCorrections) await keep(row);
      tabs.postMessage(row.id);
    } catch (error) {
      if (error instanceof Conflict) showConflict(row, error.theirs, status, text);
      else complain(error.message);
      return;
    } finally {
      for (const button of document.querySelectorAll(".decide button")) button.disabled = false;
    }
    list.change(row);
    setText(row);
    refreshNow();
    if (status === "unchecked") return;
    if (next) choose(next);
    announce(next ? `${row.name}: ${status}. Now ${next.name}: ${textOf(next)}` : `${row.name}: ${status}. No unchecked photo is left among those shown.`, !next);
    if (document.activeElement === field) isWide() ? list.list.focus() : field.blur(); // letters are keys again
  }

  /** The row after another that waits for a person, in the order of the list; from its end on from its start. */
  function nextUnchecked(row) {
    const at = list.rows.indexOf(row);
    const after = [...list.rows.slice(at + 1), ...list.rows.slice(0, Math.max(at, 0))];
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
    const button = (label, act) => {
      const made = element("button", label, "plain");
      made.type = "button";
      made.addEventListener("click", () => {
        place.hidden = true;
        act();
      });
      return made;
    };
    const choicesOf = element("dl");
    choicesOf.append(element("dt", `Theirs (${theirs.status})`), element("dd", theirs.text ?? proposed(row)),
      element("dt", `Mine (${status})`), element("dd", text));
    const buttons = element("div", undefined, "decide");
    buttons.append(
      button("Keep theirs", () => {
        Object.assign(row, { text: theirs.text, status: theirs.status, revision: theirs.revision });
        setText(row);
        keep(row);
        changed(row);
      }),
      button("Keep mine", () => {
        row.revision = theirs.revision;
        decide(status, text);
      }),
    );
    place.replaceChildren(element("p", "This caption was changed elsewhere in the meantime, in another tab or by somebody else.", "bad"), choicesOf, buttons);
    place.hidden = false;
    $("button", place).focus();
  }

  tabs.addEventListener("message", async ({ data }) => {
    const row = byId.get(data);
    if (!row || !isKept || (row === chosen && isTyped())) return; // then it is a conflict, which is shown when it is saved
    const stored = await kept.row(data);
    if (!stored) return;
    Object.assign(row, { status: stored.status, text: stored.text, revision: stored.revision });
    if (row === chosen) setText(row);
    changed(row);
  });

  // --- settings ---

  const settingsForm = $("#settings-form");
  const OWN = ["captioner", "beside", "occlusion", "letters"]; // fields that are no decoding settings
  const control = (name) => $(`#set-${name}`);

  function option(value, text = value) {
    const made = element("option", text);
    made.value = value;
    return made;
  }

  function fillSettings() {
    const names = served.captioners.map((one) => one.name);
    control("captioner").replaceChildren(...names.map((name) => option(name)));
    for (const line of settingsForm.querySelectorAll(".captioners")) line.hidden = names.length < 2;
    for (const name of OWN) if (name === "captioner" || name === "letters") control(name).value = choices[name];
    for (const [name, value] of Object.entries(choices.decoding)) control(name).value = [value].flat().join(", ");
    fitSettings();
    control("beside").value = choices.beside;
    control("occlusion").value = choices.occlusion;
  }

  /** Show the settings that the captioner in the form knows, with its own values as placeholders. */
  function fitSettings() {
    const one = captionerOf(control("captioner").value);
    const [beside, occlusion] = [control("beside").value, control("occlusion").value];
    control("beside").replaceChildren(option("", "none"), ...served.captioners.filter(({ name }) => name !== one.name).map(({ name }) => option(name)));
    control("occlusion").replaceChildren(option("", "none"), ...one.abilities.occlusion.map((name) => option(name)));
    control("beside").value = beside;
    control("occlusion").value = occlusion;
    for (const name of ["beside", "occlusion"]) if (control(name).selectedIndex < 0) control(name).value = "";
    $(".captioners .about", settingsForm).textContent = `${one.about.name}, ${(one.about.parameters / 1e6).toFixed(1)} million parameters, ${one.about.library}`;
    for (const line of settingsForm.querySelectorAll("[data-field]")) {
      const name = line.dataset.field;
      line.hidden = !one.abilities.settings.includes(name);
      const value = one.decoding[name];
      const shown = value === null || value === undefined ? "" : [value].flat().join(", ");
      if (control(name).tagName === "SELECT") {
        control(name).options[0].textContent = `as the captioner has it${shown && ` (${shown})`}`;
        if (name === "search")
          for (const choice of [...control(name).options].slice(1)) choice.hidden = !one.abilities.searches.includes(choice.value);
      } else control(name).placeholder = shown || ("list" in control(name).dataset ? "parted by commas" : "");
    }
  }

  function readSettings() {
    const decoding = {};
    for (const line of settingsForm.querySelectorAll("[data-field]")) {
      const input = control(line.dataset.field);
      const value = input.value.trim();
      if (!value || line.hidden) continue;
      decoding[line.dataset.field] = "list" in input.dataset ? value.split(",").map((word) => word.trim()).filter(Boolean) : value;
    }
    choices = { ...Object.fromEntries(OWN.map((name) => [name, control(name).value])), decoding };
    if (isKept) kept.choose("settings", choices).catch(() => {});
    cards.clear();
    say("stopped", "");
    errors.count = 0;
    asking.pause(false);
    showServed();
    if (chosen && !eraser) show(chosen);
  }

  function showServed() {
    const parts = [choices.captioner, ...(choices.beside ? [choices.beside] : [])].join(" beside ");
    const set = Object.entries(choices.decoding).map(([name, value]) => `${name.replaceAll("_", " ")} ${[value].flat().join(", ")}`);
    $(".models-served").textContent = `Captions by ${parts}${set.length ? `, ${set.join(", ")}` : ""}`;
  }

  settingsForm.addEventListener("submit", (event) => {
    event.preventDefault();
    readSettings();
    $("#settings").close();
    if (event.submitter?.value === "again") again(rows.filter((row) => row.phase === "done" && row.status === "unchecked"));
  });
  settingsForm.addEventListener("reset", () => setTimeout(fitSettings));
  control("captioner").addEventListener("change", fitSettings);

  // --- sentences ---

  const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
  const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;

  /** A sentence at the top of the page until it is taken back by another or by none. */
  const banners = new Map();
  function say(name, sentence, buttons = []) {
    if (banners.get(name)?.dataset.text === (sentence || "")) return;
    banners.get(name)?.remove();
    banners.delete(name);
    if (!sentence) return;
    const line = element("li", sentence, "bad");
    line.dataset.text = sentence;
    for (const [text, act] of buttons) {
      const button = element("button", text, "plain");
      button.type = "button";
      button.addEventListener("click", act);
      line.append(" ", button);
    }
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

  const keptSentence = () => {
    const photos = isKept ? "This browser keeps the photos and captions of this session until you clear them"
      : "This browser keeps nothing: photos and captions are gone when the page is closed";
    return `${photos}; ${served.hasCorrections ? "the server keeps the photos and what you decide" : "the server keeps none of them"}.`;
  };

  // --- what people do ---

  const actions = {
    choose: () => $("#files").click(),
    "choose-folder": () => $("#folder").click(),
    photograph: () => $("#camera").click(),
    settings: () => { fillSettings(); $("#settings").showModal(); },
    close: (button) => button.closest("dialog").close(),
    keys: () => $("#keys").showModal(),
    pause: () => { asking.pause(!asking.isPaused); refreshNow(); },
    back: () => history.back(),
    previous: () => step(-1),
    next: () => step(1),
    skip: () => decide("skipped"),
    uncheck: () => decide("unchecked"),
    again: () => again([chosen]),
    erase: startEraser,
    export: () => {
      const checked = rows.filter(exporting.isChecked).length;
      $("#export .counts").textContent = `${count(rows.length, "photo")}, of which ${checked} accepted or corrected.`;
      const { folder } = exporting.names(rows);
      const table = `${folder || ""}corrections.csv`;
      $("#export .hint").textContent = served.hasCorrections
        ? "On the server they can be trained on as they are: showtell train folder/corrections data.path=FOLDER training.start_from=CHECKPOINT, with the folder of --corrections."
        : `Save the table as ${table}, beside the photos, and train on it: showtell train folder/corrections data.path=${table} training.start_from=CHECKPOINT`;
      $("#export").showModal();
    },
    clear: () => {
      $("#clear p").textContent = `${count(rows.length, "photo")} with their captions leave this browser.`
        + (served.hasCorrections ? " What the server keeps stays there, and comes back when the page is loaded." : " What you have not exported is lost.");
      $("#clear").showModal();
    },
  };

  function step(by) {
    const at = list.rows.indexOf(chosen);
    const row = list.rows[Math.min(Math.max(at + by, 0), list.rows.length - 1)];
    if (row) choose(row);
  }

  document.addEventListener("click", ({ target }) => {
    const button = target.closest("button");
    if (button?.dataset.action) actions[button.dataset.action](button);
    if (button?.dataset.export) {
      const kind = button.dataset.export;
      if (served.hasCorrections) exporting.save(`/v1/corrections/export?format=${kind}${kind === "zip" ? "&status=accepted&status=corrected" : ""}`, `corrections.${kind}`);
      else exporting.save(new Blob([exporting[kind](rows)], { type: kind === "csv" ? "text/csv" : "application/jsonl" }), `corrections.${kind}`);
    }
  });

  $("#clear").addEventListener("close", async () => {
    if ($("#clear").returnValue !== "clear") return;
    asking.clear();
    reading.clear();
    looking?.abort();
    if (isKept) await kept.clear();
    location.reload();
  });

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
      else list.list.focus();
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
    if (target.closest("input, textarea, select, dialog, canvas")) return;
    if (["ArrowDown", "ArrowUp"].includes(key) && rows.length && !target.closest(".list")) {
      event.preventDefault();
      step(key === "ArrowDown" ? 1 : -1);
    } else if (choices.letters === "on" && letters[key.toLowerCase()] && (chosen || "/?".includes(key))) {
      event.preventDefault();
      letters[key.toLowerCase()]();
    }
  });

  for (const type of ["input", "change"]) filters.addEventListener(type, () => {
    $("output", filters).textContent = `${$("[name='most']", filters).value}%`;
    refreshNow();
  });

  for (const input of document.querySelectorAll("input[type='file']"))
    input.addEventListener("change", () => {
      add([...input.files].map((file) => [file, file.webkitRelativePath || file.name]));
      input.value = "";
    });

  document.addEventListener("paste", ({ clipboardData }) => {
    const time = new Date().toISOString().slice(0, 19).replace("T", " ").replaceAll(":", ".");
    add([...clipboardData.files].map((file) => [file, `pasted ${time} ${file.name}`]));
  });

  /** The files of what was dropped, folders with all that is in them. */
  async function filesOf(entry, folder = "") {
    if (entry.isFile) {
      const file = await new Promise((resolve) => entry.file(resolve, () => resolve(null)));
      return file ? [[file, folder + file.name]] : [];
    }
    const reader = entry.createReader();
    const entries = [];
    for (let some = [null]; some.length; ) { // a browser tells a hundred at a time
      some = await new Promise((resolve) => reader.readEntries(resolve, () => resolve([])));
      entries.push(...some);
    }
    const inside = await Promise.all(entries.map((one) => filesOf(one, `${folder}${entry.name}/`)));
    return inside.flat();
  }

  let depth = 0; // of elements that something is dragged over
  const showDrop = (change) => {
    depth = Math.max(0, depth + change);
    $(".drop").hidden = !depth;
  };
  const holdsFiles = (event) => event.dataTransfer.types.includes("Files");
  addEventListener("dragenter", (event) => holdsFiles(event) && showDrop(1));
  addEventListener("dragleave", (event) => holdsFiles(event) && showDrop(-1));
  addEventListener("dragover", (event) => holdsFiles(event) && event.preventDefault());
  addEventListener("drop", async (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    showDrop(-depth);
    const items = [...event.dataTransfer.items].filter((item) => item.kind === "file");
    const files = items.map((item) => [item.webkitGetAsEntry?.(), item.getAsFile()]);
    const dropped = await Promise.all(files.map(([entry, file]) => (entry ? filesOf(entry) : [[file, file.name]])));
    add(dropped.flat());
  });

  addEventListener("popstate", () => backToList());
  addEventListener("beforeunload", (event) => {
    if ((!isKept && rows.length) || (chosen && isTyped())) event.preventDefault();
  });

  // --- begin ---

  async function begin() {
    try {
      await kept.open();
      isKept = true;
    } catch {
      isKept = false; // a private window; the page says so below
    }
    if (isKept) {
      const saved = await kept.choice("settings");
      if (saved && served.captioners.some(({ name }) => name === saved.captioner)) choices = { ...choices, ...saved };
      for (const stored of await kept.rows()) {
        const isDone = stored.captions.length || stored.error;
        const row = makeRow({ ...stored, phase: isDone ? "done" : "waiting" });
        if (!isDone) asking.add(row);
      }
    }
    if (served.hasCorrections)
      for (const known of await decisions.rows()) {
        const row = byId.get(known.id) ?? makeRow({
          id: known.id, name: known.name, captioner: known.captioner, added: Date.parse(known.created), phase: "done",
          captions: [{ text: known.proposed, confidence: known.confidence ?? undefined }],
        });
        Object.assign(row, ServerStore.fromRow(known), { isOnServer: true });
      }
    for (const button of document.querySelectorAll("[data-action='photograph']"))
      button.hidden = !matchMedia("(pointer: coarse)").matches;
    showServed();
    refreshNow();
    if (list.rows.length && isWide()) choose(list.rows[0], { focus: false });
  }

  server.watch((sentence) => say("server", sentence));
  const beginning = begin().catch((error) => say("begin", `The session could not be opened: ${error.message}`));
})();
