"""What a user asks for is attached to every kernel, whichever process is running when it is."""

from __future__ import annotations

import json
import logging

from lyra import Kernel
from lyra.observe import configure_logs, export_as_configured, logs
from tests.agents.support import run


def test_exports_act_for_the_user(tmp_path):
    """A process with few rights may not listen to Events; the user's log does, also where that process comes first."""
    logger = logging.getLogger("lyra")
    before = (list(logger.handlers), logger.propagate, logger.level)

    async def program(ctx):
        export_as_configured(ctx.own_process.kernel)
        export_as_configured(ctx.own_process.kernel)

    async def main() -> None:
        async with Kernel(programs=[program]) as kernel:
            handle = await kernel.spawn(program, grant=["fs.read"])
            assert (await handle.wait()).error is None
            await (await kernel.spawn(program)).wait()

    try:
        configure_logs("debug", "json", tmp_path / "log")
        run(main())
    finally:
        for handler in logs._configured:
            handler.close()
        logs._configured.clear()
        logger.handlers, logger.propagate = before[0], before[1]
        logger.setLevel(before[2])
    rows = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [row["message"] for row in rows].count("process.created") == 1  # of the second: the first came before
