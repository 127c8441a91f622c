// Trials as columns: numbers in typed arrays, all else as it came.

class Column {
  constructor(id, label, group) {
    Object.assign(this, { id, label, group, numeric: true, values: new Float64Array(64) });
  }

  set(row, value) {
    if (this.numeric && value != null && typeof value !== "number") {
      this.values = Array.from(this.values, (n) => (Number.isNaN(n) ? null : n));
      this.numeric = false;
    }
    if (!this.numeric) return void (this.values[row] = value ?? null);
    if (row >= this.values.length) {
      const longer = new Float64Array(Math.max(row + 1, this.values.length * 2)).fill(NaN);
      longer.set(this.values);
      this.values = longer;
    }
    this.values[row] = value ?? NaN;
  }

  /** Null where there is nothing, or no number. */
  at(row) {
    const value = this.values[row];
    return value === undefined || Number.isNaN(value) ? null : value;
  }
}

/** What every result has, whatever was reported. */
const AUTOMATIC = new Set(
  "training_iteration time_total_s time_this_iter_s timestamp pid hostname node_ip date done trial_id experiment_id time_since_restore iterations_since_restore should_checkpoint episodes_total timesteps_total timesteps_since_restore experiment_tag config warmup_time".split(" "),
);

const GROUPS = ["config", "last"];

class Trials {
  /** `data`: trials.json. `words`: {status: how the page calls it}. */
  constructor(data, words) {
    this.words = words;
    this.columns = new Map();
    this.rows = new Map();
    this.version = 0;
    this.length = data.id.length;
    this.best = data.best;
    this.metric = data.metric;
    this.mode = data.mode;
    this.seq = data.seq;
    for (const [key, values] of Object.entries(data)) if (Array.isArray(values)) this.#fill(key, key, "", values);
    for (const group of GROUPS)
      for (const [key, values] of Object.entries(data[group] ?? {})) this.#fill(`${group}/${key}`, key, group, values);
    data.id.forEach((id, row) => this.rows.set(id, row));
  }

  #fill(id, label, group, values) {
    const column = this.#column(id, label, group);
    if (values.every((value) => value === null || typeof value === "number"))
      column.values = Float64Array.from(values, (value) => value ?? NaN);
    else (column.values = values), (column.numeric = false);
  }

  #column(id, label, group) {
    let found = this.columns.get(id);
    if (!found) {
      found = new Column(id, label, group);
      found.values.fill(NaN);
      this.columns.set(id, found);
    }
    return found;
  }

  /** Takes rows of an event: whole rows, each with its place in `row`. */
  merge(data) {
    const each = (id, label, group, values) => {
      const column = this.#column(id, label, group);
      values.forEach((value, number) => column.set(data.row[number], value));
    };
    for (const [key, values] of Object.entries(data)) if (Array.isArray(values) && key !== "row") each(key, key, "", values);
    for (const group of GROUPS)
      for (const [key, values] of Object.entries(data[group] ?? {})) each(`${group}/${key}`, key, group, values);
    for (const column of this.group("last")) if (!(column.label in (data.last ?? {}))) for (const row of data.row) column.set(row, null);
    data.row.forEach((row, number) => {
      this.rows.set(data.id[number], row);
      this.length = Math.max(this.length, row + 1);
    });
    this.version++;
  }

  group(group) {
    return [...this.columns.values()].filter((column) => column.group === group);
  }

  /** A column by what a person writes: its own name, else that of a parameter, a metric, or the end of one. */
  find(name) {
    const own = this.columns.get({ trial: "id", "#": "index", number: "index" }[name] ?? name);
    const found = own ?? this.columns.get(`config/${name}`) ?? this.columns.get(`last/${name}`);
    return found ?? [...this.columns.values()].find((column) => column.label.endsWith("/" + name));
  }

  at(id, row) {
    return this.columns.get(id)?.at(row) ?? null;
  }
}

export { AUTOMATIC, Column, Trials };
