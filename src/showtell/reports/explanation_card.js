// Draws the maps of explained captions and handles mouse and keyboard, on written pages and on the live one.
"use strict";
const explanations = (() => {
  const MAX_SHADE = 0.88, FLAT_SHADE = 0.6; // opacity of the shade over pixels without attention; at a word without a peak
  // Colours of saliency: regions that support the word, and regions that speak against it.
  const SUPPORTING = [255, 140, 0], OPPOSING = [60, 150, 255];
  const ALIKE = 0.9; // cosine of two maps from which on nobody sees a difference in thumbnails
  const SMALL = 160; // pixels of the longer side of a smoothed map and of a thumbnail
  let smooth = true;
  const captions = []; // all of the page

  const decode = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const decodeShorts = (text) => new Uint16Array(decode(text).buffer);
  const percent = (share) => (share == null ? "" : share > 0 && share < 0.01 ? "<1%" : `${Math.round(100 * share)}%`);

  /** The cosine of two maps; of maps without anything 1. */
  function similarity(one, other) {
    const product = (a, b) => a.reduce((sum, value, at) => sum + value * b[at], 0);
    const length = Math.sqrt(product(one, one) * product(other, other));
    return length ? product(one, other) / length : 1;
  }

  function element(name, text, className) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  }

  /** Values of regions, 0 to 1, as a map (height x width) of at most 1: smooth for grids if asked for, or as they are. */
  function valueMap(model, values, width, height) {
    const map = new Float32Array(width * height);
    if (model.grid && smooth) {
      const { rows, columns, samples, across, down } = model.grid; // share of each column and of each row at each sample
      const lines = Array.from({ length: rows }, (_, row) => {
        const line = new Float32Array(width);
        for (let column = 0; column < columns; column++)
          for (let u = 0; u < width; u++)
            line[u] += values[row * columns + column] * across[column * samples + Math.floor((u * samples) / width)];
        return line;
      });
      let highest = 0;
      for (let v = 0, at = 0; v < height; v++) {
        const sample = Math.floor((v * samples) / height);
        for (let row = 0; row < rows; row++)
          for (let u = 0; u < width; u++) map[at + u] += lines[row][u] * down[row * samples + sample];
        for (const end = at + width; at < end; at++) highest = Math.max(highest, map[at]);
      }
      return highest > 0 ? map.map((value) => value / highest) : map;
    }
    model.boxes.forEach(([left, top, right, bottom], region) => { // the maximum where several overlap
      const last = Math.min(width, Math.round(right * width));
      for (let v = Math.max(0, Math.round(top * height)); v < Math.min(height, Math.round(bottom * height)); v++)
        for (let u = Math.max(0, Math.round(left * width)); u < last; u++)
          map[v * width + u] = Math.max(map[v * width + u], values[region]);
    });
    return map;
  }

  /** Paint a map of values over a canvas; `paint` turns a value into a colour and its opacity. */
  function paintMap(canvas, model, values, paint) {
    const shrink = Math.min(1, SMALL / Math.max(canvas.width, canvas.height));
    const exact = !(model.grid && smooth);
    const width = exact ? canvas.width : Math.max(1, Math.round(canvas.width * shrink));
    const height = exact ? canvas.height : Math.max(1, Math.round(canvas.height * shrink));
    const shades = new Uint32Array(Uint8ClampedArray.from({ length: 4 * 256 }, (_, at) => paint((at >> 2) / 255)[at & 3]).buffer);
    const picture = new ImageData(width, height);
    const pixels = new Uint32Array(picture.data.buffer);
    valueMap(model, values, width, height).forEach((value, at) => { pixels[at] = shades[Math.round(255 * value)]; });
    const sheet = document.createElement("canvas");
    sheet.width = width;
    sheet.height = height;
    sheet.getContext("2d").putImageData(picture, 0, 0);
    const context = canvas.getContext("2d");
    context.imageSmoothingQuality = "high";
    context.drawImage(sheet, 0, 0, canvas.width, canvas.height);
  }

  const shade = (most) => (value) => [0, 0, 0, 255 * most * (1 - value)];
  const tint = (colour) => (value) => [...colour, 190 * value];

  function outline(canvas, [left, top, right, bottom], colour, width) {
    const context = canvas.getContext("2d");
    const box = [left * canvas.width, top * canvas.height, (right - left) * canvas.width, (bottom - top) * canvas.height];
    for (const [style, lineWidth] of [["#000a", width * 2], [colour, width]]) {
      Object.assign(context, { strokeStyle: style, lineWidth });
      context.strokeRect(...box);
    }
    return box;
  }

  function drawLabel(canvas, text, x, y) {
    const context = canvas.getContext("2d");
    const size = Math.max(11, canvas.width / 32);
    context.font = `${size}px system-ui, sans-serif`;
    const wide = context.measureText(text).width + size * 0.6;
    const left = Math.max(0, Math.min(x, canvas.width - wide));
    const top = Math.max(0, Math.min(y, canvas.height - size * 1.4));
    context.fillStyle = "#000c";
    context.fillRect(left, top, wide, size * 1.4);
    context.fillStyle = "#fff";
    context.fillText(text, left + size * 0.3, top + size * 1.05);
  }

  /** A ring around the centre of the region that hard attention sampled. */
  function drawRing(canvas, [left, top, right, bottom]) {
    const context = canvas.getContext("2d");
    const radius = Math.max(3, canvas.width / 40);
    for (const [colour, width] of [["#000", 4], ["#ffd400", 2]]) {
      context.beginPath();
      context.arc(((left + right) / 2) * canvas.width, ((top + bottom) / 2) * canvas.height, radius, 0, 2 * Math.PI);
      context.lineWidth = (width * Math.max(canvas.width, 120)) / 240;
      context.strokeStyle = colour;
      context.stroke();
    }
  }

  function drawAttention(canvas, model, word, large) {
    paintMap(canvas, model, word.attention, shade(word.isFlat ? FLAT_SHADE : MAX_SHADE));
    if (word.isFlat) {
      if (large) drawLabel(canvas, word.peakText, 0, canvas.height);
      return;
    }
    if (large && word.peak !== null) outline(canvas, model.boxes[word.peak], "#ff5a4f", canvas.width / 320);
    for (const [region, title, weight] of word.named.toReversed()) { // the region of the highest weight on top
      const width = (0.5 + 1.5 * (weight / word.named[0][2])) * Math.max(1, canvas.width / 320);
      const [x, y] = outline(canvas, model.boxes[region], "#ff5a4f", width);
      if (large) drawLabel(canvas, `${title} ${percent(weight)}`, x, y);
    }
    if (word.sampledRegion !== null) drawRing(canvas, model.boxes[word.sampledRegion]);
  }

  function drawSaliency(canvas, model, word, large) {
    const context = canvas.getContext("2d");
    context.fillStyle = "#0009";
    context.fillRect(0, 0, canvas.width, canvas.height);
    for (const [sign, colour] of [[1, SUPPORTING], [-1, OPPOSING]]) {
      const values = Float32Array.from(word.saliency, (drop) => Math.max(0, sign * drop));
      const highest = Math.max(...values);
      const scale = model.grid && smooth ? highest : 1; // smooth maps are relative to their maximum
      if (highest > 0) paintMap(canvas, model, values, (value) => tint(colour)(value * scale));
    }
    if (word.needed !== null) outline(canvas, model.boxes[word.needed], "#fff", canvas.width / 320);
    else if (large) drawLabel(canvas, "no single region matters", 0, canvas.height);
  }

  function resizeCanvas(canvas, image, longest) {
    const scale = longest / Math.max(image.naturalWidth, image.naturalHeight);
    canvas.width = Math.max(1, Math.round(image.naturalWidth * scale));
    canvas.height = Math.max(1, Math.round(image.naturalHeight * scale));
  }

  /** A caption with its buttons, maps and thumbnails. */
  class Caption {
    constructor(section, model, words, image, onRunnerUp) {
      Object.assign(this, { section, model, image, onRunnerUp, selected: null });
      this.words = words.map((word) => ({
        ...word,
        attention: word.attention && Float32Array.from(decode(word.attention), (value) => value / 255),
        saliency: word.saliency && Float32Array.from(new Int8Array(decode(word.saliency).buffer), (value) => value / 127),
      }));
      this.buttons = [...section.querySelectorAll(".words button")];
      this.thumbnails = [...section.querySelectorAll(".thumbnails li")];
      this.leaveOutThumbnails();
      this.columns = [...section.querySelectorAll(".word-values svg, .word-values ol")].map((chart) =>
        [...chart.querySelectorAll("rect, li")]); // one per word, in each chart and below them
      this.details = section.querySelector(".details");
      this.hint = this.details.textContent;
      section.style.setProperty("--ratio", image.naturalWidth / image.naturalHeight);
      this.valueTitles = [...section.querySelectorAll(".word-values figcaption span")];
      const chart = section.querySelector(".word-values");
      chart?.style.setProperty("--words", words.length);
      chart?.style.setProperty("--letters", Math.max(6, ...words.map(({ word }) => word.length)));
      for (const button of section.querySelectorAll(".enlarge")) button.addEventListener("click", () => this.enlarge());
      this.buttons.forEach((button, index) => {
        button.tabIndex = index ? -1 : 0;
        button.style.setProperty("--probability", this.words[index].p);
        button.addEventListener("keydown", (event) => this.key(event, index));
      });
      for (const column of [this.buttons, this.thumbnails, ...this.columns])
        column.forEach((item, index) =>
          item.addEventListener("click", () => this.select(this.selected === index ? null : index)));
    }

    /** Words whose maps look like one before have no thumbnails, none has one if all look alike; it says so. */
    leaveOutThumbnails() {
      const shown = [];
      this.thumbnails.forEach((item, index) => {
        const map = this.words[index].attention ?? this.words[index].saliency;
        item.hidden = !map || shown.some((other) => similarity(map, other) > ALIKE);
        if (!item.hidden) shown.push(map);
      });
      const hasMap = this.words.filter((word) => word.attention ?? word.saliency).length;
      if (hasMap === shown.length) return;
      const why = shown.length < 2 ? "All words have nearly the same map." : "Words without a picture have nearly the same map as one of these.";
      if (shown.length < 2) for (const item of this.thumbnails) item.hidden = true;
      this.thumbnails[0].parentElement.append(element("li", why, "why"));
    }

    key(event, index) {
      const last = this.buttons.length - 1;
      const next = { ArrowRight: Math.min(index + 1, last), ArrowLeft: Math.max(index - 1, 0), Home: 0, End: last }[event.key];
      if (event.ctrlKey || event.altKey || event.metaKey || (next === undefined && event.key !== "Escape")) return;
      event.preventDefault();
      if (next !== undefined) this.buttons[next].focus();
      this.select(next ?? null);
    }

    select(index) {
      this.selected = index;
      this.buttons.forEach((button, at) => {
        button.setAttribute("aria-pressed", String(at === index));
        if (index !== null) button.tabIndex = at === index ? 0 : -1;
      });
      for (const column of [this.thumbnails, ...this.columns])
        column.forEach((item, at) => item.classList.toggle("selected", at === index));
      this.valueTitles.forEach((title, at) => {
        const word = this.words[index];
        title.textContent = word ? `; ${word.word || "end"}: ${word.values[at]}` : "";
      });
      this.draw();
      this.showDetails();
    }

    enlarge() {
      const isLarge = this.section.classList.toggle("enlarged");
      for (const button of this.section.querySelectorAll(".enlarge")) button.setAttribute("aria-pressed", String(isLarge));
      this.draw();
      this.section.scrollIntoView({ block: "nearest" });
    }

    draw() {
      const word = this.selected === null ? null : this.words[this.selected];
      const legend = this.section.querySelector(".legend");
      if (legend) legend.textContent = word?.peakText ?? "the word's highest weight";
      for (const [kind, paint] of [["attention", drawAttention], ["saliency", drawSaliency]]) {
        const canvas = this.section.querySelector(`canvas.${kind}`);
        if (!canvas) continue;
        resizeCanvas(canvas, this.image, this.section.matches(".enlarged") ? 1280 : 640);
        if (word && word[kind]) paint(canvas, this.model, word, true);
      }
    }

    showDetails() {
      this.details.replaceChildren();
      this.details.classList.toggle("empty", this.selected === null);
      if (this.selected === null) {
        this.details.append(element("p", this.hint, "small"));
        return;
      }
      const word = this.words[this.selected];
      const list = element("ol");
      for (const [index, [text, p]] of [[word.word, word.p], ...word.others].entries()) {
        const line = element("li", undefined, index ? "" : "chosen-word");
        const bar = element("i");
        bar.style.width = `${100 * p}%`;
        const isOffered = index && text && this.onRunnerUp;
        const name = element(isOffered ? "button" : "span", text || "end");
        if (isOffered) {
          const start = this.words.slice(0, this.selected).map((before) => before.word);
          name.type = "button";
          name.title = `Go on from “${[...start, text].join(" ")}”`;
          name.addEventListener("click", () => this.onRunnerUp([...start, text], this.section));
        }
        line.append(name, bar, element("b", percent(p)));
        list.append(line);
      }
      const offer = this.onRunnerUp ? "alternatives, with which the caption can continue" : "alternatives";
      this.details.append(element("p", `The word, and the most likely ${offer}:`, "small"), list);
      for (const sentence of word.sentences) this.details.append(element("p", sentence));
      if (word.hallucinated)
        this.details.append(element("p", `Hallucinated: the photo shows no ${word.hallucinated}.`, "bad"));
    }

    drawThumbnails() {
      this.thumbnails.forEach((item, index) => {
        const canvas = item.querySelector("canvas");
        resizeCanvas(canvas, this.image, SMALL);
        canvas.getContext("2d").imageSmoothingEnabled = !this.image.closest(".tiny");
        canvas.getContext("2d").drawImage(this.image, 0, 0, canvas.width, canvas.height);
        const word = this.words[index];
        if (word.attention) drawAttention(canvas, this.model, word, false);
        else drawSaliency(canvas, this.model, word, false);
      });
      this.drawn = true;
    }
  }

  /** Thumbnails are drawn when they come near the window, and all of them before printing. */
  const observer = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      const caption = captions.find(({ section }) => section === target);
      if (isIntersecting && caption && !caption.drawn) caption.drawThumbnails();
    }
  }, { rootMargin: "400px" });
  addEventListener("beforeprint", () => captions.forEach((caption) => caption.drawn || caption.drawThumbnails()));

  /**
   * Bring the card of a photo to life.
   *
   * @param {HTMLElement} article - the card.
   * @param {(words: string[], section: HTMLElement) => void} [onRunnerUp] - what choosing an alternative does; the words
   *   end with it. Without it alternatives are shown and cannot be chosen.
   */
  async function openArticle(article, onRunnerUp) {
    const data = JSON.parse(article.querySelector("script[type='application/json']").textContent);
    const images = [...article.querySelectorAll(".frame img")];
    for (const image of images.slice(1)) image.src = images[0].src;
    await Promise.all(images.map((image) => image.decode()));
    const sections = [...article.querySelectorAll(".explained")];
    for (const { grid } of data.models)
      if (grid) Object.assign(grid, { across: decodeShorts(grid.across), down: decodeShorts(grid.down) });
    data.models.flatMap((model) => model.captions.map((words) => [model, words])).forEach(([model, words], index) => {
      const caption = new Caption(sections[index], model, words, images[0], onRunnerUp);
      captions.push(caption);
      observer.observe(caption.section);
    });
    letScroll();
  }

  function redraw() {
    for (const caption of captions) {
      caption.draw();
      if (caption.drawn) caption.drawThumbnails();
    }
  }

  /** Forget the card of an element that leaves the page. */
  function close(parent) {
    for (let index = captions.length - 1; index >= 0; index--)
      if (parent.contains(captions[index].section)) observer.unobserve(captions.splice(index, 1)[0].section);
  }

  /** What is wider than its place is scrolled with the keyboard, too. */
  function letScroll() {
    for (const place of document.querySelectorAll(".scroll, .word-values"))
      if (place.scrollWidth > place.clientWidth) place.tabIndex = 0;
      else place.removeAttribute("tabindex");
  }
  addEventListener("resize", letScroll);
  document.addEventListener("toggle", ({ target }) => {
    if (!target.matches(".more[open]")) return;
    letScroll();
    target.scrollIntoView({ block: "nearest" });
  }, true);

  const THEMES = ["system", "light", "dark"];
  document.addEventListener("click", ({ target }) => {
    const button = target.closest("button");
    if (!button) return;
    if (button.matches(".theme")) {
      const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? "system") + 1) % THEMES.length];
      document.documentElement.dataset.theme = next;
      button.textContent = `Colours: ${next}`;
    }
    if (button.matches(".smooth")) {
      smooth = !smooth;
      button.textContent = smooth ? "Maps: smooth" : "Maps: cells";
      redraw();
    }
  });

  return { openArticle, close, element, percent };
})();
