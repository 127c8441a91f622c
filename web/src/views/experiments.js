// The experiments of this server.
import { html, useEffect, useState } from "../dom.js";
import { count, moment } from "../format.js";
import { load } from "../source.js";
import { Columns, Empty, Link, Missing } from "../parts.js";

export function Experiments() {
  const [{ data, error }, set] = useState({});
  useEffect(() => {
    const read = () => document.hidden || load("experiments.json").then((data) => set({ data }), (wrong) => set((before) => ({ ...before, error: wrong.message })));
    read();
    const timer = setInterval(read, 4000);
    return () => clearInterval(timer);
  }, []);
  if (!data) return html`<${Missing} error=${error} />`;
  const all = data.experiments;
  const wrong = [error, ...data.problems].filter(Boolean).map((line) => html`<p class="wrong" role="status">${line}</p>`);
  if (!all.name.length) return html`${wrong}<${Empty}>There is no experiment here yet. Start one with tune.run(...): it appears here by itself.<//>`;
  const shown = {
    name: ["experiment", (name) => html`<${Link} to=${`e/${encodeURIComponent(name)}/`}>${name}<//>`],
    state: ["state", (state, row) => all.error[row] ?? state ?? (all.loading?.[row] != null ? `reading, ${Math.round(100 * all.loading[row])} %` : "not read yet")],
    trials: ["trials#", (n) => (n == null ? "–" : count(n, "trial"))],
    started_at: ["started#", moment],
    path: ["where", (path) => html`<code>${path}</code>`],
  };
  return html`${wrong}<${Columns} data=${all} shown=${shown} label="Experiments" />`;
}
