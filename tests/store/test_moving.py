"""A store that is moved goes on in PostgreSQL as it was, opens in one place alone, and a broken move is finished."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lyra import Effect, Kernel
from lyra.errors import ConfigError, Conflict, Corrupt, LyraError, StoreError
from lyra.kernel.journal.lease import acquire_at_once, acquire_to_move, owner_name
from lyra.store import moving
from lyra.store.moving import Moved, fingerprint, move
from lyra.store.postgres import PostgresStore
from lyra.store.signing import SigningStore
from lyra.store.space import open_to_read
from lyra.store.sqlite import SqliteStore
from tests.source import PYTHONPATH

pytestmark = pytest.mark.slow

KEYS: list[str] = []
STATE = {"ends": False}


async def act(idempotency_key: str) -> str:
    KEYS.append(idempotency_key)
    while not STATE["ends"]:
        await asyncio.sleep(0.005)
    return "done"


async def program(ctx: Any) -> tuple[str, str]:
    first = await ctx.receive()
    await ctx.ask("May I?", kind="confirmation")
    return first, await ctx.do(Effect(act, name="act", idempotent=True))


async def short(ctx: Any, number: int) -> int:
    return number


PROGRAMS = [program, short]


async def fill(path: Path) -> None:
    """Make a store with snapshots, ended processes that were put away, a blob and an effect in flight."""
    async with Kernel(path, programs=PROGRAMS, snapshot_every_events=50) as kernel:
        for number in range(700):
            await kernel.run(short, number)
        main = await kernel.spawn(program, pid="main")
        await kernel.send("main", "x" * 300_000)
        while not kernel.interrupts.pending():
            await asyncio.sleep(0.005)
        await kernel.durable()
        while not kernel.journal.store.load_snapshots().seq:
            await asyncio.sleep(0.01)
        assert main.alive


async def finish(url: str, pid: str = "main") -> Any:
    async with Kernel(url, programs=PROGRAMS) as kernel:
        for interrupt in kernel.interrupts.pending():
            await kernel.resolve_interrupt(interrupt.id, {"approved": True})
        return (await kernel.process(pid).wait()).result


async def run_once(target: str) -> None:
    async with Kernel(target, programs=PROGRAMS) as kernel:
        await kernel.run(short, 1)


def take(store: SigningStore) -> Any:
    return acquire_to_move(store, 60.0)


def move_file(path: Path | str, url: str, **options: Any) -> Moved:
    source = PostgresStore(str(path)) if "://" in str(path) else SqliteStore(path)
    with closing(source), closing(PostgresStore(url)) as target:
        return move(source, target, take, **options)


def prints(target: Path | str) -> str:
    store = open_to_read(str(target))
    with closing(store):
        return fingerprint(store._ask)  # type: ignore[attr-defined]


def test_a_store_goes_on_in_postgresql(tmp_path: Path, postgres_url: str) -> None:
    """Rows, snapshots, blobs, signatures and identity are the same; its processes go on; the old one says where."""
    STATE["ends"] = True
    path = tmp_path / "k.db"
    asyncio.run(fill(path))
    before = prints(path)
    with closing(SqliteStore(path)) as old:
        identity, key, blobs = old.identity(), old.get_signing_key(), old._ask("SELECT count(*) FROM blobs")
    assert key
    assert blobs[0][0] > 1
    told: list[int] = []
    moved = move_file(path, postgres_url, tell=told.append)
    assert (moved.rows, moved.was_moved_before) == (told[-1], False)
    assert prints(postgres_url) == before
    with closing(PostgresStore(postgres_url)) as new:
        assert (new.identity(), new.get_signing_key(), new.holder()) == (identity, key, None)
        location = new.location
    assert move_file(path, postgres_url).was_moved_before
    with pytest.raises(StoreError, match=f"{path} was moved to postgresql:") as refused:
        asyncio.run(finish(str(path)))
    assert location in refused.value.message
    with closing(SqliteStore(path)) as old, pytest.raises(StoreError, match="was moved to"):
        acquire_at_once(old, "lyra store compact", 3.0)
    assert asyncio.run(finish(postgres_url)) == ("x" * 300_000, "done")
    with pytest.raises(StoreError, match="was moved to"):
        move_file(path, f"{postgres_url}_2")


def test_a_call_of_a_killed_owner_has_the_same_key_afterwards(tmp_path: Path, postgres_url: str) -> None:
    """The owner is killed during an idempotent call; the store is moved; the call is made again under its key."""
    path = tmp_path / "k.db"
    script = (
        "import asyncio, os, signal, sys\n"
        "from lyra import Kernel\n"
        "from tests.store import test_moving as t\n"
        "async def main():\n"
        "    async with Kernel(sys.argv[1], programs=t.PROGRAMS) as kernel:\n"
        "        await kernel.spawn(t.program, pid='main')\n"
        "        await kernel.send('main', 'x')\n"
        "        while not kernel.interrupts.pending(): await asyncio.sleep(0.005)\n"
        "        await kernel.resolve_interrupt(kernel.interrupts.pending()[0].id, {'approved': True})\n"
        "        while not t.KEYS: await asyncio.sleep(0.005)\n"
        "        print(t.KEYS[0], flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    env = {**os.environ, "PYTHONPATH": PYTHONPATH}
    killed = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        env=env,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    STATE["ends"] = True
    KEYS.clear()
    with closing(SqliteStore(path)) as old:
        killed_owner = old._lease().owner
    move_file(path, postgres_url)
    with closing(PostgresStore(postgres_url)) as new:
        held = new.holder()  # the next owner continues in the generation that this name tells
    assert held is not None
    assert held.owner == killed_owner
    assert asyncio.run(finish(postgres_url)) == ("x", "done")
    assert [killed.stdout.strip()] == KEYS


def test_the_generation_of_a_killed_owner_outlives_a_mover_that_is_killed_too(tmp_path: Path) -> None:
    """The next owner, whoever it is, makes calls again under the keys of the first."""
    with closing(SqliteStore(tmp_path / "k.db")) as store:
        first = owner_name("nonce", 3.0, "genera01")
        lease = store.acquire(first, now=0.0, ttl_s=1.0)
        assert store.holder() is not None
        mover = acquire_to_move(store, 60.0)
        assert mover.epoch == lease.epoch + 1
        assert mover.owner.endswith("|genera01")
        store.release(mover)
        fresh = acquire_to_move(store, 60.0)
        assert len(fresh.owner.rpartition("|")[2]) == 8
        assert not fresh.owner.endswith("|genera01")


def test_a_store_of_postgresql_is_moved_too(tmp_path: Path, postgres_url: str) -> None:
    STATE["ends"] = True
    asyncio.run(fill(tmp_path / "k.db"))
    move_file(tmp_path / "k.db", postgres_url)
    move_file(postgres_url, f"{postgres_url}_b")
    assert asyncio.run(finish(f"{postgres_url}_b"))[1] == "done"
    with pytest.raises(StoreError, match="was moved to"):
        asyncio.run(finish(postgres_url))


def test_an_owned_store_and_a_full_target_are_refused(tmp_path: Path, postgres_url: str) -> None:
    """Neither is changed."""
    STATE["ends"] = True
    path = tmp_path / "k.db"
    asyncio.run(fill(path))

    async def owned() -> None:
        async with Kernel(path, programs=PROGRAMS):
            with pytest.raises(Conflict, match="is owned by"):
                move_file(path, postgres_url)

    asyncio.run(owned())
    asyncio.run(run_once(f"{postgres_url}_full"))
    before = prints(f"{postgres_url}_full")
    with pytest.raises(Conflict, match="holds a store already"):
        move_file(path, f"{postgres_url}_full")
    assert prints(f"{postgres_url}_full") == before
    with closing(SqliteStore(path)) as old:
        assert old.holder() is None

    async def target_owned() -> None:
        async with Kernel(postgres_url, programs=PROGRAMS):
            with pytest.raises(Conflict, match="is owned by"):
                move_file(path, postgres_url)

    asyncio.run(target_owned())
    with pytest.raises(ConfigError, match="is both stores"):
        move_file(postgres_url, postgres_url)


def test_a_damaged_store_is_not_moved(tmp_path: Path, postgres_url: str) -> None:
    asyncio.run(fill(tmp_path / "k.db"))
    with closing(SqliteStore(tmp_path / "k.db")) as store:
        store._run("UPDATE journal SET data = x'00' WHERE seq = (SELECT min(seq) FROM journal)")
    with pytest.raises(Corrupt):
        move_file(tmp_path / "k.db", postgres_url)
    with closing(SqliteStore(tmp_path / "k.db")) as store:
        assert store.holder() is None


@pytest.mark.parametrize("place", ["_verify", "_finish"])
def test_a_move_that_breaks_off_is_finished(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """After the copy, and after the old store was marked: at most one of the two opens, and the same call goes on."""
    STATE["ends"] = True
    path = tmp_path / "k.db"
    asyncio.run(fill(path))

    def breaks(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(moving, place, breaks)
        move_file(path, postgres_url)
    opened = []
    for target in (str(path), postgres_url):
        try:
            asyncio.run(run_once(target))
        except LyraError:
            continue
        opened.append(target)
    assert opened == ([str(path)] if place == "_verify" else [])
    assert not move_file(path, postgres_url).was_moved_before  # with what the old one did meanwhile
    assert asyncio.run(finish(postgres_url))[1] == "done"


def test_a_mover_that_is_killed_leaves_the_old_store_as_it_was(tmp_path: Path, postgres_url: str) -> None:
    """SIGKILL in the middle of the copy: nothing of it is there, and the next call moves the store."""
    STATE["ends"] = True
    path = tmp_path / "k.db"
    asyncio.run(fill(path))
    script = (
        "import os, signal, sys\n"
        "from tests.store import test_moving as t\n"
        "def tell(count):\n"
        "    if count > 10: os.kill(os.getpid(), signal.SIGKILL)\n"
        "t.move_file(sys.argv[1], sys.argv[2], tell=tell)\n"
    )
    env = {**os.environ, "PYTHONPATH": PYTHONPATH}
    words = [sys.executable, "-c", script, str(path), postgres_url]
    killed = subprocess.run(words, env=env, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with closing(PostgresStore(postgres_url)) as target:
        assert target.holds_nothing()
        assert target.holder() is None
    move_file(path, postgres_url)
    assert asyncio.run(finish(postgres_url))[1] == "done"
