"""A budget as bars: what was used, what is set aside for calls under way, and what is left, for each limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lyra.core.budgets.budget import DIMENSIONS
from lyra.server.dashboard.html import Html, tag
from lyra.server.dashboard.words import money

if TYPE_CHECKING:
    from lyra.kernel.process.process import Process


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


def budget_bars(process: Process) -> Html:
    """A line for each dimension that has a limit or was used. A limit that is shared with others has no bar: what they
    used of it is not shown."""
    rows = [line for dimension in DIMENSIONS if (line := _line(process, dimension)) is not None]
    seconds = process.budget.seconds
    if seconds is not None:
        rows.append(tag("li", tag("span", "time"), tag("span", f"at most {seconds:g} s", class_="figure-cell")))
    if not rows:
        return tag("p", "No limit, and nothing spent yet.", class_="note")
    return tag("ul", rows, class_="budget")


def _line(process: Process, dimension: str) -> Html | None:
    budget, is_own = process.budget, process.has_own_budget
    used = int(budget.used(dimension)) if is_own else process.spent[dimension]
    aside = int(budget.reserved(dimension)) if is_own else 0
    limit = budget.limit(dimension)
    if limit is None and not used:
        return None
    amount = money if dimension == "usd" else "{:,}".format
    words, bar = amount(used), None
    if limit is not None and is_own:
        words += f" of {amount(int(limit))}"
        bar = _bar(used, aside, int(limit), f"{_WORDS[dimension]}: {words}")
    elif limit is not None:
        words += f"; with others at most {amount(int(limit))}"
    if aside:
        words += f", {amount(aside)} set aside"
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
