"""A program that is written while it runs: the main process of a REPL.

One kernel process runs piece after piece, so that what a piece starts (agents, processes, links to them) is there for
the next one. A piece that fails leaves the process as it is.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from lyra.core.naming import named
from lyra.errors import ProcessExit
from lyra.vega.machine.fiber import Fiber
from lyra.vega.runtime.driver import PROGRAMS, vega_process
from lyra.vega.runtime.rights import Rights
from lyra.vega.runtime.world import RunOptions, World

if TYPE_CHECKING:
    from collections import deque

    from lyra.kernel.kernel import Kernel
    from lyra.kernel.programs.context import Context
    from lyra.vega.repl.session import ReplSession


class Interactive(World):
    """The World of a REPL: its program is the session's, its main fiber begins with the session's variables."""

    def __init__(self, kernel: Kernel, session: ReplSession, options: RunOptions) -> None:
        super().__init__(kernel, session.program, options, f"repl-{kernel.entropy.text(8)}", programs=PROGRAMS)
        self.linked = session.linked
        self._session = session
        self._mailbox: deque[Any] | None = None
        self._turns: asyncio.Queue[asyncio.Future[Any]] = asyncio.Queue()
        self._handle = kernel.spawn(_pieces, self.run_id, grant=self.rights.grant)

    @property
    def has_ended(self) -> bool:
        process = self.kernel.processes.get(self._handle.pid)
        return process is None or process.exit is not None

    async def turn(self) -> Any:
        """Run the piece that the session compiled last; what it throws is raised here."""
        self.linked = self._session.linked
        self.rights = Rights(self.linked, self.options.folder, self.undeclared_tools.rights)
        process = self.kernel.processes.get(self._handle.pid)
        if process is not None:
            process.grant = self.rights.grant  # a new piece may declare new tools
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._turns.put_nowait(done)
        over = self.kernel.tasks.start(self._handle.wait(), name="vega repl")
        try:
            await asyncio.wait({done, over}, return_when=asyncio.FIRST_COMPLETED)
            if done.done():
                return done.result()
            ended = over.result()
            if ended.error is not None:
                raise ended.error
            raise ProcessExit(f"the process ended: {ended.reason}")
        finally:
            over.cancel()
            self._keep()

    def _keep(self) -> None:
        if self.main is not None:
            self._session.values[:] = self.main.fiber.globals
            self._mailbox = self.main.fiber.mailbox

    def stop(self) -> None:
        if not self.has_ended:
            self.kernel.end(self._handle.pid)
        self.close()

    def fiber(self, seed: Any) -> Fiber:
        if seed is not None:
            return super().fiber(seed)
        fiber = super().fiber(None)
        fiber.globals[:] = self._session.values
        fiber.mailbox = self._mailbox
        return fiber

    async def serve(self, ctx: Context) -> None:
        while True:
            done = await self._turns.get()
            try:
                value = await vega_process(ctx, self.run_id, None)
            except Exception as error:  # noqa: BLE001 - it is shown to the user who typed the line
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(value)


@named("lyra:vega.repl")
async def _pieces(ctx: Context, run_id: str) -> None:
    from lyra.vega.runtime.world import world_of

    world = world_of(ctx, run_id)
    assert isinstance(world, Interactive)
    await world.serve(ctx)
