// Parallel coordinates: a line for each trial across its parameters; dragging along an axis narrows the filter.
import { html, useRef, useState } from "../dom.js";
import { within } from "../filter.js";
import { number } from "../format.js";
import { Canvas, colour, cut, map, natural, ramp, scaleOf } from "../plot.js";

const [TOP, BOTTOM, LEFT, MOST] = [44, 20, 46, 5000];

export function Parallel({ trials, rows, columns, shade, best, rank, filter, onFilter, onPick }) {
  const held = useRef({});
  const [drag, setDrag] = useState(null);
  const all = useRef({});
  // Scales are those of all trials, so that they stand still while a brush narrows what is drawn.
  const key = `${trials.version}/${rank}/${columns.map((column) => column.id)}`;
  if (all.current.key !== key) {
    const every = Uint32Array.from({ length: trials.length }, (_, row) => row);
    all.current = { key, scales: columns.map((column) => scaleOf(map(every, column), rank ? "rank" : natural(map(every, column)))) };
  }
  const scales = all.current.scales;
  const height = 420;
  const place = (width) => (n) => LEFT + (n * (width - LEFT - 60)) / Math.max(1, columns.length - 1);
  const y = (share) => height - BOTTOM - share * (height - TOP - BOTTOM);
  const draw = (context, width) => {
    const x = place(width);
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
        open ? context.lineTo(x(n), y(share)) : context.moveTo(x(n), y(share));
        open = true;
      });
      context.stroke();
    };
    const order = Array.from(drawn).sort((a, b) => (shade(a) || 0) - (shade(b) || 0)); // the best above
    for (const row of order) (context.strokeStyle = tone(shade(row))), line(row);
    context.globalAlpha = 1;
    if (best !== undefined && rows.includes(best)) (context.strokeStyle = colour("best")), (context.lineWidth = 2.5), line(best);
    context.textAlign = "center";
    columns.forEach((column, n) => {
      context.strokeStyle = colour("muted");
      context.lineWidth = 1;
      context.beginPath(), context.moveTo(x(n), TOP), context.lineTo(x(n), height - BOTTOM), context.stroke();
      context.fillStyle = colour("text");
      context.fillText(cut(column.label, Math.max(6, Math.floor((x(1) - x(0)) / 8))), x(n), n % 2 && columns.length > 8 ? 28 : 12);
      context.fillStyle = colour("muted");
      context.textAlign = "left";
      for (const [share, text] of scales[n].ticks) context.fillText(cut(text, 10), x(n) + 4, y(share) + 3);
      context.textAlign = "center";
    });
    if (drag) {
      context.fillStyle = colour("high");
      context.globalAlpha = 0.35;
      context.fillRect(x(drag.n) - 7, Math.min(drag.from, drag.to), 14, Math.abs(drag.to - drag.from));
      context.globalAlpha = 1;
    }
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
    const [column, scale] = [columns[drag.n], scales[drag.n]];
    if (from - to < 4) return onFilter(within(filter, column.label));
    if (!column.numeric) return onFilter(within(filter, column.label) + ` ${column.label} = ${scale.value(share((from + to) / 2))}`);
    onFilter(within(filter, column.label, [share(from), share(to)].map((each) => Number(scale.value(each).toPrecision(4)))));
  };
  return html`<figure><${Canvas} label=${`Parallel coordinates of ${rows.length} trials over ${columns.map((column) => column.label).join(", ")}`} height=${height} draw=${draw}
      onPointerDown=${down} onPointerMove=${(event) => drag && setDrag({ ...drag, to: event.offsetY })} onPointerUp=${up} />
    <figcaption class="muted">Drag along an axis to narrow the filter; click on it to widen it again.${rows.length > MOST ? ` Every ${Math.ceil(rows.length / MOST)}th of ${number(rows.length)} trials is drawn.` : ""}</figcaption></figure>`;
}
