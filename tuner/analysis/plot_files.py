"""Plots as files: images, pages, and one page with all of them, which needs no network."""

from __future__ import annotations

import html
from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from trainables.errors import MissingExtraError
from trainables.extras import how_to_install
from trainables.places import child_of, split_query
from trainables.printable import one_line
from tuner.analysis.file_target import IMAGES, put
from tuner.analysis.plot_page import BUTTONS, Plots, document, shown_in_notebooks
from tuner.analysis.plot_source import NothingToPlot, PlotSource, plotly
from tuner.analysis.plots import KINDS, figure
from tuner.error import SettingError, refused

if TYPE_CHECKING:
    import plotly.graph_objects as go


def plot(seen: PlotSource, kind: str | None, path: str | PathLike[str] | None) -> Any:
    """The figure of a kind, or {name: figure} of all that there is something to show for; written where `path` says.

    Raises SettingError for a kind that shows nothing, with the reason; MissingExtraError.
    """
    plotly()
    target = None if path is None else fspath(path)
    if kind is None:
        return _plot_all(seen, target)
    try:
        made = figure(seen, kind)
    except NothingToPlot as reason:
        raise SettingError(f"kind={kind!r} shows nothing of this experiment: {reason}") from None
    if target is not None:
        write(made, target)
    return shown_in_notebooks(made)


def _plot_all(seen: PlotSource, target: str | None) -> dict[str, go.Figure]:
    suffix = PurePath(split_query(target or "")[0]).suffix
    if suffix not in ("", ".html"):
        only = "of all kinds it is a page (.html) or a directory; an image shows one kind: "
        raise refused("path", target, only + ", ".join(KINDS))
    made, left_out = everything(seen)
    if target is not None and suffix:
        put(target, page(PurePath(split_query(target)[0]).stem, made, left_out).encode())
    elif target is not None:
        for name, each in made.items():
            write(each, child_of(target, f"{name.replace('/', '_')}.html"))
    return Plots({name: shown_in_notebooks(each) for name, each in made.items()})


def everything(seen: PlotSource) -> tuple[dict[str, go.Figure], dict[str, str]]:
    """All figures by name, and why kinds are left out."""
    made: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for kind, known in KINDS.items():
        count = len(seen.metrics) if known.per_metric and len(seen.metrics) > 1 else 1
        for number in range(count):
            name = f"{kind}-{seen.metrics[number]}" if count > 1 else kind
            try:
                made[name] = figure(seen, kind, number)
            except NothingToPlot as reason:
                left_out[name] = str(reason)
    return made, left_out


def write(made: go.Figure, target: str) -> None:
    """A figure as an interactive page, or an image, at a path or a URI. Raises SettingError, MissingExtraError."""
    suffix = PurePath(split_query(target)[0]).suffix
    if suffix == ".html":
        put(target, made.to_html(include_plotlyjs=True, config=BUTTONS).encode())
    elif suffix in IMAGES:
        put(target, image(made, suffix[1:]))
    else:
        raise refused("path", target, f"it ends in one of {', '.join(('.html', *IMAGES))}")


def image(made: go.Figure, form: str) -> bytes:
    """A figure as an image. A browser of this machine draws it; none is ever downloaded."""
    try:
        import kaleido  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(f"plots as images need kaleido: {how_to_install('plot')}") from error
    try:
        drawn: bytes = made.to_image(format=form, width=1100, height=made.layout.height or 650)
    except RuntimeError as error:  # so are all of its errors about a browser
        raise MissingExtraError(
            "plots as images need Chrome or Chromium on this machine (Debian: apt-get install chromium); "
            f"interactive pages (.html) need none: {error}"
        ) from error
    return drawn


def page(title: str, made: Mapping[str, go.Figure], left_out: Mapping[str, str]) -> str:
    """One page with these plots, and why others are left out. plotly is in it."""
    reasons = "".join(f"<li>{_safe(name)}: {_safe(reason)}</li>" for name, reason in left_out.items())
    after = f'<div class="left-out">Left out:<ul>{reasons}</ul></div>' if reasons else ""
    return document(title, made.values(), before=f"<h1>{_safe(title)}</h1>", after=after)


def _safe(value: str) -> str:
    """Names and values come from configs: they are text, whatever is in them."""
    return html.escape(one_line(value))
