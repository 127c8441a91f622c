"""The page of an experiment in one file of HTML, with its data inside: it needs no server and no network."""

from __future__ import annotations

import base64
import gzip
import html
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from trainables.errors import MissingExtraError
from trainables.printable import one_line
from tuner.ui.embedded import Extent, reading, views
from tuner.ui.live_experiment import LiveExperiment
from tuner.ui.seen import as_json

TEMPLATE = Path(__file__).with_name("report.html")
"""What `make web` makes."""
PLAIN = 1_000_000
"""Bytes of data that stand in a file as they are; more are packed."""
FILE = 8_000_000
"""Bytes of a file at most: of an experiment with more, less is shown, and the page says so."""
FRAME = 1_500_000
"""Of a frame in a notebook, whose server drops more than 3 MB in 3 s."""


def page(
    place: str | PathLike[str], metrics: Sequence[str] = (), modes: Sequence[str | None] = (), *, packed: bool = False
) -> bytes:
    """The page as HTML.

    Args:
        place, metrics, modes: as in `embedded.reading`.
        packed: small enough for a notebook.

    Raises MissingExtraError where the page has not been made, and what `reading` raises.
    """
    template = _template()
    with reading(place, metrics, modes) as live:
        extent: Extent | None = Extent.of(live)
        while extent is not None:
            made = _filled(template, live, extent, 0 if packed else PLAIN)
            if len(made) <= (FRAME if packed else FILE):
                break
            extent = extent.smaller()
        return made


def frame(place: str | PathLike[str], metrics: Sequence[str], modes: Sequence[str | None], *, height: int) -> str:
    """The page in a frame, which sees nothing of the notebook that it stands in. Raises as `page` does."""
    inside = html.escape(page(place, metrics, modes, packed=True).decode())
    style = f"width: 100%; height: {height}px; border: 0"
    return f'<iframe srcdoc="{inside}" sandbox="allow-scripts" title="experiment" style="{style}"></iframe>'


def _template() -> str:
    try:
        return TEMPLATE.read_text("utf-8")
    except FileNotFoundError:
        raise MissingExtraError(
            "the page of a report is not there: in a clone `make web` makes it, with npm; an installed package has it"
        ) from None


def _filled(template: str, live: LiveExperiment, extent: Extent, plain: int) -> bytes:
    """The page with its data, which no parser of HTML looks into."""
    before, _, rest = template.partition("{{title}}")
    between, _, after = rest.partition("{{data}}")
    data = as_json(views(live, extent)).replace(b"<", b"\\u003c")
    if len(data) > plain:
        data = base64.b64encode(gzip.compress(data, 6, mtime=0))
    title = html.escape(one_line(live.name))
    return b"".join([before.encode(), title.encode(), between.encode(), data, after.encode()])
