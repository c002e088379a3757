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

_HUNK: Final = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_GIT_HEAD: Final = re.compile(r"\\ |diff --git |index |(?:dis)?similarity |(?:new|deleted) file mode ")
_RETURN: Final = re.compile(r"(?:\r|⟨U\+000D⟩)\Z")
_NO_FILE: Final = "/dev/null"
_NAME: Final = "@"  # the sign of a row with the name of a file, or with words about it
_WORDS: Final = re.compile(r"\w+|\s+|[^\w\s]")
_CONTEXT: Final = 3
_PAIR_CHARS_MAX: Final = 400  # longer lines are not compared word by word
_ALIKE: Final = 0.4  # two lines that share less are shown as different lines


class _Row(NamedTuple):
    sign: str  # " ", "+", "-", "" between two hunks, "@" before those of a file
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


def read_hunks(diff: str, *, names: bool = False) -> list[_Row]:
    """Return the rows of all hunks. Each of several files has its name before them; with `names` a single one has, too,
    and what is said beside the hunks (a mode, a rename, a binary file) is a row of its own."""
    rows: list[_Row] = []
    files = start = old = new = old_left = new_left = 0
    before = ""
    for line in diff.split("\n"):
        sign = line[:1] or " "
        if (old_left or new_left) and sign in "+- ":
            rows.append(_Row(sign, old if sign == "-" else new, line[1:]))
            if sign != "+":
                old, old_left = old + 1, max(old_left - 1, 0)
            if sign != "-":
                new, new_left = new + 1, max(new_left - 1, 0)
        elif hunk := _HUNK.match(line):
            if rows and rows[-1].sign != _NAME:
                rows.append(_Row("", 0, ""))
            old, old_left, new, new_left = (int(part or 1) for part in hunk.groups())
        elif line.startswith("--- "):
            before = line[4:].rstrip("\t")
        elif line and not _GIT_HEAD.match(line):
            is_name = line.startswith("+++ ")
            rows[start:] = _without_returns(rows[start:])
            rows.append(_Row(_NAME, 0, _name(before, line[4:].rstrip("\t")) if is_name else line))
            files, start, old_left, new_left = files + is_name, len(rows), 0, 0
    rows[start:] = _without_returns(rows[start:])
    return rows if names or files > 1 else [row for row in rows if row.sign != _NAME]


def _name(before: str, after: str) -> str:
    if after == _NO_FILE:
        return f"{before.removeprefix('a/')} (deleted)"
    return f"{after.removeprefix('b/')} (new)" if before == _NO_FILE else after.removeprefix("b/")


def _without_returns(rows: list[_Row]) -> list[_Row]:
    """Return the rows of a file without the carriage returns before its line ends, where each line has one."""
    if not all(_RETURN.search(row.text) for row in rows if row.sign):
        return rows
    return [row._replace(text=_RETURN.sub("", row.text)) for row in rows]


def diff_lines(diff: str, width: int, *, marks: Marks, indent: int = OBJECT_COLUMN, names: bool = False) -> list[Line]:
    """Return the lines of a diff. `names`: with the names of its files, also of a single one."""
    rows = list(_with_changed_words(read_hunks(diff, names=names)))
    digits = max((len(str(row.number)) for row in rows), default=1)
    lines: list[Line] = []
    for row in rows:
        if not row.sign:
            lines.append([("", " " * indent), ("faint", marks.ellipsis)])
            continue
        if row.sign == _NAME:
            lines += [[]] if lines else []
            lines += wrap([("strong", f"{' ' * indent}{exact(row.text)}")], width, hanging=indent + 2)
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
