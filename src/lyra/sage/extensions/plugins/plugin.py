"""Plugin: a folder with a manifest, all of whose parts were read and fit what the manifest declares.

`read_plugin` gives a plugin, or every mistake in any of its files; there is no half of one. What a session uses of it:
`place` for commands, skills and sub-agents, `tool_sources`, `hooks` and `servers`. Nothing is started here. Its hooks,
MCP servers and YAML tools are held to what the plugin declares.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
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
from lyra.core.checking.document import Path, form_of, parse, place_of, text_of
from lyra.core.checking.watched_files import read_plain_file
from lyra.core.rights.capability import Capability, Grant
from lyra.core.secrets.secret import is_reference
from lyra.core.tool import Tool, ToolCall, rights
from lyra.errors import ConfigError, ParseError
from lyra.mcp.settings import ServerSettings, settings_of
from lyra.sage.extensions.agent_files import AgentFiles
from lyra.sage.extensions.custom_commands import CustomCommands
from lyra.sage.extensions.extension_files import ExtensionPlace, one_line
from lyra.sage.extensions.hooks.hook import Hook, hook_from
from lyra.sage.extensions.plugins.manifest import PluginManifest, PluginPermissions, read_manifest
from lyra.sage.extensions.skills.skills import Skills
from lyra.tools.builtin.workspace import Workspace
from lyra.tools.permissions.subjects import TOOLS
from lyra.tools.source import ToolSource, part_of
from lyra.tools.wrapped import Middleware, Next

_PART_BYTES_MAX: Final = 128 * 1024
_SKILL_FILES_MAX: Final = 500


class Plugin(msgspec.Struct, frozen=True, kw_only=True):
    """`folder` is where it lies."""

    folder: str
    manifest: PluginManifest
    place: ExtensionPlace
    hooks: tuple[Hook, ...] = ()
    tool_names: tuple[str, ...] = ()
    plugin_servers: tuple[ServerSettings, ...] = ()

    @property
    def id(self) -> str:
        return self.manifest.id

    def tool_sources(self, workspace: Workspace) -> list[ToolSource]:
        """Return its tools, for a session in this workspace."""
        paths = [os.path.join(self.folder, name) for name in self.manifest.assets.get("tools", ())]
        return [plugin_tools(path, workspace, self.manifest.permissions) for path in paths]

    def servers(self, workspace: str) -> list[ServerSettings]:
        """Return its MCP servers, for a session in this folder."""
        return [for_session(server, workspace, self.manifest.permissions) for server in self.plugin_servers]


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
        tool_names=tuple(parts.tool_names),
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
        self.tool_names: list[str] = []
        self.servers: list[ServerSettings] = []
        self.place = ExtensionPlace(
            "plugin",
            folder,
            plugin=manifest.id,
            files=frozenset(self._markdown()),
            tools=manifest.permissions.tools,
        )

    def read(self) -> None:
        for files in (CustomCommands([self.place]), Skills([self.place]), AgentFiles([self.place])):
            self.mistakes += files.mistakes
            self._check_number(files)
        permissions = self._manifest.permissions
        for path, data in self._files("tools"):
            names, mistakes = read_plugin_tools(data, path, permissions)
            self.tool_names += names
            self.mistakes += mistakes
        for path, data in self._files("hooks"):
            hooks, mistakes = read_plugin_hooks(data, path, self._manifest, folder=self._folder)
            self.hooks += hooks
            self.mistakes += mistakes
        for path, data in self._files("mcp_servers"):
            servers, mistakes = read_plugin_servers(data, path, self._manifest, folder=self._folder, env=self._env)
            self.servers += servers
            self.mistakes += mistakes
        self._check_names("tool", self.tool_names)
        self._check_names("server", [server.name for server in self.servers])

    def _check_number(self, files: CustomCommands | Skills | AgentFiles) -> None:
        """Report a part that is named in the manifest and was not read, such as a folder without SKILL.md."""
        named = self._manifest.assets.get(files.KIND, ())
        if not files.mistakes and len(files.entries()) != len(named):
            message = f"{len(named)} {files.KIND} are named and {len(files.entries())} are there"
            self.mistakes.append(Mistake(os.path.join(self._folder, files.KIND), 1, 1, message))

    def _check_names(self, what: str, names: list[str]) -> None:
        for name in {name for name in names if names.count(name) > 1}:
            self.mistakes.append(Mistake(self._folder, 1, 1, f"there are two {what}s {one_line(name)}"))

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


# ---------------------------------------------------------------- hooks


def read_plugin_hooks(
    data: bytes, path: str, manifest: PluginManifest, *, folder: str
) -> tuple[list[Hook], list[Mistake]]:
    """Return the hooks of a file of the plugin in `folder`, and the file's mistakes."""
    try:
        document, places = parse(text_of(data, path), "toml", path)
    except ParseError as error:
        return [], [Mistake.from_error(error)]
    except ConfigError as error:
        return [], [Mistake(path, 1, 1, error.message, error.hint)]
    report = Report(path, places)
    hooks: list[Hook] = []
    given = report.mapping(document, (), "a file of hooks", ("hooks",)) or {}
    where: Path = ("hooks",)
    try:
        for event, number, entry in hook_entries(given.get("hooks", {})):
            where = ("hooks", event, number - 1)
            hooks.append(_hook(event, entry, manifest, folder, f"hooks.{event} {number}"))
    except ConfigError as error:
        report.add(where, one_line(error.message), error.hint)
    if hooks and not manifest.permissions.allows_files("write"):
        report.add(("hooks",), "a hook needs files = 'write', which the plugin does not declare")
    return hooks, report.mistakes


def _hook(event: str, entry: Any, manifest: PluginManifest, folder: str, name: str) -> Hook:
    setting = read_hook(event, entry, name=name)
    line = setting.command if isinstance(setting.command, str) else shlex.join(setting.command)
    right = Capability("process.exec", line)
    if not manifest.permissions.allows(right):
        raise ConfigError(f"{name} needs {right}, which the plugin does not declare")
    return hook_from({"event": event, **entry}, source=f"plugin:{manifest.id}", base=folder)


# ---------------------------------------------------------------- servers

PLUGIN_VARIABLE: Final = "${PLUGIN}"
_SECTION: Final = "mcp.servers"
_NOT_ITS_OWN: Final = ("cwd", "enabled", "readable", "writable")  # which the user and the declaration decide
_KEYS: Final = tuple(field for field in TABLES[_SECTION].columns if field not in _NOT_ITS_OWN)


def read_plugin_servers(
    data: bytes, path: str, manifest: PluginManifest, *, folder: str, env: Mapping[str, str]
) -> tuple[list[ServerSettings], list[Mistake]]:
    """Return the servers of a file of the plugin in `folder`, named after it, and the file's mistakes."""
    try:
        document, places = parse(text_of(data, path), "toml", path)
    except ParseError as error:
        return [], [Mistake.from_error(error)]
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
        for problem in _check_server(servers[-1], manifest.permissions):
            report.add(("mcp", "servers", name), one_line(problem))
    return servers, report.mistakes


def for_session(server: ServerSettings, workspace: str, permissions: PluginPermissions) -> ServerSettings:
    """Return a server for a session in this folder."""
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
    return replace(server, fill=partial(_fill_folder, folder=folder), readable=(folder,) if server.command else ())


def _fill_folder(text: str, *, folder: str) -> str:
    return text.replace(PLUGIN_VARIABLE, folder)


def _check_server(server: ServerSettings, permissions: PluginPermissions) -> Iterator[str]:
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


# ---------------------------------------------------------------- tools

_FILES_OF_KIND: Final = {"exec": "read", "file_read": "read", "file_write": "write"}


def is_reserved(name: str) -> bool:
    """Return whether a tool's name is one that permission rules read as a tool of Lyra's own, or of an MCP server."""
    return name.lower() in TOOLS or name.lower().startswith("mcp__")


def read_plugin_tools(data: bytes, path: str, permissions: PluginPermissions) -> tuple[tuple[str, ...], list[Mistake]]:
    """Return the names of the tools in a file, and its mistakes."""
    from lyra.tools.yaml.reader import read_tools
    from lyra.tools.yaml.template import ToolEnvironment

    environment = ToolEnvironment(Workspace(os.path.dirname(path)), secrets=permissions.variables)
    tools, mistakes = read_tools(data, path, environment)
    if mistakes:
        return (), mistakes
    document, _ = parse(text_of(data, path), form_of(path, what="tool"), path)
    wrong = [problem for tool in tools for problem in _check_tool(tool, permissions)]
    wrong += [problem for declared in _declarations(document) for problem in _check_files(declared, permissions)]
    return tuple(tool.name for tool in tools), [Mistake(path, 1, 1, one_line(problem)) for problem in wrong]


def _check_tool(tool: Tool, permissions: PluginPermissions) -> Iterator[str]:
    if is_reserved(tool.name):
        yield f"{tool.name} is a name of Lyra's own tools, and no plugin can take it"
    for right in (*getattr(tool.run, "rights", ()), *getattr(tool.run, "commands", ())):
        if not permissions.allows(right):
            yield f"the tool {tool.name} needs {right}, which the plugin does not declare"


def _declarations(document: Any) -> list[Any]:
    """Return the declarations of a file that was read without a mistake."""
    if isinstance(document, Mapping) and "tools" in document:
        document = document["tools"]
    return document if isinstance(document, list) else [document]


def _check_files(declared: Mapping[str, Any], permissions: PluginPermissions) -> Iterator[str]:
    implementation = declared["implementation"]
    level = _FILES_OF_KIND.get(implementation["type"], "none")
    if implementation.get("writes") is True:
        level = "write"
    if not permissions.allows_files(level):
        yield f"the tool {declared['name']} needs files = {level!r}, which the plugin does not declare"


def plugin_tools(path: str, workspace: Workspace, permissions: PluginPermissions) -> ToolSource:
    """Return the tools of a file for a session in `workspace`, each held to the permissions."""
    from lyra.tools.yaml.folder import DynamicTools

    source = DynamicTools(path, workspace=workspace, secrets=permissions.variables)
    return part_of(source, lambda tool: not is_reserved(tool.name), [limit_rights(permissions.grant(workspace.root))])


def limit_rights(grant: Grant) -> Middleware:
    """Return a layer in which a tool has no more rights than the grant."""

    async def call_limited(call: ToolCall, next: Next) -> Any:  # noqa: A002 - the name that layers have
        needs_of = next.tool.needs_of
        for need in needs_of(dict(call.arguments)) if needs_of is not None else ():
            grant.check(need)
        outer = rights.get()
        token = rights.set(grant if outer is None else outer.narrow(grant))
        try:
            return await next(call)
        finally:
            rights.reset(token)

    return call_limited
