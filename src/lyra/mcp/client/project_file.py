"""A project's `.mcp.json`: the servers that other programs read from the same file.

    {"mcpServers": {"files": {"command": "node", "args": ["server.js", "${HOME}/docs"]}}}

Its keys are those of `[mcp.servers.NAME]`; `type` is a synonym of `transport`, `disabled` the opposite of
`enabled`. `${NAME}` and `${NAME:-default}` stand for variables of the environment, looked up when the server is
started. It comes with a repository, so nothing in it happens without consent, for one server or for the folder.

Keys of other programs are ignored, with a warning (`ignored`); so are keys that would allow tools without a question.
An entry that cannot be read becomes a server with an error (`broken`); the other entries count.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from lyra.config.files import read_bytes
from lyra.config.servers import check_server_name, read_cell
from lyra.config.tables import TABLES, UNSPOKEN, TableCell
from lyra.config.trust import FolderTrust
from lyra.config.values import SettingSource, shape
from lyra.core.checking.document import Places, parse, place_of, text_of
from lyra.core.secrets.secret import is_reference
from lyra.core.secrets.visible import visible
from lyra.errors import ConfigError, LyraError
from lyra.mcp.settings import ServerSettings, SettingValue, settings_of

FILE_NAME: Final = ".mcp.json"
_ROOT: Final = "mcpServers"
_TRANSPORTS: Final = {"streamable-http": "http", "streamableHttp": "http", "streamable_http": "http", "ws": "websocket"}
_KNOWN: Final = TABLES["mcp.servers"].columns
_UNASKED: Final = re.compile(
    r"(?i)approve|allow|trust|permission"
)  # keys of other programs that allow tools without a question
_NAME_CHARS: Final = 64
_TOLD_MAX: Final = 20  # keys in one warning
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def read_file(folder: str, env: Mapping[str, str], trust: FolderTrust | None = None) -> list[ServerSettings]:
    """The servers that the folder's `.mcp.json` names; none without such a file. Where the trust covers its content,
    the person has agreed to them."""
    try:
        data = read_bytes(os.path.join(folder, FILE_NAME), FILE_NAME)
    except LyraError as mistake:
        return _passed_over(mistake, is_told=trust is None or trust.is_whole(folder))
    if data is None:
        return []
    is_trusted = trust is not None and trust.covers(folder, FILE_NAME, data)
    try:
        document, places = parse(text_of(data, FILE_NAME), "json", FILE_NAME)
        servers = _ProjectFile(os.path.abspath(folder), env, places).servers(document)
    except LyraError as mistake:
        return _passed_over(mistake, is_told=trust is None or is_trusted)
    return [replace(server, folder_trusted=True) for server in servers] if is_trusted else servers


def _passed_over(mistake: LyraError, *, is_told: bool) -> list[ServerSettings]:
    """Raise the mistake of a file that is trusted, or where trust plays no part. A file without trust stops nothing: it
    becomes a server that has the reason and never starts."""
    if is_told:
        raise mistake
    place = str(mistake.place or FILE_NAME)
    return [ServerSettings(name=FILE_NAME, origin=FILE_NAME, place=place, broken=f"{place}: {mistake.message}")]


class _ProjectFile:
    def __init__(self, folder: str, env: Mapping[str, str], places: Places) -> None:
        self._source = SettingSource("project", folder, env)
        self._env = env
        self._places = places

    def servers(self, document: Any) -> list[ServerSettings]:
        table = document.get(_ROOT) if isinstance(document, dict) else None
        if not isinstance(table, dict):
            raise ConfigError(f"{FILE_NAME} has no {_ROOT}", hint=f'such as {{"{_ROOT}": {{…}}}}', place=FILE_NAME)
        servers = [self._server(name, entry) for name, entry in table.items()]
        others = tuple(key for key in document if key != _ROOT)
        if servers and others:  # reported once, with the first server
            servers[0] = replace(servers[0], ignored=(*others, *servers[0].ignored))
        return servers

    def _server(self, name: str, entry: Any) -> ServerSettings:
        """The server of one entry; an entry that cannot be used becomes a server that has the reason and never
        starts."""
        path = (_ROOT, name)
        try:
            if not isinstance(entry, dict):
                raise self._mistake(path, f"{name} is a table of settings, not {shape(entry)}")
            check_server_name(name)
            settings = settings_of(name, self._cells(name, entry), origin=FILE_NAME, place=self._place(path))
        except ConfigError as error:
            problem = f"{error.place or self._place(path)}: {error.message}"
            return ServerSettings(
                name=_shown(name),
                origin=FILE_NAME,
                place=self._place(path),
                broken=f"{problem}: {error.hint}" if error.hint else problem,
                ignored=_others(name, entry),
                enabled=not (isinstance(entry, dict) and entry.get("disabled") is True),
            )
        return replace(
            settings,
            fill=self._fill,
            env=self._filled(settings.env),
            headers=self._filled(settings.headers),
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
            return value  # checked by the client after the variable is filled in
        if cell.field == "transport" and value in UNSPOKEN:
            return value  # the client gives it the state unsupported_transport
        return read_cell(cell, value, self._source)

    def _filled(self, values: Mapping[str, SettingValue]) -> dict[str, SettingValue]:
        return {name: SettingValue(value.written, self._reveal(value)) for name, value in values.items()}

    def _reveal(self, value: SettingValue) -> Callable[[], str]:
        """A function that reveals the value. The value of a reference is not searched for variables again."""
        return value.reveal if is_reference(value.written) else partial(self._fill, value.written)

    def _fill(self, text: str) -> str:
        return _VARIABLE.sub(self._variable, text)

    def _variable(self, match: re.Match[str]) -> str:
        value = self._env.get(match[1])
        if value:
            return value
        if match[2] is None:
            raise ConfigError(f"the environment variable {match[1]} is not set", hint=f"export {match[1]}=…")
        return match[2]

    def _place(self, path: tuple[str, ...]) -> str:
        return f"{FILE_NAME}:{place_of(path, self._places)[0]}"

    def _mistake(self, path: tuple[str, ...], message: str, hint: str | None = None) -> ConfigError:
        return ConfigError(message, hint=hint, place=self._place(path), key=".".join(path))


def _usual(entry: dict[str, Any]) -> dict[str, Any]:
    """The entry with Lyra's own keys instead of synonyms."""
    usual = {key: value for key, value in entry.items() if key not in ("type", "disabled")}
    if "type" in entry:
        usual["transport"] = _TRANSPORTS.get(str(entry["type"]), entry["type"])
    if "disabled" in entry:  # a value that is not a boolean is kept and reported as a mistake
        disabled = entry["disabled"]
        usual["enabled"] = not disabled if isinstance(disabled, bool) else disabled
    return usual


def _others(name: str, entry: Any) -> tuple[str, ...]:
    """The keys of an entry that Lyra does not know."""
    return tuple(f"{name}.{key}" for key in _usual(entry) if key not in _KNOWN) if isinstance(entry, dict) else ()


def _shown(name: str) -> str:
    return visible(name if len(name) <= _NAME_CHARS else f"{name[:_NAME_CHARS]}…")


def ignored_keys(servers: Iterable[ServerSettings]) -> str:
    """A warning about the ignored keys of the file, on one line; empty if there are none."""
    keys = [_shown(key) for server in servers for key in server.ignored]
    if not keys:
        return ""
    rules = "; tools are allowed by permission rules alone" if any(map(_UNASKED.search, keys)) else ""
    more = f" and {len(keys) - _TOLD_MAX} more" if len(keys) > _TOLD_MAX else ""
    return f"{FILE_NAME}: passed over: {', '.join(keys[:_TOLD_MAX])}{more}{rules}"
