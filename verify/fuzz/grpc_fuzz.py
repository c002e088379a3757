"""Random and mutated messages for every RPC of a gRPC server: no UNKNOWN, no INTERNAL, and the server still answers.

Messages are made from the contract: fields of known names, of extreme numbers, of texts and JSON that do not fit; then
some are cut, flipped and stretched as bytes. They come from the operator and from two users, over a real socket, to a
server on a store. RPCs are found in the contract, so that a new one is covered from its first day.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio
from google.protobuf.message_factory import GetMessageClass

from lyra.core.address import Address
from lyra.core.ids import make_random
from lyra.kernel import Kernel
from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.face import SERVICES, GrpcFace
from lyra.server.identity import TokenTable
from lyra.server.settings import ServeSettings
from verify.fuzz.grpc_messages import PIPELINE, Known, message_bytes

__all__ = ["GrpcFuzzed", "methods", "run"]


_TOKENS: Final = {
    "operator-token-0123456789": "",
    "alice-token-0123456789abc": "alice",
    "bob-token-0123456789abcdef": "bob",
}
_DEADLINE_S: Final = 10.0
_STREAM_S: Final = 0.05  # of a stream, or of a call that waits for work
_WAITING: Final = frozenset(
    {
        "WorkerService/ClaimWork",
        "WorkerService/CompleteWork",  # for work of an earlier server that may still become known
        "CommBusService/Subscribe",
        "EngineService/ExecutePipeline",
        "EngineService/ExecuteAgent",  # an envelope may come with an open question
        "SystemService/DispatchService",  # a worker may have claimed the service
    }
)
_NO_ANSWER: Final = "Deadline Exceeded"  # the client's own word for it
_AT_ONCE: Final = 25
_BAD: Final = ("UNKNOWN", "INTERNAL", "UNIMPLEMENTED", "DATA_LOSS")


class GrpcFuzzed(NamedTuple):
    """What came of a run."""

    calls: int
    methods: int
    codes: Counter[str]
    failures: list[str]


def methods() -> list[str]:
    """Every RPC that is served."""
    return [f"{name}/{rpc.name}" for name in SERVICES for rpc in pb.DESCRIPTOR.services_by_name[name].methods]


def run(count: int, seed: int, *, progress: Callable[[int], Any] | None = None) -> GrpcFuzzed:
    """Send so many messages to every RPC."""
    return asyncio.run(_run(count, seed, progress))


async def _run(count: int, seed: int, progress: Callable[[int], Any] | None) -> GrpcFuzzed:
    codes: Counter[str] = Counter()
    failures: list[str] = []
    sent = 0
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: failures.append(f"{context['message']}: {context.get('exception')!r}")
    )
    async with _world() as (kernel, channel):
        for first in range(0, count, _AT_ONCE):
            known = await _furnish(kernel)
            for method in methods():
                seeds = [_seed_of(seed, method, number) for number in range(first, min(first + _AT_ONCE, count))]
                ended = await asyncio.gather(*(_call(channel, method, call_seed, known) for call_seed in seeds))
                for call_seed, (code, details) in zip(seeds, ended, strict=True):
                    codes[code] += 1
                    if details == _NO_ANSWER and method not in _WAITING:
                        failures.append(f"{method}, seed {call_seed}: no answer within {_DEADLINE_S:g} s")
                    if code in _BAD:
                        failures.append(f"{method}, seed {call_seed}: {code} {details}")
                sent += len(seeds)
                if progress is not None:
                    progress(sent)
            failures += await _problems(kernel, channel)
    return GrpcFuzzed(sent, len(methods()), codes, failures)


def _seed_of(seed: int, method: str, number: int) -> int:
    return seed * 1_000_003 + methods().index(method) * 100_000 + number


async def _problems(kernel: Kernel, channel: Any) -> list[str]:
    """Whether the server still does what it should."""
    code, details = await _sent(
        channel, "SystemService/GetSystemStatus", b"", list(_headers("operator-token-0123456789"))
    )
    if code != "OK":
        return [f"the server no longer answers: {code} {details}"]
    return [f"the kernel failed: {kernel.core.failure}"] if kernel.core.failure is not None else []


# ------------------------------------------------------------------ calls


async def _call(channel: Any, method: str, seed: int, known: Known) -> tuple[str, str]:
    rng = make_random(seed)
    data = message_bytes(rng, method, known)
    headers = list(_headers(rng.choice(tuple(_TOKENS))))
    odd = ("alice", "bob", "x" * 300, "00-zz", "")
    headers += [(key, rng.choice(odd)) for key in ("user_id", "session_id", "traceparent") if rng() < 0.1]
    return await _sent(channel, method, data, headers)


def _headers(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


async def _sent(channel: Any, method: str, data: bytes, headers: list[tuple[str, str]]) -> tuple[str, str]:
    service, name = method.split("/")
    rpc = pb.DESCRIPTOR.services_by_name[service].methods_by_name[name]
    make = channel.unary_stream if rpc.server_streaming else channel.unary_unary
    read = GetMessageClass(rpc.output_type).FromString
    limit_s = _STREAM_S if method in _WAITING else _DEADLINE_S
    call = make(f"/lyra.engine.v1.{method}", response_deserializer=read)(data, metadata=headers, timeout=limit_s)
    try:
        if rpc.server_streaming:
            async for _message in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return error.code().name, error.details() or ""
    return "OK", ""


# ------------------------------------------------------------------ the server


@asynccontextmanager
async def _world() -> AsyncIterator[tuple[Kernel, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        async with Kernel(Path(folder) / "fuzz.db") as kernel:
            _register(kernel)
            settings = ServeSettings(TokenTable(_TOKENS), grpc=Address("127.0.0.1", 0))
            face = GrpcFace(kernel, settings)
            try:
                address = await face.start()
                async with grpc.aio.insecure_channel(str(address)) as channel:
                    yield kernel, channel
            finally:
                await face.stop(1.0)


def _register(kernel: Kernel) -> None:
    async def brew(_envelope: Any) -> dict[str, Any]:
        return {"cups": 2}

    kernel.register_agent("brew", brew)
    kernel.register_agent("pour", brew)
    kernel.bus.register_handler("known", lambda message: message.payload)


async def _furnish(kernel: Kernel) -> Known:
    """Put things of both users in, as far as they are not there any more; gives the names that fields take."""
    for number, user in enumerate(("alice", "bob", "alice")):
        pid = f"p{number}"
        block = kernel.submit(pid, user_id=user)
        if block.terminal:
            kernel.cleanup_process(pid)
            kernel.submit(pid, user_id=user)
    if "session" not in kernel.orchestrator.state.sessions and kernel.lifecycle.find("session") is None:
        kernel.initialize_orchestration("session", PIPELINE, {"user_id": "alice"})
    if "env_0" not in kernel.envelopes.state.envelopes:
        kernel.create_envelope({"envelope_id": "env_0"}, user_id="alice")
    for name in ("double", "worker"):
        if name not in kernel.services.state.services:
            await kernel.register_service({"name": name, "metadata": {"owner": "alice"}})
    kernel.register_handler("double", lambda request: {"n": request.metadata.get("n", 0)})
    questions = [kernel.create_interrupt(pid, "clarification", question="?").id for pid in ("p0", "p1", "p2")]
    return {
        "pid": ("p0", "p1", "p2", "session"),
        "process_id": ("session", "p0", "new"),
        "thread_id": ("run", "session", "p0"),
        "envelope_id": ("env_0",),
        "interrupt_id": tuple(questions),
        "agent_name": ("brew", "pour"),
        "event_type": ("known",),
        "query_type": ("known",),
        "command_type": ("known",),
        "service": ("double", "worker"),
        "name": ("double", "worker"),
        "user_id": ("alice", "bob", ""),
        "service_type": ("worker", "inference"),
        "request_id": ("",),
        "session_id": ("s1", ""),
    }
