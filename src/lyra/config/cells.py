"""Readers for one cell of a table: from the text or TOML value in a source to the value that Lyra uses.

`read_cell` is to `tables` what `values.READERS` is to `keys`. No error quotes a key, a header or an address: each may
hold a secret.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from lyra.config.servers import SERVER_READERS, check_server_name
from lyra.config.tables import TABLES, Column, TableCell
from lyra.config.values import SettingSource, number_of, plain_number, shape
from lyra.core.checking.check import known_keys, one_of, real, whole
from lyra.core.providers import TIMEOUTS, USUAL
from lyra.core.secrets.secret import Secret, is_reference
from lyra.errors import ConfigError

_NAME_LENGTH_MAX: Final = 200
_AS_JSON: Final = ("timeouts", "headers", "flag", "texts", "hosts", "paths", "environment", "auth", "commands")
_USD_MAX: Final = 1_000_000  # for a million tokens
_COUNT_MAX: Final = 10**12
_COMMANDS_MAX: Final = 20
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_REGION: Final = re.compile(r"[A-Za-z0-9-]+")


def read_cell(cell: TableCell, value: Any, source: SettingSource) -> Any:
    """The value of one cell; a ConfigError says what was wanted."""
    column = TABLES[cell.section].columns[cell.field]
    if source.kind in ("env", "flag") and column.type in _AS_JSON:
        value = _json(value)
    return _READERS[column.type](column, value, str(cell), source)


def check_name(section: str, name: str) -> None:
    """Raise ConfigError unless an entry of this section may have this name."""
    if not name.strip() or len(name) > _NAME_LENGTH_MAX:
        raise ConfigError(f"a name in [{section}] has 1 to {_NAME_LENGTH_MAX} characters")
    if section == "providers":
        if "/" in name:
            raise ConfigError(f"a provider's name has no '/' in it: {name!r}")
        if name == "sim":
            raise ConfigError("the simulated models have no settings here", hint="give sim/script a script")
    elif section == "mcp.servers":
        check_server_name(name)
    elif section == "diagnostics":
        if "\0" in name or name.startswith("/"):
            raise ConfigError(f"{name!r} is no pattern for files of a project", hint='such as "*.py" or "web/**/*.ts"')
    elif not all(name.partition("/")):
        raise ConfigError(f"{section}.{name} names no model", hint=f'write [{section}."PROVIDER/MODEL"]')


# ---------------------------------------------------------------- one reader a type
def _secret(_column: Column, value: Any, name: str, source: SettingSource) -> Secret:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{name} is text such as env:NAME, not {shape(value)}", hint="write env:NAME")
    return Secret.parse(value.strip(), env=source.env)


def _url(_column: Column, value: Any, name: str, source: SettingSource) -> str:
    """The address unchanged, checked; a provider with a usual port may leave out the scheme."""
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{name} is an address, not {shape(value)}", hint="such as https://HOST/v1")
    text = value.strip()
    if is_reference(text):
        Secret.parse(text, env=source.env)  # says what is wrong with the reference
        return text
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        parts.port  # noqa: B018 (reading it is what checks it)
    except ValueError:
        raise ConfigError(f"{name} is not an address", hint="such as https://HOST/v1") from None
    if parts.username or parts.password:
        raise ConfigError(f"{name} holds a password", hint="use api_key or headers, which are never shown")
    bare = not parts.scheme and any(usual.port and name == f"providers.{key}.base_url" for key, usual in USUAL.items())
    if not parts.hostname or (parts.scheme not in ("http", "https") and not bare):
        raise ConfigError(f"{name} is not an address", hint="such as https://HOST/v1")
    return text


def _text(column: Column, value: Any, name: str, source: SettingSource) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{name} is text, not {shape(value)}")
    text = value.strip()
    if is_reference(text):
        Secret.parse(text, env=source.env)
    elif column.field == "region" and not _REGION.fullmatch(text):
        raise ConfigError(f"{name} is a word such as us-east-1, not {text!r}")
    return text


def _word(column: Column, value: Any, name: str, _source: SettingSource) -> str:
    return one_of(value, column.words, name)


def _flag(_column: Column, value: Any, name: str, _source: SettingSource) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} is true or false, not {shape(value)}")
    return value


def _timeouts(_column: Column, value: Any, name: str, _source: SettingSource) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name} is a table of seconds, not {shape(value)}", hint="such as {first_s = 30}")
    known_keys(value, TIMEOUTS, name)
    return {key: real(plain_number(seconds), f"{name}.{key}", above=0.0) for key, seconds in value.items()}


def _headers(_column: Column, value: Any, name: str, source: SettingSource) -> dict[str, Secret]:
    if not isinstance(value, Mapping) or not all(isinstance(text, str) for text in value.values()):
        raise ConfigError(f"{name} is a table of names and texts, not {shape(value)}", hint='such as {x-team = "blue"}')
    for key in value:
        if not _HEADER.fullmatch(key):
            raise ConfigError(f"{name} has a name that no header can have: {key!r}")
    return {key.lower(): Secret.parse(text, env=source.env) for key, text in value.items()}


def _usd(_column: Column, value: Any, name: str, _source: SettingSource) -> Decimal:
    """An amount of dollars, with all digits that were written."""
    try:
        text = str(value).strip().removeprefix("$") if isinstance(value, (str, int, Decimal)) else "nan"
        amount = Decimal("nan" if isinstance(value, bool) else text)
    except InvalidOperation:
        amount = Decimal("nan")
    if not amount.is_finite() or not 0 <= amount <= _USD_MAX:
        raise ConfigError(f"{name} is an amount of dollars from 0 to {_USD_MAX}", hint="write 3.0 or '$3.00'")
    return amount


def _count(_column: Column, value: Any, name: str, source: SettingSource) -> int:
    number = number_of(value, int) if source.kind in ("env", "flag") else plain_number(value)
    return whole(number, name, least=1, most=_COUNT_MAX)


def _commands(column: Column, value: Any, name: str, source: SettingSource) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, (list, tuple)) or not 1 <= len(texts) <= _COMMANDS_MAX:
        raise ConfigError(f"{name} is a command line, or a list of 1 to {_COMMANDS_MAX} of them, not {shape(value)}")
    return tuple(_command(column, text, name, source) for text in texts)


def _command(_column: Column, value: Any, name: str, _source: SettingSource) -> str:
    """A command line that can be split into words."""
    try:
        words = shlex.split(value) if isinstance(value, str) and "\0" not in value else []
    except ValueError as error:
        raise ConfigError(f"{name} cannot be split into words: {error}", hint="close the quotation marks") from None
    if not words:
        raise ConfigError(f"{name} is a command line, not {shape(value)}", hint='such as "ruff check {file}"')
    return str(value)


_READERS: Final[dict[str, Callable[[Column, Any, str, SettingSource], Any]]] = {
    "secret": _secret,
    "url": _url,
    "text": _text,
    "word": _word,
    "flag": _flag,
    "timeouts": _timeouts,
    "headers": _headers,
    "usd": _usd,
    "count": _count,
    "commands": _commands,
    "command": _command,
    **SERVER_READERS,
}


def _json(text: Any) -> Any:
    """The JSON value in a variable or flag, or the text itself where it is no JSON, for the reader to refuse."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, TypeError):
        return text
