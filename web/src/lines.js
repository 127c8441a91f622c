// Lines over a common axis, each with an x of its own; dragging zooms in, a double click out again.
import { html, useRef, useState } from "./dom.js";
import { number } from "./format.js";
import { Canvas, EDGE, axes, colour, scaleOf } from "./plot.js";

const DENSE = 4000;

function* within(lines, key, range) {
  for (const line of lines)
    for (let n = 0; n < line.x.length; n++) if (!range || (line.x[n] >= range[0] && line.x[n] <= range[1])) yield line[key][n];
}

/** Of so many points that several share a pixel, the lowest and highest of each. */
function thinned(x, y, toX) {
  if (x.length <= DENSE) return [x, y];
  const [fewer, values] = [[], []];
  for (let n = 0; n < x.length; ) {
    const pixel = Math.round(toX(x[n]));
    let [low, high] = [n, n];
    for (; n < x.length && Math.round(toX(x[n])) === pixel; n++) {
      if (y[n] < y[low] || y[low] === null) low = n;
      if (y[n] > y[high]) high = n;
    }
    for (const each of low < high ? [low, high] : [high, low]) fewer.push(x[each]), values.push(y[each]);
  }
  return [fewer, values];
}

/** lines: [{id, x, y, colour, dashed}], x rising. names: of the axes. xText(value): of a tick. onPick(id): a line was clicked. */
export function Lines({ label, height, lines, log, names, xText = number, onPick }) {
  const [focus, setFocus] = useState(null);
  const [range, setRange] = useState(null);
  const [drag, setDrag] = useState(null);
  const held = useRef({ placed: [] });
  const draw = (context, width) => {
    const x = scaleOf(range ?? within(lines, "x"));
    x.ticks = x.ticks.map(([share, text]) => [share, xText(Number(x.value(share).toPrecision(6)), text)]);
    const y = scaleOf(within(lines, "y", range), log ? "log" : "linear");
    const [toX, toY] = axes(context, width, height, x, y, names);
    held.current = { placed: [], x, width };
    context.save();
    context.beginPath(), context.rect(EDGE.left, 0, width - EDGE.left - EDGE.right, height - EDGE.bottom), context.clip();
    for (const line of lines) {
      context.strokeStyle = context.fillStyle = line.colour;
      context.globalAlpha = focus && focus.id !== line.id ? 0.2 : line.dashed ? 0.7 : 1;
      context.lineWidth = focus?.id === line.id ? 2.5 : 1.4;
      context.setLineDash(line.dashed ? [4, 4] : []);
      context.beginPath();
      const [xs, ys] = thinned(line.x, line.y, toX);
      let points = 0;
      for (let n = 0; n < xs.length; n++) {
        const [left, top] = [toX(xs[n]), toY(ys[n])];
        if (Number.isNaN(left + top)) continue;
        points++ ? context.lineTo(left, top) : context.moveTo(left, top);
        held.current.placed.push([left, top, line, xs[n], ys[n]]);
      }
      context.stroke();
      if (points === 1) {
        const [left, top] = held.current.placed.at(-1);
        context.beginPath(), context.arc(left, top, 2.5, 0, 7), context.fill();
      }
    }
    context.restore();
    if (drag) {
      context.globalAlpha = 0.2;
      context.fillStyle = colour("high");
      context.fillRect(Math.min(drag.from, drag.to), EDGE.top, Math.abs(drag.to - drag.from), height - EDGE.top - EDGE.bottom);
    }
  };
  const nearest = (event) => {
    let [found, least] = [null, 200];
    for (const place of held.current.placed) {
      const far = (place[0] - event.offsetX) ** 2 + (place[1] - event.offsetY) ** 2;
      if (far < least) [found, least] = [{ id: place[2].id, x: place[3], y: place[4] }, far];
    }
    return found;
  };
  const move = (event) => (drag ? setDrag({ ...drag, to: event.offsetX }) : setFocus(nearest(event)));
  const up = (event) => {
    setDrag(null);
    if (!drag) return;
    const { x, width } = held.current;
    const value = (at) => x.value(Math.max(0, Math.min(1, (at - EDGE.left) / (width - EDGE.left - EDGE.right))));
    if (Math.abs(drag.from - event.offsetX) > 5) setRange([drag.from, event.offsetX].sort((a, b) => a - b).map(value));
    else if (focus) onPick?.(focus.id);
  };
  return html`<figure><${Canvas} label=${label} height=${height} draw=${draw} onPointerDown=${(event) => setDrag({ from: event.offsetX, to: event.offsetX })}
      onPointerMove=${move} onPointerUp=${up} onPointerLeave=${() => (setFocus(null), setDrag(null))} onDblClick=${() => setRange(null)} />
    <figcaption class="muted">${focus ? `${focus.id}: ${names[0]} ${xText(focus.x)}, ${names[1]} ${number(focus.y)}` : range ? "A double click shows all again." : "\u00a0"}</figcaption></figure>`;
}
