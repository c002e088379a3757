"""Running seeds of simulated clusters: one (`run_seed`), one twice (`same_twice`), or many on several cores
(`run_many`). `Report` says what came of it."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from verify.simulation.cluster.world import ClusterWorld
from verify.simulation.ledger import Violation


class Report(NamedTuple):
    seed: int
    hash: str
    rows: int
    hosts: int  # starts of hosts
    acts: int
    posts: int
    calls: int
    lost: int
    repeated: int
    troubles: dict[str, int]
    shared: dict[str, int]
    points: dict[str, int]
    violations: tuple[Violation, ...]


def run_seed(seed: int, *, verbose: bool = False) -> Report:
    world = ClusterWorld(seed, verbose=verbose)
    world.run()
    return Report(
        seed,
        world.hash(),
        sum(len(ledger.rows) for ledger in world.books.ledgers.values()),
        len(world.hosts) + world.ended,
        sum(world.provider.performed.values()),
        sum(len(posts) for posts in world.books.posted.values()),
        world.network.calls,
        world.network.lost,
        world.network.repeated,
        world.troubles,
        world.shared.count(),
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


def _run_job(job: tuple[int, bool]) -> Report:
    seed, twice = job
    report = same_twice(seed) if twice else run_seed(seed)
    if seed % 20 == 0:
        gc.collect()  # crashed hosts are rings of references
    return report


def run_many(seeds: Iterable[int], *, jobs: int = 1, twice_every: int = 20) -> Iterator[Report]:
    """Reports in the order of the seeds; every `twice_every`-th seed is run twice."""
    work = [(seed, bool(twice_every) and seed % twice_every == 0) for seed in seeds]
    if jobs <= 1:
        yield from map(_run_job, work)
        return
    from multiprocessing import get_context

    with get_context("fork").Pool(jobs) as pool:
        yield from pool.imap(_run_job, work, chunksize=4)
