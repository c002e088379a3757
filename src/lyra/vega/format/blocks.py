"""The lines of a block with their comments, and the state that all functions of the formatter work on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from lyra.vega.format.comments import Comment, Comments
from lyra.vega.format.layout import HARD, Doc, nest
from lyra.vega.syntax.ast import Block, Statement


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
    """A new line, and an empty one where there was one; `last` is -1 at the beginning of a block."""
    return [HARD, HARD] if last >= 0 and state.comments.blank_between(last, offset) else HARD
