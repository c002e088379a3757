"""HTTP to a provider: what the transport raises becomes a named error, and what a server says is shown without keys."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyra.errors import ModelError
from lyra.models.faults import KINDS, of_code, of_status, retry_after
from lyra.models.http import Http, Timeouts
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
        (httpx2.RemoteProtocolError(f"peer closed {KEY}"), "stream_truncated"),
        (httpx2.ReadError("reset"), "stream_truncated"),
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
    found = retry_after({"retry-after": text, "retry-after-ms": text}, 1_000_000.0)
    assert found is None or 0 <= found < 1e9


@given(status=st.integers(300, 599), code=st.text(max_size=20), message=st.text(max_size=40))
def test_every_refusal_has_a_kind(status: int, code: str, message: str) -> None:
    assert of_status(status, message, code=code).kind in KINDS
    assert of_code(code, message).kind in KINDS


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
            found = []
            for _ in range(2):
                async with http.post(server.url, b"{}", {}) as chunks:
                    found += [chunk async for chunk in chunks]
                await http.close()
            return found

    assert run(main()) == [b"ok", b"ok"]
