"""A copy of a cluster is one moment of all its shards, and a restored cluster goes on from there."""

from __future__ import annotations

import asyncio
import gzip
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lyra import cluster
from lyra.cluster import backup as module
from lyra.cluster.backup import back_up, restore
from lyra.cluster.directory import PostgresDirectory
from lyra.errors import ConfigError, Conflict, Corrupt, StoreError
from lyra.kernel import Kernel
from lyra.store.moving import Fingerprint, fingerprint
from lyra.store.postgres import PostgresStore
from lyra.store.postgres_space import PostgresSpace
from tests.cli.conftest import lyra as lyra  # noqa: PLC0414 - a fixture
from tests.cluster.started import StartedHost, StartHost
from tests.cluster.started import cluster_url as cluster_url  # noqa: PLC0414 - a fixture
from tests.cluster.started import database as database  # noqa: PLC0414 - a fixture
from tests.cluster.started import start_host as start_host  # noqa: PLC0414 - a fixture

pytestmark = pytest.mark.slow

MESSAGES = 120
JOBS = f"""
async def sender(ctx):
    for number in range({MESSAGES}):
        await ctx.send("s1/receiver", number)
        await ctx.sleep(0.01)

async def receiver(ctx):
    return [await ctx.receive() for _ in range({MESSAGES})]

def setup(kernel):
    kernel.register(sender)
    kernel.register(receiver)
"""


async def result_of(url: str, *, spawn: bool) -> Any:
    async with cluster.connect(url) as client:
        if spawn:
            await client.spawn("lyra_server_setup:receiver", shard="s1", pid="receiver")
            await client.spawn("lyra_server_setup:sender", shard="s2", pid="sender")
            return None
        return (await client.process("s1/receiver").wait()).result


def last_seq(url: str, shard: str) -> int:
    with (
        closing(PostgresDirectory(url, make=False)) as directory,
        closing(PostgresStore(directory.url_of(shard))) as store,
    ):
        return store.last_seq()


def wait_for_rows(url: str, count: int) -> None:
    """Return when the shard of the receiver has so many rows more, or goes on no more."""
    before, until = last_seq(url, "s1"), time.monotonic() + 10.0
    while last_seq(url, "s1") < before + count and time.monotonic() < until:
        time.sleep(0.01)


def prints(url: str) -> list[str]:
    with closing(PostgresDirectory(url, make=False)) as directory:
        stores = [PostgresStore(directory.url_of(shard)) for shard in directory.view().shards]
    told = []
    for store in stores:
        with closing(store):
            told.append(fingerprint(store._ask))
    return told


def test_a_cluster_goes_on_from_its_copy(lyra: Any, tmp_path: Path, cluster_url: str, start_host: StartHost) -> None:
    """Taken while one shard tells another: every message is delivered once and in order, there as here."""
    (tmp_path / "jobs.py").write_text(JOBS)
    a = start_host("a", "--shards", "2", "--load", "jobs.py").until_joined()
    b = start_host("b", "--load", "jobs.py")
    a.until_shards(1)
    b.until_shards(1)
    asyncio.run(result_of(cluster_url, spawn=True))
    wait_for_rows(cluster_url, 20)
    home = {"HOME": str(tmp_path / "hosts")}
    file = tmp_path / "copy.backup"
    paused: list[int] = []

    def pause_once(count: int) -> None:
        """Let the shards go on between the pages of the copy."""
        if not paused:
            paused.append(count)
            wait_for_rows(cluster_url, 20)

    assert back_up(cluster_url, file, pause_once).shards == 2
    assert paused
    other_file = tmp_path / "other.backup"
    done = lyra("cluster", "backup", str(other_file), "--store", cluster_url, **home)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"wrote {other_file}: 2 shards, ")
    assert other_file.stat().st_mode & 0o777 == 0o600
    nowhere = lyra("cluster", "backup", str(tmp_path / "nowhere/copy.backup"), "--store", cluster_url, **home)
    assert (nowhere.returncode, nowhere.stdout) == (2, "")
    assert f"there is no folder {tmp_path}/nowhere" in nowhere.stderr
    assert not (tmp_path / "nowhere").exists()
    assert asyncio.run(result_of(cluster_url, spawn=False)) == list(range(MESSAGES))
    other = f"{cluster_url}_restored"
    restored = lyra("cluster", "restore", str(file), "--store", other, **home)
    assert restored.returncode == 0, restored.stderr
    assert restored.stdout.startswith("restored 2 shards with ")
    with closing(PostgresDirectory(cluster_url, make=False)) as one, closing(PostgresDirectory(other)) as two:
        assert one.secret.reveal() != two.secret.reveal()
        assert two.view().hosts == {}
        ids = [PostgresStore(directory.url_of("s1")) for directory in (one, two)]
    assert ids[0].identity() == ids[1].identity()
    assert ids[1].holder() is None  # so that the next owner begins a new generation
    assert ids[1]._lease().epoch > 0
    for store in ids:
        store.close()
    c = StartedHost(tmp_path, other, "c", "--load", "jobs.py")
    try:
        c.until_shards(2)
        assert asyncio.run(result_of(other, spawn=False)) == list(range(MESSAGES))
    finally:
        c.close()


@pytest.fixture
def copied(tmp_path: Path, cluster_url: str, start_host: StartHost, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a cluster that has ended, with something in one of its shards."""
    (tmp_path / "jobs.py").write_text(JOBS)
    host = start_host("a", "--shards", "2", "--load", "jobs.py")
    host.until_shards(2)
    asyncio.run(result_of(cluster_url, spawn=True))
    assert asyncio.run(result_of(cluster_url, spawn=False)) == list(range(MESSAGES))
    assert host.stop()[0] == 0
    monkeypatch.setenv("HOME", str(tmp_path / "hosts"))
    back_up(cluster_url, tmp_path / "copy.backup")
    return tmp_path / "copy.backup"


def test_what_is_restored_is_what_was_copied(
    lyra: Any, tmp_path: Path, cluster_url: str, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row for row; a damaged file, a cluster in use and a restore that breaks off change nothing."""
    other = f"{cluster_url}_two"
    data = copied.read_bytes()
    for damaged in (
        data[:-40],
        data[: len(data) // 2],
        data[:300] + b"\xff" * 20 + data[320:],
        b"",
        b"x" * 99,
    ):
        copied.write_bytes(damaged)
        with pytest.raises((Corrupt, ConfigError)):
            restore(other, copied)
    plain = gzip.decompress(data[len(module._MAGIC) :])
    copied.write_bytes(module._MAGIC + gzip.compress(plain.replace(b"process.created", b"process.crested", 1)))
    with pytest.raises(Corrupt, match="is damaged"):
        restore(other, copied)
    with pytest.raises(StoreError, match="there is no cluster"):
        prints(other)
    copied.write_bytes(data)

    def breaks(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Fingerprint, "text", breaks)
        restore(other, copied)
    assert prints(other) != prints(cluster_url)
    with closing(PostgresDirectory(other)) as directory, closing(PostgresStore(directory.url_of("s1"))) as store:
        assert store.holds_nothing()
    told = restore(other, copied)
    assert told.shards == 2
    assert prints(other) == prints(cluster_url)
    with pytest.raises(Conflict, match="is in use"):
        restore(other, copied)
    again = lyra.json("cluster", "backup", str(tmp_path), "--store", other)
    assert Path(again["file"]).name.startswith("lyra-cluster-")
    assert (again["shards"], again["rows"]) == (2, told.rows)
    done = lyra.json("cluster", "restore", again["file"], "--store", f"{cluster_url}_three")
    assert (done["rows"], done["at"]) == (again["rows"], again["at"])
    with pytest.raises(ConfigError, match="exists already"):
        back_up(other, copied)


def test_no_restore_into_a_cluster_that_runs(copied: Path, cluster_url: str, start_host: StartHost) -> None:
    start_host("a").until_shards(2)
    with pytest.raises(Conflict, match="are running"):
        restore(cluster_url, copied)


def test_a_restore_that_breaks_off_late_has_its_key(copied: Path, cluster_url: str, monkeypatch: Any) -> None:
    """The key comes in the transaction of the rows: without it the shards could never be opened."""
    other = f"{cluster_url}_late"

    def breaks(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "_check_shard", breaks)
        restore(other, copied)
    with closing(PostgresDirectory(cluster_url)) as one, closing(PostgresDirectory(other)) as two:
        assert two.key.reveal() == one.key.reveal()
        module._check_shard(two.store_of("s1"))


def test_runs_beside_the_shards_are_copied(cluster_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose journal were missing would begin anew after a restore, and repeat what it had finished."""
    monkeypatch.setenv("HOME", str(tmp_path))

    async def work(space: PostgresSpace) -> None:
        with closing(space):
            async with Kernel(space) as kernel:
                await kernel.groups.create("council")

    with closing(PostgresDirectory(cluster_url, shards=1)) as directory:
        asyncio.run(work(PostgresSpace(cluster_url, "night", directory.signer)))
        back_up(cluster_url, tmp_path / "copy.backup")
        other = f"{cluster_url}_runs"
        restore(other, tmp_path / "copy.backup")
        spaces = [PostgresSpace(url, "night", directory.signer, make=False) for url in (cluster_url, other)]
    with closing(spaces[0]), closing(spaces[1]):
        assert spaces[1].last_seq() > 0
        assert fingerprint(spaces[0]._ask) == fingerprint(spaces[1]._ask)
