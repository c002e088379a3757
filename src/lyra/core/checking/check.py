"""Checks for values that users write, with the same error messages everywhere.

Owns the small checks that every declaration needs (is this a whole number, is this key known, did you mean
another word) and `FrozenSettings`, the base class of Retry, RateLimit and similar declarations, which turns a mapping
into a value and back. A mistake is a `ConfigError` that names the key. Never reads a file and never
guesses: the result is the value as written, or an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, NamedTuple, Self

import msgspec

from lyra.core.checking.document import Path, Places, place_of
from lyra.core.limits import NAME_LENGTH_MAX
from lyra.errors import CheckError, ConfigError, ParseError

_WORD_MAX: Final = 100  # a longer word gets no suggestion


def is_nested_deeper(value: Any, most: int) -> bool:
    """Return whether lists and mappings lie more than `most` levels inside one another. Counted without recursion: how
    deep Python itself recurses differs by version. A value that contains itself is deeper than any number."""
    level = [value] if isinstance(value, (Mapping, list, tuple)) else []
    for _ in range(most):
        inner = {
            id(item): item
            for holder in level
            for item in (holder.values() if isinstance(holder, Mapping) else holder)
            if isinstance(item, (Mapping, list, tuple))
        }
        if not inner:
            return False
        level = list(inner.values())
    return True


def distance(left: str, right: str, limit: int = 2) -> int:
    """Edits (insert, delete, replace, swap neighbours) between two words; `limit + 1` if there are more."""
    if abs(len(left) - len(right)) > limit:
        return limit + 1
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, char in enumerate(left, 1):
        before, previous, row = row, before, [i]
        for j, other in enumerate(right, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (char != other))
            if i > 1 and j > 1 and char == right[j - 2] and left[i - 2] == other:
                cost = min(cost, previous[j - 2] + 1)
            row.append(cost)
        if min(row) > limit:  # a swap costs one and uses the row before last, so it cannot get below the limit either
            return limit + 1
    return min(row[-1], limit + 1)


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return the known word nearest to `word`, when it is near enough to be a typing mistake."""
    if len(word) > _WORD_MAX:  # comparing takes time in proportion to the square of the length
        return None
    limit = 1 if len(word) <= 4 else 2
    best = min(((distance(word, other, limit), other) for other in known), default=(limit + 1, ""))
    return best[1] if best[0] <= limit else None


def check_keys(value: Mapping[Any, Any], known: Iterable[str], what: str) -> None:
    """Raise ConfigError for the first key that is not known."""
    if not value:
        return
    known = tuple(known)
    for key in value:
        if key not in known:
            near = did_you_mean(str(key), known)
            hint = f"did you mean {near!r}?" if near else f"known keys: {', '.join(known)}"
            raise ConfigError(f"{what} has no setting {str(key)!r}", hint=hint, key=str(key))


def one_of(value: Any, words: Iterable[str], what: str) -> str:
    words = tuple(words)
    if isinstance(value, str) and value in words:
        return value
    near = did_you_mean(value, words) if isinstance(value, str) else None
    hint = f"did you mean {near!r}?" if near else None
    raise ConfigError(f"{what} is one of {', '.join(words)}, not {value!r}", hint=hint, key=what)


def check_integer(value: Any, what: str, *, least: int = 0, most: int = 2**63 - 1) -> int:
    if type(value) is not int and (isinstance(value, bool) or not isinstance(value, int)):
        raise ConfigError(f"{what} is a whole number, not {value!r}", key=what)
    if not least <= value <= most:
        raise ConfigError(f"{what} is between {least} and {most}, not {value}", key=what)
    return int(value)


def short_text(value: Any, what: str, *, most: int) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{what} is text, not {value!r}", key=what)
    if len(value) > most:
        raise ConfigError(f"{what} has at most {most} characters, not {len(value)}", key=what)
    return value if type(value) is str else str.__str__(value)


def printable(value: Any, what: str, *, key: str) -> str:
    """Return a name: text of a limited length that can be shown on one line."""
    if not isinstance(value, str) or not 0 < len(value) <= NAME_LENGTH_MAX or not value.isprintable():
        raise ConfigError(f"{what} is 1 to {NAME_LENGTH_MAX} printable characters, not {value!r}", key=key)
    return value


def real(value: Any, what: str, *, least: float = 0.0, most: float = 1e12, above: float | None = None) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"{what} is a number, not {value!r}", key=what)
    if not math.isfinite(value) or not least <= value <= most:
        raise ConfigError(f"{what} is between {least:g} and {most:g}, not {value}", key=what)
    if above is not None and value <= above:
        raise ConfigError(f"{what} is more than {above:g}, not {value}", key=what)
    return float(value)


class FrozenSettings(msgspec.Struct, frozen=True):
    """A frozen value made of plain settings; subclasses check themselves in `__post_init__`."""

    CALLBACKS: ClassVar[tuple[str, ...]] = ()  # fields that are functions: they compare, but are not saved
    WORD: ClassVar[str] = "declaration"  # its name in error messages

    @classmethod
    def from_data(cls, data: Any) -> Self:
        if not isinstance(data, Mapping):
            raise ConfigError(f"{cls.WORD} is a mapping of settings, not {data!r}")
        check_keys(data, cls.__struct_fields__, cls.WORD)
        return cls(**data)

    def to_data(self) -> dict[str, Any]:
        """Plain data that `from_data` reads back, without the callbacks."""
        data: dict[str, Any] = {}
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name in self.CALLBACKS or value is None:
                continue
            if isinstance(value, FrozenSettings):
                value = value.to_data()
            data[name] = list(value) if isinstance(value, tuple) else value
        return data

    def _put(self, **values: Any) -> None:
        """Store a checked value during `__post_init__`; afterwards the value is frozen."""
        for name, value in values.items():
            msgspec.structs.force_setattr(self, name, value)


def sendable_text(value: Any, what: str) -> str:
    """Return the value as text that a journal row can hold; of a subclass of str, such as an agent's Reply, its
    text."""
    if type(value) is str and value.isascii():
        return value
    if not isinstance(value, str):
        raise ConfigError(f"{what} is text, not {value!r}")
    text = value if type(value) is str else str.__str__(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{what} holds half a surrogate pair", hint="decode it with errors='replace'") from None
    return text


# The mistakes of one file: gathered with their places, so that a person sees all of them at once.


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
    def from_error(cls, error: ParseError) -> Mistake:
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
        """Return a mapping; a key that is not known is a mistake."""
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
