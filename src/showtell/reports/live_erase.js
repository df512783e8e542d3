// Erases regions of a photo, by mouse, finger or keyboard, to caption it anew without them.

class Eraser {
  static STEP = 0.04; // of the photo's sides, by which arrow keys move and resize

  /**
   * @param {HTMLElement} parent - where the photo is shown.
   * @param {ImageBitmap} photo - upright.
   */
  constructor(parent, photo) {
    Object.assign(this, { photo, marks: [], tool: "rectangle", drawing: null, cursor: { x: 0.35, y: 0.35, w: 0.3, h: 0.3 } });
    this.canvas = explanations.element("canvas");
    const scale = Math.min(1, 1280 / Math.max(photo.width, photo.height));
    this.canvas.width = Math.max(1, Math.round(photo.width * scale));
    this.canvas.height = Math.max(1, Math.round(photo.height * scale));
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", "Photo to erase regions of. Arrow keys move the rectangle, with Shift they "
      + "resize it, Space erases it, Backspace takes the last one back, Enter captions the photo anew, Escape leaves.");
    this.frame = explanations.element("div", undefined, "frame");
    this.frame.style.setProperty("--ratio", photo.width / photo.height);
    this.frame.append(this.canvas);
    parent.append(this.frame);
    this.colour = this.meanColour();
    this.canvas.addEventListener("pointerdown", (event) => this.begin(event));
    this.canvas.addEventListener("pointermove", (event) => this.extend(event));
    this.canvas.addEventListener("pointerup", (event) => { this.extend(event); this.end(); });
    this.canvas.addEventListener("pointercancel", () => this.end());
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("focus", () => this.draw());
    this.canvas.addEventListener("blur", () => this.draw());
    this.draw();
  }

  /** The mean colour of the photo: what is erased tells as little as possible. */
  meanColour() {
    const sheet = new OffscreenCanvas(32, 32).getContext("2d", { willReadFrequently: true });
    sheet.drawImage(this.photo, 0, 0, 32, 32);
    const sums = [0, 0, 0];
    sheet.getImageData(0, 0, 32, 32).data.forEach((value, index) => { if (index % 4 < 3) sums[index % 4] += value; });
    return `rgb(${sums.map((sum) => Math.round(sum / 1024)).join(" ")})`;
  }

  at({ clientX, clientY }) {
    const box = this.canvas.getBoundingClientRect();
    return [(clientX - box.x) / box.width, (clientY - box.y) / box.height].map((share) => Math.min(1, Math.max(0, share)));
  }

  begin(event) {
    event.preventDefault();
    this.canvas.focus();
    this.canvas.setPointerCapture(event.pointerId);
    const [x, y] = this.at(event);
    this.drawing = this.tool === "brush" ? { points: [[x, y]] } : { x, y, w: 0, h: 0 };
    this.start = [x, y];
    this.marks.push(this.drawing);
    this.draw();
  }

  extend(event) {
    if (!this.drawing) return;
    const [x, y] = this.at(event);
    if (this.drawing.points) this.drawing.points.push([x, y]);
    else {
      const [left, top] = this.start;
      Object.assign(this.drawing, { x: Math.min(x, left), y: Math.min(y, top), w: Math.abs(x - left), h: Math.abs(y - top) });
    }
    this.draw();
  }

  end() {
    if (this.drawing && !this.drawing.points && this.drawing.w * this.drawing.h < 1e-4) this.marks.pop(); // a mere click
    this.drawing = null;
    this.draw();
    this.onChange?.();
  }

  key(event) {
    const direction = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const { cursor } = this;
    if (direction) {
      const [x, y] = direction.map((sign) => sign * Eraser.STEP);
      if (event.shiftKey) Object.assign(cursor, { w: cursor.w + x, h: cursor.h + y });
      else Object.assign(cursor, { x: cursor.x + x, y: cursor.y + y });
      for (const side of ["w", "h"]) cursor[side] = Math.min(1, Math.max(Eraser.STEP, cursor[side]));
      cursor.x = Math.min(1 - cursor.w, Math.max(0, cursor.x));
      cursor.y = Math.min(1 - cursor.h, Math.max(0, cursor.y));
    } else if (event.key === " ") this.marks.push({ ...cursor });
    else if (event.key === "Backspace") this.marks.pop();
    else if (event.key === "Enter") this.onDone?.();
    else if (event.key === "Escape") this.onLeave?.();
    else return;
    event.preventDefault();
    event.stopPropagation();
    this.draw();
    this.onChange?.();
  }

  undo() {
    this.marks.pop();
    this.draw();
    this.onChange?.();
  }

  /** Paint what is erased over a canvas that shows the photo. */
  paint(canvas) {
    const context = canvas.getContext("2d");
    context.drawImage(this.photo, 0, 0, canvas.width, canvas.height);
    context.fillStyle = context.strokeStyle = this.colour;
    context.lineCap = context.lineJoin = "round";
    context.lineWidth = 0.06 * Math.max(canvas.width, canvas.height);
    for (const mark of this.marks)
      if (mark.points) {
        context.beginPath();
        for (const [x, y] of [mark.points[0], ...mark.points]) context.lineTo(x * canvas.width, y * canvas.height);
        context.stroke();
      } else context.fillRect(mark.x * canvas.width, mark.y * canvas.height, mark.w * canvas.width, mark.h * canvas.height);
    return context;
  }

  draw() {
    const context = this.paint(this.canvas);
    const { width, height } = this.canvas;
    if (document.activeElement !== this.canvas || this.tool === "brush" || this.drawing) return;
    const { x, y, w, h } = this.cursor;
    const scale = width / 640;
    for (const [colour, line] of [["#000", 4], ["#fff", 2]]) {
      context.setLineDash(colour === "#fff" ? [8 * scale, 6 * scale] : []);
      context.lineWidth = line * scale;
      context.strokeStyle = colour;
      context.strokeRect(x * width, y * height, w * width, h * height);
    }
    context.setLineDash([]);
  }

  /** The photo without what was erased, in full size: lossless if it is small. */
  async result() {
    const canvas = new OffscreenCanvas(this.photo.width, this.photo.height);
    this.paint(canvas);
    const isSmall = canvas.width * canvas.height <= 1 << 20;
    return canvas.convertToBlob(isSmall ? { type: "image/png" } : { type: "image/jpeg", quality: 0.95 });
  }
}
