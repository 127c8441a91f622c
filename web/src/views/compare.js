// Two experiments over each other.
import { html } from "../dom.js";
import { number } from "../format.js";
import { Lines } from "../lines.js";
import { useData } from "../live.js";
import { Choice, Columns, Empty, Facts, Link, Missing, Panel } from "../parts.js";
import { hue } from "../plot.js";
import { address, setter } from "../route.js";

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
  const set = setter(route);
  if (!data) return html`<${Missing} error=${error} />`;
  if (!data.names.length) return html`<${Empty}>There is no other experiment on this server. Two, or a directory of them, are served by: tuner ui ONE TWO<//>`;
  const sides = data.sides ?? [];
  return html`<div class="tools"><${Choice} label="compare with" value=${other ?? ""} of=${["", ...data.names]} onChange=${set("with")} />
      <${Choice} label="over" value=${byTime ? "time" : "results"} of=${["results", "time"]} onChange=${set("x", "results")} /></div>
    ${!other ? html`<${Empty}>Choose the other experiment.<//>` : html`<div class="panels">
      <${Panel} title="Best so far" wide><p class="legend">${sides.map((side, n) => html`<span class="key" style=${{ borderColor: hue(n) }}>${side.name}${side.metric ? `: ${side.metric} (${side.mode})` : ""}</span> `)}</p>
        <${Lines} label="best so far of both" height=${300} lines=${sides.map((side, n) => stepped(side, n, byTime ? "time_s" : "results"))} names=${[byTime ? "time" : "results", data.metric ?? ""]} time=${byTime} /><//>
      ${sides.map((side) => html`<${Panel} title=${side.name}><${Facts} of=${[["trials", number(side.trials)], ["best", side.best ? (side.best.said ?? number(side.best.value)) : "–"], ["trial", side.best ? html`<${Link} to=${address({ ...route, query: new URLSearchParams() }, { name: side.name, view: "trial", trial: side.best.id })}>${side.best.id}<//>` : "–"]]} /><//>`)}
      ${data.parameters?.key?.length > 0 && html`<${Panel} title="Best configs" wide><${Columns} data=${data.parameters} label="Best configs" attributes=${(n) => ({ class: data.parameters.left[n] === data.parameters.right[n] ? "gone" : "" })} shown=${{ key: ["parameter"], left: [sides[0].name + "#"], right: [sides[1].name + "#"] }} /><//>`}
    </div>`}`;
}
