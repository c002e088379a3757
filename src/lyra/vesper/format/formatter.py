"""The layout of files of nodes: `format_text` gives a text in that layout with the same meaning.

The result is read again and compared with what the file said; where they differ, nothing is changed and an error is
raised. So a formatted file loads to a node with the same digest, and formatting a formatted text changes nothing.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from lyra.errors import ParseError
from lyra.vesper.format.comments import attach_comments
from lyra.vesper.format.layout import moves_first_key, write_tree
from lyra.vesper.format.tree import read_tree
from lyra.vesper.loading.document import TEXT_NAME, read_document


def format_text(text: str, file: str = TEXT_NAME) -> str:
    """The text in the layout; ParseError where it is no YAML, or no mapping."""
    document = read_document(text, file)
    if not isinstance(document.data, dict):
        raise ParseError("the file is no mapping of a node's keys", file=file, line=1, column=1)
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    root, entries, comments = read_tree(lines)
    header = attach_comments(root, entries, comments, first_key_moves=moves_first_key(root))
    result = write_tree(root, header)
    _compare(document.data, result, file)
    return result


def _compare(data: dict[str, Any], result: str, file: str) -> None:
    try:
        is_same = same_data(data, read_document(result, file).data)
    except ParseError:
        is_same = False
    if not is_same:
        raise ParseError("the file uses YAML that cannot be laid out without changing it", file=file, line=1, column=1)


def same_data(first: Any, second: Any) -> bool:
    """Whether two documents say the same: equal values of equal kinds, numbers with equal digits. The order of the keys
    at the top has no meaning."""
    if not isinstance(first, dict) or not isinstance(second, dict):
        return _same(first, second)
    return first.keys() == second.keys() and all(_same(first[key], second[key]) for key in first)


def _same(first: Any, second: Any) -> bool:
    if type(first) is not type(second):
        return False
    if isinstance(first, dict):
        return list(first) == list(second) and all(_same(first[key], second[key]) for key in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(_same, first, second))
    return str(first) == str(second) if isinstance(first, Decimal) else bool(first == second)
