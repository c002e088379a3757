"""How the figures of the header look, and the small picture of the spend of today."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lyra.server.dashboard.figures import FiguresNow
from lyra.server.dashboard.html import Child, Html, join, tag
from lyra.server.dashboard.words import duration, money

__all__ = ["figures_bar", "sparkline"]

_WIDTH: Final = 72
_HEIGHT: Final = 16


def figures_bar(figures: FiguresNow) -> Html:
    """The figures in a row."""
    return join(
        _figure("alive", figures.alive, "alive"),
        _figure("waiting", figures.waiting, "waiting", state="needs-you" if figures.waiting else None),
        _figure(
            "failed", figures.failed_per_minute, "failed/min", state="failed" if figures.failed_per_minute else None
        ),
        _figure("spend", money(figures.spent_micro_usd), _of_budget(figures), sparkline(figures.hours_micro_usd)),
        _figure("p95", duration(figures.p95_s), "p95", title="95 of 100 model calls took at most this long"),
        tag("span", "○ connecting", id="live", class_="live", data_live="waiting", role="status", data_keep=True),
    )


def _of_budget(figures: FiguresNow) -> str:
    """What stands behind the spend of today. The budget of the kernel also counts earlier days: then what is left of it
    is told."""
    limit, left = figures.limit_micro_usd, figures.left_micro_usd
    if limit is None or left is None:
        return "today"
    if limit - left == figures.spent_micro_usd:
        return f"of {money(limit)} today"
    return f"today, {money(left)} of {money(limit)} left"


def _figure(
    name: str, value: Child, label: str, more: Child = None, *, state: str | None = None, title: str | None = None
) -> Html:
    return tag(
        "span",
        tag("strong", value, class_="value"),
        " ",
        tag("span", label, class_="label"),
        more,
        class_="figure",
        data_figure=name,
        data_state=state,
        title=title,
    )


def sparkline(values: Sequence[float], label: str = "Spend of each hour of today") -> Html:
    """A small picture of a row of figures; the last one is marked. One alone is a level line."""
    values = (*values, *values) if len(values) == 1 else values
    peak = max(values, default=0) or 1
    step = _WIDTH / max(1, len(values) - 1)
    points = [(index * step, _HEIGHT - 2 - (_HEIGHT - 4) * value / peak) for index, value in enumerate(values)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    last = points[-1] if points else (0.0, _HEIGHT - 2.0)
    return tag(
        "svg",
        tag("polyline", points=path, fill="none", class_="spark-line"),
        tag("circle", cx=f"{last[0]:.1f}", cy=f"{last[1]:.1f}", r="1.5", class_="spark-end"),
        viewBox=f"-2 0 {_WIDTH + 4} {_HEIGHT}",
        width=_WIDTH + 4,
        height=_HEIGHT,
        class_="spark",
        role="img",
        aria_label=label,
    )
