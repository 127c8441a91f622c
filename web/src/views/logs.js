// The end of a trial's output, followed while it grows.
import { html, useEffect, useRef, useState } from "../dom.js";
import { bytes } from "../format.js";

const TAIL = 32768;

async function tail(address, signal) {
  const answer = await fetch(`${address}?tail=${TAIL}`, { signal });
  if (!answer.ok) throw new Error(answer.status === 404 ? "there is none" : `the server answered ${answer.status}`);
  return { text: await answer.text(), size: Number(answer.headers.get("X-Size")) };
}

/** What came since. The last byte that is known is asked for again: a range of nothing is an error. */
async function since(address, from, signal) {
  const answer = await fetch(address, { signal, headers: { Range: `bytes=${Math.max(0, from - 1)}-` } });
  return answer.status === 206 ? (await answer.arrayBuffer()).slice(from ? 1 : 0) : new ArrayBuffer(0);
}

export function Logs({ files, follow }) {
  const [name, choose] = useState(files.name.includes("stdout") ? "stdout" : files.name[0]);
  const [shown, show] = useState({ text: "", size: 0 });
  const box = useRef();
  const address = files.address[files.name.indexOf(name)];
  useEffect(() => {
    const leaving = new AbortController();
    let timer = 0;
    let held = null;
    const read = async () => {
      try {
        if (!held?.size) held = await tail(address, leaving.signal);
        else {
          const more = await since(address, held.size, leaving.signal);
          if (more.byteLength) held = { text: (held.text + new TextDecoder().decode(more)).slice(-4 * TAIL), size: held.size + more.byteLength };
        }
        show(held);
      } catch (error) {
        if (leaving.signal.aborted) return;
        show({ text: error.message, size: 0 });
      }
      if (follow) timer = setTimeout(read, 2000);
    };
    read();
    return () => (leaving.abort(), clearTimeout(timer));
  }, [address, follow]);
  const stays = useRef(true); // who has scrolled up reads on where they are
  useEffect(() => void (stays.current && (box.current.scrollTop = box.current.scrollHeight)), [shown]);
  const scrolled = ({ currentTarget: it }) => (stays.current = it.scrollTop + it.clientHeight >= it.scrollHeight - 20);
  return html`<p class="tools" role="group" aria-label="Which output">${files.name.map((each, n) => html`<button type="button" aria-pressed=${each === name} onClick=${() => choose(each)}>${each}</button> <span class="muted">${bytes(files.bytes[n])}</span> `)}<a href=${address}>whole file</a></p>
    <pre ref=${box} onScroll=${scrolled} tabindex="0" class="log" role="log" aria-live="off" aria-label=${name}>${shown.text || html`<span class="muted">${files.bytes[files.name.indexOf(name)] ? "" : "Nothing was written."}</span>`}</pre>`;
}
