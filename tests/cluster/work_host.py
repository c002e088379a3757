"""A host to which workers connect, as a program of its own: `python -m tests.cluster.work_host URL NAME`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import grpc.aio

from lyra.cluster.directory import PostgresDirectory
from lyra.cluster.host import Host
from lyra.cluster.peers import GrpcCarrier, GrpcListener
from lyra.core.clock import SystemClock
from lyra.server.grpc.face import handlers_of
from lyra.server.grpc.guard import CallGuard
from lyra.server.grpc.shared_work import SharedWorkerCalls, open_desk
from lyra.server.identity import TokenTable
from tests.server.work.programs import OPERATOR


async def serve_workers(host: Host) -> tuple[Any, str]:
    """Start the WorkerService of a host; gives the server and its address."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    guard = CallGuard(TokenTable({OPERATOR: ""}), SystemClock())
    calls: Any = SharedWorkerCalls(host)
    server.add_generic_rpc_handlers((handlers_of("WorkerService", calls, guard),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, f"127.0.0.1:{port}"


async def main(url: str, name: str) -> None:
    directory = PostgresDirectory(url, make=False)
    listener = GrpcListener("127.0.0.1:0")
    hosts: list[Host] = []

    async def answer(method: str, data: Any) -> Any:
        return await hosts[0].answer(method, data)

    await listener.start(answer, directory.secret)
    host = Host(directory, GrpcCarrier(directory.secret), name=name, address=listener.address, setup=open_desk)
    hosts.append(host)
    await host.start()
    _, address = await serve_workers(host)
    print(address, flush=True)
    await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
