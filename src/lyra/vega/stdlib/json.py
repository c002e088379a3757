"""`json::…`. Money is written as a number of dollars, a duration as seconds; neither is read back as such."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from lyra.core.limits import VEGA_STRING_CHARS_MAX
from lyra.vega.stdlib.arguments import need
from lyra.vega.values.fuel import WORK
from lyra.vega.values.values import INT_MAX, INT_MIN, Duration, Fault, Money, kind_of, shown

_DEPTH_MAX: Final = 200
_NODES_MAX: Final = 1 << 23
_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")


def _whole(text: str) -> int | float:
    number = int(text) if len(text) < 25 else None
    return number if number is not None and INT_MIN <= number <= INT_MAX else float(text)


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _parse(text: Any) -> Any:
    WORK.units += len(need(text, "str", "json::parse")) >> 5
    try:
        value = json.loads(text, parse_int=_whole, parse_constant=_constant)
        if _HALF.search(text):  # half of a pair is no character, and no text can hold it
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except RecursionError:
        raise Fault("ValueError", "json::parse: nested too deeply") from None
    except UnicodeEncodeError:
        raise Fault("ValueError", "json::parse: half of a pair of surrogates") from None
    except ValueError as error:
        raise Fault("ValueError", f"json::parse: {error}") from None


def _stringify(value: Any, indent: Any = None) -> str:
    if indent is not None:
        need(indent, "int", "json::stringify")
    left = [_NODES_MAX]
    plain = _plain(value, 0, left)
    WORK.units += _NODES_MAX - left[0]
    text = json.dumps(plain, ensure_ascii=False, indent=None if indent is None else max(0, min(indent, 16)))
    if len(text) > VEGA_STRING_CHARS_MAX:
        raise Fault("LimitExceeded", f"a string may have at most {VEGA_STRING_CHARS_MAX} characters")
    return text


def _plain(value: Any, depth: int, left: list[int]) -> Any:
    left[0] -= 1
    if depth > _DEPTH_MAX or left[0] < 0:
        raise Fault("ValueError", "json::stringify: nested too deeply, or a list that holds itself")
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        if value - value != 0:
            raise Fault("ValueError", f"json::stringify: {shown(value)} is not JSON")
        return int(value) if value.is_integer() and abs(value) < 1 << 53 else value
    if kind is list:
        return [_plain(item, depth + 1, left) for item in value]
    if kind is dict:
        return {shown(name): _plain(item, depth + 1, left) for name, item in value.items()}
    if kind is Money:
        return float(value.usd)
    if kind is Duration:
        return value.seconds
    raise Fault("TypeError", f"json::stringify: {kind_of(value)} is not JSON")


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {"json::parse": _parse, "json::stringify": _stringify}
