"""HTTP to a provider: what the transport raises becomes a named error, and what a server says is shown without keys."""

from __future__ import annotations

import asyncio
import gc
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyra.errors import ModelError
from lyra.models.settings import Timeouts
from lyra.models.wire.faults import KINDS, from_code, from_status, retry_after
from lyra.models.wire.http import Http
from tests.models.server import Reply, Server, run
from tests.models.wires import KEY


def failed(error: Exception) -> ModelError:
    """The error of a call whose transport raises `error`."""

    class Broken(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            raise error

    async def main() -> None:
        http = Http(provider="here", secrets=lambda: (KEY,), transport=Broken())
        async with http.post("http://here.example/", b"{}", {}):
            pass

    with pytest.raises(ModelError) as caught:
        run(main())
    assert KEY not in caught.value.render()
    return caught.value


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (httpx2.ConnectError("refused"), "connection"),
        (httpx2.ConnectTimeout("slow"), "timeout"),
        (httpx2.PoolTimeout("full"), "timeout"),
        (httpx2.RemoteProtocolError(f"peer closed {KEY}"), "connection"),
        (httpx2.ReadError("reset"), "connection"),
        (httpx2.WriteError("reset"), "connection"),
        (httpx2.ProxyError(f"407 {KEY}"), "connection"),
        (httpx2.UnsupportedProtocol("gopher"), "connection"),
        (OSError("no route"), "connection"),
    ],
)
def test_errors_of_the_transport(error: Exception, kind: str) -> None:
    assert failed(error).kind == kind


def test_a_certificate_that_is_not_trusted() -> None:
    error = failed(httpx2.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate"))
    assert error.kind == "connection"
    assert "SSL_CERT_FILE" in str(error.hint)


def test_what_a_server_says_is_one_short_line_without_keys() -> None:
    http = Http(provider="here", secrets=lambda: (KEY, "beta", ""))
    assert http.clean(f"bad\n  key {KEY}!") == "bad key ***!"
    assert http.clean("a beta feature") == "a beta feature", "a short value is part of other words"
    assert len(http.clean("x" * 9_000)) == 500


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": format_datetime(datetime.fromtimestamp(1_000_030, UTC), usegmt=True)}, 30.0),
        ({"retry-after": format_datetime(datetime.fromtimestamp(999_000, UTC), usegmt=True)}, 0.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
def test_the_pause_a_server_asks_for(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, 1_000_000.0) == seconds


@given(st.text(max_size=30))
def test_any_header_is_a_pause_or_none(text: str) -> None:
    pause_s = retry_after({"retry-after": text, "retry-after-ms": text}, 1_000_000.0)
    assert pause_s is None or 0 <= pause_s < 1e9


@given(status=st.integers(300, 599), code=st.text(max_size=20), message=st.text(max_size=40))
def test_every_refusal_has_a_kind(status: int, code: str, message: str) -> None:
    assert from_status(status, message, code=code).kind in KINDS
    assert from_code(code, message).kind in KINDS


def test_the_limits_of_time_stand_apart() -> None:
    """A late first byte is not an idle one, and an answer in time is neither."""

    async def main(reply: Reply, timeouts: Timeouts) -> bytes:
        async with Server(reply) as server:
            http = Http(provider="here", timeouts=timeouts)
            try:
                async with http.post(server.url, b"{}", {}) as chunks:
                    return b"".join([chunk async for chunk in chunks])
            finally:
                await http.close()

    late = Reply([b"a"], delay_s=0.15)
    slow = Reply([b"a", b"b"], pause_s=0.15)
    assert run(main(late, Timeouts(idle_s=0.05))) == b"a"
    assert run(main(slow, Timeouts(first_s=0.1))) == b"ab"
    for reply, timeouts in (
        (late, Timeouts(first_s=0.05)),
        (slow, Timeouts(idle_s=0.05)),
        (slow, Timeouts(total_s=0.1)),
    ):
        with pytest.raises(ModelError) as caught:
            run(main(reply, timeouts))
        assert caught.value.kind == "timeout"
    assert run(main(late, Timeouts(None, None, None, None))) == b"a"


def test_a_time_out_of_the_callers_own_is_left_alone() -> None:
    """Who wraps a call in a time-out gets that one, not an error of the provider."""

    async def main() -> None:
        async with Server(Reply(b"", hang=True)) as server:
            http = Http(provider="here")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05), http.post(server.url, b"{}", {}) as chunks:
                    async for _ in chunks:
                        pass
            await http.close()

    run(main())


def test_nothing_is_sent_after_closing_but_to_a_new_connection() -> None:
    async def main() -> Any:
        async with Server(Reply(b"ok")) as server:
            http = Http(provider="here")
            received = []
            for _ in range(2):
                async with http.post(server.url, b"{}", {}) as chunks:
                    received += [chunk async for chunk in chunks]
                await http.close()
            return received

    assert run(main()) == [b"ok", b"ok"]


# ---------------------------------------------------------------- where a key goes
@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_no_proxy_of_the_environment_sees_what_is_not_encrypted(monkeypatch: Any, variable: str) -> None:
    """Neither the key nor the prompt: both would be readable there."""

    async def main() -> Any:
        async with Server(Reply(b"from the proxy")) as proxy, Server(Reply(b"direct")) as server:
            monkeypatch.setenv(variable, proxy.url)
            http = Http(provider="here")
            async with http.post(server.url, b"{}", {"x-api-key": KEY}) as chunks:
                received = b"".join([chunk async for chunk in chunks])
            await http.close()
            return received, proxy.requests

    assert run(main()) == (b"direct", [])


@pytest.mark.parametrize(
    ("url", "proxied"),
    [
        ("https://api.example/v1", True),
        ("http://box.example/v1", False),
        ("https://localhost:8443/v1", False),
        ("https://[::1]:8443/v1", False),
    ],
)
def test_which_addresses_may_be_reached_through_a_proxy(monkeypatch: Any, url: str, proxied: bool) -> None:
    """One of the environment's; what stays on this machine needs none."""
    clients: list[dict[str, Any]] = []

    class Client:
        def __init__(self, **settings: Any) -> None:
            clients.append(settings)

        def build_request(self, *_: Any, **__: Any) -> Any:
            raise httpx2.ConnectError("no network in tests")

        async def aclose(self) -> None:
            pass

    async def main() -> None:
        http = Http(provider="here")
        with pytest.raises(ModelError):
            async with http.post(url, b"{}", {}):
                pass
        await http.close()

    monkeypatch.setattr(httpx2, "AsyncClient", Client)
    run(main())
    assert [settings["trust_env"] for settings in clients] == [proxied]


# ---------------------------------------------------------------- lines that break
@pytest.mark.parametrize("answer", [b"", b"NOT HTTP AT ALL\r\n\r\n", b"HTTP/1.1 200 "])
def test_a_line_that_breaks_before_an_answer_is_a_matter_of_the_connection(answer: bytes) -> None:
    async def main() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"{}")
            writer.write(answer)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        http = Http(provider="here")
        try:
            async with http.post(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", b"{}", {}):
                pass
        finally:
            await http.close()
            server.close()

    with pytest.raises(ModelError) as caught:
        run(main())
    assert caught.value.kind == "connection"
    assert caught.value.hint


def test_a_line_that_breaks_in_an_answer_is_a_truncated_stream() -> None:
    async def main() -> None:
        async with Server(Reply(b"half an", cut=True)) as server:
            http = Http(provider="here")
            try:
                async with http.post(server.url, b"{}", {}) as chunks:
                    async for _ in chunks:
                        pass
            finally:
                await http.close()

    with pytest.raises(ModelError) as caught:
        run(main())
    assert caught.value.kind == "stream_truncated"


# ---------------------------------------------------------------- loops
class _Counted(httpx2.AsyncBaseTransport):
    """Answers everything, and knows in which loop it was closed."""

    def __init__(self) -> None:
        self.closed_in: list[asyncio.AbstractEventLoop] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=b"ok")

    async def aclose(self) -> None:
        self.closed_in.append(asyncio.get_running_loop())


def test_a_loop_that_ends_takes_its_connections_with_it() -> None:
    """A client that is used in one `asyncio.run` after another leaves nothing open, and `close` finds nothing left."""
    transport = _Counted()
    http = Http(provider="here", transport=transport)
    loops: list[asyncio.AbstractEventLoop] = []

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        async with http.post("http://here.example/", b"{}", {}) as chunks:
            assert [chunk async for chunk in chunks] == [b"ok"]

    for _ in range(3):
        run(main())
    assert transport.closed_in == loops
    run(http.close())
    assert transport.closed_in == loops


def test_two_loops_at_a_time_have_a_pool_each() -> None:
    transport = _Counted()
    http = Http(provider="here", transport=transport)

    async def ask() -> None:
        async with http.post("http://here.example/", b"{}", {}):
            pass

    async def main() -> None:
        await ask()
        await asyncio.to_thread(asyncio.run, ask())
        assert len(transport.closed_in) == 1, "the other loop's own, and not ours"
        await http.close()
        assert len(transport.closed_in) == 2

    run(main())


@pytest.mark.filterwarnings("error")
def test_real_connections_are_closed_with_their_loop() -> None:
    """No warning about a transport that was not closed."""

    async def ask(http: Http) -> bytes:
        async with Server(Reply(b"ok")) as server, http.post(server.url, b"{}", {}) as chunks:
            return b"".join([chunk async for chunk in chunks])

    http = Http(provider="here")
    assert [run(ask(http)) for _ in range(3)] == [b"ok"] * 3
    gc.collect()


def test_a_server_that_does_not_take_the_connection_has_its_own_limit_of_time() -> None:
    """`connect_s` is over before the other limits, also where the server listens and never agrees on TLS."""

    async def main() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        http = Http(provider="here", timeouts=Timeouts(connect_s=0.05))
        try:
            async with http.post(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", b"{}", {}):
                pass
        finally:
            await http.close()
            server.close()

    with pytest.raises(ModelError) as caught:
        run(asyncio.wait_for(main(), 5))
    assert caught.value.kind == "timeout"


def test_calls_at_once_are_spread_over_clients() -> None:
    """A client looks at all its connections before each call: none has many. Clients that are free are used again."""

    async def main() -> None:
        async with Server(Reply(b"x", delay_s=0.2)) as server:
            http = Http(provider="here")

            async def ask() -> None:
                async with http.post(server.url, b"{}", {}) as chunks:
                    assert [chunk async for chunk in chunks] == [b"x"]

            for _ in range(2):
                await asyncio.gather(*(ask() for _ in range(20)))
                assert [pool.calls for pool in http._pools.values()] == [0, 0, 0]
            await http.close()

    run(main())


def test_a_forwarded_answer_is_not_read() -> None:
    """Any status, its headers and its bytes as they are; the whole of it may take longer than a first piece."""

    async def main() -> None:
        body = b'{"error": 1}'
        async with Server(Reply(body, status=418, headers={"content-type": "x/y", "a-b": "c"}, delay_s=0.3)) as server:
            http = Http(provider="here", timeouts=Timeouts(first_s=0.1))
            async with http.forward(server.url, b"{}", {}, stream=False) as answer:
                assert (answer.status, answer.headers["a-b"], await answer.read()) == (418, "c", body)
            with pytest.raises(ModelError) as caught:
                async with http.forward(server.url, b"{}", {}, stream=True):
                    pass
            assert caught.value.kind == "timeout"
            await http.close()

    run(main())
