"""What one setting's value means: from what somebody wrote to what the rest of Lyra uses.

`READERS` has one function for each type in `keys`. A file gives TOML's values, a variable or a flag gives text; both
end as the same thing or as a `ConfigError` that says what was wanted, never with the value itself where that may be a
secret.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from lyra.config.files import folder
from lyra.config.keys import Key
from lyra.core.budgets.money import Money
from lyra.core.checking.check import one_of, real, whole
from lyra.core.rights.capability import Grant
from lyra.core.secrets.secret import Secret, is_reference, mask_url
from lyra.errors import ConfigError

__all__ = ["READERS", "Kind", "Source", "number_of", "plain_number", "shape"]

Kind = Literal["default", "user", "project", "env", "flag", "managed"]


class Source(NamedTuple):
    """What a reader may need to know besides the value: whose it is, and where relative paths start."""

    kind: Kind
    base: str
    env: Mapping[str, str]


def _read_store(key: Key, value: Any, source: Source) -> Secret:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ConfigError(f"{key.name} is a path or a URL, not {shape(value)}", hint="such as '.lyra/lyra.db'")
    if is_reference(value):
        if source.kind == "project":
            raise ConfigError(
                f"a project's file may not read the environment: {key.name} = {value!r}",
                hint=f"put it in your own file, or set {key.variable}",
            )
        return Secret.parse(value, env=source.env)
    if source.kind == "project" and "://" in value and not value.startswith("sqlite://"):
        # Cloning a repository must not be enough to send somebody's journal to its author.
        raise ConfigError(
            f"a project's file may not send the journal to a server: {key.name} = {mask_url(value)!r}",
            hint=f"put it in your own file, or set {key.variable}",
        )
    if "://" in value or value == "memory":
        return Secret(value, label=mask_url(value))
    path = _expand(value, source)
    return Secret(path, label=mask_url(path))


def _expand(path: str, source: Source) -> str:
    """`~/…` from HOME; a relative path stays as it is written when that already means the right folder."""
    home = source.env.get("HOME")
    if path.startswith("~/") and home:
        return os.path.join(home, path[2:])
    return path if os.path.isabs(path) or source.base == folder(None) else os.path.join(source.base, path)


def _read_file(key: Key, value: Any, source: Source) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ConfigError(f"{key.name} is a path, not {shape(value)}", hint="such as '.lyra/audit/'")
    path = _expand(value, source)
    if source.kind == "project":
        root = os.path.realpath(source.base)
        if os.path.commonpath((root, os.path.realpath(os.path.join(root, path)))) != root:
            # Cloning a repository must not be enough to have something written elsewhere.
            raise ConfigError(
                f"a project's file may name a place in its own folder alone: {key.name} = {value!r}",
                hint=f"put it in your own file, or set {key.variable}",
            )
    return path


def _read_word(key: Key, value: Any, _source: Source) -> str:
    return one_of(value, key.words, key.name)


def _read_model(key: Key, value: Any, source: Source) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{key.name} is the name of a model, not {shape(value)}", hint="write PROVIDER/MODEL")
    if source.kind == "project" and value.strip().startswith("sim/"):
        # A script is a model that says what its author wrote: cloning a repository must not put it in a model's place.
        raise ConfigError(
            f"a project's file may not choose a simulated model: {key.name} = {value!r}",
            hint=f"name it with --model, or set {key.variable}",
        )
    return value.strip()


def _read_seconds(key: Key, value: Any, source: Source) -> float:
    number = number_of(value, float) if source.kind in ("env", "flag") else plain_number(value)
    return real(number, key.name, least=key.least, most=key.most)


def _read_count(key: Key, value: Any, source: Source) -> int:
    number = number_of(value, int) if source.kind in ("env", "flag") else plain_number(value)
    return whole(number, key.name, least=int(key.least), most=int(key.most))


def _read_money(key: Key, value: Any, _source: Source) -> Money:
    """Dollars, as the key's name says: 5, 0.5 and "$0.50" (a bare int is micro-dollars only in the SDK)."""
    if isinstance(value, (list, dict, bool)):
        raise ConfigError(f"{key.name} is an amount of money, not {shape(value)}", hint="write '$0.50'")
    try:
        return Money.parse(str(value) if isinstance(value, int) else value)
    except ConfigError as mistake:
        raise ConfigError(mistake.message, hint="write '$0.50' or 0.5, in dollars") from None


def _read_rules(key: Key, value: Any, source: Source) -> tuple[str, ...]:
    if isinstance(value, str) and source.kind in ("env", "flag"):
        value = _split_list(value)
    if not isinstance(value, (list, tuple)) or not all(isinstance(rule, str) for rule in value):
        raise ConfigError(
            f"{key.name} is a list of capabilities, not {shape(value)}",
            hint='such as ["fs.read:/project/**"]',
        )
    Grant(**{key.field: value})  # says what is wrong with a rule
    return tuple(value)


READERS: Final[dict[str, Callable[[Key, Any, Source], Any]]] = {
    "store": _read_store,
    "word": _read_word,
    "seconds": _read_seconds,
    "count": _read_count,
    "money": _read_money,
    "rules": _read_rules,
    "model": _read_model,
    "file": _read_file,
}


def number_of(text: str, number: Callable[[str], Any]) -> Any:
    """The number a variable or flag spells, or the text itself for the check to refuse in its own words."""
    try:
        return number(text)
    except ValueError:
        return text


def plain_number(value: Any) -> Any:
    """A file's decimals arrive exact, for money; everything else wants a float."""
    return float(value) if type(value).__name__ == "Decimal" else value


def _split_list(text: str) -> Any:
    """A JSON list, or words between commas."""
    if not text.lstrip().startswith("["):
        return [word.strip() for word in text.split(",") if word.strip()]
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def shape(value: Any) -> str:
    """A value in words; never its text, which may be a secret."""
    names = {
        dict: "a table",
        list: "a list",
        tuple: "a list",
        bool: "true or false",
        int: "a number",
        float: "a number",
    }
    if isinstance(value, str):
        return "this text" if value.strip() else "an empty text"
    return names.get(type(value), f"a {type(value).__name__}")
