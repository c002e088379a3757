"""The gRPC server itself: health, reflection, limits of messages and connections, peers that are slow or gone."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from lyra.core.address import Address
from lyra.core.trace_context import current_span
from lyra.errors import ConfigError
from lyra.kernel.kernel import Kernel
from lyra.server.grpc import face as face_module
from lyra.server.grpc.face import GrpcFace, service_names
from lyra.server.grpc.guard import end_of
from tests.server.grpc.client import ALICE, OPERATOR, Client, on_loop, serving, settings

KEY = "sk-ant-api03-" + "Ab3dEf6h" * 8
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def _own_channel(client: Client) -> Any:
    """A connection of its own: channels to one address share theirs otherwise."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    return grpc.aio.insecure_channel(str(client.address), options=options)


# ------------------------------------------------------------------ health and reflection


@on_loop
async def test_health_is_open_and_knows_every_service():
    """Health.Check needs no token; an unknown service is NOT_FOUND."""
    async with serving() as (_kernel, client):
        health = health_pb2_grpc.HealthStub(client.channel)
        for name in ("", *service_names()):
            assert (await health.Check(health_pb2.HealthCheckRequest(service=name))).status == SERVING
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await health.Check(health_pb2.HealthCheckRequest(service="none"))
        assert error.value.code() is grpc.StatusCode.NOT_FOUND


@on_loop
async def test_health_is_watched_with_a_token_and_says_when_the_server_drains():
    async with serving() as (_kernel, client):
        health = health_pb2_grpc.HealthStub(client.channel)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await health.Watch(health_pb2.HealthCheckRequest()).read()
        assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
        watch = health.Watch(health_pb2.HealthCheckRequest(), metadata=client.metadata)
        assert (await watch.read()).status == SERVING
        stopping = asyncio.ensure_future(client.face.stop(5.0))
        assert (await watch.read()).status == NOT_SERVING
        await stopping


async def _reflect(client: Client, version: str, **ask: Any) -> Any:
    call = client.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        reflection_pb2.ServerReflectionRequest.SerializeToString,
        reflection_pb2.ServerReflectionResponse.FromString,
    )

    async def requests() -> Any:
        yield reflection_pb2.ServerReflectionRequest(**ask)

    return await anext(aiter(call(requests(), metadata=client.metadata)))


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_a_client_that_knows_nothing_finds_its_way_by_reflection(version: str):
    """List the services, fetch the description of one, build its messages from that alone, call it."""

    @on_loop
    async def body():
        async with serving() as (kernel, client):
            kernel.submit("p1", user_id="alice")
            listed = await _reflect(client, version, list_services="")
            names = {service.name for service in listed.list_services_response.service}
            assert {*service_names(), "grpc.health.v1.Health"} <= names
            described = await _reflect(client, version, file_containing_symbol="lyra.engine.v1.KernelService")
            pool = descriptor_pool.DescriptorPool()
            for data in described.file_descriptor_response.file_descriptor_proto:
                pool.Add(descriptor_pb2.FileDescriptorProto.FromString(data))
            rpc = pool.FindServiceByName("lyra.engine.v1.KernelService").methods_by_name["GetProcess"]
            request, response = GetMessageClass(rpc.input_type), GetMessageClass(rpc.output_type)
            call = client.channel.unary_unary(
                f"/{rpc.containing_service.full_name}/{rpc.name}", request.SerializeToString, response.FromString
            )
            assert (await call(request(pid="p1"), metadata=client.metadata)).user_id == "alice"

    body()


@on_loop
async def test_reflection_needs_a_token():
    async with serving() as (_kernel, client):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await _reflect(client.as_("wrong-token-0123456789"), "v1", list_services="")
        assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED


@on_loop
async def test_an_rpc_that_is_not_there_is_unimplemented():
    async with serving() as (_kernel, client):
        call = client.channel.unary_unary("/lyra.engine.v1.KernelService/Reboot")
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call(b"", metadata=client.metadata)
        assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED


# ------------------------------------------------------------------ what a call may tell


@on_loop
async def test_an_unexpected_exception_is_internal_without_a_word(monkeypatch, caplog):
    """Its text goes to the log alone: it may hold anything."""

    def broken(_self: Kernel, pid: str) -> None:
        raise RuntimeError(f"refused: {KEY}")

    monkeypatch.setattr(Kernel, "get_process", broken)
    async with serving() as (kernel, client):
        kernel.submit("p1", user_id="alice")
        logging.getLogger("lyra.server").addHandler(caplog.handler)
        try:
            assert await client.error("KernelService/GetProcess", pid="p1") == ("INTERNAL", "")
        finally:
            logging.getLogger("lyra.server").removeHandler(caplog.handler)
        assert "KernelService/GetProcess failed unexpectedly" in caplog.text
        assert "RuntimeError" in caplog.text
        assert KEY not in caplog.text


@on_loop
async def test_no_error_shows_the_token():
    async with serving() as (_kernel, client):
        token = "almost-right-0123456789-secret"
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await client.as_(token)("KernelService/GetProcess", pid="p1")
        assert token not in f"{error.value.details()} {error.value.trailing_metadata()}"


@on_loop
async def test_details_are_one_short_line():
    """A mistake of any length is told in one line of at most 500 characters, and the call gets its status."""
    async with serving() as (_kernel, client):
        code, details = await client.error("KernelService/GetProcess", pid="é\n" * 100_000)
        assert code == "NOT_FOUND"
        assert len(details) <= 500
        assert "\n" not in details


@on_loop
async def test_each_call_is_observed_with_its_code():
    """`observe` gets method, status code and seconds of calls that went well, failed and were cancelled."""
    seen: list[tuple[str, str]] = []
    async with serving(observe=lambda method, code, seconds: seen.append((method, code))) as (_kernel, client):
        await client.status("KernelService/GetProcessCounts")
        await client.status("KernelService/GetProcess", pid="none")
        await client.as_("").status("KernelService/GetProcess", pid="none")
        subscription = client("CommBusService/Subscribe", event_types=["e"])
        waiting = asyncio.ensure_future(subscription.read())
        while not _kernel.bus.subscribers("e"):
            await asyncio.sleep(0.01)
        subscription.cancel()
        await asyncio.wait([waiting])
        while len(seen) < 4:
            await asyncio.sleep(0.01)
    assert seen == [
        ("KernelService/GetProcessCounts", "OK"),
        ("KernelService/GetProcess", "NOT_FOUND"),
        ("KernelService/GetProcess", "UNAUTHENTICATED"),
        ("CommBusService/Subscribe", "CANCELLED"),
    ]


@on_loop
async def test_the_work_of_a_call_belongs_to_the_trace_of_its_caller():
    """The metadata `traceparent` names the span around the work; one that is malformed is ignored."""
    async with serving() as (kernel, client):
        kernel.bus.register_handler("trace", lambda _message: (current_span.get() or ("none",))[0])
        for header, trace_id in ((f"00-{'ab' * 16}-{'cd' * 8}-01", "ab" * 16), ("00-nonsense", "none")):
            traced = Client(client.channel, traceparent=header)
            answer = await traced("CommBusService/Query", query_type="trace")
            assert json.loads(answer.result) == trace_id
        assert current_span.get() is None


# ------------------------------------------------------------------ limits


@on_loop
async def test_a_message_that_is_too_large_is_refused_unread():
    async with serving(message_bytes_max=10_000) as (_kernel, client):
        fields = {"event_type": "e", "payload": b'"' + b"x" * 20_000 + b'"'}
        assert await client.status("CommBusService/Publish", **fields) == "RESOURCE_EXHAUSTED"
        assert await client.status("CommBusService/Publish", event_type="e", payload=b'"x"') == "OK"


def test_calls_beyond_the_limit_are_refused(monkeypatch):
    """Open streams count: with as many as there may be, a further call is RESOURCE_EXHAUSTED until one ends."""
    monkeypatch.setattr(face_module, "SERVER_CALLS_MAX", 2)

    @on_loop
    async def body():
        async with serving() as (kernel, client):
            streams = []
            for number in range(2):
                call = client("CommBusService/Subscribe", event_types=["e"])
                streams.append((call, asyncio.ensure_future(call.read())))
                while kernel.bus.subscribers("e") == number:
                    await asyncio.sleep(0.01)
            assert await client.status("KernelService/GetProcessCounts") == "RESOURCE_EXHAUSTED"
            streams[0][0].cancel()
            async with asyncio.timeout(30.0):
                while await client.status("KernelService/GetProcessCounts") != "OK":
                    await asyncio.sleep(0.01)
            streams[1][0].cancel()
            await asyncio.wait([reading for _call, reading in streams])

    body()


@on_loop
async def test_details_have_no_characters_that_act_on_a_terminal():
    async with serving() as (_kernel, client):
        code, details = await client.error("KernelService/GetProcess", pid="a\x1b[2Jb\u202ec")
        assert code == "NOT_FOUND"
        assert details.isprintable()


@pytest.mark.slow
@on_loop
async def test_connections_beyond_the_limit_are_refused_and_make_room_when_they_end():
    async with serving(connections_max=2) as (_kernel, client):
        await client("KernelService/GetProcessCounts")
        async with _own_channel(client) as second:
            await Client(second)("KernelService/GetProcessCounts")
            async with _own_channel(client) as third:
                assert await Client(third).status("KernelService/GetProcessCounts", timeout=30.0) == "UNAVAILABLE"
        async with _own_channel(client) as fourth:
            await fourth.channel_ready()
            await Client(fourth)("KernelService/GetProcessCounts")


@pytest.mark.slow
def test_a_connection_that_says_nothing_is_dropped(monkeypatch):
    """Bytes that never come: the connection ends after the time for a handshake."""
    monkeypatch.setattr(face_module, "SERVER_HANDSHAKE_S", 1.0)

    @on_loop
    async def body():
        async with serving() as (_kernel, client):
            reader, writer = await asyncio.open_connection(*client.address)
            async with asyncio.timeout(30.0):
                await reader.read()  # the greeting of the server, then the end
            writer.close()

    body()


class _Relay:
    """A TCP relay that can stop passing bytes on, as a network that has lost a peer."""

    def __init__(self, target: Address) -> None:
        self._target = target
        self.open = asyncio.Event()
        self.open.set()
        self.dropped = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        above_reader, above_writer = await asyncio.open_connection(*self._target)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass_on(reader, above_writer))
                group.create_task(self._pass_on(above_reader, writer))
        except* OSError:
            pass
        finally:
            self.dropped.set()
            for open_writer in (writer, above_writer):
                open_writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            if self.open.is_set():
                writer.write(data)
                await writer.drain()
        raise ConnectionResetError


@asynccontextmanager
async def _relayed(client: Client) -> Any:
    relay = _Relay(client.address)
    listening = await asyncio.start_server(relay, "127.0.0.1", 0)
    try:
        yield relay, listening.sockets[0].getsockname()[1]
    finally:
        listening.close()


@pytest.mark.slow
def test_a_peer_that_is_gone_is_noticed(monkeypatch):
    """A client whose network broke answers no ping: its connection, and its subscription, end."""
    monkeypatch.setattr(face_module, "SERVER_KEEPALIVE_S", 1.0)
    monkeypatch.setattr(face_module, "SERVER_HANDSHAKE_S", 1.0)

    @on_loop
    async def body():
        async with (
            serving() as (kernel, client),
            _relayed(client) as (relay, port),
            grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        ):
            subscription = Client(channel)("CommBusService/Subscribe", event_types=["e"])
            waiting = asyncio.ensure_future(subscription.read())
            while not kernel.bus.subscribers("e"):
                await asyncio.sleep(0.01)
            relay.open.clear()
            async with asyncio.timeout(60.0):
                await relay.dropped.wait()
                while kernel.bus.subscribers("e"):
                    await asyncio.sleep(0.01)
            await asyncio.wait([waiting])

    body()


@on_loop
async def test_a_port_that_is_taken_is_said_in_one_sentence():
    async with Kernel() as kernel:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = Address(*taken.getsockname())
            with pytest.raises(ConfigError, match=f"cannot listen for gRPC on {address}"):
                await GrpcFace(kernel, settings(grpc=address)).start()


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
@on_loop
async def test_an_ipv6_address_is_given_with_its_brackets():
    async with Kernel() as kernel:
        face = GrpcFace(kernel, settings(grpc=Address("::1", 0)))
        try:
            address = await face.start()
        except ConfigError:
            pytest.skip("this machine has no ::1")
        try:
            assert str(address) == f"[::1]:{address.port}"
            async with grpc.aio.insecure_channel(str(address)) as channel:
                await Client(channel)("KernelService/GetProcessCounts")
        finally:
            await face.stop(1.0)


@on_loop
async def test_metadata_that_is_no_text_is_no_token():
    """A `-bin` key, or a token of odd characters, is UNAUTHENTICATED and not an error of the server's."""
    async with serving() as (_kernel, client):
        odd = Client(client.channel, "")
        odd.metadata = [("authorization-bin", b"\xff\xfe")]  # type: ignore[list-item]
        assert await odd.status("KernelService/GetProcessCounts") == "UNAUTHENTICATED"
        for header in (f"Basic {OPERATOR}", "Bearer", f"Bearer {ALICE} {OPERATOR}", ""):
            odd.metadata = [("authorization", header)]
            assert await odd.status("KernelService/GetProcessCounts") == "UNAUTHENTICATED"


def test_the_end_of_a_call_has_no_key_in_it():
    """A key in the words or in the facts of an error reaches neither the details nor the metadata."""
    key = "sk-ant-api03-" + "Zq7" * 20
    ended = end_of(
        ConfigError(f"the provider refused {key}", hint=f"is {key} right?", sent=key), "KernelService/GetProcess"
    )
    (_, data) = ended.metadata[0]
    assert ended.details.startswith("the provider refused")
    assert key not in ended.details
    assert isinstance(data, bytes)
    assert key.encode() not in data
