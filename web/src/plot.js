// Drawing on a canvas: scales with ticks, colours of the theme, points that can be picked.
import { html, useEffect, useRef, useState, useWidth } from "./dom.js";
import { number } from "./format.js";

const probe = document.createElement("i");
probe.hidden = true;
document.documentElement.append(probe);

/** A colour of the style sheet, as a canvas takes it. */
function colour(name) {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

const channels = (text) => text.match(/[\d.]+/g).slice(0, 3).map(Number);

/** From the worst to the best: a function of 0..1. */
function ramp() {
  const [low, high] = [channels(colour("low")), channels(colour("high"))];
  const steps = Array.from({ length: 33 }, (_, n) => `rgb(${low.map((c, k) => Math.round(c + ((high[k] - c) * n) / 32)).join(" ")})`);
  return (share) => steps[Number.isFinite(share) ? Math.round(Math.max(0, Math.min(1, share)) * 32) : 0];
}

const hue = (n) => `hsl(${(n * 137.5 + 210) % 360} 60% 50%)`;

function steps(low, high, wanted) {
  const rough = (high - low) / wanted || 1;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * ([1, 2, 5, 10].find((n) => n * unit >= rough) ?? 10);
  const all = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) all.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  return all;
}

/**
 * Where values lie: {at(value) in 0..1 or NaN, ticks: [[share, text]], value(share)}.
 * kind: "linear", "log", "rank" or "category".
 */
function scaleOf(values, kind = "linear") {
  const given = [];
  for (const value of values) if (value !== null && value !== undefined && !Number.isNaN(value)) given.push(value);
  if (kind === "category" || given.some((value) => typeof value !== "number")) {
    const names = [...new Set(given.map(String))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    const places = new Map(names.map((name, n) => [name, names.length > 1 ? n / (names.length - 1) : 0.5]));
    const every = Math.ceil(names.length / 12);
    return { category: true, at: (value) => (value === null || value === undefined ? NaN : places.get(String(value)) ?? NaN), ticks: names.map((name) => [places.get(name), name]).filter((_, n) => n % every === 0), value: (share) => names[Math.round(share * (names.length - 1))] };
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
  let [low, high] = [Infinity, -Infinity];
  for (const value of given) if (fits(value)) (low = Math.min(low, value)), (high = Math.max(high, value));
  if (low > high) [low, high] = kind === "log" ? [0.1, 1] : [0, 1];
  const [into, back] = kind === "log" ? [Math.log10, (x) => 10 ** x] : [(x) => x, (x) => x];
  let [from, to] = [into(low), into(high)];
  if (from === to) (from -= 0.5), (to += 0.5);
  const at = (value) => (value === null || value === undefined || !fits(value) ? NaN : (into(value) - from) / (to - from));
  const ticks = kind === "log" && to - from >= 1 ? steps(Math.ceil(from), to, 5).filter(Number.isInteger).map(back) : steps(back(from), back(to), 5);
  return { at, ticks: ticks.map((tick) => [at(tick), number(Number(tick.toPrecision(8)))]), value: (share) => back(from + share * (to - from)) };
}

/** A column that spans more than two powers of ten reads better on a log scale. */
function natural(values) {
  let [low, high] = [Infinity, 0];
  for (const value of values) {
    if (typeof value !== "number" || value <= 0) {
      if (value === null || Number.isNaN(value)) continue;
      return "linear";
    }
    (low = Math.min(low, value)), (high = Math.max(high, value));
  }
  return high / low > 100 ? "log" : "linear";
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

const EDGE = { left: 62, right: 14, top: 10, bottom: 34 };

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
    const [across, up] = [scaleOf(map(rows, x), xKind ?? natural(map(rows, x))), scaleOf(map(rows, y), yKind)];
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
  return html`<figure><${Canvas} label=${label} height=${height} draw=${draw} onPointerMove=${over} onPointerLeave=${() => say("")} onClick=${pick} /><figcaption class="muted">${said || "\u00a0"}</figcaption></figure>`;
}

function* map(rows, column) {
  for (const row of rows) yield column.at(row);
}

export { Canvas, EDGE, Scatter, axes, colour, cut, hue, map, natural, ramp, scaleOf };
