"""A loop on which waiting takes no time: when no task is ready, its clock jumps to the next timer.

For work that asks nothing outside. Once nothing is left to wait for, the event that the work was given is set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

_FOR_EVER_S: Final = 1e9


class _VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._ahead_s = 0.0
        self.idle: Callable[[], object] | None = None
        selector: Any = self._selector  # type: ignore[attr-defined]
        self._look = selector.select
        selector.select = self._select

    def time(self) -> float:
        return self._ahead_s

    def _select(self, timeout: float | None = None) -> Any:
        if timeout is None or timeout > 0:
            self._ahead_s += timeout or 0.0
            if self.idle is not None and (timeout is None or self._ahead_s > _FOR_EVER_S):
                self.call_soon(self.idle)
                self.idle = None
        return self._look(0 if self.idle is not None or timeout is not None else 0.001)


def run_in_virtual_time(work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run `work` to its end. The event that it gets is set when no task can go on."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, _VirtualTimeLoop)
        loop.set_exception_handler(lambda *_: None)  # tasks that came to the end of their record
        all_wait = asyncio.Event()
        loop.idle = all_wait.set
        await work(all_wait)

    with asyncio.Runner(loop_factory=_VirtualTimeLoop) as runner:
        runner.run(main())
