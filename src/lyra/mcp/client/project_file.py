"""A project's `.mcp.json`: the servers that other programs read from the same file.

    {"mcpServers": {"files": {"command": "node", "args": ["server.js", "${HOME}/docs"]}}}

Its keys are those of `[mcp.servers.NAME]`; `type` is another word for `transport`, `disabled` the opposite of
`enabled`. `${NAME}` and `${NAME:-default}` stand for variables of the environment, looked up when the server is
started. It comes with a repository, so nothing in it happens without consent.

Other programs have keys of their own: those are passed over and told of (`ignored`). That a file says which tools need
no question is passed over too, whatever it calls it. An entry that makes no sense is a server that says so (`broken`);
the others are there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from lyra.config.cells import read_cell
from lyra.config.files import read_bytes
from lyra.config.servers import check_server_name
from lyra.config.tables import TABLES, TableCell
from lyra.config.values import SettingSource, shape
from lyra.core.checking.document import Places, parse, place_of, text_of
from lyra.core.secrets.secret import is_reference
from lyra.core.secrets.visible import visible
from lyra.errors import ConfigError
from lyra.mcp.settings import ServerSettings, Value, settings_of

__all__ = ["FILE_NAME", "passed_over", "read_file"]

FILE_NAME: Final = ".mcp.json"
_ROOT: Final = "mcpServers"
_TRANSPORTS: Final = {"streamable-http": "http", "streamableHttp": "http", "streamable_http": "http", "ws": "websocket"}
_KNOWN: Final = TABLES["mcp.servers"].columns
_UNASKED: Final = re.compile(r"(?i)approve|allow|trust|permission")  # how others call it that nobody is asked
_NAME_CHARS: Final = 64
_TOLD_MAX: Final = 20  # keys that one warning names
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def read_file(folder: str, env: Mapping[str, str]) -> list[ServerSettings]:
    """The servers that the folder's `.mcp.json` names; none without such a file."""
    data = read_bytes(os.path.join(folder, FILE_NAME), FILE_NAME)
    if data is None:
        return []
    document, places = parse(text_of(data, FILE_NAME), "json", FILE_NAME)
    return _File(os.path.abspath(folder), env, places).servers(document)


class _File:
    def __init__(self, folder: str, env: Mapping[str, str], places: Places) -> None:
        self._source = SettingSource("project", folder, env)
        self._env = env
        self._places = places

    def servers(self, document: Any) -> list[ServerSettings]:
        table = document.get(_ROOT) if isinstance(document, dict) else None
        if not isinstance(table, dict):
            raise ConfigError(f"{FILE_NAME} has no {_ROOT}", hint=f'such as {{"{_ROOT}": {{…}}}}', place=FILE_NAME)
        found = [self._server(name, entry) for name, entry in table.items()]
        others = tuple(key for key in document if key != _ROOT)
        if found and others:  # said once, by the first
            found[0] = replace(found[0], ignored=(*others, *found[0].ignored))
        return found

    def _server(self, name: str, entry: Any) -> ServerSettings:
        """The server of one entry; where the entry cannot be used, one that says why and is never started."""
        path = (_ROOT, name)
        try:
            if not isinstance(entry, dict):
                raise self._mistake(path, f"{name} is a table of settings, not {shape(entry)}")
            check_server_name(name)
            found = settings_of(name, self._cells(name, entry), origin=FILE_NAME, place=self._place(path))
        except ConfigError as error:
            said = f"{error.place or self._place(path)}: {error.message}"
            return ServerSettings(
                name=_shown(name),
                origin=FILE_NAME,
                place=self._place(path),
                broken=f"{said}: {error.hint}" if error.hint else said,
                ignored=_others(name, entry),
                enabled=not (isinstance(entry, dict) and entry.get("disabled") is True),
            )
        return replace(
            found,
            fill=self._fill,
            env=self._filled(found.env),
            headers=self._filled(found.headers),
            ignored=_others(name, entry),
        )

    def _cells(self, name: str, entry: dict[str, Any]) -> dict[str, Any]:
        cells: dict[str, Any] = {}
        for key, value in _usual(entry).items():
            where = (_ROOT, name, key)
            if key not in _KNOWN:
                continue
            try:
                cells[key] = self._cell(TableCell("mcp.servers", name, key), value)
            except ConfigError as error:
                raise self._mistake(where, error.message, error.hint) from None
        return cells

    def _cell(self, cell: TableCell, value: Any) -> Any:
        if cell.field == "url" and isinstance(value, str) and _VARIABLE.search(value):
            return value  # an address once it is filled in; what it then is, the client says
        return read_cell(cell, value, self._source)

    def _filled(self, values: Mapping[str, Value]) -> dict[str, Value]:
        return {name: Value(value.written, self._reveal(value)) for name, value in values.items()}

    def _reveal(self, value: Value) -> Callable[[], str]:
        """What is looked up is not read for variables once more."""
        return value.reveal if is_reference(value.written) else partial(self._fill, value.written)

    def _fill(self, text: str) -> str:
        return _VARIABLE.sub(self._variable, text)

    def _variable(self, found: re.Match[str]) -> str:
        value = self._env.get(found[1])
        if value:
            return value
        if found[2] is None:
            raise ConfigError(f"the environment variable {found[1]} is not set", hint=f"export {found[1]}=…")
        return found[2]

    def _place(self, path: tuple[str, ...]) -> str:
        return f"{FILE_NAME}:{place_of(path, self._places)[0]}"

    def _mistake(self, path: tuple[str, ...], message: str, hint: str | None = None) -> ConfigError:
        return ConfigError(message, hint=hint, place=self._place(path), key=".".join(path))


def _usual(entry: dict[str, Any]) -> dict[str, Any]:
    """The same in our own words."""
    made = {key: value for key, value in entry.items() if key not in ("type", "disabled")}
    if "type" in entry:
        made["transport"] = _TRANSPORTS.get(str(entry["type"]), entry["type"])
    if "disabled" in entry:  # what is neither true nor false is read as it is, and is a mistake
        said = entry["disabled"]
        made["enabled"] = not said if isinstance(said, bool) else said
    return made


def _others(name: str, entry: Any) -> tuple[str, ...]:
    """Its keys that nobody here knows."""
    return tuple(f"{name}.{key}" for key in _usual(entry) if key not in _KNOWN) if isinstance(entry, dict) else ()


def _shown(name: str) -> str:
    return visible(name if len(name) <= _NAME_CHARS else f"{name[:_NAME_CHARS]}…")


def passed_over(servers: Iterable[ServerSettings]) -> str:
    """One line about what the file says and nobody here reads; empty where it says no such thing."""
    keys = [_shown(key) for each in servers for key in each.ignored]
    if not keys:
        return ""
    rules = "; who need not be asked is said by permission rules alone" if any(map(_UNASKED.search, keys)) else ""
    more = f" and {len(keys) - _TOLD_MAX} more" if len(keys) > _TOLD_MAX else ""
    return f"{FILE_NAME}: passed over: {', '.join(keys[:_TOLD_MAX])}{more}{rules}"
