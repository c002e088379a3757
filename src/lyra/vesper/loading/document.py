"""A `.vsp` file as plain data, with the place of every part and of every character of a text in it.

`read_document` reads YAML by the rules of `lyra.core.checking.document`, with two of its own: a number with a point
or an exponent is a `Decimal` of exactly the digits that are written, and an unquoted date is a text.
`Document.place` is where a part's key or item stands, `Document.place_in` where a character of a text value stands:
expressions inside quotes, folded and block texts are pointed at in the file. Keys are not interpreted here.
"""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path as FilePath
from typing import Any, Final

from lyra.core.checking.document import Path, Places, ScalarText, parse, place_of, text_of
from lyra.errors import ConfigError, ParseError
from lyra.vesper.loading.characters import character_places, line_starts
from lyra.vesper.values.limits import NODE_FILE_BYTES_MAX, NUMBER_DIGITS_MAX, NUMBER_EXPONENT_MAX

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
        """Where a part stands: its key in a mapping, itself in a list; or the nearest part around it."""
        return place_of(path, self.places)

    def value_place(self, path: Path) -> tuple[int, int]:
        """Where a part's value begins, if it is a scalar; else its key."""
        scalar = self._scalars.get(path)
        return (scalar.line, scalar.column) if scalar else self.place(path)

    def place_in(self, path: Path, offset: int) -> tuple[int, int]:
        """Where a character of a text value stands."""
        scalar = self._scalars.get(path)
        if scalar is None:
            return self.place(path)
        places = self._characters.get(path)
        if places is None:
            if self._starts is None:
                self._starts = line_starts(self.text)
            places = self._characters[path] = character_places(self.text, self._starts, scalar)
        return places[max(0, min(offset, len(places) - 1))]


def read_document(text: str, file: str = TEXT_NAME, *, reads_on: bool = False) -> NodeDocument:
    """The document of a text; ParseError with the place of the first mistake. With `reads_on`, a key that is written
    twice is no such mistake: it has its first value, and is in `repeated`."""
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
    """The text and the name of a source: a path, or a text, which has a line break."""
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
