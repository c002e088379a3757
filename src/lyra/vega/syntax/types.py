"""Types as they are written: `int`, `list[str]`, `fn(int) -> str`, `{name: str}`."""

from __future__ import annotations

from lyra.core.limits import VEGA_NESTING_MAX
from lyra.vega.syntax.ast import Type
from lyra.vega.syntax.cursor import Cursor


def parse_type(cursor: Cursor) -> Type:
    cursor.depth += 1
    if cursor.depth > VEGA_NESTING_MAX:
        cursor.too_deep()
    offset, kind = cursor.starts[cursor.i], cursor.kinds[cursor.i]
    written = Type("map", at=offset)
    if kind == "{":
        written.fields = _parse_record(cursor)
    elif kind == "fn":
        cursor.i += 1
        written = Type("fn", _parse_signature(cursor), at=offset)
    elif kind in ("name", "null"):
        cursor.i += 1
        written = Type(cursor.values[cursor.i - 1], at=offset)
        if cursor.kinds[cursor.i] == "[":
            written.parameters = _parse_inner_types(cursor, "[", "]")
    else:
        cursor.expected("a type", hint="such as `int`, `str`, `list[str]`")
    written.end = cursor.ends[cursor.i - 1]
    cursor.depth -= 1
    return written


def _parse_inner_types(cursor: Cursor, opening: str, closing: str) -> list[Type]:
    opened = cursor.starts[cursor.i]
    cursor.expect(opening)
    types: list[Type] = []
    while cursor.kinds[cursor.i] != closing:
        types.append(parse_type(cursor))
        if not cursor.take(","):
            break
    cursor.close(closing, opened, "after the types")
    return types


def _parse_signature(cursor: Cursor) -> list[Type]:
    """`fn(int) -> str`: the parameters, then the result; a plain `fn` says nothing of either."""
    if cursor.kinds[cursor.i] != "(":
        return []
    parameters = _parse_inner_types(cursor, "(", ")")
    end = cursor.ends[cursor.i - 1]
    result = parse_type(cursor) if cursor.take("->") else Type("any", at=end, end=end)
    return [*parameters, result]


def _parse_record(cursor: Cursor) -> dict[str, Type]:
    cursor.open_brace("")
    fields: dict[str, Type] = {}
    while cursor.kinds[cursor.i] != "}":
        place = cursor.starts[cursor.i]
        name = cursor.any_word("the name of a field")
        if name in fields:
            cursor.note(place, cursor.ends[cursor.i - 1], f"`{name}` is given twice")
        cursor.expect(":", "after the field's name")
        fields[name] = parse_type(cursor)
        if not cursor.take(","):
            break
    cursor.close_brace("after the fields")
    return fields
