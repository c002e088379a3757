"""The mock server with our own clients, its HTTP, and its command."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyra.core.message import Message
from lyra.core.providers import USUAL
from lyra.core.tool import Tool, ToolResult
from lyra.errors import CheckError, ConfigError, ModelError
from lyra.models.client import LLMClient
from lyra.models.provider import Request
from lyra.models.script import Reply, Script, ScriptedCall
from lyra.models.stream import ThinkingDelta, UsageSeen
from lyra.models.wire.faults import KINDS
from lyra.testing.mock import MockServer
from lyra.testing.mock.server import serve

# Each of our wire clients that has a format here: the provider's name, and settings beside the address.
CLIENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "anthropic": ("anthropic", {}),
    "chat": ("openai", {"api": "chat"}),
    "responses": ("openai", {"api": "responses"}),
    "ollama": ("ollama", {}),
}


def ask(*texts: str | Message, **settings: Any) -> Request:
    messages = tuple(text if isinstance(text, Message) else Message("user", text) for text in texts)
    return Request("m", messages, **{"max_tokens": 1000, **settings})


def with_client(script: Any, which: str, work: Any) -> Any:
    async def main() -> Any:
        async with MockServer(script) as server:
            provider, more = CLIENTS[which]
            async with LLMClient({provider: more}, env=server.env) as client:
                return await work(client, f"{provider}/m")

    return asyncio.run(asyncio.wait_for(main(), 60))


TALK = Script(
    replies=(
        Reply(tool="look", text="It says {result}."),
        Reply(
            "Let me see.",
            contains="look",
            tool_calls=(ScriptedCall("look", {"at": {"deep": [1, "zwei"]}}), ScriptedCall("other")),
        ),
        Reply("Grüße, {user}! 你好", thinking="hm, a greeting"),
    ),
    chunks=3,
)


@pytest.mark.parametrize("which", CLIENTS)
def test_our_clients_understand_every_format(which):
    """Text, thoughts, calls, results and usage arrive as the script has them."""

    async def work(client, name):
        hello = ask("ada", system="be kind")
        events = [event async for event in client.stream(name, hello)]
        answer = await client.complete(name, hello)
        tool = Tool("look", "Looks.", {"type": "object", "properties": {}})
        first = await client.complete(name, ask("look there", tools=(tool,)))
        results = Message("tool", tool_results=tuple(ToolResult(c.id, c.name, "fine") for c in first.tool_calls))
        second = await client.complete(name, ask("look there", first.message, results, tools=(tool,)))
        return events, answer, first, second

    events, answer, first, second = with_client(TALK, which, work)
    assert answer.text == "Grüße, ada! 你好"
    assert answer.stop_reason == "end"
    assert answer.usage.output_tokens == 9
    assert answer.usage.total_input > 0
    assert any(isinstance(event, UsageSeen) for event in events)
    assert "".join(event.text for event in events if isinstance(event, ThinkingDelta)) == "hm, a greeting"
    assert [(call.name, call.arguments) for call in first.tool_calls] == [
        ("look", {"at": {"deep": [1, "zwei"]}}),
        ("other", {}),
    ]
    assert first.stop_reason == "tool_calls"
    assert second.text == "It says fine\nfine."


@pytest.mark.parametrize("which", CLIENTS)
@pytest.mark.parametrize(
    "kind",
    [
        "rate_limit",
        "overloaded",
        "timeout",
        "temporary",
        "auth",
        "bad_request",
        "not_found",
        "context_overflow",
        "content_filter",
        "connection",
        "stream_truncated",
        "malformed",
        "bad_response",
    ],
)
def test_a_kind_of_error_arrives_as_that_kind(which, kind):
    """What the script calls an error is what our client calls it, with the pause it asks for."""
    script = {"replies": [{"error": {"kind": kind, "message": "so it goes", "retry_after_s": 1.5}}]}

    async def work(client, name):
        await client.complete(name, ask("x"))

    with pytest.raises(ModelError) as raised:
        with_client(script, which, work)
    assert raised.value.kind == kind
    if kind == "rate_limit":
        assert raised.value.retry_after_s == 1.5
        assert "so it goes" in raised.value.message


@pytest.mark.parametrize("which", CLIENTS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_error_in_the_middle_arrives_after_the_text_before_it(which, kind):
    """Two pieces come, then the error and the pause it asks for; a line that breaks is told as a stream that did."""
    error = {"kind": kind, "message": "so it goes.", "after_chunks": 2, "retry_after_s": 1.5}
    script = {"replies": [{"text": "one two three", "error": error}]}
    untold = kind in ("stream_truncated", "connection", "malformed", "bad_response")

    async def work(client, name):
        seen = []
        with pytest.raises(ModelError) as raised:
            async for event in client.stream(name, ask("x")):
                seen += [event]
        return "".join(getattr(event, "text", "") for event in seen), raised.value

    text, failure = with_client(script, which, work)
    assert text == "one two "
    assert failure.kind == ("stream_truncated" if kind in ("connection", "bad_response") else kind)
    assert failure.fields.get("retry_after_s") == (None if untold else 1.5)


def test_a_line_that_breaks_before_the_answer():
    """No status at all: the connection is gone."""
    script = {"replies": [{"error": {"kind": "connection"}}]}

    async def work(client, name):
        await client.complete(name, ask("x"))

    with pytest.raises(ModelError) as raised:
        with_client(script, "anthropic", work)
    assert raised.value.kind == "connection"
    assert raised.value.hint


def test_replies_may_look_at_the_models_name():
    """A fallback can be tried: one model fails, the other answers."""
    script = {"replies": [{"model": "big", "error": {"kind": "overloaded"}}, {"model": "small", "text": "here"}]}

    async def work(client, name):
        with pytest.raises(ModelError):
            await client.complete("anthropic/big", ask("x"))
        return (await client.complete("anthropic/small", ask("x"))).text

    assert with_client(script, "anthropic", work) == "here"


# ---------------------------------------------------------------- HTTP
async def exchange(server: MockServer, data: bytes) -> bytes:
    """All that comes back for these bytes, after which the client has nothing more to say."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    writer.write_eof()
    got = b""
    try:
        while piece := await reader.read(65536):
            got += piece
    except ConnectionError:  # broken off, after what came before
        pass
    writer.close()
    return got


def raw(data: bytes) -> bytes:
    async def main() -> bytes:
        async with MockServer() as server:
            return await exchange(server, data)

    return asyncio.run(main())


def post(path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: x", f"content-length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


BODY = b'{"model": "m", "stream": false, "messages": [{"role": "user", "content": "hi"}]}'


def test_health_and_tags():
    """What a start-up script and an Ollama client ask first."""
    assert raw(b"GET /healthz HTTP/1.1\r\n\r\n").endswith(b'{"status":"ok"}')
    assert b'"name":"mock:latest"' in raw(b"GET /api/tags?x=1 HTTP/1.1\r\n\r\n")


def test_several_requests_on_one_connection():
    """Kept open, in order; closed where the client says so."""
    got = raw(post("/api/chat", BODY) * 2 + b"GET /healthz HTTP/1.1\r\nconnection: close\r\n\r\n")
    assert got.count(b"HTTP/1.1 200 OK") == 3
    assert got.count(b'"content":"hi"') == 2


def test_bodies_in_chunks_and_expectations():
    """A chunked body is read, and a client that waits for leave to send it gets it."""
    size = f"{len(BODY):x}".encode()
    head = b"POST /api/chat HTTP/1.1\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
    got = raw(head + size + b";x=y\r\n" + BODY + b"\r\n0\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")
    assert b'"content":"hi"' in got


_DEEP_CALL = {"id": "c", "function": {"name": "f", "arguments": '{"a": ' + "[" * 100_000}}
_DEEP_ARGUMENTS = json.dumps({"model": "m", "messages": [{"role": "assistant", "tool_calls": [_DEEP_CALL]}]}).encode()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"GET / HTTP/2\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"POST /api/chat HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400),
        (b"POST /api/chat HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n", 413),
        (b"POST /api/chat HTTP/1.1\r\ncontent-length: 9" + b"9" * 5000 + b"\r\n\r\n", 413),
        (b"POST /api/chat HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST /api/chat HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nfffffffffff\r\n", 413),
        (b"GET / HTTP/1.1\r\nx: " + b"a" * 100_000 + b"\r\n\r\n", 431),
        (b"GET /v1/messages HTTP/1.1\r\n\r\n", 405),
        (b"POST /healthz HTTP/1.1\r\n\r\n", 405),
        (b"POST /nope HTTP/1.1\r\n\r\n", 404),
        (post("/api/chat", b"{"), 400),
        (post("/api/chat", b"[]"), 400),
        (post("/api/chat", b"[" * 100_000), 400),
        (post("/v1/chat/completions", _DEEP_ARGUMENTS), 400),
        (post("/v1/chat/completions", b'{"model": "m", "messages": [{"role": 3}]}'), 400),
        (post("/v1/chat/completions", b'{"model": "m", "messages": [{"role": "user", "content": 3}]}'), 400),
        (post("/v1/responses", b'{"model": "m", "input": [{"type": "hologram"}]}'), 400),
        (post("/v1/responses", b'{"model": "m", "input": "x", "previous_response_id": "r"}'), 400),
    ],
)
def test_what_is_wrong_gets_a_status(data, status):
    """Never silence, never a traceback."""
    assert raw(data).startswith(b"HTTP/1.1 %d " % status)


_JUNK = [None, 3, "x", [], {}, [3], [{}], [{"type": "tool_use"}], {"a": {"b": []}}, True, -1]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions", "/v1/responses", "/api/chat"])
def test_no_json_brings_it_down(path):
    """Junk in any field is an answer or a 400; the server is there afterwards."""
    fields = ["model", "messages", "input", "tools", "system", "stream", "max_tokens", "stop", "options", "n"]
    good = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}], "stream": False}

    async def main():
        seen = []
        async with MockServer(seen=lambda asked, status: seen.append(status)) as server:
            bodies = [{**good, field: junk} for field in fields for junk in _JUNK]
            bodies += [
                {**good, "messages": [{"role": role, "content": junk, "tool_calls": junk}]}
                for role in ("user", "assistant", "tool")
                for junk in _JUNK
            ]
            closing = [post(path, msgspec.json.encode(body), "connection: close") for body in bodies]
            got = [await exchange(server, data) for data in closing]
        return got, seen

    got, seen = asyncio.run(main())
    assert {answer[9:12] for answer in got} <= {b"200", b"400"}
    assert len(seen) == len(got)


class _Line:
    """The writing side of a connection that goes nowhere."""

    def __init__(self) -> None:
        self.data = b""
        self.closed = False
        self.transport = self

    def write(self, data: bytes) -> None:
        self.data += data

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    abort = close


_PIECES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"GET /healthz HTTP/1.1\r\n\r\n", b"POST /api/chat HTTP/1.1\r\n", b"\r\n", b"\r\n\r\n", b"0\r\n"]),
    st.sampled_from([b"transfer-encoding: chunked\r\n", b"content-length: 5\r\n", b"5;x\r\n", b"hello", b"a" * 70_000]),
)


@given(st.lists(_PIECES, max_size=8))
def test_no_bytes_bring_it_down(pieces):
    """Whatever arrives, the connection ends in answers or in silence, and is closed."""

    async def handler(asked, exchange):
        assert asked.method
        await exchange.send_whole(200, b"", {})

    async def main():
        reader = asyncio.StreamReader()
        reader.feed_data(b"".join(pieces))
        reader.feed_eof()
        line = _Line()
        await serve(reader, cast("asyncio.StreamWriter", line), handler)
        return line

    line = asyncio.run(main())
    assert line.closed
    assert not line.data or line.data.startswith(b"HTTP/1.1 ")


# ---------------------------------------------------------------- life
def test_other_machines_only_where_the_caller_says_so():
    """A host that is not this machine's own needs `public`."""
    with pytest.raises(ConfigError, match="other machines") as raised:
        MockServer(host="0.0.0.0")
    assert "--public" in str(raised.value.hint)

    async def main():
        async with MockServer() as server:
            assert server.url.startswith("http://127.0.0.1:")
        async with MockServer(host="0.0.0.0", public=True) as server:
            return server.url

    assert asyncio.run(main()).startswith("http://0.0.0.0:")


def test_a_wrong_script_is_told_at_once(tmp_path):
    """Before anything listens, with its place."""
    file = tmp_path / "s.yaml"
    file.write_text("replies:\n  - txt: a\n")
    with pytest.raises(CheckError) as raised:
        MockServer(str(file))
    assert raised.value.place == f"{file}:2:5"


def test_a_port_that_is_taken():
    """The error names it and says what to do."""

    async def main():
        async with MockServer() as first:
            port = int(first.url.rpartition(":")[2])
            async with MockServer(port=port):
                pass

    with pytest.raises(ConfigError, match="cannot listen") as raised:
        asyncio.run(main())
    assert "--port 0" in str(raised.value.hint)


def test_it_stops_in_the_middle_of_answers():
    """A client that waits for a slow answer does not keep the server alive."""

    async def main():
        async with MockServer({"first_s": 3600, "replies": ["x"]}) as server:
            waiting = asyncio.create_task(exchange(server, post("/api/chat", BODY)))
            await asyncio.sleep(0.1)
        return await waiting

    assert asyncio.run(asyncio.wait_for(main(), 5)) == b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_until_it_is_interrupted(tmp_path, number):
    """It says where it is as JSON, answers by its script, and ends well."""
    file = tmp_path / "s.yaml"
    file.write_text("replies: [hello]\n")
    command = [sys.executable, "-m", "lyra.cli.main", "mock", "serve", "--script", str(file), "--json"]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})
    lines = ""
    while not lines.endswith("}\n") or lines.count("{") != lines.count("}"):
        line = started.stdout.readline()
        assert line, started.stderr.read()
        lines += line
    told = json.loads(lines)

    async def call():
        async with LLMClient(env=told["env"]) as client:
            return (await client.complete("anthropic/m", ask("x"))).text

    assert asyncio.run(call()) == "hello"
    started.send_signal(number)
    rest, errors = started.communicate(timeout=20)
    assert (started.returncode, rest, errors) == (0, "", "POST /v1/messages 200\n")


def test_the_command_shows_what_to_export():
    """Lines for a shell, and nothing else on stdout."""
    command = [sys.executable, "-m", "lyra.cli.main", "mock", "serve"]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    served = [usual for usual in USUAL.values() if usual.mock is not None]
    variables = [name for usual in served for name in (*usual.url[:1], *usual.key[:1])]
    lines = [started.stdout.readline() for _ in range(1 + len(variables))]
    started.send_signal(signal.SIGINT)
    lines += started.stdout.readlines()
    assert started.wait(timeout=20) == 0
    started.stdout.close()
    started.stderr.close()
    assert lines[0].startswith("# the mock server listens on http://127.0.0.1:")
    assert [line.partition("=")[0] for line in lines[1:]] == [f"export {name}" for name in variables]
    assert {"ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OLLAMA_HOST"} <= set(variables)


def test_the_command_refuses_a_public_host_and_a_wrong_script(tmp_path):
    """Exit code 2 and a sentence."""
    file = tmp_path / "s.yaml"
    file.write_text("replies: 3\n")
    for words, message in ((["--host", "0.0.0.0"], "--public"), (["--script", str(file)], "s.yaml:1:1")):
        command = [sys.executable, "-m", "lyra.cli.main", "mock", "serve", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == 2
        assert message in done.stderr
        assert done.stdout == ""


def test_the_command_listens_where_it_is_told_to():
    """At that port; on a public address only where that is said, too."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "lyra.cli.main", "mock", "serve"]
    words = ["--port", str(port), "--host", "0.0.0.0", "--public"]
    started = subprocess.Popen([*command, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    first = started.stdout.readline()
    started.send_signal(signal.SIGINT)
    _, errors = started.communicate(timeout=20)
    assert first.startswith("# the mock server listens on http://"), errors
    assert f":{port};" in first
