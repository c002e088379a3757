"""The schema of a tool's arguments, as a server sends it, and the part of it that is checked here.

A server may send any schema, also with a pattern that takes for ever or a reference to another document. The model is
shown the server's schema without invisible characters (`shown`); where they stand in a name or a value that a call has
to repeat, the schema cannot be used. A call is checked against the part that `checking.schema` knows, with references
within the schema followed, and the server checks the rest: `checkable` returns that part, `problem` the reason why a
schema cannot be used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from lyra.core.checking.check import is_nested_deeper
from lyra.core.checking.schema import checkable_part
from lyra.core.limits import VALUE_DEPTH_MAX
from lyra.core.secrets.visible import without_invisible, without_invisible_data

SCHEMA_BYTES_MAX: Final = 256 * 1024
_REPEATED: Final = ("enum", "const", "required")  # a call has to give these texts as they are


def shown(schema: Any) -> Any:
    """The schema as a model sees it: no text in it has invisible characters, but for those that a call has to
    repeat."""
    if isinstance(schema, list):
        return [shown(item) for item in schema]
    if isinstance(schema, str):
        return without_invisible(schema)
    if not isinstance(schema, dict):
        return schema
    return {key: value if key in _REPEATED else shown(value) for key, value in schema.items()}


def _repeated(schema: Any) -> Iterator[Any]:
    """The names of a schema, and its values that a call has to repeat."""
    for item in schema if isinstance(schema, list) else ():
        yield from _repeated(item)
    for key, value in schema.items() if isinstance(schema, dict) else ():
        yield key
        if key in _REPEATED:
            yield value
        else:
            yield from _repeated(value)


def problem(schema: Any) -> str | None:
    """Why this cannot be the schema of a tool's arguments; None if it can."""
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        return "its schema does not describe an object"
    if is_nested_deeper(schema, VALUE_DEPTH_MAX - 1):
        return "its schema is nested too deeply"
    try:
        size = len(msgspec.json.encode(schema))
    except (TypeError, ValueError):
        return "its schema is no JSON"
    if any(without_invisible_data(value) != value for value in _repeated(schema)):
        return "its schema has a name or a value with invisible characters"
    return f"its schema has more than {SCHEMA_BYTES_MAX >> 10} KiB" if size > SCHEMA_BYTES_MAX else None


def checkable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a schema that can be checked; the rest accepts any value."""
    return checkable_part(schema, drops_mistakes=True) or {"type": "object"}
