// The results of chosen trials over iterations or time.
import { html, useEffect, useMemo, useSource, useState } from "../dom.js";
import { chosen } from "../filter.js";
import { duration, number } from "../format.js";
import { Lines } from "../lines.js";
import { useData, useTrials } from "../live.js";
import { Check, Choice, Empty } from "../parts.js";
import { hue } from "../plot.js";
import { address, go } from "../route.js";
import { embedded } from "../source.js";

const AT_ONCE = 50;

/** An exponential moving average without its start's bias; what is no number stays out. */
function smoothed(values, weight) {
  let [mean, sum] = [0, 0];
  return values.map((value) => {
    if (value === null || !weight) return value;
    mean = mean * weight + value * (1 - weight);
    sum = sum * weight + 1 - weight;
    return mean / sum;
  });
}

/** One line: a trial's results that stand, or those that a rollback made void. */
function linesOf({ trials, points }, byTime) {
  const lines = [];
  trials.id.forEach((id, k) => {
    for (const gone of [0, 1]) {
      const [x, y] = [[], []];
      for (let at = trials.start[k]; at < trials.start[k] + trials.count[k]; at++) {
        if ((points.void[at] ? 1 : 0) !== gone) continue;
        x.push((byTime ? points.time : points.iteration)[at]);
        y.push(points.value[at]);
      }
      if (x.length) lines.push({ id, colour: hue(k), dashed: gone === 1, x, y });
    }
  });
  return lines;
}

/** The newest results of events join the points that were read. */
function useCurves(experiment, query) {
  const at = experiment.address("curves", query);
  const { data, error } = useData(experiment, at, 4000);
  useSource(experiment);
  const [, again] = useState(0);
  const grown = useMemo(() => (data ? { ...data, more: [] } : null), [data]);
  useEffect(() => {
    if (!grown) return;
    const shown = new Set(grown.trials.id);
    const follow = ({ seq, results }) => {
      if (!results || seq <= grown.seq) return;
      const values = results.values?.[grown.metric];
      results.id.forEach((id, n) => shown.has(id) && values?.[n] !== undefined && grown.more.push([id, results.iteration[n], results.time[n], values[n]]));
      again((n) => n + 1);
    };
    experiment.followers.add(follow);
    return () => experiment.followers.delete(follow);
  }, [grown]);
  return { data: grown, error };
}

export function Curves({ route, experiment, overview }) {
  const trials = useTrials(experiment);
  const query = route.query;
  const filter = query.get("filter");
  const ids = useMemo(() => {
    if (!filter || !trials) return null;
    const rows = chosen(trials, filter).rows;
    return [...rows.slice(0, AT_ONCE)].map((row) => trials.at("id", row)).join();
  }, [filter, trials, filter ? trials?.length : 0]);
  const metric = query.get("metric") ?? overview.metric ?? overview.metrics[0];
  const wanted = !filter || embedded ? {} : { trials: ids ?? "" };
  const { data, error } = useCurves(experiment, { metric, ...wanted });
  const set = (key) => (value) => go(address(route, {}, { [key]: value === true ? 1 : value === false ? null : value }), true);
  const [byTime, log, weight] = [query.get("x") === "time", query.has("log"), Number(query.get("smooth") ?? 0)];
  const lines = useMemo(() => {
    if (!data) return [];
    const chosenIds = filter && embedded && ids !== null ? new Set(ids.split(",")) : null;
    const found = linesOf(data, byTime).filter((line) => !chosenIds || chosenIds.has(line.id));
    const standing = new Map(found.filter((line) => !line.dashed).map((line) => [line.id, line]));
    for (const [id, iteration, time, value] of data.more) {
      const line = standing.get(id);
      const x = byTime ? time : iteration;
      if (line && !(x <= line.x.at(-1))) line.x.push(x), line.y.push(value);
    }
    return found.map((line) => ({ ...line, y: smoothed(line.y, weight).map((y) => (log && y <= 0 ? null : y)) }));
  }, [data, data?.more.length, byTime, log, weight, ids]);
  if (!overview.metrics.length) return html`<${Empty}>No trial has reported a number yet.<//>`;
  if (error) return html`<p class="wrong" role="alert">${error}</p>`;
  const names = data?.metrics ?? overview.metrics;
  return html`<div class="tools">
      ${!embedded && html`<${Choice} label="metric" value=${metric} of=${names} onChange=${set("metric")} />`}
      <${Choice} label="over" value=${byTime ? "time" : "iteration"} of=${["iteration", "time"]} onChange=${(value) => set("x")(value === "time" ? value : null)} />
      <${Check} label="log scale" value=${log} onChange=${set("log")} />
      <label class="choice">smoothing <input type="range" min="0" max="0.99" step="0.01" value=${weight} onInput=${(event) => set("smooth")(Number(event.currentTarget.value) || null)} /></label>
      <span class="muted" role="status">${data?.trials.id.length ?? 0} trials${lines.some((line) => line.dashed) ? "; dashed: void after a rollback" : ""}</span>
    </div>
    ${!data ? html`<${Empty}>Reading…<//>` : !lines.length ? html`<${Empty}>No result to draw of these trials.<//>` : html`<${Lines} label=${`${metric} of ${lines.length} lines`} height=${Math.max(300, Math.min(760, innerHeight - 150))} lines=${lines} log=${log} names=${[byTime ? "time" : "iteration", metric]}
      xText=${byTime ? duration : number} onPick=${(id) => go(address(route, { view: "trial", trial: id }))} />`}
    ${data?.note && html`<p class="muted">${data.note}</p>`}`;
}
