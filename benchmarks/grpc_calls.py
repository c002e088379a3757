"""Calls over gRPC beside a bare echo server of the same library, each server in a process of its own on loopback.

The figure is CPU time of the server for one call, and wall time of a call with sixteen under way at a time. The echo
server gives back the bytes that it got: no token, no message, no kernel. With SQLite an answer to a change waits until
the change is durable. The list of processes is one call for all.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, Final

from benchmarks.child_server import ChildServer
from benchmarks.measure import Figure, Row, Size, Timing, at_most, interleave, ratio_at_most

_AT_ONCE: Final = 16
_TOKEN: Final = "benchmark-token-0123456789"
_HEADERS: Final = (("authorization", f"Bearer {_TOKEN}"),)
_PROCESSES: Final = 10_000


async def _serve(processes: int, store: str) -> None:
    """Both servers, until the standard input ends; prints their ports."""
    import grpc.aio

    from lyra.core.address import Address
    from lyra.kernel import Kernel
    from lyra.server.grpc.face import GrpcFace
    from lyra.server.identity import TokenTable
    from lyra.server.settings import ServeSettings

    async def echo(data: bytes, _context: Any) -> bytes:
        return data

    bare = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(echo)
    bare.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Echo", {"Echo": handler}),))
    bare_port = bare.add_insecure_port("127.0.0.1:0")
    await bare.start()
    async with Kernel(store) as kernel:
        for number in range(processes):
            kernel.submit(f"p{number}", user_id="bench")
        face = GrpcFace(kernel, ServeSettings(TokenTable({_TOKEN: ""}), grpc=Address("127.0.0.1", 0)))
        address = await face.start()
        print(bare_port, address.port, flush=True)
        await asyncio.to_thread(sys.stdin.read)
        await face.stop(1.0)
    await bare.stop(None)


class _Servers(ChildServer):
    """The process with both servers."""

    def __init__(self, processes: int, store: str = "memory") -> None:
        super().__init__("benchmarks.grpc_calls", str(processes), store)
        self.bare, self.lyra = (f"127.0.0.1:{port}" for port in self.words)


async def _calls(servers: _Servers, address: str, method: str, data: bytes, count: int) -> Timing:
    import grpc.aio

    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary(method)

        async def some(number: int) -> None:
            for _ in range(number):
                await call(data, metadata=_HEADERS)

        await some(20)
        began, cpu = time.perf_counter(), servers.cpu_s()
        await asyncio.gather(*(some(count // _AT_ONCE) for _ in range(_AT_ONCE)))
        return Timing(servers.cpu_s() - cpu, time.perf_counter() - began, count // _AT_ONCE * _AT_ONCE)


def _durable(size: Size, count: int) -> dict[str, Figure]:
    """Changes with SQLite as the store, and the echo of the same run."""
    from lyra.server.generated import engine_pb2 as pb

    service = "/lyra.engine.v1.KernelService"
    record = pb.RecordUsageRequest(pid="p2", llm_calls=1).SerializeToString()
    get = pb.GetProcessRequest(pid="p1").SerializeToString()
    with tempfile.TemporaryDirectory() as folder, _Servers(100, f"{folder}/server.db") as servers:
        contenders = {
            "echo": (servers.bare, "/bench.Echo/Echo", record),
            "get": (servers.lyra, f"{service}/GetProcess", get),
            "record": (servers.lyra, f"{service}/RecordUsage", record),
        }

        def contender(address: str, method: str, data: bytes) -> Callable[[], Timing]:
            return lambda: asyncio.run(_calls(servers, address, method, data, count))

        return interleave({name: contender(*given) for name, given in contenders.items()}, min(size.repeats, 5))


def run(size: Size) -> list[Row]:
    from lyra.server.generated import engine_pb2 as pb

    count, processes = size.of(4_000, 64), size.of(_PROCESSES, 100)
    with _Servers(processes) as servers:

        def calls(address: str, method: str, message: Any) -> Callable[[], Timing]:
            data = message.SerializeToString()
            return lambda: asyncio.run(_calls(servers, address, method, data, count))

        get = pb.GetProcessRequest(pid="p1")
        kernel_service = "/lyra.engine.v1.KernelService"
        best = interleave(
            {
                "echo": calls(servers.bare, "/bench.Echo/Echo", get),
                "get": calls(servers.lyra, f"{kernel_service}/GetProcess", get),
                "record": calls(
                    servers.lyra, f"{kernel_service}/RecordUsage", pb.RecordUsageRequest(pid="p2", llm_calls=1)
                ),
                "status": calls(
                    servers.lyra, "/lyra.engine.v1.SystemService/GetRequestStatus", pb.GetRequestStatusRequest(pid="p3")
                ),
            },
            min(size.repeats, 5),
        )
        listed = [asyncio.run(_list(servers)) for _ in range(size.repeats)]

    cpu, wall = zip(*listed, strict=True)
    stored = _durable(size, count)

    def row(what: str, name: str, best: dict[str, Figure] = best) -> Row:
        rate = (best["echo"].wall or 0.0) / (best[name].wall or 1.0)
        note = f"{rate:.2f}× of the echo's rate"
        return Row(what, best[name], "an echo", best["echo"], (ratio_at_most(2.0),), note=note)

    return [
        row("GetProcess over gRPC", "get"),
        row("RecordUsage over gRPC", "record"),
        row("GetRequestStatus over gRPC", "status"),
        row("GetProcess over gRPC, in SQLite", "get", stored),
        row("RecordUsage over gRPC, in SQLite", "record", stored),
        Row(f"ListProcesses of {processes} over gRPC", Figure(min(cpu), "ms", min(wall)), goals=(at_most(200, "ms"),)),
    ]


async def _list(servers: _Servers) -> tuple[float, float]:
    """Milliseconds of one call: CPU of the server, and until its answer is read."""
    import grpc.aio

    from lyra.server.generated import engine_pb2 as pb

    async with grpc.aio.insecure_channel(servers.lyra) as channel:
        call = channel.unary_unary(
            "/lyra.engine.v1.KernelService/ListProcesses", response_deserializer=pb.ListProcessesResponse.FromString
        )
        began, cpu = time.perf_counter(), servers.cpu_s()
        answer = await call(pb.ListProcessesRequest(user_id="bench").SerializeToString(), metadata=_HEADERS)
        assert answer.processes
        return (servers.cpu_s() - cpu) * 1000, (time.perf_counter() - began) * 1000


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), sys.argv[2]))
