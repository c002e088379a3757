"""Equipment: what the agent of a session has beside the built-in tools: prompt, skills, hooks, plugins, map, snapshots,
diagnostics.

Made when a session is opened; `options` gives the HeadlessOptions with everything put in. Files of extensions are
looked at again at each turn (`refresh`). Nothing here decides on a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from lyra.agents.headless.headless import HeadlessOptions
from lyra.config import Config
from lyra.config.private_file import write_private
from lyra.config.trust import trust_for
from lyra.core.budgets.budget import Budget
from lyra.core.ids import Entropy
from lyra.core.tool import Tool
from lyra.core.user_folders import data_folder
from lyra.sage.agent.kept_files import keeping_files
from lyra.sage.agent.session_prompt import SessionPrompt
from lyra.sage.agent.tasks.record import TaskRecord
from lyra.sage.agent.tasks.task_list import TaskList
from lyra.sage.agent.tasks.tools import task_tools
from lyra.sage.agent.worktrees.worktrees import Worktrees, worktrees_folder
from lyra.sage.extensions.extensions import Extensions
from lyra.sage.extensions.hooks.hooks import Hooks
from lyra.sage.extensions.memory import SharedMemories, sage_memory
from lyra.sage.project.folder_rules import with_folder_rules
from lyra.sage.project.rules import ProjectRules
from lyra.sage.session.snapshots import Snapshots
from lyra.tools.builtin.workspace import Workspace
from lyra.tools.source import ToolSource
from lyra.tools.wrapped import layered

AGENT: Final = "sage"  # the name of the agent and the pid of its process, in every session's store

_MARK_FILE = "rules-mark"  # what begins the rules of a subfolder in a tool's result


class Equipment:
    """What a session in `folder` works with. `place` is the session's own folder; `mode` its permission mode of now;
    `notify` is told what becomes of sub-agents in the background; `budget` is what those may spend that no turn waits
    for."""

    def __init__(
        self,
        options: HeadlessOptions,
        config: Config,
        folder: str,
        place: Path,
        *,
        mode: Callable[[], str],
        notify: Callable[[TaskRecord], object] | None = None,
        budget: Callable[[], Budget | None] = lambda: None,
    ) -> None:
        self._given = options
        self._folder = folder
        self._diagnostics = config.diagnostics
        trust = trust_for(folder, options.trust)
        self.extensions = Extensions(folder, trusted=trust, on_change=self._on_change)
        plugin_hooks = [hook for hooks in self.extensions.hooks().values() for hook in hooks]
        self.hooks = Hooks.of_session(options.hooks, config, folder, session_id=place.name, more=plugin_hooks)
        self.memory = options.memory or sage_memory(recall=config.sage.recall)
        self.snapshots = Snapshots(place, [folder, *options.also])
        self.rules = ProjectRules(folder, trust=trust, mark=_mark(place))
        self.tasks = TaskList(
            definitions=self.extensions.sub_agents,
            folder=place,
            pid=AGENT,
            worktrees=Worktrees(folder, worktrees_folder(place), around=self._keeping),
            notify=notify,
            budget=budget,
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
            memory=self.memory,
            rights=tuple(self.tasks.worktrees.rights),
            **changes,
        )

    def _more_tools(self, workspace: Workspace) -> list[Tool | ToolSource]:
        from lyra.sage.project.repo_map.repo_map import RepoMap
        from lyra.sage.project.repo_map.tool import repo_map_tool

        return [
            *task_tools(self.tasks),
            repo_map_tool(workspace, RepoMap(workspace, cache_folder=str(data_folder() / "maps"))),
            self.extensions.tools(workspace),
        ]

    def _on_change(self) -> None:
        if isinstance(self.hooks, Hooks):  # a session that began without hooks has none until it is opened again
            self.extensions.put_hooks(self.hooks)

    def _wrapped(self, tools: Iterable[Tool | ToolSource]) -> list[Tool | ToolSource]:
        keeping = keeping_files(self.snapshots, self._folder)
        kept = [layered(tool, [keeping]) if isinstance(tool, Tool) else tool for tool in tools]
        own = with_folder_rules(kept, self.rules)
        if self._diagnostics:
            from lyra.sage.project.diagnostics.after_edit import Diagnostics, diagnosed

            own = diagnosed(own, Diagnostics(self._diagnostics, Workspace(self._folder, also=self._given.also)))
        return own if self._given.wrap is None else list(self._given.wrap(own))

    @asynccontextmanager
    async def _keeping(self, paths: list[str]) -> AsyncIterator[None]:
        """Keep files as they were before they are taken over from a worktree, so that it can be undone."""
        tokens = [await asyncio.to_thread(self.snapshots.before, path) for path in paths]
        try:
            yield
        finally:
            for token in tokens:
                await asyncio.to_thread(self.snapshots.after, token)

    def refresh(self) -> list[str]:
        """Look for changed files of extensions; sentences about those that cannot be used."""
        self.extensions.refresh(at_once=True)
        return self.problems

    @property
    def problems(self) -> list[str]:
        """Sentences about files of extensions and rules that cannot be used, or do not count yet."""
        return [*self.extensions.problems, *self.rules.notices]

    def close(self) -> None:
        self.tasks.close()
        self.snapshots.close()
        if isinstance(self.memory.home, SharedMemories):
            self.memory.home.close()


def _mark(place: Path) -> str:
    """The session's own mark for rules: a file of the project must not know it."""
    path = place / _MARK_FILE
    try:
        return path.read_text()
    except OSError:
        mark = Entropy().text(12)
        write_private(path, mark.encode())
        return mark
