"""Equipment: what the agent of a session has beside the built-in tools: prompt, skills, hooks, plugins, map, snapshots.

Made when a session is opened; `options` gives the HeadlessOptions with everything put in. Files of extensions are
looked at again at each turn (`refresh`). Nothing here decides on a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from lyra.agents.headless.headless import HeadlessOptions
from lyra.config import Config
from lyra.config.private_file import write_private
from lyra.config.trust import trust_for
from lyra.core.ids import Entropy
from lyra.core.tool import Tool
from lyra.sage.agent.kept_files import keeping_files
from lyra.sage.agent.session_prompt import SessionPrompt
from lyra.sage.agent.task_tools import task_tools
from lyra.sage.agent.tasks import TaskList
from lyra.sage.agent.worktrees import Worktrees
from lyra.sage.extensions.agent_files import AgentFiles
from lyra.sage.extensions.custom_commands import CustomCommands
from lyra.sage.extensions.hooks.hooks import Hooks
from lyra.sage.extensions.places import extension_places
from lyra.sage.extensions.plugins.store import PluginStore
from lyra.sage.extensions.skills.skills import Skills
from lyra.sage.extensions.skills.tool import SkillTools
from lyra.sage.project.folder_rules import with_folder_rules
from lyra.sage.project.rules import ProjectRules
from lyra.sage.session.snapshots import Snapshots
from lyra.tools.builtin.workspace import Workspace
from lyra.tools.source import ToolSource
from lyra.tools.wrapped import layered

__all__ = ["AGENT", "Equipment"]

AGENT: Final = "sage"  # the name of the agent and the pid of its process, in every session's store

_MARK_FILE = "rules-mark"  # what begins the rules of a subfolder in a tool's result


class Equipment:
    """What a session in `folder` works with. `place` is the session's own folder; `mode` its permission mode of now;
    `notify` is told what becomes of sub-agents in the background."""

    def __init__(
        self,
        options: HeadlessOptions,
        config: Config,
        folder: str,
        place: Path,
        *,
        mode: Callable[[], str],
        notify: Callable[[dict[str, Any]], object] | None = None,
    ) -> None:
        self._given = options
        self._folder = folder
        trust = trust_for(folder, options.trust)
        self.plugins, self._plugin_problems = PluginStore().active()
        self.places = extension_places(folder, plugins=[plugin.place for plugin in self.plugins], trusted=trust)
        self.skills = Skills(self.places)
        self.commands = CustomCommands.load(self.places)
        self.agents = AgentFiles(self.places)
        self.hooks = Hooks.of_session(
            options.hooks,
            config,
            folder,
            session_id=place.name,
            more=[hook for plugin in self.plugins for hook in plugin.hooks],
        )
        self.snapshots = Snapshots(place, [folder, *options.also])
        self.rules = ProjectRules(folder, trust=trust, mark=_mark(place))
        self.tasks = TaskList(
            definitions=self.agents.definitions,
            folder=place,
            pid=AGENT,
            worktrees=Worktrees(folder, place / "worktrees"),
            notify=notify,
        )
        self.prompt = SessionPrompt(folder, options.also, self.rules, mode, attended=options.attended)

    def options(self, **changes: Any) -> HeadlessOptions:
        """The options of the session with all that it has."""
        given = self._given
        return msgspec.structs.replace(
            given,
            system=self.prompt if given.system is None else given.system,
            more_tools=self._more_tools,
            wrap=self._wrapped,
            hooks=self.hooks,
            rights=tuple(self.tasks.worktrees.rights),
            **changes,
        )

    def _more_tools(self, workspace: Workspace) -> list[Tool | ToolSource]:
        from lyra.sage.project.repo_map.repo_map import RepoMap
        from lyra.sage.project.repo_map.tool import repo_map_tool

        sources = [source for plugin in self.plugins for source in plugin.tool_sources(workspace)]
        own: list[Tool | ToolSource] = [
            *task_tools(self.tasks),
            repo_map_tool(workspace, RepoMap(workspace)),
            SkillTools(self.skills),
        ]
        return [*own, *sources]

    def _wrapped(self, tools: Iterable[Tool | ToolSource]) -> list[Tool | ToolSource]:
        keeping = keeping_files(self.snapshots, self._folder)
        kept = [layered(tool, [keeping]) if isinstance(tool, Tool) else tool for tool in tools]
        own = with_folder_rules(kept, self.rules)
        return own if self._given.wrap is None else list(self._given.wrap(own))

    def refresh(self) -> list[str]:
        """Look for changed files of extensions; sentences about those that cannot be used."""
        for files in (self.skills, self.commands, self.agents):
            files.refresh()
        return self.problems

    @property
    def problems(self) -> list[str]:
        """Sentences about files of extensions and rules that cannot be used, or do not count yet."""
        files = [problem for kind in (self.skills, self.commands, self.agents) for problem in kind.problems]
        return [*self._plugin_problems, *files, *self.rules.notices]

    def close(self) -> None:
        self.tasks.close()
        self.snapshots.close()


def _mark(place: Path) -> str:
    """The session's own mark for rules: a file of the project must not know it."""
    path = place / _MARK_FILE
    try:
        return path.read_text()
    except OSError:
        mark = Entropy().text(12)
        write_private(path, mark.encode())
        return mark
