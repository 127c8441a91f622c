// What parameters have to do with the metric.
import { html, useMemo } from "../dom.js";
import { AUTOMATIC } from "../columns.js";
import { chosen } from "../filter.js";
import { number } from "../format.js";
import { useData, useTrials } from "../live.js";
import { Choice, Columns, Empty, Link, Missing, Panel, TrialLink } from "../parts.js";
import { EDGE, Scatter, Shades, map, ramp, scaleOf, tall } from "../plot.js";
import { address, goTrial, setter } from "../route.js";
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

const modeOf = (data, name) => data.goals.mode[data.goals.metric.indexOf(name)] ?? "min";

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
  const height = tall();
  const before = (context, toX, toY, across, up, width) => {
    const points = [];
    const every = Math.ceil(more.rows.length / 600);
    more.rows.forEach((row, n) => {
      const point = [across.at(x.at(row)), up.at(y.at(row)), more.shade(row)];
      if (n % every === 0 && !point.some(Number.isNaN)) points.push(point);
    });
    if (points.length < 3) return;
    const [left, low] = [EDGE.left, height - EDGE.bottom];
    const [right, high] = [width - EDGE.right, EDGE.top];
    const [wide, deep] = [right - left, low - high];
    const cell = Math.max(4, Math.sqrt((wide * deep * points.length) / 2e7));
    const [tone, at] = [ramp(), surface(points)];
    for (let i = 0; i < wide; i += cell)
      for (let j = 0; j < deep; j += cell) {
        context.fillStyle = tone(Math.round(at((i + cell / 2) / wide, 1 - (j + cell / 2) / deep) * 10) / 10);
        context.fillRect(left + i, high + j, Math.min(cell, wide - i) + 0.5, Math.min(cell, deep - j) + 0.5);
      }
  };
  return html`<${Scatter} ...${more} x=${x} y=${y} shade=${null} points="text" height=${height} before=${before} label=${`Contour over ${x.label} and ${y.label}`} />`;
}

function Importance({ importance, metric }) {
  if (!importance?.parameter.length) return html`<${Empty}>Importance needs at least two finished trials with different parameters.<//>`;
  const most = Math.max(...importance.importance);
  return html`<table aria-label="Importance" class="bars"><thead><tr><th scope="col">parameter</th><th scope="col">importance for ${metric}</th></tr></thead><tbody>${importance.parameter.map((name, n) => html`<tr><th scope="row">${name}</th>
    <td><meter max=${most} value=${importance.importance[n]} aria-label=${name} /> ${number(importance.importance[n])}</td></tr>`)}</tbody></table>
    <p class="muted">How much each parameter matters for getting among the best (PED-ANOVA); they add up to 1.</p>`;
}

function Pareto({ data, trials, rows, route, common }) {
  if (data.goals.metric.length < 2 || !data.pareto) return html`<${Empty}>A Pareto front needs two metrics: tune.run(metric=["loss", "size"], mode=["min", "min"]).<//>`;
  const [x, y] = data.goals.metric.slice(0, 2).map((name) => trials.find(name));
  const front = new Set(data.pareto.id);
  return html`<${Scatter} ...${common} rows=${rows} x=${x} y=${y} label="Pareto front" height=${tall() - 100} shade=${(row) => (front.has(trials.at("id", row)) ? 1 : 0)} />
    <p class="muted">On the front (in the strong colour): no other trial is better in both, ${data.goals.metric.slice(0, 2).map((name) => `${name} (${modeOf(data, name)})`).join(" and ")}.</p>
    <${Columns} data=${{ ...data.pareto, x: data.pareto.id, y: data.pareto.id }} label="Pareto front" attributes=${(n) => ({ "data-trial": data.pareto.id[n] })} shown=${{
      id: ["trial", (id) => html`<${TrialLink} route=${route} id=${id} />`],
      x: [x.label + "#", (id) => number(x.at(trials.rows.get(id)))], y: [y.label + "#", (id) => number(y.at(trials.rows.get(id)))],
      checkpoint: ["checkpoint", (name) => name ?? "none"] }} />`; // prettier-ignore
}

export function Parameters({ route, experiment }) {
  const trials = useTrials(experiment);
  const { data, error } = useData(experiment, experiment.address("parameters"), 5000);
  const query = route.query;
  const filter = query.get("filter");
  const rows = useMemo(() => trials && chosen(trials, filter).rows, [trials, trials?.version, filter]);
  const set = setter(route);
  const metrics = (trials?.group("last") ?? []).filter((column) => column.numeric && !AUTOMATIC.has(column.label));
  const metric = trials && (metrics.find((column) => column.label === (query.get("metric") ?? data?.metric)) ?? metrics[0]);
  const shade = useMemo(() => (metric && rows && data ? shades(metric, rows, modeOf(data, metric.label)) : () => 1), [metric, rows, data?.mode]);
  if (!trials || !data) return html`<${Missing} error=${error} />`;
  const varied = trials.group("config").filter((column) => data.domains[column.label]?.kind !== "constant");
  if (!varied.length) return html`<${Empty}>${trials.length ? "No parameter is searched." : "No trial yet."}<//>`;
  const names = varied.map((column) => column.label);
  const plot = query.get("plot") ?? "parallel";
  const drawn = plot !== "importance" && plot !== "pareto";
  const scale = query.get("scale") ?? "auto";
  const important = data.importance?.parameter.map((name) => varied.find((column) => column.label === name)).filter(Boolean) ?? [];
  const byWeight = [...new Set([...important, ...varied])];
  const everywhere = [...names, ...metrics.map((column) => column.label)];
  const x = trials.find(query.get("x") ?? byWeight[0].label);
  const y = trials.find(query.get("y") ?? (plot === "contour" ? (byWeight[1] ?? byWeight[0]).label : metric?.label ?? names[0]));
  const named = (column) => ({ label: column.label, at: (row) => column.at(row), name: (row) => trials.at("id", row) });
  const common = { best: trials.rows.get(trials.best), onPick: (row) => goTrial(route, trials.at("id", row)) };
  /** The scale of a column: as it was chosen, else as the space has it; metrics are linear. */
  const kindOf = (column) => {
    const domain = column.group === "config" ? data.domains[column.label] : null;
    if (domain?.kind === "choice" && scale !== "rank") return "category";
    return scale !== "auto" ? scale : domain?.log ? "log" : "linear";
  };
  const most = Math.max(4, Math.floor(innerWidth / 85));
  const axis = (key, value, of) => html`<${Choice} label=${key} value=${value} of=${of} onChange=${set(key)} />`;
  return html`<div class="tools"><span role="group" aria-label="Plots">${PLOTS.map((each) => html`<${Link} class="tab" to=${address(route, {}, { plot: each === "parallel" ? null : each, x: null, y: null })} aria-current=${each === plot ? "true" : null}>${each}<//> `)}</span>
      ${metrics.length > 0 && drawn && html`<${Choice} label="metric" value=${metric?.label ?? ""} of=${metrics.map((column) => column.label)} onChange=${set("metric")} />`}
      ${drawn && html`<${Choice} label="scale" value=${scale} of=${["auto", "linear", "log", "rank"]} onChange=${set("scale", "auto")} />`}
      ${plot === "scatter" && [axis("x", x.label, everywhere), axis("y", y.label, everywhere)]}
      ${plot === "contour" && [axis("x", x.label, names), axis("y", y.label, names)]}
      ${metric && drawn && html`<${Shades} metric=${metric.label} best=${plot === "parallel" ? "orange:" : "ringed:"} />`}</div>
    ${!rows.length && html`<${Empty}>No trial is left by this filter.<//>`}
    ${plot === "parallel" && html`<${Parallel} trials=${trials} rows=${rows} columns=${[...byWeight.slice(0, most), ...(metric ? [metric] : [])]} more=${byWeight.length - most} shade=${shade} best=${common.best} kindOf=${kindOf} filter=${filter} onFilter=${set("filter")} />`}
    ${plot === "scatter" && html`<${Scatter} ...${common} rows=${rows} x=${named(x)} y=${named(y)} xKind=${kindOf(x)} yKind=${kindOf(y)} shade=${shade} height=${tall()} label=${`${y.label} over ${x.label}`} />`}
    ${plot === "slice" && metric && html`${byWeight.length > 12 && html`<p class="muted">The 12 that matter most of ${byWeight.length} parameters.</p>`}<div class="panels even">${byWeight.slice(0, 12).map((column) => html`<${Panel} title=${column.label}><${Scatter} ...${common} rows=${rows} x=${named(column)} xKind=${kindOf(column)} y=${metric} yKind=${kindOf(metric)} shade=${shade} height=${220} label=${`${metric.label} over ${column.label}`} /><//>`)}</div>`}
    ${plot === "contour" && metric && html`<${Contour} ...${common} rows=${rows} x=${named(x)} y=${named(y)} xKind=${kindOf(x)} yKind=${kindOf(y)} shade=${shade} />`}
    ${plot === "importance" && html`<${Importance} importance=${data.importance} metric=${data.metric} />`}
    ${plot === "pareto" && html`<${Pareto} data=${data} trials=${trials} rows=${rows} route=${route} common=${common} />`}`;
}
