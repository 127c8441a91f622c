"""Plots as files, and a report: one HTML page with all of them that needs no network."""

from __future__ import annotations

import html
from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from trainables.errors import MissingExtraError
from trainables.extras import how_to_install
from trainables.places import parent_and_name
from trainables.printable import one_line
from trainables.store import fs
from trainables.transfer.open import open_backend, shown
from tuner.analysis import scopes
from tuner.analysis.plot_page import BUTTONS, Plots, document, shown_in_notebooks
from tuner.analysis.plot_source import NothingToPlot, PlotSource, best_first, plotly
from tuner.analysis.plots import KINDS, figure
from tuner.error import SettingError, StorageError, refused
from tuner.experiment.outcome import ended_because
from tuner.experiment.paths import as_local_path, is_elsewhere

if TYPE_CHECKING:
    import plotly.graph_objects as go

IMAGES = (".png", ".svg", ".pdf", ".jpeg", ".webp")
PAGES = (".html", ".htm")
ROWS = 50
"""At most so many trials stand in the table, the first by rank."""


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
    suffix = PurePath(target or "").suffix
    if suffix not in ("", ".html"):
        only = "of all kinds it is a page (.html) or a directory; an image shows one kind: "
        raise refused("path", target, only + ", ".join(KINDS))
    made, left_out = everything(seen)
    if target is not None and suffix:
        put(target, page(seen, {}, PurePath(target).stem, made, left_out).encode())
    elif target is not None:
        for name, each in made.items():
            write(each, f"{target}/{name.replace('/', '_')}.html")
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
    suffix = PurePath(target).suffix
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


def put(target: str, data: bytes) -> str:
    """Write a file to a path or a URI, and return that as it may be shown. Raises StorageError."""
    if not is_elsewhere(target):
        path = as_local_path(target)
        try:
            fs.make_dirs(path.parent)
            fs.replace_file(path, data)
        except OSError as error:
            raise StorageError(f"{path} cannot be written: {error.strerror}") from None
        return str(path)
    above, name = parent_and_name(target)
    with open_backend(above) as backend:
        backend.put(name, data)
    return shown(target)


def page_at(target: str) -> str:
    """The path or URI of a page, once its suffix says that it is one. Raises SettingError."""
    suffix = PurePath(target).suffix.lower()
    if suffix not in PAGES:
        one = f"; one plot as {suffix}: analysis.plot(kind, path=...)" if suffix in IMAGES else ""
        raise refused("path", target, f"a report is a page, and its file ends in {' or '.join(PAGES)}{one}")
    return target


def publish(seen: PlotSource, facts: Mapping[str, Any], title: str, target: str) -> str:
    """Write the report to a path or a URI, and return that."""
    plotly()
    return put(target, page(seen, facts, title, *everything(seen)).encode())


def page(
    seen: PlotSource, facts: Mapping[str, Any], title: str, made: Mapping[str, go.Figure], left_out: Mapping[str, str]
) -> str:
    """The report: facts in words, a table of the trials, all plots, and why others are left out. plotly is in it."""
    reasons = "".join(f"<li>{_safe(name)}: {_safe(reason)}</li>" for name, reason in left_out.items())
    said = "".join(f"<tr><th>{_safe(name)}</th><td>{_safe(value)}</td></tr>" for name, value in facts.items())
    before = f'<h1>{_safe(title)}</h1><div class="scroll"><table>{said}</table></div>{_trials(seen)}'
    after = f'<div class="left-out">Left out:<ul>{reasons}</ul></div>' if reasons else ""
    return document(title, made.values(), before=before, after=after)


def _trials(seen: PlotSource) -> str:
    ranked = best_first(seen, 0) if seen.metrics else list(seen.trials)
    keys = list(dict.fromkeys(key for trial in ranked[:ROWS] for key in trial.evaluated_params))
    header = ["#", "trial", "status", "iteration", *seen.metrics, *keys, "checkpoints", "why it ended"]
    rows = []
    for trial in ranked[:ROWS]:
        params = trial.evaluated_params
        found = (scopes.score(trial, metric, "min", "last") for metric in seen.metrics)
        scores = ["" if score is None else _number(score) for score in found]
        values = [_number(params.get(key, "")) for key in keys]
        stands = [trial.index, trial.trial_id, trial.status, trial.iteration]
        rows.append([*stands, *scores, *values, len(trial.checkpoints), ended_because(trial) or ""])
    head = "".join(f"<th>{_safe(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{_safe(cell)}</td>' for cell in row)}</tr>" for row in rows)
    more = f"<p>the first {ROWS} of {len(ranked)} trials</p>" if len(ranked) > ROWS else ""
    return f'<h2>Trials</h2><div class="scroll"><table><tr>{head}</tr>{body}</table></div>{more}'


def _number(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _safe(value: Any) -> str:
    """Names and values come from configs: they are text, whatever is in them."""
    return html.escape(one_line(str(value)))
