// Numbers, times and sizes as a person reads them.

function number(value) {
  if (value == null || Number.isNaN(value)) return "–";
  if (typeof value !== "number") return typeof value === "object" ? JSON.stringify(value) : String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e7) return String(value);
  const size = Math.abs(value);
  return size >= 1e6 || size < 1e-3 ? value.toExponential(3).replace(/\.?0+e/, "e") : String(Number(value.toPrecision(5)));
}

function bytes(value) {
  if (value == null) return "–";
  const step = value < 1000 ? 0 : Math.min(5, Math.floor(Math.log10(value) / 3));
  return `${Number((value / 1000 ** step).toPrecision(3))} ${["B", "kB", "MB", "GB", "TB", "PB"][step]}`;
}

function duration(seconds) {
  if (seconds == null) return "–";
  const all = Math.round(seconds);
  if (all < 60) return `${seconds < 10 ? Number(seconds.toPrecision(2)) : all} s`;
  const [unit, name, part, small] = all < 3600 ? [60, "min", 1, "s"] : all < 86400 ? [3600, "h", 60, "min"] : [86400, "d", 3600, "h"];
  const rest = Math.floor((all % unit) / part);
  return `${Math.floor(all / unit)} ${name}${rest ? ` ${rest} ${small}` : ""}`;
}

const two = (n) => String(n).padStart(2, "0");

/** A moment as this clock tells it; today's without its date. */
function moment(seconds) {
  if (seconds == null) return "–";
  const at = new Date(seconds * 1000);
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const today = at.toDateString() === new Date().toDateString();
  return today ? time : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}`;
}

/** A moment on an axis that starts at one. */
const since = (start, at) => (at > start ? "+" + duration(at - start) : moment(at));

/** A count with its thousands apart; the browser's own way takes a frame when it is first asked. */
const whole = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, ",");

const count = (n, one, many = one + "s") => `${whole(n)} ${n === 1 ? one : many}`;

export { bytes, count, duration, moment, number, since, whole };
