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

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from lyra.vega.syntax.ast import Block, Statement
from lyra.vega.syntax.lexer import Lexed
from lyra.vega.syntax.source import Source

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
    """Return whether a group, unbroken, and what follows it up to the next line end fit into the room left."""
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


# ---------------- The comments of a source, handed out in order while it is written anew
# A comment in the middle of an expression is put before its statement. So every comment is taken exactly once, and
# where it then stands it stays.

_BETWEEN: Final = re.compile(r"[ \t,;]*\Z")
_LINE_END: Final = re.compile(r"[ \t\r]*(?:\n|\Z)")


class Comment(NamedTuple):
    at: int
    end: int
    text: str


class Comments:
    """The comments not yet taken, and the brackets of the source."""

    def __init__(self, source: Source, lexed: Lexed) -> None:
        self.text = source.text
        self.all = [Comment(offset, offset + len(text), text.rstrip()) for offset, text in lexed.comments]
        self.next = 0
        self.starts = lexed.tokens.starts
        self.tokens = lexed.tokens
        pairs: dict[int, int] = {}
        opened: list[int] = []
        for kind, start in zip(lexed.tokens.kinds, lexed.tokens.starts, strict=True):
            if kind == "{":
                opened.append(start)
            elif kind == "}" and opened:
                pairs[opened.pop()] = start
        self.closing = pairs

    def before(self, offset: int) -> list[Comment]:
        """Take those that begin before this place."""
        first = self.next
        while self.next < len(self.all) and self.all[self.next].at < offset:
            self.next += 1
        return self.all[first : self.next]

    def behind(self, end: int) -> Comment | None:
        """Take the one that stands behind this place on its line, with nothing behind it."""
        if self.next == len(self.all):
            return None
        comment = self.all[self.next]
        if comment.at < end or not _BETWEEN.match(self.text[end : comment.at]):
            return None
        if not _LINE_END.match(self.text, comment.end):
            return None
        self.next += 1
        return comment

    def blank_between(self, end: int, offset: int) -> bool:
        """Return whether an empty line stands between two places."""
        return self.text.count("\n", end, offset) > 1

    def token_up_to(self, end: int) -> str:
        """Return the token that ends there, as it is written."""
        i = bisect_left(self.tokens.ends, end)
        return self.text[self.starts[i] : end]

    def is_wrapped(self, offset: int, end: int) -> bool:
        """Return whether the tokens from `at` to `end` stand in parentheses of their own."""
        first, last = bisect_left(self.starts, offset), bisect_left(self.tokens.ends, end)
        kinds = self.tokens.kinds
        return first > 0 and kinds[first - 1] == "(" and kinds[last + 1] == ")"

    def string_in(self, offset: int) -> str:
        """Return the first string at or behind a place, as it is written."""
        i = bisect_left(self.starts, offset)
        while self.tokens.kinds[i] != "string":
            i += 1
        return self.text[self.tokens.starts[i] : self.tokens.ends[i]]

    def has_word(self, word: str, offset: int, end: int) -> bool:
        """Return whether that word is one of the tokens from `at` to `end`."""
        first, last = bisect_left(self.starts, offset), bisect_left(self.starts, end)
        return word in self.tokens.values[first:last]

    def sign_behind(self, sign: str, offset: int) -> int:
        """Return the first such sign at or behind a place."""
        i = bisect_left(self.starts, offset)
        while self.tokens.kinds[i] != sign:
            i += 1
        return self.starts[i]

    def brace_behind(self, offset: int) -> tuple[int, int]:
        """Return the first `{` at or behind a place, and its `}`."""
        brace = self.sign_behind("{", offset)
        return brace, self.closing[brace]


# ---------------- The lines of a block with their comments, and the state that all functions of the formatter work on


class FormatState(NamedTuple):
    """The source, its comments that are not yet written, and how each kind of statement is written."""

    text: str
    comments: Comments
    statements: Mapping[type, Callable[[FormatState, Any], Doc]]


def format_statement(state: FormatState, node: Statement) -> Doc:
    return state.statements[type(node)](state, node)


def format_block(state: FormatState, block: Block) -> Doc:
    return braces(state, format_lines(state, block.statements, block.end - 1))


def braces(state: FormatState, lines: list[Doc]) -> Doc:
    return ["{", nest(*lines), HARD, "}"] if lines else "{}"


def format_lines(
    state: FormatState, nodes: Sequence[Any], end: int, write: Callable[[Any], Doc] | None = None
) -> list[Doc]:
    """Each node on lines of its own, with its comments and the empty lines between; begins with a new line."""
    out: list[Doc] = []
    last = -1
    for node in nodes:
        before = state.comments.before(node.at)
        doc = format_statement(state, node) if write is None else write(node)
        inside = state.comments.before(node.end)  # no place of their own: they go before the node
        last = _add_comments(state, out, before, last)
        out.append(gap(state, last, node.at))
        for comment in inside:
            out += [comment.text, HARD]
        out.append(doc)
        last = node.end
        behind = state.comments.behind(node.end)
        if behind is not None:
            out.append("  " + behind.text)
            last = behind.end
    _add_comments(state, out, state.comments.before(end), last)
    return out


def _add_comments(state: FormatState, out: list[Doc], comments: list[Comment], last: int) -> int:
    for comment in comments:
        out += [gap(state, last, comment.at), comment.text]
        last = comment.end
    return last


def gap(state: FormatState, last: int, offset: int) -> Doc:
    """Return a new line, and an empty one where there was one; `last` is -1 at the beginning of a block."""
    return [HARD, HARD] if last >= 0 and state.comments.blank_between(last, offset) else HARD
