// The checkpoints of a trial on the time axis: from when each was there, to when it went, and why.
import { html } from "../dom.js";
import { bytes, moment, number } from "../format.js";
import { Columns, Empty } from "../parts.js";
import { embedded } from "../source.js";

const LANE = 16;

function Axis({ shelf, now }) {
  const rows = shelf.name.map((_, n) => n);
  const start = Math.min(...shelf.saved_at.filter(Boolean));
  const end = Math.max(now, ...shelf.gone_at.filter(Boolean), ...shelf.saved_at.filter(Boolean));
  const x = (at) => 150 + ((at - start) / (end - start || 1)) * 740;
  const shown = rows.slice(-60);
  const height = shown.length * LANE + 20;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Checkpoints over time"><svg class="shelf" viewBox=${`0 0 900 ${height}`} width="900" height=${height} role="img" aria-label="Checkpoints over time">
    ${shown.map((n, lane) => {
      const from = x(shelf.saved_at[n] ?? start);
      return html`<g class=${shelf.fate[n] === "kept" ? "kept" : "gone"}><title>${shelf.name[n]}: ${shelf.why[n]}</title>
        <text x="0" y=${lane * LANE + 12}>${shelf.name[n].slice(0, 24)}</text>
        <rect x=${from} y=${lane * LANE + 3} width=${Math.max(3, x(shelf.gone_at[n] ?? end) - from)} height=${LANE - 6} rx="2" />
        ${shelf.pinned[n] && html`<circle cx=${from} cy=${lane * LANE + 8} r="4" />`}</g>`;
    })}
    <text x="150" y=${height - 4}>${moment(start)}</text><text x="890" y=${height - 4} text-anchor="end">${moment(end)}</text>
  </svg></div>`;
}

export function Shelf({ shelf, now, trial, orders, onFork }) {
  if (!shelf.name.length) return html`<${Empty}>It has saved no checkpoint.<//>`;
  const give = (word, n) => orders.give({ order: word, trial, iteration: shelf.iteration[n] });
  const tag = (n) => {
    const name = prompt(`A name for ${shelf.name[n]} (A-Z a-z 0-9 . _ -)`);
    if (name) orders.give({ order: "tag", trial, iteration: shelf.iteration[n], tag: name });
  };
  const act = (_, n) =>
    html`${shelf.download[n] && !embedded && html`<a href=${shelf.download[n]} download aria-label=${`Download ${shelf.name[n]}`}>download</a> `}
      ${orders.give && shelf.fate[n] === "kept" && html`<button type="button" aria-label=${`${shelf.pinned[n] ? "Unpin" : "Pin"} ${shelf.name[n]}`} onClick=${() => give(shelf.pinned[n] ? "unpin" : "pin", n)}>${shelf.pinned[n] ? "unpin" : "pin"}</button> <button type="button" aria-label=${`Tag ${shelf.name[n]}`} onClick=${() => tag(n)}>tag</button> <button type="button" aria-label=${`Fork from ${shelf.name[n]}`} onClick=${() => onFork(shelf.iteration[n])}>fork</button>`}`;
  const checked = { true: "verified", false: "damaged" };
  return html`<${Axis} shelf=${shelf} now=${now} />
    <${Columns} data=${{ ...shelf, act: shelf.name }} label="Checkpoints" attributes=${(n) => ({ class: shelf.fate[n] === "kept" ? "" : "gone" })} shown=${{
      name: ["checkpoint", (name, n) => html`<code>${name}</code>${(shelf.tags[n] ?? []).map((each) => html` <b class="tag">${each}</b>`)}`],
      act: ["do", act], iteration: ["iteration#"], value: ["value#"], saved_at: ["saved#", moment], bytes: ["size#", bytes],
      verified: ["checked", (is) => checked[is] ?? "–"],
      fate: ["fate", (fate, n) => html`${shelf.pinned[n] ? "pinned, " : ""}${fate}${shelf.gone_at[n] ? ` ${moment(shelf.gone_at[n])}` : ""}`],
      why: ["why", (why) => why || "–"],
      copies: ["copies", (copies, n) => [shelf.here[n] ? "here" : "", ...copies].filter(Boolean).join(", ") || "–"],
    }} />`; // prettier-ignore
}
