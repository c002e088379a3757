"""Signatures of stores: the key, the chain of codes, and which stores are signed, checked or refused."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyra.core.user_folders import user_folder
from lyra.errors import ConfigError, Conflict, Corrupt, Tampered
from lyra.store.memory import MemoryStore
from lyra.store.postgres import PostgresStore
from lyra.store.rows import Batch, seal, sign_batches
from lyra.store.signature import BEGINNING, ChainReader, ChapterWriter, Signatures, Signer, key_file, load_signer
from lyra.store.signing import SigningStore
from lyra.store.space import Space
from lyra.store.sqlite import SqliteStore
from lyra.store.standing import STANDINGS, adopt, is_known, open_signed, read_store_ids, remember, standing_of, vouch
from lyra.testing.conformance import records

KEY = Signer(bytes(32))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return folder


def own(store: SigningStore) -> int:
    """Take the store; its epoch."""
    return store.acquire("test", now=None if store.has_clock else 1.0, ttl_s=1e9).epoch


def epoch_of(store: SigningStore) -> int:
    lease = store.holder()
    assert lease is not None
    return lease.epoch


def filled(path: Path, count: int = 5) -> SqliteStore:
    store = SqliteStore(path)
    epoch = own(store)
    open_signed(store, epoch)
    for number in range(1, count + 1):
        store.append(records(number, 1), epoch)
    return store


# ---------------------------------------------------------------- the key
def test_the_key_is_made_once_and_private(home: Path) -> None:
    """32 random bytes in the folder of the user's settings, for this user alone."""
    path = key_file()
    assert path == home / ".config" / "lyra" / "store.key"
    assert load_signer(make=False) is None
    first, second = load_signer(), load_signer()
    assert first is not None
    assert second is not None
    assert first.key_id == second.key_id
    assert len(bytes.fromhex(path.read_text())) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [file.name for file in path.parent.iterdir()] == ["store.key"]


def test_the_folder_of_settings_is_that_of_the_environment(tmp_path: Path) -> None:
    """XDG_CONFIG_HOME before HOME; relative paths name none, nor does an empty environment."""
    assert user_folder({"XDG_CONFIG_HOME": "/x", "HOME": "/h"}) == "/x/lyra"
    assert user_folder({"XDG_CONFIG_HOME": "x", "HOME": "/h"}) == "/h/.config/lyra"
    assert user_folder({"HOME": "h"}) is None
    assert user_folder({}) is None


def test_processes_that_start_together_make_one_key(home: Path) -> None:
    """The first one that is complete counts for all."""
    program = "from lyra.store.signature import load_signer; print(load_signer().key_id)"
    children = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    ids = {child.communicate(timeout=60)[0].strip() for child in children}
    signer = load_signer()
    assert signer is not None
    assert ids == {signer.key_id}


def test_a_key_that_others_may_read_is_refused() -> None:
    """So is a file that holds something else: both are told, with what to do."""
    load_signer()
    path = key_file()
    assert path is not None
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="other users"):
        load_signer()
    path.chmod(0o600)
    for text in ("", "short", "z" * 64):
        path.write_text(text)
        with pytest.raises(ConfigError, match="holds no key"):
            load_signer()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_gives_no_key(home: Path) -> None:
    home.chmod(0o500)
    try:
        assert load_signer() is None
    finally:
        home.chmod(0o700)


def test_where_a_folder_cannot_be_made_there_is_no_key(home: Path, tmp_path: Path) -> None:
    """A store is used all the same, and says that it is not signed."""
    (home / ".config").write_text("a file in the way")
    assert load_signer() is None
    store = SqliteStore(tmp_path / "run.db")
    epoch = own(store)
    assert open_signed(store, epoch).name == "no_key"
    store.append(records(1, 2), epoch)
    assert list(store.read()) == records(1, 2)


def test_the_key_is_shown_nowhere() -> None:
    signer = load_signer()
    path = key_file()
    assert path is not None
    key = path.read_text().strip()
    assert key not in repr(signer)
    assert key not in str(vars(type(signer)))
    assert signer is not None
    assert signer.key_id not in key


# ---------------------------------------------------------------- codes
def _batches(sizes: list[int], signatures: Signatures, chapters: set[int]) -> list[Batch]:
    """Signed batches of so many rows; a chapter begins with those of these numbers."""
    batches: list[Batch] = []
    seq, writer = 1, ChapterWriter(signatures, BEGINNING)
    for number, size in enumerate(sizes):
        if number in chapters:
            writer = ChapterWriter(signatures, writer.code)
        batches += sign_batches(seal(records(seq, size)), writer)
        seq += size
    return batches


@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.sets(st.integers(0, 7)), st.data())
def test_every_beginning_passes_and_every_change_does_not(
    sizes: list[int], chapters: set[int], data: st.DataObject
) -> None:
    """A crash may leave any beginning of the journal. No batch can be changed, left out, moved or doubled."""
    signatures = KEY.for_store("s")
    batches = _batches(sizes, signatures, chapters)
    for count in range(len(batches) + 1):
        cut = data.draw(st.integers(0, count))
        reader = ChainReader(signatures, BEGINNING)  # a page at a time
        assert reader.first_forged(batches[:cut]) is None
        assert reader.first_forged(batches[cut:count]) is None
    place = data.draw(st.integers(0, len(batches) - 1))
    seq, count, content, crc, signature = batches[place]
    changed = (seq, count, content[:-1] + bytes([content[-1] ^ 1]), crc, signature)
    assert (
        ChainReader(signatures, BEGINNING).first_forged([*batches[:place], changed, *batches[place + 1 :]]) == changed
    )
    other = ChainReader(KEY.for_store("t"), BEGINNING)
    assert other.first_forged(batches) is not None
    another_key = ChainReader(Signer(bytes([1] * 32)).for_store("s"), BEGINNING)
    assert another_key.first_forged(batches) == batches[0]
    if len(batches) > 1 and place < len(batches) - 1:
        moved = (batches[place][0], *batches[place + 1][1:])
        assert ChainReader(signatures, BEGINNING).first_forged([*batches[:place], moved]) == moved


def test_a_beginning_in_the_middle_is_not_taken_for_a_chapter() -> None:
    """A chapter says what it follows: one that was cut out of the journal does not begin it."""
    signatures = KEY.for_store("s")
    batches = _batches([1, 1, 1, 1], signatures, {2})
    assert len(batches[2][4] or b"") == 2 * len(batches[1][4] or b"")
    assert ChainReader(signatures, BEGINNING).first_forged(batches[2:]) == batches[2]
    assert ChainReader(signatures, None).first_forged(batches[1:]) is None  # history: its beginning was dropped


# ---------------------------------------------------------------- reading and writing
def test_rows_that_are_changed_are_refused_and_named(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    filled(path).close()
    connection = sqlite3.connect(path, isolation_level=None)
    ((seq, count, data, crc, _),) = seal([(3, 1.0, "p1", "process.created", b"\x81\xa1a\x01")])
    connection.execute(
        "UPDATE journal SET data = ?, rows = ?, crc = ?, signature = NULL WHERE seq = ?", (data, count, crc, seq)
    )
    connection.close()
    store = SqliteStore(path)
    assert vouch(store).name == "signed"
    store.load_snapshots()
    with pytest.raises(Tampered, match="journal row 3 is not what was signed") as refusal:
        list(store.read())
    assert refusal.value.code == "tampered"
    assert refusal.value.fields["seq"] == 3
    assert "lyra store adopt" in str(refusal.value.hint)
    assert isinstance(refusal.value, Corrupt)
    assert store.check() == ["journal row 3 is not what was signed"]


def test_a_change_while_it_is_open_is_not_signed(tmp_path: Path) -> None:
    """Neither rows nor states that another program changed get into the next snapshot."""
    path = tmp_path / "run.db"
    store = filled(path)
    epoch = epoch_of(store)
    store.load_snapshots()
    list(store.read())
    store.save_snapshots(5, {"p1": b"narrow"}, epoch)
    connection = sqlite3.connect(path, isolation_level=None)
    from lyra.store.migrations import meta_crc
    from lyra.store.rows import state_crc, total_of

    crc = state_crc("p1", b"wide")
    total = total_of(0, added=crc)
    connection.execute("UPDATE snapshots SET data = ?, crc = ?", (b"wide", crc))
    connection.execute("UPDATE meta SET states_total = ?, crc = ?", (total, meta_crc(1, 5, 1, total)))
    store.append(records(6, 1), epoch)
    with pytest.raises(Tampered, match="the snapshot at row 5"):
        store.save_snapshots(6, {"p2": b"x"}, epoch)
    with pytest.raises(Tampered, match="the snapshot at row 5"):
        store.load_snapshots()
    connection.close()


def test_a_last_row_that_was_exchanged_while_it_is_open_is_noticed(tmp_path: Path) -> None:
    """The owner knows what it wrote last: another signed batch, of an older copy, does not pass."""
    path = tmp_path / "run.db"
    store = filled(path, 2)
    store.close()
    copy = tmp_path / "copy.db"
    copy.write_bytes(path.read_bytes())
    for place, text in ((path, b"one"), (copy, b"two")):
        twin = SqliteStore(place)
        epoch = twin.acquire("test", now=1e12, ttl_s=1e9).epoch
        twin.sign_with(load_signer())
        twin.load_snapshots()
        list(twin.read())
        twin.append([(3, 1.0, "p", "k", text)], epoch)
        if place == path:
            store = twin
        else:
            ((data, crc, signature),) = twin._ask("SELECT data, crc, signature FROM journal WHERE seq = 3")
            twin.close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE journal SET data = ?, crc = ?, signature = ? WHERE seq = 3", (data, crc, signature))
    connection.close()
    store.load_snapshots()
    with pytest.raises(Tampered, match="journal row 3"):
        list(store.read())


def test_compaction_keeps_what_is_left_checked(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    store = filled(path, 8)
    epoch = epoch_of(store)
    store.load_snapshots()
    list(store.read())
    store.append(records(9, 3), epoch)
    store.save_snapshots(8, {"p": b"x"}, epoch)
    assert store.compact(before=1e9, epoch=epoch) == 8
    store.append(records(12, 1), epoch)
    store.close()
    again = SqliteStore(path)
    assert vouch(again).name == "signed"
    assert again.load_snapshots().seq == 8
    assert [row.seq for row in again.read(after=8)] == [9, 10, 11, 12]
    assert again.check() == []


def test_a_compaction_without_the_key_keeps_it_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`lyra store compact` by a user without the key drops rows; the owner's next opening is as before."""
    path = tmp_path / "run.db"
    store = filled(path, 4)
    epoch = epoch_of(store)
    store.append(records(5, 4), epoch)
    store.load_snapshots()
    list(store.read())
    store.save_snapshots(8, {"p": b"x"}, epoch)
    store.append(records(9, 1), epoch)
    store.close()
    other = SqliteStore(path)
    epoch = other.acquire("other", now=1e12, ttl_s=1.0).epoch
    assert other.compact(before=107.0, epoch=epoch) == 6  # the batch of rows 5 to 8 is cut
    other.close()
    again = SqliteStore(path)
    vouch(again)
    assert again.load_snapshots().states == {"p": b"x"}
    assert [row.seq for row in again.read(after=8)] == [9]
    assert again.check() == []


def test_an_append_that_failed_is_signed_when_it_is_repeated(tmp_path: Path) -> None:
    """A full disk: the same rows are tried again, and the chain goes on."""
    path = tmp_path / "run.db"
    store = filled(path, 2)
    epoch = epoch_of(store)
    with pytest.raises(Conflict):
        store.append(records(3, 1), epoch + 1)
    store.append(records(3, 2), epoch)
    store.append(records(5, 1), epoch)
    store.close()
    again = SqliteStore(path)
    vouch(again)
    again.load_snapshots()
    assert len(list(again.read())) == 5
    assert again.check() == []


# ---------------------------------------------------------------- standings
def test_a_store_that_no_version_signed_is_as_it_was(tmp_path: Path) -> None:
    """It opens, is not checked, and goes on unsigned until it is adopted."""
    store = SqliteStore(tmp_path / "run.db")
    store.append(records(1, 3), 0)
    epoch = own(store)
    assert open_signed(store, epoch).name == "unsigned"
    store.append(records(4, 1), epoch)
    assert store.get_signing_key() == ""
    contents = store.contents()
    signer = load_signer()
    assert signer is not None
    adopt(store, signer, epoch, contents.fingerprint)
    assert standing_of(store).name == "signed"
    assert store.check() == []


def test_only_what_was_listed_is_adopted(tmp_path: Path) -> None:
    """A store that changes between the list and the answer is not signed."""
    store = SqliteStore(tmp_path / "run.db")
    store.append(records(1, 3), 0)
    contents = store.contents()
    store.append(records(4, 1), 0)
    epoch = own(store)
    with pytest.raises(Conflict, match="changed since"):
        adopt(store, KEY, epoch, contents.fingerprint)
    assert store.get_signing_key() == ""
    assert store.contents().fingerprint != contents.fingerprint


def test_a_snapshot_in_the_middle_of_a_batch_is_adopted(tmp_path: Path) -> None:
    """No kernel makes one, but the protocol allows it: the batch is parted there."""
    store = SqliteStore(tmp_path / "run.db")
    store.append(records(1, 10), 0)
    store.save_snapshots(4, {"p": b"x"}, 0)
    epoch = own(store)
    adopt(store, KEY, epoch, store.contents().fingerprint)
    assert store.check() == []
    store.load_snapshots()
    assert list(store.read(after=4)) == records(5, 6)
    store.append(records(11, 1), epoch)
    assert store.check() == []


def test_a_store_of_another_key_is_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.db"
    filled(path).close()
    monkeypatch.setenv("HOME", str(tmp_path / "another"))
    store = SqliteStore(path)
    assert vouch(store).name == "no_key"
    with pytest.raises(Tampered, match="the key of another user or machine"):
        open_signed(store, store.acquire("x", now=1e12, ttl_s=1.0).epoch)
    assert len(list(store.read())) == 5


def test_a_store_may_be_moved_copied_deleted_and_restored(tmp_path: Path) -> None:
    """All of that people do. Only another store in a place that is known is refused."""
    path, moved = tmp_path / "run.db", tmp_path / "moved.db"
    filled(path).close()
    backup = path.read_bytes()
    path.rename(moved)
    assert standing_of(SqliteStore(moved)).name == "signed"
    epoch = own(new := SqliteStore(path))
    assert open_signed(new, epoch).name == "empty"  # a new store in the place of the old one
    new.append(records(1, 1), epoch)
    new.close()
    assert standing_of(SqliteStore(path)).name == "signed"
    path.write_bytes(backup)
    store = SqliteStore(path)
    assert standing_of(store).name == "replaced"
    with pytest.raises(Tampered, match="not the store that was signed at this place"):
        vouch(store)


def test_stripped_signatures_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    filled(path).close()
    store = SqliteStore(path)
    store._run("UPDATE signatures SET key_id = '', crc = ?", (_crc_of_nothing(store),))
    assert standing_of(store).name == "stripped"
    with pytest.raises(Tampered, match="no longer signed"):
        open_signed(store, 1)


def test_a_link_in_the_place_of_a_store_is_noticed(tmp_path: Path) -> None:
    """To another store, which is not signed."""
    path, other = tmp_path / "run.db", tmp_path / "other.db"
    filled(path).close()
    path.unlink()
    store = SqliteStore(other)
    epoch = own(store)
    store.append(records(1, 2), epoch)
    store.close()
    path.symlink_to(other)
    assert standing_of(SqliteStore(path)).name == "replaced"


@pytest.mark.parametrize("way", ["link to the folder", "link to the file", "hard link", "copy", "moved"])
def test_stripped_signatures_are_noticed_under_another_name(tmp_path: Path, way: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "run.db"
    filled(path).close()
    store = SqliteStore(path)
    store._run("UPDATE signatures SET key_id = '', crc = ?", (_crc_of_nothing(store),))
    store.close()
    other = tmp_path / "other.db"
    if way == "link to the folder":
        (tmp_path / "link").symlink_to(folder)
        other = tmp_path / "link/run.db"
    elif way == "link to the file":
        other.symlink_to(path)
    elif way == "hard link":
        other.hardlink_to(path)
    elif way == "copy":
        other.write_bytes(path.read_bytes())
    else:
        path.rename(other)
    assert standing_of(SqliteStore(other)).name == "stripped"


def _crc_of_nothing(store: SqliteStore) -> int:
    from lyra.store.migrations import signature_crc

    ((seq, link, code),) = store._ask("SELECT seq, link, code FROM signatures")
    return signature_crc("", seq, link, code)


def test_runs_are_signed_with_their_file(tmp_path: Path) -> None:
    """In a file that is known every run has to be signed; in one of before each run is for itself."""
    path = tmp_path / "run.db"
    for name in ("a", "b"):
        run = Space(path, name)
        epoch = own(run)
        assert open_signed(run, epoch).name == "empty"
        run.append(records(1, 2), epoch)
        run.close()
    forged = Space(path, "c")
    forged.append(records(1, 2), 0)
    with pytest.raises(Tampered, match="no longer signed"):
        vouch(forged)
    assert vouch(Space(path, "a")).name == "signed"
    connection = sqlite3.connect(path, isolation_level=None)
    for table in ("journal", "snapshots", "lease", "meta", "identity", "signatures", "notes"):
        connection.execute(f'ALTER TABLE "a/{table}" RENAME TO "z/{table}"')
        connection.execute(f'ALTER TABLE "b/{table}" RENAME TO "a/{table}"')
    connection.close()
    exchanged = Space(path, "a")
    vouch(exchanged)
    exchanged.load_snapshots()
    with pytest.raises(Tampered, match="journal rows 1 to 2"):
        list(exchanged.read())


def test_notes_of_a_signed_run_are_signed(tmp_path: Path) -> None:
    """An answer that a program without the key left in the file is none."""
    path = tmp_path / "run.db"
    run = Space(path, "a")
    epoch = own(run)
    run.leave_note(b"\x81plain")
    assert [data for _, data in run.notes()] == [b"\x81plain"]
    open_signed(run, epoch)
    assert [data for _, data in run.notes()] == [None]
    run.append(records(1, 1), epoch)
    run.leave_note(b"\x81signed")
    assert [data for _, data in run.notes()] == [None, b"\x81signed"]
    other = Space(path, "b")
    open_signed(other, own(other))
    for _, data in run._ask("SELECT number, data FROM notes"):
        other._run("INSERT INTO notes (data) VALUES (?)", (data,))
    assert [data for _, data in other.notes()] == [None, None]


def test_stores_in_memory_are_out_of_reach() -> None:
    assert standing_of(MemoryStore()).name == "out_of_reach"
    assert open_signed(MemoryStore(), 0).name == "out_of_reach"
    assert set(STANDINGS) >= {"signed", "empty", "unsigned", "other_key", "no_key", "stripped", "replaced"}


def test_known_stores_count_with_their_key(home: Path) -> None:
    remember("/a/run.db", "id-1", "key-1")
    assert read_store_ids("/a/run.db", "key-1") == {"id-1"}
    assert read_store_ids("/a/run.db", "key-2") == {None}
    assert read_store_ids("/b/run.db", "key-1") == {None}
    remember("/a/run.db", "id-2", "key-1")
    assert read_store_ids("/a/run.db", "key-1") == {"id-2"}
    assert is_known("id-2", "key-1")
    assert not is_known("id-2", "key-2")
    files = list((home / ".config" / "lyra" / "stores").iterdir())
    assert len(files) == 3  # of the place, and of each id
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        file.write_text("{")
    assert read_store_ids("/a/run.db", "key-1") == {None}
    assert not is_known("id-2", "key-1")


def test_records_of_files_that_are_gone_are_dropped_when_there_are_many(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only old ones, and never that of a file that is there."""
    monkeypatch.setattr("lyra.store.standing.KNOWN_STORES_MAX", 2)
    here = tmp_path / "here.db"
    here.write_text("")
    for place in (str(here), "/gone/1.db", "postgresql://host/db", "/gone/2.db", "/gone/3.db"):
        remember(place, "id", "key")
    folder = home / ".config" / "lyra" / "stores"
    assert len(list(folder.iterdir())) == 6  # five places, one id
    for number, file in enumerate(sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime_ns)):
        os.utime(file, (number, number))
    remember("/gone/4.db", "id", "key")
    assert read_store_ids(str(here), "key") == {"id"}
    assert read_store_ids("postgresql://host/db", "key") == {"id"}
    assert read_store_ids("/gone/1.db", "key") == {None}


def test_postgresql_is_signed_too(postgres_url: str) -> None:
    """Rows that another user of the database changed are refused."""
    store = PostgresStore(postgres_url)
    epoch = own(store)
    assert open_signed(store, epoch).name == "empty"
    store.append(records(1, 2), epoch)
    store.load_snapshots()
    list(store.read())
    store.append(records(3, 1), epoch)
    store.save_snapshots(2, {"p": b"x"}, epoch)
    assert store.check() == []
    store.close()
    again = PostgresStore(postgres_url)
    assert vouch(again).name == "signed"
    assert again.load_snapshots().states == {"p": b"x"}
    assert list(again.read(after=2)) == records(3, 1)
    ((_, _, data, crc, _),) = seal([(3, 1.0, "p1", "process.created", b"\x80")])
    again._run("UPDATE journal SET data = ?, crc = ?, signature = NULL WHERE seq = 3", (data, crc))
    again.load_snapshots()
    with pytest.raises(Tampered, match="journal row 3"):
        list(again.read(after=2))
    again._run("UPDATE signatures SET key_id = ''")
    with pytest.raises(Corrupt, match="record of signatures"):
        again.get_signing_key()
    again.close()


def test_postgresql_is_adopted_with_rows_that_revoke_something(postgres_url: str) -> None:
    """The rows that an adoption writes are in the same transaction as its signatures, as in SQLite."""
    store = PostgresStore(postgres_url)
    epoch = own(store)
    open_signed(store, epoch)
    store.append(records(1, 2), epoch)
    store.sign_all(epoch, store.contents().fingerprint, [(9.0, "p9", "process.exited", b"\x80")])
    assert [row[2:4] for row in store.read(after=2)] == [("p9", "process.exited")]
    assert store.check() == []
    store.close()
