"""Templates: texts with placeholders for values, `{{name}}` or `{{.name}}`, found when a file is read and never later.

A value is put into one place of a structure that exists already (an argument, a segment of a path, a value of a query,
a value of JSON), in the form that this place needs. It is never put into a text that is read afterwards, so no value
can become more than a value, and a value that looks like a template is not expanded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

_SLOT: Final = re.compile(r"\{\{\s*\.?([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


class Template:
    """`pieces` are texts and, at odd indexes, names of parameters."""

    __slots__ = ("pieces", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.pieces = tuple(_SLOT.split(text))
        if any("{{" in piece or "}}" in piece for piece in self.pieces[::2]):
            raise ValueError("a template is {{name}}: the name of a parameter in two braces")

    @property
    def names(self) -> tuple[str, ...]:
        return self.pieces[1::2]

    @property
    def literal(self) -> str:
        """The text around the placeholders."""
        return "".join(self.pieces[::2])

    @property
    def lone(self) -> str | None:
        """The name, if the template is one placeholder and nothing else."""
        return self.pieces[1] if len(self.pieces) == 3 and not self.literal else None

    @property
    def begins_with_value(self) -> bool:
        return len(self.pieces) > 1 and not self.pieces[0]

    def fill(self, values: Mapping[str, Any], form: Callable[[str], str] = str) -> str | None:
        """The text, each value through `form`; None where a value is missing: then the whole text is left out."""
        parts: list[str] = []
        for index, piece in enumerate(self.pieces):
            if index % 2 == 0:
                parts.append(piece)
            elif values.get(piece) is None:
                return None
            else:
                parts.append(form(as_text(values[piece])))
        return "".join(parts)


def as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()  # true, 3, 1.5; lists and mappings as JSON


_LEFT_OUT: Final = object()


def bind(shape: Any, values: Mapping[str, Any]) -> Any:
    """Fill in the Templates of a structure. One that is only a placeholder becomes the value itself, with its type. A
    key or an item whose value is missing is left out."""
    bound = _bind(shape, values)
    return None if bound is _LEFT_OUT else bound


def _bind(shape: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(shape, Template):
        if shape.lone is not None:
            value = values.get(shape.lone)
            return _LEFT_OUT if value is None else value
        text = shape.fill(values)
        return _LEFT_OUT if text is None else text
    if isinstance(shape, dict):
        bound = {key: _bind(item, values) for key, item in shape.items()}
        return {key: item for key, item in bound.items() if item is not _LEFT_OUT}
    if isinstance(shape, list):
        return [item for item in (_bind(item, values) for item in shape) if item is not _LEFT_OUT]
    return shape
