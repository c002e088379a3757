"""Equipment: what the agent of a session has beside the built-in tools: prompt, skills, hooks, plugins, map, snapshots,
diagnostics.

Made when a session is opened; `options` gives the HeadlessOptions with everything put in. Files of extensions are
looked at again at each turn (`refresh`). Nothing here decides on a call. `SessionPrompt` makes its system prompt. A
tool layer keeps files as they were before a call changes them, so that a turn can be undone.

`GitActs` notes what calls of the tool Git have moved, so that an undo takes it back and a redo gives it again: around
each call the branches, tags, stash and what is checked out are noted, and the index is kept. `move` puts them back to
before a turn or forward again, where no other hand has moved them since. Commits stay in the repository until git
removes them. What a push has sent elsewhere is not taken back.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.agents.headless.options import HeadlessOptions
from lyra.config import Config
from lyra.config.files import write_private
from lyra.config.trust import trust_for
from lyra.core.budgets.budget import Budget
from lyra.core.clock import SystemClock
from lyra.core.ids import Entropy
from lyra.core.tool import Tool, ToolCall
from lyra.core.user_folders import data_folder
from lyra.sage.agent.tasks.state import TaskRecord
from lyra.sage.agent.tasks.task_list import TaskList
from lyra.sage.agent.tasks.tools import task_tools
from lyra.sage.agent.worktrees.worktrees import Worktrees, worktrees_folder
from lyra.sage.extensions.extensions import Extensions
from lyra.sage.extensions.hooks.hooks import Hooks
from lyra.sage.project.prompt import system_prompt, with_folder_rules
from lyra.sage.project.rules import ProjectRules
from lyra.sage.session.snapshots import Snapshots
from lyra.tools.builtin.workspace import Workspace
from lyra.tools.git.repository import GitRefs, GitRepository, read_head
from lyra.tools.permissions.subjects import GIT, facts_of
from lyra.tools.source import ToolSource
from lyra.tools.wrapped import Middleware, Next, add_layers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lyra.kernel.base.tasks import Tasks
    from lyra.sage.project.git_state import GitState


AGENT: Final = "sage"  # the name of the agent and the pid of its process, in every session's store

_MARK_FILE = "rules-mark"  # what begins the rules of a subfolder in a tool's result
_FOLDER: Final = "git"
_FILE: Final = "acts.jsonl"
_INDEX_BYTES_MAX: Final = 64 << 20


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
        self.hooks = Hooks.for_session(options.hooks, config, folder, session_id=place.name, more=plugin_hooks)
        self.snapshots = Snapshots(place, [folder, *options.also])
        self.git_acts = GitActs(place, lambda: self.snapshots.turn)
        self.rules = ProjectRules(folder, trust=trust, mark=_mark(place))
        self.tasks = TaskList(
            definitions=self.extensions.sub_agents,
            folder=place,
            pid=AGENT,
            worktrees=Worktrees(folder, worktrees_folder(place), around=self._keeping),
            notify=notify,
            budget=budget,
            placer=options.placer,
        )
        self.prompt = SessionPrompt(folder, options.also, self.rules, mode, attended=options.attended)

    def options(self, **changes: Any) -> HeadlessOptions:
        """Return the options of the session with all that it has."""
        given = self._given
        return msgspec.structs.replace(
            given,
            system=self.prompt if given.system is None else given.system,
            more_tools=self._more_tools,
            wrap=self._wrap_tools,
            hooks=self.hooks,
            memory=False,  # what is to last between sessions stands in files of rules
            rights=tuple(self.tasks.worktrees.rights),
            **changes,
        )

    def _more_tools(self, workspace: Workspace) -> list[Tool | ToolSource]:
        from lyra.sage.project.repo_map.repo_map import RepoMap, repo_map_tool

        return [
            *task_tools(self.tasks),
            repo_map_tool(workspace, RepoMap(workspace, cache_folder=str(data_folder() / "maps"))),
            self.extensions,
        ]

    def _on_change(self) -> None:
        if isinstance(self.hooks, Hooks):  # a session that began without hooks has none until it is opened again
            self.extensions.put_hooks(self.hooks)

    def _wrap_tools(self, tools: Iterable[Tool | ToolSource]) -> list[Tool | ToolSource]:
        keeping = keeping_files(self.snapshots, self._folder)
        acts = self.git_acts.keep(self._folder)
        kept: list[Tool | ToolSource] = []
        for tool in tools:
            is_git = isinstance(tool, Tool) and tool.builtin and tool.name == GIT
            layers = [keeping, acts] if is_git else [keeping]
            kept.append(add_layers(tool, layers) if isinstance(tool, Tool) else tool)
        own = with_folder_rules(kept, self.rules)
        if self._diagnostics:
            from lyra.sage.project.diagnostics.after_edit import Diagnostics, add_diagnostics

            own = add_diagnostics(own, Diagnostics(self._diagnostics, Workspace(self._folder, also=self._given.also)))
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


def _mark(place: Path) -> str:
    """Return the session's own mark for rules: a file of the project must not know it."""
    path = place / _MARK_FILE
    try:
        return path.read_text()
    except OSError:
        mark = Entropy().text(12)
        write_private(path, mark.encode())
        return mark


def keeping_files(snapshots: Snapshots, folder: str) -> Middleware:
    """Return the layer for the tools of an agent that works in `folder`."""

    async def mw(call: ToolCall, inner: Next) -> Any:
        facts = facts_of(call.name) if inner.tool.builtin else None
        if inner.tool.harmless or (facts is not None and facts.act in ("read", "talk", "fetch")):
            return await inner(call)
        path = call.arguments.get(facts.argument) if facts is not None and facts.kind == "path" else None
        if isinstance(path, str) and "\0" not in path:
            token = await asyncio.to_thread(snapshots.before, _resolve_path(path, inner.tool, folder))
        else:
            token = await asyncio.to_thread(snapshots.before_command)
        try:
            return await inner(call)
        finally:
            await asyncio.to_thread(snapshots.after, token)

    return mw


def _resolve_path(path: str, tool: Tool, folder: str) -> str:
    return os.path.join(tool.folders[0] if tool.folders else folder, os.path.expanduser(path))


_PLAIN_BRANCH: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,80}\Z")


class SessionPrompt:
    """The system prompt of a session, made anew for each turn from what is there then. `mode` gives the permission mode
    of now."""

    def __init__(
        self, folder: str, also: Sequence[str], rules: ProjectRules, mode: Callable[[], str], *, attended: bool
    ) -> None:
        self.rules = rules
        self._folder = folder
        self._also = also
        self._mode = mode
        self._attended = attended
        self._git: asyncio.Task[GitState | None] | None = None
        self._window_start = 0

    def begin(self, tasks: Tasks) -> None:
        """Ask git in the background, as a task of the kernel."""
        if self._git is None and read_head(self._folder) is not None:
            from lyra.sage.project.git_state import git_state

            self._git = tasks.start(git_state(self._folder), name="lyra-git-state")

    async def __call__(self, session: Any) -> str:
        """Return the prompt for the next turn of an agent's session."""
        window = session.window
        if window.start != self._window_start:
            self._window_start = window.start
            self.rules.tell_again()
        if self._git is not None:
            await asyncio.wait([self._git])
        return self.now()

    def now(self) -> str:
        """Return the prompt as it would be now; before git has answered, without it."""
        return system_prompt(
            self._folder,
            self._also,
            attended=self._attended,
            mode=self._mode(),
            date=datetime.fromtimestamp(SystemClock().now(), UTC).date().isoformat(),
            rules=self.rules,
            git=self._git_state(),
        )

    def _git_state(self) -> GitState | None:
        done = self._git is not None and self._git.done() and not self._git.cancelled()
        state = self._git.result() if done and self._git is not None and self._git.exception() is None else None
        if state is None:
            return None
        branch, upstream = (name if _PLAIN_BRANCH.match(name) else "" for name in (state.branch, state.upstream))
        return state._replace(branch=branch, upstream=upstream, commits=())


class GitAct(msgspec.Struct, frozen=True):
    """One call that moved something, in the repository of `root`."""

    number: int
    turn: int
    root: str
    before: GitRefs
    after: GitRefs
    undone: bool = False


class GitActs:
    """The acts of a session, in a folder of its own; `turn` gives the number of the turn under way."""

    def __init__(self, place: Path, turn: Callable[[], int]) -> None:
        self._folder = place / _FOLDER
        self._turn = turn
        self._acts: dict[int, GitAct] = {}
        with contextlib.suppress(OSError):
            for line in (self._folder / _FILE).read_bytes().splitlines():
                with contextlib.suppress(msgspec.MsgspecError):  # the last line of a killed process
                    act = msgspec.json.decode(line, type=GitAct)
                    self._acts[act.number] = act

    def keep(self, tool_root: str) -> Middleware:
        """Return the layer for the tool Git of an agent that works in this folder."""

        async def mw(call: ToolCall, inner: Next) -> Any:
            head = read_head(inner.tool.folders[0] if inner.tool.folders else tool_root)
            if head is None:
                return await inner(call)
            repository = GitRepository(head)
            before, index = await repository.refs(), _read_index(repository.index)
            try:
                return await inner(call)
            finally:
                after = await repository.refs()
                if after != before or index != _read_index(repository.index):
                    self._add(head.root, before, after, index)

        return mw

    def _add(self, root: str, before: GitRefs, after: GitRefs, index: bytes | None) -> None:
        number = len(self._acts) + 1
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if index is not None:
            self._index_file(number).write_bytes(index)
        self._write(GitAct(number, self._turn(), root, before, after))

    def _write(self, act: GitAct) -> None:
        self._acts[act.number] = act
        with (self._folder / _FILE).open("ab") as file:
            file.write(msgspec.json.encode(act) + b"\n")

    def _index_file(self, number: int, *, after: bool = False) -> Path:
        return self._folder / f"{number}.{'after' if after else 'index'}"

    async def move(self, undone: Collection[int], redone: Collection[int] = ()) -> list[str]:
        """Take back what turns have moved, the last first, and do again what others had; sentences about what was done
        and what was not."""
        told: list[str] = []
        acts = sorted(self._acts.values(), key=lambda act: act.number)
        back = [act for act in reversed(acts) if act.turn in undone and not act.undone]
        for act in (*back, *(act for act in acts if act.turn in redone and act.undone)):
            before, after = (act.after, act.before) if act.undone else (act.before, act.after)
            head = read_head(act.root)
            if head is None:
                return [*told, "git: there is no repository any more"]
            repository = GitRepository(head)
            now = _read_index(repository.index)
            index = _read_index(self._index_file(act.number, after=act.undone))
            problem = await repository.restore_refs(before, after, index)
            if problem:
                return [*told, f"git: {problem}"]
            if now is not None:
                self._index_file(act.number, after=not act.undone).write_bytes(now)
            self._write(msgspec.structs.replace(act, undone=not act.undone))
            told += _describe(self._acts[act.number])
        return told


def _describe(act: GitAct) -> list[str]:
    """Return sentences about branches and tags that an undo has moved, or a redo."""
    names = {*act.before.refs, *act.after.refs}
    moved = sorted(name for name in names if act.before.refs.get(name) != act.after.refs.get(name))
    told = "is again as before; its commit was {}" if act.undone else "is at {} again"
    return [
        f"git: {name.removeprefix('refs/heads/')} {told.format(act.after.refs[name][:10])}"
        for name in moved
        if name in act.after.refs and not name.startswith("refs/remotes/")
    ]


def _read_index(path: str | Path) -> bytes | None:
    try:
        data = Path(path).read_bytes()
    except OSError:
        return None
    return data if len(data) <= _INDEX_BYTES_MAX else None
