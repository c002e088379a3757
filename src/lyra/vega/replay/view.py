"""A replay as a screen of text: the source with the place in it, variables, messages, processes, effects, output.

`screen` is a function of how the run stands and of the size: it gives exactly so many lines of exactly so many columns,
with or without colours. It writes nothing. Text of the program is shown with control characters made visible, so it can
do nothing to a terminal.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final
from unicodedata import combining, east_asian_width

from lyra.observe.timeline.step import token_count
from lyra.vega.replay.timeline import brief

if TYPE_CHECKING:
    from lyra.vega.replay.player import Player
    from lyra.vega.replay.timeline import TimelineStep


# What the keys do; the longest that fits is shown.
KEYS: Final = (
    "n step  b back  l line  L back line  c continue  r reverse  g goto  p process  : command  ? help  q quit",
    "n step b back l line L back-line c cont r rev g goto p proc : cmd ? help q quit",
    "n/b step l/L line c/r run g goto ? q",
    "n b l c r g p : ? q",
)
_TWO_COLUMNS: Final = 70  # columns from which there is room for panes beside each other
_LOOKED: Final = 2_000  # characters of a line that may be shown
_STYLES: Final = {"title": "7", "here": "1", "error": "31", "dim": "2", "head": "36", "now": "1;33"}

Line = tuple[str, str]  # a text and its style


def screen(player: Player, width: int, height: int, *, colours: bool, message: str = "") -> list[str]:
    """`height` lines of `width` columns."""
    width, height = max(width, 8), max(height, 4)
    body = height - 3
    lines = _wide(player, width, body) if width >= _TWO_COLUMNS else _narrow(player, width, body)
    lines = [*lines[:body], *[[("", "")]] * (body - len(lines[:body]))]
    keys = next((keys for keys in KEYS if len(keys) <= width), KEYS[-1])
    rows = [[(_title(player, width), "title")], *lines, [(message, "now")], [(keys, "dim")]]
    return [_painted(row, width, colours=colours) for row in rows]


def _painted(row: list[Line], width: int, *, colours: bool) -> str:
    """One row: its parts beside each other; the last one takes what is left."""
    text, used = "", 0
    for index, (part, style) in enumerate(row):
        room = width - used if index == len(row) - 1 else min(_width(part), width - used)
        slot = fitted(part, room)
        used += room
        code = _STYLES.get(style) if colours else None
        text += f"\x1b[{code}m{slot}\x1b[0m" if code and slot.strip() else slot
    return text


# ---------------------------------------------------------------- panes
def _wide(player: Player, width: int, height: int) -> list[list[Line]]:
    top = max(3, height * 55 // 100)
    left = width * 58 // 100
    right = width - left - 1
    source = _pane("source", _source(player, top - 1), top, left)
    share = max(2, (top + 1) // 2)
    beside = [
        *_pane("variables", _variables(player, right), share, right),
        *_pane("processes", _processes(player, top - share - 1), top - share, right),
    ]
    rows = [
        [(fitted(text, left), one_style), ("│", "dim"), (other, other_style)]
        for (text, one_style), (other, other_style) in zip(source, beside, strict=False)
    ]
    return [*rows, *_lower(player, width, height - top)]


def _narrow(player: Player, width: int, height: int) -> list[list[Line]]:
    source = max(3, height * 35 // 100)
    variables = max(2, height * 20 // 100)
    rows = [
        *_pane("source", _source(player, source - 1), source, width),
        *_pane("variables", _variables(player, width), variables, width),
    ]
    return [*([row] for row in rows), *_lower(player, width, height - len(rows))]


def _lower(player: Player, width: int, height: int) -> list[list[Line]]:
    effects = max(2, (height * 6 + 9) // 10)
    rows = [
        *_pane("effects", _effects(player, effects - 1), effects, width),
        *_pane("output", _output(player, height - effects - 1), height - effects, width),
    ]
    return [[row] for row in rows]


def _pane(name: str, lines: list[Line], height: int, width: int) -> list[Line]:
    """A rule with a name, and so many lines below it."""
    if height <= 0:
        return []
    rule = f"── {name} " + "─" * max(0, width - len(name) - 4)
    shown = lines[: height - 1]
    return [(rule, "head"), *shown, *[("", "")] * (height - 1 - len(shown))]


def _title(player: Player, width: int) -> str:
    timeline = player.timeline
    file, line = player.place()
    spent = timeline.spent(player.position)
    place = f"{os.path.basename(file)}:{line}" if line else "-"
    position = f"{player.position}/{len(timeline)}"
    if player.inside is not None:
        position += f" +{player.inside}"
    parts = [f" {timeline.run_id}", position, player.in_view, place, f"${spent.get('usd', 0) / 1_000_000:.4f}"]
    parts += [f"{token_count(spent)} tokens", timeline.state] if width >= _TWO_COLUMNS else []
    return "  ".join(parts)


def _source(player: Player, height: int) -> list[Line]:
    file, line = player.place()
    if not line:
        file, line = player.timeline.program.name, 0
    text = player.sources.get(file)
    if text is None:
        return [(f"{os.path.basename(file)}:{line}", "here"), ("the run keeps no source of this file", "dim")]
    lines = text.split("\n")
    first = max(1, min(line - height // 2, len(lines) - height + 1))
    rows = []
    for number in range(first, min(first + height, len(lines) + 1)):
        mark, style = (">", "now") if number == line else (" ", "")
        rows.append((f"{mark}{number:4} {_printable(lines[number - 1])}", style))
    return rows


def _variables(player: Player, width: int) -> list[Line]:
    """The variables of the process in view, then its messages."""
    program = player.timeline.program
    own = player.locals()
    rows = [(f"{name} = {_printable(brief(value, width * 2, program))}", "") for name, value in own.items()]
    rows += [
        (f"{name} = {_printable(brief(value, width * 2, program))}", "dim")
        for name, value in player.view().items()
        if name not in own
    ]
    mailbox = player.mailbox(player.in_view)
    rows = [
        (f"mailbox {index}: {_printable(brief(message, width, program))}", "here")
        for index, message in enumerate(mailbox[:3])
    ] + rows
    return rows or [("none", "dim")]


def _processes(player: Player, height: int) -> list[Line]:
    """The processes around the one in view, in the order in which they began."""
    pids, here = player.pids, player.in_view
    index = pids.index(here) if here in pids else 0
    first = max(0, min(index - height // 2, len(pids) - height))
    rows = []
    for pid in pids[first : first + height]:
        waits, ended, is_over = player.state(pid)
        state = (f"ended {ended}" if ended else "ended") if is_over else f"at {waits}" if waits else "running"
        mark, style = (">", "now") if pid == here else (" ", "dim" if is_over else "")
        rows.append((f"{mark}{pid} {player.facts(pid).function}: {_printable(state)}", style))
    for pid in player.agents[: max(0, height - len(rows))]:
        agent = player.agent(pid)
        if agent is not None:
            rows.append((f" {pid} agent {agent.name}: {_printable(agent.state)}", "dim"))
    return rows or [("none has begun", "dim")]


def _effects(player: Player, height: int) -> list[Line]:
    steps, here = player.timeline.steps, player.position
    first = max(0, min(here - height // 2, len(steps) - height))
    rows = [_effect(step, here) for step in steps[first : first + height]]
    if here >= len(steps) and len(rows) == height:
        rows = [*rows[1:], (f"> the end: {player.timeline.state}", "now")]
    elif here >= len(steps):
        rows.append((f"> the end: {player.timeline.state}", "now"))
    return rows


def _effect(step: TimelineStep, here: int) -> Line:
    came = f" → error {step.error}" if step.error else f" → {step.result}" if step.result else ""
    cost = f" ${step.micro_usd / 1_000_000:.4f}" if step.micro_usd else ""
    mark = ">" if step.number == here else " "
    style = "now" if step.number == here else "error" if step.error else "dim" if step.number > here else ""
    return f"{mark}{step.number:4} {step.pid} {_printable(step.what)}{_printable(came)}{cost}", style


def _output(player: Player, height: int) -> list[Line]:
    return [(_printable(line), "") for line in player.timeline.output(player.position, max(height, 1))]


# ---------------------------------------------------------------- columns
def _printable(text: str) -> str:
    """One line that does nothing to a terminal."""
    text = text[:_LOOKED].replace("\t", "    ").replace("\n", "⏎")
    return text if text.isprintable() else "".join(char if char.isprintable() else "·" for char in text)


def _columns(char: str) -> int:
    return 0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1


def _width(text: str) -> int:
    return len(text) if text.isascii() else sum(map(_columns, text))


def fitted(text: str, width: int) -> str:
    """Exactly `width` columns: cut with an ellipsis, or filled up."""
    if width <= 0:
        return ""
    if _width(text) <= width:
        return text + " " * (width - _width(text))
    kept, used = [], 0
    for char in text:
        if used + _columns(char) > width - 1:
            break
        kept.append(char)
        used += _columns(char)
    return "".join(kept) + "…" + " " * (width - used - 1)
