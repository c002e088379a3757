"""Values in the words and shapes of the pages: states, times, money, ids, durations, empty places.

One function for each, so that the same value looks the same on every page. `STATES` says which of the five state
colours a state of the kernel has, and which shape stands beside it, so that colour is never alone.

`plot(…)` writes a figure with a table, which is complete by itself and from which `static/plot.js` draws the picture. A
column is a series; its role says how it is drawn: `line`, `low` and `high` (the ends of a band), `bar`. The unit of the
plot is `usd` in dollars, `ms` in milliseconds, `share` between 0 and 1, else a count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from lyra.server.dashboard.html import Child, Html, tag


class StateLook(NamedTuple):
    """How a state is shown: its colour (`data-state`), its shape and its word."""

    colour: str
    shape: str
    word: str


# By a state of processes, runs, questions, services or calls. Colours: running, waiting, needs-you, failed, done, idle.
STATES: Final[dict[str, StateLook]] = {
    "new": StateLook("waiting", "○", "new"),
    "ready": StateLook("running", "●", "ready"),
    "running": StateLook("running", "●", "running"),
    "waiting": StateLook("waiting", "◐", "waiting"),
    "blocked": StateLook("needs-you", "▲", "needs you"),
    "working": StateLook("waiting", "◐", "working"),
    "ended": StateLook("done", "■", "ended"),
    "terminated": StateLook("done", "■", "ended"),
    "zombie": StateLook("done", "■", "ended"),
    "dormant": StateLook("waiting", "◌", "dormant"),
    "idle": StateLook("running", "●", "idle"),
    "pending": StateLook("needs-you", "▲", "needs you"),
    "resolved": StateLook("done", "✓", "answered"),
    "expired": StateLook("failed", "✕", "expired"),
    "cancelled": StateLook("done", "■", "taken back"),
    "ok": StateLook("done", "✓", "ok"),
    "success": StateLook("done", "✓", "done"),
    "completed": StateLook("done", "✓", "done"),
    "done": StateLook("done", "✓", "done"),
    "failed": StateLook("failed", "✕", "failed"),
    "error": StateLook("failed", "✕", "failed"),
    "killed": StateLook("failed", "✕", "stopped"),
    "healthy": StateLook("running", "●", "healthy"),
    "degraded": StateLook("waiting", "◐", "degraded"),
    "unhealthy": StateLook("failed", "✕", "unhealthy"),
    "unknown": StateLook("waiting", "○", "unknown"),
}


def state(name: str, word: Child = None) -> Html:
    """Return a state with its shape; `word` says more than the state's own word."""
    look = STATES.get(name) or StateLook("waiting", "○", name)
    shape = tag("span", look.shape, class_="shape", aria_hidden="true")
    return tag("span", shape, " ", look.word if word is None else word, class_="state", data_state=look.colour)


# By the reason of an exit: the state that it is shown as, and its word. Every other reason is a failure, unless the
# process was told to end for it.
_ENDS: Final[dict[str, tuple[str, str]]] = {
    "normal": ("done", "done"),
    "shutdown": ("ended", "stopped"),
    "killed": ("ended", "killed"),
    "linked": ("ended", "ended with another"),
    "error": ("failed", "crashed"),
}


def end_state(reason: str, *, has_error: bool = False, stopped: bool = False) -> Html:
    """Return how a process or a run ended: one that was stopped has not failed."""
    name, word = _ENDS.get(reason, ("ended" if stopped else "failed", reason))
    return state("failed" if has_error else name, word)


def money(micro_usd: int | None) -> str:
    """Return an amount of micro-dollars: `$4.12`, `$0.0062`, `$0.000041`; "–" where it is not known."""
    if micro_usd is None:
        return "–"
    if micro_usd == 0 or abs(micro_usd) >= 10_000:
        return f"${micro_usd / 1_000_000:,.2f}"
    return f"${micro_usd / 1_000_000:.4f}" if abs(micro_usd) >= 100 else f"${micro_usd / 1_000_000:.6f}"


def duration(seconds: float | None) -> str:
    """Return a span of time: `12 ms`, `2.1 s`, `3 min`, `5 h`, `2 d`."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    raise AssertionError(seconds)


def relative(time: float, now: float) -> str:
    """Return how long ago a time was, or how soon it will be."""
    ago = now - time
    if abs(ago) < 1:
        return "now"
    whole_s = float(round(abs(ago)))
    text = f"{whole_s:.0f} s" if whole_s < 60 else duration(whole_s)
    return f"{text} ago" if ago > 0 else f"in {text}"


def moment(time: float | None, now: float) -> Html:
    """Return a time, relative, with the exact one on hover; the page keeps it current."""
    if not time:
        return Html("–")
    exact = datetime.fromtimestamp(time, UTC)
    return tag("time", relative(time, now), datetime=exact.isoformat(), title=exact.strftime("%Y-%m-%d %H:%M:%S UTC"))


def clock_time(time: float) -> Html:
    """Return the time of day of an event, with the date on hover."""
    exact = datetime.fromtimestamp(time, UTC)
    return tag(
        "time",
        exact.strftime("%H:%M:%S"),
        datetime=exact.isoformat(),
        title=exact.strftime("%Y-%m-%d %H:%M:%S UTC"),
        data_exact=True,
    )


def render_copyable_id(text: str, *, chars_max: int = 16) -> Html:
    """Return an id, cut where it is long, with a button that copies all of it."""
    short = text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"
    icon = tag(
        "svg",
        tag("rect", x=1.5, y=4.5, width=8, height=10, rx=1.5, fill="none"),
        tag("path", d="M5.5 4V3A1.5 1.5 0 0 1 7 1.5h5A1.5 1.5 0 0 1 13.5 3v7a1.5 1.5 0 0 1-1.5 1.5h-1.5", fill="none"),
        viewBox="0 0 16 16",
        width=14,
        height=14,
        stroke="currentColor",
        aria_hidden="true",
    )
    button = tag("button", icon, type="button", class_="copy", data_copy=text, aria_label=f"Copy {text}", title="Copy")
    return tag("span", tag("code", short, title=text), button, class_="id")


def empty(what: str, command: str = "", *, more: Child = None) -> Html:
    """Return what a page without data shows: what would be here, the command that makes it so, and more about it."""
    return tag("div", tag("p", what), tag("pre", tag("code", command)) if command else None, more, class_="empty")


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
