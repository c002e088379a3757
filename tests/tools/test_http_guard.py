"""One request to a judged host: nothing reaches an address that was not judged, whatever the URL or the server says."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
import re
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpcore2
import pytest

from lyra.core.rights.capability import Grant
from lyra.errors import CapabilityDenied, ToolError
from lyra.tools.http_guard import fetch, host_and_port

pytestmark = pytest.mark.anyio

PUBLIC = "93.184.216.34"


class Server:
    """A real server; `answers` gives the bytes for a request's head."""

    def __init__(self, answers: Callable[[str], bytes]) -> None:
        self.answers = answers
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        self.dialled: list[tuple[str, int]] = []
        self.asked: list[str] = []
        self.addresses: list[list[str]] = []
        self.port = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            self.heads.append(head)
            length = re.search(r"(?i)content-length: (\d+)", head)
            self.bodies.append(await reader.readexactly(int(length[1])) if length else b"")
            writer.write(self.answers(head))
            await writer.drain()
        writer.close()

    async def lookup(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        return self.addresses.pop(0) if self.addresses else [PUBLIC]

    async def dial(self, address: str, port: int, timeout: float | None) -> Any:
        """Every address leads to the server here, as a public one would."""
        self.dialled.append((address, port))
        return await httpcore2.AnyIOBackend().connect_tcp("127.0.0.1", self.port, timeout=timeout)

    async def get(self, url: str, **options: Any) -> Any:
        given = {"grant": Grant.all(), "lookup": self.lookup, "dial": self.dial, **options}
        return await fetch(url, **given)


@contextlib.asynccontextmanager
async def serving(answers: Callable[[str], bytes]) -> AsyncIterator[Server]:
    served = Server(answers)
    server = await asyncio.start_server(served._serve, "127.0.0.1", 0)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()
        await server.wait_closed()


def page(body: bytes = b"hello", status: str = "200 OK", **headers: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode() + body


async def test_an_answer_is_status_headers_and_body():
    async with serving(lambda head: page(Content_Type="text/plain")) as server:
        answer = await server.get("http://example.org/a?b=c")
    assert (answer.status, answer.body, answer.truncated) == (200, b"hello", False)
    assert answer.headers["content-type"] == "text/plain"
    assert server.heads[0].startswith("GET /a?b=c HTTP/1.1\r\n")
    assert "host: example.org\r\n" in server.heads[0].lower()


async def test_an_address_of_ipv6_is_written_in_brackets():
    async with serving(lambda head: page()) as server:
        await server.get("http://[2606:4700:4700::1111]:8080/")
    assert "host: [2606:4700:4700::1111]:8080\r\n" in server.heads[0].lower()
    assert server.dialled == [("2606:4700:4700::1111", 8080)]


async def test_the_name_is_asked_for_once_and_only_its_answer_is_dialled():
    async with serving(lambda head: page()) as server:
        server.addresses = [[PUBLIC], ["127.0.0.1"]]
        await server.get("http://rebind.example/")
    assert server.asked == ["rebind.example"]
    assert server.dialled == [(PUBLIC, 80)]


@pytest.mark.parametrize("answers", [["127.0.0.1"], [PUBLIC, "10.0.0.1"], ["169.254.169.254"], ["::1"], []])
async def test_a_name_with_one_inside_address_is_refused(answers):
    async with serving(lambda head: page()) as server:
        server.addresses = [answers]
        with pytest.raises(CapabilityDenied):
            await server.get("http://example.org/")
    assert server.dialled == []


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://[::1]/",
        "http://[::ffff:7f00:1]/",
        "http://169.254.169.254/latest",
        "http://localhost/",
        "http://user@example.org/",
        "http://example.org:22/",
        "file:///etc/passwd",
        "http://example.org\\@127.0.0.1/",
        "http://exam ple.org/",
        "gopher://example.org/",
        "http://",
    ],
)
async def test_no_rule_opens_what_is_not_public(url):
    async with serving(lambda head: page()) as server:
        with pytest.raises(CapabilityDenied):
            await server.get(url)
    assert server.dialled == []


async def test_a_host_outside_the_grant_is_not_even_looked_up():
    async with serving(lambda head: page()) as server:
        with pytest.raises(CapabilityDenied):
            await server.get("http://example.org/", grant=Grant(["net.http:other.example"]))
        await server.get("http://example.org/", grant=Grant(["net.http:example.org"]))
    assert server.asked == ["example.org"]


@pytest.mark.parametrize("to", ["http://127.0.0.1/", "http://other.example/", "file:///etc/passwd", "//[::1]/x"])
async def test_a_redirect_is_judged_like_a_first_request(to):
    async with serving(lambda head: page(b"", "302 Found", Location=to)) as server:
        with pytest.raises(CapabilityDenied):
            await server.get("http://example.org/", grant=Grant(["net.http:example.org"]))
    assert len(server.dialled) == 1


async def test_headers_stay_with_their_origin():
    def answers(head: str) -> bytes:
        return page() if "other.example" in head else page(b"", "302 Found", Location="http://other.example/")

    async with serving(answers) as server:
        await server.get("http://example.org/", headers={"Authorization": "Bearer k", "Accept": "text/x"})
    first, second = server.heads
    assert "authorization: Bearer k" in first
    assert "authorization" not in second.lower()
    assert "accept: text/x" in second


async def test_redirects_end():
    async with serving(lambda head: page(b"", "302 Found", Location="/again")) as server:
        with pytest.raises(ToolError, match="redirects"):
            await server.get("http://example.org/", redirects=3)
    assert len(server.heads) == 4


async def test_a_post_is_not_sent_to_where_a_redirect_leads():
    async with serving(lambda head: page(b"", "307 Moved", Location="http://other.example/")) as server:
        answer = await server.get("http://example.org/", method="POST", body=b"x")
    assert answer.status == 307
    assert len(server.heads) == 1


async def test_a_long_body_is_cut():
    async with serving(lambda head: page(b"x" * 1000)) as server:
        answer = await server.get("http://example.org/", bytes_max=10)
    assert (answer.body, answer.truncated) == (b"x" * 10, True)


async def test_a_packed_body_is_unpacked_and_never_swells():
    bomb = gzip.compress(b"\0" * 50_000_000)
    async with serving(lambda head: page(bomb, Content_Encoding="gzip")) as server:
        answer = await server.get("http://example.org/", bytes_max=1000)
    assert (len(answer.body), answer.truncated) == (1000, True)
    async with serving(lambda head: page(zlib.compress(b"text"), Content_Encoding="deflate")) as server:
        assert (await server.get("http://example.org/")).body == b"text"
    two = gzip.compress(b"first ") + gzip.compress(b"second") + bytes(8)
    async with serving(lambda head: page(two, Content_Encoding="gzip")) as server:
        assert (await server.get("http://example.org/")).body == b"first second"
    half = gzip.compress(os.urandom(5_000))[:3_000]
    async with serving(lambda head: page(half, Content_Encoding="gzip")) as server:
        with pytest.raises(ToolError, match="ends before its end"):
            await server.get("http://example.org/")
    async with serving(lambda head: page(b"?", Content_Encoding="br")) as server:
        with pytest.raises(ToolError, match="packed"):
            await server.get("http://example.org/")


@pytest.mark.parametrize(
    "headers", [{"X-A": "a\r\nX-B: b"}, {"Host": "evil"}, {"A b": "c"}, {"": "c"}, {"Content-Length": "9"}, {"X": "\0"}]
)
async def test_a_header_that_would_change_the_request_is_refused(headers):
    async with serving(lambda head: page()) as server:
        with pytest.raises(ToolError):
            await server.get("http://example.org/", headers=headers)
    assert server.heads == []


async def test_a_server_that_says_nothing_is_a_time_out():
    async with serving(lambda head: b"") as server:

        async def never(address: str, port: int, timeout: float | None) -> Any:
            await asyncio.Event().wait()

        with pytest.raises(ToolError) as caught:
            await server.get("http://example.org/", dial=never, timeout_s=0.05)
    assert caught.value.fields["reason"] == "timeout"


async def test_an_inside_host_is_reached_only_when_its_owner_opened_it():
    async with serving(lambda head: page()) as server:
        url = f"http://127.0.0.1:{server.port}/"
        with pytest.raises(CapabilityDenied):
            await fetch(url, grant=Grant.all())
        assert (await fetch(url, grant=Grant.all(), inside={host_and_port(url)})).body == b"hello"
        with pytest.raises(CapabilityDenied):
            await fetch(url, grant=Grant.none(), inside={host_and_port(url)})


async def test_a_broken_answer_is_an_error_in_one_sentence():
    async with serving(lambda head: b"nonsense\r\n\r\n") as server:
        with pytest.raises(ToolError) as caught:
            await server.get("http://example.org/?key=hidden")
    assert caught.value.fields["reason"] == "io_error"
    assert "hidden" not in str(caught.value)
