"""Running seeds: one (`run_seed`), one twice (`same_twice`), or many on several cores (`run_many`).

A seed decides everything: programs, order of steps, faults, crashes, answers, time. `Report` says what came of it.
This is the front of the simulation; `world` is what happens inside a run, `invariants` what is checked.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from verify.simulation.invariants import Violation
from verify.simulation.world import World

__all__ = ["Report", "run_many", "run_seed", "same_twice"]


class Report(NamedTuple):
    seed: int
    hash: str
    rows: int
    lives: int
    acts: int
    points: dict[str, int]
    violations: tuple[Violation, ...]


def run_seed(seed: int, *, verbose: bool = False, cast: tuple[str, ...] | None = None) -> Report:
    """`cast` names the scenes of the world; unsaid, the seed draws them."""
    world = World(seed, verbose=verbose, cast=cast)
    world.run()
    return Report(
        seed,
        world.hash(),
        len(world.ledger.rows),
        len(world.lives),
        sum(world.provider.performed.values()),
        world.points_visited,
        tuple(world.violations),
    )


def same_twice(seed: int) -> Report:
    """Run it twice; a run that is no function of its seed is a violation too."""
    first, second = run_seed(seed), run_seed(seed)
    if first.hash == second.hash:
        return first
    differ = Violation("same_seed", f"two runs of seed {seed} wrote {first.hash} and {second.hash}")
    return first._replace(violations=(*first.violations, differ))


def _one(job: tuple[int, bool]) -> Report:
    seed, twice = job
    report = same_twice(seed) if twice else run_seed(seed)
    if seed % 50 == 0:
        gc.collect()  # crashed worlds are rings of references
    return report


def run_many(seeds: Iterable[int], *, jobs: int = 1, twice_every: int = 20) -> Iterator[Report]:
    """Reports in the order of the seeds; every `twice_every`-th seed is run twice."""
    work = [(seed, bool(twice_every) and seed % twice_every == 0) for seed in seeds]
    if jobs <= 1:
        yield from map(_one, work)
        return
    from multiprocessing import get_context

    with get_context("fork").Pool(jobs) as pool:
        yield from pool.imap(_one, work, chunksize=4)
