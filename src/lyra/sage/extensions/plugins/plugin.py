"""Plugin: a folder with a manifest, all of whose parts were read.

`read_plugin` gives a plugin, or every mistake in any of its files; there is no half of one. What a session uses of it:
`place` for commands, skills and sub-agents, `hooks` and `servers`. `asks` says in sentences what its hooks and servers
run, reach and are given: that is what its user agrees to. A PluginManifest is what `plugin.toml` says: the plugin's id
and version, and its parts. Nothing is started here.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from lyra.config.hook_settings import hook_entries, read_hook
from lyra.config.servers import check_server_name, read_cell
from lyra.config.tables import TABLES, TableCell
from lyra.config.values import SettingSource
from lyra.core.checking.check import Mistake, Report
from lyra.core.checking.document import Path, parse, text_of
from lyra.core.checking.watched_files import read_plain_file
from lyra.core.secrets.secret import is_reference
from lyra.errors import ConfigError, ParseError
from lyra.mcp.settings import ServerSettings, settings_of
from lyra.sage.extensions.agent_files import AgentFiles
from lyra.sage.extensions.custom_commands import CustomCommands
from lyra.sage.extensions.extension_files import ExtensionPlace, one_line
from lyra.sage.extensions.hooks.hook import Hook, hook_from
from lyra.sage.extensions.skills.skills import Skills

MANIFEST: Final = "plugin.toml"
SCHEMA: Final = 1
# The folder that a part lies in, where it has to be a certain one, and how its name ends.
ASSET_KINDS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "commands": ("commands", (".md",)),
    "skills": ("skills", (".md", "")),  # a file, or the folder of a SKILL.md
    "agents": ("agents", (".md",)),
    "hooks": ("", (".toml",)),
    "mcp_servers": ("", (".toml",)),
}
GONE: Final = ("dependencies", "permissions")  # keys of manifests of earlier versions
_GONE_ASSETS: Final = ("tools",)
_MANIFEST_KEYS: Final = ("schema", "id", "name", "version", "description", "assets", *GONE)
_NEEDED: Final = ("schema", "id", "name", "version", "description")
_ID: Final = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*\Z")
_ID_CHARS_MAX: Final = 40
_VERSION: Final = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6}){0,3}\Z")
_RESERVED_IDS: Final = frozenset({"lyra", "sage", "user", "project", "plugin", "built-in", "mcp"})
_MANIFEST_BYTES_MAX: Final = 64 * 1024
_ASSETS_MAX: Final = 200


class PluginManifest(msgspec.Struct, frozen=True, kw_only=True):
    """`assets` are the paths of its parts by kind, relative to the plugin's folder; `passed_over` are keys that mean
    nothing any more."""

    id: str
    name: str
    version: str
    description: str
    assets: dict[str, tuple[str, ...]] = {}
    passed_over: tuple[str, ...] = ()


def read_manifest(folder: str) -> tuple[PluginManifest | None, list[Mistake]]:
    """Return the manifest of a plugin's folder, or what is wrong with it."""
    path = os.path.join(folder, MANIFEST)
    try:
        data = read_plain_file(path, _MANIFEST_BYTES_MAX, follow_links=False)
        document, places = parse(text_of(data, path), "toml", path)
    except OSError as error:
        return None, [Mistake(path, 1, 1, f"it cannot be read: {error.strerror}")]
    except ParseError as error:
        return None, [Mistake.from_error(error)]
    except ConfigError as error:
        return None, [Mistake(path, 1, 1, error.message, error.hint)]
    report = Report(path, places)
    manifest = _manifest(document, folder, report)
    mistakes = sorted(report.mistakes, key=lambda mistake: mistake.line)
    return (None if mistakes else manifest), mistakes


def _manifest(document: Any, folder: str, report: Report) -> PluginManifest:
    given = report.mapping(document, (), "a plugin", _MANIFEST_KEYS) or {}
    for key in _NEEDED:
        if key not in given:
            report.add((), f"a plugin has a key {key!r}")
    if "schema" in given and (type(given["schema"]) is not int or given["schema"] != SCHEMA):
        report.add(("schema",), f"schema is {SCHEMA}, the only one that this version reads")
    return PluginManifest(
        id=_id(given, report),
        name=_line(given, "name", report, most=80),
        version=_version(given, report),
        description=_line(given, "description", report, most=300),
        assets=_assets(given.get("assets", {}), folder, report),
        passed_over=_list_gone(given),
    )


def _id(given: dict[str, Any], report: Report) -> str:
    value = given.get("id", "")
    if "id" in given and (not isinstance(value, str) or not _ID.match(value) or len(value) > _ID_CHARS_MAX):
        report.add(("id",), f"an id has small letters, digits and single '-', at most {_ID_CHARS_MAX} characters")
        return ""
    if value in _RESERVED_IDS:
        report.add(("id",), f"{value} is a name of Sage's own, and no plugin can take it")
    return str(value)


def _line(given: dict[str, Any], key: str, report: Report, *, most: int) -> str:
    if key not in given:
        return ""
    text = report.text(given[key], (key,), key, most=most)
    line = one_line(text) if text is not None else ""
    if text is not None and not line:
        report.add((key,), f"{key} has no visible character")
    return line


def _version(given: dict[str, Any], report: Report) -> str:
    value = given.get("version", "")
    if "version" in given and (not isinstance(value, str) or not _VERSION.match(value)):
        report.add(("version",), "a version is a text of numbers and dots, such as '1.2.0'")
        return ""
    return str(value)


def _list_gone(given: dict[str, Any]) -> tuple[str, ...]:
    assets = given.get("assets")
    parts = [f"assets.{kind}" for kind in _GONE_ASSETS if isinstance(assets, dict) and kind in assets]
    return (*(key for key in GONE if key in given), *parts)


def _assets(value: Any, folder: str, report: Report) -> dict[str, tuple[str, ...]]:
    given = report.mapping(value, ("assets",), "assets", (*ASSET_KINDS, *_GONE_ASSETS)) or {}
    assets: dict[str, tuple[str, ...]] = {}
    for kind, paths in given.items():
        if kind not in ASSET_KINDS:
            continue
        if not isinstance(paths, list) or len(paths) > _ASSETS_MAX:
            report.add(("assets", kind), f"{kind} is a list of at most {_ASSETS_MAX} paths")
            continue
        checked = [_asset(path, ("assets", kind, index), folder, report) for index, path in enumerate(paths)]
        assets[kind] = tuple(path for path in checked if path)
        for path in {path for path in assets[kind] if assets[kind].count(path) > 1}:
            report.add(("assets", kind), f"{one_line(path)} is named twice")
    return assets


def _asset(value: Any, path: tuple[str | int, ...], folder: str, report: Report) -> str:
    """Return the normal form of a part's path; "" where it cannot be one."""
    kind = str(path[1])
    home, endings = ASSET_KINDS[kind]
    if not isinstance(value, str) or not value or len(value) > 300 or not value.isprintable():
        report.add(path, "a path is a short text")
        return ""
    inside = os.path.normpath(value)
    parts = inside.split("/")
    if value.startswith(("/", "~")) or "\\" in value or ".." in value.split("/") or parts[0].startswith("."):
        report.add(path, f"{value!r} leads out of the plugin, or is hidden")
        return ""
    if home and (parts[0] != home or len(parts) < 2):
        report.add(path, f"{kind} lie in the folder {home}/")
        return ""
    if os.path.splitext(inside)[1].lower() not in endings:
        report.add(path, f"the name of such a file ends in {', '.join(ending for ending in endings if ending)}")
        return ""
    problem = _problem_on_disk(folder, parts)
    if problem:
        report.add(path, f"{value!r} {problem}")
        return ""
    return inside


def _problem_on_disk(folder: str, parts: list[str]) -> str:
    whole = folder
    for part in parts:
        whole = os.path.join(whole, part)
        if os.path.islink(whole):
            return "is a link, or lies behind one"
    return "" if os.path.exists(whole) else "does not exist"


_PART_BYTES_MAX: Final = 128 * 1024
_SKILL_FILES_MAX: Final = 500


class Plugin(msgspec.Struct, frozen=True, kw_only=True):
    """`folder` is where it lies."""

    folder: str
    manifest: PluginManifest
    place: ExtensionPlace
    hooks: tuple[Hook, ...] = ()
    plugin_servers: tuple[ServerSettings, ...] = ()

    @property
    def id(self) -> str:
        return self.manifest.id

    def servers(self, workspace: str) -> list[ServerSettings]:
        """Return its MCP servers, for a session in this folder, where their programs may write."""
        return [replace(server, writable=(workspace,)) if server.command else server for server in self.plugin_servers]

    def asks(self) -> tuple[str, ...]:
        """Return a line for each thing that a hook or a server of it does outside of the conversation."""
        lines = [f"a hook for {hook.event} runs {hook.command.text}" for hook in self.hooks if hook.command is not None]
        for server in self.plugin_servers:
            lines += [f"the server {server.name} {words}" for words in _asks_of_server(server)]
        return tuple(dict.fromkeys(one_line(line) for line in lines))


def read_plugin(folder: str, *, env: Mapping[str, str] | None = None) -> tuple[Plugin | None, list[Mistake]]:
    """Return the plugin in a folder, or all that is wrong with it."""
    folder = os.path.realpath(folder)
    manifest, mistakes = read_manifest(folder)
    if manifest is None:
        return None, mistakes
    parts = _Parts(folder, manifest, os.environ if env is None else env)
    parts.read()
    mistakes += parts.mistakes
    if mistakes:
        return None, mistakes
    plugin = Plugin(
        folder=folder,
        manifest=manifest,
        place=parts.place,
        hooks=tuple(parts.hooks),
        plugin_servers=tuple(parts.servers),
    )
    return plugin, []


class _Parts:
    """Reads the parts of one plugin and gathers the mistakes of all."""

    def __init__(self, folder: str, manifest: PluginManifest, env: Mapping[str, str]) -> None:
        self._folder = folder
        self._manifest = manifest
        self._env = env
        self.mistakes: list[Mistake] = []
        self.hooks: list[Hook] = []
        self.servers: list[ServerSettings] = []
        self.place = ExtensionPlace(
            "plugin",
            folder,
            plugin=manifest.id,
            files=frozenset(self._markdown()),
        )

    def read(self) -> None:
        for files in (CustomCommands([self.place]), Skills([self.place]), AgentFiles([self.place])):
            self.mistakes += files.mistakes
            # Report a part that is named in the manifest and was not read, such as a folder without SKILL.md.
            named = self._manifest.assets.get(files.KIND, ())
            if not files.mistakes and len(files.entries()) != len(named):
                message = f"{len(named)} {files.KIND} are named and {len(files.entries())} are there"
                self.mistakes.append(Mistake(os.path.join(self._folder, files.KIND), 1, 1, message))
        for path, data in self._files("hooks"):
            hooks, mistakes = read_plugin_hooks(data, path, self._manifest, folder=self._folder)
            self.hooks += hooks
            self.mistakes += mistakes
        for path, data in self._files("mcp_servers"):
            servers, mistakes = read_plugin_servers(data, path, self._manifest, folder=self._folder, env=self._env)
            self.servers += servers
            self.mistakes += mistakes
        names = [server.name for server in self.servers]
        for name in {name for name in names if names.count(name) > 1}:
            self.mistakes.append(Mistake(self._folder, 1, 1, f"there are two servers {one_line(name)}"))

    def _files(self, kind: str) -> Iterator[tuple[str, bytes]]:
        for name in self._manifest.assets.get(kind, ()):
            path = os.path.join(self._folder, name)
            try:
                yield path, read_plain_file(path, _PART_BYTES_MAX, follow_links=False)
            except OSError as error:
                self.mistakes.append(Mistake(path, 1, 1, f"it cannot be read: {error.strerror}"))

    def _markdown(self) -> Iterator[str]:
        """Yield the paths of the Markdown files that count, and of the files beside skills."""
        for kind in ("commands", "agents", "skills"):
            for name in self._manifest.assets.get(kind, ()):
                path = os.path.join(self._folder, name)
                yield from _below(path) if os.path.isdir(path) else [path]


def _below(folder: str) -> list[str]:
    """Return all files below a folder, a bounded number; links are not followed."""
    paths: list[str] = []
    for inside, _, names in os.walk(folder):
        paths += (os.path.join(inside, name) for name in names)
        if len(paths) > _SKILL_FILES_MAX:
            break
    return paths[:_SKILL_FILES_MAX]


def _parse(data: bytes, path: str) -> tuple[Any, Report]:
    """Return the document of a part, an empty one where it cannot be read; the report says why."""
    try:
        document, places = parse(text_of(data, path), "toml", path)
        return document, Report(path, places)
    except ParseError as error:
        mistake = Mistake.from_error(error)
    except ConfigError as error:
        mistake = Mistake(path, 1, 1, error.message, error.hint)
    report = Report(path, {})
    report.mistakes.append(mistake)
    return {}, report


def read_plugin_hooks(
    data: bytes, path: str, manifest: PluginManifest, *, folder: str
) -> tuple[list[Hook], list[Mistake]]:
    """Return the hooks of a file of the plugin in `folder`, and the file's mistakes."""
    document, report = _parse(data, path)
    hooks: list[Hook] = []
    given = report.mapping(document, (), "a file of hooks", ("hooks",)) or {}
    where: Path = ("hooks",)
    try:
        for event, number, entry in hook_entries(given.get("hooks", {})):
            where = ("hooks", event, number - 1)
            read_hook(event, entry, name=f"hooks.{event} {number}")
            hooks.append(hook_from({"event": event, **entry}, source=f"plugin:{manifest.id}", base=folder))
    except ConfigError as error:
        report.add(where, one_line(error.message), error.hint)
    return hooks, report.mistakes


PLUGIN_VARIABLE: Final = "${PLUGIN}"
_SECTION: Final = "mcp.servers"
_NOT_ITS_OWN: Final = ("cwd", "enabled", "readable", "writable")  # which the user decides, or the folder
_KEYS: Final = tuple(field for field in TABLES[_SECTION].columns if field not in _NOT_ITS_OWN)


def read_plugin_servers(
    data: bytes, path: str, manifest: PluginManifest, *, folder: str, env: Mapping[str, str]
) -> tuple[list[ServerSettings], list[Mistake]]:
    """Return the servers of a file of the plugin in `folder`, named after it, and the file's mistakes."""
    document, report = _parse(data, path)
    servers = []
    for name, entry in _entries(document, report):
        try:
            full_name = f"{manifest.id}-{name}"
            check_server_name(full_name)
            source = SettingSource("user", folder, env)
            cells = {key: read_cell(TableCell(_SECTION, name, key), value, source) for key, value in entry.items()}
            server = settings_of(full_name, cells, origin="user", place=path)
            servers.append(
                replace(server, fill=partial(_fill_folder, folder=folder), readable=(folder,) if server.command else ())
            )
        except ConfigError as error:
            report.add(("mcp", "servers", name), one_line(error.message), error.hint)
    return servers, report.mistakes


def _entries(document: Any, report: Report) -> Iterator[tuple[str, dict[str, Any]]]:
    outer = report.mapping(document, (), "a file of servers", ("mcp",)) or {}
    inner = report.mapping(outer.get("mcp", {}), ("mcp",), "mcp", ("servers",)) or {}
    servers = report.mapping(inner.get("servers", {}), ("mcp", "servers"), "servers") or {}
    for name, entry in servers.items():
        read = report.mapping(entry, ("mcp", "servers", name), "a server of a plugin", _KEYS)
        if read is not None and read.keys() <= set(_KEYS):
            yield name, read


def _fill_folder(text: str, *, folder: str) -> str:
    return text.replace(PLUGIN_VARIABLE, folder)


def _asks_of_server(server: ServerSettings) -> Iterator[str]:
    if server.command:
        line = shlex.join(word.replace(PLUGIN_VARIABLE, os.curdir) for word in (server.command, *server.args))
        yield f"runs {line} and may write in the session's folder"
    if server.url:
        yield f"reaches {urlsplit(server.url).netloc.rpartition('@')[2]}"
    yield from (f"reaches {host}" for host in server.network)
    values = [*server.env.values(), *server.headers.values()]
    names = [value.written.rpartition("env:")[2] for value in values if is_reference(value.written)]
    names += [str(server.auth[key]) for key in ("token_env", "client_secret_env") if server.auth.get(key)]
    yield from (f"is given your variable {name}" for name in names)
