"""Extensions: all extensions of one session, as their files are now.

    extensions = Extensions(folder)
    extensions.refresh()             # before each prompt; looks at the files at most once a second
    extensions.slash_commands()      # of files, skills and plugins
    extensions.sub_agents()          # the built-in ones too
    extensions.__lyra_tools__()      # it is a source of tools: Skill
    extensions.problems              # what is wrong with the files

A look is a listing and a `stat` for each file; only what has changed is read. There is no thread: files count at the
next prompt. A file or a plugin that becomes invalid keeps its last good version, and the problem is told. A file of a
project whose new content is not trusted, and a plugin that declares more than its user agreed to, count no more.
Nothing is run here; hooks and MCP servers of plugins are handed to those who run them. `extension_asks` shows a
project's files to the person who may trust them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from lyra.config.asks import Ask, AskingFile, on_one_line
from lyra.config.trust import FolderTrust
from lyra.core.checking.document import read_front_matter
from lyra.core.clock import Clock, loop_clock
from lyra.core.tool import Tool
from lyra.core.user_folders import data_folder
from lyra.errors import ConfigError
from lyra.sage.extensions.agent_files import AgentFiles, SubAgentDefinition
from lyra.sage.extensions.custom_commands import CustomCommand, CustomCommands
from lyra.sage.extensions.extension_files import (
    PROJECT_FOLDER,
    ExtensionPlace,
    extension_places,
    markdown_files,
    one_line,
)
from lyra.sage.extensions.skills.skills import SKILL_FILE, Skills, SkillTools, files_beside, is_skill

if TYPE_CHECKING:
    from lyra.mcp.settings import ServerSettings
    from lyra.sage.extensions.hooks.hook import Hook
    from lyra.sage.extensions.hooks.hooks import Hooks
    from lyra.sage.extensions.plugins.plugin import Plugin
    from lyra.sage.extensions.plugins.store import PluginStore

PAUSE_S: Final = 1.0  # between two looks at the files


class Extensions:
    """`commands`, `skills` and `agents` are those of all files. `trusted` is as for `trust_for`; `reserved` are further
    slash commands that a file cannot take; `on_change` is called after a look that found a change."""

    notices = ("Skill",)  # a tool that a model has to see, however many others there are

    def __init__(
        self,
        folder: str,
        *,
        trusted: FolderTrust | bool | None = None,
        env: Mapping[str, str] | None = None,
        reserved: Iterable[str] = (),
        on_change: Callable[[], object] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.folder = folder
        self._on_change = on_change
        self._clock = clock or loop_clock()
        self._env = os.environ if env is None else env
        self._plugin_store: PluginStore | None = None
        self._stamp: object = None
        self._plugins: dict[str, Plugin] = {}
        self._plugin_problems: tuple[str, ...] = ()
        self._own_places = extension_places(folder, trusted=trusted, env=self._env)
        self._look_at_plugins()
        places = self._places()
        self.commands = CustomCommands(places, reserved=reserved, clock=self._clock)
        self.skills = Skills(places, clock=self._clock)
        self.agents = AgentFiles(places, clock=self._clock)
        self._skill_tools = SkillTools(self.skills, refresh=self.refresh)
        self._looked_s = self._clock.monotonic()

    def refresh(self, *, at_once: bool = False) -> bool:
        """Look at the files, unless that was done within the last second; True if something has changed."""
        now_s = self._clock.monotonic()
        if now_s - self._looked_s < PAUSE_S and not at_once:
            return False
        self._looked_s = now_s
        changed = self._look_at_plugins()
        kinds = (self.commands, self.skills, self.agents)
        looks = [kind.set_places(self._places()) if changed else kind.refresh() for kind in kinds]
        changed = changed or any(looks)
        if changed and self._on_change is not None:
            self._on_change()
        return changed

    def _places(self) -> tuple[ExtensionPlace, ...]:
        return (*(plugin.place for plugin in self._plugins.values()), *self._own_places)

    def _look_at_plugins(self) -> bool:
        # The store of plugins, once there is one: most users have none, and reading plugins imports a lot.
        if self._plugin_store is None and os.path.isdir(data_folder(self._env) / "plugins"):
            from lyra.sage.extensions.plugins.store import PluginStore

            self._plugin_store = PluginStore(env=self._env)
        store = self._plugin_store
        stamp = store.stamp() if store is not None else None
        if store is None or stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            plugins, problems = store.active(self._plugins)
        except ConfigError as error:  # which of them are enabled cannot be read: none counts
            plugins, problems = [], [error.message]
        self._plugins = {plugin.id: plugin for plugin in plugins}
        self._plugin_problems = tuple(map(one_line, problems))
        return True

    def slash_commands(self) -> dict[str, CustomCommand]:
        """Return the commands of files, and the skills that a person may start; of one name the command counts."""
        return {**self.skills.commands(), **self.commands.entries()}

    def sub_agents(self) -> dict[str, SubAgentDefinition]:
        return self.agents.definitions()

    def plugins(self) -> tuple[Plugin, ...]:
        """Return the plugins that count."""
        return tuple(self._plugins.values())

    def __lyra_tools__(self) -> tuple[Tool, ...]:
        """Return the tool Skill; an agent looks at it with each message."""
        return self._skill_tools.__lyra_tools__()

    def hooks(self) -> dict[str, tuple[Hook, ...]]:
        """Return the hooks of plugins by their source, for `Hooks.put`."""
        return {f"plugin:{plugin.id}": plugin.hooks for plugin in self._plugins.values()}

    def put_hooks(self, hooks: Hooks) -> None:
        """Give a session's hooks those of the plugins there are now, and take those of others away."""
        now = self.hooks()
        gone = {hook.source for hook in hooks if hook.source.startswith("plugin:")} - now.keys()
        for source, those in {**dict.fromkeys(gone, ()), **now}.items():
            hooks.put(source, those)

    def servers(self) -> list[ServerSettings]:
        """Return the MCP servers of plugins; a session starts them when it begins."""
        return [server for plugin in self._plugins.values() for server in plugin.servers(self.folder)]

    @property
    def problems(self) -> tuple[str, ...]:
        """Return what is wrong with the files, as texts fit for a terminal."""
        return (*self._plugin_problems, *self.commands.problems, *self.skills.problems, *self.agents.problems)


# ---------------------------------------------------------------- extension asks


def extension_asks(folder: str) -> Iterator[AskingFile]:
    """Yield the extension files of a folder's `.lyra`."""
    place = ExtensionPlace("project", os.path.join(folder, PROJECT_FOLDER))
    if os.path.islink(place.folder):
        return
    for kind, read in (("commands", _read_command), ("agents", _read_agent)):
        for path in markdown_files(place, kind)[0]:
            yield AskingFile(folder, os.path.relpath(path, folder), read)
    for path in markdown_files(place, "skills")[0]:
        if not is_skill(os.path.relpath(path, os.path.join(place.folder, "skills"))):
            continue
        yield AskingFile(folder, os.path.relpath(path, folder), _read_skill)
        if os.path.basename(path) == SKILL_FILE:
            home = os.path.dirname(path)
            for name in files_beside(home):
                yield AskingFile(folder, os.path.relpath(os.path.join(home, name), folder), _read_file_beside)


def _read_command(data: bytes, name: str) -> Iterator[Ask]:
    keys = read_front_matter(data, name).keys
    command = "/" + os.path.splitext(name)[0].split(os.sep, 2)[-1].replace(os.sep, ":")
    yield Ask(on_one_line(command), f"adds the command {on_one_line(command)}{_with(keys)}")


def _read_skill(data: bytes, name: str) -> Iterator[Ask]:
    keys = read_front_matter(data, name).keys
    skill = on_one_line(keys.get("name") or _name_from_path(name))
    yield Ask(f"skill {skill}", f"adds the skill {skill}, which gives the model instructions{_with(keys)}")


def _read_agent(data: bytes, name: str) -> Iterator[Ask]:
    keys = read_front_matter(data, name).keys
    agent = on_one_line(keys.get("name") or _name_from_path(name))
    tools = f" with the tools {on_one_line(keys['tools'])}" if "tools" in keys else ""
    yield Ask(f"agent {agent}", f"adds the sub-agent {agent}{tools}{_with(keys)}")


def _read_file_beside(data: bytes, name: str) -> Iterator[Ask]:
    skill = on_one_line(name.split(os.sep)[2])
    yield Ask(on_one_line(os.path.basename(name)), f"adds a file of {len(data)} bytes to the skill {skill}")


def _name_from_path(name: str) -> str:
    """Return the name that a path says."""
    inside = os.path.basename(name)
    return os.path.basename(os.path.dirname(name)) if inside == SKILL_FILE else os.path.splitext(inside)[0]


def _with(keys: dict[str, Any]) -> str:
    """Return what else the front matter asks for."""
    parts = []
    if "description" in keys:
        parts.append(f": {on_one_line(keys['description'])}")
    if "model" in keys:
        parts.append(f"; it asks the model {on_one_line(keys['model'])}")
    return "".join(parts)
