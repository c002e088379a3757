"""MCP servers of a plugin: `[mcp.servers.NAME]` in one of its files, held to what the plugin declares.

    [mcp.servers.weather]
    command = "python3"
    args = ["${PLUGIN}/server.py"]
    network = ["api.example.com"]

`${PLUGIN}` is the plugin's folder, which the server may read; a declared command has `.` in its place. Its command,
its hosts and the variables that it is given are declared by the plugin, and enabling the plugin is the consent to start
it. A server of a plugin chooses no folders: it may read the project, as every server may, and write there where the
plugin declares `files = "write"`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from lyra.config.cells import read_cell
from lyra.config.servers import check_server_name
from lyra.config.tables import TABLES, TableCell
from lyra.config.values import SettingSource
from lyra.core.checking.check import Mistake, Report
from lyra.core.checking.document import parse, place_of, text_of
from lyra.core.rights.capability import Capability
from lyra.core.secrets.secret import is_reference
from lyra.errors import ConfigError, ParseError
from lyra.mcp.settings import ServerSettings, settings_of
from lyra.sage.extensions.front_matter import one_line
from lyra.sage.extensions.plugins.manifest import PluginManifest
from lyra.sage.extensions.plugins.permissions import PluginPermissions

PLUGIN_VARIABLE: Final = "${PLUGIN}"
_SECTION: Final = "mcp.servers"
_NOT_ITS_OWN: Final = ("cwd", "enabled", "readable", "writable")  # which the user and the declaration decide
_KEYS: Final = tuple(field for field in TABLES[_SECTION].columns if field not in _NOT_ITS_OWN)


def read_plugin_servers(
    data: bytes, path: str, manifest: PluginManifest, *, folder: str, env: Mapping[str, str]
) -> tuple[list[ServerSettings], list[Mistake]]:
    """The servers of a file of the plugin in `folder`, named after it, and the file's mistakes."""
    try:
        document, places = parse(text_of(data, path), "toml", path)
    except ParseError as error:
        return [], [Mistake.of(error)]
    except ConfigError as error:
        return [], [Mistake(path, 1, 1, error.message, error.hint)]
    report = Report(path, places)
    servers = []
    for name, entry in _entries(document, report):
        try:
            servers.append(_server(name, entry, path, f"{manifest.id}-{name}", folder, env))
        except ConfigError as error:
            line, column = place_of(("mcp", "servers", name), places)
            report.mistakes.append(Mistake(path, line, column, one_line(error.message), error.hint))
            continue
        for problem in _undeclared(servers[-1], manifest.permissions):
            report.add(("mcp", "servers", name), one_line(problem))
    return servers, report.mistakes


def for_session(server: ServerSettings, workspace: str, permissions: PluginPermissions) -> ServerSettings:
    """A server for a session in this folder."""
    writes = bool(server.command) and permissions.allows_files("write")
    return replace(server, writable=(workspace,)) if writes else server


def _entries(document: Any, report: Report) -> Iterator[tuple[str, dict[str, Any]]]:
    outer = report.mapping(document, (), "a file of servers", ("mcp",)) or {}
    inner = report.mapping(outer.get("mcp", {}), ("mcp",), "mcp", ("servers",)) or {}
    servers = report.mapping(inner.get("servers", {}), ("mcp", "servers"), "servers") or {}
    for name, entry in servers.items():
        read = report.mapping(entry, ("mcp", "servers", name), "a server of a plugin", _KEYS)
        if read is not None and read.keys() <= set(_KEYS):
            yield name, read


def _server(
    name: str, entry: dict[str, Any], path: str, full_name: str, folder: str, env: Mapping[str, str]
) -> ServerSettings:
    check_server_name(full_name)
    source = SettingSource("user", folder, env)
    cells = {key: read_cell(TableCell(_SECTION, name, key), value, source) for key, value in entry.items()}
    server = settings_of(full_name, cells, origin="user", place=path)
    return replace(server, fill=partial(_filled, folder=folder), readable=(folder,) if server.command else ())


def _filled(text: str, *, folder: str) -> str:
    return text.replace(PLUGIN_VARIABLE, folder)


def _undeclared(server: ServerSettings, permissions: PluginPermissions) -> Iterator[str]:
    for right in _rights(server):
        if not permissions.allows(right):
            yield f"the server {server.name} needs {right}, which the plugin does not declare"
    if server.command and not permissions.allows_files("read"):
        yield f"the server {server.name} needs files = 'read', which the plugin does not declare"


def _rights(server: ServerSettings) -> Iterable[Capability]:
    if server.command:
        words = (word.replace(PLUGIN_VARIABLE, os.curdir) for word in (server.command, *server.args))
        yield Capability("process.exec", shlex.join(words))
    yield from (Capability("net.http", host) for host in server.network)
    if server.url:
        yield Capability("net.http", urlsplit(server.url).netloc.rpartition("@")[2])
    values = [*server.env.values(), *server.headers.values()]
    names = [value.written.rpartition("env:")[2] for value in values if is_reference(value.written)]
    names += [str(server.auth[key]) for key in ("token_env", "client_secret_env") if server.auth.get(key)]
    yield from (Capability("secrets.read", name) for name in names)
