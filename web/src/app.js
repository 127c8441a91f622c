// The page: what every view has around it, and which view is shown.
import { Component, html, render, useEffect, useMemo, useSource, useState } from "./dom.js";
import { count, moment, whole } from "./format.js";
import { chosen } from "./filter.js";
import { closeExperiments, experimentAt } from "./live.js";
import { Empty, Link, Missing, Wrong } from "./parts.js";
import { VIEWS, address, go, useRoute } from "./route.js";
import { embedded, load } from "./source.js";
import { Experiments } from "./views/experiments.js";
import { Overview } from "./views/overview.js";
import { TrialsView } from "./views/trials.js";
import { Curves } from "./views/curves.js";
import { Parameters } from "./views/parameters.js";
import { TrialPage } from "./views/trial.js";
import { Lineage } from "./views/lineage.js";
import { Machines } from "./views/machines.js";
import { Compare } from "./views/compare.js";

const SHOWN = { overview: Overview, trials: TrialsView, curves: Curves, parameters: Parameters, trial: TrialPage, lineage: Lineage, machines: Machines, compare: Compare };

/** What goes wrong in a view is said in its place; the others stay. */
class Guard extends Component {
  componentDidCatch(error) {
    this.setState({ error });
  }
  render({ children }, { error }) {
    return error ? html`<${Wrong}>This view cannot be drawn: ${error.message}<//>` : children;
  }
}

function Theme() {
  const [theme, set] = useState(() => remembered());
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem("theme", theme);
    } catch {
      // A sandboxed frame has no storage.
    }
    dispatchEvent(new Event("theme"));
  }, [theme]);
  const next = { auto: "light", light: "dark", dark: "auto" }[theme];
  return html`<button type="button" class="theme" title=${`colours: ${theme}`} aria-label=${`Colours: ${theme}, change to ${next}`} onClick=${() => set(next)}>${{ auto: "◐", light: "☀", dark: "☾" }[theme]}</button>`;
}

function remembered() {
  try {
    return localStorage.getItem("theme") ?? "auto";
  } catch {
    return "auto";
  }
}

/** Told to a screen reader once typing has come to rest; what a run changes by itself is not. */
function useSaid(text, key) {
  const [said, say] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => say(text), 700);
    return () => clearTimeout(timer);
  }, [key, !text]);
  return said;
}

function Filter({ route, trials }) {
  const given = route.query.get("filter") ?? "";
  const [text, set] = useState(given);
  useEffect(() => set(given), [given]);
  const found = useMemo(() => trials && given && chosen(trials, given), [trials, trials?.version, given]);
  const typed = ({ currentTarget: { value } }) => (set(value), go(address(route, {}, { filter: value }), true));
  const said = !found ? "" : found.error ?? `${count(found.rows.length, "trial")} of ${whole(trials.length)}`;
  return html`<div class="filter">
    <input type="search" aria-label="Filter" aria-describedby="filtered" placeholder="Filter: lr > 0.01 state = ERROR" spellcheck=${false} value=${text} onInput=${typed} />
    <span id="filtered" class=${found?.error ? "wrong" : "muted"}>${said}</span>
    <span class="unseen" role="status">${useSaid(said, given)}</span>
    ${given && html`<button type="button" onClick=${() => go(address(route, {}, { filter: null }), true)}>Clear</button>`}
  </div>`;
}

/** A slider over the journal; its right end is now. */
function Slider({ route, overview, newest }) {
  const at = route.query.get("at");
  const [value, set] = useState(null);
  useEffect(() => set(null), [at]);
  if (embedded || !newest) return null;
  const first = overview.first_seq ?? 0;
  const stand = value ?? Number(at ?? newest);
  const choose = (seq) => go(address(route, {}, { at: seq >= newest ? null : seq }));
  return html`<div class="slider">
    <input type="range" aria-label="Moment" min=${first} max=${newest} value=${stand} title=${overview.history_note ?? "the experiment as it was at a fact of its journal"}
      aria-valuetext=${value !== null || at ? `fact ${stand} of ${newest}` : "now"} onInput=${(event) => set(Number(event.currentTarget.value))} onChange=${(event) => choose(Number(event.currentTarget.value))} />
    <output>${value !== null || at ? `fact ${whole(stand)} of ${whole(newest)}` : "now"}</output>
    ${first > 1 && html`<span title=${overview.history_note}>begins at ${whole(first)}</span>`}
    ${at && html`<button type="button" onClick=${() => choose(newest)}>Now</button>`}
  </div>`;
}

const newestOf = new Map();

/** The newest fact; of a page that was opened in the past the server is asked once. */
function useNewest({ name, root }, overview) {
  const [, again] = useState(0);
  if (overview && overview.at == null) newestOf.set(name, overview.seq);
  const missing = Boolean(overview) && !newestOf.has(name);
  useEffect(() => {
    if (missing && !embedded) load(`${root}overview.json`).then((now) => (newestOf.set(name, now.seq), again((n) => n + 1)), () => {});
  }, [missing, name]);
  return newestOf.get(name);
}

const CREDENTIAL = "This browser has not, or no longer, the token: open the address that tuner ui has printed.";

function ExperimentPage({ route }) {
  const experiment = experimentAt(route.name, route.query.get("at"));
  useSource(experiment);
  const overview = experiment.overview;
  const newest = useNewest(experiment, overview);
  const View = SHOWN[route.view];
  useEffect(() => {
    document.title = `${route.view === "trial" ? route.trial : route.view} · ${route.name}`;
    if (loaded) document.getElementById("main")?.focus({ preventScroll: true });
  }, [route.view, route.trial, route.name]);
  return html`
    <a class="skip" href="#main" onClick=${toMain}>Skip to the content</a>
    <header>
      <h1>${!embedded && html`<${Link} to="./" title="All experiments" aria-label="All experiments">≡<//> `}<${Link} to=${address(route, { view: "overview" })}>${route.name}<//>
        ${overview && html`<small class=${"live " + overview.liveness}>${overview.state}</small>`}</h1>
      <nav aria-label="Views">${VIEWS.filter((view) => !embedded || view !== "compare").map(
        (view) => html`<${Link} to=${address(route, { view })} aria-current=${view === route.view ? "page" : null}>${view}<//>`,
      )}</nav>
      <${Filter} route=${route} trials=${experiment.trials} />
      ${overview && html`<${Slider} route=${route} overview=${overview} newest=${newest} />`}
      <${Theme} />
    </header>
    ${experiment.lost && html`<p class="banner" role="status">${experiment.status === 403 ? CREDENTIAL : "The connection is lost; trying again. What is shown may be old."}</p>`}
    ${overview?.trouble && html`<p class="banner" role="status">It cannot be read now: ${overview.trouble}. What is shown is what was read before.</p>`}
    ${embedded && overview && html`<${Report} overview=${overview} />`}
    ${overview?.at != null && html`<p class="banner" role="status">As it was at fact ${overview.at}${overview.time ? `, ${moment(overview.time)}` : ""}. ${overview.history_note ?? ""}</p>`}
    <main id="main" tabindex="-1" class=${"view-" + route.view}>
      ${overview ? html`<${Guard} key=${route.view + route.trial}><${View} route=${route} experiment=${experiment} overview=${overview} /><//>` : html`<${Waiting} experiment=${experiment} />`}
    </main>`;
}

/** When a report was written, and what it lacks. */
function Report({ overview: { time, left_out: lacks = [] } }) {
  return html`<div class="banner">${lacks.length ? html`<details><summary>As it was at ${moment(time)}; a part of it is left out.</summary><ul>${lacks.map((line) => html`<li>${line}</li>`)}</ul></details>` : html`As it was at ${moment(time)}.`}</div>`;
}

function toMain(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function Waiting({ experiment: { error, loading, status } }) {
  if (loading) return html`<${Empty}>Reading the experiment: <progress value=${loading.done} aria-label="reading" /> ${loading.said}<//>`;
  return html`<${Missing} error=${status === 403 ? CREDENTIAL : error} />${error && html`<p><${Link} to="./">All experiments of this server<//></p>`}`;
}

/** Whether a view was shown already: a page that has just been loaded begins at its beginning, later views at their content. */
let loaded = false;

function App() {
  const route = useRoute();
  useEffect(() => void (loaded = true), []);
  useEffect(() => void (route.name || closeExperiments()), [route.name]);
  if (route.name) return html`<${ExperimentPage} key=${route.name} route=${route} />`;
  return html`<a class="skip" href="#main" onClick=${toMain}>Skip to the content</a><header><h1>Experiments</h1><${Theme} /></header><main id="main" tabindex="-1"><${Guard}><${Experiments} /><//></main>`;
}

render(html`<${App} />`, document.body);
