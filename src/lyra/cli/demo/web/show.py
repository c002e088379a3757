"""Serves the web demo on this machine, opens the page and waits for Ctrl-C.

The server listens on loopback with a token that is made for this run; the address that is printed has it. What the team
does is in a store of its own, which is removed at the end unless the caller keeps it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from lyra.cli.demo.web.agents import CHANGE_BUDGET
from lyra.cli.demo.web.scene import PIPELINE, SERVICES, Scene
from lyra.cli.process_io import on_stop_signal
from lyra.cli.render import note
from lyra.core.address import Address
from lyra.core.clock import SystemClock
from lyra.core.ids import Entropy
from lyra.errors import LyraError
from lyra.kernel.kernel import Kernel
from lyra.server.identity import TokenHolder, TokenTable
from lyra.server.serve import Server
from lyra.server.settings import ServeSettings

if TYPE_CHECKING:
    from lyra.kernel.programs.handle import Handle


_DRAIN_S: Final = 1.0  # nothing here has to be finished


class WebDemo(NamedTuple):
    """What a person asked for: a port (0: any), whether to open the page, and how to run it."""

    store: str
    folder: Path
    port: int
    opens: bool
    as_json: bool
    seed: int
    pace: float


def run_web_demo(demo: WebDemo) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    logging.getLogger("lyra").setLevel(logging.ERROR)  # the page shows what waits and what crashed
    asyncio.run(_serve(demo))


async def _serve(demo: WebDemo) -> None:
    stopped = asyncio.Event()
    on_stop_signal(stopped.set)
    token = Entropy().token()
    settings = ServeSettings(
        tokens=TokenTable({token: TokenHolder("you")}), http=Address("127.0.0.1", demo.port), drain_s=_DRAIN_S
    )
    await live_through_past(demo.store, demo.folder, seed=demo.seed)
    scene = Scene(demo.folder, seed=demo.seed, pace=demo.pace)
    try:
        async with Server(Kernel(demo.store), settings, setup=scene.prepare) as server, asyncio.TaskGroup() as group:
            work = group.create_task(Office(scene, FIRST_ROUND).run())
            address = server.ready_line()["http"]
            _announce(demo, address, token)
            if demo.opens:
                await asyncio.to_thread(webbrowser.open, f"{address}/?token={token}")
            await stopped.wait()
            work.cancel()
    finally:
        await scene.close()


def _announce(demo: WebDemo, address: str, token: str) -> None:
    url = f"{address}/?token={token}"
    if demo.as_json:
        click.echo(json.dumps({"http": address, "url": url, "token": token}))
    else:
        click.echo(url)
        note("A team of agents is at work behind this page. Ctrl-C ends it; nothing leaves this machine.")
    sys.stdout.flush()


# ---------------------------------------------------------------- past

_DAY_S: Final = 86_400.0
_ROUNDS_A_DAY: Final = (3, 5, 2, 6, 4, 1)  # of the days before today, the oldest first
_PACE: Final = 0.01
_PATIENCE_S: Final = 20.0
FIRST_ROUND: Final = sum(_ROUNDS_A_DAY)  # of the demo itself


class BehindClock(SystemClock):
    """The machine's clock, with a wall clock that is `behind_s` behind."""

    __slots__ = ("behind_s",)

    def __init__(self, behind_s: float) -> None:
        self.behind_s = behind_s

    def now(self) -> float:
        return SystemClock.now() - self.behind_s


async def live_through_past(store: str, folder: Path, *, seed: int) -> None:
    """Let the team work for the days before today."""
    number = 0
    for days_ago, rounds in zip(range(len(_ROUNDS_A_DAY), 0, -1), _ROUNDS_A_DAY, strict=True):
        scene = Scene(folder, seed=seed, pace=_PACE, has_nodes=False)
        async with Kernel(store, BehindClock(days_ago * _DAY_S)) as kernel:
            await scene.prepare(kernel)
            office = Office(scene, number)
            changes = [office.change(1042 + office.take_number(), with_trouble=False) for _ in range(rounds)]
            async with asyncio.timeout(_PATIENCE_S):
                for change in changes:
                    await change.wait()
        number = office.round


# ---------------------------------------------------------------- office

ROUNDS_MAX: Final = 1_000
QUESTIONS_MAX: Final = 3
_BRISK_ROUNDS: Final = 100
_BRISK_S: Final = 5.0
_QUIET_S: Final = 30.0
_TITLES: Final = (
    "page through the export",
    "check tokens in constant time",
    "rename two functions",
    "show amounts with cents",
    "retry uploads that time out",
    "sort search results by date",
)
_log: Final = logging.getLogger("lyra.demo")


class Office:
    """See the module."""

    def __init__(self, scene: Scene, first_round: int = 0) -> None:
        self._scene = scene
        self._first_round = first_round
        self._last_round = first_round + ROUNDS_MAX
        self._brisk_until = first_round + _BRISK_ROUNDS
        self.round = first_round

    @property
    def _kernel(self) -> Kernel:
        return self._scene.kernel

    async def run(self) -> None:
        """Bring work until there is none left; ends with its task."""
        async with asyncio.TaskGroup() as group:
            while self.round < self._last_round:
                group.create_task(self.bring(self.take_number()))
                await asyncio.sleep(_BRISK_S if self.round < self._brisk_until else _QUIET_S)

    def take_number(self) -> int:
        """The number of the next round."""
        self.round += 1
        return self.round - 1

    async def bring(self, number: int) -> None:
        """The work of one round; ends when its pipeline has ended."""
        try:
            self.change(1042 + number)
            if self._questions() < QUESTIONS_MAX:
                await self._ask(number)
            await asyncio.to_thread(self._execute, number)
            await self._kernel.dispatch(str(SERVICES[number % 2]["name"]), {"metadata": {"round": str(number)}})
            if number % 3 == 0:
                await self._newsletter(number)
        except LyraError as error:  # the page shows it where it happened; the next round comes all the same
            _log.debug("round %d: %s", number, error)

    def _questions(self) -> int:
        return len(self._kernel.interrupts.list_interrupts(status="pending"))

    def change(self, number: int, *, with_trouble: bool = True) -> Handle[Any]:
        """Have a change reviewed; now and then with trouble: a model that fails, or too little money."""
        change_title = _TITLES[(number + self._scene.seed) % len(_TITLES)]
        trouble = "security" if number % 5 == 4 else "correctness" if number % 17 == 9 else ""
        budget = (
            "$0.001" if with_trouble and number % 11 == 3 else CHANGE_BUDGET
        )  # one that cannot pay for its first step
        program = self._scene.programs.change
        trouble = trouble if with_trouble else ""
        return self._kernel.spawn(program, number, change_title, trouble, name=f"change {number}", budget=budget)

    async def _ask(self, number: int) -> None:
        """A letter that leads to a question of an agent, or a release that asks for its version."""
        order = number - self._first_round
        if order % 4 == 0:
            with suppress(LyraError):
                await self._kernel.send("refunds", {"text": f"Please pay order A-{1042 + number} back."})
        elif order % 6 == 1:
            name = f"release {1042 + number}"
            self._kernel.spawn(self._scene.programs.release, 1042 + number, name=name, budget=CHANGE_BUDGET)

    def _execute(self, number: int) -> None:
        self._scene.execute_node("shipping_quote_v1", 200 if number < self._brisk_until else 5)
        self._scene.execute_node("order_total_v1", 8)
        self._scene.execute_node("loyalty_points_v1", 3)

    async def _newsletter(self, number: int) -> None:
        envelope = {"raw_input": f"newsletter {number // 3 + 1}"}
        async for _event in self._kernel.execute_pipeline(PIPELINE, envelope, pid=f"newsletter-{number // 3 + 1}"):
            pass
