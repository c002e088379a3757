"""Lines above calls that say what they overlap with, from the plan of automatic parallelism.

`lyra.vega.plan` makes the plan, the same that `vega plan` shows. Where it is not there, or a program has mistakes,
there is nothing to say.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from lyra.errors import SourceError
from lyra.vega.checker.checker import Load

__all__ = ["overlaps"]


def overlaps(text: str, name: str, load: Load | None = None) -> list[tuple[int, str]]:
    """(line from 1, text) for every call that may run beside others, in order of place. It takes a while for a long
    text, and touches nothing that others use: it may be asked for in a thread."""
    try:
        plan: Any = import_module("lyra.vega.plan.plan")
        groups = plan.plan_of(text, name, load=load).to_data()["groups"]
    except (ImportError, SourceError):
        return []
    return sorted(
        {
            (int(call["line"]), _text(call, group["calls"]))
            for group in groups
            for call in group["calls"]
            if call["file"] == name
        }
    )


def _text(call: dict[str, Any], group: list[dict[str, Any]]) -> str:
    beside = ["the other turns of its loop"] if call["in_loop"] else []
    for file, line in sorted({(each["file"], each["line"]) for each in group} - {(call["file"], call["line"])}):
        beside.append(f"line {line}" if file == call["file"] else f"{file.rpartition('/')[2]}:{line}")
    return f"overlaps with {', '.join(beside or ['another call of this line'])}"
