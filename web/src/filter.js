// The words of the field Filter: `lr > 0.5`, `state = ERROR`, words; all must hold.

const TERM = /("[^"]*"|[^\s"<>=!&,]+)\s*(<=|>=|!=|==|=|<|>)\s*("[^"]*"|[^\s&,]+)|"[^"]*"|[^\s&,]+/g;
const bare = (text) => text.replace(/^"|"$/g, "");

const HOLDS = {
  "<": (a, b) => a < b, ">": (a, b) => a > b, "<=": (a, b) => a <= b, ">=": (a, b) => a >= b,
  "=": (a, b) => a === b, "==": (a, b) => a === b, "!=": (a, b) => a !== b,
}; // prettier-ignore

function compared(trials, name, operator, wanted) {
  const column = trials.find(name);
  if (!column) throw new Error(`no column is named ${name}`);
  const holds = HOLDS[operator];
  const number = Number(wanted);
  if (column.numeric) {
    const values = column.values;
    if (/^nan$/i.test(wanted)) return (row) => Number.isNaN(values[row]) === (operator[0] === "=");
    if (Number.isNaN(number)) throw new Error(`${name} has numbers, and ${wanted} is none`);
    return (row) => holds(values[row], number);
  }
  const text = wanted.toLowerCase();
  const ordered = operator[0] === "<" || operator[0] === ">";
  if (ordered) return (row) => typeof column.at(row) === "number" && holds(column.at(row), number);
  const isState = column.id === "state"; // it is also found by the words that the page shows
  const shown = (row) => (isState ? [column.at(row), trials.words[column.at(row)], trials.columns.get("said").at(row)] : [column.at(row)]);
  const same = (row) => shown(row).some((value) => String(value ?? "").toLowerCase() === text);
  return operator === "!=" ? (row) => !same(row) : same;
}

function containing(trials, word) {
  const text = new RegExp(word.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"), "i");
  const columns = [...trials.columns.values()].filter((column) => !column.numeric && column.id !== "held");
  return (row) => columns.some((column) => column.values[row] != null && text.test(column.values[row]));
}

/** Which rows a filter leaves, in order: {rows, error}. With an error all are left. */
function chosen(trials, filter) {
  const key = `${trials.version} ${filter ?? ""}`;
  if (trials.chosen?.key !== key) trials.chosen = { key, ...choose(trials, filter) };
  return trials.chosen;
}

function choose(trials, filter) {
  const rows = new Uint32Array(trials.length);
  const tests = [];
  let error = null;
  try {
    for (const [word, name, operator, wanted] of (filter ?? "").matchAll(TERM))
      if (operator) tests.push(compared(trials, bare(name), operator, bare(wanted)));
      else if (word !== "and") tests.push(containing(trials, bare(word)));
  } catch (wrong) {
    error = wrong.message;
    tests.length = 0;
  }
  let count = 0;
  for (let row = 0; row < trials.length; row++) if (tests.every((test) => test(row))) rows[count++] = row;
  return { rows: rows.subarray(0, count), error };
}

const quoted = (name) => (/^[^\s"<>=!&,]+$/.test(name) ? name : `"${name}"`);

/** A filter in which a column lies in a range, or, without one, anywhere. */
function within(filter, name, range) {
  const kept = [...(filter ?? "").matchAll(TERM)].filter(([, at, operator]) => !(operator && operator !== "!=" && bare(at) === name));
  const terms = kept.map(([term]) => term);
  if (range) terms.push(`${quoted(name)} >= ${range[0]}`, `${quoted(name)} <= ${range[1]}`);
  return terms.join(" ");
}

/** The range of a column in a filter that `within` has made, or null. */
function rangeOf(filter, name) {
  const range = [-Infinity, Infinity];
  let found = null;
  for (const [, at, operator, value] of (filter ?? "").matchAll(TERM)) {
    if (!operator || operator === "!=" || bare(at) !== name) continue;
    found = range;
    if (operator[0] === ">") range[0] = Number(bare(value));
    else if (operator[0] === "<") range[1] = Number(bare(value));
    else range[0] = range[1] = bare(value);
  }
  return found;
}

export { chosen, quoted, rangeOf, within };
