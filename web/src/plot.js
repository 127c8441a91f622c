// Drawing on a canvas: scales with ticks, colours of the theme, points that can be picked.
import { html, useEffect, useRef, useState, useWidth } from "./dom.js";
import { duration, number } from "./format.js";

const probe = document.createElement("i");
probe.hidden = true;
document.documentElement.append(probe);

/** A colour of CSS, light or dark as the page is, as a canvas takes it. */
function resolved(css) {
  probe.style.color = css;
  return getComputedStyle(probe).color;
}

/** A colour of the style sheet. */
const colour = (name) => resolved(`var(--${name})`);

const channels = (text) => text.match(/[\d.]+/g).slice(0, 3).map(Number);

/** From the worst to the best: a function of 0..1. */
function ramp() {
  const [low, high] = [channels(colour("low")), channels(colour("high"))];
  const steps = Array.from({ length: 33 }, (_, n) => `rgb(${low.map((c, k) => Math.round(c + ((high[k] - c) * n) / 32)).join(" ")})`);
  return (share) => steps[Number.isFinite(share) ? Math.round(Math.max(0, Math.min(1, share)) * 32) : 0];
}

const hue = (n) => [40, 66].reduce((so, light) => `${so}hsl(${(n * 137.5 + 210) % 360} 65% ${light}%)${light === 40 ? "," : ")"}`, "light-dark(");

const [MINUTE, HOUR, DAY] = [60, 3600, 86400];
const CLOCK = [MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 20 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 4 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY];

function steps(low, high, wanted, { time, whole } = {}) {
  const rough = (0.7 * (high - low)) / wanted || 1;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const round = [1, 2, 5, 10].find((n) => n * unit >= rough) * unit || 10 * unit;
  const step = Math.max(whole ? 1 : 0, (time && rough > 30 && CLOCK.find((each) => each >= rough)) || round);
  const all = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) all.push(n * step);
  return all;
}

/**
 * Where values lie: {at(value) in 0..1 or NaN, ticks: [[share, text]], value(share)}.
 * kind: "linear", "log", "time", "rank" or "category". margin: the share that stays free at both ends, so that no point lies on an edge.
 * wanted: about how many ticks. whole: the values are counts, though these two may not be.
 */
function scaleOf(values, kind = "linear", margin = 0, wanted = 6, whole) {
  const given = [];
  for (const value of values) if (value !== null && value !== undefined && !Number.isNaN(value)) given.push(value);
  if (kind === "category" || given.some((value) => typeof value !== "number")) {
    const names = [...new Set(given.map(String))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    if (given.every((value) => typeof value === "number")) names.sort((a, b) => a - b);
    const places = new Map(names.map((name, n) => [name, names.length > 1 ? margin + ((1 - 2 * margin) * n) / (names.length - 1) : 0.5]));
    const every = Math.ceil(names.length / 12);
    return { category: true, at: (value) => (value === null || value === undefined ? NaN : places.get(String(value)) ?? NaN), ticks: names.map((name) => [places.get(name), name]).filter((_, n) => n % every === 0), value: (share) => names[Math.round(share * (names.length - 1))], names };
  }
  if (kind === "rank") {
    const order = Float64Array.from(given).sort();
    const last = Math.max(1, order.length - 1);
    const place = (value) => {
      let [low, high] = [0, order.length];
      while (low < high) order[(low + high) >> 1] < value ? (low = ((low + high) >> 1) + 1) : (high = (low + high) >> 1);
      return low / last;
    };
    return { at: (value) => (value === null || Number.isNaN(value) ? NaN : Math.min(1, place(value))), ticks: [0, 0.25, 0.5, 0.75, 1].filter(() => order.length).map((share) => [share, number(order[Math.round(share * (order.length - 1))])]), value: (share) => order[Math.round(share * (order.length - 1))] };
  }
  const fits = (value) => Number.isFinite(value) && (kind !== "log" || value > 0);
  let [low, high, counts] = [Infinity, -Infinity, true];
  for (const value of given) if (fits(value)) (low = Math.min(low, value)), (high = Math.max(high, value)), (counts &&= Number.isInteger(value));
  whole ??= counts && kind !== "time";
  if (low > high) [low, high] = kind === "log" ? [0.1, 1] : [0, 1];
  const [into, back] = kind === "log" ? [Math.log10, (x) => 10 ** x] : [(x) => x, (x) => x];
  let [from, to] = [into(low), into(high)];
  if (from === to) (from -= 0.5), (to += 0.5);
  const free = (to - from) * margin;
  (from -= free), (to += free);
  const at = (value) => (value === null || value === undefined || !fits(value) ? NaN : (into(value) - from) / (to - from));
  const finer = to - from < 3 ? [1, 2, 5] : [1];
  const powers = () => steps(Math.floor(from), Math.ceil(to), 6).filter(Number.isInteger).flatMap((power) => finer.map((n) => n * 10 ** power));
  const all = kind === "log" && to - from >= 1 ? powers() : steps(back(from), back(to), wanted, { whole, time: kind === "time" });
  const ticks = all.filter((tick) => at(tick) >= 0 && at(tick) <= 1 && (!whole || Number.isInteger(tick)));
  const text = kind === "time" ? duration : number;
  return { at, whole, text, ticks: ticks.map((tick) => [at(tick), text(Number(tick.toPrecision(8)))]), value: (share) => back(from + share * (to - from)) };
}

/** Text over lines: what lies behind it is covered. */
function covering(context, text, x, y) {
  context.save();
  context.strokeStyle = colour("back");
  context.lineWidth = 3;
  context.lineJoin = "round";
  context.strokeText(text, x, y);
  context.restore();
  context.fillText(text, x, y);
}

/** A canvas as wide as its place, drawn again when that, the theme, or what is drawn changes. draw(context, width, height). */
function Canvas({ label, height, draw, ...on }) {
  const [box, canvas] = [useRef(), useRef()];
  const width = useWidth(box);
  const [, again] = useState(0);
  useEffect(() => {
    const redraw = () => again((n) => n + 1);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    addEventListener("theme", redraw);
    dark.addEventListener("change", redraw);
    return () => (removeEventListener("theme", redraw), dark.removeEventListener("change", redraw));
  }, []);
  useEffect(() => {
    if (!width) return;
    const ratio = devicePixelRatio || 1;
    canvas.current.width = width * ratio;
    canvas.current.height = height * ratio;
    const context = canvas.current.getContext("2d");
    context.scale(ratio, ratio);
    context.font = "12px system-ui, sans-serif";
    draw(context, width, height);
  });
  return html`<div class="canvas" ref=${box} style=${{ height: height + "px" }}><canvas ref=${canvas} role="img" aria-label=${label} style=${{ width: width + "px", height: height + "px" }} ...${on} /></div>`;
}

/** How high a plot is that has the view to itself. */
const tall = () => Math.max(300, Math.min(900, innerHeight - 330));

/** How many ticks so many pixels have room for. */
const ticksIn = (pixels, each = 100) => Math.max(2, Math.min(12, pixels / each));

const EDGE = { left: 62, right: 14, top: 10, bottom: 34 };
const MARGIN = 0.03;

/** Axes with their ticks and names; gives back the two functions from a value to a pixel. */
function axes(context, width, height, x, y, names = ["", ""]) {
  const inner = [width - EDGE.left - EDGE.right, height - EDGE.top - EDGE.bottom];
  const [toX, toY] = [(value) => EDGE.left + x.at(value) * inner[0], (value) => EDGE.top + (1 - y.at(value)) * inner[1]];
  context.fillStyle = colour("muted");
  context.strokeStyle = colour("line");
  context.lineWidth = 1;
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (const [share, text] of y.ticks) {
    const at = Math.round(EDGE.top + (1 - share) * inner[1]) + 0.5;
    context.beginPath(), context.moveTo(EDGE.left, at), context.lineTo(width - EDGE.right, at), context.stroke();
    context.fillText(cut(text, 9), EDGE.left - 5, at);
  }
  context.strokeRect(EDGE.left + 0.5, Math.round(height - EDGE.bottom) + 0.5, inner[0], 0);
  let free = 0;
  context.textAlign = "center";
  for (const [share, text] of x.ticks) {
    const at = EDGE.left + share * inner[0];
    const half = context.measureText(cut(text, 12)).width / 2;
    if (at - half < free) continue;
    free = at + half + 8;
    context.fillText(cut(text, 12), Math.min(at, width - half), height - EDGE.bottom + 10);
  }
  context.fillText(cut(names[0], 40), EDGE.left + inner[0] / 2, height - 9);
  if (names[1]) {
    context.save();
    context.translate(7, EDGE.top + inner[1] / 2);
    context.rotate(-Math.PI / 2);
    context.fillText(cut(names[1], 30), 0, 0);
    context.restore();
  }
  return [toX, toY];
}

const cut = (text, length) => (text.length > length ? text.slice(0, length - 1) + "…" : text);

/**
 * Points of rows over two columns. x, y: {label, at(row)}. shade(row): 0..1, or null for one colour.
 * onPick(row): a point was clicked. before(context, toX, toY, x, y, width): draws below the points, which have the colour `points`.
 */
function Scatter({ label, height = 300, rows, x, y, xKind, yKind, shade, best, onPick, before, points }) {
  const placed = useRef([]);
  const [said, say] = useState("");
  const draw = (context, width) => {
    const scale = (column, kind, ticks) => scaleOf(map(rows, column), kind, MARGIN, ticks);
    const [across, up] = [scale(x, xKind, ticksIn(width)), scale(y, yKind, ticksIn(height, 40))];
    const [toX, toY] = axes(context, width, height, across, up, [x.label, y.label]);
    before?.(context, toX, toY, across, up, width);
    const tone = ramp();
    const size = rows.length > 20000 ? 1 : rows.length > 2000 ? 1.6 : 3;
    placed.current = [];
    context.fillStyle = colour(points ?? "high");
    for (const row of rows) {
      const [left, top] = [toX(x.at(row)), toY(y.at(row))];
      if (Number.isNaN(left + top)) continue;
      placed.current.push([left, top, row]);
      if (shade) context.fillStyle = tone(shade(row));
      if (size < 2) context.fillRect(left - size, top - size, size * 2, size * 2);
      else context.beginPath(), context.arc(left, top, size, 0, 7), context.fill();
      if (row === best) (context.strokeStyle = colour("text")), context.beginPath(), context.arc(left, top, 6, 0, 7), context.stroke();
    }
  };
  const nearest = (event) => {
    let [found, least] = [null, 144];
    for (const [left, top, row] of placed.current) {
      const far = (left - event.offsetX) ** 2 + (top - event.offsetY) ** 2;
      if (far < least) [found, least] = [row, far];
    }
    return found;
  };
  const over = (event) => {
    const row = nearest(event);
    event.currentTarget.style.cursor = row === null || !onPick ? "" : "pointer";
    say(row === null ? "" : `${x.name?.(row) ?? ""} ${x.label} ${number(x.at(row))}, ${y.label} ${number(y.at(row))}`);
  };
  const pick = (event) => {
    const row = nearest(event);
    if (row !== null) onPick?.(row);
  };
  return html`<figure><${Canvas} label=${label} height=${height} draw=${draw} onPointerMove=${over} onPointerLeave=${() => say("")} onClick=${pick} />${said && html`<figcaption class="over">${said}</figcaption>`}</figure>`;
}

/** What the colours of points say. */
const Shades = ({ metric, best }) => html`<span class="choice">${metric}: worst <i class="ramp" /> best; ${best} the best trial</span>`;

function* map(rows, column) {
  for (const row of rows) yield column.at(row);
}

export { Canvas, EDGE, MARGIN, Scatter, Shades, axes, colour, covering, cut, hue, map, ramp, resolved, scaleOf, tall, ticksIn };
