// Where data come from: the server, or the page itself, when it is a report.
const inside = document.getElementById("data");
const embedded = inside && JSON.parse(inside.textContent);

async function load(address, signal) {
  if (embedded) {
    const found = embedded[address] ?? embedded[address.split("?")[0]];
    if (!found) throw new Error("this report has no data of that; the page of `tuner ui` has");
    return found;
  }
  const answer = await fetch(address, { signal });
  const said = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
  if (!answer.ok) throw Object.assign(new Error(said.error || `the server answered ${answer.status}`), said, { status: answer.status });
  return said;
}

async function post(address, body) {
  const answer = await fetch(address, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(said.why || said.error || `the server answered ${answer.status}`);
  return said;
}

export { embedded, load, post };
