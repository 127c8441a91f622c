// Which trial continued from which: lanes over time, and a curve from the donor to who took its checkpoint.
import { html, useMemo, useState } from "../dom.js";
import { chosen } from "../filter.js";
import { duration, moment, number } from "../format.js";
import { useData, useTrials } from "../live.js";
import { Choice, Columns, Empty, Link, Panel, State } from "../parts.js";
import { cut } from "../plot.js";
import { address, go } from "../route.js";

const [LANE, MOST, LEFT] = [24, 300, 130];

/** Each trial below the one it first came from. */
function ordered(nodes, edges) {
  const below = new Map();
  const placed = new Set();
  edges.child.forEach((child, n) => {
    const parent = edges.parent[n];
    if (parent === child || placed.has(child)) return;
    placed.add(child);
    below.set(parent, [...(below.get(parent) ?? []), child]);
  });
  const order = [];
  const seen = new Set();
  const walk = (first) => {
    const waiting = [[first, 0]];
    while (waiting.length) {
      const [id, depth] = waiting.pop();
      if (seen.has(id)) continue;
      seen.add(id);
      order.push({ id, depth });
      for (const child of (below.get(id) ?? []).toReversed()) waiting.push([child, depth + 1]);
    }
  };
  nodes.id.filter((id) => !placed.has(id)).forEach(walk);
  nodes.id.forEach(walk); // of circles, where each took something of the other
  return order;
}

function Tree({ lanes, nodes, edges, span, chosenId, onChoose }) {
  const row = new Map(lanes.map(({ id }, n) => [id, n]));
  const at = new Map(nodes.id.map((id, n) => [id, n]));
  const width = 900;
  const x = (value) => LEFT + ((value - span.low) / (span.high - span.low || 1)) * (width - LEFT - 110);
  const y = (id) => row.get(id) * LANE + LANE / 2;
  const press = (id) => ({ onClick: () => onChoose(id), onKeyDown: (event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), onChoose(id)) });
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Lineage"><svg class="tree" viewBox=${`0 0 ${width} ${lanes.length * LANE}`} width=${width} height=${lanes.length * LANE} role="group" aria-label="Lineage of trials">
    ${lanes.map(({ id, depth }) => {
      const n = at.get(id);
      const [from, to] = span.of(id);
      return html`<g key=${id} data-trial=${id} class=${"node " + nodes.state[n] + (id === chosenId ? " chosen" : "")} tabindex="0" role="button" aria-label=${`trial ${id}, ${nodes.said[n]}`} ...${press(id)}>
        <rect class="back" x="0" y=${y(id) - LANE / 2} width=${width} height=${LANE} />
        <text x=${8 + Math.min(depth, 5) * 8} y=${y(id) + 4}>${cut(id, 14)}</text>
        <line x1=${x(from)} x2=${Math.max(x(to), x(from) + 2)} y1=${y(id)} y2=${y(id)} />
        <circle cx=${x(from)} cy=${y(id)} r="4" /><text class="value" x=${width - 100} y=${y(id) + 4}>${number(nodes.value[n])}</text></g>`;
    })}
    ${edges.child.map((child, n) => {
      const parent = edges.parent[n];
      if (!row.has(child) || !row.has(parent)) return null;
      const here = x(span.when(n));
      const back = Math.max(LEFT, here - 18);
      const path = parent === child ? `M${here} ${y(child) - 6}v12` : `M${back} ${y(parent)}C${here} ${y(parent)} ${back} ${y(child)} ${here} ${y(child)}`;
      return html`<path class=${"edge " + edges.kind[n]} d=${path}><title>${edges.kind[n]}: ${child} from ${parent}, iteration ${edges.iteration[n]}</title></path>`;
    })}
  </svg></div>`;
}

function Story({ id, edges, schedules, route }) {
  const own = edges.child.map((child, n) => (child === id ? n : -1)).filter((n) => n >= 0);
  const plan = schedules[id];
  return html`<${Panel} title=${`Trial ${id}`}>
    <p><${Link} to=${address(route, { view: "trial", trial: id })}>Open it<//></p>
    ${!own.length && html`<p>It started by itself.</p>`}
    ${own.map((n) => html`<h3>${edges.kind[n]} at iteration ${edges.iteration[n]}${edges.parent[n] !== id ? html` from <code>${edges.parent[n]}</code>` : ""}</h3>
      <p class="muted">${edges.checkpoint[n] ?? ""} ${edges.at[n] ? moment(edges.at[n]) : ""}</p>
      ${edges.changed[n]?.length ? html`<table aria-label="What changed"><thead><tr><th scope="col">key</th><th scope="col" class="n">before</th><th scope="col" class="n">after</th></tr></thead><tbody>${edges.changed[n].map(
        ([key, before, after]) => html`<tr><th scope="row">${key}</th><td class="n">${number(before)}</td><td class="n">${number(after)}</td></tr>`)}</tbody></table>` : html`<p>The config stayed as it was.</p>`}`)}
    ${plan && html`<h3>Its schedule, to replay</h3><pre tabindex="0">${JSON.stringify(plan, null, 1)}</pre>`}
  <//>`;
}

export function Lineage({ route, experiment }) {
  const trials = useTrials(experiment);
  const { data, error } = useData(experiment, experiment.address("lineage"));
  const [id, choose] = useState(null);
  const filter = route.query.get("filter");
  const byTime = route.query.get("x") !== "iteration";
  const shown = useMemo(() => {
    if (!data || !trials) return null;
    const kept = filter ? new Set([...chosen(trials, filter).rows].map((row) => trials.at("id", row))) : null;
    const lanes = ordered(data.nodes, data.edges).filter((lane) => !kept || kept.has(lane.id));
    const now = experiment.overview.time;
    const end = (row) => trials.at("ended_at", row) ?? now;
    const of = (name) => {
      const row = trials.rows.get(name);
      return byTime ? [trials.at("started_at", row) ?? now, end(row)] : [0, trials.at("iteration", row) ?? 0];
    };
    const ends = lanes.slice(0, MOST).map((lane) => of(lane.id));
    const [low, high] = [Math.min(...ends.map(([from]) => from)), Math.max(...ends.map(([, to]) => to))];
    return { lanes, span: { of, low, high, when: (n) => (byTime ? data.edges.at[n] ?? low : data.edges.iteration[n] ?? 0) } };
  }, [data, trials, filter, byTime]);
  if (error) return html`<p class="wrong" role="alert">${error}</p>`;
  if (!shown) return html`<${Empty}>Reading…<//>`;
  if (!data.nodes.id.length) return html`<${Empty}>No trial yet.<//>`;
  const more = shown.lanes.length - MOST;
  return html`<div class="tools"><${Choice} label="over" value=${byTime ? "time" : "iteration"} of=${["time", "iteration"]} onChange=${(value) => go(address(route, {}, { x: value === "time" ? null : value }), true)} />
      <span class="muted">${data.edges.child.length ? `${data.edges.child.length} steps: exploits, forks, restarts, retries; ${byTime ? duration(shown.span.high - shown.span.low) : ""}` : "No trial has continued from another one."}${more > 0 ? ` The first ${MOST} of ${shown.lanes.length} trials; a filter shows others.` : ""}</span></div>
    <div class="beside"><${Tree} lanes=${shown.lanes.slice(0, MOST)} nodes=${data.nodes} edges=${data.edges} span=${shown.span} chosenId=${id} onChoose=${choose} />
    ${id ? html`<${Story} id=${id} edges=${data.edges} schedules=${data.schedules ?? {}} route=${route} />` : html`<p class="muted">A click on a trial shows what changed.</p>`}</div>`;
}
