"""Settings of MCP servers: readers for the columns of `[mcp.servers.NAME]`, and the check of a whole entry.

The same readers serve `.mcp.json`, whose keys are these under their usual names. A value that may be a secret is never
quoted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from lyra.config.tables import AUTH_KINDS, TRANSPORTS, UNSPOKEN, Column
from lyra.config.values import SettingSource, number_of, plain_number, shape
from lyra.core.checking.check import known_keys, one_of, real, whole
from lyra.core.secrets.secret import Secret
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
    from lyra.core.rights.capability import Capability

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
    number = number_of(value, float) if source.kind in ("env", "flag") else plain_number(value)
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
    known_keys(value, _AUTH, name)
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
        settings["callback_port"] = whole(value["callback_port"], f"{name}.callback_port", least=1, most=65_535)
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
