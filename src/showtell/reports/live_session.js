// What the page keeps: photos and captions in the browser (IndexedDB), and what people decide, there or on the server.

/** The headers of a photo that is sent. */
const headersOf = (photo) => ({ "Content-Type": photo.type.startsWith("image/") ? photo.type : "application/octet-stream" });

const STORED = ["id", "name", "size", "type", "added", "captioner", "settings", "captions", "error", "thumbnail",
  "status", "text", "revision", "serverId"]; // of a row

/** What a photo is known by: the SHA-256 of its bytes, which browsers compute on https and on this machine alone. */
async function idOf(file) {
  if (!globalThis.crypto?.subtle) return `${file.name}/${file.size}/${file.lastModified}`;
  const bytes = new Uint8Array(await crypto.subtle.digest("SHA-256", await file.arrayBuffer()));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Somebody else has changed a row in the meantime: another tab, or another person. */
class Conflict extends Error {
  constructor(theirs) {
    super(`It was changed elsewhere in the meantime: “${theirs.text}”, ${theirs.status}.`);
    this.theirs = theirs; // {text, status, revision}
  }
}

/** Rows and photos in the browser's database; where it has none, in memory until the page is closed. */
class BrowserStore {
  async open() {
    const request = indexedDB.open("showtell", 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("rows", { keyPath: "id" });
      request.result.createObjectStore("photos");
      request.result.createObjectStore("choices");
    };
    this.database = await this.settle(request);
    this.database.onversionchange = () => this.database.close();
    navigator.storage?.persist?.(); // asks that the browser does not make room by forgetting it
  }

  settle(request) {
    return new Promise((resolve, reject) => {
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
  }

  /** Do something with stores, all of it or nothing; the value of the last request. */
  async transact(names, mode, work) {
    const transaction = this.database.transaction(names, mode);
    const done = new Promise((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = () => reject(transaction.error ?? new DOMException("", "AbortError"));
    });
    const stores = Object.fromEntries(names.map((name) => [name, transaction.objectStore(name)]));
    const [value] = await Promise.all([work(stores), done]);
    return value;
  }

  rows() {
    return this.transact(["rows"], "readonly", ({ rows }) => this.settle(rows.getAll()));
  }

  photo(id) {
    return this.transact(["photos"], "readonly", ({ photos }) => this.settle(photos.get(id)));
  }

  /** Keep a row; what people decided in another tab is left as it is there. */
  put(row, photo) {
    return this.transact(["rows", "photos"], "readwrite", async ({ rows, photos }) => {
      if (photo) photos.put(photo, row.id);
      const before = await this.settle(rows.get(row.id));
      const { status, text, revision } = before && before.revision > row.revision ? before : row;
      rows.put({ ...this.stored(row), status, text, revision });
    });
  }

  stored(row) {
    return Object.fromEntries(STORED.map((name) => [name, row[name]]));
  }

  /** Keep a decision, if it was made from the newest one. */
  decide(row, change) {
    return this.transact(["rows"], "readwrite", async ({ rows }) => {
      const stored = await this.settle(rows.get(row.id));
      if (stored && stored.revision !== row.revision) throw new Conflict(stored);
      const decided = { ...change, revision: row.revision + 1 };
      rows.put({ ...this.stored(row), ...decided });
      return decided;
    });
  }

  choice(name) {
    return this.transact(["choices"], "readonly", ({ choices }) => this.settle(choices.get(name)));
  }

  choose(name, value) {
    return this.transact(["choices"], "readwrite", ({ choices }) => { choices.put(value, name); });
  }

  clear() {
    return this.transact(["rows", "photos"], "readwrite", ({ rows, photos }) => {
      rows.clear();
      photos.clear();
    });
  }
}

/** Decisions on the server, which keeps the photos that they are about. */
class ServerStore {
  static fromRow({ id, caption, status, revision }) {
    return { text: status === "unchecked" ? null : caption, status, revision, serverId: id };
  }

  async rows() {
    const rows = [];
    for (let total = 1; rows.length < total; ) {
      const page = await (await server.ask("/v1/corrections", { query: { offset: rows.length, limit: 500 } })).json();
      total = page.rows.length ? page.total : 0;
      rows.push(...page.rows);
    }
    return rows;
  }

  /** Send a photo with what was proposed of it; the server may have it, and decisions about it. */
  async add(row, photo) {
    const [best] = row.captions;
    const query = { name: row.name, captioner: row.captioner, caption: best?.text ?? "" };
    if (best) query.confidence = best.confidence;
    const ask = { method: "POST", body: photo, query, headers: headersOf(photo) };
    const response = await server.ask("/v1/corrections/photos", ask);
    return ServerStore.fromRow(await response.json());
  }

  async decide(row, { text, status }) {
    const body = JSON.stringify({ revision: row.revision, caption: text, status });
    const headers = { "Content-Type": "application/json" };
    try {
      const response = await server.ask(`/v1/corrections/${row.serverId}`, { method: "PATCH", body, headers, once: true });
      return ServerStore.fromRow(await response.json());
    } catch (error) {
      if (error.status === 409) throw new Conflict(ServerStore.fromRow(error.problem.row));
      throw error;
    }
  }

  async photo(id) {
    return (await server.ask(`/v1/corrections/photos/${id}`)).blob();
  }
}
