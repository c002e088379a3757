"""Random and mutated messages for every RPC of a gRPC server: no UNKNOWN, no INTERNAL, and the server still answers.

Messages are made from the contract: fields of known names, of extreme numbers, of texts and JSON that do not fit; then
some are cut, flipped and stretched as bytes. They come from the operator and from two users, over a real socket, to a
server on a store. RPCs are found in the contract, so that a new one is covered from its first day.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from lyra.core.address import Address
from lyra.core.ids import ProcessRandom, seeded
from lyra.kernel import Kernel
from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.face import GrpcFace
from lyra.server.grpc.handlers import SERVICES
from lyra.server.identity import Tokens
from lyra.server.settings import ServeSettings

__all__ = ["GrpcFuzzed", "methods", "run"]

Known = Mapping[str, tuple[str, ...]]  # names that fields take, by field

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
_DEPTH_MAX: Final = 4
_PIPELINE: Final = {"name": "tea", "agents": [{"name": "brew", "default_next": "pour"}, {"name": "pour"}]}
_NAMES: Final = (
    "p0",
    "p1",
    "p2",
    "session",
    "env_0",
    "int_0",
    "brew",
    "pour",
    "known",
    "double",
    "worker",
    "alice",
    "bob",
)
_TEXTS: Final = (
    *_NAMES,
    *("", "end", "start", "~", "\0", "\n", "x" * 5_000, "é" * 300, "\u202e", "../../etc/passwd", "$(id)", "0", "None"),
)
_JSON: Final[tuple[Any, ...]] = (
    _PIPELINE,
    {**_PIPELINE, "default_run_mode": "parallel"},
    {"raw_input": "tea"},
    {"user_id": 7},
    {"outputs": {"brew": 3}},
    {"max_iterations": -1},
    {"interrupt_pending": True},
    {"interrupt_pending": True, "interrupt": {"kind": "clarification"}},
    {"metadata": {"state": {"a": [1]}}},
    {"n": 2},
    {},
    [],
    [1, "x", None],
    "text",
    0,
    2**70,
    -1.5e300,
    None,
    True,
)
_NUMBERS: Final = (0, 1, 2, -1, 7, 60, 2**31 - 1, -(2**31))
_REALS: Final = (0.0, 0.001, 1.0, -1.0, 1e308, float("inf"), float("-inf"), float("nan"))


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
                ended = await asyncio.gather(*(_call(channel, method, one_seed, known) for one_seed in seeds))
                for one_seed, (code, details) in zip(seeds, ended, strict=True):
                    codes[code] += 1
                    if details == _NO_ANSWER and method not in _WAITING:
                        failures.append(f"{method}, seed {one_seed}: no answer within {_DEADLINE_S:g} s")
                    if code in _BAD:
                        failures.append(f"{method}, seed {one_seed}: {code} {details}")
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
    rng = seeded(seed)
    data = _message_bytes(rng, method, known)
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


# ------------------------------------------------------------------ messages


def _message_bytes(rng: ProcessRandom, method: str, known: Known) -> bytes:
    service, name = method.split("/")
    rpc = pb.DESCRIPTOR.services_by_name[service].methods_by_name[name]
    kind = rng()
    if kind < 0.03:
        return rng.randbytes(rng.randrange(60))
    maker = _Maker(rng, known, odd=rng.choice((0.0, 0.02, 0.1, 0.4)))
    data: bytes = maker.message(rpc.input_type).SerializeToString()
    return _mutated(rng, data) if kind < 0.2 else data


def _mutated(rng: ProcessRandom, data: bytes) -> bytes:
    changed = bytearray(data or b"\x0a\x01x")
    for _ in range(rng.randrange(1, 5)):
        place = rng.randrange(len(changed) + 1)
        act = rng.randrange(4)
        if act == 0 and place < len(changed):
            changed[place] ^= 1 << rng.randrange(8)
        elif act == 1:
            del changed[place : place + rng.randrange(1, 9)]
        elif act == 2:
            changed[place:place] = rng.randbytes(rng.randrange(1, 9))
        else:
            changed[place:place] = changed[: rng.randrange(len(changed) + 1)]
    return bytes(changed)


class _Maker:
    """Makes messages in which a share of the fields (`odd`) does not fit."""

    def __init__(self, rng: ProcessRandom, known: Known, *, odd: float) -> None:
        self._rng = rng
        self._known = known
        self._odd = odd

    def message(self, descriptor: Any, depth: int = 0) -> Any:
        made = GetMessageClass(descriptor)()
        for field in descriptor.fields:
            if self._rng() < (0.05 if field.number == 1 else 0.4):
                continue
            if field.message_type is None:
                self._set_scalar(made, field)
            elif field.message_type.GetOptions().map_entry:
                self._fill_map(getattr(made, field.name), field.message_type)
            elif depth < _DEPTH_MAX:
                self._set_message(made, field, depth)
        return made

    def _set_scalar(self, made: Any, field: Any) -> None:
        if field.is_repeated:
            getattr(made, field.name).extend(self._scalar(field) for _ in range(self._rng.randrange(4)))
        else:
            setattr(made, field.name, self._scalar(field))

    def _set_message(self, made: Any, field: Any, depth: int) -> None:
        if field.is_repeated:
            parts = [self.message(field.message_type, depth + 1) for _ in range(self._rng.randrange(3))]
            getattr(made, field.name).extend(parts)
        else:
            getattr(made, field.name).CopyFrom(self.message(field.message_type, depth + 1))

    def _fill_map(self, mapping: Any, entry: Any) -> None:
        value = entry.fields_by_name["value"]
        for _ in range(self._rng.randrange(3)):
            if value.message_type is None:
                mapping[self._rng.choice(_NAMES)] = self._scalar(value)

    def _scalar(self, field: Any) -> Any:
        rng, is_odd = self._rng, self._rng() < self._odd
        if field.type == FieldDescriptor.TYPE_STRING:
            return rng.choice(_TEXTS if is_odd else self._known.get(field.name, _NAMES))
        if field.type == FieldDescriptor.TYPE_BYTES:
            return _odd_json(rng) if is_odd else _json(rng, field.name)
        if field.type == FieldDescriptor.TYPE_BOOL:
            return rng() < 0.5
        if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
            return rng.choice(_REALS if is_odd else (0.0, 0.01))
        if field.type == FieldDescriptor.TYPE_ENUM:
            return rng.choice((-1, 99, 2**31 - 1)) if is_odd else rng.choice(field.enum_type.values).number
        number = rng.choice(_NUMBERS if is_odd else (0, 1, 2, 60))
        is_large = is_odd and field.type == FieldDescriptor.TYPE_INT64 and abs(number) < 2**30
        return number * 2**32 if is_large else number


def _json(rng: ProcessRandom, name: str) -> bytes:
    """JSON of the kind that a field of this name takes."""
    values = {"pipeline_config": _JSON[:2], "envelope": ({"raw_input": "tea"},), "agent_config": ({},)}
    return json.dumps(rng.choice(values.get(name, ({}, {"n": 2}, {"good": True})))).encode()


def _odd_json(rng: ProcessRandom) -> bytes:
    kind = rng()
    if kind < 0.2:
        return rng.randbytes(rng.randrange(20))
    if kind < 0.3:
        return b"[" * rng.choice((10, 190, 2_000, 100_000))
    if kind < 0.4:
        return b'{"a":' * 150 + b"1" + b"}" * 150
    if kind < 0.5:
        return b'{"raw_input": "\\ud800", "a\\udfff": 1}'
    return json.dumps(rng.choice(_JSON)).encode()


# ------------------------------------------------------------------ the server


@asynccontextmanager
async def _world() -> AsyncIterator[tuple[Kernel, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        async with Kernel(Path(folder) / "fuzz.db") as kernel:
            _register(kernel)
            settings = ServeSettings(Tokens(_TOKENS), grpc=Address("127.0.0.1", 0))
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
        kernel.initialize_orchestration("session", _PIPELINE, {"user_id": "alice"})
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
