"""The work of the web demo: changes to review, letters of customers, newsletters, executions of nodes.

`Office.run` brings one round after the other, at first every few seconds and later less often. After `ROUNDS_MAX` no
work comes any more, so that a forgotten demo neither grows nor heats the room. What comes in a round follows from the
seed and its number. Questions that wait for a person are never more than `QUESTIONS_MAX`.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lyra.cli.demo.web.programs import CHANGE_BUDGET
from lyra.cli.demo.web.scene import PIPELINE, SERVICES, Scene
from lyra.errors import LyraError

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.programs.handle import Handle


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
