"""A unified diff as styled lines: line numbers, a sign, the text; words that changed inside a line are stronger.

`read_hunks` reads the text of a diff, `diff_lines` lays it out, `diff_of` makes the diff of two texts. Every character
is visible, because a person decides on what is shown here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from lyra.sage.terminal.text.styled_lines import OBJECT_COLUMN, Line, Marks, exact, wrap

_HUNK: Final = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_WORDS: Final = re.compile(r"\w+|\s+|[^\w\s]")
_CONTEXT: Final = 3
_PAIR_CHARS_MAX: Final = 400  # longer lines are not compared word by word
_ALIKE: Final = 0.4  # two lines that share less are shown as different lines
_NO_END: Final = "\\"


class _Row(NamedTuple):
    sign: str  # " ", "+", "-", or "" between two hunks
    number: int
    text: str
    changed: tuple[tuple[int, int], ...] = ()  # spans that are stronger


class DiffCount(NamedTuple):
    added: int
    removed: int


def diff_of(before: str, after: str, path: str = "") -> str:
    """Return the unified diff of two texts."""
    pieces = difflib.unified_diff(
        before.splitlines(), after.splitlines(), fromfile=path, tofile=path, n=_CONTEXT, lineterm=""
    )
    return "\n".join(pieces)


def count_changes(diff: str) -> DiffCount:
    rows = read_hunks(diff)
    return DiffCount(sum(row.sign == "+" for row in rows), sum(row.sign == "-" for row in rows))


def read_hunks(diff: str) -> list[_Row]:
    """Return the rows of all hunks; what stands before the first hunk is left out."""
    rows: list[_Row] = []
    old = new = 0
    for line in diff.split("\n"):
        hunk = _HUNK.match(line)
        if hunk is not None:
            old, new = int(hunk[1]), int(hunk[2])
            if rows:
                rows.append(_Row("", 0, ""))
        elif not old and not new:
            continue  # the names of the files
        elif line.startswith("+"):
            rows.append(_Row("+", new, line[1:]))
            new += 1
        elif line.startswith("-"):
            rows.append(_Row("-", old, line[1:]))
            old += 1
        elif not line.startswith(_NO_END):
            rows.append(_Row(" ", new, line[1:]))
            old, new = old + 1, new + 1
    while rows and rows[-1].sign == " " and not rows[-1].text and not diff.endswith("\n \n"):
        rows.pop()  # the text after the last line end
    return rows


def diff_lines(diff: str, width: int, *, marks: Marks, indent: int = OBJECT_COLUMN) -> list[Line]:
    """Return the lines of a diff."""
    rows = list(_with_changed_words(read_hunks(diff)))
    digits = max((len(str(row.number)) for row in rows), default=1)
    lines: list[Line] = []
    for row in rows:
        if not row.sign:
            lines.append([("", " " * indent), ("faint", marks.ellipsis)])
            continue
        head = f"{' ' * indent}{row.number:>{digits}} "
        sign = marks.minus if row.sign == "-" else row.sign
        style = {"+": "added", "-": "removed"}.get(row.sign, "")
        line: Line = [("faint", head), (style, f"{sign} "), *_text(row, style)]
        lines += wrap(line, width, hanging=indent + digits + 3)
    return lines


def _text(row: _Row, style: str) -> Line:
    parts: Line = []
    end = 0
    for start, stop in row.changed:
        parts.append((style, exact(row.text[end:start].expandtabs(4))))
        parts.append((f"{style}-word", exact(row.text[start:stop].expandtabs(4))))
        end = stop
    parts.append((style, exact(row.text[end:].expandtabs(4))))
    return [(name, text) for name, text in parts if text]


def _with_changed_words(rows: list[_Row]) -> Iterator[_Row]:
    """Yield the rows, with the spans of changed words where removed lines are followed by lines like them."""
    index = 0
    while index < len(rows):
        if rows[index].sign != "-":
            yield rows[index]
            index += 1
            continue
        middle = _run_end(rows, index, "-")
        end = _run_end(rows, middle, "+")
        removed, added = rows[index:middle], rows[middle:end]
        if len(removed) == len(added):
            pairs = [_pair_rows(old, new) for old, new in zip(removed, added, strict=True)]
            removed, added = [old for old, _ in pairs], [new for _, new in pairs]
        yield from removed
        yield from added
        index = end


def _run_end(rows: list[_Row], start: int, sign: str) -> int:
    end = start
    while end < len(rows) and rows[end].sign == sign:
        end += 1
    return end


def _pair_rows(old: _Row, new: _Row) -> tuple[_Row, _Row]:
    if max(len(old.text), len(new.text)) > _PAIR_CHARS_MAX:
        return old, new
    left, right = _WORDS.findall(old.text), _WORDS.findall(new.text)
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    if matcher.ratio() < _ALIKE:
        return old, new
    codes = matcher.get_opcodes()
    old_spans = _spans(left, [(code[1], code[2]) for code in codes if code[0] in ("replace", "delete")])
    new_spans = _spans(right, [(code[3], code[4]) for code in codes if code[0] in ("replace", "insert")])
    return old._replace(changed=old_spans), new._replace(changed=new_spans)


def _spans(words: list[str], ranges: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Ranges of words as ranges of characters."""
    starts = [0]
    for word in words:
        starts.append(starts[-1] + len(word))
    return tuple((starts[first], starts[last]) for first, last in ranges)
