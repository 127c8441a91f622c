// How the experiment stands: one look.
import { html } from "../dom.js";
import { bytes, count, duration, moment, number, whole } from "../format.js";
import { Check, Columns, Config, Empty, Facts, Link, Panel, State, TrialLink, Wrong } from "../parts.js";
import { Scatter, colour } from "../plot.js";
import { address, goTrial, setter } from "../route.js";
import { chosen, quoted } from "../filter.js";
import { useTrials } from "../live.js";

/** States along the bar: what has ended comes first. */
const ORDER = ["TERMINATED", "ERROR", "RUNNING", "PAUSED", "PENDING"];

const ended = ({ counts }) => counts.TERMINATED + counts.ERROR;

function Counts({ overview, route }) {
  const all = ORDER.map((status) => [status, overview.counts[status]]).filter(([, n]) => n);
  const sum = Math.max(overview.total ?? 0, overview.trials) || 1; // what is not created yet stays empty
  return html`<div class="bar" aria-hidden="true">${all.map(([status, n]) => html`<i class=${status} style=${{ flexGrow: n / sum }} />`)}</div>
    <ul class="plain counts">${all.map(([status, n]) => html`<li><${Link} to=${address(route, { view: "trials" }, { filter: `state = ${status}` })}>
      <${State} status=${status} said=${`${whole(n)} ${overview.words[status]}`} /><//></li>`)}</ul>`;
}

function Best({ overview, route }) {
  const best = overview.best;
  if (!best) return html`<${Empty}>${overview.metric ? `No trial has reported ${overview.metric} yet.` : "The run names no metric; tune.run(metric=, mode=) says what is best."}<//>`;
  const saved = best.checkpoint;
  return html`<p class="big"><strong>${best.said ?? number(best.value)}</strong> ${overview.metric} (${overview.mode})</p>
    <p>trial <${TrialLink} route=${route} id=${best.id} /> at iteration ${best.iteration}</p>
    <${Config} config=${best.config} label="config of the best trial" />
    <p>${saved ? html`checkpoint <code>${saved.name}</code>, ${bytes(saved.bytes)}, ${saved.copies.length ? count(saved.copies.length, "copy", "copies") : saved.here ? "only here" : "not here"}` : "It has no checkpoint."}</p>`;
}

/** What a filter leaves, and the best of it. */
function Selected({ experiment, route }) {
  const trials = useTrials(route.query.get("filter") ? experiment : null);
  if (!trials) return null;
  const { rows, error } = chosen(trials, route.query.get("filter"));
  const value = trials.columns.get(`last/${trials.metric}`);
  if (error || !value?.numeric) return null;
  const better = (a, b) => b === null || (trials.mode === "max" ? value.at(a) > value.at(b) : value.at(a) < value.at(b));
  const best = rows.reduce((so, row) => (value.at(row) !== null && better(row, so) ? row : so), null);
  return html`<p class="muted">The filter leaves ${count(rows.length, "trial")}${best === null ? "" : html`; the last ${trials.metric} is best in <${TrialLink} route=${route} id=${trials.at("id", best)} />: ${number(value.at(best))}`}.</p>`;
}

function Safety({ overview }) {
  const lost = overview.at_risk_s;
  const kept = overview.checkpoints ?? {};
  return html`<p class="big">${lost == null ? "Nothing runs that could be lost." : html`If this machine died now, you would lose <strong>${lost || overview.counts.RUNNING ? duration(lost) : "nothing that runs"}</strong>`}</p>
    <${Facts} of=${[
      overview.unsaved_s > 0 && ["if only its processes died", duration(overview.unsaved_s)],
      ["checkpoints", `${number(kept.kept)}, ${bytes(kept.bytes)}${kept.pinned ? `, ${kept.pinned} pinned` : ""}`],
      kept.to_copy > 0 && ["waiting to be copied", `${kept.to_copy}, ${bytes(kept.bytes_to_copy)}`],
      overview.disk && ["disk free", `${bytes(overview.disk.free)} of ${bytes(overview.disk.total)}`],
      overview.budget && ["budget", overview.budget.kind === "bytes" ? `${bytes(overview.budget.used)} of ${bytes(overview.budget.limit)}` : `${overview.budget.used} of ${overview.budget.limit}`],
    ]} />`;
}

/** The metric of every trial in the order of their numbers, and the best so far. */
function History({ experiment, route, metric: name }) {
  const log = route.query.has("log");
  const trials = useTrials(experiment);
  const metric = trials?.columns.get(`last/${name}`);
  if (!metric?.numeric) return html`<p class="muted">${trials ? "No result yet." : "Reading the trials…"}</p>`;
  const rows = chosen(trials, route.query.get("filter")).rows;
  const index = trials.columns.get("index");
  const x = { label: "trial", at: (row) => index.at(row), name: (row) => trials.at("id", row) };
  const better = trials.mode === "max" ? (a, b) => a > b : (a, b) => a < b;
  const bestSoFar = !trials.mode ? null : (context, toX, toY, across, up, width) => {
    let best = null;
    context.strokeStyle = colour("best");
    context.lineWidth = 2;
    context.beginPath();
    for (const row of rows) {
      const value = metric.at(row);
      if (value === null || (best !== null && !better(value, best))) continue;
      if (best === null) context.moveTo(toX(x.at(row)), toY(value));
      else context.lineTo(toX(x.at(row)), toY(best)), context.lineTo(toX(x.at(row)), toY(value));
      best = value;
    }
    if (best !== null) context.lineTo(width - 14, toY(best));
    context.stroke();
  };
  return html`<p class="legend"><${Check} label="log scale" value=${log} onChange=${setter(route)("log")} /> ${trials.mode && html`<span class="key best">best so far (${trials.mode})</span> <span class="muted">ringed: the best trial; a click on a point opens its trial</span>`}</p>
    <${Scatter} label=${`${metric.label} of each trial`} height=${220} rows=${rows} x=${x} y=${metric} yKind=${log ? "log" : "linear"} before=${bestSoFar}
    best=${trials.rows.get(trials.best)} onPick=${(row) => goTrial(route, trials.at("id", row))} />`;
}

export function Overview({ route, experiment, overview }) {
  const to = (id) => html`<${TrialLink} route=${route} id=${id} />`;
  const failures = overview.failures;
  const goes = overview.liveness === "running" || overview.at != null;
  return html`
    ${overview.error && html`<${Wrong}>${overview.error}<//>`}
    ${overview.hint?.length > 0 && html`<div class="hint">${overview.hint.map((line) => html`<p>${line}</p>`)}</div>`}
    ${!overview.trials && html`<${Empty}>No trial yet. The first one appears here by itself as soon as tune.run has made it.<//>`}
    <div class="panels">
      <${Panel} title="Progress">
        <p class="big"><strong>${whole(ended(overview))}</strong> of ${whole(overview.total ?? overview.trials)} trials ended</p>
        <${Counts} overview=${overview} route=${route} />
        <${Facts} of=${[
          ["results", number(overview.results)],
          goes && ["results per minute", number(overview.results_per_minute)],
          goes && ["time left", overview.left_said?.replace(" left", "") ?? "–"],
          overview.time_budget && ["time budget", overview.time_budget.used_s == null ? duration(overview.time_budget.limit_s) : `${duration(overview.time_budget.used_s)} of ${duration(overview.time_budget.limit_s)}`],
          goes && ["slots in use", overview.slots ? `${overview.slots.used}${overview.slots.limit ? ` of ${overview.slots.limit}` : ""}` : "–"],
          ["started", `${moment(overview.started_at)}, ran ${duration(overview.elapsed_s)}`],
        ]} />
        <${Selected} experiment=${experiment} route=${route} />
      <//>
      <${Panel} title="Best so far"><${Best} overview=${overview} route=${route} /><//>
      <${Panel} title="Safety"><${Safety} overview=${overview} /><//>
      ${overview.trials > 0 && overview.metrics.length > 0 && html`<${Panel} title=${`${overview.metric ?? overview.metrics[0]} over trials`} wide><${History} experiment=${experiment} route=${route} metric=${overview.metric ?? overview.metrics[0]} /><//>`}
      ${overview.failed > 0 && html`<${Panel} title=${`Failures: ${overview.failed}`} wide>
        <${Columns} data=${failures} label="Failures" attributes=${(row) => ({ "data-trial": failures.id[row] })} shown=${{ id: ["trial", to], at: ["when#", moment], said: ["first line"] }} />
        <p><${Link} to=${address(route, { view: "trials" }, { filter: `${quoted("state")} = ERROR` })}>all failed trials<//></p><//>`}
      ${overview.at_risk?.id?.length > 0 && html`<${Panel} title="What would be lost, by trial" wide>
        <${Columns} data=${overview.at_risk} label="What would be lost" attributes=${(row) => ({ "data-trial": overview.at_risk.id[row] })} shown=${{ id: ["trial", to], loss_s: ["work lost#", duration], newest_copy_at: ["newest copy#", (at) => (at ? moment(at) : "none")] }} /><//>`}
      ${(overview.problems?.length > 0 || overview.warnings > 0) && html`<${Panel} title="Said by the driver" wide>
        <ul>${overview.problems?.map((line) => html`<li class="wrong">${line}</li>`)}${overview.warnings > 0 && html`<li>${count(overview.warnings, "warning")}; the last: ${overview.last_warning}</li>`}</ul><//>`}
    </div>
    <p class="muted"><code>${overview.path}</code></p>`;
}
