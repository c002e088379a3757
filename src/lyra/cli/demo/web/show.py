"""Serves the web demo on this machine, opens the page and waits for Ctrl-C.

The server listens on loopback with a token that is made for this run; the address that is printed has it. What the team
does is in a store of its own, which is removed at the end unless the caller keeps it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
import webbrowser
from pathlib import Path
from typing import Final, NamedTuple

import click

from lyra.cli.demo.web.office import Office
from lyra.cli.demo.web.past import FIRST_ROUND, live_through_past
from lyra.cli.demo.web.scene import Scene
from lyra.cli.render import note
from lyra.core.address import Address
from lyra.core.ids import Entropy
from lyra.kernel.kernel import Kernel
from lyra.server.identity import TokenHolder, TokenTable
from lyra.server.serve import Server
from lyra.server.settings import ServeSettings

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
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
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stopped.set)
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
            for number in _SIGNALS:  # a second signal ends the program at once
                loop.remove_signal_handler(number)
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
