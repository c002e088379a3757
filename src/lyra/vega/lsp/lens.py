"""Lines above calls that say what they overlap with, from the plan of automatic parallelism.

`compiler.compiler.plan_of` makes the plan, the same that `vega plan` shows. A program with mistakes has none.
"""

from __future__ import annotations

from typing import Any

from lyra.errors import SourceError
from lyra.vega.checker.checker import Load


def overlaps(text: str, name: str, load: Load | None = None) -> list[tuple[int, str]]:
    """(line from 1, text) for every call that may run beside others, in order of place. It takes a while for a long
    text, and it changes no shared state, so a thread may ask for it."""
    try:
        from lyra.vega.compiler.compiler import plan_of  # an editor asks for it when the first text is open

        groups = plan_of(text, name, load=load).to_data()["groups"]
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
    for file, line in sorted({(other["file"], other["line"]) for other in group} - {(call["file"], call["line"])}):
        beside.append(f"line {line}" if file == call["file"] else f"{file.rpartition('/')[2]}:{line}")
    return f"overlaps with {', '.join(beside or ['another call of this line'])}"
