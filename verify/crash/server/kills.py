"""A campaign: clients of every scene work, the server is killed at random moments, and after each restart everything
that was acknowledged is compared with what the server says.

At the end the clients finish their units, the log of acts is judged, and SIGTERM has to end the server with exit code
0. The store is a file of SQLite, or a PostgreSQL server that is started for the campaign.
"""

from __future__ import annotations

import asyncio
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from lyra.core.ids import ProcessRandom, make_random
from verify.crash.crash import OPEN_S_MAX
from verify.crash.server import outside
from verify.crash.server.callers import Scene, ServerLost, World
from verify.crash.server.person import Person
from verify.crash.server.scenes import SCENES
from verify.served import ServedProcess
from verify.servers import PostgresServer

__all__ = ["STORES", "Result", "run"]

STORES: Final = ("sqlite", "postgresql")
_QUIET_S: Final = 60.0  # for clients to notice that the server is gone
_END_S: Final = 120.0  # for their last units
_LIFE_S: Final = (0.1, 2.5)
_FAILURES_MAX: Final = 20


class Result(NamedTuple):
    """What came of some kills."""

    kills: int
    acknowledged: int  # calls that were answered
    units: int
    acts: int
    doubts: int  # that a person was asked about
    start_s_max: float  # of CPU, until it took requests
    failures: list[str]


def run(
    kills: int,
    seed: int = 1,
    *,
    store: str = "sqlite",
    clients: int = 1,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Result:
    """Kill a server so many times; `clients` is how many of each scene there are."""
    with tempfile.TemporaryDirectory(prefix="lyra-server-crash-") as name, _store(store, Path(name)) as db:
        return asyncio.run(_campaign(Path(name), db, kills, seed, clients, progress))


@contextmanager
def _store(store: str, folder: Path) -> Iterator[str]:
    if store == "sqlite":
        yield str(folder / "server.db")
        return
    with PostgresServer(fsync=False) as database:
        yield database.url


async def _campaign(
    folder: Path, db: str, kills: int, seed: int, clients: int, progress: Callable[[int, int], None]
) -> Result:
    log_file = folder / "outside.log"
    served = ServedProcess(folder, db, load=Path(outside.__file__), env={outside.LOG_VARIABLE: str(log_file)})
    rng = make_random(seed)
    slowest = 0.0
    world = World(served, log_file)
    Person.answered = 0
    scenes = _scenes(world, clients, rng)
    tasks: list[asyncio.Task[None]] = []
    try:
        await served.start()
        await served.start_worker()
        world.open()
        tasks = [asyncio.create_task(scene.live()) for scene in scenes]
        done = 0
        while done < kills and len(world.failures) < _FAILURES_MAX:
            await asyncio.sleep(rng.uniform(*_LIFE_S))
            await _kill(world, tasks)
            await served.start()
            slowest = max(slowest, served.cpu_s())
            await world.reconnect()
            await _compare(world, scenes)
            await _worker_is_back(world)
            world.open()
            done += 1
            progress(done, kills)
        await _finish(world, scenes, tasks)
    except Exception as error:  # noqa: BLE001 - what a client was not prepared for is a failure, too
        world.fail("".join(traceback.format_exception(error)[-3:]))
        done = max(1, served.life - 1)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await world.close()
        served.close()
    if slowest > OPEN_S_MAX:
        world.fail(f"a start took {slowest:.1f} s of CPU time")
    failures = [*world.failures, *world.log.failures(), *_complaints(served.errors)]
    units = sum(scene.units for scene in scenes)
    return Result(done, world.acknowledged, units, world.log.acts(), Person.answered, slowest, failures)


def _complaints(text: str) -> list[str]:
    """Lines of a log that tell of a defect."""
    return [line for line in text.splitlines() if "Traceback" in line or "never retrieved" in line]


def _scenes(world: World, clients: int, rng: ProcessRandom) -> list[Scene]:
    kinds = [*(kind for kind in SCENES for _ in range(clients)), Person]
    return [kind(world, number, rng) for number, kind in enumerate(kinds)]


async def _kill(world: World, tasks: list[asyncio.Task[None]]) -> None:
    """Kill the server and wait until every client waits for its next life."""
    world.shut()
    world.served.kill()
    async with asyncio.timeout(_QUIET_S):
        while world.waiting < len(tasks):
            _raise_ended(tasks)
            await asyncio.sleep(0.02)


def _raise_ended(tasks: list[asyncio.Task[None]]) -> None:
    """A client that ended did so by an error."""
    for task in tasks:
        if task.done():
            task.result()
            raise AssertionError("a client ended")


async def _compare(world: World, scenes: list[Scene]) -> None:
    for scene in scenes:
        try:
            await scene.compare()
        except ServerLost:
            world.fail(f"{scene.user}: the restarted server did not answer")


async def _worker_is_back(world: World) -> None:
    """Wait until the worker has told the new server which agents it runs; pipelines with them can be started again."""
    async with asyncio.timeout(_QUIET_S):
        while True:
            listed = await world.request("GET", "/api/agents", user="")
            if "deliver" in {agent["name"] for agent in listed["agents"]}:
                return
            await asyncio.sleep(0.05)


async def _finish(world: World, scenes: list[Scene], tasks: list[asyncio.Task[None]]) -> None:
    """Let every client end its unit of work; then end the server by SIGTERM."""
    person = next(scene for scene in scenes if isinstance(scene, Person))
    world.is_ending = True
    async with asyncio.timeout(_END_S):
        while not all(task.done() for task in tasks):
            await person.look()
            await asyncio.sleep(0.1)
    for task in tasks:
        task.result()
    await _compare(world, scenes)
    code = await world.served.stop()
    if code != 0:
        world.fail(f"SIGTERM ended the server with exit code {code}")
