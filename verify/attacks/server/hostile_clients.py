"""Clients that mean harm, against a real server: what they send is refused, others are served meanwhile, and the server's
memory stays bounded.

`shapes` has the requests. Beside them come bodies without an end, connections that drip, stay silent or vanish, and
subscribers that never read. A neighbour asks over HTTP and gRPC all the time; the slowest of its answers is judged.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import lyra
from lyra.errors import ConfigError, Denied, LimitExceeded, LyraError, NoSuchProcess, Unauthenticated
from verify.attacks.scripted_agent import Attempts
from verify.attacks.server.ground import ANSWER_S, Ground, Neighbour
from verify.attacks.server.shapes import BODIES, NAMES, REFUSED, SMUGGLED, request
from verify.served import OPERATOR, USER_TOKEN, ServedProcess

__all__ = ["NEIGHBOUR_S_MAX", "run"]

NEIGHBOUR_S_MAX: Final = 5.0  # for one answer to an honest client, on a machine that does other things, too
_GROWTH_MB_MAX: Final = 200.0
_AGENTS: Final = """
from lyra import Agent

def setup(kernel):
    kernel.register(Agent("echo", model="sim/echo"))

    async def noted(envelope):
        return {"size": len(envelope.raw_input)}

    kernel.register_agent("noted", noted)
"""


def run(*, idle: int = 2_000, endless_mb: int = 64) -> Attempts:
    """All attacks on one server; `idle` is how many silent connections there are at once."""
    return asyncio.run(_run(idle, endless_mb))


async def _run(idle: int, endless_mb: int) -> Attempts:
    attacks: dict[str, Callable[[Ground], Awaitable[None]]] = {
        "requests that are refused": _refused,
        "smuggled requests": _smuggled,
        "bodies": _bodies,
        "names": _names,
        "fields of gRPC": _rpc_fields,
        "a body without an end": lambda ground: _endless(ground, endless_mb),
        "drips": _drips,
        "half-open connections": _half_open,
        "silent connections": lambda ground: _silent(ground, idle),
        "subscribers that never read": _unread,
    }
    with tempfile.TemporaryDirectory(prefix="lyra-hostile-") as name:
        async with _served(Path(name)) as (ground, neighbour):
            for what, attack in attacks.items():
                known = len(ground.effects)
                before_mb = ground.served.memory_mb()
                neighbour.begin()
                await attack(ground)
                await asyncio.sleep(0.2)
                _judge(ground, neighbour, ground.served.memory_mb() - before_mb)
                ground.effects[known:] = [f"{what}: {effect}" for effect in ground.effects[known:]]
    return Attempts(ground.attempts, ground.effects)


def _judge(ground: Ground, neighbour: Neighbour, grown_mb: float) -> None:
    """What an attack did to the server and to its honest client."""
    ground.expect(grown_mb < _GROWTH_MB_MAX, f"the server grew by {grown_mb:.0f} MB")
    ground.expect(not neighbour.failures, f"{neighbour.failures[:1]}")
    ground.expect(neighbour.asked, "the honest client was never answered")
    ground.expect(neighbour.slowest_s < NEIGHBOUR_S_MAX, f"an honest client waited {neighbour.slowest_s:.1f} s")
    ground.expect("Traceback" not in ground.served.errors, "the log has a traceback")


@asynccontextmanager
async def _served(folder: Path) -> AsyncIterator[tuple[Ground, Neighbour]]:
    (folder / "agents.py").write_text(_AGENTS)
    served = ServedProcess(folder, "memory", load=folder / "agents.py")
    served.drain_s = 1
    neighbour = Neighbour(served)
    try:
        await served.start()
        async with asyncio.TaskGroup() as group:
            living = group.create_task(neighbour.live())
            while not neighbour.asked:  # noqa: ASYNC110 - the neighbour knows of no attack
                await asyncio.sleep(0.02)
            yield Ground(served), neighbour
            living.cancel()
    finally:
        served.close()


def _statuses(answer: bytes) -> list[int]:
    return [int(line[9:12]) for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


async def _refused(ground: Ground) -> None:
    for what, data in REFUSED.items():
        statuses = _statuses(await ground.exchange(data))
        is_refused = not statuses or (len(statuses) >= 1 and all(400 <= status < 500 for status in statuses))
        ground.expect(is_refused or statuses == [501], f"{what} is answered {statuses}")


async def _smuggled(ground: Ground) -> None:
    for what, data in SMUGGLED.items():
        answer = await ground.exchange(data)
        ground.expect(b'"openapi"' not in answer, f"{what}: the second request is answered")
        ground.expect(not any(status >= 500 for status in _statuses(answer)), f"{what}: {_statuses(answer)}")


async def _bodies(ground: Ground) -> None:
    for path in ("/api/agents/echo/chat", "/api/pipelines", "/v1/messages", "/v1/chat/completions"):
        for what, body in BODIES.items():
            data = request(path, "content-type: application/json", "connection: close", method="POST", body=body)
            statuses = _statuses(await ground.exchange(data))
            # The text of a message may be strange; it is a message all the same.
            may_pass = what in ("a NUL", "half a surrogate pair")
            is_fine = bool(statuses) and (400 <= statuses[0] < 500 or (may_pass and statuses[0] == 200))
            ground.expect(is_fine, f"{what} to {path} is answered {statuses}")


async def _names(ground: Ground) -> None:
    places = ("/api/agents/{}", "/api/processes/{}", "/api/sessions/{}", "/api/pipelines/{}/events", "/v1/models/{}")
    for place in places:
        for name in NAMES:
            answer = await ground.exchange(request(place.format(name).replace(" ", "%20"), "connection: close"))
            statuses = _statuses(answer)
            ground.expect(b"root:" not in answer, f"{place} with {name[:40]}: a file is shown")
            ground.expect(b"\r\nset-cookie" not in answer.lower(), f"{place} with {name[:40]}: a header is set")
            is_refused = bool(statuses) and 400 <= statuses[0] < 500
            ground.expect(is_refused, f"{place} with {name[:40]} is answered {statuses}")


async def _rpc_fields(ground: Ground) -> None:
    """Values that the wire takes and the kernel must not: each is refused with a status of its own."""
    deep = b"[" * 100_000 + b"]" * 100_000
    calls: dict[str, tuple[str, dict[str, Any]]] = {
        "a user with a line break": ("CreateProcess", {"pid": "p", "user_id": "a\r\nx: y"}),
        "a user of 10 000 letters": ("CreateProcess", {"pid": "p", "user_id": "u" * 10_000}),
        "a session with a line break": ("CreateProcess", {"pid": "p", "user_id": "ada", "session_id": "a\nb"}),
        "a pid of a megabyte": ("CreateProcess", {"pid": "p" * 1_000_000, "user_id": "ada"}),
        "nested JSON": ("InitializeSession", {"process_id": "p", "pipeline_config": deep}),
        "JSON that is not UTF-8": ("InitializeSession", {"process_id": "p", "pipeline_config": b'{"a": "\xff"}'}),
        "JSON with huge numbers": ("InitializeSession", {"process_id": "p", "pipeline_config": b'{"a": 1e999999}'}),
        "a state that is none": ("TransitionState", {"pid": "p", "new_state": 77}),
    }
    for what, (method, fields) in calls.items():
        code = await _call(ground.served.grpc, method, fields)
        fine = ("INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "PERMISSION_DENIED")
        ground.expect(code in fine, f"{what} is answered {code}")
    for token, error in (("wrong-token-0123456789", Unauthenticated), (USER_TOKEN, Denied)):
        async with lyra.connect(ground.served.grpc, token=token, user_id="bob", reconnect_s=0.0) as kernel:
            try:
                await kernel.list_processes()
                ground.expect(False, "a token of another is taken")
            except LyraError as refusal:
                ground.expect(isinstance(refusal, error), f"a token of another: {refusal}")
    async with lyra.connect(ground.served.grpc, token=OPERATOR, user_id="ada", reconnect_s=0.0) as kernel:
        try:
            await kernel.create_envelope("x" * 8_000_000)
            ground.expect(False, "a message of 8 MB is taken")
        except LyraError as refusal:
            ground.expect(isinstance(refusal, (LimitExceeded, ConfigError, NoSuchProcess)), f"8 MB: {refusal}")


async def _call(address: str, method: str, fields: dict[str, Any]) -> str:
    """The status of one call with these fields."""
    import grpc
    import grpc.aio
    from google.protobuf.message_factory import GetMessageClass

    from lyra.server.generated import engine_pb2 as pb

    service, rpc = next(
        (service, service.methods_by_name[method])
        for service in pb.DESCRIPTOR.services_by_name.values()
        if method in service.methods_by_name
    )
    message = GetMessageClass(rpc.input_type)(**fields)
    metadata = [("authorization", f"Bearer {OPERATOR}"), ("user_id", "ada")]
    if "user_id" in fields:
        metadata.pop()
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary(f"/{service.full_name}/{method}")
        try:
            await call(message.SerializeToString(), metadata=metadata, timeout=60)
        except grpc.RpcError as error:
            return str(error.code().name)
    return "OK"


async def _endless(ground: Ground, megabytes: int) -> None:
    """Bodies over the limit, with a length and in chunks."""
    path, kind = "/api/agents/echo/chat", "content-type: application/json"
    megabyte = b"x" * (1 << 20)
    heads = {
        "with a length": (f"content-length: {megabytes << 20}", b"", b""),
        "in chunks": ("transfer-encoding: chunked", b"100000\r\n", b"\r\n"),
    }
    for what, (header, before, after) in heads.items():
        reader, writer = await ground.connect()
        answer = b""
        with contextlib.suppress(ConnectionError, TimeoutError):
            writer.write(request(path, kind, header, method="POST"))
            for _ in range(megabytes):
                writer.write(before + megabyte + after)
                await writer.drain()
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                answer = await reader.read(4096)
        writer.close()
        ground.expect(not answer or _statuses(answer)[:1] == [413], f"{what}: {answer[:60]!r}")


async def _drips(ground: Ground) -> None:
    """Two hundred clients that send a byte at a time: half of them their headers, half of them their body."""
    head = request("/api/agents/echo/chat", "content-type: application/json", "content-length: 100000", method="POST")
    connections = [await ground.connect() for _ in range(200)]
    for place, (_, writer) in enumerate(connections):
        writer.write(head if place % 2 else b"GET /healthz HTTP/1.1\r\n")
    for _ in range(20):
        for place, (_, writer) in enumerate(connections):
            with contextlib.suppress(ConnectionError):
                writer.write(b"x" if place % 2 else b"x: y\r\n")
        await asyncio.sleep(0.1)
    for _, writer in connections:
        writer.close()


async def _half_open(ground: Ground) -> None:
    """Clients that send half a request and say that they are done, or vanish without a word."""
    for beginning in (b"GET /heal", b"POST /api/pipelines HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{"):
        for _ in range(100):
            _, writer = await ground.connect()
            writer.write(beginning)
            writer.write_eof()
            writer.close()
        for _ in range(100):
            connection = socket.create_connection((ground.host, ground.port))
            connection.sendall(beginning)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # RST at the close
            connection.close()
    answer = await ground.exchange(request("/healthz", "connection: close"))
    ground.expect(_statuses(answer) == [200], f"afterwards: {answer[:60]!r}")


async def _silent(ground: Ground, count: int) -> None:
    """Connections that say nothing, on both ports."""
    grpc_host, _, grpc_port = ground.served.grpc.rpartition(":")
    connections = []
    for number in range(count):
        place = (ground.host, ground.port) if number % 2 else (grpc_host, int(grpc_port))
        connections.append(await asyncio.open_connection(*place))
    await asyncio.sleep(1.0)
    for _, writer in connections:
        writer.close()


async def _unread(ground: Ground) -> None:
    """Subscribers of HTTP and gRPC that never read, while there is much to tell."""
    for _ in range(50):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((ground.host, ground.port))
        connection.sendall(request("/api/events"))
        ground.served.folder.joinpath("unread").touch()
        _open.append(connection)
    async with lyra.connect(ground.served.grpc, token=OPERATOR, user_id="ada") as kernel:
        streams = [kernel.subscribe(["noise"]) for _ in range(20)]
        reading = [asyncio.ensure_future(anext(stream)) for stream in streams]
        await asyncio.sleep(0.5)
        payload = json.dumps("x" * 20_000)
        for _ in range(50):
            await asyncio.gather(*(kernel.publish("noise", payload) for _ in range(40)))
            await asyncio.gather(*(kernel.create_envelope("y" * 2_000) for _ in range(20)))
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        for stream in streams:
            with contextlib.suppress(LyraError):
                await stream.aclose()
    for connection in _open:
        connection.close()
    _open.clear()


_open: list[socket.socket] = []
