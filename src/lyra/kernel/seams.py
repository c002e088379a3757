"""What a run that is kept, repeated, forked or rehearsed adds to its kernel or replaces in it.

    Kernel(store, seams=Seams(door=ForkDoor, pids=by_call))

A kernel has one door, one table of programs and one way to number processes, and none of them can be assigned over
once the kernel is made. `Seams` is the one way to hand in others, before anything has happened.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from lyra.kernel.effects.door import Door
from lyra.kernel.programs.registry import Programs

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core
    from lyra.kernel.base.subsystem import State, Subsystem
    from lyra.kernel.effects.gates import Declared
    from lyra.kernel.process.process import Process
    from lyra.kernel.programs.lifetime import Pids


class Seams(NamedTuple):
    """Each is as in every other kernel unless given."""

    # Makes the door, given the core, the declared effects and how a question is put to a human.
    door: Callable[[Core[Process], Declared, Callable[..., Awaitable[Any]]], Door] = Door
    # Makes the table of programs, given what to call when a program becomes known and the first programs.
    programs: Callable[[Callable[[str], None], Iterable[Any]], Programs] = Programs
    pids: Pids | None = None  # how children are numbered; None counts the rows of the journal
    states: tuple[State, ...] = ()  # what the layers above remember in the journal, beside the subsystems
    # The pids that continue when the kernel opens, with all below them; None: all. The others stand still.
    wakes: Collection[str] | None = None
    # Makes what a shard of a cluster has beside the other subsystems, given the parts: `remote.posts.Remote`.
    remote: Callable[[Any], Subsystem] | None = None
    kills: bool = True  # whether `kernel.kill` ends a process: a replay lets it continue to where its record ends
