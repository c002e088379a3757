"""How the figures of the header look, and the small picture of the spend of today.

A figure that gets a digit more moves nothing beside it: each value has the room of its widest form (`data-widest`, laid
out unseen by the style sheet), and is written shorter where it would be wider than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lyra.server.dashboard.figures import FiguresNow
from lyra.server.dashboard.html import Child, Html, join, tag
from lyra.server.dashboard.words import duration, money

_WIDTH: Final = 72
_HEIGHT: Final = 16
# The widest form of each value, in digits of one width.
_WIDEST: Final = {"alive": "0000", "waiting": "000", "failed": "000", "spend": "$000.00", "p95": "000 ms"}
_CENT: Final = 10_000
_THOUSAND_USD: Final = 1_000_000_000


def figures_bar(figures: FiguresNow) -> Html:
    """The figures in a row."""
    return join(
        _figure("alive", _count(figures.alive, 9_999), "alive", title=f"{figures.alive:,} processes are alive"),
        _figure(
            "waiting",
            _count(figures.waiting, 999),
            "waiting",
            state="needs-you" if figures.waiting else None,
            title=f"{figures.waiting:,} questions wait for a person",
        ),
        _figure(
            "failed",
            _count(figures.failed_per_minute, 999),
            "failed/min",
            state="failed" if figures.failed_per_minute else None,
            title=f"{figures.failed_per_minute:,} processes failed in the last minute",
        ),
        _figure(
            "spend",
            _amount(figures.spent_micro_usd),
            _of_budget(figures),
            sparkline(figures.hours_micro_usd),
            title=f"{money(figures.spent_micro_usd)} for model calls since midnight UTC",
        ),
        _figure("p95", duration(figures.p95_s), "p95", title="95 of 100 model calls took at most this long"),
        tag("span", "○ connecting", id="live", class_="live", data_live="waiting", role="status", data_keep=True),
    )


def _count(number: int, most: int) -> str:
    """A number; above the most that there is room for in thousands."""
    return str(number) if number <= most else f"{min(number, 999_999) // 1_000}k"


def _amount(micro_usd: int) -> str:
    """An amount in at most seven characters: `$0.0002`, `$4.12`, `$12,345`."""
    if 0 < micro_usd < _CENT:
        return f"${micro_usd / 1_000_000:.4f}"
    return f"${micro_usd / 1_000_000:,.0f}" if micro_usd >= _THOUSAND_USD else f"${micro_usd / 1_000_000:.2f}"


def _of_budget(figures: FiguresNow) -> str:
    """What stands behind the spend of today. The budget of the kernel also counts earlier days: then what is left of it
    is told."""
    limit, left = figures.limit_micro_usd, figures.left_micro_usd
    if limit is None or left is None:
        return "today"
    if limit - left == figures.spent_micro_usd:
        return f"of {_amount(limit)} today"
    return f"today, {_amount(left)} of {_amount(limit)} left"


def _figure(
    name: str, value: Child, label: str, more: Child = None, *, state: str | None = None, title: str | None = None
) -> Html:
    return tag(
        "span",
        tag("strong", value, class_="value", data_widest=_WIDEST[name]),
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
