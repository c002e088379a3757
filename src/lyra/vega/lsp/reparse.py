"""The tree of a changed text, made from the one before: only the statements around the change are read again.

A statement at the top level that lies before the change and does not touch it reads as before, and so does one behind
it, moved by as much as the text grew. What is read again is the piece between them. If that piece is wrong in any way,
there is no short way: the whole text is read, so that mistakes are told as ever. The old tree's nodes become part of
the new one and move; the old tree is not to be used again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from lyra.core.limits import VEGA_SOURCE_CHARS_MAX
from lyra.vega.syntax import ast
from lyra.vega.syntax.cursor import Cursor
from lyra.vega.syntax.facts import every_node
from lyra.vega.syntax.lexer import lex
from lyra.vega.syntax.parser import GRAMMAR, Parsed, parse_module
from lyra.vega.syntax.source import Source


def reparsed(before: Parsed, old: str, new: str) -> Parsed | None:
    """The tree of `new`, or None where it has to be read as a whole."""
    statements = before.module.statements
    if before.problems or not statements or len(new) > VEGA_SOURCE_CHARS_MAX:
        return None
    same = _common_start(old, new)
    same_end = _common_end(old, new, same)
    # The statement before the change is read again, too: an `else` may follow it now.
    first = max(0, bisect_left(statements, same, key=lambda node: node.end) - 1)
    last = bisect_left(statements, len(old) - same_end + 1, key=lambda node: node.at)
    while last < len(statements) and old[statements[last].at - 1] != "\n":
        last += 1  # so that no word, string or comment of the piece can reach into it
    start = statements[first].at if first < min(last, len(statements)) and first else 0
    kept = first if start else 0
    old_end = statements[last].at if last < len(statements) else len(old)
    moved = len(new) - len(old)
    piece = Source("", new[start : old_end + moved])
    lexed = lex(piece)
    if lexed.problems or lexed.cut_off:
        return None
    cursor = Cursor(piece, lexed.tokens, GRAMMAR)
    read_again = parse_module(cursor)
    if cursor.problems:
        return None
    _move(read_again, start)
    _move(statements[last:], moved)
    comments = [
        *(comment for comment in before.module.comments if comment[0] < start),
        *((offset + start, text) for offset, text in lexed.comments),
        *((offset + moved, text) for offset, text in before.module.comments if offset >= old_end),
    ]
    module = ast.Module([*statements[:kept], *read_again, *statements[last:]], comments, at=0, end=len(new))
    return Parsed(module, [])


def _common_start(old: str, new: str) -> int:
    """How many characters both begin with; by halving, since slices compare quicker than characters in a loop."""
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _common_end(old: str, new: str, start: int) -> int:
    """How many characters both end with, behind the common start."""
    low, high = 0, min(len(old), len(new)) - start
    while low < high:
        middle = (low + high + 1) // 2
        if old[len(old) - middle :] == new[len(new) - middle :]:
            low = middle
        else:
            high = middle - 1
    return low


def _move(nodes: Sequence[ast.SyntaxNode], by: int) -> None:
    if by == 0:
        return
    for node in every_node(nodes):
        node.at += by
        node.end += by
        places: dict[str, int] | None = getattr(node, "places", None)
        if places:
            for name in places:
                places[name] += by
