"""A page of HTML with plots, which needs no network, and how a notebook shows it: in a frame."""

from __future__ import annotations

import base64
import gzip
import html
import json
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from trainables.printable import one_line

if TYPE_CHECKING:
    import plotly.graph_objects as go

BUTTONS = {"showSendToCloud": False, "plotlyServerURL": "", "displaylogo": False}
"""No button of a page sends what it shows anywhere."""

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 1200px; margin: 2em auto; padding: 0 1em; color: #222; }
.scroll { overflow-x: auto; }
.left-out { color: #666; font-size: 13px; } h1 { margin-bottom: 0; }
h2 { font-size: 18px; margin: 1.5em 0 0; }
"""

_DRAW = """
const drawn = new IntersectionObserver(
  all => all.filter(each => each.isIntersecting).forEach(each => draw(each.target)), {rootMargin: "400px"});
function draw(place) {
  drawn.unobserve(place);
  const data = place.firstElementChild;
  if (!data || data.tagName !== "SCRIPT") return;
  data.remove();
  const made = JSON.parse(data.textContent);
  Plotly.newPlot(place, made.data, made.layout, {responsive: true, ...%s});
}
document.querySelectorAll(".plot").forEach(
  place => place.getBoundingClientRect().top < innerHeight + 400 ? draw(place) : drawn.observe(place));
addEventListener("beforeprint", () => document.querySelectorAll(".plot").forEach(draw));
"""
"""A plot is drawn when it comes near to what is in sight: all of them at once would take a browser many seconds."""

_UNPACK = """
(async () => {
  const packed = Uint8Array.from(atob("%s"), each => each.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const text = await new Response(stream).text();
  document.open();
  document.write(text);
  document.close();
})();
"""
_OF_NOTEBOOKS = ("plotly_mimetype", "plotly_mimetype+notebook")
"""What plotly chooses by itself in a notebook; who has chosen something else gets that."""
_NEED_NBFORMAT = ("vscode", "jupyterlab", "nteract")
"""What it chooses in editors that draw by themselves, and can only be told so where nbformat is installed."""


class Plots(dict[str, Any]):
    """{name: figure}, which a notebook shows as one page."""

    def _repr_html_(self) -> str:
        return framed("Plots", self.values(), height=700)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self)})"


def shown_in_notebooks(made: go.Figure) -> go.Figure:
    """The figure, which a notebook shows. plotly's own way there needs nbformat, and an extension or a network."""
    made._ipython_display_ = partial(_show, made)
    made.show = partial(_show, made)
    return made


def _show(made: go.Figure, *given: Any, **options: Any) -> None:
    import plotly.io

    renderer = plotly.io.renderers.default
    without_nbformat = renderer in _NEED_NBFORMAT and find_spec("nbformat") is None
    if given or options or not (renderer in _OF_NOTEBOOKS or without_nbformat):
        type(made).show(made, *given, **options)
        return
    title = html.unescape(made.layout.title.text or "plot")
    height = (made.layout.height or 450) + 90
    show: Any = sys.modules["IPython"].display.display  # its shell is why plotly has chosen that
    show({"text/html": framed(title, [made], height=height), "text/plain": f"Figure({title!r})"}, raw=True)


def framed(title: str, figures: Iterable[go.Figure], *, height: int) -> str:
    """A page in a frame, packed: a notebook's server drops messages of more than 3 MB, and plotly alone has 5."""
    packed = gzip.compress(document(title, figures).encode(), 6, mtime=0)
    page = f"<!doctype html><meta charset='utf-8'><script>{_UNPACK % base64.b64encode(packed).decode()}</script>"
    return f'<iframe srcdoc="{html.escape(page)}" style="width: 100%; height: {height}px; border: 0"></iframe>'


def document(title: str, figures: Iterable[go.Figure], *, before: str = "", after: str = "") -> str:
    """A page with these plots between two pieces of HTML. plotly is in it."""
    from plotly.offline import get_plotlyjs

    plots = "".join(map(_place, figures))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_safe(title)}</title><style>{_STYLE}</style></head><body>{before}{plots}{after}"
        + (f"<script>{get_plotlyjs()}</script><script>{_DRAW % json.dumps(BUTTONS)}</script>" if plots else "")
        + "</body></html>"
    )


def _place(made: go.Figure) -> str:
    """Where a figure will be, as large as it will be, and its data as text that no parser of HTML looks into."""
    from plotly.io.json import to_json_plotly

    parts = made.to_plotly_json()
    title = html.unescape(parts["layout"].pop("title", {}).get("text", ""))  # beside a figure's buttons it has no room
    data = to_json_plotly(parts).replace("<", "\\u003c")
    size = f"height: {made.layout.height or 450}px" + ("; min-width: 700px" if _is_wide(parts["layout"]) else "")
    place = f'<div class="plot" style="{size}"><script type="application/json">{data}</script></div>'
    return f'<h2>{_safe(title)}</h2><div class="scroll">{place}</div>'


def _is_wide(layout: Mapping[str, Any]) -> bool:
    """True for what nobody can read on a telephone's width: panels, and parallel axes."""
    return "xaxis2" in layout or len(layout.get("xaxis", {}).get("tickvals", ())) > 4


def _safe(text: str) -> str:
    return html.escape(one_line(text))
