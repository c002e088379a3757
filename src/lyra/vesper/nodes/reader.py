"""Plain values out of a document, with a remark for each that is not of the expected form.

`SectionReader` has a method for each form (a text, a number, a list of texts, a mapping); each takes a value and its
path and gives the value or a default. `section` reads a mapping by a table of keys, and remarks on keys that are in no
table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from difflib import get_close_matches
from typing import Any

from lyra.core.checking.document import Path
from lyra.vesper.loading import ERROR, WARNING, Issues, NodeDocument

Form = Callable[[Any, Path], Any]


def close_to(word: str, words: Collection[str], *, cutoff: float = 0.6) -> str:
    """Return a hint with the nearest of some words, or nothing; `cutoff` is how alike they have to be, from 0 to 1."""
    close = get_close_matches(word, sorted(words), n=1, cutoff=cutoff)
    return f"did you mean `{close[0]}`?" if close else ""


class SectionReader:
    """Reads the parts of one document."""

    def __init__(self, document: NodeDocument) -> None:
        self.document = document
        self.issues = Issues()

    # ------------------------------------------------------------ remarks
    def error(self, code: str, message: str, path: Path, *, hint: str = "", value: bool = False) -> None:
        """Add an error at a part's key, or at its value."""
        place = self.document.value_place(path) if value else self.document.place(path)
        self.issues.add(ERROR, code, message, path=path, place=place, hint=hint)

    def warn(self, code: str, message: str, path: Path, *, hint: str = "") -> None:
        self.issues.add(WARNING, code, message, path=path, place=self.document.place(path), hint=hint)

    def wrong(self, what: str, value: Any, path: Path) -> None:
        words = [part for part in path if isinstance(part, str)] or ["the file"]
        name = f"an item of `{words[-1]}`" if path and isinstance(path[-1], int) else f"`{words[-1]}`"
        self.error("wrong_form", f"{name} must be {what}, not {_describe_value(value)}", path, value=True)

    # ------------------------------------------------------------ forms
    def text(self, value: Any, path: Path) -> str:
        """Return a text; numbers and words are taken as they are written."""
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, (int, Decimal)):
            return str(value)
        if value is not None:
            self.wrong("a text", value, path)
        return ""

    def flag(self, value: Any, path: Path) -> bool:
        if not isinstance(value, bool):
            self.wrong("true or false", value, path)
        return value is True

    def integer(self, value: Any, path: Path) -> int | None:
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        self.wrong("a whole number, 0 or more", value, path)
        return None

    def number(self, value: Any, path: Path) -> int | Decimal | None:
        if isinstance(value, (int, Decimal)) and not isinstance(value, bool) and value >= 0:
            return value
        self.wrong("a number, 0 or more", value, path)
        return None

    def texts(self, value: Any, path: Path) -> tuple[str, ...]:
        """Return a list of texts; a single text is a list of one."""
        if isinstance(value, str):
            return (value,)
        return tuple(self.text(item, (*path, index)) for index, item in enumerate(self.items(value, path)))

    def items(self, value: Any, path: Path) -> list[Any]:
        if isinstance(value, list):
            return value
        if value is not None:
            self.wrong("a list", value, path)
        return []

    def mapping(self, value: Any, path: Path) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        if value is not None:
            self.wrong("a mapping", value, path)
        return {}

    def numbers(self, value: Any, path: Path) -> tuple[int | Decimal, ...]:
        read = (self.number(item, (*path, index)) for index, item in enumerate(self.items(value, path)))
        return tuple(number for number in read if number is not None)

    def choice(self, *words: str) -> Form:
        """Return a text that is one of some words."""

        def read(value: Any, path: Path) -> str:
            text = self.text(value, path)
            if text not in words:
                hint = close_to(text, words)
                self.error("unknown_word", f"`{path[-1]}` is one of {', '.join(words)}", path, hint=hint, value=True)
                return words[0]
            return text

        return read

    # ------------------------------------------------------------ tables
    def section(self, value: Any, path: Path, table: Mapping[str, Form]) -> dict[str, Any]:
        """Return the values of a mapping by a table of keys; keys that are not there are left out."""
        mapping = self.mapping(value, path)
        result: dict[str, Any] = {}
        for key, item in mapping.items():
            form = table.get(key)
            if form is None:
                self.unknown_key(key, (*path, key), table)
            elif item is not None:
                read = form(item, (*path, key))
                if read is not None:
                    result[key] = read
        return result

    def unknown_key(self, key: str, path: Path, known: Collection[str], *, hint: str = "") -> None:
        message = f"`{key}` is not known here and has no effect"
        self.warn("unknown_key", message, path, hint=hint or close_to(key, known))


def _describe_value(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    text = str(value)
    return repr(text if len(text) <= 40 else text[:40] + "…") if isinstance(value, str) else text[:40]
