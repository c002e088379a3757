"""Readers for one setting: from the text or TOML value in a source to the value that Lyra uses.

`READERS` has one function for each type in `keys`. A file gives TOML's values, a variable or a flag gives text; both
become the same value, or a `ConfigError` that says what was expected, without the value itself where it may be a
secret. `SettingOrigin` says where a value comes from.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from lyra.config.files import folder, is_inside
from lyra.config.keys import SettingKey
from lyra.core.address import Address
from lyra.core.budgets.money import Money
from lyra.core.checking.check import check_integer, one_of, real
from lyra.core.rights.capability import Grant
from lyra.core.secrets.secret import Secret, is_reference, mask_url
from lyra.errors import ConfigError

_SQLITE: Final = "sqlite://"

Kind = Literal["default", "user", "project", "env", "flag", "managed"]


class SettingSource(NamedTuple):
    """Context for a reader: the kind of source, the folder where relative paths start, and the environment."""

    kind: Kind
    base: str
    env: Mapping[str, str]


def _read_store(key: SettingKey, value: Any, source: SettingSource) -> Secret:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ConfigError(f"{key.name} is a path or a URL, not {shape(value)}", hint="such as '.lyra/lyra.db'")
    if is_reference(value):
        if source.kind == "project":
            raise ConfigError(
                f"a project's file may not read the environment: {key.name} = {value!r}",
                hint=f"put it in your own file, or set {key.variable}",
            )
        return Secret.parse(value, env=source.env)
    if source.kind == "project" and "://" in value.removeprefix(_SQLITE):
        # Trusting a repository must not be enough to send the user's journal to its author.
        raise ConfigError(
            f"a project's file may not send the journal to a server: {key.name} = {mask_url(value)!r}",
            hint=f"put it in your own file, or set {key.variable}",
        )
    if value == "memory" or ("://" in value and source.kind != "project"):
        return Secret(value, label=mask_url(value))
    path = _expand(value.removeprefix(_SQLITE), source)
    if source.kind == "project":
        _check_inside(key, value, path, source)
    return Secret(path, label=mask_url(path))


def _read_results(key: SettingKey, value: Any, source: SettingSource) -> Secret:
    if not isinstance(value, str) or not (value == "memory" or value.startswith("redis://") or is_reference(value)):
        raise ConfigError(
            f"{key.name} is `memory` or an address of Redis, not {shape(value)}",
            hint="such as 'redis://localhost:6379/0'",
        )
    if source.kind == "project" and value != "memory":
        # Results come back from there: a repository must not choose who gives them.
        raise ConfigError(
            f"a project's file may not name a server for results: {key.name}",
            hint=f"put it in your own file, or set {key.variable}",
        )
    return Secret.parse(value, env=source.env, label=mask_url(value))


def _check_inside(key: SettingKey, value: str, path: str, source: SettingSource) -> None:
    """Refuse a place outside the project: a repository must not have something written elsewhere."""
    if not is_inside(path, source.base):
        raise ConfigError(
            f"a project's file may name a place in its own folder alone: {key.name} = {value!r}",
            hint=f"put it in your own file, or set {key.variable}",
        )


def _expand(path: str, source: SettingSource) -> str:
    """Expand `~/…` with HOME, and a relative path with the source's folder unless that is the working folder."""
    home = source.env.get("HOME")
    if path.startswith("~/") and home:
        return os.path.join(home, path[2:])
    return path if os.path.isabs(path) or source.base == folder(None) else os.path.join(source.base, path)


def _read_file(key: SettingKey, value: Any, source: SettingSource) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ConfigError(f"{key.name} is a path, not {shape(value)}", hint="such as '.lyra/audit/'")
    path = _expand(value, source)
    if source.kind == "project":
        _check_inside(key, value, path, source)
    return path


def _read_word(key: SettingKey, value: Any, _source: SettingSource) -> str:
    return one_of(value, key.words, key.name)


def _read_model(key: SettingKey, value: Any, source: SettingSource) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{key.name} is the name of a model, not {shape(value)}", hint="write PROVIDER/MODEL")
    if source.kind == "project" and value.strip().startswith("sim/"):
        # A simulated model answers with its author's script: cloning a repository must not be enough to use it.
        raise ConfigError(
            f"a project's file may not choose a simulated model: {key.name} = {value!r}",
            hint=f"name it with --model, or set {key.variable}",
        )
    return value.strip()


def _read_seconds(key: SettingKey, value: Any, source: SettingSource) -> float:
    number = number_of(value, float) if source.kind in ("env", "flag") else to_number(value)
    return real(number, key.name, least=key.least, most=key.most)


def _read_count(key: SettingKey, value: Any, source: SettingSource) -> int:
    number = number_of(value, int) if source.kind in ("env", "flag") else to_number(value)
    return check_integer(number, key.name, least=int(key.least), most=int(key.most))


def _read_money(key: SettingKey, value: Any, _source: SettingSource) -> Money:
    """Dollars, as the key's name says: 5, 0.5 and "$0.50" (a bare int is micro-dollars only in the SDK)."""
    if isinstance(value, (list, dict, bool)):
        raise ConfigError(f"{key.name} is an amount of money, not {shape(value)}", hint="write '$0.50'")
    try:
        return Money.parse(str(value) if isinstance(value, int) else value)
    except ConfigError as mistake:
        raise ConfigError(mistake.message, hint="write '$0.50' or 0.5, in dollars") from None


def _read_rules(key: SettingKey, value: Any, source: SettingSource) -> tuple[str, ...]:
    if isinstance(value, str) and source.kind in ("env", "flag"):
        value = _split_list(value)
    if not isinstance(value, (list, tuple)) or not all(isinstance(rule, str) for rule in value):
        raise ConfigError(
            f"{key.name} is a list of capabilities, not {shape(value)}",
            hint='such as ["fs.read:/project/**"]',
        )
    Grant(**{key.field: value})  # says what is wrong with a rule
    return tuple(value)


def _read_flag(key: SettingKey, value: Any, source: SettingSource) -> bool:
    if source.kind in ("env", "flag") and value in _FLAGS:
        return _FLAGS[value]
    if not isinstance(value, bool):
        raise ConfigError(f"{key.name} is true or false, not {shape(value)}", hint="write true or false")
    return value


def _read_address(key: SettingKey, value: Any, _source: SettingSource) -> str:
    try:
        return str(Address.parse(value))
    except ConfigError as mistake:
        raise ConfigError(f"{key.name}: {mistake.message}", hint=mistake.hint) from None


def _read_hosts(key: SettingKey, value: Any, source: SettingSource) -> tuple[str, ...]:
    if isinstance(value, str) and source.kind in ("env", "flag"):
        value = _split_list(value)
    if not isinstance(value, (list, tuple)) or not all(isinstance(host, str) and _is_host(host) for host in value):
        raise ConfigError(
            f"{key.name} is a list of host names, not {shape(value)}", hint='such as ["lyra.example.org"], no ports'
        )
    return tuple(host.lower() for host in value)


def _read_folders(key: SettingKey, value: Any, source: SettingSource) -> tuple[str, ...]:
    if isinstance(value, str) and source.kind in ("env", "flag"):
        value = _split_list(value)
    if not isinstance(value, (list, tuple)) or not all(isinstance(path, str) and path.strip() for path in value):
        raise ConfigError(f"{key.name} is a list of folders, not {shape(value)}", hint='such as ["~/datasets"]')
    return tuple(os.path.normpath(os.path.join(source.base, os.path.expanduser(path))) for path in value)


def _is_host(text: str) -> bool:
    return 0 < len(text) <= 253 and all(letter.isalnum() or letter in ".-:" for letter in text)


def _read_engine(key: SettingKey, value: Any, source: SettingSource) -> str:
    _check_own(key, source)
    is_address = isinstance(value, str) and value.startswith(("https://", "http://")) and value.isprintable()
    if not is_address or " " in value or "{query}" not in value.partition("?")[2]:
        hint = "such as 'https://searx.example.org/search?q={query}&format=json'"
        raise ConfigError(f"{key.name} is an address with {{query}} behind its '?', not {shape(value)}", hint=hint)
    return str(value)


def _read_secret(key: SettingKey, value: Any, source: SettingSource) -> Secret:
    _check_own(key, source)
    if not isinstance(value, str) or not is_reference(value):
        raise ConfigError(f"{key.name} is env:NAME, not {shape(value)}", hint="a key stays out of files")
    return Secret.parse(value, env=source.env)


def _read_database(key: SettingKey, value: Any, source: SettingSource) -> Secret:
    _check_own(key, source)
    if isinstance(value, str) and is_reference(value):
        return Secret.parse(value, env=source.env)
    if not isinstance(value, str) or not value.startswith(("postgresql://", "postgres://")):
        told = mask_url(value) if isinstance(value, str) and value else shape(value)
        raise ConfigError(
            f"{key.name} is a URL of PostgreSQL, not {told}", hint="such as postgresql://user@db.example.com/lyra"
        )
    return Secret(value, label=mask_url(value))


def _read_name(key: SettingKey, value: Any, _source: SettingSource) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{key.name} is a name, not {shape(value)}", hint="such as host-1")
    return value.strip()


def _check_own(key: SettingKey, source: SettingSource) -> None:
    if source.kind == "project":
        raise ConfigError(
            f"a project's file may not set {key.name}", hint=f"put it in your own file, or set {key.variable}"
        )


_FLAGS: Final = {"true": True, "false": False}

READERS: Final[dict[str, Callable[[SettingKey, Any, SettingSource], Any]]] = {
    "store": _read_store,
    "word": _read_word,
    "seconds": _read_seconds,
    "count": _read_count,
    "money": _read_money,
    "rules": _read_rules,
    "model": _read_model,
    "file": _read_file,
    "results": _read_results,
    "flag": _read_flag,
    "address": _read_address,
    "hosts": _read_hosts,
    "engine": _read_engine,
    "secret": _read_secret,
    "folders": _read_folders,
    "database": _read_database,
    "name": _read_name,
}


def number_of(text: str, number: Callable[[str], Any]) -> Any:
    """Return the number in a variable or flag, or the text itself where it is no number, for the check to refuse."""
    try:
        return number(text)
    except ValueError:
        return text


def to_number(value: Any) -> Any:
    """Return the value with a Decimal as a float: decimals in files are read exactly, for money; other readers want
    floats."""
    return float(value) if type(value).__name__ == "Decimal" else value


def _split_list(text: str) -> Any:
    """Return a JSON list, or words between commas."""
    if not text.lstrip().startswith("["):
        return [word.strip() for word in text.split(",") if word.strip()]
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def shape(value: Any) -> str:
    """Return the type of a value in words; never its text, which may be a secret."""
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


class SettingOrigin(NamedTuple):
    """Which source a value comes from, and where in it (None for a default)."""

    kind: Kind
    place: str | None = None
