"""What a server's tools are called here: `mcp__SERVER__TOOL`, in letters that every provider of models takes.

Text of a model, which a server may ask back for, has a name of its own (`sampling_name`), so that no rule for the
server's tools speaks of it.

A name that had to be cut, or changed so far that it is another's, gets a piece of a hash of the name itself: the same
tools have the same names every time, in whatever order a server offers them.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

__all__ = ["NAME_CHARS_MAX", "sampling_name", "server_keys", "tool_names"]

NAME_CHARS_MAX: Final = 64  # what the strictest provider takes
_SERVER_CHARS_MAX: Final = 24
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")
_MARK_CHARS: Final = 6


def server_keys(names: Iterable[str]) -> dict[str, str]:
    """The part of the name that stands for a server: no `__` in it and no `_` at its ends, so that no two are mixed."""
    found: dict[str, str] = {}
    for name in names:
        plain = re.sub("__+", "_", _OTHER.sub("_", name)).strip("_") or "server"
        key = plain if len(plain) <= _SERVER_CHARS_MAX else _marked(plain, name, _SERVER_CHARS_MAX)
        found[name] = key if key not in found.values() else _marked(plain, name, _SERVER_CHARS_MAX)
    return found


def tool_names(server: str, names: Iterable[str]) -> dict[str, str]:
    """The name of each of a server's tools, by its own."""
    names = list(dict.fromkeys(names))
    prefix = f"mcp__{server}__"
    room = NAME_CHARS_MAX - len(prefix)
    plain = {name: _OTHER.sub("_", name) or "tool" for name in names}
    counts = Counter(plain.values())
    made: dict[str, str] = {}
    for name, word in plain.items():
        # One that is spelt exactly so keeps its name; those that were changed to look like it do not.
        contested = word != name and (word in plain or counts[word] > 1 or _is_bare(word, name))
        made[name] = prefix + (_marked(word, name, room) if contested or len(word) > room else word)
    return made


def sampling_name(server: str) -> str:
    """What rules call the text that a server asks back for; none of its tools can be called so."""
    return f"mcp_sampling__{server}"


def _is_bare(word: str, name: str) -> bool:
    """Whether too little is left of a name to know it by: letters that were none of ours, or its beginning."""
    return not name.isascii() or word.startswith("_") is not name.startswith("_")


def _marked(word: str, name: str, most: int) -> str:
    mark = hashlib.sha256(name.encode()).hexdigest()[:_MARK_CHARS]
    return f"{word[: most - _MARK_CHARS - 1]}_{mark}"
