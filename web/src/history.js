// The metric of every trial in the order of their numbers, and the best so far.
import { html } from "./dom.js";
import { chosen } from "./filter.js";
import { useTrials } from "./live.js";
import { Scatter, colour } from "./plot.js";
import { address, go } from "./route.js";

export function History({ experiment, route }) {
  const trials = useTrials(experiment);
  const metric = trials?.columns.get(`last/${trials.metric}`);
  if (!metric) return html`<p class="muted">${trials ? "No result yet." : "Reading the trials…"}</p>`;
  const rows = chosen(trials, route.query.get("filter")).rows;
  const index = trials.columns.get("index");
  const x = { label: "trial", at: (row) => index.at(row), name: (row) => trials.at("id", row) };
  const better = trials.mode === "max" ? (a, b) => a > b : (a, b) => a < b;
  const bestSoFar = (context, toX, toY, across, up, width) => {
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
  return html`<${Scatter} label=${`${metric.label} of each trial`} height=${220} rows=${rows} x=${x} y=${metric} xKind="linear" before=${bestSoFar}
    best=${trials.rows.get(trials.best)} onPick=${(row) => go(address(route, { view: "trial", trial: trials.at("id", row) }))} />`;
}
