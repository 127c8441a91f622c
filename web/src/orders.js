// What a user says to a running experiment, and what came of it.
import { html, useEffect, useRef, useState } from "./dom.js";
import { post } from "./source.js";

/** Gives orders about an experiment: {give(body), said}; `said` is what came of the last one. */
function useOrders(experiment) {
  const [said, say] = useState(null);
  const give = async (body) => {
    say({ state: "sent", word: body.order });
    try {
      say({ word: body.order, ...(await post(experiment.root + "orders", body)) });
    } catch (error) {
      say({ word: body.order, state: "refused", why: error.message });
    }
  };
  return { give, said };
}

/** What came of an order that is one of `about`, if those are given. */
const Answer = ({ said: any, about, but }) => {
  const said = any && (about ? about.includes(any.word) : !but?.includes(any.word)) ? any : null;
  return html`<p role="status" class=${said?.state === "refused" ? "wrong" : "muted"}>${said ? `${said.word}: ${said.state}${said.why ? ` (${said.why})` : ""}` : ""}</p>`;
};

/** What is typed for a value: a number or JSON where it is one, else text. */
function valueOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Asks for what differs in a fork. newest(): a promise of the iteration of the newest checkpoint. */
function ForkForm({ trial, config, iterations, iteration, newest, onGive, onClose }) {
  const submit = async (event) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget);
    onClose();
    // The newest is that of this moment: while the form was open the trial has gone on, and others went.
    const from = given.get("iteration") === "newest" ? await newest() : Number(given.get("iteration"));
    const changed = Object.entries(config).filter(([key, value]) => given.get("." + key) !== text(value));
    onGive({ order: "fork", trial, iteration: from, config: Object.fromEntries(changed.map(([key]) => [key, valueOf(given.get("." + key))])) });
  };
  const first = useRef();
  useEffect(() => first.current.focus(), []);
  return html`<form class="panel fork" aria-label="Fork" onSubmit=${submit} onKeyDown=${(event) => event.key === "Escape" && onClose()}>
    <h2>Fork: a new trial from a checkpoint of this one</h2>
    <label>from iteration <select name="iteration" ref=${first}><option value="newest" selected=${iteration === "newest"}>the newest</option>${iterations.map((each) => html`<option selected=${each === iteration}>${each}</option>`)}</select></label>
    ${Object.entries(config).map(([key, value]) => html`<label>${key} <input name=${"." + key} defaultValue=${text(value)} spellcheck=${false} /></label>`)}
    <p><button type="submit">Start the fork</button> <button type="button" onClick=${onClose}>Cancel</button></p>
  </form>`;
}

const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));

export { Answer, ForkForm, useOrders };
