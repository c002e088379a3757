"""A fork as a run of its own: its journal is written beside that of the other run, and executed to its end.

`vega replay` and the server make their forks here. Which servers of tools and which nodes a fork has, and in which loop
it runs, is for them to say; the program, the model, the arguments and the budget are those that the store keeps.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final, Self

from lyra.core.clock import SystemClock
from lyra.errors import ConfigError
from lyra.store.space import Space
from lyra.vega.durable.durable_run import RunExecution
from lyra.vega.durable.runs import DurableRun, Runs
from lyra.vega.replay.fork import copied_to, fork_door, fresh_name, live_on
from lyra.vega.runtime.world import RunOptions

if TYPE_CHECKING:
    from lyra.config import Config
    from lyra.vega.bytecode.program import Program
    from lyra.vega.replay.fork import ForkChange


# What a program may import that only a command line starts for it, and in words.
_OUTSIDE: Final = {"mcp": "MCP servers", "node": "nodes"}


class RunFork:
    """The fork of a run with another answer at the effect `number`. Its journal is in the store once this is made."""

    def __init__(self, path: str, run_id: str, change: ForkChange, number: int, *, name: str | None = None) -> None:
        with Runs(path) as runs:
            run = runs[run_id]
            if name in runs.names:
                raise ConfigError(f"there is a run {name!r} already", hint="take another name, or none", run=name)
            self.began = run.began
            self.space = Space(path, name or fresh_name(runs.names, run_id))
            try:
                self.book = copied_to(run, self.space, change, number, SystemClock().now())
                self._before = DurableRun(self.space)  # at its place the run may have had another program than now
                self.program: Program = self._before.program()
            except BaseException:
                self.space.close()
                raise

    @property
    def run_id(self) -> str:
        return self.space.name

    @property
    def settings(self) -> list[str]:
        """The settings that the run was started with, as flags."""
        return list(self.began.get("settings", ()))

    def options(self) -> dict[str, Any]:
        """How the run was started: what `RunOptions` takes."""
        from lyra.core.budgets.money import Money

        began = self.began
        return {
            "model": began["model"],
            "args": tuple(began["args"]),
            "folder": began["folder"],
            "sequential": began.get("sequential", False),
            "budget": None if began["budget"] is None else Money(began["budget"]),
        }

    async def execute(self, config: Config | None, options: dict[str, Any], *, is_live: bool) -> Any:
        """Run it to its end. What it asks as the other run did is answered as it was there; the rest is performed where
        it is live, and refused where it is not. Its output is in the store."""
        chosen = RunOptions(write=_nowhere, warn=_nowhere, **options)
        door = fork_door(self.book, is_live=is_live)
        execution = RunExecution(self.space, self.program, chosen, before=self._before, config=config, door=door)
        live_on(execution)
        return await execution.run()

    def close(self) -> None:
        self.space.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def started_outside(program: Program) -> str:
    """What a program imports that only a command line starts for it; "" where that is nothing."""
    kinds = {kind for kind, *_ in program.imports}
    return " and ".join(words for kind, words in _OUTSIDE.items() if kind in kinds)


def replay_command(run_id: str, path: str, verb: str = "replay") -> str:
    """The command that steps through a run, or does something else with it."""
    return f"vega {verb} {run_id} --db {shlex.quote(path)}"


def _nowhere(_: str) -> None:
    pass
