// An experiment as it is now, or was: what views share, kept up to date by the server's events.
import { Listeners, useEffect, useSource, useState } from "./dom.js";
import { Trials } from "./columns.js";
import { embedded, load } from "./source.js";

const AWAY = 5000;

class Experiment extends Listeners {
  overview = null;
  trials = null;
  error = null;
  loading = null;
  lost = false;
  /** Of the last answer that was no data. */
  status = null;
  /** What the newest events brought, for curves: (changes) => void. */
  followers = new Set();
  #wanted = false;
  #stream = null;
  #closed = false;
  #leaving = 0;

  constructor(name, at) {
    super();
    Object.assign(this, { name, at, root: `e/${encodeURIComponent(name)}/` });
    this.#begin();
  }

  address(view, query = {}) {
    const all = new URLSearchParams(Object.entries(query).filter(([, value]) => value != null));
    if (this.at) all.set("at", this.at);
    return `${this.root}${view}.json${all.size ? "?" + all : ""}`;
  }

  async #begin() {
    try {
      this.overview = await load(this.address("overview"));
      if (this.#wanted) this.trials = new Trials(await load(this.address("trials")), this.overview.words);
      this.error = this.loading = this.status = null;
      this.#follow();
    } catch (error) {
      this.error = error.message;
      this.status = error.status ?? null;
      this.loading = error.loading ?? null;
      const pause = this.loading ? 1000 : 3000;
      if (!embedded && !this.#closed) setTimeout(() => this.#closed || this.#begin(), pause);
    }
    this.tell();
  }

  /** From now on, the table of trials is kept too. */
  async wantTrials() {
    if (this.#wanted) return;
    this.#wanted = true;
    if (!this.overview) return;
    try {
      this.trials = new Trials(await load(this.address("trials")), this.overview.words);
    } catch (error) {
      this.#wanted = false;
      this.error = error.message;
    }
    this.tell();
  }

  #follow() {
    if (this.at || embedded || this.#stream || this.#closed || document.hidden) return;
    const stream = (this.#stream = new EventSource(`${this.root}events?since=${this.overview.seq}`));
    const on = (kind, act) =>
      stream.addEventListener(kind, (event) => {
        this.lost = false;
        act(JSON.parse(event.data));
        this.tell();
      });
    on("hello", () => {});
    on("loading", (said) => {
      this.loading = said;
      if (this.overview) this.overview.trouble = said.error;
    });
    on("overview", (said) => Object.assign(this.overview, said));
    on("changes", (said) => this.#take(said));
    on("reset", () => this.#again());
    stream.onerror = () => {
      this.lost = true;
      this.tell();
      if (stream.readyState === EventSource.CLOSED) setTimeout(() => this.#again(), 2000);
    };
  }

  #take(said) {
    this.loading = null;
    Object.assign(this.overview, said.overview, { seq: said.seq, counts: said.counts ?? this.overview.counts });
    const trials = this.trials;
    if (trials && said.seq >= trials.seq) {
      const holes = said.trials?.row.some((row) => row > trials.length + said.trials.row.length);
      if (holes) return this.#again();
      if (said.trials?.row.length) trials.merge(said.trials);
      trials.seq = said.seq;
      trials.best = this.overview.best?.id ?? trials.best;
    }
    for (const follower of this.followers) follower(said);
  }

  #again() {
    this.#stream?.close();
    this.#stream = null;
    if (!this.#closed) this.#begin();
  }

  /** A page that nobody sees listens to nothing: a browser gives a server six connections in all. */
  seen() {
    clearTimeout(this.#leaving);
    if (document.hidden) this.#leaving = setTimeout(() => this.#rest(), AWAY);
    else if (this.overview) this.#follow();
  }

  #rest() {
    this.#stream?.close();
    this.#stream = null;
  }

  close() {
    this.#closed = true;
    clearTimeout(this.#leaving);
    this.#stream?.close();
  }
}

const opened = new Map();
document.addEventListener("visibilitychange", () => opened.forEach((experiment) => experiment.seen()));

/** End all streams; a page without an experiment has none. */
function closeExperiments() {
  for (const held of opened.values()) held.close();
  opened.clear();
}

/** The experiment under a name at a moment, the same for all who ask; the others are let go. */
function experimentAt(name, at) {
  const key = `${name}\n${at ?? ""}`;
  if (!opened.has(key)) {
    closeExperiments();
    opened.set(key, new Experiment(name, at));
  }
  return opened.get(key);
}

/** The data at an address, read again when the experiment has moved on, at most every `every` ms. */
function useData(experiment, address, every = 3000) {
  const [held, set] = useState({});
  useEffect(() => {
    if (!address) return;
    let timer = 0;
    let seen;
    const stamp = () => `${experiment?.overview?.seq} ${experiment?.overview?.state}`;
    const leaving = new AbortController();
    const read = async () => {
      seen = stamp();
      try {
        const data = await load(address, leaving.signal);
        set({ address, data });
      } catch (error) {
        if (!leaving.signal.aborted) set((before) => ({ ...before, address, error: error.message }));
      }
      timer = 0;
      if (stamp() !== seen) later();
    };
    const later = () => {
      timer ||= setTimeout(() => (document.hidden ? ((timer = 0), later()) : read()), every);
    };
    read();
    const stop = experiment?.listen(() => stamp() !== seen && later());
    return () => (leaving.abort(), clearTimeout(timer), stop?.());
  }, [address, experiment]);
  return held.address === address ? held : {};
}

/** The experiment's trials; null until they are read, or where none is given. */
function useTrials(experiment) {
  useSource(experiment);
  useEffect(() => void experiment?.wantTrials(), [experiment]);
  return experiment?.trials ?? null;
}

export { closeExperiments, experimentAt, useData, useTrials };
