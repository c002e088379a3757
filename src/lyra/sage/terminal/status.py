"""The status line: sage, its mode, the folder, the branch, the model, what was spent, how full the context is.

The values are read when something has happened, never while drawing. The branch comes from git in the background, and
so does the text of a StatusLine hook.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from lyra.sage.terminal.text.safe_text import exact
from lyra.sage.terminal.text.styled_lines import Line, clip, width_of
from lyra.sage.terminal.text.theme import Marks


class Status(NamedTuple):
    folder: str = ""
    branch: str = ""
    changed_files: int = 0
    model: str = ""
    mode: str = "default"
    cost_usd: float | None = 0.0  # None: the price of a call is not known
    budget_usd: float | None = None
    context_percent: int | None = None
    own: str = ""  # what a hook of the user says in place of the folder and the branch


def status_line(status: Status, width: int, *, marks: Marks) -> Line:
    """One line; what matters least is left out where it is too narrow."""
    left: list[Line] = [[("strong", " sage")]]
    if status.mode != "default":
        left.append([("mode", exact(status.mode))])
    left.append([("", exact(status.own or os.path.basename(status.folder.rstrip("/")) or "/"))])
    if status.branch and not status.own:
        dirty = f" {marks.plus_minus}{status.changed_files}" if status.changed_files else ""
        left.append([("faint", f"{exact(status.branch)}{dirty}")])
    cost = "$?" if status.cost_usd is None else f"${status.cost_usd:.2f}"
    right: list[Line] = [[("faint", exact(status.model.rpartition("/")[2]))]] if status.model else []
    right.append([("faint", f"{cost} of ${status.budget_usd:.2f}" if status.budget_usd else cost)])
    if status.context_percent is not None:
        style = "waits" if status.context_percent >= 80 else "faint"
        right.append([(style, f"context {status.context_percent} %")])
    while True:
        line = _joined(left, "  ")
        figures = _joined(right, "   ")
        room = width - width_of(line) - width_of(figures)
        if room >= 2:
            return [*line, ("", " " * room), *figures]
        if right:
            right.pop(0)
        elif len(left) > 2:
            left.pop()
        else:
            return clip(line, width, marks.ellipsis)


def _joined(parts: list[Line], gap: str) -> Line:
    line: Line = []
    for part in parts:
        line += [("", gap), *part] if line else part
    return line
