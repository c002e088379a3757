"""A kernel and the signatures of its store: what it refuses, what it tells, what goes on as before."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from lyra import Kernel
from lyra.core.naming import give_name
from lyra.errors import CODES, Tampered
from lyra.kernel.journal import rows
from lyra.kernel.stored_rights import CONTACTS
from lyra.kernel.supervision.child import Child
from lyra.store.rows import seal, unseal
from lyra.store.sqlite import SqliteStore
from lyra.store.standing import adopt, standing_of

NARROW = {"allow": ["fs.read:/project/**"]}


async def rests(ctx: Any) -> None:
    await ctx.sleep(1e9)


def life(path: Path | str, *spawned: str, snapshot: bool = False, **options: Any) -> dict[str, Any]:
    """Open the store, start processes, close it; the grants of all processes."""

    async def main() -> dict[str, Any]:
        async with Kernel(str(path), programs=[rests], **options) as kernel:
            for pid in spawned:
                await kernel.spawn(rests, pid=pid, grant=NARROW)
            if snapshot:
                await kernel._snapshots.write()
            return {pid: process.grant.to_data() for pid, process in kernel.processes.items()}

    return asyncio.run(main())


def widen(path: Path, pid: str) -> int:
    """Give a process all rights, with right checksums; the number of the row."""
    connection = sqlite3.connect(path, isolation_level=None)
    for batch in connection.execute("SELECT seq, rows, data, crc, signature FROM journal").fetchall():
        records = unseal(batch)
        assert records is not None
        for index, row in enumerate(records):
            if (row.kind, row.pid) == ("process.created", pid):
                created = rows.DECODERS[row.kind].decode(row.data)
                created.grant = None
                records[index] = row._replace(data=rows.encode(created))
                ((seq, _, data, crc, _),) = seal(records)
                connection.execute(
                    "UPDATE journal SET data = ?, crc = ?, signature = NULL WHERE seq = ?", (data, crc, seq)
                )
                connection.close()
                return row.seq
    raise AssertionError(pid)


def test_a_widened_grant_is_refused(tmp_path: Path) -> None:
    """The kernel does not open, and says which rows it was. Before stores were signed it opened with all rights."""
    path = tmp_path / "run.db"
    life(path, "one", "two")
    seq = widen(path, "two")
    with pytest.raises(Tampered, match=rf"journal rows? (\d+ to )?{seq}\b.* not what was signed") as refusal:
        life(path)
    assert CODES[refusal.value.code].exit == 3
    with pytest.raises(Tampered):  # the store was given back as it was
        life(path)


def test_without_a_key_it_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "")
    path = tmp_path / "run.db"
    life(path, "one")
    widen(path, "one")
    assert life(path)["one"] == {"allow": ["*"]}


def test_a_store_of_before_opens_with_a_warning_until_it_is_adopted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log and an Event tell of it, each time."""
    path = tmp_path / "run.db"
    with monkeypatch.context() as patch:
        patch.setenv("HOME", "")
        life(path, "one")
    told: list[Any] = []

    async def open_it() -> None:
        kernel = Kernel(str(path), programs=[rests])
        kernel.on_event(told.append, kinds=("store.unsigned",))
        async with kernel:
            await kernel.spawn(rests)

    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "lyra.kernel"):
            asyncio.run(open_it())
        (record,) = caplog.records
        assert str(path) in record.getMessage()
        assert "lyra store adopt" in record.getMessage()
    assert [event.data for event in told] == [{"location": str(path), "standing": "unsigned"}] * 2
    store = SqliteStore(path)
    signer = standing_of(store).signer
    assert signer is not None
    adopt(store, signer, store.acquire("test", now=0.0, ttl_s=0.0).epoch, store.contents().fingerprint)
    store.close()
    caplog.clear()
    asyncio.run(open_it())
    assert (caplog.records, len(told)) == ([], 2)


def test_a_store_that_another_user_signed_is_opened_after_it_was_adopted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing in it goes on before: its processes, webhooks and keys are those of its maker."""
    path = tmp_path / "run.db"
    ran: list[str] = []

    async def rests(ctx: Any) -> None:
        ran.append(ctx.pid)
        await ctx.sleep(1e9)

    async def main() -> None:
        async with Kernel(str(path), programs=[rests]) as kernel:
            await asyncio.sleep(0)
            if not kernel.processes:
                await kernel.spawn(rests, pid="theirs")

    with monkeypatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path / "maker"))
        asyncio.run(main())
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "victim"))
    ran.clear()
    with pytest.raises(Tampered, match="the key of another user or machine") as refusal:
        asyncio.run(main())
    assert (ran, refusal.value.fields["standing"]) == ([], "other_key")
    assert "lyra store adopt" in (refusal.value.hint or "")
    store = SqliteStore(path)
    standing = standing_of(store)
    assert standing.signed_by in refusal.value.message
    assert standing.signer is not None
    adopt(store, standing.signer, store.acquire("test", now=0.0, ttl_s=0.0).epoch, store.contents().fingerprint)
    store.close()
    asyncio.run(main())
    assert ran == ["theirs"]


def test_a_signed_store_is_not_opened_without_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its signatures cannot be checked, and its signer may be another user."""
    path = tmp_path / "run.db"
    life(path, "one")
    with monkeypatch.context() as patch:
        patch.setenv("HOME", "")
        patch.delenv("XDG_CONFIG_HOME", raising=False)
        with pytest.raises(Tampered, match="signed, and you have no key") as refusal:
            life(path)
    assert "HOME" in (refusal.value.hint or "")
    assert life(path) == {"one": NARROW}


@pytest.mark.parametrize("program", sorted(CONTACTS))
def test_a_store_without_signatures_lets_no_one_in_and_tells_no_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    """Keys of the gateway, hooks and webhooks are younger than signatures, so no earlier version left them there. A
    supervisor that would start one counts as one; an ended one does not, and neither does any for a user without a
    key, whose own stores have no signatures."""

    @give_name(program)
    async def contact(ctx: Any) -> None:
        await ctx.sleep(1e9)

    async def main(supervised: bool, then: str) -> None:
        async with Kernel(str(tmp_path / f"{supervised}.db"), programs=[contact]) as kernel:
            if then == "end":
                await kernel.kill("theirs", "revoked")
            elif supervised:
                await kernel.supervise([Child("theirs", contact)], pid="theirs")
            else:
                await kernel.spawn(contact, pid="theirs")

    for supervised in (False, True):
        with monkeypatch.context() as patch:
            patch.setenv("HOME", "")
            patch.delenv("XDG_CONFIG_HOME", raising=False)
            for _ in range(2):
                asyncio.run(main(supervised, "keep"))
        with pytest.raises(Tampered, match=r"hooks or webhooks: .*theirs") as refusal:
            asyncio.run(main(supervised, "keep"))
        assert "lyra store adopt" in (refusal.value.hint or "")
        with monkeypatch.context() as patch:
            patch.setenv("HOME", "")
            patch.delenv("XDG_CONFIG_HOME", raising=False)
            asyncio.run(main(supervised, "end"))
        asyncio.run(main(supervised, "end"))


@pytest.mark.parametrize("variables", [{"HOME": ""}, {"HOME": "relative"}, {"HOME": "/proc/nothing"}])
def test_a_kernel_without_a_home_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, variables: dict[str, str]
) -> None:
    """A service without a home, or with one that cannot be written: its store is not signed, and that is told."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    path = tmp_path / "run.db"
    with caplog.at_level(logging.WARNING, "lyra.kernel"):
        life(path, "one")
        assert life(path)["one"] == NARROW
    assert all("you have no key" in record.getMessage() for record in caplog.records)
    assert len(caplog.records) == 2


def test_lives_snapshots_and_compaction(tmp_path: Path) -> None:
    """Many lives, each with its chapter; snapshots in between; old rows dropped. All of it stays checked."""
    path = tmp_path / "run.db"
    for number in range(6):
        life(path, f"p-{number}", snapshot=number in (2, 4), retention_s=0.0)
        store = SqliteStore(path)
        store.sign_with(standing_of(store).signer)
        assert store.check() == []
        store.close()
    assert life(path) == {f"p-{number}": NARROW for number in range(6)}


def test_rows_that_change_while_a_kernel_runs_do_not_get_into_its_snapshot(tmp_path: Path) -> None:
    """The kernel goes on, and tells that it could not make one; the next opening is refused."""
    path = tmp_path / "run.db"

    async def main() -> list[Any]:
        failed: list[Any] = []
        async with Kernel(str(path), programs=[rests], snapshot_every_events=3) as kernel:
            kernel.on_event(failed.append, kinds=("snapshot.failed",))
            await kernel.spawn(rests, pid="one", grant=NARROW)
            widen(path, "one")
            for number in range(5):
                await kernel.spawn(rests, pid=f"more-{number}")
            for _ in range(200):
                await asyncio.sleep(0.005)
                if failed:
                    break
            assert kernel.process("one").grant.to_data() == NARROW
        return failed

    (event, *_) = asyncio.run(main())
    assert "not what was signed" in event.data["message"]
    with pytest.raises(Tampered):
        life(path)


def test_snapshots_beside_other_work_are_signed(tmp_path: Path) -> None:
    """Rows are written while the snapshot is made, in the middle of the chapter that it begins."""
    path = tmp_path / "run.db"

    async def main() -> None:
        async with Kernel(str(path), programs=[rests], snapshot_every_events=40, retention_s=0.0) as kernel:
            failed: list[Any] = []
            kernel.on_event(failed.append, kinds=("snapshot.failed",))
            for number in range(150):
                await kernel.spawn(rests, pid=f"p{number}", grant=NARROW)
                await asyncio.sleep(0)
            assert failed == []

    asyncio.run(main())
    store = SqliteStore(path)
    store.sign_with(standing_of(store).signer)
    assert store.load_snapshots().seq > 0
    assert store.check() == []
    store.close()
    assert len(life(path)) == 150


def test_an_owner_that_was_killed_is_followed_by_another(tmp_path: Path) -> None:
    """A copy of the files as a kill leaves them, log included, opens with what was committed."""
    path, copy = tmp_path / "run.db", tmp_path / "copy.db"

    async def main() -> None:
        async with Kernel(str(path), programs=[rests], lease_s=0.01) as kernel:
            await kernel.spawn(rests, pid="one", grant=NARROW)
            for suffix in ("", "-wal"):
                shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
            await asyncio.sleep(0.02)  # the lease in the copy ends

    asyncio.run(main())
    assert life(copy, "two") == {"one": NARROW, "two": NARROW}


def test_an_older_copy_of_the_store_opens(tmp_path: Path) -> None:
    """Restoring a backup is no attack. It brings back rights that were given then, never others."""
    path = tmp_path / "run.db"
    life(path, "one")
    backup = path.read_bytes()
    life(path, "two")
    path.write_bytes(backup)
    assert life(path, "three") == {"one": NARROW, "three": NARROW}
