"""The documentation of generated functions: what a node is for, its inputs, outputs and contracts, in short lines."""

from __future__ import annotations

from typing import Final

from lyra.vesper.python.draft import NodeDraft
from lyra.vesper.values.types import describe

__all__ = ["documentation", "wrapped"]

_DOC_WIDTH: Final = 100


def documentation(draft: NodeDraft) -> str:
    """The text of a node's function: its intent, inputs, outputs and contracts."""
    lines = wrapped(draft.program.intent)
    if draft.program.inputs:
        lines += ["", "Inputs:"]
        for item in draft.program.inputs:
            note = f": {_one_line(item.description)}" if item.description else ""
            lines += wrapped(f"{draft.parameters[item.name]} ({describe(item.type)}){note}", "    ")
    if draft.program.success:
        lines += ["", "Returns:"]
        for output in draft.program.success:
            lines += wrapped(f"{output.name} ({describe(output.type)})", "    ")
    for title, contracts in (
        ("Requires", draft.program.preconditions),
        ("Ensures", draft.program.postconditions),
        ("Keeps", draft.program.invariants),
    ):
        if contracts:
            lines += ["", f"{title}:", *(line for item in contracts for line in wrapped(item.text, "    "))]
    return "\n".join([*lines, ""]).rstrip("\n") if len(lines) > 1 else lines[0]


def _one_line(text: str) -> str:
    line = " ".join(text.split()) or "A node."
    return line if line.endswith((".", "!", "?")) else f"{line}."


def wrapped(text: str, indent: str = "") -> list[str]:
    """The text in lines; without an indent it is a sentence."""
    words = (_one_line(text) if not indent else " ".join(text.split())).split(" ")
    lines = [indent + words[0]]
    for word in words[1:]:
        if len(lines[-1]) + len(word) >= _DOC_WIDTH:
            lines.append(indent + word)
        else:
            lines[-1] += " " + word
    return lines
