// Small pieces that several views are made of.
import { html } from "./dom.js";
import { number } from "./format.js";
import { link } from "./route.js";

/** A table of what is given as columns. `shown`: {key: [label, cell(value, row)]}; a label that ends in # is of numbers. */
function Columns({ data, shown, label, attributes = () => ({}) }) {
  const keys = Object.keys(shown).filter((key) => data[key] || shown[key][1]?.length > 1);
  const rows = Object.values(data)[0] ?? [];
  const numeric = (key) => (shown[key][0].endsWith("#") ? "n" : "");
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${`${label}, table`}><table>
    <thead><tr>${keys.map((key) => html`<th scope="col" class=${numeric(key)}>${shown[key][0].replace(/#$/, "")}</th>`)}</tr></thead>
    <tbody>${rows.map((_, row) => html`<tr key=${row} ...${attributes(row)}>${keys.map((key) => {
      const [, cell = number] = shown[key];
      return html`<td class=${numeric(key)}>${cell(data[key]?.[row], row)}</td>`;
    })}</tr>`)}</tbody>
  </table></div>`;
}

/** Names with their values. */
const Facts = ({ of }) =>
  html`<dl class="facts">${of.filter(Boolean).map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;

const Config = ({ config, label = "config" }) =>
  html`<table class="config" aria-label=${label}><tbody>${Object.entries(config).map(
    ([key, value]) => html`<tr><th scope="row">${key}</th><td class="n">${number(value)}</td></tr>`,
  )}</tbody></table>`;

const State = ({ status, said }) => html`<span class=${"state " + status}>${said ?? status}</span>`;

const Link = ({ to, children, ...more }) => html`<a ...${link(to)} ...${more}>${children}</a>`;

const Panel = ({ title, wide, children }) =>
  html`<section class=${wide ? "panel wide" : "panel"} aria-label=${title}><h2>${title}</h2>${children}</section>`;

/** A choice of few. */
const Choice = ({ label, value, of, onChange }) =>
  html`<label class="choice">${label} <select value=${value} onChange=${(event) => onChange(event.currentTarget.value)}>
    ${of.map((each) => html`<option value=${each} selected=${each === value}>${each}</option>`)}</select></label>`;

const Check = ({ label, value, onChange }) =>
  html`<label class="choice"><input type="checkbox" checked=${value} onChange=${(event) => onChange(event.currentTarget.checked)} /> ${label}</label>`;

const Empty = ({ children }) => html`<p class="empty" role="status">${children}</p>`;

export { Check, Choice, Columns, Config, Empty, Facts, Link, Panel, State };
