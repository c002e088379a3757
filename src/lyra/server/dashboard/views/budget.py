"""A budget as bars: what was used, what is set aside for calls under way, and what is left, for each limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lyra.core.budgets.budget import DIMENSIONS
from lyra.server.dashboard.html import Html, tag
from lyra.server.dashboard.words import money

if TYPE_CHECKING:
    from lyra.core.budgets.budget import Budget

__all__ = ["budget_bars"]

_WIDTH: Final = 400
_HEIGHT: Final = 12
_WORDS: Final = {
    "usd": "money",
    "input_tokens": "tokens in",
    "output_tokens": "tokens out",
    "llm_calls": "model calls",
    "tool_calls": "tool calls",
    "hops": "hops",
    "iterations": "iterations",
}


def budget_bars(budget: Budget) -> Html:
    """A line for each dimension that has a limit or was used."""
    rows = [_line(budget, dimension) for dimension in DIMENSIONS if _matters(budget, dimension)]
    if budget.seconds is not None:
        rows.append(tag("li", tag("span", "time"), tag("span", f"at most {budget.seconds:g} s", class_="figure-cell")))
    if not rows:
        return tag("p", "No limit, and nothing spent yet.", class_="note")
    return tag("ul", rows, class_="budget")


def _matters(budget: Budget, dimension: str) -> bool:
    return budget.limit(dimension) is not None or int(budget.used(dimension)) > 0


def _line(budget: Budget, dimension: str) -> Html:
    used, aside = int(budget.used(dimension)), int(budget.reserved(dimension))
    limit = budget.limit(dimension)
    amount = money if dimension == "usd" else "{:,}".format
    words = amount(used) + (f" of {amount(int(limit))}" if limit is not None else "")
    if aside:
        words += f", {amount(aside)} set aside"
    bar = None if limit is None else _bar(used, aside, int(limit), f"{_WORDS[dimension]}: {words}")
    return tag(
        "li",
        tag("span", _WORDS[dimension]),
        bar,
        tag("span", words, class_="figure-cell"),
        data_key=dimension,
    )


def _bar(used: int, aside: int, limit: int, label: str) -> Html:
    whole = max(limit, used + aside, 1)
    used_px, aside_px = _WIDTH * used / whole, _WIDTH * aside / whole
    return tag(
        "svg",
        tag("rect", x=0, y=0, width=_WIDTH, height=_HEIGHT, rx=2, class_="budget-whole"),
        tag("rect", x=0, y=0, width=f"{used_px:.1f}", height=_HEIGHT, rx=2, class_="budget-used"),
        tag("rect", x=f"{used_px:.1f}", y=0, width=f"{aside_px:.1f}", height=_HEIGHT, class_="budget-aside"),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
        class_="budget-bar",
        data_over="true" if used + aside >= limit else None,
    )
