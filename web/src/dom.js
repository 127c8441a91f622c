// Elements, components and hooks, from one place.
import { Component, h, render } from "./vendor/preact.js";
import { useEffect, useMemo, useRef, useState } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";

const html = htm.bind(h);

/** Draws again whenever `source.listen(callback)` calls back, at most once a frame. */
function useSource(source) {
  const [, again] = useState(0);
  const drawn = source?.told;
  useEffect(() => {
    let asked = 0;
    const stop = source?.listen(() => {
      asked ||= requestAnimationFrame(() => ((asked = 0), again((n) => n + 1)));
    });
    if (source && source.told !== drawn) again((n) => n + 1); // it spoke between the drawing and this
    return () => (cancelAnimationFrame(asked), stop?.());
  }, [source]);
}

/** The width of an element's content in pixels, as it changes; 0 before it stands. */
function useWidth(ref) {
  const [width, set] = useState(0);
  useEffect(() => {
    const seen = new ResizeObserver(([entry]) => set(Math.floor(entry.contentRect.width)));
    seen.observe(ref.current);
    return () => seen.disconnect();
  }, []);
  return width;
}

class Listeners {
  #all = new Set();
  told = 0;
  listen(callback) {
    this.#all.add(callback);
    return () => this.#all.delete(callback);
  }
  tell() {
    this.told++;
    for (const callback of this.#all) callback();
  }
}

export { Component, Listeners, html, render, useEffect, useMemo, useRef, useSource, useState, useWidth };
