// Hosts and their slots over time.
import { html } from "../dom.js";
import { bytes, count, duration, moment } from "../format.js";
import { useData } from "../live.js";
import { Columns, Empty, Facts, Panel } from "../parts.js";
import { Canvas, colour, cut } from "../plot.js";

const WORDS = { running: "RUNNING", paused: "PAUSED", failed: "ERROR", lost: "ERROR", saving: "saving", waiting: "PENDING" };
const LANE = 14;

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

function draw(context, width, height, hosts, spans, [low, high], now) {
  const x = (at) => 90 + ((at - low) / (high - low || 1)) * (width - 100);
  let top = 4;
  context.textBaseline = "middle";
  for (const [host, slots] of hosts) {
    context.fillStyle = colour("text");
    context.fillText(cut(host ?? "?", 12), 0, top + LANE / 2);
    for (const slot of slots) {
      for (const n of slot.spans) {
        const what = WORDS[spans.what[n]] ?? "RUNNING";
        context.fillStyle = colour(what);
        context.fillRect(x(spans.start[n]), top + 1, Math.max(1, x(spans.end[n] ?? now) - x(spans.start[n]) - 0.5), LANE - 3);
      }
      top += LANE;
    }
    top += 8;
  }
  context.fillStyle = colour("muted");
  for (const share of [0, 0.5, 1]) {
    context.textAlign = share ? (share === 1 ? "right" : "center") : "left";
    context.fillText(moment(low + share * (high - low)), 90 + share * (width - 100), height - 8);
  }
}

export function Machines({ experiment }) {
  const { data, error } = useData(experiment, experiment.address("machines"));
  if (error) return html`<p class="wrong" role="alert">${error}</p>`;
  if (!data) return html`<${Empty}>Reading…<//>`;
  const { spans, backlog, copies, slots } = data;
  if (!spans.start.length) return html`<${Empty}>Nothing has run yet.<//>`;
  const now = experiment.overview.liveness === "running" ? experiment.overview.time : Math.max(...spans.start, ...spans.end.filter(Boolean));
  const hosts = slotsOf(spans, now);
  const range = [Math.min(...spans.start), Math.max(now, ...spans.end.filter(Boolean))];
  const height = [...hosts.values()].reduce((sum, each) => sum + each.length * LANE + 8, 30);
  return html`<div class="panels">
    <${Panel} title="Slots over time" wide>
      <p class="legend">${Object.entries(WORDS).filter(([what]) => spans.what.includes(what)).map(([what, state]) => html`<span class=${"state " + state}>${what}</span> `)}<span class="muted">${duration(range[1] - range[0])}, ${count(spans.start.length, "span")}</span></p>
      <${Canvas} label=${`Slots of ${count(hosts.size, "host")} over time`} height=${height} draw=${(context, width) => draw(context, width, height, hosts, spans, range, now)} /><//>
    <${Panel} title="Hosts"><${Columns} data=${data.hosts} label="Hosts" shown=${{ host: ["host"], running: ["running#"], trials: ["trials#"], results: ["results#"] }} />
      ${slots && html`<p>${slots.used}${slots.limit ? ` of ${slots.limit}` : ""} slots in use</p>`}<//>
    <${Panel} title="Copies"><${Facts} of=${[["waiting", `${backlog.count}, ${bytes(backlog.bytes)}`], backlog.oldest_at && ["oldest", moment(backlog.oldest_at)]]} />
      ${copies.place.length ? html`<${Columns} data=${copies} label="Places of copies" shown=${{ place: ["place"], count: ["checkpoints#"], bytes: ["size#", bytes] }} />` : html`<p class="muted">No place for copies is set: sync_config=tune.SyncConfig(upload_dir=...)</p>`}<//>
  </div>`;
}
