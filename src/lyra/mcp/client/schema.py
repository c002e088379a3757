"""The schema of a tool's arguments, as a server sends it, and the part of it that is checked here.

A server may send any schema, also with a pattern that takes for ever or a reference to another document. The model is
shown the server's schema without invisible characters (`shown`). A call is checked against the part that
`checking.schema` knows, with references within the schema followed, and the server checks the rest: `checkable` returns
that part, `problem` the reason why a schema cannot be used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lyra.core.checking.schema_subset import checkable_part
from lyra.core.limits import VALUE_DEPTH_MAX

__all__ = ["SCHEMA_BYTES_MAX", "checkable", "problem", "seen", "shown"]

SCHEMA_BYTES_MAX: Final = 256 * 1024
_WORDS: Final = ("title", "description", "$comment")
_UNSEEN: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)


def seen(text: str) -> str:
    """The text without invisible characters."""
    return _UNSEEN.sub("", text)


def shown(schema: Any) -> Any:
    """The schema as a model sees it: descriptions and titles without invisible characters."""
    if isinstance(schema, list):
        return [shown(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: seen(value) if key in _WORDS and isinstance(value, str) else shown(value) for key, value in schema.items()
    }


def problem(schema: Any) -> str | None:
    """Why this cannot be the schema of a tool's arguments; None if it can."""
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        return "its schema does not describe an object"
    if _is_deep(schema):
        return "its schema is nested too deeply"
    try:
        size = len(msgspec.json.encode(schema))
    except (TypeError, ValueError):
        return "its schema is no JSON"
    return f"its schema has more than {SCHEMA_BYTES_MAX >> 10} KiB" if size > SCHEMA_BYTES_MAX else None


def _is_deep(schema: Any) -> bool:
    """Whether values lie deeper inside one another than plain data may; counted, since Python versions recurse to
    different depths."""
    level: list[Any] = [schema]
    for _ in range(VALUE_DEPTH_MAX):
        inner: list[Any] = []
        for value in level:
            inner += value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
        if not inner:
            return False
        level = inner
    return True


def checkable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a schema that can be checked; the rest accepts any value."""
    return checkable_part(schema, drops_mistakes=True) or {"type": "object"}
