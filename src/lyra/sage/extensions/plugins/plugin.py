"""Plugin: a folder with a manifest, all of whose parts were read and fit what the manifest declares.

`read_plugin` gives a plugin, or every mistake in any of its files; there is no half of one. What a session uses of it:
`place` for commands, skills and sub-agents, `tool_sources`, `hooks` and `servers`. Nothing is started here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from lyra.core.checking.check import Mistake
from lyra.core.checking.watched_files import read_plain_file
from lyra.mcp.settings import ServerSettings
from lyra.sage.extensions.agent_files import AgentFiles
from lyra.sage.extensions.custom_commands import CustomCommands
from lyra.sage.extensions.front_matter import one_line
from lyra.sage.extensions.hooks.hook import Hook
from lyra.sage.extensions.places import ExtensionPlace
from lyra.sage.extensions.plugins.hooks import read_plugin_hooks
from lyra.sage.extensions.plugins.manifest import PluginManifest, read_manifest
from lyra.sage.extensions.plugins.servers import for_session, read_plugin_servers
from lyra.sage.extensions.plugins.tools import plugin_tools, read_plugin_tools
from lyra.sage.extensions.skills.skills import Skills
from lyra.tools.builtin.workspace import Workspace
from lyra.tools.source import ToolSource

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
        """Its tools, for a session in this workspace."""
        paths = [os.path.join(self.folder, name) for name in self.manifest.assets.get("tools", ())]
        return [plugin_tools(path, workspace, self.manifest.permissions) for path in paths]

    def servers(self, workspace: str) -> list[ServerSettings]:
        """Its MCP servers, for a session in this folder."""
        return [for_session(server, workspace, self.manifest.permissions) for server in self.plugin_servers]


def read_plugin(folder: str, *, env: Mapping[str, str] | None = None) -> tuple[Plugin | None, list[Mistake]]:
    """The plugin in a folder, or all that is wrong with it."""
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
        """The paths of the Markdown files that count, and of the files beside skills."""
        for kind in ("commands", "agents", "skills"):
            for name in self._manifest.assets.get(kind, ()):
                path = os.path.join(self._folder, name)
                yield from _below(path) if os.path.isdir(path) else [path]


def _below(folder: str) -> list[str]:
    """All files below a folder, a bounded number; links are not followed."""
    paths: list[str] = []
    for inside, _, names in os.walk(folder):
        paths += (os.path.join(inside, name) for name in names)
        if len(paths) > _SKILL_FILES_MAX:
            break
    return paths[:_SKILL_FILES_MAX]
