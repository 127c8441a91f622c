// Which trial continued from which: lanes over time, and a curve from the donor to who took its checkpoint.
import { html, useMemo, useRef, useWidth } from "../dom.js";
import { chosen } from "../filter.js";
import { count, duration, moment, number, since } from "../format.js";
import { useData, useTrials } from "../live.js";
import { Choice, Columns, Copy, Empty, Link, Missing, Panel, nested } from "../parts.js";
import { cut } from "../plot.js";
import { address, setter } from "../route.js";

const [LANE, MOST, LEFT, AXIS] = [24, 300, 170, 22];
const KINDS = { exploit: "exploit: took another's checkpoint and config", fork: "fork: began at a checkpoint", reuse: "reuse: began with what was trained earlier", restart: "restart", retry: "retry", pause: "went on after a pause" };

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

function Tree({ lanes, nodes, edges, span, metric, chosenId, onChoose }) {
  const row = new Map(lanes.map(({ id }, n) => [id, n]));
  const at = new Map(nodes.id.map((id, n) => [id, n]));
  const box = useRef();
  const width = Math.max(350, useWidth(box));
  const x = (value) => LEFT + ((value - span.low) / (span.high - span.low || 1)) * (width - LEFT - 84);
  const height = lanes.length * LANE + AXIS;
  const y = (id) => row.get(id) * LANE + LANE / 2;
  const press = (id) => ({ onClick: () => onChoose(id), onKeyDown: (event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), onChoose(id)) });
  return html`<div class="scroll" ref=${box} tabindex="0" role="region" aria-label="Lineage"><svg class="tree" viewBox=${`0 0 ${width} ${height}`} width=${width} height=${height} role="group" aria-label="Lineage of trials">
    ${lanes.map(({ id, depth }) => {
      const n = at.get(id);
      const [from, to] = span.of(id);
      return html`<g key=${id} data-trial=${id} class=${"node " + nodes.state[n] + (id === chosenId ? " chosen" : "")} tabindex="0" role="button" aria-pressed=${id === chosenId} aria-label=${`${cut(id, 20)} ${number(nodes.value[n])}, ${nodes.said[n]}`} ...${press(id)}>
        <rect class="back" x="0" y=${y(id) - LANE / 2} width=${width} height=${LANE} />
        <text x=${8 + Math.min(depth, 5) * 8} y=${y(id) + 4}>${cut(id, 20)}</text>
        <line x1=${x(from)} x2=${Math.max(x(to), x(from) + 2)} y1=${y(id)} y2=${y(id)} />
        <circle cx=${x(from)} cy=${y(id)} r="4" />${" "}<text class="value" x=${width - 74} y=${y(id) + 4}>${number(nodes.value[n])}</text></g>`;
    })}
    ${edges.child.map((child, n) => {
      const parent = edges.parent[n];
      if (!row.has(child) || !row.has(parent)) return null;
      const here = x(span.when(n));
      const back = Math.max(LEFT, here - 18);
      const path = parent === child ? `M${here} ${y(child) - 6}v12` : `M${back} ${y(parent)}C${here} ${y(parent)} ${back} ${y(child)} ${here} ${y(child)}`;
      return html`<path class=${"edge " + edges.kind[n]} d=${path}><title>${edges.kind[n]}: ${child} from ${parent}, iteration ${edges.iteration[n]}</title></path>`;
    })}
    ${[0, 1].map((share) => html`<text class="value" x=${x(span.low + share * (span.high - span.low))} y=${height - 6} text-anchor=${share ? "end" : "start"}>${span.text(span.low + share * (span.high - span.low))}</text>`)}
    <text class="value" x=${width - 74} y=${height - 6}>${metric ?? ""}</text>
  </svg></div>`;
}

const iterationOf = (checkpoint) => Number(/\d+/.exec(checkpoint ?? "")?.[0] ?? 0);

/**
 * The way to a trial's weights: each step by which it, or the one whose weights it took, went on with another config.
 * Gives {config, steps: [{trial, donor, at, from, before, config}]}: the first config, and what followed it at which iteration.
 */
function wayTo(id, { edges, schedules }, configOf) {
  const held = (trial, until) => schedules[trial]?.findLast(([iteration]) => iteration < until)?.[1] ?? schedules[trial]?.[0][1] ?? configOf(trial);
  const steps = [];
  let [trial, until] = [id, Infinity];
  while (steps.length < 10000) {
    const own = edges.child.map((_, n) => n).filter((n) => edges.child[n] === trial && edges.parent[n] !== trial && edges.iteration[n] < until);
    if (!own.length) break;
    const n = own.reduce((so, each) => (edges.iteration[each] >= edges.iteration[so] ? each : so));
    const from = iterationOf(edges.checkpoint[n]);
    const config = schedules[trial]?.findLast(([iteration]) => iteration <= edges.iteration[n])?.[1] ?? configOf(trial);
    steps.unshift({ trial, donor: edges.parent[n], at: edges.iteration[n], from, config });
    [trial, until] = [edges.parent[n], from];
  }
  let before = held(trial, until);
  const config = before;
  for (const step of steps) (step.before = before), (before = step.config);
  return { config, steps };
}

/** The lines that PopulationBasedTrainingReplay takes. */
const policyOf = ({ steps }) => steps.map(({ trial, donor, at, from, before, config }) => JSON.stringify([trial, donor, at, from, nested(before), nested(config)])).join("\n");

function Schedule({ way, id }) {
  const rows = { from: [0, ...way.steps.map((step) => step.from)], trial: [way.steps[0]?.donor ?? id, ...way.steps.map((step) => step.trial)], config: [way.config, ...way.steps.map((step) => step.config)] };
  const said = (config, n) => Object.entries(config).filter(([key, value]) => !n || rows.config[n - 1][key] !== value).map(([key, value]) => `${key} = ${number(value)}`).join(", ") || "the same";
  return html`<h3>The schedule of its weights</h3>
    <${Columns} data=${rows} label="Schedule" shown=${{ from: ["from iteration#"], trial: ["in trial"], config: ["config, or what changed", said] }} />
    <p>To replay it, keep this as a file and run with <code>scheduler=PopulationBasedTrainingReplay(FILE)</code>:</p>
    <pre tabindex="0" aria-label="policy">${policyOf(way)}</pre><p><${Copy} text=${policyOf(way)} what="the policy" /></p>`;
}

function Story({ id, data, configOf, route }) {
  const { edges } = data;
  const own = edges.child.map((child, n) => (child === id ? n : -1)).filter((n) => n >= 0);
  const way = wayTo(id, data, configOf);
  return html`<${Panel} title=${`Trial ${id}`}>
    <p><${Link} to=${address(route, { view: "trial", trial: id })}>Open it<//></p>
    ${!own.length && html`<p>It started by itself.</p>`}
    ${own.map((n) => html`<h3>${edges.kind[n]} at iteration ${edges.iteration[n]}${edges.parent[n] !== id ? html` from <code>${edges.parent[n]}</code>` : ""}</h3>
      <p class="muted">${[edges.checkpoint[n], edges.at[n] && moment(edges.at[n]), edges.why?.[n]].filter(Boolean).join(", ")}</p>
      ${edges.changed[n]?.length ? html`<table aria-label="What changed"><thead><tr><th scope="col">key</th><th scope="col" class="n">before</th><th scope="col" class="n">after</th></tr></thead><tbody>${edges.changed[n].map(
        ([key, before, after]) => html`<tr><th scope="row">${key}</th><td class="n">${number(before)}</td><td class="n">${number(after)}</td></tr>`)}</tbody></table>` : html`<p>The config stayed as it was.</p>`}`)}
    ${way.steps.length > 0 && html`<${Schedule} way=${way} id=${id} />`}
  <//>`;
}

export function Lineage({ route, experiment }) {
  const trials = useTrials(experiment);
  const { data, error } = useData(experiment, experiment.address("lineage"));
  const id = route.query.get("trial");
  const set = setter(route);
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
    return { lanes, span: { of, low, high, text: byTime ? (at) => since(low, at) : number, when: (n) => (byTime ? data.edges.at[n] ?? low : data.edges.iteration[n] ?? 0) } };
  }, [data, trials, filter, byTime]);
  if (!shown) return html`<${Missing} error=${error} />`;
  if (!data.nodes.id.length) return html`<${Empty}>No trial yet.<//>`;
  if (!shown.lanes.length) return html`<${Empty}>No trial is left by this filter.<//>`;
  const configOf = (name) => Object.fromEntries(trials.group("config").map((column) => [column.label, column.at(trials.rows.get(name))]));
  const more = shown.lanes.length - MOST;
  return html`<div class="tools"><${Choice} label="over" value=${byTime ? "time" : "iteration"} of=${["time", "iteration"]} onChange=${set("x", "time")} />
      <span class="muted">${data.edges.child.length ? `${count(data.edges.child.length, "step")}${byTime ? `, ${duration(shown.span.high - shown.span.low)}` : ""}` : "No trial has continued from another one: there are no exploits, forks, restarts or retries here."}${more > 0 ? ` The first ${MOST} of ${shown.lanes.length} trials; a filter shows others.` : ""}</span>
      <span class="legend">${Object.keys(KINDS).filter((kind) => data.edges.kind.includes(kind)).map((kind) => html`<span class=${"key " + kind}>${KINDS[kind]}</span> `)}</span></div>
    <div class="beside"><${Tree} lanes=${shown.lanes.slice(0, MOST)} nodes=${data.nodes} edges=${data.edges} span=${shown.span} metric=${trials.metric} chosenId=${id} onChoose=${set("trial")} />
    ${id ? html`<${Story} id=${id} data=${data} configOf=${configOf} route=${route} />` : html`<p class="muted">A click, or Enter, on a trial shows how its config changed, and the schedule to replay it.</p>`}</div>`;
}
