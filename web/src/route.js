// Which view is shown of what: an address like e/NAME/trials?filter=x, below the document's base.
import { Listeners, useEffect, useState } from "./dom.js";
import { embedded } from "./source.js";

const VIEWS = ["overview", "trials", "curves", "parameters", "lineage", "machines", "compare"];
const changed = new Listeners();

/** A page with its data inside has one address; the view stands behind its #. */
function standing() {
  if (embedded) return location.hash.slice(1) || Object.keys(embedded)[0].replace("overview.json", "");
  return location.href.slice(document.baseURI.replace(/[?#].*/, "").length);
}

let current = standing();
addEventListener("popstate", () => ((current = standing()), changed.tell()));

function parse(address) {
  const [path, query = ""] = address.split("#")[0].split("?");
  const [, name = "", view = "", trial = ""] = path.split("/").map(decodeURIComponent);
  return { name, view: name && (VIEWS.includes(view) || view === "trial" ? view : "overview"), trial, query: new URLSearchParams(query) };
}

const path = ({ name, view, trial }) =>
  name ? `e/${encodeURIComponent(name)}/${view === "overview" ? "" : view}${trial ? "/" + encodeURIComponent(trial) : ""}` : "./";

/** The address of another view; filter and moment stay, and what `query` says is set, or removed by null. */
function address(route, to = {}, query = {}) {
  const next = new URLSearchParams();
  for (const key of to.name && to.name !== route.name ? [] : ["filter", "at"])
    if (route.query.get(key)) next.set(key, route.query.get(key));
  if (!Object.keys(to).length) for (const [key, value] of route.query) next.set(key, value);
  for (const [key, value] of Object.entries(query)) value == null || value === "" ? next.delete(key) : next.set(key, value);
  const said = path({ ...route, trial: to.view ? "" : route.trial, ...to });
  return said + (next.size ? "?" + next : "");
}

function go(to, replace = false) {
  current = to === "./" ? "" : to;
  const shown = embedded ? "#" + current : new URL(to, document.baseURI);
  try {
    history[replace ? "replaceState" : "pushState"](null, "", shown);
  } catch {
    // The frame of a notebook has no history of its own.
  }
  changed.tell();
}

/** What sets a word of the address, or, with nothing or what is usual, removes it. */
const setter = (route) => (key, usual) => (value) => go(address(route, {}, { [key]: value === usual ? null : value === true ? 1 : value || null }), true);

const goTrial = (route, trial) => go(address(route, { view: "trial", trial }));

/** What an `<a>` needs to be a link that also opens elsewhere. */
const link = (to) => ({
  href: embedded ? "#" + to : to,
  onClick: (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
    event.preventDefault();
    go(to);
    scrollTo(0, 0);
  },
});

function useRoute() {
  const [, again] = useState(0);
  useEffect(() => changed.listen(() => again((n) => n + 1)), []); // at once: who types or clicks waits for no frame
  return parse(current);
}

export { VIEWS, address, go, goTrial, link, setter, useRoute };
