// Two experiments over each other.
import { html } from "../dom.js";
import { duration, number } from "../format.js";
import { Lines } from "../lines.js";
import { useData } from "../live.js";
import { Choice, Columns, Empty, Facts, Panel } from "../parts.js";
import { hue } from "../plot.js";
import { address, go } from "../route.js";

/** The best so far stays as it is until a better one comes. */
function stepped({ name, curve }, n, key) {
  const [x, y] = [[], []];
  curve.value.forEach((value, at) => {
    if (at) x.push(curve[key][at]), y.push(curve.value[at - 1]);
    x.push(curve[key][at]), y.push(value);
  });
  return { id: name, colour: hue(n), x, y };
}

export function Compare({ route, experiment }) {
  const other = route.query.get("with");
  const byTime = route.query.get("x") === "time";
  const { data, error } = useData(experiment, experiment.address("compare", { with: other }));
  const set = (key, value) => go(address(route, {}, { [key]: value }), true);
  if (error) return html`<p class="wrong" role="alert">${error}</p>`;
  if (!data) return html`<${Empty}>Reading…<//>`;
  if (!data.names.length) return html`<${Empty}>There is no other experiment on this server: tuner ui ONE TWO shows two.<//>`;
  const sides = data.sides ?? [];
  return html`<div class="tools"><${Choice} label="compare with" value=${other ?? ""} of=${["", ...data.names]} onChange=${(value) => set("with", value)} />
      <${Choice} label="over" value=${byTime ? "time" : "results"} of=${["results", "time"]} onChange=${(value) => set("x", value === "time" ? value : null)} /></div>
    ${!other ? html`<${Empty}>Choose the other experiment.<//>` : html`<div class="panels">
      <${Panel} title="Best so far" wide><p class="legend">${sides.map((side, n) => html`<span class="key" style=${{ borderColor: hue(n) }}>${side.name}</span> `)}</p>
        <${Lines} label="best so far of both" height=${300} lines=${sides.map((side, n) => stepped(side, n, byTime ? "time_s" : "results"))} names=${[byTime ? "time" : "results", data.metric ?? ""]} xText=${byTime ? duration : number} /><//>
      ${sides.map((side) => html`<${Panel} title=${side.name}><${Facts} of=${[["trials", number(side.trials)], ["best", side.best ? number(side.best.value) : "–"], ["trial", side.best?.id ?? "–"]]} /><//>`)}
      ${data.parameters?.key?.length > 0 && html`<${Panel} title="Best configs" wide><${Columns} data=${data.parameters} label="Best configs" shown=${{ key: ["parameter"], left: [sides[0].name + "#"], right: [sides[1].name + "#"] }} /><//>`}
    </div>`}`;
}
