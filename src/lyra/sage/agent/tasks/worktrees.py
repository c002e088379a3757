"""TaskWorktrees: the worktrees of a session's sub-agents, by the id of the task."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lyra.errors import ConfigError
from lyra.sage.agent.tasks.runs import TaskRuns
from lyra.sage.agent.worktrees.changes import WorktreeChange
from lyra.sage.agent.worktrees.worktrees import Worktree, Worktrees

if TYPE_CHECKING:
    from lyra.core.rights.capability import Capability


class TaskWorktrees:
    """Without `worktrees` no sub-agent has one."""

    def __init__(self, runs: TaskRuns, worktrees: Worktrees | None) -> None:
        self._runs = runs
        self._worktrees = worktrees

    @property
    def possible(self) -> bool:
        return self._worktrees is not None

    @property
    def rights(self) -> list[Capability]:
        """What the session's agent needs besides, so that its sub-agents can have it."""
        return [] if self._worktrees is None else self._worktrees.rights

    def _required(self) -> Worktrees:
        if self._worktrees is None:
            raise ConfigError("sub-agents of this session have no worktrees")
        return self._worktrees

    def of(self, task_id: str) -> Worktree:
        """The worktree of a sub-agent; ConfigError where it has none."""
        task = self._runs.state.tasks.get(task_id)
        if task is None or task.worktree is None:
            raise ConfigError(f"{task_id[:80]} has no worktree")
        return Worktree.from_data(task.worktree)

    async def create(self, task_id: str) -> Worktree:
        return await self._required().create(task_id)

    async def changes(self, task_id: str) -> list[WorktreeChange]:
        """The files that a sub-agent has changed and that were not taken over yet."""
        return await self._required().changes(self.of(task_id))

    async def take(self, task_id: str, paths: Iterable[str]) -> list[str]:
        """Take files over as they are in the worktree; see `Worktrees.take`."""
        return await self._required().take(self.of(task_id), paths)

    async def merge(self, task_id: str) -> list[str]:
        """Take over all changes, merged with what was committed since; see `Worktrees.merge`."""
        return await self._required().merge(self.of(task_id))

    async def discard(self, task_id: str) -> None:
        """Remove a worktree with all that is in it. Its sub-agent ends, and cannot be resumed."""
        worktree, kernel = self.of(task_id), self._runs.kernel
        process = kernel.processes.get(task_id)
        if process is not None and process.exit is None:
            await kernel.kill(task_id, "shutdown")
            await kernel.process(task_id).wait()
        await self._required().discard(worktree)
        kernel.fact(self._runs.state, task_id, "task.worktree", {"id": task_id, "worktree": None})
        await kernel.durable()

    async def clean_up(self) -> list[str]:
        """Remove worktrees that no task has; gives their ids."""
        if self._worktrees is None:
            return []
        return await self._worktrees.clean_up(task.id for task in self._runs.state.tasks.values() if task.worktree)
