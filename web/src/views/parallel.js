// Parallel coordinates: a line for each trial across its parameters; dragging along an axis narrows the filter.
import { html, useRef, useState } from "../dom.js";
import { quoted, rangeOf, within } from "../filter.js";
import { count, number } from "../format.js";
import { Canvas, colour, covering, cut, map, ramp, scaleOf, tall } from "../plot.js";

const [TOP, BOTTOM, SIDE, MOST] = [44, 14, 30, 5000];

/** What a filter has chosen on an axis, as two shares of it; null: all. */
function chosenOn(scale, filter, label) {
  const range = rangeOf(filter, label);
  if (!range) return null;
  const [low, high] = range.map((end) => (Number.isFinite(end) || typeof end === "string" ? scale.at(typeof end === "string" && !scale.category ? Number(end) : end) : NaN));
  return [Number.isNaN(low) ? 0 : low, Number.isNaN(high) ? 1 : high].map((share) => Math.max(0, Math.min(1, share)));
}

/** The filter that a brush from one share of an axis to another makes. */
function brushed(filter, column, scale, low, high) {
  const name = column.label;
  if (!scale.category) return within(filter, name, [low, high].map((each) => Number(scale.value(each).toPrecision(4))));
  const inside = scale.names.filter((each) => scale.at(each) >= low && scale.at(each) <= high);
  if (!inside.length) inside.push(scale.value((low + high) / 2));
  if (column.numeric) return within(filter, name, [inside[0], inside.at(-1)]);
  return `${within(filter, name)} ${quoted(name)} = ${quoted(inside[Math.floor(inside.length / 2)])}`.trim();
}

/** kindOf(column): how it is laid out. more: how many parameters have no axis. */
export function Parallel({ trials, rows, columns, kindOf, shade, best, filter, onFilter, more }) {
  const height = tall();
  const yOf = (share) => height - BOTTOM - share * (height - TOP - BOTTOM);
  const held = useRef({});
  const [drag, setDrag] = useState(null);
  const all = useRef({});
  // Scales are those of all trials, so that they stand still while a brush narrows what is drawn.
  const key = `${trials.version}/${columns.map((column) => column.id + kindOf(column))}`;
  if (all.current.key !== key) {
    const every = Uint32Array.from({ length: trials.length }, (_, row) => row);
    all.current = { key, scales: columns.map((column) => scaleOf(map(every, column), kindOf(column))) };
  }
  const scales = all.current.scales;
  const draw = (context, width) => {
    const x = (n) => SIDE + (n * (width - SIDE - 64)) / Math.max(1, columns.length - 1);
    const tone = ramp();
    held.current = { x };
    context.globalAlpha = Math.max(0.12, Math.min(0.9, 60 / rows.length));
    context.lineWidth = 1;
    const drawn = rows.length > MOST ? rows.filter((_, n) => n % Math.ceil(rows.length / MOST) === 0) : rows;
    const line = (row) => {
      let open = false;
      context.beginPath();
      columns.forEach((column, n) => {
        const share = scales[n].at(column.at(row));
        if (Number.isNaN(share)) return void (open = false);
        open ? context.lineTo(x(n), yOf(share)) : context.moveTo(x(n), yOf(share));
        open = true;
      });
      context.stroke();
    };
    const order = Array.from(drawn).sort((a, b) => (shade(a) || 0) - (shade(b) || 0)); // the best above
    for (const row of order) (context.strokeStyle = tone(shade(row))), line(row);
    context.globalAlpha = 1;
    if (best !== undefined && rows.includes(best)) (context.strokeStyle = colour("best")), (context.lineWidth = 2.5), line(best);
    const room = Math.max(4, Math.floor((x(1) - x(0)) / 7) || 40);
    columns.forEach((column, n) => {
      const mark = (from, to, strong) => {
        context.fillStyle = colour("high");
        context.globalAlpha = strong;
        context.fillRect(x(n) - 6, Math.min(from, to) - 2, 12, Math.abs(to - from) + 4);
        context.globalAlpha = 1;
      };
      context.strokeStyle = colour("muted");
      context.lineWidth = 1;
      context.beginPath(), context.moveTo(x(n), TOP), context.lineTo(x(n), height - BOTTOM), context.stroke();
      const range = chosenOn(scales[n], filter, column.label);
      if (range) mark(...range.map(yOf), 0.5);
      if (drag?.n === n) mark(drag.from, drag.to, 0.3);
      const stagger = room < 12 && n % 2;
      context.fillStyle = colour("text");
      context.textAlign = n === columns.length - 1 ? "right" : n ? "center" : "left";
      covering(context, cut(column.label, stagger || room < 12 ? room * 2 - 2 : room), n === columns.length - 1 ? x(n) + 40 : n ? x(n) : 0, stagger ? 28 : 12);
      context.fillStyle = colour("muted");
      context.textAlign = "left";
      for (const [share, text] of scales[n].ticks) covering(context, cut(text, n === columns.length - 1 ? 9 : Math.min(12, room)), x(n) + 5, yOf(share) + 4);
    });
  };
  const nearest = (event) => columns.reduce((so, _, n) => (Math.abs(held.current.x(n) - event.offsetX) < Math.abs(held.current.x(so) - event.offsetX) ? n : so), 0);
  const down = (event) => {
    event.currentTarget.setPointerCapture(event.pointerId);
    setDrag({ n: nearest(event), from: event.offsetY, to: event.offsetY });
  };
  const up = (event) => {
    if (!drag) return;
    setDrag(null);
    const [from, to] = [drag.from, event.offsetY].sort((a, b) => b - a);
    const share = (at) => Math.max(0, Math.min(1, (height - BOTTOM - at) / (height - TOP - BOTTOM)));
    const [column, axis] = [columns[drag.n], scales[drag.n]];
    onFilter(from - to < 4 ? within(filter, column.label) : brushed(filter, column, axis, share(from), share(to)));
  };
  return html`<figure class="brush"><${Canvas} label=${`Parallel coordinates of ${rows.length} trials over ${columns.map((column) => column.label).join(", ")}`} height=${height} draw=${draw}
      onPointerDown=${down} onPointerMove=${(event) => drag && setDrag({ ...drag, to: event.offsetY })} onPointerUp=${up} />
    <figcaption>Drag along an axis to choose trials, click on it to let all in again; the field Filter says the same in words.${more > 0 ? ` ${count(more, "parameter")} that matter less have no axis here.` : ""}${rows.length > MOST ? ` Every ${Math.ceil(rows.length / MOST)}th of ${number(rows.length)} trials is drawn.` : ""}</figcaption></figure>`;
}
