"""How a durable Vega run is forked or gone on with: by `vega replay` and `vega resume`, which `lyra replay` names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lyra.errors import ConfigError, LyraError

if TYPE_CHECKING:
    from lyra.cli.replay.opened import OpenedRun

__all__ = ["not_here"]


def not_here(run: OpenedRun, number: int | None) -> ConfigError:
    """The mistake of asking `lyra replay` for a fork at a step, or to go on where there is none, with the command that
    does it."""
    from lyra.vega.replay.fork_run import replay_command

    name, path = run.timeline.name, run.timeline.location
    if number is None:
        return ConfigError(
            f"{name} is a run of a Vega program", hint=f"go on with it: {replay_command(name, path, 'resume')}"
        )
    effect = _effect(run, number)
    place = f"its effect {effect}" if effect is not None else "one of its effects"
    asked = f"fork reply {'N' if effect is None else effect} TEXT"
    return ConfigError(
        f"{name} is a run of a Vega program, which is forked at {place}",
        hint=f"{replay_command(name, path)} --live, and there: {asked}; or on its page, in the browser",
    )


def _effect(run: OpenedRun, number: int) -> int | None:
    """The effect of the program that a step answers; None where the program cannot be read or it is inside of one."""
    from lyra.vega.replay.replayed_run import ReplayedRun

    assert run.vega is not None
    try:
        effect = ReplayedRun(run.vega).effect(run.timeline.step(number))
    except LyraError:
        return None
    return None if effect is None else effect.number
