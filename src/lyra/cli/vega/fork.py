"""A fork of a run, made from the prompt of `vega replay`: see `lyra.vega.replay.fork`.

What the fork prints is collected, since the terminal belongs to the prompt; `vega resume ID` prints it again. It stays
in the store as a run of its own.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from lyra.errors import LyraError, VegaError

if TYPE_CHECKING:
    from lyra.cli.app import Invocation
    from lyra.vega.replay.fork import RunFork
    from lyra.vega.replay.timeline import Timeline


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
    from lyra.vega.durable.runs import DurableRun, Runs
    from lyra.vega.replay.fork import RunFork, change_at, difference
    from lyra.vega.replay.reader import read

    with Runs(path) as runs:
        change = change_at(runs[timeline.run_id], timeline, number, text, is_error=is_error)
    with RunFork(path, timeline.run_id, change, number, name=name) as fork:
        error = _lived(invocation, fork, is_live=is_live)
        new_run = DurableRun(fork.space)
        old_step, new_step = difference(timeline, read(new_run), number)
        return {
            "run": fork.run_id,
            "of": timeline.run_id,
            "effect": number,
            "was": change.was,
            "output": new_run.output(),
            "state": new_run.state,
            "error": error,
            "from_journal": fork.book.taken,
            "new": fork.book.new,
            "live": is_live,
            "differs": _differs(old_step, new_step),
            "first_difference": None if old_step is None and new_step is None else (new_step or old_step).number,  # type: ignore[union-attr]
            "cost_usd": new_run.spent.get("usd", 0) / 1_000_000,
        }


def _lived(invocation: Invocation, fork: RunFork, *, is_live: bool) -> str:
    """Run the fork to its end; the error that ended it, if one did."""
    from lyra.cli.vega.setup import with_servers

    invocation.flags[:0] = [flag for flag in fork.settings if flag not in invocation.flags]
    options = fork.options()

    async def main() -> Any:
        return await fork.execute(invocation.config, options, is_live=is_live)

    try:
        asyncio.run(with_servers(invocation, fork.program, options, main) if is_live else main())
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
