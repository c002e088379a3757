"""Plots of the pages: a figure with a table, from which `static/plot.js` draws the picture.

`plot(…)` writes the figure. The table is complete without the script, and says the same as the picture. A column is a
series; its role says how it is drawn: `line`, `low` and `high` (the ends of a band), `bar`. Numbers are given in the
unit of the plot: `usd` in dollars, `ms` in milliseconds, `share` between 0 and 1, else a count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from lyra.server.dashboard.html import Child, Html, tag
from lyra.server.dashboard.words import duration, money

PLOT_SCRIPT: Final = "plot.js"
SERIES_MAX: Final = 7  # with their own colour and pattern, beside the one of all others


class PlotColumn(NamedTuple):
    """A series. `href` is where a click on it leads."""

    label: str
    role: str = "line"
    href: str = ""


class PlotStep(NamedTuple):
    """A row: its label, a shorter one for the axis, and a value of each series (None: there is none). `at` is its time
    where the steps of lines are not equal."""

    label: str
    short: str
    values: Sequence[float | None]
    at: float | None = None


def plot(
    name: str,
    title: str,
    about: str,
    columns: Sequence[PlotColumn],
    steps: Sequence[PlotStep],
    *,
    kind: str = "lines",
    unit: str = "",
    low: float | None = None,
    step_label: str = "Time",
    is_table_open: bool = False,
) -> Html:
    """Return a figure. `kind` is lines or stacked; `low` is where the axis begins, if not at 0."""
    table = tag(
        "table",
        tag("caption", title, class_="unseen"),
        tag("thead", tag("tr", tag("th", step_label, scope="col"), [_head(column) for column in columns])),
        tag("tbody", [_row(step, unit) for step in steps]),
    )
    box = tag("div", table, class_="plot-table scroll", role="region", tabindex="0", aria_label=f"Table of {title}")
    return tag(
        "figure",
        tag(
            "figcaption",
            tag("h2", title, class_="plot-title"),
            tag("p", about, class_="plot-about"),
            tag("span", class_="plot-downloads", data_keep=True),
        ),
        _legend(columns),
        tag("div", class_="plot-box", data_keep=True),
        tag("details", tag("summary", "Table"), box, open=is_table_open),
        id=name,
        class_="plot",
        data_plot=kind,
        data_unit=unit,
        data_low=low,
    )


def _legend(columns: Sequence[PlotColumn]) -> Html | None:
    """Return the names of the series beside their patterns, which the script draws; one series needs none."""
    if len(columns) < 2:
        return None
    items = [
        tag(
            "li",
            tag("svg", class_=f"swatch s{number}", width=20, height=12, aria_hidden="true", data_keep=True),
            tag("a", column.label, href=column.href) if column.href else column.label,
            data_key=column.label,
        )
        for number, column in enumerate(columns)
    ]
    return tag("ul", items, class_="legend plot-legend")


def _head(column: PlotColumn) -> Html:
    label: Child = tag("a", column.label, href=column.href) if column.href else column.label
    return tag("th", label, scope="col", class_="figure-cell", data_role=column.role, data_href=column.href or None)


def _row(step: PlotStep, unit: str) -> Html:
    cells = [
        tag("td", value_text(value, unit), class_="figure-cell", data_value=None if value is None else f"{value:.10g}")
        for value in step.values
    ]
    return tag(
        "tr", tag("th", step.label, scope="row", data_short=step.short, data_at=step.at), cells, data_key=step.label
    )


def value_text(value: float | None, unit: str) -> str:
    """Return a value as the table writes it."""
    if value is None:
        return "–"
    if unit == "usd":
        return money(round(value * 1_000_000))
    if unit == "ms":
        return duration(value / 1000)
    if unit == "share":
        return f"{value * 100:.3f} %"
    return f"{value:,.0f}"


def pills(label: str, choices: Iterable[tuple[str, str, bool]]) -> Html:
    """Links of which one is chosen: its word, its address, and whether it is the chosen one."""
    links = [
        tag("li", tag("a", word, href=href, aria_current="true" if is_chosen else None))
        for word, href, is_chosen in choices
    ]
    return tag("ul", links, class_="pills", aria_label=label)
