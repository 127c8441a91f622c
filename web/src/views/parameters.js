// What parameters have to do with the metric.
import { html, useMemo } from "../dom.js";
import { chosen } from "../filter.js";
import { number } from "../format.js";
import { useData, useTrials } from "../live.js";
import { Check, Choice, Columns, Empty, Link, Panel } from "../parts.js";
import { Scatter, map, natural, ramp, scaleOf } from "../plot.js";
import { address, go } from "../route.js";
import { Parallel } from "./parallel.js";

const PLOTS = ["parallel", "scatter", "slice", "contour", "importance", "pareto"];

/** 0 for the worst, 1 for the best, by rank, so that one wild value does not make all others alike. */
function shades(column, rows, mode) {
  const scale = scaleOf(map(rows, column), "rank");
  return (row) => {
    const share = scale.at(column.at(row));
    return mode === "max" ? share : 1 - share;
  };
}

/** Between the points: the mean of all values, weighted by nearness (Shepard 1968, power 4). */
function surface(points) {
  return (x, y) => {
    let [sum, weights] = [0, 0];
    for (const [px, py, value] of points) {
      const near = 1 / (((px - x) ** 2 + (py - y) ** 2) ** 2 + 1e-7);
      sum += near * value;
      weights += near;
    }
    return sum / weights;
  };
}

function Contour({ x, y, ...more }) {
  const before = (context, toX, toY, across, up) => {
    const points = [];
    const every = Math.ceil(more.rows.length / 600);
    more.rows.forEach((row, n) => {
      const point = [across.at(x.at(row)), up.at(y.at(row)), more.shade(row)];
      if (n % every === 0 && !point.some(Number.isNaN)) points.push(point);
    });
    if (points.length < 3) return;
    const [left, right, low, high] = [toX(across.value(0)), toX(across.value(1)), toY(up.value(0)), toY(up.value(1))];
    const [tone, at, n] = [ramp(), surface(points), 40];
    const [wide, tall] = [(right - left) / n, (low - high) / n];
    for (let i = 0; i < n; i++)
      for (let j = 0; j < n; j++) {
        context.fillStyle = tone(Math.round(at((i + 0.5) / n, (j + 0.5) / n) * 10) / 10);
        context.fillRect(left + i * wide, low - (j + 1) * tall, wide + 0.6, tall + 0.6);
      }
  };
  return html`<${Scatter} ...${more} x=${x} y=${y} shade=${null} points="text" height=${420} before=${before} label=${`Contour over ${x.label} and ${y.label}`} />`;
}

function Importance({ importance, metric }) {
  if (!importance?.parameter.length) return html`<${Empty}>Importance needs at least two finished trials with different parameters.<//>`;
  const most = Math.max(...importance.importance);
  return html`<table aria-label="Importance" class="bars"><thead><tr><th scope="col">parameter</th><th scope="col">importance for ${metric}</th></tr></thead><tbody>${importance.parameter.map((name, n) => html`<tr><th scope="row">${name}</th>
    <td><meter max=${most} value=${importance.importance[n]} /> ${number(importance.importance[n])}</td></tr>`)}</tbody></table>`;
}

function Pareto({ data, trials, rows, route, common }) {
  if (data.goals.length < 2 || !data.pareto) return html`<${Empty}>A Pareto front needs two metrics: tune.run(metric=["loss", "size"], mode=["min", "min"]).<//>`;
  const [x, y] = data.goals.slice(0, 2).map((goal) => trials.find(goal.metric));
  const front = new Set(data.pareto.id);
  return html`<${Scatter} ...${common} rows=${rows} x=${x} y=${y} label="Pareto front" height=${400} shade=${(row) => (front.has(trials.at("id", row)) ? 1 : 0.1)} />
    <${Columns} data=${{ ...data.pareto, x: data.pareto.id, y: data.pareto.id }} label="Pareto front" attributes=${(n) => ({ "data-trial": data.pareto.id[n] })} shown=${{
      id: ["trial", (id) => html`<${Link} to=${address(route, { view: "trial", trial: id })}>${id}<//>`],
      x: [x.label + "#", (id) => number(x.at(trials.rows.get(id)))], y: [y.label + "#", (id) => number(y.at(trials.rows.get(id)))],
      checkpoint: ["checkpoint", (name) => name ?? "none"] }} />`; // prettier-ignore
}

export function Parameters({ route, experiment }) {
  const trials = useTrials(experiment);
  const { data, error } = useData(experiment, experiment.address("parameters"), 5000);
  const query = route.query;
  const filter = query.get("filter");
  const rows = useMemo(() => trials && chosen(trials, filter).rows, [trials, trials?.version, filter]);
  const set = (key) => (value) => go(address(route, {}, { [key]: value === true ? 1 : value === false ? null : value }), true);
  const metric = trials?.find(query.get("metric") ?? data?.metric ?? "");
  const shade = useMemo(() => (metric && rows ? shades(metric, rows, query.get("metric") && query.get("metric") !== data.metric ? "min" : data.mode) : () => 1), [metric, rows, data?.mode]);
  if (error) return html`<p class="wrong" role="alert">${error}</p>`;
  if (!trials || !data) return html`<${Empty}>Reading…<//>`;
  const varied = trials.group("config").filter((column) => data.domains[column.label]?.kind !== "constant");
  if (!varied.length) return html`<${Empty}>${trials.length ? "No parameter is searched." : "No trial yet."}<//>`;
  const names = varied.map((column) => column.label);
  const plot = query.get("plot") ?? "parallel";
  const important = data.importance?.parameter.map((name) => varied.find((column) => column.label === name)).filter(Boolean) ?? [];
  const byWeight = [...new Set([...important, ...varied])];
  const metrics = trials.group("last").filter((column) => column.numeric);
  const everywhere = [...names, ...metrics.map((column) => column.label)];
  const x = trials.find(query.get("x") ?? byWeight[0].label);
  const y = trials.find(query.get("y") ?? (plot === "contour" ? (byWeight[1] ?? byWeight[0]).label : metric?.label ?? names[0]));
  const named = (column) => ({ label: column.label, at: (row) => column.at(row), name: (row) => trials.at("id", row) });
  const common = { best: trials.rows.get(trials.best), onPick: (row) => go(address(route, { view: "trial", trial: trials.at("id", row) })) };
  const axis = (key, value, of) => html`<${Choice} label=${key} value=${value} of=${of} onChange=${set(key)} />`;
  return html`<div class="tools"><span role="group" aria-label="Plots">${PLOTS.map((each) => html`<${Link} class="tab" to=${address(route, {}, { plot: each === "parallel" ? null : each, x: null, y: null })} aria-current=${each === plot ? "true" : null}>${each}<//> `)}</span>
      ${metrics.length > 0 && plot !== "importance" && plot !== "pareto" && html`<${Choice} label="metric" value=${metric?.label ?? ""} of=${metrics.map((column) => column.label)} onChange=${set("metric")} />`}
      ${plot === "parallel" && html`<${Check} label="by rank" value=${query.has("rank")} onChange=${set("rank")} />`}
      ${plot === "scatter" && [axis("x", x.label, everywhere), axis("y", y.label, everywhere)]}
      ${plot === "contour" && [axis("x", x.label, names), axis("y", y.label, names)]}</div>
    ${!rows.length && html`<${Empty}>No trial is left by this filter.<//>`}
    ${plot === "parallel" && html`<${Parallel} trials=${trials} rows=${rows} columns=${[...byWeight.slice(0, 14), ...(metric ? [metric] : [])]} shade=${shade} best=${common.best} rank=${query.has("rank")} filter=${filter} onFilter=${set("filter")} />`}
    ${plot === "scatter" && html`<${Scatter} ...${common} rows=${rows} x=${named(x)} y=${named(y)} yKind=${natural(map(rows, y))} shade=${shade} height=${440} label=${`${y.label} over ${x.label}`} />`}
    ${plot === "slice" && metric && html`<div class="panels">${byWeight.slice(0, 12).map((column) => html`<${Panel} title=${column.label}><${Scatter} ...${common} rows=${rows} x=${named(column)} y=${metric} shade=${shade} height=${220} label=${`${metric.label} over ${column.label}`} /><//>`)}</div>`}
    ${plot === "contour" && metric && html`<${Contour} ...${common} rows=${rows} x=${named(x)} y=${named(y)} shade=${shade} />`}
    ${plot === "importance" && html`<${Importance} importance=${data.importance} metric=${data.metric} />`}
    ${plot === "pareto" && html`<${Pareto} data=${data} trials=${trials} rows=${rows} route=${route} common=${common} />`}`;
}
