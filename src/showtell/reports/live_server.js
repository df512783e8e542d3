// Asks the page's own server: waits where it is busy or away, and turns its problems into sentences.

const $ = (selector, parent = document) => parent.querySelector(selector);
const served = JSON.parse($("#served").textContent); // what the server is, as `live_page.py` says it

/** What the server says in place of an answer: a sentence and its status; 0 where nobody answered. */
class ServerError extends Error {
  constructor(status, sentence, problem = {}) {
    super(sentence);
    Object.assign(this, { status, problem });
  }
}

const server = (() => {
  const BUSY = [429, 503]; // statuses after which the same question is asked again
  const LONGEST_WAIT = 30; // seconds between two tries
  let waitUntil = 0; // no question is sent before: the queue of the server is full, or it is away
  let tell = () => {}; // gets a sentence about the server, or "" when it answers again

  const sleep = (seconds, signal) =>
    new Promise((resolve, reject) => {
      const timer = setTimeout(resolve, 1000 * seconds);
      signal?.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); }, { once: true });
    });

  async function problemOf(response) {
    const problem = await response.json().catch(() => ({}));
    const sentence = problem.detail ?? `The server answered ${response.status} ${response.statusText}.`;
    return new ServerError(response.status, sentence, problem);
  }

  /**
   * Ask until there is an answer; abort the signal to give up.
   *
   * @param {string} path - of the route.
   * @param {object} [options] - of fetch, and `query`: names with a value or several; `json`: what is sent as JSON;
   *   `photo`: what is sent as it is; `once`: do not try again.
   * @returns {Promise<Response>} a good answer; any other is thrown as a ServerError.
   */
  async function ask(path, { query = {}, json, photo, once = false, ...options } = {}) {
    if (json) Object.assign(options, { body: JSON.stringify(json), headers: { "Content-Type": "application/json" } });
    if (photo !== undefined) {
      const type = photo.type.startsWith("image/") ? photo.type : "application/octet-stream";
      Object.assign(options, { method: "POST", body: photo, headers: { "Content-Type": type } });
    }
    const address = new URL(path, location.href);
    for (const [name, values] of Object.entries(query))
      for (const value of [values].flat()) address.searchParams.append(name, value);
    for (let failures = 0; ; failures++) {
      const pause = (waitUntil - Date.now()) / 1000;
      if (pause > 0 && !once) await sleep(pause, options.signal);
      const longer = Math.min(LONGEST_WAIT, 2 ** failures);
      let response;
      try {
        response = await fetch(address, options);
      } catch (error) {
        if (options.signal?.aborted) throw error;
        if (once) throw new ServerError(0, "The server does not answer; start it again, and repeat this.");
        waitUntil = Date.now() + 1000 * longer;
        tell("The server does not answer; the page tries again until it does.");
        continue;
      }
      if (!once && BUSY.includes(response.status)) {
        const seconds = Number.parseFloat(response.headers.get("Retry-After")) || longer;
        waitUntil = Math.max(waitUntil, Date.now() + 1000 * seconds);
        if (response.status === 503) tell((await problemOf(response)).message);
        continue;
      }
      tell("");
      if (!response.ok) throw await problemOf(response);
      return response;
    }
  }

  return { ask, watch: (watcher) => { tell = watcher; } };
})();

/** Work on many things, a few at a time, in the order in which they came. */
class Queue {
  constructor(inFlight, work) {
    Object.assign(this, { inFlight, work, waiting: [], running: 0, isPaused: false });
  }

  add(...things) {
    this.waiting.push(...things);
    this.advance();
  }

  pause(isPaused) {
    this.isPaused = isPaused;
    this.advance();
  }

  advance() {
    while (!this.isPaused && this.running < this.inFlight && this.waiting.length) {
      this.running += 1;
      this.work(this.waiting.shift()).finally(() => {
        this.running -= 1;
        this.advance();
      });
    }
  }
}
