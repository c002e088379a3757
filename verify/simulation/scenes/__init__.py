"""What a simulated world is about: a cast of scenes, drawn from its seed.

Every world has durable programs (`workload`). Some have a scene besides them: supervised trees, pipelines, or workers
outside that use entries, services, rate limits, groups and the bus. `cast_of(seed)` says which; `SCENES` are the
makers. A scene furnishes each life of the kernel, begins its work, brings its own trouble, and in the last life brings
what it began to an end. It plays fair: what it does is what users may do. What is right is judged by `invariants`,
`books` and `inspections`; a scene itself judges only what it alone can see, such as who was called.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from lyra.core.ids import ProcessRandom, make_random

if TYPE_CHECKING:
    from verify.simulation.world import Life, World

__all__ = ["CASTS", "POINTS_OF_PARTS", "POINTS_OF_SHARDS", "Scene", "cast_of", "make_scenes", "programs"]

# Which scenes a world has, and how often.
CASTS: Final[dict[tuple[str, ...], int]] = {
    (): 6,
    ("trees",): 3,
    ("pipelines",): 3,
    ("workers",): 3,
    ("trees", "pipelines", "workers"): 1,
}
# Named points that supervisors and subsystems pass; worlds and workloads of programs alone crash at the others.
POINTS_OF_PARTS: Final = ("fact.written", "interrupt.ended", "supervisor.restarting", "pipeline.answered")
# Those that only a shard of a cluster passes: see tests/kernel/remote.
POINTS_OF_SHARDS: Final = ("remote.taken", "remote.delivered")
Cause = Callable[["World", "Life"], Awaitable[None]]


class Scene:
    """One scene of one world; it lives as long as the world, through all lives of the kernel."""

    def __init__(self, world: World, rng: ProcessRandom) -> None:
        self.world = world
        self.rng = rng
        self.trouble: dict[Cause, int] = {}  # what goes on, and how many at a time

    def furnish(self, life: Life) -> None:
        """Before the kernel opens: what a program hands over at every start, such as agents."""

    async def begin(self, world: World, life: Life) -> None:
        """The kernel is open: start what is not there yet."""

    async def finish(self, world: World, life: Life) -> None:
        """In the last life: bring to an end what would go on for ever."""


def cast_of(seed: int) -> tuple[str, ...]:
    """By a die of its own, so that worlds without a scene are what they were."""
    return make_random(seed * 7_919 + 13).choices(list(CASTS), list(CASTS.values()))[0]


def _makers() -> dict[str, Callable[[World, ProcessRandom], Scene]]:
    from verify.simulation.scenes.pipelines import Pipelines  # they need this module
    from verify.simulation.scenes.trees import Trees
    from verify.simulation.scenes.workers import Workers

    return {"trees": Trees, "pipelines": Pipelines, "workers": Workers}


def make_scenes(world: World, cast: tuple[str, ...]) -> list[Scene]:
    makers = _makers()
    return [makers[name](world, make_random(world.seed * 104_729 + number)) for number, name in enumerate(cast)]


def programs() -> list[Callable[..., Any]]:
    """Every program that a scene may start."""
    from verify.simulation.scenes.trees import PROGRAMS as TREES
    from verify.simulation.scenes.workers import PROGRAMS as WORKERS

    return [*TREES, *WORKERS]
