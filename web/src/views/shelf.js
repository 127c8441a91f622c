// The checkpoints of a trial on the time axis: from when each was there, to when it went, and why.
import { html, useRef, useState, useWidth } from "../dom.js";
import { bytes, moment, since } from "../format.js";
import { Answer } from "../orders.js";
import { Columns, Empty } from "../parts.js";
import { cut } from "../plot.js";
import { embedded, load } from "../source.js";

const [LANE, NAMES, SHOWN] = [16, 150, 60];
export const ON_SHELF = ["pin", "unpin", "tag"];

function Axis({ shelf, now }) {
  const rows = shelf.name.map((_, n) => n);
  const start = Math.min(...shelf.saved_at.filter(Boolean));
  const end = Math.max(now, ...shelf.gone_at.filter(Boolean), ...shelf.saved_at.filter(Boolean));
  const box = useRef();
  const width = Math.max(300, useWidth(box));
  const x = (at) => NAMES + ((at - start) / (end - start || 1)) * (width - NAMES - 10);
  const shown = rows.slice(-SHOWN);
  const height = shown.length * LANE + 20;
  return html`<p class="legend"><span class="key kept">kept</span> <span class="key gone">gone</span>${shelf.pinned.some(Boolean) && html` <span class="key pin">pinned</span>`}${rows.length > SHOWN && html` <span class="muted">the newest ${SHOWN} of ${rows.length}</span>`}</p>
  <div class="scroll" ref=${box} tabindex="0" role="region" aria-label="Checkpoints over time"><svg class="shelf" viewBox=${`0 0 ${width} ${height}`} width=${width} height=${height} role="img" aria-label="Checkpoints over time">
    ${shown.map((n, lane) => {
      const from = x(shelf.saved_at[n] ?? start);
      return html`<g class=${shelf.fate[n] === "kept" ? "kept" : "gone"}><title>${shelf.name[n]}: ${shelf.why[n]}</title>
        <text x="0" y=${lane * LANE + 12}>${cut(shelf.name[n], 21)}</text>
        <rect x=${from} y=${lane * LANE + 3} width=${Math.max(3, x(shelf.gone_at[n] ?? end) - from)} height=${LANE - 6} rx="2" />
        ${shelf.pinned[n] && html`<circle cx=${from} cy=${lane * LANE + 8} r="4" />`}</g>`;
    })}
    <text x=${NAMES} y=${height - 4}>${moment(start)}</text><text x=${width - 10} y=${height - 4} text-anchor="end">${since(start, end)}</text>
  </svg></div>`;
}

/** Asks for the name of a checkpoint. */
function TagForm({ name, onGive, onClose }) {
  const submit = (event) => (event.preventDefault(), onGive(new FormData(event.currentTarget).get("tag")), onClose());
  return html`<form class="tools" aria-label="Tag" onSubmit=${submit} onKeyDown=${(event) => event.key === "Escape" && onClose()}>
    <label class="choice">a name for ${name} <input name="tag" required pattern="[A-Za-z0-9._\\-]+" title="A-Z a-z 0-9 . _ -" autofocus ref=${(input) => input?.focus()} /></label>
    <button type="submit">Give the name</button><button type="button" onClick=${onClose}>Cancel</button></form>`;
}

/** "latest:3" as a person says it. */
const ruled = (why) => why.replace(/\b(latest|earliest|best|every):(\w+)(?::([^, ]+))?/g, (_, rule, n, metric) => `${rule === "every" ? "" : "the "}${rule} ${n}${metric ? ` by ${metric}` : ""}`);

/** The rules by which a checkpoint stays, or for want of which it went. */
function because(shelf, n) {
  const why = ruled(shelf.why[n] ?? "");
  if (shelf.fate[n] !== "deleted") return why || (shelf.fate[n] === "kept" ? "all are kept" : "–");
  return why === "checkpoint_budget" ? "over the checkpoint_budget" : why ? `not among ${why}` : "–";
}

export function Shelf({ shelf, now, trial, orders, onFork }) {
  const [read, setRead] = useState({}); // what came of reading a checkpoint, by its name
  const give = (word, n) => orders.give({ order: word, trial, iteration: shelf.iteration[n] });
  const [named, name] = useState(null);
  const verify = async (n) => {
    const tell = (said) => setRead((before) => ({ ...before, [shelf.name[n]]: said }));
    tell({ reads: true });
    tell(await load(shelf.verify[n]).catch((error) => ({ verified: null, problem: error.message })));
  };
  const act = (_, n) =>
    html`${shelf.download[n] && !embedded && html`<a href=${shelf.download[n]} download aria-label=${`Download ${shelf.name[n]}`}>download</a> `}
      ${orders.give && shelf.fate[n] === "kept" && html`<button type="button" aria-label=${`${shelf.pinned[n] ? "Unpin" : "Pin"} ${shelf.name[n]}`} onClick=${() => give(shelf.pinned[n] ? "unpin" : "pin", n)}>${shelf.pinned[n] ? "unpin" : "pin"}</button> <button type="button" aria-label=${`Tag ${shelf.name[n]}`} onClick=${() => name(shelf.iteration[n])}>tag</button> ${onFork && html`<button type="button" aria-label=${`Fork from ${shelf.name[n]}`} onClick=${() => onFork(shelf.iteration[n])}>fork</button>`}`}`;
  const checked = (_, n) => {
    const is = read[shelf.name[n]] ?? { verified: shelf.verified[n], checked: shelf.checked?.[n], problem: shelf.problem?.[n] };
    if (is.reads) return "being read";
    if (is.verified == null && is.problem) return is.problem;
    const said = is.verified ? "verified" : is.verified === false ? html`<span class="wrong" title=${is.problem}>damaged</span>` : is.checked === "sizes" ? "sizes fit" : "–";
    return html`${said}${!is.verified && shelf.verify?.[n] && !embedded && html` <button type="button" aria-label=${`Verify ${shelf.name[n]}`} onClick=${() => verify(n)}>verify</button>`}`;
  };
  if (!shelf.name.length) return html`<${Empty}>It has saved no checkpoint. A class saves with checkpoint_freq=N, a function with tune.report(..., checkpoint=...).<//>`;
  const row = shelf.iteration.indexOf(named);
  return html`<${Axis} shelf=${shelf} now=${now} />
    ${orders.give && html`<${Answer} said=${orders.said} about=${ON_SHELF} />`}
    ${row >= 0 && html`<${TagForm} name=${shelf.name[row]} onGive=${(tag) => orders.give({ order: "tag", trial, iteration: named, tag })} onClose=${() => name(null)} />`}
    <${Columns} data=${{ ...shelf, act: shelf.name }} label="Checkpoints" attributes=${(n) => ({ class: shelf.fate[n] === "kept" ? "" : "gone" })} shown=${{
      name: ["checkpoint", (name, n) => html`<code>${name}</code>${(shelf.tags[n] ?? []).map((each) => html` <b class="tag">${each}</b>`)}`],
      act: ["do", act], iteration: ["iteration#"], value: ["value#"], saved_at: ["saved#", moment], bytes: ["size#", bytes],
      verified: ["checked", checked],
      fate: ["fate", (fate, n) => html`${shelf.pinned[n] ? "pinned, " : ""}${fate}${shelf.gone_at[n] ? ` ${moment(shelf.gone_at[n])}` : ""}`],
      why: ["why", (_, n) => because(shelf, n)],
      copies: ["copies", (copies, n) => [shelf.here[n] ? "here" : "", ...copies].filter(Boolean).join(", ") || "–"],
    }} />`; // prettier-ignore
}
