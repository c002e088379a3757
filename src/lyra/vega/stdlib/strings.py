"""`str::…` and string builders."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from lyra.core.limits import VEGA_STRING_CHARS_MAX
from lyra.vega.values.values import BULK, CHARS, WORK, Builder, Fault, check_int, kind_of, render

_INT = re.compile(r"[+-]?[0-9]{1,40}\Z")
_FLOAT = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\Z")


def check_length(size: int) -> None:
    if size > VEGA_STRING_CHARS_MAX:
        raise Fault("LimitExceeded", f"a string may have at most {VEGA_STRING_CHARS_MAX} characters")


def _char_at(text: Any, index: Any) -> str:
    check_kinds("str::char_at", (text, "str"), (index, "int"))
    if not 0 <= index < len(text):
        raise Fault("IndexError", f"index {index} is outside a string of length {len(text)}")
    return str(text[index])


def _char_code(text: Any) -> int:
    if not need(text, "str", "str::char_code"):
        raise Fault("IndexError", "str::char_code of an empty string: there is no index 0")
    return ord(text[0])


def _from_code(code: Any) -> str:
    need(code, "int", "str::from_code")
    if not 0 <= code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise Fault("ValueError", f"{code} is no code point of a character")
    return chr(code)


def _contains(text: Any, part: Any) -> bool:
    check_kinds("str::contains", (text, "str"), (part, "str"))
    WORK.units += len(text) >> CHARS
    return part in text


def _index_of(text: Any, part: Any) -> int:
    check_kinds("str::index_of", (text, "str"), (part, "str"))
    WORK.units += len(text) >> CHARS
    return int(text.find(part))


def _split(text: Any, separator: Any) -> list[str]:
    check_kinds("str::split", (text, "str"), (separator, "str"))
    parts: list[str] = text.split(separator) if separator else list(text)
    WORK.units += (len(parts) >> 2) + (len(text) >> CHARS)
    return parts


def _join(items: Any, separator: Any = "") -> str:
    check_kinds("str::join", (items, "list"), (separator, "str"))
    texts = [item if type(item) is str else render(item) for item in items]
    size = sum(map(len, texts)) + len(separator) * max(0, len(texts) - 1)
    check_length(size)
    WORK.units += (len(texts) >> 1) + (size >> CHARS)
    return str(separator.join(texts))


def _replace(text: Any, old: Any, new: Any) -> str:
    check_kinds("str::replace", (text, "str"), (old, "str"), (new, "str"))
    if not old:
        raise Fault("ValueError", "str::replace needs something to look for")
    if len(new) > len(old):
        check_length(len(text) + text.count(old) * (len(new) - len(old)))
    WORK.units += len(text) >> CHARS
    return str(text.replace(old, new))


def _starts_with(text: Any, part: Any) -> bool:
    check_kinds("str::starts_with", (text, "str"), (part, "str"))
    return bool(text.startswith(part))


def _ends_with(text: Any, part: Any) -> bool:
    check_kinds("str::ends_with", (text, "str"), (part, "str"))
    return bool(text.endswith(part))


def _repeat(text: Any, times: Any) -> str:
    check_kinds("str::repeat", (text, "str"), (times, "int"))
    if times < 0:
        raise Fault("ValueError", "str::repeat needs a number of times that is not negative")
    check_length(len(text) * times)
    WORK.units += len(text) * times >> CHARS
    return str(text * times)


def _slice(text: Any, start: Any, end: Any = None) -> str:
    check_kinds("str::slice", (text, "str"), (start, "int"))
    start, end = bounds("str::slice", start, end, len(text))
    WORK.units += max(0, end - start) >> CHARS
    return str(text[start:end])


def bounds(function: str, start: int, end: Any, size: int) -> tuple[int, int]:
    """From and to of a slice, kept inside: a slice never fails on its numbers."""
    if end is None:
        end = size
    need(end, "int", function)
    return min(max(start, 0), size), min(max(end, 0), size)


def _pad(function: str, text: Any, width: Any, fill: Any) -> str:
    check_kinds(function, (text, "str"), (width, "int"), (fill, "str"))
    if len(fill) != 1:
        raise Fault("ValueError", f"{function} fills with one character")
    check_length(width)
    WORK.units += max(width, len(text)) >> CHARS
    return str(fill * max(0, width - len(text)))


def _pad_left(text: Any, width: Any, fill: Any = " ") -> str:
    return _pad("str::pad_left", text, width, fill) + str(text)


def _pad_right(text: Any, width: Any, fill: Any = " ") -> str:
    return str(text) + _pad("str::pad_right", text, width, fill)


def _to_int(text: Any) -> int:
    need(text, "str", "str::to_int")
    if not _INT.match(text.strip()):
        raise Fault("ValueError", f"{text[:40]!r} is not an int")
    return check_int(int(text))


def _to_float(text: Any) -> float:
    need(text, "str", "str::to_float")
    if not _FLOAT.match(text.strip()):
        raise Fault("ValueError", f"{text[:40]!r} is not a float")
    return float(text)


def _builder_add(builder: Any, value: Any) -> Any:
    need(builder, "builder", "add")
    text = value if type(value) is str else render(value)
    builder.length += len(text)
    check_length(builder.length)
    builder.parts.append(text)
    return builder


def _builder_text(builder: Any) -> str:
    text = "".join(need(builder, "builder", "text").parts)
    WORK.units += (len(builder.parts) >> BULK) + (len(text) >> CHARS)
    builder.parts = [text]
    return text


def _lines(text: Any) -> list[str]:
    lines: list[str] = need(text, "str", "str::lines").splitlines()
    WORK.units += (len(lines) >> 2) + (len(text) >> CHARS)
    return lines


def _make_text_change(function: str, change: Callable[[str], str]) -> Callable[[Any], str]:
    """Return a function that goes over all of a text."""

    def apply(text: Any) -> str:
        WORK.units += len(need(text, "str", function)) >> CHARS
        return change(text)

    return apply


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "str::len": lambda text: len(need(text, "str", "str::len")),
    "str::char_at": _char_at,
    "str::char_code": _char_code,
    "str::from_code": _from_code,
    "str::contains": _contains,
    "str::index_of": _index_of,
    "str::split": _split,
    "str::join": _join,
    "str::lines": _lines,
    "str::upper": _make_text_change("str::upper", str.upper),
    "str::lower": _make_text_change("str::lower", str.lower),
    "str::trim": _make_text_change("str::trim", str.strip),
    "str::replace": _replace,
    "str::starts_with": _starts_with,
    "str::ends_with": _ends_with,
    "str::repeat": _repeat,
    "str::slice": _slice,
    "str::reverse": _make_text_change("str::reverse", lambda text: text[::-1]),
    "str::pad_left": _pad_left,
    "str::pad_right": _pad_right,
    "str::from": render,
    "str::from_int": lambda value: render(need(value, "int", "str::from_int")),
    "str::to_int": _to_int,
    "str::to_float": _to_float,
    "str::builder": Builder,
    "builder::add": _builder_add,
    "builder::len": lambda builder: need(builder, "builder", "len").length,
    "builder::text": _builder_text,
}


def need(value: Any, kind: str, function: str) -> Any:
    """Return the value, if it is of that kind; else a TypeError that names the function."""
    if kind_of(value) != kind:
        raise Fault("TypeError", f"{function} needs {kind}, got {kind_of(value)}")
    return value


def check_kinds(function: str, *pairs: tuple[Any, str]) -> None:
    """Check several values, as for one."""
    for value, kind in pairs:
        if kind_of(value) != kind:
            raise Fault("TypeError", f"{function} needs {kind}, got {kind_of(value)}")
