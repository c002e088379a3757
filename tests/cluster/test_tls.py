"""TLS between hosts: both sides prove that the authority of the cluster has signed them."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lyra.cluster import connect
from lyra.cluster.peers import GrpcCarrier, GrpcListener, PeerTls
from lyra.core.secrets.secret import Secret
from lyra.errors import ConfigError, LyraError, Unreachable
from tests.cli.conftest import Lyra
from tests.cli.conftest import lyra as lyra  # noqa: PLC0414 - a fixture
from tests.cluster.started import StartHost
from tests.cluster.started import cluster_url as cluster_url  # noqa: PLC0414 - a fixture
from tests.cluster.started import database as database  # noqa: PLC0414 - a fixture
from tests.cluster.started import start_host as start_host  # noqa: PLC0414 - a fixture
from tests.mcp.support import free_port
from tests.server.certificates import Pair, issue

SECRET = Secret("one cluster's")


def _write(folder: Path, name: str, authority: Pair) -> dict[str, str]:
    issue(name, authority).write(folder, name)
    (folder / f"{name}-ca.pem").write_bytes(authority.cert)
    return {
        "cert": str(folder / f"{name}.pem"),
        "key": str(folder / f"{name}.key"),
        "ca": str(folder / f"{name}-ca.pem"),
    }


async def _answer(method: str, data: Any) -> Any:
    return [method, data]


async def _call(listener_tls: PeerTls | None, carrier_tls: PeerTls | None) -> Any:
    """Return what a call to a host gives, or its error."""
    listener = GrpcListener("127.0.0.1:0", tls=listener_tls)
    await listener.start(_answer, SECRET)
    carrier = GrpcCarrier(SECRET, carrier_tls)
    try:
        return await carrier.call(listener.address, "echo", 7, timeout_s=10.0)
    except LyraError as error:
        return error
    finally:
        await carrier.close()
        await listener.close()


def test_hosts_of_one_authority_call_each_other_and_no_other(tmp_path: Path) -> None:
    """A host that another authority has signed, or that has no certificate, is refused by both sides, in a sentence."""
    ours, theirs = issue("ours"), issue("theirs")
    names = (("a", ours), ("b", ours), ("c", theirs))
    first, second, other = [PeerTls.load(_write(tmp_path, name, authority)) for name, authority in names]
    assert first is not None
    assert other is not None

    async def main() -> None:
        assert await _call(first, second) == ["echo", 7]
        for listens, calls, sentence in (
            (first, other, "the authority of cluster.tls_ca has not signed its certificate"),
            (first, other._replace(ca=first.ca), "it may know no authority that has signed this certificate"),
            (first, None, "takes calls over TLS only"),
            (None, first, "does not take calls over TLS"),
        ):
            refused = await _call(listens, calls)
            assert isinstance(refused, Unreachable)
            assert sentence in refused.message

    asyncio.run(main())


def test_a_certificate_for_another_address_is_refused(tmp_path: Path) -> None:
    ours = issue("ours")
    tls = PeerTls.load(_write(tmp_path, "a", ours))

    async def main() -> None:
        listener = GrpcListener("127.0.0.2:0", tls=tls)  # the certificate is for 127.0.0.1
        await listener.start(_answer, SECRET)
        carrier = GrpcCarrier(SECRET, tls)
        with pytest.raises(Unreachable, match="does not prove itself"):
            await carrier.call(listener.address, "echo", 7, timeout_s=10.0)
        await carrier.close()
        await listener.close()

    asyncio.run(main())


def test_files_that_cannot_be_used_are_refused_in_a_sentence(tmp_path: Path) -> None:
    files = _write(tmp_path, "a", issue("ours"))
    with pytest.raises(ConfigError, match=r"needs a certificate, its key and the authority") as missing:
        PeerTls.load({"cert": files["cert"], "key": files["key"]})
    assert missing.value.hint == "set cluster.tls_ca, too"
    other = _write(tmp_path, "b", issue("theirs"))
    for wrong in ({"key": other["key"]}, {"ca": other["key"]}, {"cert": str(tmp_path / "none")}):
        with pytest.raises(ConfigError, match=r"the files of cluster.tls_cert, tls_key, tls_ca cannot be used: "):
            PeerTls.load({**files, **wrong})


@pytest.mark.slow
def test_a_cluster_over_tls_needs_no_plaintext(
    lyra: Lyra, cluster_url: str, start_host: StartHost, tmp_path: Path
) -> None:
    """Two hosts listen where other machines reach them; commands and programs reach both with a certificate, and none
    without."""
    authority = issue("ours")
    for name in ("a", "b"):
        files, port = _write(tmp_path, name, authority), free_port()
        flags = ["--tls-cert", files["cert"], "--tls-key", files["key"], "--tls-ca", files["ca"]]
        place = ("--listen", f"0.0.0.0:{port}", "--advertise", f"127.0.0.1:{port}", "--shards", "2", "--lease", "1")
        start_host(name, *place, *flags).until_joined()
    tls = _write(tmp_path, "c", authority)
    settings = {
        "LYRA_CLUSTER_TLS_CERT": tls["cert"],
        "LYRA_CLUSTER_TLS_KEY": tls["key"],
        "LYRA_CLUSTER_TLS_CA": tls["ca"],
    }

    async def main() -> None:
        async with connect(cluster_url, tls=tls) as cluster:
            while {row.host for row in (await cluster.refresh()).shards.values()} != {"a", "b"}:
                await asyncio.sleep(0.05)
            answers = await cluster.ask_hosts("processes", {}, timeout_s=10.0)
            assert answers == [("a", []), ("b", [])]
            assert all(row.address.startswith("tls@127.0.0.1:") for row in cluster.view.alive())
        async with connect(cluster_url, patience_s=0.1) as stranger:
            with pytest.raises(Unreachable, match="over TLS only"):
                await stranger.process("s1/p1").wait()

    asyncio.run(main())
    done = lyra("cluster", "status", "--store", cluster_url, "--json", **settings)
    assert (done.returncode, json.loads(done.stdout)["problems"]) == (0, []), done.stderr
    assert lyra("cluster", "status", "--store", cluster_url).returncode == 1


def test_channels_of_hosts_that_are_gone_are_dropped() -> None:
    """A carrier keeps what it needs for the hosts that live; a call to one that was dropped meanwhile ends in a
    sentence, and a host that comes back is reached."""

    async def main() -> None:
        held = asyncio.Event()

        async def answer(method: str, data: Any) -> Any:
            if method == "hold":
                await held.wait()
            return data

        listeners = [GrpcListener("127.0.0.1:0") for _ in range(3)]
        carrier = GrpcCarrier(SECRET)
        for listener in listeners:
            await listener.start(answer, SECRET)
            assert await carrier.call(listener.address, "echo", 7, timeout_s=10.0) == 7
        kept, gone, _ = [listener.address for listener in listeners]
        waiting = asyncio.create_task(carrier.call(gone, "hold", 7, timeout_s=10.0))
        still = asyncio.create_task(carrier.call(kept, "hold", 8, timeout_s=10.0))
        await asyncio.sleep(0.1)
        carrier.forget({kept})
        assert list(carrier._channels) == [kept]
        with pytest.raises(Unreachable, match="no part of the cluster any more"):
            await waiting
        held.set()
        assert await still == 8
        assert await carrier.call(gone, "echo", 9, timeout_s=10.0) == 9
        await carrier.close()
        for listener in listeners:
            await listener.close()

    asyncio.run(main())


FROZEN = """
import asyncio
from lyra.cluster.peers import GrpcListener
from lyra.core.secrets.secret import Secret

async def answer(method, data):
    if method == "hold":
        await asyncio.sleep(1_000)
    return data

async def main():
    listener = GrpcListener("127.0.0.1:0")
    await listener.start(answer, Secret("one cluster's"))
    print(listener.address, flush=True)
    await asyncio.sleep(1_000)

asyncio.run(main())
"""


@pytest.mark.parametrize("idle_s", [0.2, pytest.param(15.0, marks=pytest.mark.long)])
def test_a_frozen_peer_is_noticed_by_its_callers(idle_s: float) -> None:
    """A call that waits for a peer that is stopped ends within seconds, also after a long silence, and where nobody
    looks at leases: a host can be cut off from another and not from the database."""

    peer = subprocess.Popen([sys.executable, "-c", FROZEN], stdout=subprocess.PIPE, text=True)
    assert peer.stdout is not None
    address = peer.stdout.readline().strip()

    async def main() -> float:
        carrier = GrpcCarrier(SECRET)
        assert await carrier.call(address, "echo", 7, timeout_s=10.0) == 7
        waiting = asyncio.create_task(carrier.call(address, "hold", 7, timeout_s=100.0))
        await asyncio.sleep(idle_s)
        peer.send_signal(signal.SIGSTOP)
        began_s = time.monotonic()
        with pytest.raises(Unreachable):
            await waiting
        with pytest.raises(Unreachable):  # nor does a new connection wait for it
            await carrier.call(address, "echo", 7, timeout_s=100.0)
        await carrier.close()
        return time.monotonic() - began_s

    try:
        assert asyncio.run(main()) < 12
    finally:
        peer.kill()
        peer.communicate()
