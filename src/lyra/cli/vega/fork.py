"""A fork of a run, made from the prompt of `vega replay`: see `lyra.vega.replay.fork`.

What the fork prints is collected, since the terminal belongs to the prompt; `vega resume ID` prints it again. It stays
in the store as a run of its own.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from lyra.errors import ConfigError, LyraError, VegaError

if TYPE_CHECKING:
    from lyra.cli.app import Invocation
    from lyra.store.space import Space
    from lyra.vega.durable.runs import DurableRun
    from lyra.vega.replay.timeline import Timeline

__all__ = ["make_fork"]


def make_fork(
    invocation: Invocation,
    path: str,
    timeline: Timeline,
    *,
    name: str | None,
    number: int,
    text: str,
    is_error: bool,
    is_live: bool,
) -> dict[str, Any]:
    """Change one reply and run on; what came of it."""
    from lyra.core.clock import SystemClock
    from lyra.store.space import Space
    from lyra.vega.durable.runs import DurableRun, Runs
    from lyra.vega.replay import fork
    from lyra.vega.replay.reader import read

    with Runs(path) as runs:
        run = runs[timeline.run_id]
        change = fork.change_at(run, timeline, number, text, is_error=is_error)
        if name in runs.names:
            raise ConfigError(f"there is a run {name!r} already", hint="take another name, or none", run=name)
        space = Space(path, name or fork.fresh_name(runs.names, run.id))
        try:
            book = fork.copied_to(run, space, change, number, SystemClock().now())
            error = _lived(invocation, space, run, book, is_live=is_live)
            new_run = DurableRun(space)
            old_step, new_step = fork.difference(timeline, read(new_run), number)
            return {
                "run": space.name,
                "of": run.id,
                "effect": number,
                "was": change.was,
                "output": new_run.output(),
                "state": new_run.state,
                "error": error,
                "from_journal": book.taken,
                "new": book.new,
                "live": is_live,
                "differs": _differs(old_step, new_step),
                "first_difference": None if old_step is None and new_step is None else (new_step or old_step).number,  # type: ignore[union-attr]
                "cost_usd": new_run.spent.get("usd", 0) / 1_000_000,
            }
        finally:
            space.close()


def _lived(invocation: Invocation, space: Space, run: DurableRun, book: Any, *, is_live: bool) -> str:
    """Run the fork to its end; the error that ended it, if one did."""
    from lyra.cli.vega.setup import with_servers
    from lyra.core.budgets.money import Money
    from lyra.vega.durable.durable_run import RunExecution
    from lyra.vega.durable.runs import DurableRun
    from lyra.vega.replay.fork import fork_door, live_on
    from lyra.vega.runtime.world import RunOptions

    forked = DurableRun(space)  # at its place the run may have had another program than it has now
    began = run.began
    invocation.flags[:0] = [flag for flag in began.get("settings", ()) if flag not in invocation.flags]
    program = forked.program()
    options: dict[str, Any] = {
        "model": began["model"],
        "args": tuple(began["args"]),
        "folder": began["folder"],
        "sequential": began.get("sequential", False),
        "budget": None if began["budget"] is None else Money(began["budget"]),
    }

    async def main() -> Any:
        chosen = RunOptions(write=lambda _: None, warn=lambda _: None, **options)
        life = RunExecution(
            space, program, chosen, before=forked, config=invocation.config, door=fork_door(book, is_live=is_live)
        )
        live_on(life)
        return await life.run()

    try:
        if is_live:
            asyncio.run(with_servers(invocation, program, options, main))
        else:
            asyncio.run(main())
    except VegaError as error:
        return error.message
    except LyraError as error:
        return f"{error.message}" + (f" ({error.hint})" if error.hint else "")
    return ""


def _differs(old_step: Any, new_step: Any) -> str:
    if old_step is None and new_step is None:
        return "nothing after that differs"
    step = new_step or old_step
    place = f" ({step.place})" if step.place else ""
    was = "nothing" if old_step is None else old_step.what
    now = "nothing" if new_step is None else new_step.what
    old_text = f"{was} → {old_step.result or old_step.error}" if old_step is not None and was == now else was
    instead = f"{now} → {new_step.result or new_step.error}" if new_step is not None and was == now else now
    return f"it first differs at effect {step.number}{place}: {instead}; it was {old_text}"
