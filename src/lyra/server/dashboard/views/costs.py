"""Costs for the pages: the sums of the server's records, narrowed to some agents, models, keys and users, by day.

`CostFilter` is what a person has chosen; `narrowed` gives the sums that fit and that the caller may see; `by_day` lays
them out as days and groups for a stacked plot. Counts values; `pages.costs` shows them.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple

from lyra.server.dashboard.plots import SERIES_MAX
from lyra.server.http.past.records import CostSum
from lyra.server.identity import Caller

# The words that costs can be grouped by → the field of a sum, and what stands for an empty value.
DIMENSIONS: Final[dict[str, tuple[str, str]]] = {
    "agent": ("agent", "(no agent)"),
    "model": ("model", "(no model)"),
    "key": ("key", "(no key)"),
    "user": ("owner", "(operator)"),
}
OTHERS: Final = "(all others)"
_CSV_COLUMNS: Final = (
    *("day", "agent", "model", "key", "owner", "calls", "errors", "input_tokens", "output_tokens", "cached_tokens"),
    *("cost_usd", "unpriced_calls"),
)
_FORMULA: Final = re.compile(r"[\t\r\n]|\s*[=+\-@\uff1d\uff0b\uff0d\uff20]")  # how one begins, also in full width


class CostFilter(NamedTuple):
    """What is looked at: the values of dimensions that a person chose, and the number of days up to today."""

    chosen: Mapping[str, str]
    days: int = 30

    def fits(self, total: CostSum) -> bool:
        return all(dimension_value(total, name) == value for name, value in self.chosen.items())


class DayCosts(NamedTuple):
    """Micro-dollars by day and group: `groups` are the dearest first, `rows` have a sum for each of them."""

    groups: list[str]
    rows: list[tuple[str, list[int]]]


class GroupTotal(NamedTuple):
    """All days of one group."""

    group: str
    calls: int
    errors: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    micro_usd: int
    unpriced_calls: int


def dimension_value(total: CostSum, dimension: str) -> str:
    field, word_if_empty = DIMENSIONS[dimension]
    return getattr(total, field) or word_if_empty


def narrowed(sums: Iterable[CostSum], wanted: CostFilter, caller: Caller, now: float) -> list[CostSum]:
    """The sums of the caller that fit a filter."""
    first = days_until(now, wanted.days)[0]
    return [total for total in sums if caller.owns(total.owner) and total.day >= first and wanted.fits(total)]


def days_until(now: float, count: int) -> list[str]:
    """The last days up to today, in order, by UTC."""
    today: date = datetime.fromtimestamp(now, UTC).date()
    return [(today - timedelta(days=count - 1 - index)).isoformat() for index in range(count)]


def by_day(sums: Sequence[CostSum], dimension: str, days: Sequence[str]) -> DayCosts:
    """The costs of each day by the values of a dimension; those that cost least stand together. What was stamped later
    than the last day, before the clock was set back, is in the last day."""
    totals: dict[str, int] = {}
    for total in sums:
        group = dimension_value(total, dimension)
        totals[group] = totals.get(group, 0) + total.cost_micro_usd
    ordered = sorted(totals, key=lambda group: (-totals[group], group))
    groups = ordered[:SERIES_MAX]
    if len(ordered) > len(groups):
        groups.append(OTHERS)
    places = {group: min(index, len(groups) - 1) for index, group in enumerate(ordered)}
    cells: dict[str, list[int]] = {day: [0] * len(groups) for day in days}
    for total in sums:
        day = min(total.day, days[-1])
        if day in cells:
            cells[day][places[dimension_value(total, dimension)]] += total.cost_micro_usd
    return DayCosts(groups, list(cells.items()))


def group_totals(sums: Iterable[CostSum], dimension: str) -> list[GroupTotal]:
    """A row for each value of a dimension, the dearest first."""
    rows: dict[str, list[int]] = {}
    for total in sums:
        row = rows.setdefault(dimension_value(total, dimension), [0] * 7)
        counted = (
            *(total.calls, total.errors, total.input_tokens, total.output_tokens, total.cached_tokens),
            *(total.cost_micro_usd, total.unpriced_calls),
        )
        for index, count in enumerate(counted):
            row[index] += count
    totals = [GroupTotal(group, *row) for group, row in rows.items()]
    return sorted(totals, key=lambda row: (-row.micro_usd, row.group))


def costs_csv(sums: Iterable[CostSum]) -> str:
    """The sums as CSV. A text that a spreadsheet would run as a formula is made plain text."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(["user" if name == "owner" else name for name in _CSV_COLUMNS])
    for total in sorted(sums, key=lambda row: (row.day, row.agent, row.model)):
        usd = f"{total.cost_micro_usd / 1_000_000:.6f}"
        values = [usd if name == "cost_usd" else getattr(total, name) for name in _CSV_COLUMNS]
        writer.writerow([_plain(value) for value in values])
    return text.getvalue()


def _plain(value: str | int) -> str | int:
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value
