"""A served kernel for the tests of pages: the scene of `lyra demo --web` on a free port of this machine.

`Stage.kernel` is the kernel itself, so that a test makes things happen and looks in the page. Three people can log in:
an operator, a user and a viewer. Work comes only when a test brings it (`office.bring`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from lyra.cli.demo.web.show import Office, Scene
from lyra.core.address import Address
from lyra.kernel.kernel import Kernel
from lyra.server.identity import TokenHolder, TokenTable
from lyra.server.serve import Server
from lyra.server.settings import ServeSettings

__all__ = ["OPERATOR", "USER", "VIEWER", "Stage", "staged"]

OPERATOR: Final = "operator-token-0123456789"
USER: Final = "user-token-0123456789abcdef"
VIEWER: Final = "viewer-token-0123456789abcdef"
_PEOPLE: Final = {
    OPERATOR: TokenHolder("olga", "operator"),
    USER: TokenHolder("ada", "user"),
    VIEWER: TokenHolder("vera", "viewer"),
}
_PATIENCE_S: Final = 30.0
_PACE: Final = 0.05


class Stage(NamedTuple):
    """See the module."""

    server: Server
    scene: Scene
    office: Office

    @property
    def kernel(self) -> Kernel:
        return self.server.kernel

    @property
    def url(self) -> str:
        return self.server.ready_line()["http"]

    @property
    def token(self) -> str:
        return OPERATOR

    async def until(self, holds: Callable[[], Any]) -> Any:
        """What the function gives as soon as it is true."""
        async with asyncio.timeout(_PATIENCE_S):
            while not (value := holds()):
                await asyncio.sleep(0.01)
            return value

    async def question(self, text: str = "") -> Any:
        """The first question that waits and has this text."""
        return await self.until(
            lambda: next((row for row in self.kernel.interrupts.pending() if text in row.question), None)
        )


@asynccontextmanager
async def staged(folder: Path, *, pace: float = _PACE, has_past: bool = False) -> AsyncIterator[Stage]:
    settings = ServeSettings(tokens=TokenTable(_PEOPLE), http=Address("127.0.0.1", 0), drain_s=0.2)
    scene = Scene(folder, pace=pace, has_past=has_past)
    kernel = Kernel(str(folder / "stage.db"))
    try:
        async with Server(kernel, settings, setup=scene.prepare) as server:
            yield Stage(server, scene, Office(scene))
    finally:
        await scene.close()
