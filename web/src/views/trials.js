// All trials: sorted, filtered, one row each.
import { html, useMemo } from "../dom.js";
import { AUTOMATIC } from "../columns.js";
import { bytes, duration, moment, number } from "../format.js";
import { chosen } from "../filter.js";
import { useTrials } from "../live.js";
import { Empty, Link, State, TrialLink } from "../parts.js";
import { address, go } from "../route.js";
import { VirtualTable, sorted } from "../table.js";

const wide = (label, least = 64) => Math.min(220, Math.max(least, 22 + label.length * 8));

function columnsOf(trials, route) {
  const at = (id, row) => trials.at(id, row);
  const plain = (id, label, width, show = number) => ({ id, label, width, number: show !== String, cell: (row) => show(at(id, row)) });
  const long = (column) => !column.numeric && { hint: (row) => String(column.at(row) ?? "").slice(0, 500) };
  const of = (column) => ({ id: column.id, label: column.label, width: wide(column.label, 96), number: column.numeric, cell: (row) => number(column.at(row)), ...long(column) });
  const goal = `last/${trials.metric}`;
  const metrics = trials.group("last").filter(({ id, label }) => id !== goal && !AUTOMATIC.has(label));
  return [
    plain("index", "#", 60),
    { id: "id", label: "trial", width: wide(String(at("id", 0)), 90), cell: (row) => html`<${TrialLink} route=${route} id=${at("id", row)} />` },
    { id: "said", label: "state", width: 250, hint: (row) => at("said", row), cell: (row) => html`<${State} status=${at("state", row)} said=${at("problem", row) ?? at("said", row)} />` },
    plain("iteration", "iteration", 84),
    ...(trials.columns.has(goal) ? [of(trials.columns.get(goal))] : []),
    ...trials.group("config").map(of),
    ...metrics.map(of),
    plain("time", "time", 96, duration),
    plain("checkpoints", "checkpoints", 106),
    plain("bytes", "size", 84, bytes),
    plain("failures", "failures", 80),
    plain("started_at", "started", 150, moment),
  ];
}

export function TrialsView({ route, experiment }) {
  const trials = useTrials(experiment);
  const filter = route.query.get("filter");
  const version = trials?.version;
  const sort = { id: route.query.get("sort")?.replace(/^-/, "") ?? "index", descending: route.query.get("sort")?.startsWith("-") ?? false };
  const columns = useMemo(() => trials && columnsOf(trials, route), [trials, trials?.columns.size, route.query.toString()]);
  const found = useMemo(() => trials && chosen(trials, filter), [trials, version, filter]);
  const rows = useMemo(() => found && sorted(found.rows, trials.columns.get(sort.id), sort.descending), [found, sort.id, sort.descending]);
  if (!trials) return html`<${Empty}>${experiment.error ?? "Reading the trials…"}<//>`;
  if (!trials.length) return html`<${Empty}>No trial yet. The first one appears here by itself as soon as tune.run has made it.<//>`;
  const attributes = (row) => {
    const id = trials.at("id", row);
    const best = id === trials.best;
    return { "data-trial": id, "data-best": best ? "" : undefined, class: trials.at("problem", row) ? "broken" : best ? "best" : "" };
  };
  const onSort = ({ id, descending }) => go(address(route, {}, { sort: (descending ? "-" : "") + id }), true);
  return html`${!rows.length && html`<${Empty}>No trial is left by this filter. <${Link} to=${address(route, {}, { filter: null })}>Show all<//><//>`}
    <${VirtualTable} label="Trials" place=${`${experiment.root}?${filter ?? ""}`} rows=${rows} columns=${columns} sort=${sort} onSort=${onSort} attributes=${attributes} />`;
}
