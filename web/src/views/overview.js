// How the experiment stands: one look.
import { html } from "../dom.js";
import { bytes, count, duration, moment, number } from "../format.js";
import { Columns, Config, Empty, Facts, Link, Panel, State } from "../parts.js";
import { address } from "../route.js";
import { quoted } from "../filter.js";
import { History } from "../history.js";

function Counts({ overview, route }) {
  const all = Object.entries(overview.counts).filter(([, n]) => n);
  const sum = all.reduce((so, [, n]) => so + n, 0) || 1;
  return html`<div class="bar" aria-hidden="true">${all.map(([status, n]) => html`<i class=${status} style=${{ flexGrow: n / sum }} />`)}</div>
    <ul class="plain counts">${all.map(([status, n]) => html`<li><${Link} to=${address(route, { view: "trials" }, { filter: `state = ${status}` })}>
      <${State} status=${status} said=${`${n.toLocaleString("en")} ${overview.words[status]}`} /><//></li>`)}</ul>`;
}

function Best({ overview, route }) {
  const best = overview.best;
  if (!best) return html`<${Empty}>${overview.metric ? `No trial has reported ${overview.metric} yet.` : "The run names no metric; tune.run(metric=, mode=) says what is best."}<//>`;
  const saved = best.checkpoint;
  return html`<p class="big"><strong>${number(best.value)}</strong> ${overview.metric} (${overview.mode})</p>
    <p>trial <${Link} to=${address(route, { view: "trial", trial: best.id })}>${best.id}<//> at iteration ${best.iteration}</p>
    <${Config} config=${best.config} label="config of the best trial" />
    <p>${saved ? html`checkpoint <code>${saved.name}</code>, ${bytes(saved.bytes)}, ${saved.copies.length ? count(saved.copies.length, "copy", "copies") : saved.here ? "only here" : "not here"}` : "It has no checkpoint."}</p>`;
}

function Safety({ overview }) {
  const lost = overview.at_risk_s;
  const kept = overview.checkpoints ?? {};
  return html`<p class="big">${lost == null ? "Nothing runs that could be lost." : html`If this machine died now, you would lose <strong>${duration(lost)}</strong>`}</p>
    <${Facts} of=${[
      overview.unsaved_s != null && ["if only its processes died", duration(overview.unsaved_s)],
      ["checkpoints", `${number(kept.kept)}, ${bytes(kept.bytes)}${kept.pinned ? `, ${kept.pinned} pinned` : ""}`],
      kept.to_copy > 0 && ["waiting to be copied", `${kept.to_copy}, ${bytes(kept.bytes_to_copy)}`],
      overview.disk && ["disk free", `${bytes(overview.disk.free)} of ${bytes(overview.disk.total)}`],
      overview.budget && ["budget", overview.budget.kind === "bytes" ? `${bytes(overview.budget.used)} of ${bytes(overview.budget.limit)}` : `${overview.budget.used} of ${overview.budget.limit}`],
    ]} />`;
}

export function Overview({ route, experiment, overview }) {
  const to = (id) => html`<${Link} to=${address(route, { view: "trial", trial: id })}>${id}<//>`;
  const failures = overview.failures;
  return html`
    ${overview.error && html`<p class="wrong" role="alert">${overview.error}</p>`}
    ${overview.hint?.length > 0 && html`<div class="hint">${overview.hint.map((line) => html`<p>${line}</p>`)}</div>`}
    ${!overview.trials && html`<${Empty}>No trial yet. The first one appears here by itself when it starts.<//>`}
    <div class="panels">
      <${Panel} title="Progress">
        <p class="big"><strong>${overview.trials.toLocaleString("en")}</strong>${overview.total ? ` of ${overview.total.toLocaleString("en")}` : ""} trials</p>
        <${Counts} overview=${overview} route=${route} />
        <${Facts} of=${[
          ["results", number(overview.results)],
          ["results per minute", number(overview.results_per_minute)],
          ["time left", overview.left_s == null ? "–" : `about ${duration(overview.left_s)}`],
          ["slots in use", overview.slots ? `${overview.slots.used}${overview.slots.limit ? ` of ${overview.slots.limit}` : ""}` : "–"],
          ["started", `${moment(overview.started_at)}, ran ${duration(overview.elapsed_s)}`],
        ]} />
      <//>
      <${Panel} title="Best so far"><${Best} overview=${overview} route=${route} /><//>
      <${Panel} title="Safety"><${Safety} overview=${overview} /><//>
      ${overview.metric && html`<${Panel} title=${`${overview.metric} over trials`} wide><${History} experiment=${experiment} route=${route} /><//>`}
      ${overview.failed > 0 && html`<${Panel} title=${`Failures: ${overview.failed}`} wide>
        <${Columns} data=${failures} label="Failures" attributes=${(row) => ({ "data-trial": failures.id[row] })} shown=${{ id: ["trial", to], at: ["when#", moment], said: ["first line"] }} />
        <p><${Link} to=${address(route, { view: "trials" }, { filter: `${quoted("state")} = ERROR` })}>all failed trials<//></p><//>`}
      ${overview.at_risk?.id?.length > 0 && html`<${Panel} title="What would be lost, by trial" wide>
        <${Columns} data=${overview.at_risk} label="What would be lost" shown=${{ id: ["trial", to], loss_s: ["work lost#", duration], newest_copy_at: ["newest copy#", (at) => (at ? moment(at) : "none")] }} /><//>`}
      ${(overview.problems?.length > 0 || overview.warnings > 0) && html`<${Panel} title="Said by the driver" wide>
        <ul>${overview.problems?.map((line) => html`<li class="wrong">${line}</li>`)}${overview.warnings > 0 && html`<li>${count(overview.warnings, "warning")}; the last: ${overview.last_warning}</li>`}</ul><//>`}
    </div>
    <p class="muted"><code>${overview.path}</code></p>`;
}
