"""Texts for the solver: constants, and the patterns that can be written as its regular expressions.

The solver knows characters up to U+2FFFF. A constant with others is not given to it, and neither is a pattern with
ranges beyond: any text with a rare character then behaves as one with a known character that no constant names.
"""

from __future__ import annotations

import re
from re import _constants as codes  # type: ignore[attr-defined, unused-ignore]
from re import _parser as parser  # type: ignore[attr-defined, unused-ignore]
from typing import Any, Final

import z3

from lyra.vesper.prove.values import Term

_CHARACTER_MAX: Final = 0x2FFFF
_REPEAT_MAX: Final = 200
_TEXT_MAX: Final = 2_000


def text_constant(text: str) -> Term | None:
    """Return the text as a term; None where it has characters that the solver does not know."""
    if len(text) > _TEXT_MAX or any(ord(character) > _CHARACTER_MAX for character in text):
        return None
    plain = (c if " " <= c <= "~" and c != "\\" else f"\\u{{{ord(c):x}}}" for c in text)
    return z3.StringVal("".join(plain))


def text_of(term: Term) -> str:
    """Return the text of a constant term, its escapes undone."""
    return re.sub(r"\\u\{([0-9a-fA-F]+)\}", lambda escape: chr(int(escape[1], 16)), term.as_string())


class _NoPattern(Exception):
    """The pattern has a part that is not translated."""


def pattern_condition(subject: Term, pattern: Term) -> Term | None:
    """Return the condition that the pattern is found in the subject; None for a pattern that is not translated."""
    if not z3.is_string_value(pattern):
        return None
    try:
        tree = list(parser.parse(text_of(pattern)))
        from_start = bool(tree) and tree[0] == (codes.AT, codes.AT_BEGINNING)
        to_end = bool(tree) and tree[-1] == (codes.AT, codes.AT_END)
        body = _sequence(tree[from_start : len(tree) - to_end])  # `$` is the very end of the text
    except (_NoPattern, re.error, RecursionError, OverflowError):
        return None
    everything = z3.Full(z3.ReSort(z3.StringSort()))
    parts = [*([] if from_start else [everything]), body, *([] if to_end else [everything])]
    return z3.InRe(subject, z3.Concat(*parts) if len(parts) > 1 else body)


def _sequence(items: Any) -> Any:
    parts = [_item(kind, value) for kind, value in items]
    if not parts:
        return z3.Re("")
    return parts[0] if len(parts) == 1 else z3.Concat(*parts)


def _item(kind: Any, value: Any) -> Any:
    match kind:
        case codes.LITERAL if value <= _CHARACTER_MAX:
            return z3.Re(text_constant(chr(value)))
        case codes.IN if all(name in (codes.LITERAL, codes.RANGE) for name, _ in value):
            parts = [_range(part if name is codes.RANGE else (part, part)) for name, part in value]
            return parts[0] if len(parts) == 1 else z3.Union(*parts)
        case codes.SUBPATTERN if not value[1] and not value[2]:
            return _sequence(value[3])
        case codes.BRANCH:
            return z3.Union(*[_sequence(option) for option in value[1]])
        case codes.MAX_REPEAT:
            least, most, body = value
            inner = _sequence(body)
            if least > _REPEAT_MAX or (most is not codes.MAXREPEAT and most > _REPEAT_MAX):
                raise _NoPattern
            if most is codes.MAXREPEAT:
                return z3.Concat(z3.Loop(inner, least, least), z3.Star(inner)) if least else z3.Star(inner)
            return z3.Loop(inner, least, most)
    raise _NoPattern


def _range(ends: tuple[int, int]) -> Any:
    if ends[1] > _CHARACTER_MAX:
        raise _NoPattern
    first, last = (text_constant(chr(end)) for end in ends)
    return z3.Re(first) if ends[0] == ends[1] else z3.Range(first, last)
