// The results of chosen trials over iterations or time.
import { html, useEffect, useMemo, useRef, useSource, useState } from "../dom.js";
import { chosen } from "../filter.js";
import { count, number, whole } from "../format.js";
import { Lines, resultLines } from "../lines.js";
import { useData, useTrials } from "../live.js";
import { Check, Choice, Empty, Link, Missing } from "../parts.js";
import { hue, tall } from "../plot.js";
import { address, goTrial, setter } from "../route.js";
import { embedded } from "../source.js";
import { sorted } from "../table.js";

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

const linesOf = ({ trials, points }, byTime, best) =>
  trials.id.flatMap((id, k) => {
    const own = (column) => column.slice(trials.start[k], trials.start[k] + trials.count[k]);
    const line = { id, colour: id === best ? "var(--best)" : hue(k), strong: id === best };
    return resultLines(line, own(byTime ? points.time : points.iteration), own(points.value), own(points.void));
  });

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

/** Which line is whose, and where it has come to; a name under the pointer or the focus lights its line up. */
function Legend({ lines, metric, route, onLight }) {
  const last = (line) => line.y.findLast((value) => value !== null);
  const light = (id) => ({ onMouseEnter: () => onLight(id), onMouseLeave: () => onLight(null), onFocus: () => onLight(id), onBlur: () => onLight(null) });
  return html`<ul class="plain lines" aria-label=${`Lines, each with its last ${metric}`}>${lines.filter((line) => !line.dashed).map(
    (line) => html`<li key=${line.id}><${Link} to=${address(route, { view: "trial", trial: line.id })} ...${light(line.id)}><span class="key" style=${{ borderColor: line.colour }}>${line.id}</span><//> ${number(last(line))}${line.strong ? ", the best" : ""}</li>`,
  )}</ul>`;
}

export function Curves({ route, experiment, overview }) {
  const trials = useTrials(experiment);
  const query = route.query;
  const filter = query.get("filter");
  const ids = useMemo(() => {
    if (!filter || !trials) return null;
    const rows = chosen(trials, filter).rows;
    const value = rows.length > AT_ONCE && trials.columns.get(`last/${trials.metric}`);
    const best = value ? sorted(rows, value, trials.mode === "max") : rows;
    return [...best.slice(0, AT_ONCE)].map((row) => trials.at("id", row)).join();
  }, [filter, trials, filter ? trials?.length : 0]);
  const metric = query.get("metric") ?? overview.metric ?? overview.metrics[0];
  const wanted = !filter || embedded ? {} : { trials: ids ?? "" };
  const read = useCurves(experiment, { metric, ...wanted });
  const held = useRef(null);
  const data = (held.current = read.data ?? held.current); // what is shown stays until the other is there
  const [lit, light] = useState(null);
  const set = setter(route);
  const [byTime, log, weight] = [query.get("x") === "time", query.has("log"), Number(query.get("smooth") ?? 0)];
  const best = trials?.best;
  const lines = useMemo(() => {
    if (!data) return [];
    const chosenIds = filter && embedded && ids !== null ? new Set(ids.split(",")) : null;
    const found = linesOf(data, byTime, best).filter((line) => !chosenIds || chosenIds.has(line.id));
    const standing = new Map(found.filter((line) => !line.dashed).map((line) => [line.id, line]));
    for (const [id, iteration, time, value] of data.more) {
      const line = standing.get(id);
      const x = byTime ? time : iteration;
      if (line && !(x <= line.x.at(-1))) line.x.push(x), line.y.push(value);
    }
    return found.map((line) => ({ ...line, y: smoothed(line.y, weight).map((y) => (log && y <= 0 ? null : y)) })).sort((a, b) => (a.strong ?? false) - (b.strong ?? false));
  }, [data, data?.more.length, byTime, log, weight, ids, best]);
  if (!overview.metrics.length) return html`<${Empty}>No trial has reported a number yet.<//>`;
  if (!data) return html`<${Missing} error=${read.error} />`;
  const among = filter && trials ? chosen(trials, filter).rows.length : overview.trials;
  const drawn = new Set(lines.map((line) => line.id)).size;
  return html`<div class="tools">
      <${Choice} label="metric" value=${metric} of=${data.metrics} onChange=${set("metric")} />
      <${Choice} label="over" value=${byTime ? "time" : "iteration"} of=${["iteration", "time"]} onChange=${set("x", "iteration")} />
      <${Check} label="log scale" value=${log} onChange=${set("log")} />
      <label class="choice">smoothing <input type="range" min="0" max="0.99" step="0.01" value=${weight} onInput=${(event) => set("smooth")(Number(event.currentTarget.value))} /> <output>${weight || "off"}</output></label>
      <span class="muted">${drawn < among ? `${drawn} trials of ${whole(among)}${among > AT_ONCE ? ": the best, and what runs" : ""}` : count(drawn, "trial")}${lines.some((line) => line.dashed) ? "; dashed: void, a rollback took it back" : ""}</span>
    </div>
    ${!lines.length ? html`<${Empty}>No result to draw of these trials.<//>` : html`<${Lines} label=${`${metric} of ${lines.length} lines`} height=${tall()} lines=${lines} lit=${lit} log=${log} names=${[byTime ? "time" : "iteration", metric]} time=${byTime} onPick=${(id) => goTrial(route, id)} /><p class="muted">Drag to zoom in, double-click to see all again; a click on a line opens its trial.</p>
      <${Legend} lines=${lines} metric=${metric} route=${route} onLight=${light} />`}
    ${data.note && html`<p class="muted">${data.note}</p>`}`;
}
