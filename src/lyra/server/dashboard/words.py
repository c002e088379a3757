"""Values in the words and shapes of the pages: states, times, money, ids, durations, empty places.

One function for each, so that the same value looks the same on every page. `STATES` says which of the five state
colours a state of the kernel has, and which shape stands beside it, so that colour is never alone.
"""

from __future__ import annotations

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
