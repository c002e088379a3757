"""A host that was started by hand: `python -m tests.cluster.host_process URL NAME FILE.py`, until SIGTERM."""

from __future__ import annotations

import asyncio
import runpy
import signal
import sys
from typing import Any

from lyra.cluster.directory import PostgresDirectory
from lyra.cluster.host import Host
from lyra.cluster.peers import GrpcCarrier, GrpcListener


async def main(url: str, name: str, file: str) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    directory = PostgresDirectory(url)
    listener = GrpcListener("127.0.0.1:0")
    hosts: list[Host] = []

    async def answer(method: str, data: Any) -> Any:
        return await hosts[0].answer(method, data)

    await listener.start(answer, directory.secret)
    setup = runpy.run_path(file, run_name="lyra_server_setup")["setup"]
    carrier = GrpcCarrier(directory.secret)
    hosts.append(Host(directory, carrier, name=name, address=listener.address, setup=setup))
    async with hosts[0]:
        print("joined", flush=True)
        await stopped.wait()
    await listener.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
