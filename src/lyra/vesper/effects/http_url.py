"""The address of a request: a provider's base address, the endpoint of a step, and parameters of a query.

An endpoint with placeholders comes as a list: texts of the file and values take turns, a text first. A value is quoted
on its own, with `/`, `?`, `#` and `%` in it, so that it stays inside its segment or its field. A `?` of the file begins
the query. Dot segments are refused, since servers resolve them to paths outside the provider's base address.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode

from lyra.vesper.effects.request import EffectError

_WRITTEN: Final = "/-._~!$&'()*+,;=:@%"  # characters of the file that stay as they are


def request_url(base: str, endpoint: str | Sequence[Any], query: Mapping[str, Any]) -> str:
    """The address; EffectError where the endpoint has a dot segment."""
    path, mark, fields = _quoted(endpoint)
    path = path.lstrip("/")
    for segment in path.split("/"):
        if unquote(segment) in (".", ".."):
            raise EffectError("bad_endpoint", f"the endpoint has the segment {segment!r}, which leads elsewhere")
    pairs = [(name, _text(value)) for name, value in query.items() if value is not None]
    more = "&".join(part for part in (fields, urlencode(pairs)) if part)
    url = f"{base}/{path}" if path else base
    return f"{url}?{more}" if mark or more else url


def _quoted(endpoint: str | Sequence[Any]) -> tuple[str, str, str]:
    """Path, question mark and query, as they are sent."""
    sides, mark = ["", ""], ""
    for index, part in enumerate([endpoint] if isinstance(endpoint, str) else endpoint):
        if index % 2:
            sides[bool(mark)] += quote(_text(part), safe="")
            continue
        text = str(part)
        if not mark:
            text, mark, fields = text.partition("?")
            sides[0] += quote(text, safe=_WRITTEN)
            text = fields
        sides[1] += quote(text, safe=_WRITTEN + "?")
    return sides[0], mark, sides[1]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return format(value, "f") if isinstance(value, Decimal) else str(value)
