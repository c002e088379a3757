"""Values of nodes as JSON, in two ways.

`to_json` and `from_json` lose nothing: journals and files keep that. Values that JSON lacks are maps of one key:
`$decimal`, `$bytes`, `$timestamp`, `$set`, `$float`, `$tuple`, `$integer` (beyond 64 bits). A map that has such a key
itself is wrapped in `$map`, so that no text from outside becomes a value of another type. `json_shape` is for readers:
decimals and times are texts, bytes are base64, sets are sorted lists. It takes any value, also one that a node refuses:
a number that JSON lacks, and what is no value of nodes, is a text.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Set
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final


def to_json(value: Any) -> Any:
    match value:
        case float():
            return {"$float": repr(value)}
        case Decimal():
            return {"$decimal": str(value)}
        case bytes():
            return {"$bytes": base64.b64encode(value).decode()}
        case datetime():
            return {"$timestamp": value.isoformat()}
        case set() | frozenset():
            return {"$set": [to_json(item) for item in sorted(value, key=repr)]}
        case tuple():
            return {"$tuple": [to_json(item) for item in value]}
        case list():
            return [to_json(item) for item in value]
        case int() if abs(value) >= 2**63 and not isinstance(value, bool):
            return {"$integer": hex(value)}
        case dict():
            plain = {str(key): to_json(item) for key, item in value.items()}
            return {"$map": plain} if any(key.startswith("$") for key in plain) else plain
    return value


def from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    match list(value.items()):
        case [("$float", str(text))]:
            return float(text)
        case [("$decimal", str(text))]:
            return Decimal(text)
        case [("$integer", str(text))]:
            return int(text, 16)
        case [("$bytes", str(text))]:
            return base64.b64decode(text)
        case [("$timestamp", str(text))]:
            return datetime.fromisoformat(text)
        case [("$set", list(items))]:
            return frozenset(from_json(item) for item in items)
        case [("$tuple", list(items))]:
            return tuple(from_json(item) for item in items)
        case [("$map", dict(items))]:
            return {key: from_json(item) for key, item in items.items()}
    return {key: from_json(item) for key, item in value.items()}


def read_base64(text: str) -> bytes | None:
    """Return the bytes of a text; None where it is no base64. Older Pythons take padding after whole groups."""
    if len(text) % 4 or text.endswith("==="):
        return None
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None


def json_shape(value: Any) -> Any:
    """Return the value as plain JSON. A decimal keeps its scale, and never has an exponent."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value if value.bit_length() <= _INTEGER_BITS_MAX else hex(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        try:
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        except (OverflowError, ValueError):  # in UTC it is before the year 1 or after 9999
            return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (list, tuple)):
        return [json_shape(item) for item in value]
    if isinstance(value, Set):
        try:
            items = sorted(value, key=lambda item: (type(item).__name__, item))
        except (TypeError, ArithmeticError):  # tuples of unlike values, and decimals that are no number
            items = sorted(value, key=repr)
        return [json_shape(item) for item in items]
    if isinstance(value, Mapping):
        return {str(name): json_shape(item) for name, item in value.items()}
    return repr(value)


_INTEGER_BITS_MAX: Final = 14_000  # some 4 200 digits; Python writes no integer of more than 4 300
