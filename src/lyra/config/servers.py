"""Readers for one cell of a table: from the text or TOML value in a source to the value that Lyra uses.

`read_cell` is to `tables` what `values.READERS` is to `keys`. The columns of `[mcp.servers.NAME]` have readers of their
own and a check of the whole entry; they also serve `.mcp.json`, whose keys are these under their usual names. No error
quotes a key, a header or an address: each may hold a secret.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from lyra.config.tables import AUTH_KINDS, TABLES, TRANSPORTS, UNSPOKEN, Column, TableCell
from lyra.config.values import SettingSource, number_of, shape, to_number
from lyra.core.checking.check import check_integer, check_keys, one_of, real
from lyra.core.providers import TIMEOUTS, USUAL
from lyra.core.rights.capability import Capability
from lyra.core.secrets.secret import Secret, is_reference
from lyra.errors import ConfigError

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_. -]{0,63}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_AUTH: Final = ("kind", "token_env", "scopes", "client_id", "client_secret_env", "callback_port")
_AUTH_VARIABLES: Final = ("token_env", "client_secret_env")
_OF_CLIENT: Final = ("client_id", "client_secret_env", "callback_port")
_TIMEOUT_S_MAX: Final = 24 * 3600.0
_OF_URL: Final = ("url", "headers", "auth")
_OF_COMMAND: Final = ("command", "args", "cwd", "env", "network", "readable", "writable")


def check_server_name(name: str) -> None:
    """Raise ConfigError for a name that cannot be part of the names of the server's tools."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name[:80]!r} cannot be the name of an MCP server",
            hint="1 to 64 letters, digits, '_', '-', '.' or blanks, a letter or digit first",
        )


def check_server(name: str, entry: Mapping[str, Any]) -> None:
    """Raise ConfigError unless the settings of one server fit together."""
    if ("command" in entry) == ("url" in entry):
        both = "both a command and a url" if "url" in entry else "neither a command nor a url"
        raise ConfigError(f"{name} has {both}", hint="a server is started by a command, or reached at a url")
    kind = "command" if "command" in entry else "url"
    wrong = next((field for field in (_OF_URL if kind == "command" else _OF_COMMAND) if field in entry), None)
    if wrong is not None:
        raise ConfigError(f"{name} has a {kind}, and {wrong} is not for that", hint=f"take out {wrong}")
    transport = entry.get("transport")
    if transport is not None and (transport == "stdio") != (kind == "command"):
        raise ConfigError(f"{name} has a {kind}, which is not the transport {transport}", hint="take out transport")
    auth = entry.get("auth", {})
    if auth.get("kind") == "bearer" and "token_env" not in auth:
        raise ConfigError(f"{name} wants a bearer token, and names none", hint="set auth.token_env to its variable")
    wrong = next((field for field in _OF_CLIENT if field in auth and auth.get("kind") != "oauth"), None)
    if wrong is not None:
        raise ConfigError(f"{name} has auth.{wrong} and no login", hint='set auth.kind to "oauth"')
    if "client_secret_env" in auth and "client_id" not in auth:
        raise ConfigError(f"{name} has the secret of a client, and no client", hint="set auth.client_id")


# ---------------------------------------------------------------- one reader a type
def _texts(_column: Column, value: Any, name: str, _source: SettingSource) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(text, str) and "\0" not in text for text in value):
        raise ConfigError(f"{name} is a list of texts, not {shape(value)}", hint='such as ["a", "b"]')
    return tuple(value)


def _hosts(column: Column, value: Any, name: str, source: SettingSource) -> tuple[str, ...]:
    hosts = _texts(column, value, name, source)
    for host in hosts:
        Capability.of(f"net.http:{host}")  # says what is wrong with it
    return hosts


def _paths(column: Column, value: Any, name: str, source: SettingSource) -> tuple[str, ...]:
    """Absolute paths: `~` is the home folder, and a relative path starts at the project's folder."""
    home = source.env.get("HOME", "")
    paths = []
    for path in _texts(column, value, name, source):
        if not path:
            raise ConfigError(f"{name} holds an empty path")
        whole = os.path.join(home, path[2:]) if path.startswith("~/") and home else path
        paths.append(os.path.normpath(os.path.join(source.base, whole)))
    return tuple(paths)


def _environment(_column: Column, value: Any, name: str, source: SettingSource) -> dict[str, Secret]:
    if not isinstance(value, Mapping) or not all(isinstance(text, str) for text in value.values()):
        raise ConfigError(f"{name} is a table of names and texts, not {shape(value)}", hint='such as {NAME = "env:X"}')
    for key, text in value.items():
        if not _VARIABLE.fullmatch(key) or "\0" in text:
            raise ConfigError(f"{name} has a name that no variable can have: {key[:80]!r}")
    return {key: Secret.parse(text, env=source.env) for key, text in value.items()}


def _seconds(_column: Column, value: Any, name: str, source: SettingSource) -> float:
    number = number_of(value, float) if source.kind in ("env", "flag") else to_number(value)
    return real(number, name, above=0.0, most=_TIMEOUT_S_MAX)


def _transport(_column: Column, value: Any, name: str, _source: SettingSource) -> str:
    if value in UNSPOKEN:
        raise ConfigError(
            f"{name} is {value}, which Lyra does not speak: it is one of {', '.join(TRANSPORTS)}",
            hint="give the server's address for streamable HTTP as url",
            key=name,
        )
    return one_of(value, TRANSPORTS, name)


def _auth(column: Column, value: Any, name: str, source: SettingSource) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name} is a table, not {shape(value)}", hint='such as {kind = "oauth"}')
    check_keys(value, _AUTH, name)
    settings: dict[str, Any] = {"kind": one_of(value.get("kind", "none"), AUTH_KINDS, f"{name}.kind")}
    for key in (key for key in _AUTH_VARIABLES if key in value):
        variable = value[key]
        if not isinstance(variable, str) or not _VARIABLE.fullmatch(variable):
            # Not quoted: a value that is no variable's name may be the token itself.
            raise ConfigError(f"{name}.{key} is the name of a variable", hint="such as GITHUB_TOKEN")
        settings[key] = variable
    if "client_id" in value:
        (settings["client_id"],) = _texts(column, [value["client_id"]], f"{name}.client_id", source)
    if "callback_port" in value:
        settings["callback_port"] = check_integer(value["callback_port"], f"{name}.callback_port", least=1, most=65_535)
    if "scopes" in value:
        settings["scopes"] = _texts(column, value["scopes"], f"{name}.scopes", source)
    return settings


SERVER_READERS: Final[dict[str, Callable[[Column, Any, str, SettingSource], Any]]] = {
    "texts": _texts,
    "hosts": _hosts,
    "paths": _paths,
    "environment": _environment,
    "seconds": _seconds,
    "transport": _transport,
    "auth": _auth,
}


# ---------------------------------------------------------------- cells

_NAME_LENGTH_MAX: Final = 200
_AS_JSON: Final = ("timeouts", "headers", "flag", "texts", "hosts", "paths", "environment", "auth", "commands")
_USD_MAX: Final = 1_000_000  # for a million tokens
_COUNT_MAX: Final = 10**12
_COMMANDS_MAX: Final = 20
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_REGION: Final = re.compile(r"[A-Za-z0-9-]+")


def read_cell(cell: TableCell, value: Any, source: SettingSource) -> Any:
    """Return the value of one cell; a ConfigError says what was wanted."""
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
    """Return the address unchanged, checked; a provider with a usual port may leave out the scheme."""
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
    check_keys(value, TIMEOUTS, name)
    return {key: real(to_number(seconds), f"{name}.{key}", above=0.0) for key, seconds in value.items()}


def _headers(_column: Column, value: Any, name: str, source: SettingSource) -> dict[str, Secret]:
    if not isinstance(value, Mapping) or not all(isinstance(text, str) for text in value.values()):
        raise ConfigError(f"{name} is a table of names and texts, not {shape(value)}", hint='such as {x-team = "blue"}')
    for key in value:
        if not _HEADER.fullmatch(key):
            raise ConfigError(f"{name} has a name that no header can have: {key!r}")
    return {key.lower(): Secret.parse(text, env=source.env) for key, text in value.items()}


def _usd(_column: Column, value: Any, name: str, _source: SettingSource) -> Decimal:
    """Return an amount of dollars, with all digits that were written."""
    try:
        text = str(value).strip().removeprefix("$") if isinstance(value, (str, int, Decimal)) else "nan"
        amount = Decimal("nan" if isinstance(value, bool) else text)
    except InvalidOperation:
        amount = Decimal("nan")
    if not amount.is_finite() or not 0 <= amount <= _USD_MAX:
        raise ConfigError(f"{name} is an amount of dollars from 0 to {_USD_MAX}", hint="write 3.0 or '$3.00'")
    return amount


def _count(_column: Column, value: Any, name: str, source: SettingSource) -> int:
    number = number_of(value, int) if source.kind in ("env", "flag") else to_number(value)
    return check_integer(number, name, least=1, most=_COUNT_MAX)


def _commands(column: Column, value: Any, name: str, source: SettingSource) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, (list, tuple)) or not 1 <= len(texts) <= _COMMANDS_MAX:
        raise ConfigError(f"{name} is a command line, or a list of 1 to {_COMMANDS_MAX} of them, not {shape(value)}")
    return tuple(_command(column, text, name, source) for text in texts)


def _command(_column: Column, value: Any, name: str, _source: SettingSource) -> str:
    """Return a command line that can be split into words."""
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
    """Return the JSON value in a variable or flag, or the text itself where it is no JSON, for the reader to refuse."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, TypeError):
        return text
