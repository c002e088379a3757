"""What every request passes: token, user, host, origin, size, rate; and how each refusal looks."""

from __future__ import annotations

import asyncio
import http.client
import re
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from lyra import Kernel
from lyra.core.limits import SERVER_HEAD_BYTES_MAX
from lyra.errors import ConfigError
from lyra.server import app
from lyra.server.http.app import ConnectionLimits
from lyra.server.http.past.records import Records
from lyra.server.http.routes import ENDPOINTS
from lyra.server.identity import Caller
from lyra.server.token_limit import RequestWindow
from lyra.testing import SimClock
from tests.server.http.support import ADA, OPERATOR, Served, echo, in_loop, served

LIST = "/api/processes"


def filled(path: str) -> str:
    """The path of an endpoint with something in each of its places."""
    for name in ("pid", "name", "session_id", "run_id", "interrupt_id", "trace_id", "model", "node_id", "webhook_id"):
        path = path.replace(f"{{{name}}}", "echo" if name == "name" else "some-id")
    return path


@served()
async def test_every_endpoint_but_the_open_ones_needs_a_token(parts: Served) -> None:
    """Without a token or with a wrong one: 401, which says how to send one, and nothing else."""
    open_paths = {endpoint.path for endpoint in ENDPOINTS if endpoint.is_open}
    assert open_paths == {"/healthz", "/readyz", "/openapi.json", "/hooks/{hook_id}"} & {
        endpoint.path for endpoint in ENDPOINTS
    }
    for endpoint in ENDPOINTS:
        if endpoint.is_open:
            continue
        for headers in ({}, {"authorization": "Bearer wrong"}, {"x-api-key": "wrong"}, {"authorization": "Basic x"}):
            refused = await parts.stranger.request(endpoint.method, filled(endpoint.path), headers=headers)
            assert refused.status_code == 401, endpoint.path
            assert refused.headers["www-authenticate"] == "Bearer"


@served()
async def test_a_token_is_taken_as_bearer_and_as_api_key(parts: Served) -> None:
    assert (await parts.stranger.get(LIST, headers={"authorization": f"bearer {ADA}"})).status_code == 200
    assert (await parts.stranger.get(LIST, headers={"x-api-key": ADA})).status_code == 200


@served()
async def test_a_token_without_a_user_acts_for_the_one_that_is_named(parts: Served) -> None:
    """By header, query or body; a bound token takes no other, and two different names are refused."""
    parts.kernel.submit("hers", user_id="ada")
    parts.kernel.submit("his", user_id="bob")

    async def pids(**options: Any) -> list[str]:
        page = (await parts.operator.get(LIST, **options)).json()
        return [process["pid"] for process in page["processes"]]

    assert await pids() == ["hers", "his"]
    assert await pids(headers={"x-user-id": "ada"}) == ["hers"]
    assert await pids(params={"user_id": "bob"}) == ["his"]
    assert (await parts.ada.get(LIST, headers={"x-user-id": "bob"})).status_code == 403
    two = await parts.operator.get(LIST, headers={"x-user-id": "ada"}, params={"user_id": "bob"})
    assert two.status_code == 403
    assert (await parts.operator.get(LIST, headers={"x-user-id": "x" * 300})).status_code == 400


@served(hosts=("lyra.example",))
async def test_a_request_for_another_host_is_misdirected(parts: Served) -> None:
    """A name that leads here by DNS gets nothing, whatever its token; the configured names are taken."""
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "[::2]", ""):
        refused = await parts.operator.get(LIST, headers={"host": host})
        assert refused.status_code == 421, host
        assert refused.json()["error"]["code"] == "misdirected"
    for host in ("127.0.0.1:99999", "localhost:65536", "localhost:x", "a b"):
        assert (await parts.operator.get(LIST, headers={"host": host})).status_code == 400, host
    for host in ("localhost:1", "localhost:65535", "LOCALHOST", "[::1]:8420", "lyra.example", "Lyra.Example:443"):
        assert (await parts.operator.get(LIST, headers={"host": host})).status_code == 200, host


@served()
async def test_a_page_of_another_origin_is_refused(parts: Served) -> None:
    """Also with the right token, also the question before a request (there is no CORS); the own origin may ask."""
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1", f"http://{parts.address}.evil.example"):
        for method in ("GET", "POST", "OPTIONS"):
            refused = await parts.operator.request(method, LIST, headers={"origin": origin})
            assert refused.status_code == 403, origin
            assert "access-control-allow-origin" not in refused.headers
    assert (await parts.operator.get(LIST, headers={"origin": parts.url})).status_code == 200


@served(message_bytes_max=2000)
async def test_a_body_that_is_too_large_is_refused(parts: Served) -> None:
    """With a length it is not read; in chunks without one it is read up to the limit."""
    large = b'{"message": "' + b"x" * 5000 + b'"}'
    chat = "/api/agents/echo/chat"
    refused = await parts.ada.post(chat, content=large, headers={"content-type": "application/json"})
    assert refused.status_code == 413
    assert refused.json()["error"]["code"] == "too_large"

    async def chunks() -> Any:
        for place in range(0, len(large), 500):
            yield large[place : place + 500]

    refused = await parts.ada.post(chat, content=chunks(), headers={"content-type": "application/json"})
    assert refused.status_code == 413
    assert (await parts.ada.post(chat, json={"message": "x" * 1000})).status_code == 200


@served()
async def test_the_refusal_of_a_very_large_body_reaches_a_client_that_writes_all_of_it(parts: Served) -> None:
    """The rest of the body is read and thrown away: a reset connection would lose the answer."""

    def post() -> int:
        connection = http.client.HTTPConnection(parts.address.host, parts.address.port, timeout=60)
        with closing(connection):
            headers = {"authorization": f"Bearer {ADA}", "content-type": "application/json"}
            connection.request("POST", "/api/agents/echo/chat", body=b"x" * 40_000_000, headers=headers)
            return connection.getresponse().status

    assert await asyncio.to_thread(post) == 413


@served(requests_per_minute=5)
async def test_more_requests_a_minute_than_allowed_are_refused(parts: Served) -> None:
    """429 says when to ask again; another user is not held up; the open paths are not counted."""
    for _ in range(5):
        assert (await parts.ada.get(LIST)).status_code == 200
    refused = await parts.ada.get(LIST)
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert refused.json()["error"]["code"] == "rate_limited"
    assert (await parts.bob.get(LIST)).status_code == 200
    assert (await parts.ada.get("/healthz")).status_code == 200


def test_the_window_slides() -> None:
    """A burst at the end of one minute does not allow another at the beginning of the next."""
    clock = SimClock(0.0)
    window = RequestWindow(10, clock)
    clock.advance(59)
    assert [window.admit("a") for _ in range(10)] == [0.0] * 10
    clock.advance(2)
    assert sum(window.admit("a") == 0.0 for _ in range(10)) <= 1
    clock.advance(120)
    assert [window.admit("a") for _ in range(10)] == [0.0] * 10
    assert window.admit("a") > 0


@served()
async def test_limits_that_are_set_in_the_kernel_hold_for_work(parts: Served) -> None:
    parts.kernel.rate_limiter.set_user_limits("ada", {"requests_per_minute": 2})
    chat = "/api/agents/echo/chat"
    statuses = [(await parts.ada.post(chat, json={"message": "x"})).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]
    assert (await parts.ada.get(LIST)).status_code == 200
    assert (await parts.bob.post(chat, json={"message": "x"})).status_code == 200


@served()
async def test_answers_have_security_headers(parts: Served) -> None:
    for response in (await parts.operator.get(LIST), await parts.stranger.get(LIST), await parts.stranger.get("/x")):
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
        assert response.headers["cache-control"] == "no-store"
        assert "server" not in response.headers


@served()
async def test_a_wrong_path_or_method_is_said_in_json(parts: Served) -> None:
    assert (await parts.ada.get("/api/nothing")).json()["error"]["code"] == "not_found"
    wrong = await parts.ada.put(LIST)
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET")
    assert (await parts.ada.get(LIST, params={"limt": "3"})).json()["error"]["hint"] == "did you mean 'limit'?"


def test_an_unexpected_error_is_told_without_its_words(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a traceback nor the text of a foreign exception reaches the client; the log has its class and place."""

    async def main() -> None:
        async with Kernel() as kernel:
            application = app(kernel, tokens={OPERATOR: ""})

            def break_down(*_: object) -> None:
                raise RuntimeError(f"the password is hunter{2}")

            monkeypatch.setattr(Records, "sums", break_down)
            transport = httpx.ASGITransport(application)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as caller:
                failed = await caller.get("/api/costs", headers={"x-api-key": OPERATOR})
            assert failed.status_code == 500
            assert failed.json()["error"]["code"] == "internal"
            assert "hunter2" not in failed.text
            assert "Traceback" not in failed.text
            assert "RuntimeError" in caplog.text
            assert "break_down" in caplog.text
            assert "hunter2" not in caplog.text

    in_loop(main())


# ---------------------------------------------------------------- connections


async def connected(parts: Served) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(parts.address.host, parts.address.port)


QUICK = ConnectionLimits(5, head_s=0.15, unread_s=0.5)


@served(limits=QUICK)
async def test_a_connection_that_says_nothing_or_too_slowly_is_closed(parts: Served) -> None:
    """Nothing at all, half a request line, headers one after the other: closed after the time for headers."""
    for beginning in (b"", b"GET /heal", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"):
        reader, writer = await connected(parts)
        writer.write(beginning)
        with suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
    assert (await parts.stranger.get("/healthz")).status_code == 200


@served(limits=QUICK)
async def test_a_second_request_on_a_connection_has_the_same_time(parts: Served) -> None:
    reader, writer = await connected(parts)
    writer.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
    writer.write(b"GET /healthz HTTP/1.1\r\nhost: loc")
    with suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()


@served()
async def test_headers_that_are_too_large_are_refused(parts: Served) -> None:
    reader, writer = await connected(parts)
    writer.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: ")
    for _ in range(SERVER_HEAD_BYTES_MAX // 4096 + 2):
        writer.write(b"y" * 4096)
    assert b" 431 " in await asyncio.wait_for(reader.readline(), 10)
    writer.close()


@served()
async def test_a_head_that_is_too_large_is_not_parsed_however_it_comes(parts: Served) -> None:
    """In one piece with its end, or behind another request: refused. One just below the limit, with a body in the same
    piece, is answered."""

    def head(size: int, method: bytes = b"GET", body: bytes = b"") -> bytes:
        start = b"%s /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\nx: " % (method, len(body))
        return start + b"y" * (size - len(start) - 4) + b"\r\n\r\n" + body

    for sent, statuses in (
        (head(SERVER_HEAD_BYTES_MAX + 1), [b"431"]),
        (head(SERVER_HEAD_BYTES_MAX), [b"200"]),
        (head(200) + head(SERVER_HEAD_BYTES_MAX + 20_000), []),
        (head(SERVER_HEAD_BYTES_MAX, b"POST", b"z" * 200_000) + head(200), [b"405", b"200"]),
    ):
        reader, writer = await connected(parts)
        writer.write(sent)
        answered = b""
        with suppress(ConnectionResetError, TimeoutError):
            while answered.count(b"HTTP/1.1 ") < max(1, len(statuses)):
                piece = await asyncio.wait_for(reader.read(65_536), 10)
                if not piece:
                    break
                answered += piece
        assert re.findall(rb"HTTP/1.1 (\d+) ", answered) == statuses, len(sent)
        writer.close()


@served(hosts=("*",))
async def test_a_request_has_one_plain_host(parts: Served) -> None:
    """Two Host lines, and one that is more than a name or address and a port, are bad requests: the server writes it
    into links."""
    good = (b"host: localhost:1", b"host: [::1]", b"Host: Lyra.example:443")
    bad = (
        b"host: localhost\r\nhost: localhost",
        b"host: localhost\r\nHost: evil.example",
        *(b"host: localhost:1@evil.example", b"host: localhost:evil.example", b"host: a b", b"host: localhost/x"),
        *(b"host: localhost:80:80", b"host: localhost:999999", b"host: [::1", b"host: l\xc3\xb6cal", b"host: x?y"),
    )
    for status, lines in ((b"200", good), (b"400", bad)):
        for line in lines:
            reader, writer = await connected(parts)
            writer.write(b"GET /healthz HTTP/1.1\r\n" + line + b"\r\nconnection: close\r\n\r\n")
            assert (await asyncio.wait_for(reader.read(), 10)).split()[1] == status, line
            writer.close()


@served(limits=QUICK)
async def test_more_connections_than_allowed_are_refused(parts: Served) -> None:
    held = [await connected(parts) for _ in range(5)]
    while len(parts.face._server.server_state.connections) < 5:
        await asyncio.sleep(0.01)
    reader, writer = await connected(parts)
    assert b" 503 " in await asyncio.wait_for(reader.readline(), 10)
    for _, other in [*held, (reader, writer)]:
        other.close()


@served()
async def test_a_body_that_does_not_come_is_given_up(parts: Served) -> None:
    """A half-open client that announces a body and sends none gets 408, and the connection ends."""
    parts.face.app.guard.body_s = 0.3
    reader, writer = await connected(parts)
    head = f"POST /api/agents/echo/chat HTTP/1.1\r\nhost: localhost\r\nx-api-key: {ADA}\r\ncontent-length: 50\r\n"
    writer.write(f"{head}\r\n{{".encode())
    answer = await asyncio.wait_for(reader.read(), 10)
    assert b" 408 " in answer.splitlines()[0]
    writer.close()


@served(limits=ConnectionLimits(100, unread_s=0.3))
async def test_a_client_that_reads_nothing_is_dropped(parts: Served) -> None:
    """Its stream does not pile up in the server: the connection is ended, and its reader with it."""
    feed = parts.face.app.parts.feed
    reader, writer = await connected(parts)
    writer.write(f"GET /api/events HTTP/1.1\r\nhost: localhost\r\nx-api-key: {OPERATOR}\r\n\r\n".encode())
    while not feed.readers:
        await asyncio.sleep(0.01)
    number = 0
    while feed.readers:
        for _ in range(50):
            number += 1
            feed.log.append("big", {"text": "x" * 10_000}, pid="")
        await asyncio.sleep(0.01)
        assert number < 50_000
    writer.close()
    del reader


@served()
async def test_a_reader_that_leaves_is_noticed(parts: Served) -> None:
    feed = parts.face.app.parts.feed
    async with parts.ada.stream("GET", "/api/events"):
        while feed.readers != 1:
            await asyncio.sleep(0.01)
    while feed.readers:
        await asyncio.sleep(0.01)


# ---------------------------------------------------------------- the application of another


def test_an_authenticator_of_the_application_says_who_calls() -> None:
    """It gives a user, a Caller or None; it may be async; without tokens and without it the app is refused."""

    async def main() -> None:
        async with Kernel() as kernel:
            kernel.submit("hers", user_id="ada")

            async def authenticate(headers: Any) -> Caller | str | None:
                callers: dict[str, Caller | str] = {"a": "ada", "b": Caller("bob", is_bound=True)}
                return callers.get(headers.get("cookie", ""))

            transport = httpx.ASGITransport(app(kernel, authenticate=authenticate, hosts=["*"]))
            async with httpx.AsyncClient(transport=transport, base_url="http://any.example") as caller:
                assert (await caller.get(LIST, headers={"cookie": "a"})).json()["total"] == 1
                assert (await caller.get(LIST, headers={"cookie": "b"})).json()["total"] == 0
                assert (await caller.get(LIST, headers={"cookie": "c"})).status_code == 401
                assert (await caller.get(LIST, headers={"cookie": "a", "x-user-id": "bob"})).status_code == 403
            with pytest.raises(ConfigError, match="tokens or an authenticator"):
                app(kernel, tokens={"t": ""}, authenticate=authenticate)

    in_loop(main())


def test_it_mounts_below_a_path_of_another_application() -> None:
    from fastapi import FastAPI

    async def main() -> None:
        async with Kernel() as kernel:
            outer = FastAPI()
            outer.mount("/lyra", app(kernel, tokens={OPERATOR: ""}))
            transport = httpx.ASGITransport(outer)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as caller:
                assert (await caller.get("/lyra/healthz")).status_code == 200
                assert (await caller.get(f"/lyra{LIST}", headers={"x-api-key": OPERATOR})).status_code == 200
                assert (await caller.get(f"/lyra{LIST}")).status_code == 401

    in_loop(main())


def test_the_test_clients_of_other_frameworks_reach_it() -> None:
    """Starlette's client calls `testserver`; alone behind an ASGI server the application opens and closes its
    kernel."""
    from starlette.testclient import TestClient

    kernel = Kernel(programs=(echo(),))
    with TestClient(app(kernel, tokens={OPERATOR: ""})) as caller:
        answer = caller.post("/api/agents/echo/chat", json={"message": "hi"}, headers={"x-api-key": OPERATOR})
        assert (answer.status_code, answer.json()["text"]) == (200, "hi")
        assert caller.get("/healthz", headers={"host": "evil.example"}).status_code == 421
    assert not kernel.open


def test_a_kernel_that_cannot_open_fails_the_start(tmp_path: Path) -> None:
    """The ASGI server is told why, and does not begin to listen."""
    told = []

    async def main() -> None:
        messages = iter([{"type": "lifespan.startup"}])

        async def receive() -> Any:
            return next(messages)

        async def send(message: Any) -> None:
            told.append(message)

        await app(Kernel(tmp_path), tokens={OPERATOR: ""})({"type": "lifespan"}, receive, send)

    in_loop(main())
    assert told[0]["type"] == "lifespan.startup.failed"
    assert told[0]["message"]


@served()
async def test_an_answer_without_a_request_has_the_security_headers(parts: Served) -> None:
    """Bytes that are no HTTP, and headers without end, are refused in the form of any other refusal."""
    for data, status in ((b"GARBAGE\r\n\r\n", b"400"), (b"GET / HTTP/1.1\r\nx: " + b"a" * 70_000, b"431")):
        reader, writer = await asyncio.open_connection(parts.address.host, parts.address.port)
        writer.write(data)
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.read()
        writer.close()
        assert head.split(b" ")[1] == status
        assert b"content-security-policy: default-src 'none'" in head
        assert b"x-frame-options: DENY" in head
        assert b"cache-control: no-store" in head
        assert b'"error"' in body
