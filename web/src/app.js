// The page: what every view has around it, and which view is shown.
import { Component, html, render, useEffect, useMemo, useSource, useState } from "./dom.js";
import { count, moment } from "./format.js";
import { chosen } from "./filter.js";
import { experimentAt } from "./live.js";
import { Empty, Link } from "./parts.js";
import { VIEWS, address, go, useRoute } from "./route.js";
import { embedded } from "./source.js";
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
    return error ? html`<p class="wrong" role="alert">This view cannot be drawn: ${error.message}</p>` : children;
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

function Filter({ route, trials }) {
  const given = route.query.get("filter") ?? "";
  const [text, set] = useState(given);
  useEffect(() => set(given), [given]);
  const found = useMemo(() => trials && given && chosen(trials, given), [trials, trials?.version, given]);
  useEffect(() => {
    if (text === given) return;
    const timer = setTimeout(() => go(address(route, {}, { filter: text }), true), 20);
    return () => clearTimeout(timer);
  }, [text]);
  const said = !found ? "" : found.error ?? `${count(found.rows.length, "trial")} of ${trials.length.toLocaleString("en")}`;
  return html`<div class="filter">
    <input type="search" aria-label="Filter" aria-describedby="filtered" placeholder="Filter: lr > 0.01 state = ERROR" spellcheck=${false} value=${text} onInput=${(event) => set(event.currentTarget.value)} />
    <span id="filtered" role="status" class=${found?.error ? "wrong" : "muted"}>${said}</span>
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
      aria-valuetext=${at ? `fact ${stand} of ${newest}` : "now"} onInput=${(event) => set(Number(event.currentTarget.value))} onChange=${(event) => choose(Number(event.currentTarget.value))} />
    <output>${value !== null || at ? `fact ${stand} of ${newest}` : "now"}</output>
    ${at && html`<button type="button" onClick=${() => choose(newest)}>Now</button>`}
  </div>`;
}

const newestOf = new Map();

function ExperimentPage({ route }) {
  const experiment = experimentAt(route.name, route.query.get("at"));
  useSource(experiment);
  const overview = experiment.overview;
  if (overview && (overview.at == null || !newestOf.has(route.name))) newestOf.set(route.name, overview.seq);
  const View = SHOWN[route.view];
  useEffect(() => {
    document.title = `${route.view === "trial" ? route.trial : route.view} · ${route.name}`;
    document.getElementById("main")?.focus({ preventScroll: true });
  }, [route.view, route.trial, route.name]);
  return html`
    <header>
      <h1>${!embedded && html`<${Link} to="./" title="All experiments" aria-label="All experiments">≡<//> `}<${Link} to=${address(route, { view: "overview" })}>${route.name}<//>
        ${overview && html`<small class=${"live " + overview.liveness}>${overview.state}</small>`}</h1>
      <nav aria-label="Views">${VIEWS.filter((view) => !embedded || view !== "compare").map(
        (view) => html`<${Link} to=${address(route, { view })} aria-current=${view === route.view ? "page" : null}>${view}<//>`,
      )}</nav>
      <${Filter} route=${route} trials=${experiment.trials} />
      ${overview && html`<${Slider} route=${route} overview=${overview} newest=${newestOf.get(route.name)} />`}
      <${Theme} />
    </header>
    ${experiment.lost && html`<p class="banner" role="status">The connection is lost; trying again. What is shown may be old.</p>`}
    ${overview?.at != null && html`<p class="banner" role="status">As it was at fact ${overview.at}${overview.time ? `, ${moment(overview.time)}` : ""}. ${overview.history_note ?? ""}</p>`}
    <main id="main" tabindex="-1" class=${"view-" + route.view}>
      ${overview ? html`<${Guard} key=${route.view + route.trial}><${View} route=${route} experiment=${experiment} overview=${overview} /><//>` : html`<${Waiting} experiment=${experiment} />`}
    </main>`;
}

function Waiting({ experiment: { error, loading } }) {
  if (loading) return html`<${Empty}>Reading the experiment: <progress value=${loading.done} aria-label="reading" /> ${loading.said}<//>`;
  return error ? html`<p class="wrong" role="alert">${error}</p>` : html`<${Empty}>Reading…<//>`;
}

function App() {
  const route = useRoute();
  if (route.name) return html`<${ExperimentPage} key=${route.name} route=${route} />`;
  return html`<header><h1>Experiments</h1><${Theme} /></header><main id="main"><${Guard}><${Experiments} /><//></main>`;
}

render(html`<${App} />`, document.body);
