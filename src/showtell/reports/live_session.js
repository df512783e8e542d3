// What people decide, which the page's server keeps with the photos.

/** What a photo is known by: the SHA-256 of its bytes, which browsers compute on https and on this machine alone. */
async function idOf(file, path) {
  if (!globalThis.crypto?.subtle) return `${path}/${file.size}/${file.lastModified}`;
  const bytes = new Uint8Array(await crypto.subtle.digest("SHA-256", await file.arrayBuffer()));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Somebody else has changed a row in the meantime: another tab, or another person. */
class Conflict extends Error {
  constructor(theirs) {
    super(`It was changed elsewhere in the meantime: “${theirs.caption}”, ${theirs.status}.`);
    this.theirs = theirs; // the row as the server has it
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
    for (const name of ["confidence", "doubt"]) if (best?.[name] != null) query[name] = best[name];
    const response = await server.ask("/v1/corrections/photos", { photo, query });
    return ServerStore.fromRow(await response.json());
  }

  async decide(row, { text, status }) {
    const json = { revision: row.revision, caption: text, status };
    try {
      const response = await server.ask(`/v1/corrections/${row.serverId}`, { method: "PATCH", json, once: true });
      return ServerStore.fromRow(await response.json());
    } catch (error) {
      if (error.status === 409) throw new Conflict(error.problem.row);
      throw error;
    }
  }

  /** Make many decisions, [row, change], together; the rows that were changed, and those that others had changed. */
  async decideMany(decisions) {
    const changes = decisions.map(([{ serverId: id, revision }, { text: caption, status }]) => ({ id, revision, caption, status }));
    return (await server.ask("/v1/corrections", { method: "PATCH", json: { changes }, once: true })).json();
  }

  async photo(id) {
    return (await server.ask(`/v1/corrections/photos/${id}`)).blob();
  }
}
