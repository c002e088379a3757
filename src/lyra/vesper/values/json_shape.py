"""Values as JSON shows them: decimals and times as text, bytes as base64, sets as sorted lists."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any


def json_shape(value: Any) -> Any:
    """The value as plain JSON. A decimal keeps its scale, and never has an exponent."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (list, tuple)):
        return [json_shape(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return [json_shape(item) for item in sorted(value, key=lambda item: (type(item).__name__, item))]
    return {str(name): json_shape(item) for name, item in value.items()}
