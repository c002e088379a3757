"""Values of journal rows as people and JSON can have them: plain, short, and bounded in size."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

import msgspec

from lyra.core import codec
from lyra.core.codec import to_plain

_DEPTH_MAX: Final = 24
_ITEMS_MAX: Final = 200
_TEXT_MAX: Final = 20_000
_BYTES_SHOWN: Final = 96
_NUMBERED: Final = re.compile(rb"\bp[0-9]+x*\b")  # pids that a kernel gave
_encode: Final = msgspec.json.Encoder(enc_hook=to_plain).encode


def plain(value: Any, *, text_max: int = _TEXT_MAX, depth: int = 0) -> Any:
    """The value as JSON has it; long texts, long lists and deep nesting are cut, and say so."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, int):
        return value if -(2**53) < value < 2**53 else str(value)
    if isinstance(value, str):
        return value if len(value) <= text_max else f"{value[:text_max]}… ({len(value)} characters)"
    if isinstance(value, (bytes, bytearray)):
        shown = base64.b64encode(value[:_BYTES_SHOWN]).decode()
        return shown if len(value) <= _BYTES_SHOWN else f"{shown}… ({len(value)} bytes)"
    if depth >= _DEPTH_MAX:
        return "…"
    if isinstance(value, Mapping):
        items = list(value.items())
        shown_items = {str(key): plain(item, text_max=text_max, depth=depth + 1) for key, item in items[:_ITEMS_MAX]}
        return shown_items if len(items) <= _ITEMS_MAX else {**shown_items, "…": f"{len(items)} entries"}
    if isinstance(value, (list, tuple)):
        shown_list = [plain(item, text_max=text_max, depth=depth + 1) for item in value[:_ITEMS_MAX]]
        return shown_list if len(value) <= _ITEMS_MAX else [*shown_list, f"… ({len(value)} items)"]
    return str(value)[:text_max]


def brief(value: Any, limit: int = 160) -> str:
    """The value on one line of at most `limit` characters."""
    if isinstance(value, str):
        text = value[: limit * 4]
    else:
        text = _encode(plain(value, text_max=limit)).decode()
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def digest_of(value: Any, places: Mapping[str, str], before: str = "") -> str:
    """A digest of the whole value, behind another; `places` has what stands for the pids of a run."""
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else _encoded(value)
    named = _NUMBERED.sub(lambda match: places.get(match[0].decode(), match[0].decode()).encode(), data)
    return hashlib.blake2b(before.encode() + named, digest_size=12).hexdigest()


def _encoded(value: Any) -> bytes:
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError):  # keys that JSON does not have, such as bytes
        return codec.encode(value)


def text_of_content(content: Any) -> str:
    """The text of a message's content: itself, or its parts with other parts named."""
    if isinstance(content, str):
        return content
    if isinstance(content, (list, tuple)):
        return "".join(_part(part) for part in content)
    return "" if content is None else brief(content, 2_000)


def _part(part: Any) -> str:
    if not isinstance(part, Mapping):
        return brief(part)
    return str(part.get("text", "")) if part.get("type") == "text" else f"[{part.get('type', 'part')}]"
