"""One thing that a file of a project asks for, and how a text of the project is shown in its sentence."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from lyra.core.secrets.secret import MASK, is_reference
from lyra.core.secrets.visible import visible

_SECRET_NAME: Final = re.compile(r"(?i)key|token|secret|pass|auth|credential")
_TOKEN: Final = re.compile(r"[A-Za-z0-9_+=.-]{8,}")  # a literal key: it has no slash and no blank, as a program has


class Ask(NamedTuple):
    """One thing that a file asks for: its short name (a setting, a rule's effect, a tool), and the sentence. `server`
    is the MCP server that it is about."""

    name: str
    sentence: str
    server: str = ""


def on_one_line(value: Any) -> str:
    """A text of the project on one line, with every character that cannot be seen as its code."""
    return visible(str(value)).replace("\n", "").replace("\t", "")


def shown_value(name: str, value: str) -> str:
    """A variable's or header's value: your variable, or the text as it is written; one that looks like a key is
    masked."""
    if is_reference(value):
        return f" from your variable {on_one_line(value.removeprefix('env:'))}"
    is_key = _SECRET_NAME.search(name) and _TOKEN.fullmatch(value.rpartition(" ")[2])
    return f"={MASK if is_key else on_one_line(value)}"
