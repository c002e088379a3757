"""Costs over time: by agent, model, key and user, stacked by day; a click narrows. And latency, tokens, cache,
restarts."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from lyra.core.checking.check import one_of
from lyra.observe.history.time_series import RESOLUTIONS, FigurePoint
from lyra.server.dashboard.gathering import PageSource, Told, gather
from lyra.server.dashboard.html import Html, TableColumn, TableRow, join, table, tag
from lyra.server.dashboard.layout import PAGE_WAIT_S, link, nothing_yet, page, past_note, region
from lyra.server.dashboard.words import PLOT_SCRIPT, SERIES_MAX, PlotColumn, PlotStep, money, pills, plot
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer, RequestQuery
from lyra.server.http.past.records import CostSum
from lyra.server.identity import Caller

_RANGE_WORDS: Final = {"hour": "last hour", "day": "last day", "month": "last month"}
_YOUNG_S: Final = 4 * 3_600
_DAYS: Final = (7, 30, 90)


class CostPageQuery(RequestQuery):
    """`by` groups; `agent`, `model`, `key` and `user` narrow; `range` is that of the figures over time."""

    by: str = "agent"
    agent: str = ""
    model: str = ""
    key: str = ""
    user: str = ""
    days: Annotated[int, msgspec.Meta(ge=1, le=366)] = 30
    range: str = ""

    def check(self, uptime_s: float) -> CostPageQuery:
        """Return the query with a range: of a server that has run for a short time the last hour, else the last day."""
        one_of(self.by, DIMENSIONS, "by")
        if not self.range:
            return msgspec.structs.replace(self, range="hour" if uptime_s < _YOUNG_S else "day")
        one_of(self.range, RESOLUTIONS, "range")
        return self

    @property
    def chosen(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in DIMENSIONS if getattr(self, name)}


def _address(call: HttpCall, query: CostPageQuery, **changes: Any) -> str:
    values = {"by": query.by, "days": query.days, "range": query.range, **query.chosen, **changes}
    return link(call, "costs", query=values)


class Costs(msgspec.Struct):
    """The sums and figures to show, and whether the time before the server began is still being read."""

    sums: list[CostSum]
    points: list[FigurePoint]
    is_reading: bool


async def _read(call: HttpCall) -> Costs:
    records, query = call.parts.records, call.query.check(call.kernel.get_system_status().uptime_seconds)
    if call.endpoint.group == "data":
        await records.load_past_within(PAGE_WAIT_S)
    points = records.series.points(query.range, call.now, call.caller.owns)
    return Costs(_sums(call, query), points, records.is_reading)


def _join(_call: HttpCall, told: Sequence[Told[Costs]]) -> Costs:
    points: dict[float, FigurePoint] = {}
    for _, costs in told:
        for point in costs.points:
            if point.started_at in points:
                points[point.started_at].merge(point)
            else:
                points[point.started_at] = point
    sums = [total for _, costs in told for total in costs.sums]
    return Costs(sums, [points[began] for began in sorted(points)], any(costs.is_reading for _, costs in told))


SOURCE: Final = PageSource("costs", Costs, _read, _join, CostPageQuery)


def _sums(call: HttpCall, query: CostPageQuery) -> list[CostSum]:
    wanted = CostFilter(query.chosen, query.days)
    return filter_sums(call.parts.records.sums(), wanted, call.caller, call.now)


async def _costs(call: HttpCall) -> RawAnswer:
    query: CostPageQuery = call.query.check(call.kernel.get_system_status().uptime_seconds)
    note = await past_note(call) if call.parts.whole is None else None
    costs = await gather(call, SOURCE)
    return page(
        call,
        "Costs",
        _choices(call, query),
        region(call, "spend", ("model.called",), note, *_spend(call, query, costs), every_ms=2_000),
        tag("div", _ranges(call, query), class_="bar"),
        region(call, "series", ("model.called", "child.restarting"), _over_time(query, costs.points), every_ms=2_000),
        scripts=(PLOT_SCRIPT,),
        lead="What calls of models cost and how long they took.",
    )


# ---------------------------------------------------------------- what is chosen
def _choices(call: HttpCall, query: CostPageQuery) -> Html:
    groups = [(word, _address(call, query, by=word), word == query.by) for word in DIMENSIONS]
    days = [(f"{count} days", _address(call, query, days=count), count == query.days) for count in _DAYS]
    return tag(
        "div",
        tag("span", "By", class_="note"),
        pills("Group by", groups),
        pills("Days", days),
        [_render_filter(call, query, name, value) for name, value in query.chosen.items()],
        tag("a", "CSV", href=_csv_address(call, query), class_="button", download="costs.csv"),
        class_="bar",
    )


def _render_filter(call: HttpCall, query: CostPageQuery, name: str, value: str) -> Html:
    wider = _address(call, query, **{name: None})
    return tag(
        "span",
        f"{name}: ",
        tag("code", value),
        " ",
        tag("a", "✕", href=wider, aria_label=f"All values of {name}"),
        class_="chosen",
    )


def _csv_address(call: HttpCall, query: CostPageQuery) -> str:
    return link(call, "costs.csv", query={"days": query.days, **query.chosen})


def _ranges(call: HttpCall, query: CostPageQuery) -> Html:
    choices = [(words, _address(call, query, range=name), name == query.range) for name, words in _RANGE_WORDS.items()]
    return pills("Range of the figures below", choices)


# ---------------------------------------------------------------- spend
def _spend(call: HttpCall, query: CostPageQuery, costs: Costs) -> list[Html]:
    sums = costs.sums
    if not sums and costs.is_reading:
        return [tag("div", class_="to-come")]
    if not sums:
        return [nothing_yet(call, "What calls of models cost stands here, by day.")]
    days = by_day(sums, query.by, days_until(call.now, query.days))
    columns = [PlotColumn(group, "bar", _narrower(call, query, group)) for group in days.groups]
    steps = [
        PlotStep(day, day[5:], [micro_usd / 1_000_000 for micro_usd in costs_of_day]) for day, costs_of_day in days.rows
    ]
    total = sum(row.cost_micro_usd for row in sums)
    about = f"{money(total)} in {query.days} days, by {query.by}. A click on a bar or a name narrows to it."
    return [
        plot("spend-by-day", "Spend by day", about, columns, steps, kind="stacked", unit="usd", step_label="Day"),
        _totals(call, query, sums),
    ]


def _narrower(call: HttpCall, query: CostPageQuery, group: str) -> str:
    if group == OTHERS or group in query.chosen.values():
        return ""
    further = next((name for name in DIMENSIONS if name not in (*query.chosen, query.by)), query.by)
    return _address(call, query, **{query.by: group, "by": further})


def _totals(call: HttpCall, query: CostPageQuery, sums: Sequence[CostSum]) -> Html:
    columns = [
        TableColumn(query.by),
        *(TableColumn(name, is_figure=True) for name in ("calls", "errors", "input", "output", "cached", "cost")),
    ]
    rows = []
    for total in group_totals(sums, query.by):
        href = _narrower(call, query, total.group)
        counts = (total.calls, total.errors, total.input_tokens, total.output_tokens, total.cached_tokens)
        unpriced = f" + {total.unpriced_calls} without a price" if total.unpriced_calls else ""
        name = tag("a", total.group, href=href) if href else total.group
        cells = [name, *(f"{count:,}" for count in counts), money(total.micro_usd) + unpriced]
        rows.append(TableRow(total.group, cells))
    return table(f"Costs by {query.by}", columns, rows)


# ---------------------------------------------------------------- figures over time
def _over_time(query: CostPageQuery, points: Sequence[FigurePoint]) -> Html:
    words = _RANGE_WORDS[query.range]
    percentiles = {f"p{percent}": _percentile(percent) for percent in (50, 95, 99)}
    roles = {"p50": "line low", "p99": "line high"}
    latency = _figure(
        (
            "latency",
            "Latency of model calls",
            f"Percentiles of the {words}: half, 95 and 99 of 100 calls took at most this",
        ),
        [(PlotColumn(name, roles.get(name, "line")), read) for name, read in percentiles.items()],
        query.range,
        points,
        unit="ms",
    )
    tokens = _figure(
        ("tokens", "Tokens", f"Input and output of the {words}"),
        [(PlotColumn("input", "bar"), _field("input_tokens")), (PlotColumn("output", "bar"), _field("output_tokens"))],
        query.range,
        points,
        kind="stacked",
    )
    cache = _figure(
        ("cache", "Cache hits", f"Share of the input tokens that came from a provider's cache, {words}"),
        [(PlotColumn("cached"), _compute_cached_share)],
        query.range,
        points,
        unit="share",
    )
    trouble = _figure(
        ("trouble", "Errors and restarts", f"Failed calls of models and restarts of supervised processes, {words}"),
        [(PlotColumn("errors", "bar"), _field("errors")), (PlotColumn("restarts", "bar"), _field("restarts"))],
        query.range,
        points,
        kind="stacked",
    )
    return tag("div", latency, tokens, cache, trouble, class_="pair")


_Reading = Callable[[FigurePoint], float | None]


def _figure(
    words: tuple[str, str, str],
    series: Sequence[tuple[PlotColumn, _Reading]],
    range_name: str,
    points: Sequence[FigurePoint],
    **options: Any,
) -> Html:
    steps = [
        PlotStep(*_step_words(point.started_at, range_name), [read(point) for _, read in series]) for point in points
    ]
    return join(plot(*words, [column for column, _ in series], steps, **options))


def _step_words(started_at: float, range_name: str) -> tuple[str, str]:
    moment = datetime.fromtimestamp(started_at, UTC)
    if range_name == "month":
        return moment.date().isoformat(), moment.strftime("%m-%d")
    return moment.strftime("%Y-%m-%d %H:%M UTC"), moment.strftime("%H:%M")


def _percentile(percent: int) -> _Reading:
    return lambda point: point.latency.percentile(percent)


def _field(name: str) -> _Reading:
    return lambda point: float(getattr(point, name))


def _compute_cached_share(point: FigurePoint) -> float | None:
    """Return the share of a step's input that came from a cache."""
    if not point.calls:
        return None
    return point.cached_tokens / max(point.input_tokens, point.cached_tokens, 1)


async def _costs_csv(call: HttpCall) -> RawAnswer:
    if call.parts.whole is None:
        await call.parts.records.load_past()
    sums = (await gather(call, SOURCE)).sums
    headers = {"content-disposition": 'attachment; filename="costs.csv"'}
    return RawAnswer(costs_csv(sums).encode("utf-8", "replace"), "text/csv; charset=utf-8", 200, headers)


ENDPOINTS: Final = (
    Endpoint("pages.costs", "GET", "/costs", "Costs over time", _costs, query=CostPageQuery),
    Endpoint("downloads.costs", "GET", "/costs.csv", "Costs by day as CSV", _costs_csv, query=CostPageQuery),
)


# ---------------------------------------------------------------- costs
# Costs for the pages: the sums of the server's records, narrowed to some agents, models, keys and users, by day.

# The words that costs can be grouped by → the field of a sum, and what represents an empty value.
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


def filter_sums(sums: Iterable[CostSum], wanted: CostFilter, caller: Caller, now: float) -> list[CostSum]:
    """Return the sums of the caller that fit a filter."""
    first = days_until(now, wanted.days)[0]
    return [total for total in sums if caller.owns(total.owner) and total.day >= first and wanted.fits(total)]


def days_until(now: float, count: int) -> list[str]:
    """Return the last days up to today, in order, by UTC."""
    today: date = datetime.fromtimestamp(now, UTC).date()
    return [(today - timedelta(days=count - 1 - index)).isoformat() for index in range(count)]


def by_day(sums: Sequence[CostSum], dimension: str, days: Sequence[str]) -> DayCosts:
    """Return the costs of each day by the values of a dimension; those that cost least stand together. What was stamped
    later than the last day, before the clock was set back, is in the last day."""
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
    """Return a row for each value of a dimension, the dearest first."""
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
    """Return the sums as CSV. A text that a spreadsheet would run as a formula is made plain text."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(["user" if name == "owner" else name for name in _CSV_COLUMNS])
    for total in sorted(sums, key=lambda row: (row.day, row.agent, row.model)):
        usd = f"{total.cost_micro_usd / 1_000_000:.6f}"
        values = [usd if name == "cost_usd" else getattr(total, name) for name in _CSV_COLUMNS]
        writer.writerow([_escape_formula(value) for value in values])
    return text.getvalue()


def _escape_formula(value: str | int) -> str | int:
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value
