// Small pieces that several views are made of.
import { html, useEffect, useState } from "./dom.js";
import { number } from "./format.js";
import { address, link } from "./route.js";

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

/** {"a/b": 1} as {a: {b: 1}}: what a run is given. */
function nested(flat) {
  const made = {};
  for (const [key, value] of Object.entries(flat)) {
    const path = key.split("/");
    const last = path.pop();
    let at = made;
    for (const part of path) at = Object.hasOwn(at, part) && typeof at[part] === "object" && at[part] ? at[part] : (at[part] = {});
    at[last] = value;
  }
  return made;
}

/** A button that puts a text into the clipboard, where the browser lets it. */
function Copy({ text, what }) {
  const [said, say] = useState("");
  useEffect(() => say(""), [text]);
  const copy = () => navigator.clipboard.writeText(text).then(() => say("copied"), () => say("the browser does not let it"));
  return navigator.clipboard && html`<button type="button" onClick=${copy}>Copy ${what}</button> <span role="status" class="muted">${said}</span>`;
}

const Config = ({ config, label = "config" }) =>
  html`<table class="config" aria-label=${label}><tbody>${Object.entries(config).map(
    ([key, value]) => html`<tr><th scope="row">${key}</th><td class="n">${number(value)}</td></tr>`,
  )}</tbody></table>${Object.keys(config).length > 0 && html`<p><${Copy} text=${JSON.stringify(nested(config), null, 1)} what="as JSON" /></p>`}`;

const State = ({ status, said }) => html`<span class=${"state " + status}>${said ?? status}</span>`;

const Link = ({ to, children, ...more }) => html`<a ...${link(to)} ...${more}>${children}</a>`;

const TrialLink = ({ route, id }) => html`<${Link} to=${address(route, { view: "trial", trial: id })}>${id}<//>`;

const Panel = ({ title, wide, children }) =>
  html`<section class=${wide ? "panel wide" : "panel"} aria-label=${title}><h2>${title}</h2>${children}</section>`;

/** A choice of few. */
const Choice = ({ label, value, of, onChange }) =>
  html`<label class="choice">${label} <select value=${value} onChange=${(event) => onChange(event.currentTarget.value)}>
    ${of.map((each) => html`<option value=${each} selected=${each === value}>${each}</option>`)}</select></label>`;

const Check = ({ label, value, onChange }) =>
  html`<label class="choice"><input type="checkbox" checked=${value} onChange=${(event) => onChange(event.currentTarget.checked)} /> ${label}</label>`;

const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

const Wrong = ({ children }) => html`<p class="wrong" role="alert">${children}</p>`;

/** In place of what is not there: yet, or why. */
const Missing = ({ error }) => (error ? html`<${Wrong}>${error}<//>` : html`<${Empty}>Reading…<//>`);

export { Check, Choice, Columns, Config, Copy, Empty, Facts, Link, Missing, Panel, State, TrialLink, Wrong, nested };
