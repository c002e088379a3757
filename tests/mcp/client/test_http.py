"""Servers that run already: reached over HTTP, with a token or without, and gone in the middle of it."""

from __future__ import annotations

import asyncio
import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import ClassVar

import httpx2
import pytest

from lyra.core.secrets.secret import Secret
from lyra.errors import CapabilityDenied
from lyra.mcp import ServerSettings, transports
from lyra.mcp.settings import SettingValue
from tests.mcp.support import free_port, http_server, run, using


def settings_at(port: int, **settings: object) -> ServerSettings:
    return ServerSettings(name="web", url=f"http://127.0.0.1:{port}/mcp", transport="http", **settings)  # type: ignore[arg-type]


def test_a_server_over_http_until_it_dies_and_after(tmp_path):
    """Calls, changes, cancellation; killed, the call fails at once; back again, it can be asked for anew."""
    port = free_port()

    async def main():
        with http_server(port) as server:
            async with using(settings_at(port, timeout_s=20), folder=tmp_path) as use:
                assert use.state("web").state == "connected"
                assert await use.call("mcp__web__add", a=1, b=2) == "3"
                await use.call("mcp__web__grow")
                await use.until(lambda: "mcp__web__grown" in use.state("web").tools)

                async def until_told(word: str, times: int) -> None:
                    async with asyncio.timeout(20):
                        while str(await use.call("mcp__web__cancelled")).count(word) < times:
                            await asyncio.sleep(0.01)

                waiting = asyncio.ensure_future(use.call("mcp__web__hang"))
                await until_told("began", 1)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                await until_told("hang", 1)
                hanging = asyncio.ensure_future(use.error("mcp__web__hang"))
                await until_told("began", 2)
                server.kill()
                server.wait()
                await asyncio.wait_for(hanging, 10)
                await asyncio.wait_for(use.error("mcp__web__add", a=1, b=2), 10)
                await use.until(lambda: use.state("web").state == "connection_error")
                with http_server(port):
                    assert (await use.servers.reconnect("web")).state == "connected"
                    assert await use.call("mcp__web__add", a=1, b=2) == "3"

    run(main(), 120)


class Recorder(BaseHTTPRequestHandler):
    """Answers everything with one status, and remembers what it was sent."""

    status = 401
    body = b"{}"
    kind = "application/json"
    location = "http://127.0.0.1:1/"
    heard: ClassVar[list[dict[str, str]]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        type(self).heard.append({key.lower(): value for key, value in self.headers.items()})
        self.send_response(self.status)
        self.send_header("content-type", self.kind)
        self.send_header("location", self.location)
        self.end_headers()
        self.wfile.write(self.body)

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def recorder():
    servers: list[ThreadingHTTPServer] = []

    def start(**settings: object) -> tuple[int, type[Recorder]]:
        handler = type("Handler", (Recorder,), {**settings, "heard": []})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return server.server_address[1], handler

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_server_that_wants_to_know_who_asks(tmp_path, recorder):
    """401 and 403 are auth_required, and are not tried again."""

    async def main():
        for status in (401, 403):
            port, handler = recorder(status=status)
            async with using(settings_at(port), folder=tmp_path) as use:
                assert use.state("web").state == "auth_required"
                assert use.state("web").failure.code == str(status)
                assert len(handler.heard) <= 2

    run(main())


def test_a_token_and_headers_are_sent_and_not_shown(tmp_path, recorder, monkeypatch):
    """The token of a variable; without it nothing is sent at all."""
    auth = {"kind": "bearer", "token_env": "TEST_MCP_TOKEN"}
    headers = {"x-team": SettingValue.from_secret(Secret("blue-secret"))}

    async def main():
        port, handler = recorder()
        async with using(settings_at(port, auth=auth, headers=headers), folder=tmp_path) as use:
            assert use.state("web").state == "auth_required"
            assert "TEST_MCP_TOKEN" in use.state("web").failure.message
            assert handler.heard == []
        monkeypatch.setenv("TEST_MCP_TOKEN", "tok-123456")
        async with using(settings_at(port, auth=auth, headers=headers), folder=tmp_path) as use:
            assert handler.heard[0]["authorization"] == "Bearer tok-123456"
            assert handler.heard[0]["x-team"] == "blue-secret"
            shown = json.dumps([state.to_data() for state in use.servers.states()])
            assert "tok-123456" not in shown
            assert "blue-secret" not in shown

    run(main())


def test_a_token_does_not_travel_unencrypted(tmp_path, monkeypatch):
    """To another machine over plain HTTP: refused before anything is sent."""
    monkeypatch.setenv("TEST_MCP_TOKEN", "tok-123456")

    async def main():
        settings = ServerSettings(
            name="far",
            url="http://far.example/mcp",
            transport="http",
            auth={"kind": "bearer", "token_env": "TEST_MCP_TOKEN"},
        )
        async with using(settings, folder=tmp_path) as use:
            assert use.state("far").failure.kind == "config"
            assert "unencrypted" in use.state("far").failure.message

    run(main())


def test_a_redirect_elsewhere_is_not_followed(tmp_path, recorder):
    """Headers stay with the origin they were meant for."""

    async def main():
        other, heard = recorder(status=200)
        port, first = recorder(status=307, location=f"http://127.0.0.1:{other}/mcp")
        async with using(settings_at(port), folder=tmp_path) as use:
            await use.given_up("web")
            assert use.state("web").state == "connection_error"
            assert first.heard
            assert heard.heard == []

    run(main())


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "text/event-stream"])
def test_an_answer_that_is_nothing(tmp_path, recorder, kind):
    """Of any type: an error, and no waiting."""

    async def main():
        port, _ = recorder(status=200, body=b"<html>not MCP</html>", kind=kind)
        async with using(settings_at(port), folder=tmp_path, start_s=5) as use:
            await use.given_up("web")
            assert use.state("web").state in ("connection_error", "schema_error")

    run(main())


def test_an_answer_without_end(tmp_path, recorder, monkeypatch):
    """Read up to a limit, and no further."""
    assert transports.ANSWER_BYTES_MAX == 32 << 20
    monkeypatch.setattr(transports, "ANSWER_BYTES_MAX", 4 << 20)
    body = b'{"jsonrpc": "2.0", "id": 1, "result": "' + b"x" * (5 << 20)

    async def main():
        port, _ = recorder(status=200, body=body)
        async with using(settings_at(port), folder=tmp_path) as use:
            await use.given_up("web")
            assert use.state("web").state == "connection_error"
            assert "4 MiB" in use.state("web").failure.message

    run(main())


def test_no_server_there(tmp_path):
    """Tried a few times, then given up, with the reason."""

    async def main():
        async with using(settings_at(free_port()), folder=tmp_path) as use:
            await use.given_up("web")
            assert use.state("web").state == "connection_error"
            assert use.state("web").failure.kind == "connect"
            assert use.state("web").failure.recoverable
            assert use.state("web").restarts == 3

    run(main())


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("http://login.example/token", {}),
        ("https://169.254.169.254/latest", {}),
        ("https://127.0.0.1/token", {}),
        ("https://[::ffff:10.0.0.1]/token", {}),
        ("https://login.example/token", {"authorization": "Bearer tok-123456"}),
        ("https://login.example/token", {"cookie": "a=b"}),
    ],
)
def test_a_login_leads_nowhere_inside(url, headers):
    """A server names the place that issues its tokens: not one of this network, not unencrypted, not with its key."""
    from lyra.mcp.transports import _Guarded

    async def main():
        guarded = _Guarded("https://tools.example/mcp", lambda status: None)
        with pytest.raises((httpx2.RequestError, CapabilityDenied)):
            await guarded.handle_async_request(httpx2.Request("GET", url, headers=headers))
        await guarded.aclose()

    run(main())


@pytest.mark.parametrize("transport", ["sse", "websocket"])
def test_what_is_not_spoken(tmp_path, transport):
    """Named in many files; says so instead of trying."""

    async def main():
        settings = ServerSettings(name="old", url="http://127.0.0.1:1/", transport=transport)
        async with using(settings, folder=tmp_path) as use:
            assert use.state("old").state == "unsupported_transport"
            assert use.state("old").failure.code == transport

    run(main())


class Flood(BaseHTTPRequestHandler):
    """A server that asks without end on its stream, and lets answers and good-byes wait."""

    protocol_version = "HTTP/1.1"
    over: ClassVar[Event] = Event()

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method = message.get("method")
        if method is None:
            self.over.wait()
        results = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "flood", "version": "1"},
            },
            "tools/list": {"tools": []},
        }
        told = {"result": results[method]} if method in results else {"error": {"code": -32601, "message": "no"}}
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], **told}).encode() if "id" in message else b""
        self.send_response(200 if body else 202)
        self.send_header("mcp-session-id", "s1")
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        params = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5}
        for number in range(100_000):
            asked = {"jsonrpc": "2.0", "id": f"q{number}", "method": "sampling/createMessage", "params": params}
            self.wfile.write(f"event: message\ndata: {json.dumps(asked)}\n\n".encode())

    def do_DELETE(self):
        self.over.wait()

    def log_message(self, *_):
        """Nothing is printed."""


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """It is hung up on."""


def test_a_server_that_asks_without_end_is_given_up(tmp_path):
    """With as many tasks as there may be, and closing does not wait for it."""
    server = _Quiet(("127.0.0.1", 0), Flood)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()

    async def main():
        async with using(settings_at(server.server_port), folder=tmp_path) as use:
            await use.until(lambda: use.state("web").state == "connection_error")
            assert use.state("web").failure.code == "too_many_requests"
            assert len(asyncio.all_tasks()) < 150
            began = time.monotonic()
            await use.servers.close()
            assert time.monotonic() - began < 3

    try:
        run(main())
    finally:
        Flood.over.set()
        server.shutdown()
        server.server_close()
