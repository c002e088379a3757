"""One host of a test cluster as a program: `python -m verify.cluster.host_process SETTINGS`, SETTINGS in JSON.

It claims a machine of its own, so that another host's kernels cannot tell by its pid that it is dead; on request its
clock is wrong, and it is an older version. It reports when it is ready and when it has a shard, and leaves the cluster
in order on SIGTERM.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import signal
import sys
from typing import Any

from lyra.cluster import host as host_module
from lyra.cluster.directory import PostgresDirectory
from lyra.cluster.host import Host
from lyra.cluster.peers import GrpcCarrier, GrpcListener
from lyra.core.clock import SystemClock
from lyra.kernel import Kernel
from lyra.kernel.journal import lease
from lyra.kernel.remote.part import RemoteState
from verify.cluster.programs import report, report_to


class SkewedClock(SystemClock):
    """The machine's clock, set wrong by so many seconds."""

    __slots__ = ("_skew_s",)

    def __init__(self, skew_s: float) -> None:
        self._skew_s = skew_s

    def now(self) -> float:
        return SystemClock.now() + self._skew_s


def _pretend(settings: dict[str, Any]) -> None:
    """Be on another machine, and an older version where that is asked for."""
    machine = settings["machine"]
    lease._machine = lambda: f"{machine}/boot/pid"
    if settings.get("format") is not None:
        vars(host_module)["FORMAT"] = settings["format"]
    unknown = settings.get("unknown_posts")
    if unknown:
        add = RemoteState.add

        def add_known(self: RemoteState, part: Any) -> None:
            add(self, part)
            for kind in unknown:
                self.by_post.pop(kind, None)

        RemoteState.add = add_known  # type: ignore[method-assign]


async def _run(settings: dict[str, Any]) -> None:
    module = importlib.import_module(settings["programs"])
    directory = PostgresDirectory(settings["url"], make=False)
    listener = GrpcListener(settings.get("listen", "127.0.0.1:0"))
    clock = SkewedClock(settings.get("skew_s", 0.0))
    hosts: list[Host] = []

    async def answer(method: str, data: Any) -> Any:
        return await hosts[0].answer(method, data)

    def tell_open(kernel: Kernel) -> None:
        shard = kernel.core.remote.shard
        kernel.interrupts.on_doubt.append(lambda doubt: report("doubt", shard, doubt.pid))
        report("open", shard, kernel.live)

    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await listener.start(answer, directory.secret)
    host = Host(
        directory,
        GrpcCarrier(directory.secret),
        name=settings["name"],
        address=listener.address,
        programs=module.PROGRAMS,
        setup=tell_open,
        durability=settings.get("durability", "process"),
        resources={"cpu": 1.0},
        drain_s=settings.get("drain_s", 5.0),
        clock=clock,
    )
    hosts.append(host)
    close_kernel = host._close_kernel

    async def tell_closed(shard: str, kernel: Kernel, drain_s: float) -> None:
        why = kernel.failure.code if kernel.failure is not None else "given"
        await close_kernel(shard, kernel, drain_s)
        report("closed", shard, why)

    host._close_kernel = tell_closed  # type: ignore[method-assign]
    async with host:
        report("ready", listener.address)
        await ended.wait()
    await listener.close()
    directory.close()


def main() -> None:
    settings = json.loads(sys.argv[1])
    report_to(os.dup(1))
    os.dup2(2, 1)  # whatever prints goes to stderr
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(name)s %(levelname)s %(message)s")
    _pretend(settings)
    asyncio.run(_run(settings))


if __name__ == "__main__":
    main()
