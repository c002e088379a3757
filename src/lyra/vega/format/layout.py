"""Fitting text into lines: documents of pieces that stay on one line or break together.

    "text"          as it is; may hold line ends of its own, which are kept
    LINE  SOFT      a space or nothing; a new line where their group is broken
    HARD            a new line always
    group(…)        broken if it does not fit into the line, or if told to be
    indent(…)       lines inside start further right, if their group is broken
    nest(…)         lines inside start further right always: the inside of a block

`render` decides group by group, outside first, and reads each piece once to print it and at most one line ahead to see
whether it fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

STEP: Final = 4  # spaces


class DocNode:
    """One node of a document."""

    __slots__ = ("is_broken", "kind", "parts")

    def __init__(self, kind: str, parts: Sequence[Doc] = (), *, is_broken: bool = False) -> None:
        self.kind = kind
        self.parts = parts
        self.is_broken = is_broken


Doc: TypeAlias = "str | DocNode | Sequence[Doc]"

LINE: Final = DocNode("line")
SOFT: Final = DocNode("soft")
HARD: Final = DocNode("hard")


def group(*parts: Doc, is_broken: bool = False) -> DocNode:
    return DocNode("group", parts, is_broken=is_broken)


def indent(*parts: Doc) -> DocNode:
    return DocNode("indent", parts)


def nest(*parts: Doc) -> DocNode:
    return DocNode("nest", parts)


def only_broken(*parts: Doc) -> DocNode:
    """Printed only where the group is broken: the comma behind a last item."""
    return DocNode("only_broken", parts)


def join(separator: Sequence[Doc], parts: Sequence[Doc]) -> list[Doc]:
    joined: list[Doc] = []
    for part in parts:
        if joined:
            joined.extend(separator)
        joined.append(part)
    return joined


# What is still to be printed: how far in, whether broken, what.
_Todo: TypeAlias = "tuple[int, bool, Doc]"


def render(document: Doc, width: int) -> str:
    out: list[str] = []
    column = 0
    todo: list[_Todo] = [(0, True, document)]
    while todo:
        margin, broken, doc = todo.pop()
        if isinstance(doc, str):
            out.append(doc)
            column = column + len(doc) if "\n" not in doc else len(doc) - doc.rfind("\n") - 1
        elif not isinstance(doc, DocNode):
            todo.extend((margin, broken, part) for part in reversed(doc))
        elif doc.kind == "hard" or (broken and doc.kind in ("line", "soft")):
            _strip_end(out)
            out.append("\n" + " " * margin)
            column = margin
        elif doc.kind == "line":
            out.append(" ")
            column += 1
        elif doc.kind == "group":
            breaks = doc.is_broken or not _fits(doc, width - column, todo)
            todo.extend((margin, breaks, part) for part in reversed(doc.parts))
        elif doc.kind == "only_broken":
            if broken:
                todo.extend((margin, broken, part) for part in reversed(doc.parts))
        elif doc.kind != "soft":
            further = margin + STEP if doc.kind == "nest" or broken else margin
            todo.extend((further, broken, part) for part in reversed(doc.parts))
    _strip_end(out)
    return "".join(out)


def _strip_end(out: list[str]) -> None:
    """No spaces at the end of a line: an empty line's margin goes."""
    if out and out[-1].startswith("\n") and not out[-1].strip():
        out[-1] = "\n"


def _fits(first: DocNode, room: int, rest: list[_Todo]) -> bool:
    """Whether a group, unbroken, and what follows it up to the next line end fit into the room left."""
    todo: list[tuple[bool, Doc]] = [(False, part) for part in reversed(first.parts)]
    following = len(rest)
    while room >= 0:
        if not todo:
            if following == 0:
                return True
            following -= 1
            todo.append((rest[following][1], rest[following][2]))
            continue
        broken, doc = todo.pop()
        if isinstance(doc, str):
            line, end, _ = doc.partition("\n")
            room -= len(line)
            if end:
                return room >= 0
        elif not isinstance(doc, DocNode):
            todo.extend((broken, part) for part in reversed(doc))
        elif doc.kind == "hard" or (broken and doc.kind in ("line", "soft")):
            return True
        elif doc.kind == "line":
            room -= 1
        elif doc.kind == "group":
            if doc.is_broken and not broken and following == len(rest):
                return False  # it breaks by itself, so what holds it cannot stay on one line
            # One that follows may still break, and then its first line end is the end of this line.
            may_break = doc.is_broken or (broken and following < len(rest))
            todo.extend((may_break, part) for part in reversed(doc.parts))
        elif doc.kind == "only_broken":
            if broken:
                todo.extend((broken, part) for part in reversed(doc.parts))
        elif doc.kind != "soft":
            todo.extend((broken, part) for part in reversed(doc.parts))
    return False
