"""A `.vsp` file as plain data, with the place of every part and of every character of a text in it, and remarks on it.

`read_document` reads YAML by the rules of `lyra.core.checking.document`, with two of its own: a number with a point
or an exponent is a `Decimal` of exactly the digits that are written, and an unquoted date is a text.
`NodeDocument.place` is where a part's key or item stands, `NodeDocument.place_in` where a character of a text value
stands: quotes, escapes, line breaks and indentation are walked over, so that an expression inside a folded text is
pointed at in the file. Keys are not interpreted here. An `Issue` is a remark: a severity, a stable code, a sentence,
the part of the file (`flow[0].guards[1]`) and its line and column from 1. `Issues` collects them, so that a check
reports all of them at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path as FilePath
from typing import Any, Final

import msgspec

from lyra.core.checking.document import Path, Places, ScalarText, parse, place_of, text_of
from lyra.errors import CheckError, ConfigError, ParseError, SourceError
from lyra.vesper.values.limits import ISSUES_MAX, NODE_FILE_BYTES_MAX, NUMBER_DIGITS_MAX, NUMBER_EXPONENT_MAX

TEXT_NAME: Final = "<text>"
_INTEGER: Final = re.compile(r"[-+]?[0-9]+\Z")
_DECIMAL: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE]([-+]?[0-9]+))?\Z")
_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class NodeDocument:
    """The data of a file, and where it stands."""

    __slots__ = ("_characters", "_scalars", "_starts", "data", "file", "places", "repeated", "text")

    def __init__(self, file: str, text: str, data: Any, places: Places, scalars: dict[Path, ScalarText]) -> None:
        self.file = file
        self.text = text
        self.data = data
        self.places = places
        self.repeated: list[tuple[Path, tuple[int, int]]] = []  # keys that are there already, with their places
        self._scalars = scalars
        self._starts: list[int] | None = None
        self._characters: dict[Path, list[tuple[int, int]]] = {}

    def place(self, path: Path) -> tuple[int, int]:
        """Return where a part stands: its key in a mapping, itself in a list; or the nearest part around it."""
        return place_of(path, self.places)

    def value_place(self, path: Path) -> tuple[int, int]:
        """Return where a part's value begins, if it is a scalar; else its key."""
        scalar = self._scalars.get(path)
        return (scalar.line, scalar.column) if scalar else self.place(path)

    def place_in(self, path: Path, offset: int) -> tuple[int, int]:
        """Return where a character of a text value stands."""
        scalar = self._scalars.get(path)
        if scalar is None:
            return self.place(path)
        places = self._characters.get(path)
        if places is None:
            if self._starts is None:
                self._starts = line_starts(self.text)
            places = self._characters[path] = character_places(self.text, self._starts, scalar)
        return places[max(0, min(offset, len(places) - 1))]

    def with_scalar(self, path: Path, value: Any) -> str:
        """Return the text of the file with another value for a scalar that stands on one line; ConfigError where there
        is none at the path, or the rest of the file would not stay as it is."""
        scalar = self._scalars.get(path)
        lines = self.text.splitlines(keepends=True)
        rest = lines[scalar.line - 1][scalar.column - 1 :] if scalar is not None else ""
        quoted = _QUOTED.match(rest)
        old = quoted[0] if quoted is not None else scalar.text if scalar is not None else ""
        if scalar is not None and old and rest.startswith(old):
            is_word = isinstance(value, str) and _PLAIN_WORD.fullmatch(value)
            begin = lines[scalar.line - 1][: scalar.column - 1]
            for new in ([value] if is_word else []) + [_scalar_text(value)]:
                lines[scalar.line - 1] = f"{begin}{new}{rest[len(old) :]}"
                with suppress(ParseError):
                    if read_document("".join(lines), self.file).data == _with_value(self.data, path, value):
                        return "".join(lines)
        raise ConfigError(f"{path_text(path)} cannot be changed in {self.file}", hint="edit the file by hand")


_QUOTED: Final = re.compile(r""""(?:[^"\\\n]|\\.)*"|'(?:[^'\n]|'')*'""")
_PLAIN_WORD: Final = re.compile(r"[0-9]+(\.[0-9]+)?(ms|s|m|h|d)|[A-Za-z_/][A-Za-z0-9_/.-]*")


def _scalar_text(value: Any) -> str:
    """Return a value as YAML has it on one line."""
    if isinstance(value, Decimal):
        return format(value, "f")
    return json.dumps(value, ensure_ascii=False)


def _with_value(data: Any, path: Path, value: Any) -> Any:
    """Return data with another value at a path."""
    if not path:
        return value
    if isinstance(data, dict):
        return {**data, path[0]: _with_value(data[path[0]], path[1:], value)}
    items = list(data)
    items[int(path[0])] = _with_value(items[int(path[0])], path[1:], value)
    return items


def read_document(text: str, file: str = TEXT_NAME, *, reads_on: bool = False) -> NodeDocument:
    """Return the document of a text; ParseError with the place of the first mistake. With `reads_on`, a key that is
    written twice is no such mistake: it has its first value, and is in `repeated`."""
    if len(text.encode("utf-8", "surrogatepass")) > NODE_FILE_BYTES_MAX:
        raise ParseError(f"the file has more than {NODE_FILE_BYTES_MAX} bytes", file=file, line=1, column=1)
    scalars: dict[Path, ScalarText] = {}

    def read_scalar(path: Path, scalar: ScalarText) -> Any:
        scalars[path] = scalar
        return _value(scalar, file)

    repeated: list[tuple[Path, tuple[int, int]]] = []

    def note_repeated(path: Path, line: int, column: int) -> None:
        repeated.append((path, (line, column)))

    try:
        data, places = parse(
            text, "yaml", file, read_scalar=read_scalar, on_repeated=note_repeated if reads_on else None
        )
    except (ValueError, RecursionError) as error:  # the YAML library lets some wrong characters and dates through
        raise ParseError(f"not YAML: {error}", file=file, line=1, column=1) from None
    document = NodeDocument(file, text, data, places, scalars)
    document.repeated = repeated
    return document


def read_source(source: str | FilePath) -> tuple[str, str]:
    """Return the text and the name of a source: a path, or a text, which has a line break."""
    if isinstance(source, str) and "\n" in source:
        return source, TEXT_NAME
    path = FilePath(source)
    try:
        with path.open("rb") as stream:
            data = stream.read(NODE_FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{str(path)[:200]} cannot be read: {reason}", key=str(path)[:200]) from None
    return text_of(data, str(path)), str(path)


def _value(scalar: ScalarText, file: str) -> Any:
    text = scalar.text
    if scalar.style:
        return text
    if text in _WORDS:
        return _WORDS[text]
    is_integer = _INTEGER.match(text) is not None
    match = None if is_integer else _DECIMAL.match(text)
    if not is_integer and match is None:
        return text
    exponent = match[1] if match and match[1] else "0"
    if len(text) > NUMBER_DIGITS_MAX or len(exponent) > 6 or abs(int(exponent)) > NUMBER_EXPONENT_MAX:
        raise ParseError("the number is too large", file=file, line=scalar.line, column=scalar.column)
    return _integer(text) if is_integer else Decimal(text)


def _integer(text: str) -> int:
    """Python limits the digits of int(text); a decimal has no such limit."""
    return int(text) if len(text) < 4_000 else int(Decimal(text))


# ---------------------------------------------------------------- characters

_BREAK: Final = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")
_SPACE: Final = " \t\r\n\x85\u2028\u2029"
_HEX_ESCAPES: Final = {"x": 2, "u": 4, "U": 8}


def line_starts(text: str) -> list[int]:
    """Return the offsets at which lines begin."""
    return [0, *(match.end() for match in _BREAK.finditer(text))]


def character_places(text: str, starts: list[int], scalar: ScalarText) -> list[tuple[int, int]]:
    """Return a place for each character of the scalar's text and one for its end."""
    begin = starts[min(scalar.line, len(starts)) - 1] + scalar.column - 1
    offsets = (_block if scalar.style in ("|", ">") else _flow)(text, begin, scalar)
    return _places(offsets, starts, min(scalar.line, len(starts)) - 1)


def _places(offsets: list[int], starts: list[int], line: int) -> list[tuple[int, int]]:
    places: list[tuple[int, int]] = []
    for offset in offsets:
        while line + 1 < len(starts) and starts[line + 1] <= offset:
            line += 1
        places.append((line + 1, offset - starts[line] + 1))
    return places


def _flow(text: str, begin: int, scalar: ScalarText) -> list[int]:
    """Return the offsets of the characters of a plain or quoted scalar, in which a run of blanks with a line break is
    one space or several line breaks of the value."""
    quote = scalar.style
    position = begin + len(quote)
    offsets: list[int] = []
    folded = False  # inside a run that stands for more than one line break
    for char in scalar.text:
        if folded and char == "\n":
            offsets.append(position)
            continue
        folded = False
        position, width = _next(text, position, quote)
        if width == 1 and position < len(text) and text[position] in _SPACE and char in " \n":
            run = _run_end(text, position)
            offsets.append(position)
            if _BREAK.search(text, position, run):
                position, folded = run, True
            else:
                position += 1
            continue
        offsets.append(min(position, len(text)))
        position += width
    return [*offsets, min(position, len(text))]


def _next(text: str, position: int, quote: str) -> tuple[int, int]:
    """Return where the next character is written, and how many characters of the file that takes."""
    if quote == "'" and text.startswith("''", position):
        return position, 2
    if quote != '"':
        return position, 1
    while text.startswith("\\", position) and text[position + 1 : position + 2] in ("\n", "\r"):
        position = _run_end(text, position + 1)  # an escaped line break stands for nothing
    if not text.startswith("\\", position):
        return position, 1
    return position, 2 + _HEX_ESCAPES.get(text[position + 1 : position + 2], 0)


def _run_end(text: str, position: int) -> int:
    while position < len(text) and text[position] in _SPACE:
        position += 1
    return position


def _block(text: str, begin: int, scalar: ScalarText) -> list[int]:
    """Block scalars: lines after the header, without their indentation."""
    header = _BREAK.search(text, begin)
    position = header.end() if header else len(text)
    indent = _indentation(text, position)
    offsets: list[int] = []
    position = _after_indent(text, position, indent)
    for char in scalar.text:
        while char not in " \n\t" and position < len(text) and text[position] in _SPACE:
            position += 1
        offsets.append(min(position, len(text)))
        if char in " \n" and position < len(text) and text[position] in "\r\n":
            match = _BREAK.match(text, position)
            assert match is not None
            position = _after_indent(text, match.end(), indent)
        else:
            position += 1
    return [*offsets, min(position, len(text))]


def _indentation(text: str, position: int) -> int:
    """Return the blanks before the first line that is not empty."""
    for row in _BREAK.split(text[position : position + 65_536]):
        if row.strip():
            return len(row) - len(row.lstrip(" "))
    return 0


def _after_indent(text: str, position: int, indent: int) -> int:
    end = position + indent
    while position < min(end, len(text)) and text[position] == " ":
        position += 1
    return position


# ---------------------------------------------------------------- issues

ERROR: Final = "error"
WARNING: Final = "warning"
INFO: Final = "info"
_LINE_SHOWN_MAX: Final = 160


class Issue(msgspec.Struct, frozen=True, kw_only=True):
    """One remark about a file."""

    severity: str  # error, warning or info
    code: str
    message: str
    path: str = ""
    line: int = 1
    column: int = 1
    hint: str = ""


class Issues:
    """Remarks in the order in which they were noticed; equal ones are kept once."""

    def __init__(self) -> None:
        self.items: list[Issue] = []
        self._known: set[tuple[str, str, int, int]] = set()
        self.left_out = 0

    def add(
        self,
        severity: str,
        code: str,
        message: str,
        *,
        path: Path | str = "",
        place: tuple[int, int] = (1, 1),
        hint: str = "",
    ) -> None:
        key = (code, message, *place)
        if key in self._known:
            return
        if len(self.items) >= ISSUES_MAX:
            self.left_out += 1
            return
        self._known.add(key)
        where = path if isinstance(path, str) else path_text(path)
        self.items.append(
            Issue(severity=severity, code=code, message=message, path=where, line=place[0], column=place[1], hint=hint)
        )


def path_text(path: Path) -> str:
    """Return a key path as text: `("flow", 0, "guards", 1)` as `flow[0].guards[1]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def sort_issues(issues: Sequence[Issue]) -> list[Issue]:
    """Return the remarks in order of place; at the same place, errors first."""
    rank = {ERROR: 0, WARNING: 1, INFO: 2}
    return sorted(issues, key=lambda issue: (issue.line, issue.column, rank[issue.severity], issue.code))


def error_of(issues: Sequence[Issue], file: str, *, parsing: bool = False) -> SourceError:
    """Return the error that stands for all of them; its place is that of the first one of severity error."""
    errors = [issue for issue in issues if issue.severity == ERROR] or list(issues)
    first = errors[0]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    problems: list[dict[str, Any]] = [msgspec.to_builtins(issue) for issue in issues]
    kind = ParseError if parsing else CheckError
    return kind(
        first.message + more,
        file=file,
        line=first.line,
        column=first.column,
        hint=first.hint or None,
        problems=problems,
    )


def render_issue(issue: Issue, file: str, text: str) -> str:
    """Return the remark for a person: place, sentence, the line of the file with a caret under the place, hint."""
    lines = [f"{file}:{issue.line}:{issue.column}: {issue.severity}[{issue.code}]: {issue.message}"]
    rows = text.splitlines()
    if 0 < issue.line <= len(rows) and rows[issue.line - 1].strip():
        row, start = rows[issue.line - 1], issue.column - 1
        first = max(0, start - _LINE_SHOWN_MAX // 2) if len(row) > _LINE_SHOWN_MAX else 0
        shown = row[first : first + _LINE_SHOWN_MAX]
        lead = "".join("\t" if char == "\t" else " " for char in shown[: max(0, start - first)])
        lines += [f"    {shown}", f"    {lead}^"]
    if issue.hint:
        lines.append(f"    hint: {issue.hint}")
    return "\n".join(lines)
