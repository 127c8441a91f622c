"""Mean regret over virtual time as an SVG: a line and a band of 95 % for each method."""

from __future__ import annotations

from xml.sax.saxutils import escape

import numpy as np
from search_tables import PAIRED, Results, bootstrap_means

WIDTH, HEIGHT = 860, 480
LEFT, RIGHT, TOP, BOTTOM = 60, 190, 30, 50
TIMES = np.geomspace(0.02, 1.0, 60)
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8c564b", "#7f7f7f", "#17becf", "#bcbd22")
PEERS = ("syne-", "optuna-")
"""How names of others' methods begin: their lines are dashed."""
LEVELS = (1.0, 0.7, 0.5, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02)
SHARES = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
MOST = 10
"""Methods in a picture: more lines cannot be told apart."""


def svg(results: Results, workers: int, measured: str = "regret") -> str:
    """The picture of the searches of so many workers; the best ten methods at the end of the time are in it."""
    cells = results.shared_cells(workers)
    curves = {
        name: results.regrets(name, workers, cells, TIMES)
        for name in results.methods(workers)
        if not name.endswith(PAIRED)
    }
    chosen = sorted(curves, key=lambda name: float(curves[name][:, -1].mean()))[:MOST]
    lowest = 0.9 * min(float(curves[name][:, -1].mean()) for name in chosen)

    def x(share: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * float(np.log(share / TIMES[0]) / np.log(1 / TIMES[0]))

    def y(regret: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * float(np.log(max(regret, lowest)) / np.log(lowest))

    def points(regrets: np.ndarray) -> str:
        return " ".join(f"{x(at):.1f},{y(regret):.1f}" for at, regret in zip(TIMES, regrets, strict=True))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="18">mean {measured}, {workers} workers</text>',
        f'<text x="{LEFT}" y="{HEIGHT - 12}">share of the virtual time of 40 full trainings</text>',
    ]
    for level in (level for level in LEVELS if level >= lowest):
        parts.append(f'<path d="M{LEFT} {y(level):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(level) + 4:.1f}" text-anchor="end">{level:g}</text>')
    for share in SHARES:
        parts.append(f'<text x="{x(share):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{share:.0%}</text>')
    for number, (name, colour) in enumerate(zip(chosen, COLOURS, strict=False)):
        low, high = bootstrap_means(curves[name], cells)
        backwards = " ".join(reversed(points(low).split()))
        dashes = ' stroke-dasharray="6 3"' if name.startswith(PEERS) else ""
        height = TOP + 20 + 20 * number
        parts += [
            f'<polygon points="{points(high)} {backwards}" fill="{colour}" opacity="0.07"/>',
            f'<polyline points="{points(curves[name].mean(axis=0))}" fill="none" stroke="{colour}" '
            f'stroke-width="1.8"{dashes}/>',
            f'<path d="M{WIDTH - RIGHT + 12} {height - 4}h24" stroke="{colour}" stroke-width="2"{dashes}/>',
            f'<text x="{WIDTH - RIGHT + 42}" y="{height}">{escape(name)}</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])
