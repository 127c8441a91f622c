// One trial: what it was given, what it came to, its checkpoints, its output, why it was stopped.
import { AUTOMATIC } from "../columns.js";
import { html, useState } from "../dom.js";
import { moment, number } from "../format.js";
import { Lines, resultLines } from "../lines.js";
import { useData, useTrials } from "../live.js";
import { Answer, ForkForm, useOrders } from "../orders.js";
import { Choice, Columns, Config, Empty, Facts, Missing, Panel, State, TrialLink, Wrong } from "../parts.js";
import { address } from "../route.js";
import { embedded, load } from "../source.js";
import { Logs } from "./logs.js";
import { ON_SHELF, Shelf } from "./shelf.js";

function Results({ results, metric, metrics }) {
  const [name, choose] = useState(metrics.includes(metric) ? metric : metrics[0]);
  const values = results.values[name] ?? [];
  const lines = resultLines({ id: name, colour: "var(--high)" }, results.iteration, results.iteration.map((_, n) => (typeof values[n] === "number" ? values[n] : null)), results.void);
  const newest = results.iteration.map((_, n) => n).reverse().slice(0, 100);
  const table = { iteration: newest.map((n) => results.iteration[n]), at: newest.map((n) => results.at[n]) };
  for (const each of metrics) table["." + each] = newest.map((n) => results.values[each][n]);
  return html`<div class="tools"><${Choice} label="metric" value=${name} of=${metrics} onChange=${choose} /> ${results.void.some(Boolean) && html`<span class="muted">dashed: void, a rollback took it back</span>`}</div>
    <${Lines} label=${`${name} by iteration`} height=${230} lines=${lines} names=${["iteration", name]} />
    <details><summary>The newest ${newest.length} of ${results.iteration.length} results</summary>
      <${Columns} data=${table} label="Results" attributes=${(row) => ({ class: results.void[newest[row]] ? "gone" : "" })}
        shown=${{ iteration: ["iteration#"], at: ["reported#", moment], ...Object.fromEntries(metrics.map((each) => ["." + each, [each + "#"]])) }} /></details>`;
}

function Buttons({ trial, words, orders, onFork }) {
  const ended = trial.state === "TERMINATED" || trial.state === "ERROR";
  if (!words.includes("stop")) return html`<p class="muted">This is a copy: checkpoints are pinned and tagged here; other orders are given where the experiment runs.</p>`;
  const why = ended ? "The trial has ended" : undefined;
  const button = (name, body, off) => html`<button type="button" disabled=${off} title=${off ? (why ?? "The trial does not run") : null} onClick=${() => orders.give({ ...body, trial: trial.id })}>${name}</button> `;
  return html`<p class="tools" role="group" aria-label="Orders">
    ${button("Stop", { order: "stop" }, ended)}
    ${trial.held ? button("Go", { order: "go" }, ended) : button("Pause", { order: "pause" }, ended)}
    ${button("Save", { order: "save" }, trial.state !== "RUNNING")}
    <button type="button" disabled=${!trial.checkpoints.fate.includes("kept")} title=${trial.checkpoints.fate.includes("kept") ? null : "It has no checkpoint to start from"} onClick=${onFork}>Fork</button>
    ${trial.state === "ERROR" && button("Retry", { order: "retry" })}</p>`;
}

/** What the table says of a trial of which a report has no more. */
function Row({ route, experiment }) {
  const trials = useTrials(experiment);
  const row = trials?.rows.get(route.trial);
  if (!trials) return html`<${Missing} />`;
  if (row === undefined) return html`<${Empty}>This report has nothing of trial ${route.trial}; the page of tuner ui has.<//>`;
  const of = (group) => Object.fromEntries(trials.group(group).map((column) => [column.label, column.at(row)]).filter(([, value]) => value !== null));
  return html`<h2 class="title">Trial ${route.trial} <${State} status=${trials.at("state", row)} said=${trials.at("said", row)} /></h2>
    <div class="panels" data-trial=${route.trial}>
      <${Panel} title="Stands"><${Facts} of=${[["number", trials.at("index", row)], ["iteration", trials.at("iteration", row)], ...Object.entries(of("last")).map(([name, value]) => [name, number(value)])]} />
        <p class="muted">This report has no more of it; the page of tuner ui has.</p><//>
      <${Panel} title="Config"><${Config} config=${of("config")} /><//></div>`;
}

export function TrialPage({ route, experiment, overview }) {
  const orders = useOrders(experiment);
  const [fork, setFork] = useState(null);
  const at = experiment.address(`trial/${encodeURIComponent(route.trial)}`);
  const { data: trial, error } = useData(experiment, at, 1000);
  if (error && embedded) return html`<${Row} route=${route} experiment=${experiment} />`;
  if (!trial) return html`<${Missing} error=${error} />`;
  const may = overview.orders && !embedded && overview.at == null;
  const shelf = trial.checkpoints;
  const keptOn = ({ iteration, fate }) => iteration.filter((_, n) => fate[n] === "kept");
  const kept = keptOn(shelf);
  const metrics = Object.keys(trial.results.values).filter((name) => trial.results.values[name].some((value) => typeof value === "number") && !AUTOMATIC.has(name));
  return html`
    <h2 class="title">Trial ${trial.index}: ${trial.id} <${State} status=${trial.state} said=${trial.said} /></h2>
    ${[trial.problem, ...trial.problems].filter(Boolean).map((line) => html`<${Wrong}>${line}<//>`)}
    ${may ? html`<${Buttons} trial=${trial} words=${overview.order_words} orders=${orders} onFork=${() => setFork("newest")} /><${Answer} said=${orders.said} but=${ON_SHELF} />` : !embedded && html`<p class="muted">${overview.at != null ? "Orders are given now, not in the past." : overview.read_only ? "This page is read-only." : "Orders are given where the experiment runs."}</p>`}
    ${fork != null && html`<${ForkForm} trial=${trial.id} config=${Object.fromEntries((trial.searched.length ? trial.searched : Object.keys(trial.config)).map((key) => [key, trial.config[key]]))} iterations=${kept} iteration=${fork} newest=${() => load(at).then((now) => keptOn(now.checkpoints), () => kept).then((all) => all.at(-1))} onGive=${orders.give} onClose=${() => setFork(null)} />`}
    <div class="panels" data-trial=${trial.id}>
      <${Panel} title="State"><${Facts} of=${[
        ["iteration", trial.iteration], ["attempt", trial.attempt], trial.failures > 0 && ["failures", trial.failures],
        trial.reason && ["why it ended", trial.reason], ...Object.entries(trial.last).filter(([name]) => !AUTOMATIC.has(name)).slice(0, 12).map(([name, value]) => [name, number(value)]),
      ]} /><p class="muted"><code>${trial.path}</code></p><//>
      <${Panel} title="Config"><${Config} config=${trial.config} /><//>
      ${trial.parent && html`<${Panel} title="Differs from its parent"><p>from <${TrialLink} route=${route} id=${trial.parent.id} />, ${trial.parent.checkpoint} at iteration ${trial.parent.iteration}</p>
        ${trial.changed.key.length ? html`<${Columns} data=${trial.changed} label="Differs from its parent" shown=${{ key: ["key"], before: ["before#"], after: ["after#"] }} />` : html`<p>Its config is the same.</p>`}<//>`}
      ${trial.error && html`<${Panel} title="Error" wide><p class="wrong">${trial.error}</p>${trial.traceback && html`<details open><summary>Traceback</summary><pre tabindex="0">${trial.traceback}</pre></details>`}<//>`}
      <${Panel} title="Results" wide>${metrics.length ? html`<${Results} results=${trial.results} metric=${overview.metric} metrics=${metrics} />` : html`<${Empty}>${trial.results.iteration.length ? "No result has a number." : trial.iteration ? "Its results are not recorded any more." : "It has reported nothing yet."}<//>`}<//>
      <${Panel} title="Checkpoints" wide><${Shelf} shelf=${shelf} now=${trial.state === "RUNNING" ? overview.time : Math.max(0, ...trial.attempts.ended_at)} trial=${trial.id} orders=${may ? orders : {}} onFork=${overview.order_words?.includes("fork") && setFork} /><//>
      ${trial.decisions.at.length > 0 && html`<${Panel} title="Decisions" wide><${Columns} data=${trial.decisions} label="Decisions" shown=${{ at: ["when#", moment], iteration: ["iteration#"], then: ["then"], by: ["by"], value: ["value#"], rank: ["rank#", (rank, n) => (rank == null ? "–" : `${rank} of ${trial.decisions.of[n] ?? "?"}`)], cut: ["cut#"], said: ["why"] }} /><//>`}
      <${Panel} title="Attempts" wide><${Columns} data=${trial.attempts} label="Attempts" shown=${{ number: ["attempt#"], started_at: ["started#", moment], ended_at: ["ended#", moment], iteration: ["began after iteration#"], from: ["from"], why: ["why it ended", (why) => why ?? "–"], error: ["error", (first) => first ?? ""] }} /><//>
      ${trial.orders?.id?.length > 0 && html`<${Panel} title="Orders" wide><${Columns} data=${trial.orders} label="Orders" shown=${{ word: ["order"], at_: ["given#", moment], state: ["state"], why: ["why", (why) => why ?? ""] }} /><//>`}
      ${trial.notes.text.length > 0 && html`<${Panel} title="Notes" wide><${Columns} data=${trial.notes} label="Notes" shown=${{ at: ["when#", moment], text: ["note"] }} /><//>`}
      ${!embedded && trial.files.name.length > 0 && html`<${Panel} title="Output" wide>${trial.files_note && html`<p class="muted">${trial.files_note}</p>`}<${Logs} files=${trial.files} follow=${trial.state === "RUNNING" && overview.at == null} /><//>`}
    </div>`; // prettier-ignore
}
