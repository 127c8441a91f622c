// Hosts and their slots over time.
import { html, useRef, useState } from "../dom.js";
import { chosen } from "../filter.js";
import { bytes, count, duration, moment, since } from "../format.js";
import { useData, useTrials } from "../live.js";
import { Columns, Empty, Facts, Missing, Panel, TrialLink } from "../parts.js";
import { Canvas, colour, cut } from "../plot.js";
import { goTrial } from "../route.js";

const WORDS = { running: "RUNNING", lost: "ERROR", saving: "saving" };
const LANE = 14;
const LISTED = 200;

/** Spans of a host side by side: each in the first slot that is free. */
function slotsOf(spans, now) {
  const hosts = new Map();
  const order = spans.start.map((_, n) => n).sort((a, b) => spans.start[a] - spans.start[b]);
  for (const n of order) {
    const slots = hosts.get(spans.host[n]) ?? [];
    hosts.set(spans.host[n], slots);
    let slot = slots.findIndex((free) => free.end <= spans.start[n] + 1e-6);
    if (slot < 0) slot = slots.push({ spans: [] }) - 1;
    slots[slot].end = spans.end[n] ?? now;
    slots[slot].spans.push(n);
  }
  return hosts;
}

/** Draws them, and gives back where each lies: [left, right, top, number]. */
function draw(context, width, height, hosts, spans, [low, high], now) {
  const placed = [];
  const x = (at) => 90 + ((at - low) / (high - low || 1)) * (width - 100);
  let top = 4;
  context.textBaseline = "middle";
  for (const [host, slots] of hosts) {
    context.fillStyle = colour("text");
    context.fillText(cut(host ?? "not known", 12), 0, top + LANE / 2);
    for (const slot of slots) {
      for (const n of slot.spans) {
        const what = WORDS[spans.what[n]] ?? "RUNNING";
        context.fillStyle = colour(what);
        const [left, right] = [x(spans.start[n]), x(spans.end[n] ?? now)];
        context.fillRect(left, top + 1, Math.max(1, right - left - 0.5), LANE - 3);
        placed.push([left, right, top, n]);
      }
      top += LANE;
    }
    top += 8;
  }
  context.fillStyle = colour("muted");
  for (const share of width > 500 ? [0, 0.5, 1] : [0, 1]) {
    context.textAlign = share ? (share === 1 ? "right" : "center") : "left";
    context.fillText(since(low, low + share * (high - low)), 90 + share * (width - 100), height - 8);
  }
  return placed;
}

/** Slots as bars; what is under the pointer is told, and a click opens its trial. */
function Slots({ spans, now, route }) {
  const [under, point] = useState(null);
  const placed = useRef([]);
  const hosts = slotsOf(spans, now);
  const range = [Math.min(...spans.start), Math.max(now, ...spans.end.filter(Boolean))];
  const height = [...hosts.values()].reduce((sum, each) => sum + each.length * LANE + 8, 30);
  const at = ({ offsetX: x, offsetY: y }) => placed.current.find(([left, right, top]) => x >= left - 1 && x <= right + 1 && y >= top && y < top + LANE)?.[3] ?? null;
  const said = (n) => `${spans.id[n]}: ${spans.said?.[n] ?? spans.what[n]}, ${moment(spans.start[n])}, ${spans.end[n] ? duration(spans.end[n] - spans.start[n]) : "goes on"}`;
  const newest = spans.start.map((_, n) => n).sort((a, b) => spans.start[b] - spans.start[a]).slice(0, LISTED);
  const listed = Object.fromEntries(["id", "host", "what", "start", "end"].map((key) => [key, newest.map((n) => spans[key][n])]));
  return html`<p class="legend">${Object.entries(WORDS).filter(([what]) => spans.what.includes(what)).map(([what, state]) => html`<span class=${"state " + state}>${what}</span> `)}<span class="muted">${duration(range[1] - range[0])}, ${count(spans.start.length, "span")}</span></p>
    <figure><${Canvas} label=${`Slots of ${count(hosts.size, "host")} over time`} height=${height} draw=${(context, width) => (placed.current = draw(context, width, height, hosts, spans, range, now))}
      onPointerMove=${(event) => point(at(event))} onPointerLeave=${() => point(null)} onClick=${(event) => at(event) !== null && goTrial(route, spans.id[at(event)])} />
      ${under !== null && spans.id[under] && html`<figcaption class="over">${said(under)}</figcaption>`}</figure>
    <details><summary>${newest.length < spans.start.length ? `The newest ${newest.length} of ` : ""}${count(spans.start.length, "span")} as a table</summary><${Columns} data=${listed} label="Spans" shown=${{
      id: ["trial", (id) => html`<${TrialLink} route=${route} id=${id} />`], host: ["host", (host) => host ?? "not known"],
      what: ["what"], start: ["from#", moment], end: ["until#", (end) => (end ? moment(end) : "now")] }} /></details>`; // prettier-ignore
}

/** The spans of the trials that a filter leaves. */
function filtered(spans, trials, filter) {
  if (!filter || !trials) return spans;
  const ids = new Set([...chosen(trials, filter).rows].map((row) => trials.at("id", row)));
  const kept = spans.id.map((_, n) => n).filter((n) => ids.has(spans.id[n]));
  return Object.fromEntries(Object.entries(spans).map(([key, values]) => [key, kept.map((n) => values[n])]));
}

export function Machines({ route, experiment }) {
  const filter = route.query.get("filter");
  const trials = useTrials(filter ? experiment : null);
  const { data, error } = useData(experiment, experiment.address("machines"));
  if (!data) return html`<${Missing} error=${error} />`;
  const { backlog, copies, slots } = data;
  if (!data.spans.start.length) return html`<${Empty}>Nothing has run yet. What runs where appears here as soon as a trial starts.<//>`;
  const spans = filtered(data.spans, trials, filter);
  const now = experiment.overview.liveness === "running" || experiment.overview.at != null ? experiment.overview.time : Math.max(...data.spans.start, ...data.spans.end.filter(Boolean));
  return html`<div class="panels">
    <${Panel} title="Slots over time" wide>${spans.start.length ? html`<${Slots} spans=${spans} now=${now} route=${route} />` : html`<${Empty}>No trial is left by this filter.<//>`}<//>
    <${Panel} title="Hosts"><${Columns} data=${data.hosts} label="Hosts" shown=${{ host: ["host"], running: ["running#"], trials: ["trials#"], results: ["results#"] }} />
      ${slots && html`<p>${slots.used}${slots.limit ? ` of ${slots.limit}` : ""} slots in use</p>`}<//>
    <${Panel} title="Copies"><${Facts} of=${[["waiting to be copied", `${count(backlog.count, "checkpoint")}, ${bytes(backlog.bytes)}`], backlog.oldest_at && ["oldest", moment(backlog.oldest_at)]]} />
      ${copies.place.length ? html`<${Columns} data=${copies} label="Places of copies" shown=${{ place: ["place"], count: ["checkpoints#"], bytes: ["size#", bytes] }} />` : html`<p class="muted">Nothing is copied elsewhere: tune.run(sync_config=tune.SyncConfig(upload_dir=...)) names a place.</p>`}<//>
  </div>`;
}
