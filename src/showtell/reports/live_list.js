// A list of very many rows, of which those near the window are in the page.

class VirtualList {
  /**
   * @param {HTMLElement} list - that scrolls; a listbox with a spacer in it.
   * @param {{draw: (row) => HTMLElement, onChoose: (row) => void}} uses - how a row looks, and what choosing it does.
   */
  constructor(list, { draw, onChoose }) {
    Object.assign(this, { list, draw, onChoose, rows: [], chosen: null, nodes: new Map(), isPlanned: false });
    this.spacer = list.firstElementChild;
    list.addEventListener("scroll", () => this.plan());
    new ResizeObserver(() => this.plan()).observe(list);
    list.addEventListener("click", ({ target }) => {
      const node = target.closest("[role='option']");
      const row = node && this.rows.find((one) => this.nodes.get(one)?.node === node);
      if (row) this.onChoose(row);
    });
    list.addEventListener("keydown", (event) => {
      const page = Math.max(1, Math.floor(list.clientHeight / this.height) - 1);
      const at = this.rows.indexOf(this.chosen), last = this.rows.length - 1;
      const next = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: last,
        Enter: at }[event.key];
      if (next === undefined || event.ctrlKey || event.altKey || event.metaKey || last < 0) return;
      event.preventDefault();
      this.onChoose(this.rows[Math.min(Math.max(next, 0), last)], event.key === "Enter");
    });
  }

  /** Show these rows; the chosen one stays where it is in the window. */
  show(rows) {
    const before = this.rows.indexOf(this.chosen);
    this.rows = rows;
    const after = rows.indexOf(this.chosen);
    const isSeen = before >= 0 && Math.abs(before * this.height - this.list.scrollTop) < this.list.clientHeight;
    this.spacer.style.height = `${rows.length * this.height}px`;
    if (isSeen && after >= 0) this.list.scrollTop += (after - before) * this.height;
    this.plan();
  }

  choose(row) {
    this.chosen = row;
    const at = this.rows.indexOf(row);
    if (at >= 0) {
      const top = at * this.height, bottom = top + this.height;
      if (top < this.list.scrollTop) this.list.scrollTop = top;
      else if (bottom > this.list.scrollTop + this.list.clientHeight) this.list.scrollTop = bottom - this.list.clientHeight;
    }
    this.plan();
  }

  /** Draw a row anew. */
  change(row) {
    row.version = (row.version ?? 0) + 1;
    this.plan();
  }

  plan() {
    if (this.isPlanned) return;
    this.isPlanned = true;
    requestAnimationFrame(() => {
      this.isPlanned = false;
      this.drawRows();
    });
  }

  get height() {
    return 5.2 * Number.parseFloat(getComputedStyle(document.documentElement).fontSize);
  }

  drawRows() {
    const { height } = this;
    this.spacer.style.height = `${this.rows.length * height}px`;
    const first = Math.max(0, Math.floor(this.list.scrollTop / height) - 4);
    const last = Math.min(this.rows.length, Math.ceil((this.list.scrollTop + this.list.clientHeight) / height) + 4);
    const seen = new Set(this.rows.slice(first, last));
    for (const [row, { node }] of this.nodes)
      if (!seen.has(row)) {
        node.remove();
        this.nodes.delete(row);
      }
    for (let at = first; at < last; at++) {
      const row = this.rows[at];
      let drawn = this.nodes.get(row);
      if (drawn?.version !== (row.version ?? 0)) {
        const node = this.draw(row);
        node.setAttribute("role", "option");
        node.id = `row-${row.key}`;
        if (drawn) drawn.node.replaceWith(node);
        drawn = { node, version: row.version ?? 0 };
        this.nodes.set(row, drawn);
      }
      const { node } = drawn;
      node.style.top = `${at * height}px`;
      node.setAttribute("aria-posinset", at + 1);
      node.setAttribute("aria-setsize", this.rows.length);
      node.setAttribute("aria-selected", String(row === this.chosen));
      if (!node.isConnected) this.spacer.append(node);
    }
    const chosen = this.nodes.get(this.chosen)?.node;
    if (chosen) this.list.setAttribute("aria-activedescendant", chosen.id);
    else this.list.removeAttribute("aria-activedescendant");
  }
}
