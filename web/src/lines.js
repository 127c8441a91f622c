// Lines over a common axis, each with an x of its own; dragging zooms in, a double click out again.
import { html, useRef, useState } from "./dom.js";
import { number } from "./format.js";
import { Canvas, EDGE, MARGIN, axes, colour, resolved, scaleOf, ticksIn } from "./plot.js";

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

/**
 * A trial's results, in the order of their reports, as lines: those that stand; and dashed, from the result at which each
 * leaves them, those that a rollback made void.
 */
export function resultLines(line, x, y, gone) {
  const stands = { ...line, x: [], y: [] };
  const lines = [stands];
  x.forEach((at, n) => {
    if (gone[n] && !(lines.length > 1 && at > lines.at(-1).x.at(-1))) lines.push({ ...line, strong: false, dashed: true, x: stands.x.slice(-1), y: stands.y.slice(-1) });
    const into = gone[n] ? lines.at(-1) : stands;
    into.x.push(at), into.y.push(y[n]);
  });
  return lines.filter((each) => each.x.length);
}

/** lines: [{id, x, y, colour, dashed, strong}], x rising. names: of the axes. time: x is in seconds. onPick(id): a line was clicked. lit: the id of a line that stands out. */
export function Lines({ label, height, lines, log, names, time, onPick, lit }) {
  const [under, setFocus] = useState(null);
  const focus = under ?? (lit && { id: lit });
  const [range, setRange] = useState(null);
  const [drag, setDrag] = useState(null);
  const held = useRef({ placed: [] });
  const draw = (context, width) => {
    const x = scaleOf(range ?? within(lines, "x"), time ? "time" : "linear", range ? 0 : MARGIN, ticksIn(width), range ? held.current.x.whole : undefined);
    const y = scaleOf(within(lines, "y", range), log ? "log" : "linear", MARGIN, ticksIn(height, 40));
    const [toX, toY] = axes(context, width, height, x, y, names);
    held.current = { placed: [], x, width };
    context.save();
    context.beginPath(), context.rect(EDGE.left, 0, width - EDGE.left - EDGE.right, height - EDGE.bottom), context.clip();
    for (const line of lines) {
      context.strokeStyle = context.fillStyle = resolved(line.colour);
      context.globalAlpha = focus && focus.id !== line.id ? 0.2 : line.dashed ? 0.7 : 1;
      context.lineWidth = line.strong || focus?.id === line.id ? 2.5 : 1.4;
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
      if (points === 1 || (points && line.dashed)) {
        const [left, top] = held.current.placed.at(-1);
        context.setLineDash([]);
        context.beginPath(), context.arc(left, top, line.dashed ? 4 : 2.5, 0, 7), line.dashed ? context.stroke() : context.fill();
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
    if (Math.abs(drag.from - event.offsetX) > 5) setFocus(null), setRange([drag.from, event.offsetX].sort((a, b) => a - b).map(value));
    else if (under) onPick?.(under.id);
  };
  return html`<figure><${Canvas} label=${label} height=${height} draw=${draw} onPointerDown=${(event) => setDrag({ from: event.offsetX, to: event.offsetX })}
      onPointerMove=${move} onPointerUp=${up} onPointerLeave=${() => (setFocus(null), setDrag(null))} onDblClick=${() => setRange(null)} />
    ${under ? html`<figcaption class="over">${under.id}: ${names[0]} ${held.current.x.text(under.x)}, ${names[1]} ${number(under.y)}</figcaption>` : range && html`<figcaption class="over"><button type="button" onClick=${() => setRange(null)}>Show all</button></figcaption>`}</figure>`;
}
