// The experiments of this server.
import { html } from "../dom.js";
import { count, moment } from "../format.js";
import { useData } from "../live.js";
import { Columns, Empty, Link } from "../parts.js";

export function Experiments() {
  const { data, error } = useData(null, "experiments.json");
  if (error) return html`<p class="wrong" role="alert">${error}</p>`;
  if (!data) return html`<${Empty}>Reading…<//>`;
  const all = data.experiments;
  if (!all.name.length) return html`<${Empty}>There is no experiment here yet. Start one with tune.run(...); then load this page again.<//>`;
  const shown = {
    name: ["experiment", (name) => html`<${Link} to=${`e/${encodeURIComponent(name)}/`}>${name}<//>`],
    state: ["state", (state, row) => all.error[row] ?? state ?? "not read yet"],
    trials: ["trials#", (n) => (n == null ? "–" : count(n, "trial"))],
    started_at: ["started#", moment],
    path: ["where", (path) => html`<code>${path}</code>`],
  };
  return html`<${Columns} data=${all} shown=${shown} label="Experiments" />`;
}
