"""Who hears of what."""

from __future__ import annotations

import asyncio

import pytest

from lyra.errors import ConfigError
from lyra.kernel import Kernel


def test_a_listener_may_want_some_kinds_only():
    """It hears those and no others; an unknown kind is refused with the nearest one."""

    async def program(ctx):
        await ctx.receive()

    async def main():
        heard: list[str] = []
        everything: list[str] = []
        async with Kernel() as kernel:
            stop = kernel.on_event(lambda event: heard.append(event.kind), kinds=("process.created",))
            assert kernel.listening
            quiet = kernel.on_event(lambda event: heard.append(event.kind), kinds="model.called")
            kernel.on_event(lambda event: everything.append(event.kind))
            handle = kernel.spawn(program)
            kernel.send(handle.pid, 1)
            await handle.wait()
            stop()
            quiet()
            kernel.spawn(program)
        assert heard == ["process.created"]
        assert len(set(everything)) > 3
        async with Kernel() as kernel:
            kernel.on_event(print, kinds=("model.called",))
            assert not kernel.listening  # programs that are no agents are not slowed down by it
            assert kernel.agents_heard
            with pytest.raises(ConfigError, match=r"model\.called"):
                kernel.on_event(print, kinds=("model.caled",))

    asyncio.run(main())
