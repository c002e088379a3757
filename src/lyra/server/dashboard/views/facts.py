"""Facts in a row: a short word above each value, for the head of a page about one thing."""

from __future__ import annotations

from collections.abc import Iterable

from lyra.server.dashboard.html import Child, Html, tag


def facts_row(facts: Iterable[tuple[str, Child]]) -> Html:
    """A list of words and values side by side; it wraps on narrow screens."""
    return tag("dl", [tag("div", tag("dt", word), tag("dd", value)) for word, value in facts], class_="facts-row")
