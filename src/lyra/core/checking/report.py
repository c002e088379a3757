"""The mistakes of one file: gathered with their places, so that a person sees all of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from lyra.core.checking.check import did_you_mean
from lyra.core.checking.document import Path, Places, place_of
from lyra.errors import CheckError, ParseError


class Mistake(NamedTuple):
    """One mistake and its place; as text `file:line: sentence`."""

    file: str
    line: int
    column: int
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}{f' ({self.hint})' if self.hint else ''}"

    def to_data(self) -> dict[str, Any]:
        return self._asdict()

    def error(self) -> CheckError:
        return CheckError(self.message, file=self.file, line=self.line, column=self.column, hint=self.hint)

    @classmethod
    def of(cls, error: ParseError) -> Mistake:
        return cls(error.fields["file"], error.fields["line"], error.fields["column"], error.message, error.hint)


class Report:
    """Collects the mistakes of a file. Readers add what they find wrong, and return what they could read, or None."""

    def __init__(self, file: str, places: Places) -> None:
        self._file = file
        self._places = places
        self.mistakes: list[Mistake] = []

    def add(self, path: Path, message: str, hint: str | None = None) -> None:
        line, column = place_of(path, self._places)
        self.mistakes.append(Mistake(self._file, line, column, message, hint))

    def mapping(self, value: Any, path: Path, what: str, known: Iterable[str] | None = None) -> dict[str, Any] | None:
        """A mapping; a key that is not known is a mistake."""
        if not isinstance(value, Mapping):
            self.add(path, f"{what} is a mapping of keys, not {_kind(value)}")
            return None
        keys = None if known is None else tuple(known)
        for key in value:
            if keys is not None and key not in keys:
                near = did_you_mean(str(key), keys)
                hint = f"did you mean {near!r}?" if near else f"known: {', '.join(keys)}"
                self.add((*path, key), f"{what} has no key {str(key)!r}", hint)
        return dict(value)

    def text(self, value: Any, path: Path, what: str, *, most: int) -> str | None:
        if not isinstance(value, str) or not value.strip():
            self.add(path, f"{what} is a text, not {_kind(value)}")
        elif len(value) > most:
            self.add(path, f"{what} has at most {most} characters, not {len(value)}")
        else:
            return value
        return None

    def flag(self, value: Any, path: Path, what: str) -> bool:
        if not isinstance(value, bool):
            self.add(path, f"{what} is true or false, not {_kind(value)}")
            return False
        return value

    def word(self, value: Any, path: Path, what: str, words: Iterable[str]) -> str | None:
        known = tuple(words)
        if isinstance(value, str) and value in known:
            return value
        near = did_you_mean(value, known) if isinstance(value, str) else None
        self.add(
            path, f"{what} is one of {', '.join(known)}, not {value!r}", f"did you mean {near!r}?" if near else None
        )
        return None


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return "an empty text" if not value.strip() else f"{value[:40]!r}"
    words = {bool: "true or false", type(None): "nothing", list: "a list", dict: "a mapping"}
    return words.get(type(value), repr(value)[:40])
