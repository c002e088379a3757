"""The machine and the day, as lines of a system prompt. Nothing here runs a program or reads a file of the project."""

from __future__ import annotations

import os


def environment_lines(*, date: str = "", sandbox: str = "") -> list[str]:
    """One line each: the platform, the `date` that the caller's clock has, the `sandbox` tier that holds commands."""
    uname = os.uname()
    lines = [f"Platform: {uname.sysname} {uname.release} ({uname.machine})"]
    if date:
        lines.append(f"Date: {date}")
    if sandbox == "none":
        lines.append("No sandbox works here, so commands do not run.")
    elif sandbox:
        lines.append(f"Commands run in a sandbox ({sandbox}): only these folders, and only hosts that a rule names.")
    return lines
