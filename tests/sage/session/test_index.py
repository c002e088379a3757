"""The index of sessions: found by folder, by words and by the start of an id; made anew when it is damaged."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from lyra.core.own_files import is_opened
from lyra.errors import Conflict, NoSuchSession, StoreError
from lyra.sage.session.index import SessionIndex
from lyra.sage.session.record import SessionRecord, read_record


def record(number: int, **fields) -> SessionRecord:
    defaults = {"folder": "/project", "updated_at": float(number), "created_at": float(number)}
    return SessionRecord(id=f"20261117-{number:06d}", **{**defaults, **fields})


@pytest.fixture
def index(tmp_path):
    with SessionIndex(tmp_path / "sessions") as opened:
        yield opened


def ids(records) -> list[int]:
    return [int(entry.id[-6:]) for entry in records]


def test_the_newest_come_first(index):
    """All of them, of one folder, or a number of them."""
    for number in (2, 3, 1):
        index.upsert(record(number, folder="/a" if number == 1 else "/b"))
    assert ids(index.list()) == [3, 2, 1]
    assert ids(index.list("/b")) == [3, 2]
    assert ids(index.list(limit=2)) == [3, 2]
    assert index.list("/none") == []
    assert index.list(limit=-5) == []
    assert index.latest("/a") == record(1, folder="/a")
    assert index.latest("/none") is None
    index.upsert(record(1, folder="/b", updated_at=9.0, title="moved"))
    assert ids(index.list("/b")) == [1, 3, 2]
    assert index.latest("/b").title == "moved"


def test_words_are_searched(index):
    """In titles, previews, prompts and answers; every word has to be there, or begin a longer one."""
    for number in (1, 2, 3):
        index.upsert(record(number, title=f"session {number}"))
    index.add_text(record(1).id, 1, "Refactor the parser of dates")
    index.add_text(record(1).id, 1, "The café is closed, so I renamed it.")
    index.add_text(record(2).id, 4, "parser errors")
    assert ids(index.list(search="parser")) == [2, 1]
    assert ids(index.list(search="PARS dates")) == [1]
    assert ids(index.list(search="cafe refactor")) == [1]  # in different texts of the same session
    assert ids(index.list(search="session")) == [3, 2, 1]
    assert ids(index.list("/other", search="session")) == []
    assert index.list(search="nothing") == []
    index.upsert(record(1, title="renamed"))
    assert ids(index.list(search="session")) == [3, 2]


def test_scripts_without_spaces_are_searched(index):
    """Any part of a text; signs that mean something in a pattern mean themselves."""
    index.upsert(record(1, first_prompt="修复购物车的测试"))
    index.upsert(record(2))
    index.add_text(record(2).id, 1, "テストを直す 100%_済み")
    assert ids(index.list(search="购物车")) == [1]
    assert ids(index.list(search="テスト 直す")) == [2]
    assert ids(index.list(search="%_済")) == [2]
    assert ids(index.list(search="_%済")) == []


def test_a_folder_whose_name_is_no_text(index):
    """Its sessions are found by it all the same."""
    folder = "/work/\udcff"
    index.upsert(record(1, folder=folder, title="\ud800"))
    assert ids(index.list(folder)) == [1]
    assert index.latest(folder).title == "?"


@pytest.mark.parametrize(
    "search", ['"', "'", '" OR "', "*", "a*b", "NEAR(", "text:x", "-", "^", "(", "\0", "\udc80", "%", "", " "]
)
def test_a_search_is_words_and_no_query(index, search):
    """Signs of the query language and characters that are no text neither fail nor damage the index."""
    index.upsert(record(1, title="plain"))
    index.list(search=search)
    index.list(search=f"{search} plain")
    assert not index.rebuilt
    assert index.list() == [record(1, title="plain")]


def test_keys_are_not_kept(index):
    """What looks like a key is redacted before it is written."""
    index.upsert(record(1))
    key = "sk-" + "a1b2c3d4" * 4
    index.add_text(record(1).id, 1, f"the key is {key} ok")
    assert index.list(search=key) == []
    index.close()
    for path in [*index.root.glob("index.db*"), *(index.root / record(1).id).iterdir()]:
        assert b"a1b2c3d4" not in path.read_bytes()


def test_the_same_text_is_kept_once(index):
    """A turn that is told again after a crash does not fill the file; a session that is no id is refused."""
    index.upsert(record(1))
    for _ in range(3):
        index.add_text(record(1).id, 1, "hello")
        index.add_text(record(1).id, 2, "  ")
    assert (index.root / record(1).id / "search.jsonl").read_bytes().count(b"\n") == 1
    with pytest.raises(NoSuchSession):
        index.add_text("../../x", 1, "hello")


def test_the_start_of_an_id_is_enough(index):
    """Where it is unique; else the error names the sessions, or the nearest id."""
    for number in (1, 2, 11, 12):
        index.upsert(record(number))
    assert index.get("20261117-000002") == record(2)
    index.upsert(msgspec.structs.replace(record(5), id="20261118-000005"))
    assert index.get("20261118").id == "20261118-000005"
    with pytest.raises(Conflict) as ambiguous:
        index.get("20261117-00001")
    assert ambiguous.value.ids == ["20261117-000011", "20261117-000012"]
    assert "20261117-000011, 20261117-000012" in str(ambiguous.value)
    with pytest.raises(NoSuchSession) as unknown:
        index.get("20261118-00005")
    assert unknown.value.hint == "did you mean 20261118-000005?"
    for text in ("", "x", "é", "\udc80", "20261117-000001x", "%", "2026111_"):
        with pytest.raises(NoSuchSession):
            index.get(text)


def test_an_ambiguous_start_names_a_few(index):
    for number in range(20):
        index.upsert(record(number))
    with pytest.raises(Conflict, match="and more"):
        index.get("2026")


def test_a_removed_session_is_gone(index, tmp_path):
    """Its folder, its rows and its words; what a link in it leads to stays."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("kept")
    index.upsert(record(1, title="words"))
    index.upsert(record(2))
    index.add_text(record(1).id, 1, "text")
    (index.root / record(1).id / "link").symlink_to(outside)
    index.remove(record(1).id)
    assert index.list(search="text") == index.list(search="words") == []
    assert ids(index.list()) == [2]
    assert not (index.root / record(1).id).exists()
    assert (outside / "file").read_text() == "kept"
    index.remove(record(1).id)
    for name in ("..", "", "20261117-000002/../x"):
        with pytest.raises(NoSuchSession):
            index.remove(name)
    assert ids(index.list()) == [2]


def test_files_are_private(index):
    """Transcripts are for their owner: files 0600, folders 0700; and no command of an agent writes the index."""
    index.upsert(record(1))
    index.add_text(record(1).id, 1, "hello")
    for path in [index.root, *index.root.rglob("*")]:
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path
    assert is_opened(str(index.path))


def damage_header(path: Path) -> None:
    path.write_bytes(b"no database at all" * 1_000)


def damage_pages(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4_096:] = b"\x55" * (len(data) - 4_096)
    path.write_bytes(data)


def damage_schema(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE passages")
    connection.close()


def damage_record(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE sessions SET record = 'x'")
    connection.close()


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [damage_header, damage_pages, damage_schema, damage_record, empty])
@pytest.mark.parametrize("is_open", [False, True])
def test_a_damaged_index_is_rebuilt(tmp_path, damage, is_open):
    """From the folders of the sessions, with their texts; the damaged file is kept under another name."""
    with SessionIndex(tmp_path) as index:
        for number in range(50):
            index.upsert(record(number, title=f"title {number}"))
        index.add_text(record(7).id, 1, "the needle")
        if not is_open:
            index.close()
        else:
            index._perform(lambda connection: connection.execute("PRAGMA wal_checkpoint(TRUNCATE)"))
        damage(index.path)
        index.list()
        index.close()  # an open index may still answer from its memory
        assert len(index.list()) == 50
        assert ids(index.list(search="needle")) == [7]
        assert index.rebuilt
        assert len(list(tmp_path.glob("index.db.damaged-*"))) >= 1
        index.upsert(record(99))
        assert ids(index.list(limit=1)) == [99]


def test_a_missing_index_is_rebuilt_without_what_is_no_session(tmp_path):
    """Links, files, damaged records and torn lines are left out."""
    with SessionIndex(tmp_path / "sessions") as index:
        index.upsert(record(1))
        index.upsert(record(2))
        index.add_text(record(1).id, 1, "first")
    root = index.root
    with open(root / record(1).id / "search.jsonl", "ab") as file:
        file.write(b'{"turn": 2, "text": "tor')
    (root / record(2).id / "record.json").write_text("{")
    (root / "20261117-000003").symlink_to(root / record(1).id)
    (root / "20261117-000004").write_text("")
    (root / "notes").mkdir()
    for path in root.glob("index.db"):
        path.unlink()
    (root / "index.db-wal").write_bytes(b"stale")
    with SessionIndex(root) as index:
        assert ids(index.list()) == [1]
        assert ids(index.list(search="first")) == [1]


def test_another_process_that_rebuilt_is_noticed(tmp_path):
    """Two indexes of one file: when one is made anew, the other goes on with the new file."""
    with SessionIndex(tmp_path) as first, SessionIndex(tmp_path) as second:
        first.upsert(record(1))
        assert ids(second.list()) == [1]
        os.unlink(first.path)
        second.upsert(record(2))
        assert ids(first.list()) == [2, 1]
        first.upsert(record(3))
        assert ids(second.list()) == [3, 2, 1]


def test_an_index_of_a_newer_version_is_left_alone(tmp_path):
    with SessionIndex(tmp_path) as index:
        index._perform(lambda connection: connection.execute("PRAGMA user_version=99"))
    with pytest.raises(StoreError, match="newer"):
        SessionIndex(tmp_path)
    assert not list(tmp_path.glob("*.damaged*"))


def test_threads_share_an_index(index):
    def write(start: int) -> None:
        for number in range(start, start + 20):
            index.upsert(record(number))
            index.add_text(record(number).id, 1, f"word{number}")

    threads = [threading.Thread(target=write, args=(start,)) for start in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(index.list(limit=100)) == 60
    assert ids(index.list(search="word215")) == [215]


WRITER = """
import sys
from pathlib import Path
from lyra.sage.session.index import SessionIndex
from lyra.sage.session.record import SessionRecord
root, start = Path(sys.argv[1]), int(sys.argv[2])
with SessionIndex(root) as index:
    for number in range(start, start + 25):
        index.upsert(SessionRecord(id=f"20261117-{number:06d}", folder="/p", updated_at=float(number)))
        index.add_text(f"20261117-{number:06d}", 1, f"word{number}")
"""


@pytest.mark.slow
def test_several_processes_write_at_once(tmp_path):
    """None fails, and nothing is lost, also where they all begin by making the index."""
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), str(100 * number)]) for number in range(4)
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0, 0]
    with SessionIndex(tmp_path) as index:
        assert len(index.list(limit=1_000)) == 100
        assert ids(index.list(search="word317")) == [317]
    assert not list(tmp_path.glob("*.damaged*"))


@pytest.mark.timed
def test_a_thousand_sessions_are_opened_and_listed_in_100_ms(tmp_path):
    """Of one folder among several, and searched; the best of five tries, since other programs run, too."""
    with SessionIndex(tmp_path) as index:
        for number in range(1_000):
            fields = {
                "folder": f"/project-{number % 4}",
                "first_prompt": "fix the tests " * 7,
                "title": f"title {number}",
            }
            index.upsert(record(number, **fields))
    taken_s = []
    for _ in range(5):
        began = time.perf_counter()
        with SessionIndex(tmp_path) as index:
            assert len(index.list(limit=1_000)) == 1_000
            assert len(index.list("/project-1")) == 50
            assert ids(index.list(search="title 517")) == [517]
        taken_s.append(time.perf_counter() - began)
    assert min(taken_s) <= 0.1, taken_s


def test_the_record_lies_beside_the_session(index):
    index.upsert(record(1, title="kept"))
    assert read_record(index.root / record(1).id) == record(1, title="kept")
