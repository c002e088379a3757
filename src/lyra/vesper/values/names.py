"""Names of nodes and their versions: `payment_handler_v2`, `payment_handler_v2.1.0`.

The part before `_v` is the bare id, the numbers behind it are major, minor and patch. A bare id stands for the highest
version there is. Names of steps, inputs, fields and types are identifiers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from lyra.vesper.values.limits import NAME_CHARS_MAX

_NODE_ID: Final = re.compile(r"([a-z][a-z0-9_]*)_v(\d{1,9}(?:\.\d{1,9}){0,2})\Z", re.ASCII)
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)


def is_node_id(text: str) -> bool:
    return len(text) <= NAME_CHARS_MAX and _NODE_ID.match(text) is not None


def is_identifier(text: str) -> bool:
    return len(text) <= NAME_CHARS_MAX and _IDENTIFIER.match(text) is not None


def bare_id(node_id: str) -> str:
    """Return the id without its version."""
    match = _NODE_ID.match(node_id)
    return match[1] if match else node_id


def version_of(node_id: str) -> tuple[int, int, int]:
    """Major, minor and patch; zeros where the id does not say."""
    match = _NODE_ID.match(node_id)
    numbers = [int(part) for part in match[2].split(".")] if match else []
    major, minor, patch = (*numbers, 0, 0, 0)[:3]
    return major, minor, patch


def highest(name: str, node_ids: Iterable[str]) -> str | None:
    """Return the node that a name stands for: itself where it is among the ids, else its highest version, else None."""
    versions = [node_id for node_id in node_ids if node_id == name or bare_id(node_id) == name]
    if name in versions:
        return name
    return max(versions, key=version_of, default=None)
