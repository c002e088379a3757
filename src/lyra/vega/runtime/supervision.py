"""`supervised by { … }` and `supervisor` declarations as the kernel's supervision.

A supervised process stands behind a guard, whose pid is the one that programs hold: it goes on working after a
restart. The children of a `supervisor` are registered under their names, so that `whereis` finds the newest. A child
that ends normally is not started again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from lyra.core.policies.policy import Supervision
from lyra.kernel.supervision.child import Child
from lyra.kernel.supervision.supervisor import supervise
from lyra.vega.runtime.durations import backoff, seconds
from lyra.vega.values.values import Duration

if TYPE_CHECKING:
    from lyra.vega.runtime.job import VegaJob

__all__ = ["children", "escalates", "flags", "supervision"]

_WINDOW: Final = Duration(60_000_000_000)


def flags(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a supervisor as the kernel's flags."""
    kernel_flags: dict[str, Any] = {
        "strategy": str(settings.get("strategy", "restart")),
        "max_restarts": int(settings.get("max_restarts", 3)),
        "window_s": seconds(settings.get("window", _WINDOW), "window"),
    }
    if "backoff" in settings:
        kernel_flags["backoff"] = backoff(settings["backoff"])
    return kernel_flags


def supervision(settings: Mapping[str, Any] | None) -> Supervision:
    """What happens to one process when it crashes; unsaid, three restarts within a minute."""
    kernel_flags = flags(settings or {})
    if kernel_flags["strategy"] in ("restart_all", "rest_for_one", "one_for_all"):  # of one child that is the same
        kernel_flags["strategy"] = "restart"
    return Supervision(**kernel_flags)


def escalates(job: VegaJob, settings: Mapping[str, Any] | None) -> bool:
    """Whether a crash of the child also crashes the process that spawns it: only where that process is supervised
    itself, so that a supervisor handles the crash. Elsewhere `escalate` means `stop`."""
    if settings is None or settings.get("strategy") != "escalate":
        return False
    kernel, parent = job.world.kernel, job.ctx.own_process.parent
    return parent is not None and parent.program == kernel.programs.name(supervise)


def children(job: VegaJob, settings: Mapping[str, Any]) -> list[Child]:
    """The children of a supervisor, in order; nested ones are supervisors themselves."""
    world = job.world
    listed: list[Child] = []
    for name, kind, target, what, arguments in settings.get("children", ()):
        if kind == "function":
            seed = world.seed(job.fiber, what, arguments)
            listed.append(
                Child(name, world.programs.process, (world.run_id, seed), "transient", name=world.called(name))
            )
        elif kind == "agent":
            start = (world.run_id, target, world.kept(what))
            listed.append(Child(name, world.programs.agent, start, "transient", name=world.called(name)))
        else:
            inner = children(job, what)
            # One that has used up its restarts ends in order, and has failed all the same: the one above it decides.
            listed.append(Child.supervisor(name, inner, **flags(what), restart="permanent", name=world.called(name)))
    return listed
