"""Reading TOML, YAML or JSON as plain data, with the line and column of every part.

`text_of` gives the text of a file's bytes, `parse` the data and a map from paths (`("agents", 0, "name")`) to places,
`place_of` finds a part's place or the nearest one around it. The caller interprets the keys. YAML is read by the rules
of YAML 1.2: `yes`, `on` and `12:30` are texts; aliases, tags and keys written twice are refused. It needs the `yaml`
extra, which is imported only for such a file. A caller with rules of its own for YAML's scalars passes `read_scalar`,
which gets each one as it is written.

`key_lines` gives the line of each key in a TOML document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path as FilePath
from typing import Any, Final, NamedTuple

from lyra.core.limits import PIPELINE_FILE_BYTES_MAX
from lyra.errors import ConfigError, ParseError

DEPTH_MAX: Final = 16  # parts of a dotted key, and brackets inside brackets; settings need far fewer

_TOML_POSITIONS_BLANK: Final = re.compile(r"(?:[ \t\r\n]++|#[^\n]*+)*+")
_IN_ARRAY: Final = re.compile(r"(?:[^\[\]{}\"'#]++|#[^\n]*+)*+")  # numbers, commas: nothing that can hold a key
_TOML_POSITIONS_SPACE: Final = re.compile(r"[ \t]*+")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]++")
# The four strings of TOML, longest delimiter first; a multi-line string may end in up to five quotes.
_STRING: Final = re.compile(
    r'"""(?:[^"\\]++|\\.|"{1,2}(?!"))*+"{3,5}'
    r"|'''(?:[^']++|'{1,2}(?!'))*+'{3,5}"
    r'|"(?:[^"\\\n]++|\\.)*+"'
    r"|'[^'\n]*+'",
    re.DOTALL,
)
_SCALAR: Final = re.compile(r"[^,\]}#\n\"']*+")


class TooDeep(Exception):
    """Nested beyond `DEPTH_MAX`, at `line`."""

    def __init__(self, line: int) -> None:
        super().__init__(f"nested more than {DEPTH_MAX} deep at line {line}")
        self.line = line


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the line (from 1) on which each table or key is first written, by its path."""
    scan = _Scan(text)
    scan.document()
    return scan.lines


class _Scan:
    """One pass from left to right; `position` only grows, and lines are counted along with it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.counted = 0
        self.line = 1
        self.lines: dict[tuple[str, ...], int] = {}

    def document(self) -> None:
        table: tuple[str, ...] = ()
        while self.more():
            if self.peek() == "[":
                table = self.header()
            else:
                self.pair(table, 0)

    def header(self) -> tuple[str, ...]:
        brackets = 2 if self.text.startswith("[[", self.position) else 1
        self.position += brackets
        path = self.key(())
        self.position += brackets
        return path

    def pair(self, table: tuple[str, ...], depth: int) -> None:
        path = self.key(table)
        self.position += 1  # the equals sign, or on text that is not TOML the character in its place
        self.value(path, depth)

    def value(self, path: tuple[str, ...], depth: int) -> None:
        if depth > DEPTH_MAX:
            raise TooDeep(self.line_here())
        self.skip(_TOML_POSITIONS_SPACE)
        if self.peek() == "[":
            self.position += 1
            while self.more(_IN_ARRAY, ends="]"):
                self.value(path, depth + 1)
        elif self.peek() == "{":
            self.position += 1
            while self.more(ends="}"):
                self.pair(path, depth + 1)
        elif not self.skip(_STRING) and not self.skip(_SCALAR):
            self.position += 1  # not TOML: skip a character, so that the scan ends

    def more(self, between: re.Pattern[str] = _TOML_POSITIONS_BLANK, *, ends: str = "") -> bool:
        """Skip the text between two items; False at the closing bracket (skipped too) or the end."""
        self.skip(between)
        while self.peek() == ",":
            self.position += 1
            self.skip(between)
        mark = self.peek()
        if mark and mark == ends:
            self.position += 1
            return False
        return bool(mark)

    def key(self, table: tuple[str, ...]) -> tuple[str, ...]:
        """Read a dotted key; each of its parts gets a line, since `a.b = 1` also makes table `a`."""
        path = table
        self.skip(_TOML_POSITIONS_SPACE)
        while (part := self.key_part()) is not None:
            path = (*path, part)
            self.lines.setdefault(path, self.line_here())
            if len(path) > DEPTH_MAX:
                raise TooDeep(self.line)
            self.skip(_TOML_POSITIONS_SPACE)
            if self.peek() != ".":
                break
            self.position += 1
            self.skip(_TOML_POSITIONS_SPACE)
        return path

    def key_part(self) -> str | None:
        quoted = self.peek() in ('"', "'")
        match = (_STRING if quoted else _BARE_KEY).match(self.text, self.position)
        if match is None:
            return None
        self.position = match.end()
        return _unquote(match.group()) if quoted else match.group()

    def line_here(self) -> int:
        self.line += self.text.count("\n", self.counted, self.position)
        self.counted = self.position
        return self.line

    def peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def skip(self, pattern: re.Pattern[str]) -> bool:
        match = pattern.match(self.text, self.position)
        if match is None or match.end() == self.position:
            return False
        self.position = match.end()
        return True


def _unquote(text: str) -> str:
    import tomllib

    try:
        return str(tomllib.loads(f"key = {text}")["key"])
    except tomllib.TOMLDecodeError:  # tomllib reports this mistake itself, with the right place
        return text


FORMATS: Final[dict[str, str]] = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".json": "json"}
_DEPTH_MAX: Final = 64
Path = tuple[str | int, ...]
Places = dict[Path, tuple[int, int]]


class ScalarText(NamedTuple):
    """A scalar of a YAML file: its text without quotes and folding, its style, and the place where it begins."""

    text: str
    style: str  # empty: plain; else the mark ', ", | or >
    line: int
    column: int


ReadScalar = Callable[[Path, ScalarText], Any]
OnRepeated = Callable[[Path, int, int], None]  # the path of the key, its line and column


def text_of(data: bytes, file: str) -> str:
    """Return the text of a file's bytes; an error for a file that is too large or not UTF-8."""
    if len(data) > PIPELINE_FILE_BYTES_MAX:
        raise ConfigError(f"{file} has more than {PIPELINE_FILE_BYTES_MAX} bytes", key=file)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ParseError("the file is not UTF-8", file=file, line=line, column=1) from None


def form_of(file: str, *, what: str) -> str:
    """Return the format named by a file's ending; `what` names such files in the error message."""
    form = FORMATS.get(FilePath(file).suffix.lower())
    if form is None:
        raise ConfigError(f"{file} is no {what} file", hint=f"its name ends in {', '.join(FORMATS)}", key=file)
    return form


def parse(
    text: str, form: str, file: str, *, read_scalar: ReadScalar | None = None, on_repeated: OnRepeated | None = None
) -> tuple[Any, Places]:
    """Plain data, and the place of each of its parts. `read_scalar` gives the values of YAML's scalars; without it,
    they are those of YAML 1.2's core schema. `on_repeated` is called for a key that YAML has a second time, and the
    first value stays; without it, such a key is a ParseError."""
    if form == "yaml":
        return _yaml(text, file, read_scalar or _core_scalar, on_repeated)
    return {"toml": _toml, "json": _json}[form](text, file)


def place_of(path: Path, places: Places) -> tuple[int, int]:
    """Return the place of a part, or of the nearest part around it."""
    while path and path not in places:
        path = path[:-1]
    return places.get(path, (1, 1))


class _TomlPlaces(_Scan):
    """The scan for places, with the items of arrays numbered and columns kept."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.places: Places = {}
        self._counts: dict[Path, int] = {}

    def header(self) -> Any:
        many = self.text.startswith("[[", self.position)
        start = self.position
        self.position += 2 if many else 1
        parts = self._parts(())
        self.position += 2 if many else 1
        path: Path = ()
        for index, part in enumerate(parts):
            path = (*path, part)
            last = index == len(parts) - 1
            if many and last:
                self._counts[path] = self._counts.get(path, 0) + 1
            if path in self._counts:
                path = (*path, self._counts[path] - 1)
            self._note(path, start)
        return path

    def key(self, table: Any) -> Any:
        return self._parts(table)

    def value(self, path: Any, depth: int) -> None:
        if depth > _DEPTH_MAX or len(path) > _DEPTH_MAX:
            raise TooDeep(self.line_here())
        self.skip(_SPACE)
        if self.peek() != "[":
            super().value(path, min(depth, 1))
            return
        self.position += 1
        index = 0
        while self.more(ends="]"):
            self._note((*path, index), self.position)
            self.value((*path, index), depth + 1)
            index += 1

    def _parts(self, table: Path) -> Path:
        path = table
        self.skip(_SPACE)
        start = self.position
        while (part := self.key_part()) is not None:
            path = (*path, part)
            self._note(path, start)
            if len(path) > _DEPTH_MAX:
                raise TooDeep(self.line_here())
            self.skip(_SPACE)
            if self.peek() != ".":
                break
            self.position += 1
            self.skip(_SPACE)
            start = self.position
        return path

    def _note(self, path: Path, index: int) -> None:
        line = self.line + self.text.count("\n", self.counted, index)
        self.places.setdefault(path, (line, index - self.text.rfind("\n", 0, index)))
        self.line_here()


_SPACE: Final = re.compile(r"[ \t]*+")
_TOML_AT: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def _toml(text: str, file: str) -> tuple[Any, Places]:
    import tomllib

    try:
        scan = _TomlPlaces(text)
        scan.document()
        return tomllib.loads(text), scan.places
    except TooDeep as error:
        raise ParseError("nested too deeply", file=file, line=error.line, column=1) from None
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        match = _TOML_AT.search(message)
        line, column = (int(match[1]), int(match[2])) if match and match[1] else (text.count("\n") + 1, 1)
        sentence = message[: match.start()] if match else message
        raise ParseError(f"not TOML: {sentence}", file=file, line=line, column=column) from None
    except RecursionError:
        raise ParseError("nested too deeply", file=file, line=1, column=1) from None


_BLANK: Final = re.compile(r"[ \t\r\n]*+")
_JSON_SCALAR: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|[^\s,\]}:]++')


def _json(text: str, file: str) -> tuple[Any, Places]:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ParseError(f"not JSON: {error.msg}", file=file, line=error.lineno, column=error.colno) from None
    except RecursionError:
        raise ParseError("nested too deeply", file=file, line=1, column=1) from None
    places: Places = {}
    lines = _Lines(text)
    for path, index in _json_parts(text, file, lines):
        places[path] = lines.place(index)
    return data, places


class _Lines:
    def __init__(self, text: str) -> None:
        self.starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def place(self, index: int) -> tuple[int, int]:
        from bisect import bisect_right

        line = bisect_right(self.starts, index)
        return line, index - self.starts[line - 1] + 1


def _json_parts(text: str, file: str, lines: _Lines) -> Iterator[tuple[Path, int]]:
    """Each key and item of valid JSON with its index, in order; a list of open containers avoids recursion."""
    position = 0
    opened: list[tuple[Path, set[str] | None, int]] = []  # path, keys of a mapping or None, next index
    path: Path = ()

    def blank(start: int) -> int:
        match = _BLANK.match(text, start)
        assert match is not None
        return match.end()

    while (position := blank(position)) < len(text):
        mark = text[position]
        if mark in "]}":
            opened.pop()
            position += 1
            continue
        if mark == ",":
            position = blank(position + 1)
            mark = text[position]
        if opened:
            holder, keys, index = opened[-1]
            if keys is None:
                path = (*holder, index)
                opened[-1] = (holder, None, index + 1)
                yield path, position
            else:
                scalar = _JSON_SCALAR.match(text, position)
                assert scalar is not None
                key = json.loads(scalar.group())
                path = (*holder, key)
                if key in keys:
                    line, column = lines.place(position)
                    raise ParseError(f"key {key!r} is written twice", file=file, line=line, column=column)
                keys.add(key)
                yield path, position
                position = blank(blank(scalar.end()) + 1)
                mark = text[position]
        if mark in "[{":
            if len(opened) >= _DEPTH_MAX:
                line, column = lines.place(position)
                raise ParseError("nested too deeply", file=file, line=line, column=column)
            opened.append((path, set() if mark == "{" else None, 0))
            position += 1
        else:
            scalar = _JSON_SCALAR.match(text, position)
            assert scalar is not None
            position = scalar.end()


_YAML_INT: Final = re.compile(r"[-+]?[0-9]{1,18}\Z")
_YAML_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_YAML_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def _yaml(text: str, file: str, read_scalar: ReadScalar, on_repeated: OnRepeated | None) -> tuple[Any, Places]:
    import yaml  # type: ignore[import-untyped,unused-ignore]  # here: most programs read no YAML

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _yaml_check(yaml, text, loader, file)
        root = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
        raise ParseError(f"not YAML: {error.problem or error.context}", file=file, line=line, column=column) from None
    except yaml.YAMLError as error:
        raise ParseError(f"not YAML: {error}", file=file, line=1, column=1) from None
    reader = _YamlReader(yaml, file, read_scalar, on_repeated)
    return (None if root is None else reader.value(root, ())), reader.places


def _yaml_check(yaml: Any, text: str, loader: Any, file: str) -> None:
    """Check depth, aliases and tags before anything recurses into the document."""
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        mark = event.start_mark
        wrong = None
        if isinstance(event, yaml.AliasEvent):
            wrong = "aliases are not read"
        elif getattr(event, "tag", None) not in (None, "!"):
            wrong = f"tag {event.tag} is not read"
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEPTH_MAX:
            wrong = "nested too deeply"
        if wrong:
            raise ParseError(wrong, file=file, line=mark.line + 1, column=mark.column + 1)


class _YamlReader:
    """Plain data of composed YAML."""

    def __init__(self, yaml: Any, file: str, read_scalar: ReadScalar, on_repeated: OnRepeated | None) -> None:
        self._yaml = yaml
        self._file = file
        self._read_scalar = read_scalar
        self._on_repeated = on_repeated
        self.places: Places = {}

    def value(self, node: Any, path: Path) -> Any:
        line, column = node.start_mark.line + 1, node.start_mark.column + 1
        self.places.setdefault(path, (line, column))
        if isinstance(node, self._yaml.SequenceNode):
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, self._yaml.MappingNode):
            return self._mapping(node, path)
        return self._read_scalar(path, ScalarText(str(node.value), node.style or "", line, column))

    def _mapping(self, node: Any, path: Path) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line, column = key_node.start_mark.line + 1, key_node.start_mark.column + 1
            if not isinstance(key_node, self._yaml.ScalarNode):
                raise ParseError("a key is a text", file=self._file, line=line, column=column)
            key = str(key_node.value)
            if key not in mapping:
                self.places[(*path, key)] = (line, column)
                mapping[key] = self.value(value_node, (*path, key))
            elif self._on_repeated is not None:
                self._on_repeated((*path, key), line, column)
            else:
                raise ParseError(f"key {key!r} is written twice", file=self._file, line=line, column=column)
        return mapping


def _core_scalar(_: Path, scalar: ScalarText) -> Any:
    """Return a scalar by YAML 1.2's core schema: quoted text is text, and so is every word but null, true and false."""
    text = scalar.text
    if scalar.style:
        return text
    if text in _YAML_WORDS:
        return _YAML_WORDS[text]
    if _YAML_INT.match(text):
        return int(text)
    return float(text) if _YAML_FLOAT.match(text) else text


# Splits a Markdown file into the YAML between `---` lines at its head and the text below.

HEAD_CHARS_MAX: Final = 16 * 1024  # bounds the time that reading the YAML takes
_FENCE: Final = "---"


class FrontMatter(NamedTuple):
    """The keys with their places, the text below them, and the line where that begins."""

    keys: dict[str, Any]
    places: Places
    body: str
    body_line: int


def read_front_matter(data: bytes, file: str) -> FrontMatter:
    """Return the parts of a file; ParseError or ConfigError where it is not such a file."""
    text = text_of(data, file).replace("\r\n", "\n")
    lines = text.split("\n")
    if lines[0].rstrip() != _FENCE:
        return FrontMatter({}, {}, text, 1)
    end = next((index for index, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE), None)
    if end is None:
        raise ParseError("the front matter has no end: a line with --- is missing", file=file, line=1, column=1)
    head = "\n".join(lines[1:end])
    if len(head) > HEAD_CHARS_MAX:
        raise ParseError(f"the front matter has more than {HEAD_CHARS_MAX} characters", file=file, line=1, column=1)
    keys, places = parse(f"\n{head}\n", "yaml", file)  # the first line end represents the `---`: lines count from there
    if keys is None:
        keys = {}
    if not isinstance(keys, dict):
        raise ParseError("the front matter is a mapping of keys", file=file, line=2, column=1)
    return FrontMatter(keys, places, "\n".join(lines[end + 1 :]), end + 2)
