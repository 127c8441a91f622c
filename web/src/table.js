// A table of any length: only the rows in sight are elements.
import { html, useEffect, useMemo, useRef, useState } from "./dom.js";

const ROW = 28;
const SPARE = 12;
/** How far each table was scrolled, so that who comes back finds their row. */
const left = new Map();

/** The rows in the order of a column; what has no value comes last, whichever way. */
function sorted(rows, column, descending) {
  if (!column) return descending ? rows.slice().reverse() : rows;
  const way = descending ? -1 : 1;
  if (column.numeric) {
    const values = column.values;
    const keys = Float64Array.from(rows, (row) => (Number.isNaN(values[row]) || values[row] === undefined ? Infinity : way * values[row]));
    const order = Uint32Array.from(rows, (_, n) => n).sort((a, b) => keys[a] - keys[b] || a - b);
    return Uint32Array.from(order, (n) => rows[n]);
  }
  const compare = (a, b) => {
    const [left, right] = [column.at(a), column.at(b)];
    if (left === null || right === null) return (left === null) - (right === null);
    const numbers = typeof left === "number" && typeof right === "number";
    return way * (numbers ? left - right : String(left) < String(right) ? -1 : String(left) > String(right) ? 1 : 0) || a - b;
  };
  return rows.slice().sort(compare);
}

/**
 * rows: indices into the data. columns: {id, label, width, number, cell(row)}. sort: {id, descending}.
 * attributes(row): of its element.
 */
function VirtualTable({ label, place = label, rows, columns, sort, onSort, attributes }) {
  const box = useRef();
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  useEffect(() => {
    box.current.scrollTop = left.get(place) ?? 0;
    const seen = new ResizeObserver(() => setHeight(box.current.clientHeight));
    seen.observe(box.current);
    return () => seen.disconnect();
  }, []);
  const first = Math.max(0, Math.min(Math.floor(top / ROW) - SPARE, rows.length - 1));
  const last = Math.min(rows.length, Math.ceil((top + height) / ROW) + SPARE);
  const shown = [];
  for (let at = first; at < last; at++) shown.push(at);
  const space = (name, count) => count > 0 && html`<tr aria-hidden="true" key=${name}><td colspan=${columns.length} style=${{ height: count * ROW + "px" }} /></tr>`;
  const width = useMemo(() => columns.reduce((sum, column) => sum + column.width, 0), [columns]);
  return html`<div class="rows" ref=${box} tabindex="0" role="region" aria-label=${label} onScroll=${(event) => (left.set(place, event.currentTarget.scrollTop), setTop(event.currentTarget.scrollTop))}>
    <table style=${{ width: width + "px" }} aria-rowcount=${rows.length + 1}>
      <colgroup>${columns.map((column) => html`<col key=${column.id} style=${{ width: column.width + "px" }} />`)}</colgroup>
      <thead><tr aria-rowindex="1">${columns.map((column) => {
        const way = sort.id === column.id ? (sort.descending ? "descending" : "ascending") : "none";
        return html`<th key=${column.id} scope="col" class=${column.number ? "n" : ""} aria-sort=${way}>
          <button type="button" title=${`${column.label}: sort`} onClick=${() => onSort({ id: column.id, descending: way === "ascending" })}>${column.label}</button></th>`;
      })}</tr></thead>
      <tbody>
        ${space("above", first)}
        ${shown.map((at) => {
          const row = rows[at];
          return html`<tr key=${row} aria-rowindex=${at + 2} ...${attributes(row)}>${columns.map((column) => html`<td class=${column.number ? "n" : null} title=${column.hint?.(row)}>${column.cell(row)}</td>`)}</tr>`;
        })}
        ${space("below", Math.max(0, rows.length - last))}
      </tbody>
    </table>
  </div>`;
}

export { VirtualTable, sorted };
