"""One host as a program: `python -m verify.partitions.host NAME ADDRESS URL`. It leaves in order on SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

from lyra.cluster.directory import PostgresDirectory
from lyra.cluster.host import Host
from lyra.cluster.peers import GrpcCarrier, GrpcListener
from lyra.kernel.journal import lease
from verify.partitions.programs import PROGRAMS


async def _run(name: str, address: str, url: str) -> None:
    directory = PostgresDirectory(url, make=False)
    listener = GrpcListener(f"{address}:7400")
    hosts: list[Host] = []

    async def answer(method: str, data: object) -> object:
        return await hosts[0].answer(method, data)

    await listener.start(answer, directory.secret)
    host = Host(
        directory,
        GrpcCarrier(directory.secret),
        name=name,
        address=f"{address}:7400",
        programs=PROGRAMS,
        resources={"cpu": 1.0},
        drain_s=2.0,
    )
    hosts.append(host)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with host:
        await ended.wait()
    await listener.close()
    directory.close()


def main() -> None:
    name, address, url = sys.argv[1:]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    machine = f"{name}-{os.getpid()}"
    lease._machine = lambda: machine  # another host cannot tell by its pid that this one is dead
    asyncio.run(_run(name, address, url))


if __name__ == "__main__":
    main()
