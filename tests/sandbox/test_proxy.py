"""The way out: what the Grant allows and nothing else, from inside each tier."""

from __future__ import annotations

import asyncio
import sys

import pytest

from lyra.core.rights.capability import Grant
from lyra.errors import SandboxUnavailable
from lyra.sandbox import Limits, Profile, Sandbox
from lyra.sandbox.proxy import Proxy
from tests.sandbox.world import PYTHON

NAMES = {"good.example": ["93.184.216.34"], "bad.example": ["93.184.216.35"], "inside.example": ["10.0.0.1"]}
GRANT = Grant(allow=["fs.*", "process.*", "net.http:good.example", "net.http:inside.example", "net.http:127.0.0.1"])


async def _lookup(host, port):
    return NAMES.get(host, [])


class Upstream:
    """A web server that stands for every public address."""

    def __init__(self) -> None:
        self.dialled: list[tuple[str, int]] = []
        self.requests: list[bytes] = []

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self.server.close()
        await self.server.wait_closed()

    async def serve(self, reader, writer):
        self.requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def dial(self, address, port):
        self.dialled.append((address, port))
        return await asyncio.open_connection("127.0.0.1", self.port)


async def _ask(proxy_path, request: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(proxy_path)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def _through(tmp_path, *requests: bytes):
    async def main():
        async with Upstream() as upstream:
            proxy = Proxy(GRANT, lookup=_lookup, dial=upstream.dial)
            await proxy.listen_unix(str(tmp_path / "p"))
            answers = [await asyncio.wait_for(_ask(str(tmp_path / "p"), request), 5) for request in requests]
            proxy.close()
            return answers, upstream, proxy.log

    return asyncio.run(main())


def test_an_allowed_request(tmp_path):
    """Sent to the pinned address in origin form, with our Host line and without the proxy's headers."""
    request = b"GET http://good.example/a?b HTTP/1.1\r\nHost: bad.example\r\nProxy-Connection: x\r\nAccept: */*\r\n\r\n"
    (answer,), upstream, log = _through(tmp_path, request)
    assert answer.endswith(b"hello")
    assert upstream.dialled == [("93.184.216.34", 80)]
    head = upstream.requests[0]
    assert head.startswith(b"GET /a?b HTTP/1.1\r\nHost: good.example:80\r\nAccept: */*\r\n")
    assert b"bad.example" not in head
    assert b"roxy" not in head
    assert log == ["allowed good.example:80"]


def test_a_tunnel(tmp_path):
    """CONNECT carries anything to the pinned address."""
    (answer,), upstream, _ = _through(tmp_path, b"CONNECT good.example:443 HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 OK")
    assert upstream.dialled == [("93.184.216.34", 443)]


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET http://bad.example/ HTTP/1.1", b"403"),
        (b"CONNECT bad.example:443 HTTP/1.1", b"403"),
        (b"CONNECT inside.example:443 HTTP/1.1", b"403"),
        (b"GET http://inside.example/ HTTP/1.1", b"403"),
        (b"CONNECT 127.0.0.1:443 HTTP/1.1", b"403"),
        (b"CONNECT 2130706433:443 HTTP/1.1", b"403"),
        (b"CONNECT [::1]:443 HTTP/1.1", b"403"),
        (b"CONNECT 169.254.169.254:80 HTTP/1.1", b"403"),
        (b"CONNECT good.example:22 HTTP/1.1", b"403"),
        (b"CONNECT nowhere.example:443 HTTP/1.1", b"403"),
        (b"GET http://good.example@bad.example/ HTTP/1.1", b"403"),
        (b"GET http://bad.example\\@good.example/ HTTP/1.1", b"403"),
        (b"CONNECT good.example HTTP/1.1", b"400"),
        (b"CONNECT good.example:99999999 HTTP/1.1", b"400"),
        (b"GET /path HTTP/1.1", b"400"),
        (b"GET https://good.example/ HTTP/1.1", b"400"),
        (b"nonsense", b"400"),
    ],
)
def test_refusals(tmp_path, request_line, status):
    """Not granted, not public, not HTTP: no host is dialled, and the answer says why."""
    (answer,), upstream, _ = _through(tmp_path, request_line + b"\r\n\r\n")
    assert answer.split()[1] == status
    assert upstream.dialled == []


def test_a_request_without_end_is_cut(tmp_path):
    """A head has a size; past it the connection is closed."""
    (answer,), upstream, _ = _through(tmp_path, b"GET http://good.example/ HTTP/1.1\r\n" + b"x" * 40_000 + b"\r\n\r\n")
    assert b"200" not in answer
    assert upstream.dialled == []


_CLIENT = """
import os, sys, urllib.request, socket
for url in sys.argv[1:]:
    try: print(url, urllib.request.urlopen(url, timeout=5).read())
    except OSError as error: print(url, "refused", error)
try: socket.create_connection(("93.184.216.34", 80), 1); print("direct")
except OSError as error: print("closed", error)
try: socket.socket(socket.AF_UNIX).connect("/run/lyra/proxy"); print("unix")
except OSError as error: print("no unix socket")
"""


def test_from_inside(sandbox, tmp_path):
    """A program inside reaches the allowed host through the proxy, no other, and nothing directly."""

    async def main():
        async with Upstream() as upstream:
            outlet = Sandbox(tiers=(await sandbox.tier(),), lookup=_lookup, dial=upstream.dial)
            profile = Profile(str(tmp_path), readable=(sys.base_prefix,), egress=GRANT, limits=Limits(wall_s=20))
            argv = [PYTHON, "-IS", "-c", _CLIENT, "http://good.example/", "http://bad.example/"]
            return await outlet.run(argv, profile), upstream.dialled

    result, dialled = asyncio.run(main())
    assert "http://good.example/ b'hello'" in result.output.text, result.output.text
    assert "http://bad.example/ refused" in result.output.text
    assert "direct" not in result.output.text
    assert "no unix socket" in result.output.text
    assert dialled == [("93.184.216.34", 80)]
    assert [line.split(":")[0] for line in result.egress] == ["allowed good.example", "refused bad.example"]


_TAKE_OVER = """
import glob, os, ctypes
mine = os.getpid()
L = ctypes.CDLL(None, use_errno=True)
for path in glob.glob("/proc/[0-9]*"):
    pid = int(path.split("/")[2])
    if pid == mine: continue
    for name in ("mem", "environ", "fd/3"):
        try: os.open(f"{path}/{name}", os.O_RDWR if name == "mem" else 0); print("opened", path, name)
        except OSError: pass
    if L.ptrace(16, pid, 0, 0) == 0: print("opened by ptrace", pid)
if L.unshare(0x10000000) == 0: print("opened a namespace")
if L.syscall(425, 2, ctypes.create_string_buffer(240)) >= 0: print("opened io_uring")
print("end")
"""


def test_with_a_way_out_the_fence_is_as_high(sandbox, tmp_path):
    """The relay cannot be taken over, and the filter is there behind it."""
    profile = Profile(str(tmp_path), readable=(sys.base_prefix,), egress=GRANT, limits=Limits(wall_s=20))
    result = asyncio.run(sandbox.run([PYTHON, "-IS", "-c", _TAKE_OVER], profile))
    opened = [line for line in result.output.text.splitlines() if line.startswith("opened")]
    assert result.output.text.endswith("end\n"), result.output.text
    # Process 1 of bubblewrap is open to the command, and of no use: it has the filter too, and no capability.
    assert [line for line in opened if "/proc/1 " not in line] == []
    held = asyncio.run(sandbox.run(["cat", "/proc/1/status"], profile)).output.text
    if result.tier == "bubblewrap":
        assert {"Seccomp:\t2", "NoNewPrivs:\t1", "CapEff:\t0000000000000000"} <= set(held.splitlines())
    assert result.duration_s < 10


def test_the_proxy_of_the_second_tier_has_a_password(tmp_path):
    """Its port is open to the whole machine, so a request without the password is refused."""

    async def main():
        async with Upstream() as upstream:
            proxy = Proxy(GRANT, lookup=_lookup, dial=upstream.dial)
            await proxy.listen_tcp()
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(b"GET http://good.example/ HTTP/1.1\r\nProxy-Authorization: Basic bHlyYTp4\r\n\r\n")
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
            proxy.close()
            return answer, upstream.dialled

    answer, dialled = asyncio.run(main())
    assert answer.startswith(b"HTTP/1.1 407")
    assert dialled == []


def test_a_kernel_that_cannot_limit_the_network_gives_none(tmp_path, monkeypatch):
    """The second tier refuses rather than open everything."""
    from lyra.sandbox.sandbox import Landlock

    monkeypatch.setattr("lyra.sandbox.landlock.abi", lambda: 3)
    with pytest.raises(SandboxUnavailable, match="cannot limit the network"):
        asyncio.run(Landlock().plan(["true"], Profile(str(tmp_path), egress=GRANT), Proxy(GRANT)))


def test_a_proxy_remembers_so_many_decisions_and_no_more():
    proxy = Proxy(GRANT, lookup=_lookup)
    for number in range(1_005):
        proxy._note(f"allowed {number}" + "x" * 400)
    assert len(proxy.log) == 1_000
    assert proxy.log[-1].startswith("allowed 999x")
    assert max(map(len, proxy.log)) == 300
