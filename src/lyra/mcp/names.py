"""Names of a server's tools: `mcp__SERVER__TOOL`, in characters that every model provider accepts.

Sampling (text of a model that a server requests) has a name of its own (`sampling_name`), so that no rule for the
server's tools matches it.

A name that had to be cut, or that after replacing characters collides with another, gets a part of a hash of the
original name: the same tools always have the same names, in whatever order a server lists them.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

NAME_CHARS_MAX: Final = 64  # the limit of the strictest provider
_SERVER_CHARS_MAX: Final = 24
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")
_MARK_CHARS: Final = 6


def server_keys(names: Iterable[str]) -> dict[str, str]:
    """The part of the name for each server: no `__` in it and no `_` at its ends, so that names are unambiguous."""
    keys: dict[str, str] = {}
    for name in names:
        plain = re.sub("__+", "_", _OTHER.sub("_", name)).strip("_") or "server"
        key = plain if len(plain) <= _SERVER_CHARS_MAX else _marked(plain, name, _SERVER_CHARS_MAX)
        keys[name] = key if key not in keys.values() else _marked(plain, name, _SERVER_CHARS_MAX)
    return keys


def tool_names(server: str, names: Iterable[str]) -> dict[str, str]:
    """The server's own name of each tool → its name in Lyra."""
    names = list(dict.fromkeys(names))
    prefix = f"mcp__{server}__"
    room = NAME_CHARS_MAX - len(prefix)
    plain = {name: _OTHER.sub("_", name) or "tool" for name in names}
    counts = Counter(plain.values())
    full_names: dict[str, str] = {}
    for name, word in plain.items():
        # A tool whose own name is exactly this keeps it; names that were changed to it get a hash.
        contested = word != name and (word in plain or counts[word] > 1 or _is_bare(word, name))
        full_names[name] = prefix + (_marked(word, name, room) if contested or len(word) > room else word)
    return full_names


def sampling_name(server: str) -> str:
    """The name of a server's sampling in permission rules; no tool can have it."""
    return f"mcp_sampling__{server}"


def _is_bare(word: str, name: str) -> bool:
    """Whether replacing characters changed a name too much: it is not ASCII, or its beginning changed."""
    return not name.isascii() or word.startswith("_") is not name.startswith("_")


def _marked(word: str, name: str, most: int) -> str:
    mark = hashlib.sha256(name.encode()).hexdigest()[:_MARK_CHARS]
    return f"{word[: most - _MARK_CHARS - 1]}_{mark}"
