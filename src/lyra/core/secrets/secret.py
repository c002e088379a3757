"""A value that is used but never shown.

A `Secret` prints as its label (`***` unless a safer text to show is known) in `str`, `repr`, `format` and
JSON; `reveal()` is the only way to the value. `env:NAME` is a reference: `reveal()` looks the variable
up, not the parser, so that a configuration can be shown on a machine where the variable is not
set. A Secret compares by identity (a guess in a log or a failing assertion says nothing about it), is never
pickled, and a copy of it is itself. It is a guard against accidents, not against code in the same
interpreter.

`mask_url` is what makes a store's URL printable. Read `lyra.config` next, which is where most Secrets come
from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from lyra.errors import ConfigError

MASK: Final = "***"
_REFERENCE: Final = "env:"
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# Greedy up to the last `@`: better to hide too much than half of a password that has an `@` or `/` in it.
_URL_PASSWORD: Final = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://[^:/@?#\s]*):.*@", re.DOTALL)
_PASSWORD_IN_TEXT: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^:/@?#\s]*):\S*@")
_PASSWORD_FIELD: Final = re.compile(r"(?i)\b((?:ssl)?password)(\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]*)", re.DOTALL)


class Secret:
    """A hidden value with a label. `Secret("x")` holds the value; `Secret.parse("env:NAME")` looks it up."""

    __slots__ = ("__label", "__reveal")
    __label: str
    __reveal: Callable[[], str]

    def __init__(self, value: str, *, label: str = MASK) -> None:
        self.__hold(lambda: value, label)

    def __hold(self, reveal: Callable[[], str], label: str) -> None:
        object.__setattr__(self, "_Secret__reveal", reveal)
        object.__setattr__(self, "_Secret__label", label)

    @classmethod
    def parse(cls, text: str, *, env: Mapping[str, str] | None = None, label: str = MASK) -> Secret:
        """Return the Secret for a user's text: `env:NAME` is a reference, any other text the value."""
        if not is_reference(text):
            return cls(text, label=label)
        name = text.removeprefix(_REFERENCE)
        if not _VARIABLE.match(name):
            raise ConfigError(
                # Not quoted: a text that is no variable's name may be the key itself.
                "a text that begins with env: names no environment variable",
                hint="write env:NAME, such as env:DATABASE_URL",
            )
        secret = cls.__new__(cls)
        secret.__hold(lambda: _look_up(name, env), text)
        return secret

    def reveal(self) -> str:
        """Return the value itself; a reference to a variable that is not set is a ConfigError that names it."""
        return self.__reveal()

    def __str__(self) -> str:
        return self.__label

    def __repr__(self) -> str:
        return f"Secret({self.__label})"

    def __format__(self, spec: str) -> str:
        return format(self.__label, spec)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a Secret does not change")

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Secret:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a Secret is never pickled")


def is_reference(text: str) -> bool:
    """True for `env:…`, the only kind of reference."""
    return text.startswith(_REFERENCE)


def mask_url(text: str) -> str:
    """Return a URL, a connection string or a text around them with every password replaced by `***`."""
    masked = _PASSWORD_IN_TEXT.sub(rf"\1:{MASK}@", _URL_PASSWORD.sub(rf"\1:{MASK}@", text))
    return _PASSWORD_FIELD.sub(rf"\1\2{MASK}", masked)


def _look_up(name: str, env: Mapping[str, str] | None) -> str:
    if env is None:
        import os

        env = os.environ
    value = env.get(name)
    if not value:
        raise ConfigError(f"the environment variable {name} is not set", hint=f"export {name}=… before starting Lyra")
    return value
