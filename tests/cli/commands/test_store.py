"""`lyra store`: looks at a store that exists, and never makes one."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lyra.cli.commands import store as module
from lyra.cli.commands.store import jsonable
from lyra.core.codec import encode
from lyra.store.space import Space
from lyra.store.sqlite import SqliteStore

NOW = time.time()
DAY = 86_400.0


@pytest.fixture
def path(lyra) -> Path:
    """A store of four rows, the first two old and covered by a snapshot, in the default place."""
    file = Path(lyra.folder, ".lyra", "lyra.db")
    store = SqliteStore(file)
    lease = store.acquire("test", now=NOW, ttl_s=60)
    rows = [
        (1, NOW - 30 * DAY, "p-1", "process.created", encode({"name": "one"})),
        (2, NOW - 30 * DAY, "p-1", "process.terminated", encode({"reason": "normal"})),
        (3, NOW - 30 * DAY, "p-2", "process.created", encode({"blob": b"\x00\x01", "big": float("inf")})),
        (4, NOW, "p-2", "effect.started", encode(["é", None, 1.5])),
    ]
    store.append(rows, lease.epoch)
    store.save_snapshots(2, {"p-2": b"state"}, lease.epoch)
    store.release(lease)
    store.close()
    return file


@pytest.mark.parametrize("command", ["info", "check", "compact", "export", "adopt"])
@pytest.mark.parametrize("target", [None, "nowhere/x.db", "sqlite://nowhere/x.db"])
def test_a_missing_store_is_never_made(lyra, command, target):
    """A StoreError with a hint, exit 1, and nothing on the disk."""
    done = lyra("store", command, *([target] if target else []))
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error[store]: there is no store at ")
    assert "  hint: " in done.stderr
    assert list(lyra.folder.iterdir()) == []


def test_memory_has_nothing_to_show(lyra):
    """It ends with its kernel."""
    done = lyra("store", "info", "memory")
    assert done.returncode == 2
    assert "memory store" in done.stderr


@pytest.mark.parametrize("command", ["info", "check", "compact", "export", "adopt"])
def test_what_cannot_be_a_store(lyra, command):
    """A folder, a named pipe, a link to nowhere, an empty file, another scheme: told at once, with a hint."""
    Path(lyra.folder, "folder").mkdir()
    os.mkfifo(lyra.folder / "pipe")
    Path(lyra.folder, "link.db").symlink_to("nowhere.db")
    Path(lyra.folder, "empty.db").touch()
    for target, code, words in (
        ("folder", 1, "folder is not a file"),
        ("pipe", 1, "pipe is not a file"),
        ("link.db", 1, "there is no store at link.db"),
        ("empty.db", 1, "is empty, so it is no store"),
        ("", 1, "there is no store at ''"),
        ("http://h/x", 2, "no store speaks http://"),
        ("env:NOT_SET", 2, "NOT_SET is not set"),
    ):
        done = lyra("store", command, target)
        assert (done.returncode, words in done.stderr, "  hint: " in done.stderr) == (code, True, True), done
        assert done.stdout == ""
    assert not Path(lyra.folder, "nowhere.db").exists()


def test_another_file_is_left_alone(lyra):
    """Not a store: said, and not changed."""
    other = Path(lyra.folder, "notes.txt")
    other.write_text("not a store, but long enough to be read as one by mistake" * 100)
    before = other.read_bytes()
    for command in ("info", "check", "compact", "export"):
        done = lyra("store", command, "notes.txt")
        assert done.returncode == 1
        assert "error[corrupt]" in done.stderr
        assert "Traceback" not in done.stderr
    assert other.read_bytes() == before


def test_info(lyra, path):
    """Rows, processes, size and owner; of the configured store when none is named."""
    facts = lyra.json("store", "info")
    assert facts == lyra.json("store", "info", str(path)) == lyra.json("store", "info", f"sqlite://{path}")
    assert facts.pop("size_bytes") >= path.stat().st_size > 0
    assert facts == {
        "location": str(path),
        "rows": 4,
        "runs": {},
        "first_seq": 1,
        "last_seq": 4,
        "processes": {"created": 2, "terminated": 1},
        "programs_to_register": None,  # these rows are no kernel's
        "programs_unknown": None,
        "standing": "no_key",
        "lease": None,
    }
    assert ["rows", "4"] in [line.split() for line in lyra("store", "info").stdout.splitlines()]


def test_info_reads_a_reference(lyra, path):
    """`env:NAME` is a store too."""
    assert lyra.json("store", "info", "env:WHERE", WHERE=str(path))["rows"] == 4
    assert lyra("store", "info", "env:WHERE").returncode == 2


def test_info_does_not_count_a_huge_journal(lyra, path, monkeypatch):
    """Counting reads every row; beyond the bound it says nothing instead."""
    monkeypatch.setattr(module, "_COUNTED_ROWS_MAX", 3)
    store = SqliteStore(path)
    facts = module._facts(store)
    assert facts["processes"] is facts["programs_to_register"] is facts["programs_unknown"] is None
    store.close()


def test_info_beside_a_running_kernel(lyra, path):
    """Reading needs no lease; who holds it, and until when, is shown."""
    store = SqliteStore(path)
    lease = store.acquire("kernel on host", now=time.time(), ttl_s=60)
    shown = lyra.json("store", "info")["lease"]
    assert shown == {
        "owner": "kernel on host",
        "epoch": lease.epoch,
        "expires_at": lease.expires_at,
        "expired": False,
    }
    assert "kernel on host" in lyra("store", "info").stdout
    store.close()


def test_check_of_a_sound_store(lyra, path):
    """Exit 0 and a sentence."""
    assert lyra("store", "check").stdout == f"{path} is sound\n"
    assert lyra.json("store", "check") == {"location": str(path), "sound": True, "problems": []}


def test_check_names_what_is_wrong(lyra, path):
    """Exit 1 with a sentence for each fault, on stdout; JSON too."""
    connection = sqlite3.connect(path)
    connection.execute("UPDATE blobs SET data = x'00'")
    connection.execute("INSERT INTO blobs (digest, data) VALUES ('wrong', x'01')")
    connection.commit()
    connection.close()
    done = lyra("store", "check")
    assert done.returncode == 1
    assert "wrong" in done.stdout
    assert "error[corrupt]" in done.stderr
    done = lyra("store", "check", "--json")
    assert done.returncode == 1
    data = json.loads(done.stdout)
    assert data["sound"] is False
    assert len(data["problems"]) == 1


def test_compact_drops_what_the_retention_allows(lyra, path):
    """Covered and old enough: kernel.retention_s decides; the lease is given back."""
    assert lyra.json("store", "compact", "--set", f"kernel.retention_s={60 * DAY}")["dropped"] == 0
    assert lyra("store", "compact").stdout == f"dropped 2 rows older than 604800 s from {path}\n"
    facts = lyra.json("store", "info")
    assert (facts["first_seq"], facts["last_seq"], facts["lease"]) == (3, 4, None)


def test_compact_is_refused_while_a_kernel_owns_the_store(lyra, path):
    """Conflict, exit 1, nothing dropped, and the owner keeps its lease."""
    store = SqliteStore(path)
    lease = store.acquire("kernel on host", now=time.time(), ttl_s=60)
    done = lyra("store", "compact")
    assert done.returncode == 1
    assert "error[conflict]" in done.stderr
    assert "kernel on host" in done.stderr
    assert store.holder() == lease
    assert store.first_seq() == 1
    store.close()


OWNER = """
import os, signal, sys, time
from lyra.kernel.journal.lease import owner_name
from lyra.store.space import Space
from lyra.store.sqlite import SqliteStore

for store in (SqliteStore(sys.argv[1]), Space(sys.argv[1], "first", make=True)):
    store.acquire(owner_name("nonce", 600.0), now=time.time(), ttl_s=600.0)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("command", [("compact",), ("adopt", "--yes")])
def test_a_killed_owner_is_no_owner(lyra, command):
    """Right after kill -9 `info` says that the lease is over, and `compact` and `adopt` do not wait for it to end, for
    the store and for the durable runs in its file."""
    path = Path(lyra.folder, ".lyra", "lyra.db")
    killed = subprocess.run([sys.executable, "-c", OWNER, str(path)], check=False, timeout=30)
    assert killed.returncode == -signal.SIGKILL
    facts = lyra.json("store", "info")
    assert facts["lease"]["expires_at"] > time.time() + 500
    assert facts["lease"]["expired"]
    assert facts["runs"]["first"] == "0 rows"
    done = lyra("store", *command)
    assert done.returncode == 0, done.stderr
    assert lyra.json("store", "info")["lease"] is None


def _lines(done: Any) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_export_is_one_json_object_a_line(lyra, path):
    """Every row in order, its data decoded; what JSON has no word for is still there."""
    rows = _lines(lyra.real("store", "export"))
    assert [row["seq"] for row in rows] == [1, 2, 3, 4]
    assert rows[0] == {
        "seq": 1,
        "time": NOW - 30 * DAY,
        "pid": "p-1",
        "kind": "process.created",
        "data": {"name": "one"},
    }
    assert rows[2]["data"] == {"blob": {"base64": "AAE="}, "big": "inf"}
    assert rows[3]["data"] == ["é", None, 1.5]


def test_export_filters(lyra, path):
    """--after, --pid and --kind each leave rows out."""
    assert [row["seq"] for row in _lines(lyra("store", "export", "--after", "2"))] == [3, 4]
    assert [row["seq"] for row in _lines(lyra("store", "export", "--pid", "p-1"))] == [1, 2]
    assert [row["seq"] for row in _lines(lyra("store", "export", "--kind", "process.created"))] == [1, 3]


def test_export_of_a_kind_that_there_is_not(lyra, path):
    """A misspelt kind is a mistake, not an empty journal; a kind without rows is an empty one."""
    done = lyra("store", "export", "--kind", "process.craeted")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no kind of row 'process.craeted'\n  hint: did you mean 'process.created'?" in done.stderr
    done = lyra("store", "export", "--kind", "timer.set")
    assert (done.returncode, done.stdout) == (0, "")


def test_values_that_json_has_no_word_for():
    """Bytes, infinities, odd keys, sets and unknown objects all have a form."""
    value = {1: b"a", "nan": float("nan"), "set": {1}, "deep": [(True, None)], "other": Path("/x")}
    assert jsonable(value) == {
        "1": {"base64": "YQ=="},
        "nan": "nan",
        "set": [1],
        "deep": [[True, None]],
        "other": "/x",
    }


def test_info_names_the_programs_of_live_processes(lyra):
    """Those that a kernel has to be given, and names of Lyra's own that this version does not know."""
    file = Path(lyra.folder, ".lyra", "lyra.db")
    store = SqliteStore(file)
    lease = store.acquire("test", now=NOW, ttl_s=60)
    programs = {
        "p-1": "shop:main",
        "p-2": "agent:Critic",
        "p-3": "lyra.kernel.supervisor:supervise",
        "p-4": "lyra:of_a_later_version",
        "p-5": "shop:main",
        "p-6": "shop:ended",
        "p-7": "demo:session",  # a module of a user may be called as a part of Lyra is
    }
    rows = [
        (seq, NOW, pid, "process.created", encode({"program": program}))
        for seq, (pid, program) in enumerate(programs.items(), 1)
    ]
    rows.append((8, NOW, "p-6", "process.terminated", encode({"reason": "normal"})))
    store.append(rows, lease.epoch)
    store.release(lease)
    store.close()
    info = json.loads(lyra("store", "info", "--json").stdout)
    assert info["programs_to_register"] == {"agent:Critic": 1, "demo:session": 1, "shop:main": 2}
    assert info["programs_unknown"] == {"lyra:of_a_later_version": 1}
    lines = [line.split(maxsplit=1) for line in lyra("store", "info").stdout.splitlines()]
    assert ["programs_to_register", "agent:Critic 1, demo:session 1, shop:main 2"] in lines
    assert ["programs_unknown", "lyra:of_a_later_version 1"] in lines


def test_info_reads_programs_from_snapshots_too(lyra):
    """A process whose first rows were dropped is in the snapshot."""
    from lyra.kernel.journal.history import Fold
    from lyra.store.protocol import Record

    file = Path(lyra.folder, ".lyra", "lyra.db")
    store = SqliteStore(file)
    lease = store.acquire("test", now=NOW, ttl_s=60)
    row = (1, NOW - 30 * DAY, "p-1", "process.created", encode({"program": "shop:main"}))
    store.append([row], lease.epoch)
    fold = Fold()
    fold.add(Record(*row))
    store.save_snapshots(1, {**fold.dump(), "~gates": b"other"}, lease.epoch)
    store.compact(before=NOW, epoch=lease.epoch)
    store.release(lease)
    store.close()
    info = json.loads(lyra("store", "info", "--json").stdout)
    assert (info["rows"], info["programs_to_register"], info["programs_unknown"]) == (0, {"shop:main": 1}, {})


# ---------------------------------------------------------------- durable Vega runs in the same file
@pytest.fixture
def with_runs(lyra, path: Path) -> Path:
    """The same store with two durable runs in it."""
    for name in ("first", "second"):
        Path(lyra.folder, "hello.vega").write_text(f'print("{name}");')
        done = lyra("run", "hello.vega", "--db", str(path), "--run-id", name)
        assert done.returncode == 0, done.stderr
    return path


def _damage(path: Path, run: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"UPDATE \"{run}/journal\" SET data = x'00'")
    connection.close()


def test_info_and_export_see_the_runs(lyra, with_runs):
    """`info` has a line for each run; `export` writes the rows of all journals, those of a run with its name."""
    facts = lyra.json("store", "info", str(with_runs))
    assert set(facts["runs"]) == {"first", "second"}
    assert all(words.endswith(" rows") for words in facts["runs"].values())
    rows = [json.loads(line) for line in lyra("store", "export", str(with_runs)).stdout.splitlines()]
    assert [row["seq"] for row in rows if "run" not in row] == [1, 2, 3, 4]
    counts = {name: sum(row.get("run") == name for row in rows) for name in facts["runs"]}
    assert {name: f"{count} rows" for name, count in counts.items()} == facts["runs"]
    assert next(row for row in rows if row.get("run") == "first")["kind"] == "run.began"
    one = lyra("store", "export", str(with_runs), "--run", "second").stdout.splitlines()
    assert {json.loads(line)["run"] for line in one} == {"second"}
    unknown = lyra("store", "export", str(with_runs), "--run", "third")
    assert (unknown.returncode, "there is no run 'third'" in unknown.stderr) == (2, True)


def test_compact_takes_the_runs_along(lyra, with_runs):
    """Rows of runs go by the same rule; a run that is at work is named, and the others are done all the same."""
    assert set(lyra.json("store", "compact", str(with_runs))["runs"]) == {"first", "second"}
    busy = Space(with_runs, "first")
    lease = busy.acquire("kernel on host", now=time.time(), ttl_s=60)
    done = lyra("store", "compact", str(with_runs))
    assert done.returncode == 1
    assert "dropped 0 rows from run second" in done.stdout
    assert done.stderr.startswith("error[conflict]: run first: the store is owned by kernel on host")
    busy.release(lease)
    busy.close()


def test_one_damaged_run_hides_no_other(lyra, with_runs):
    """`vega runs`, `check`, `info` and `export` name the damaged run, show the others, and exit with 1 where they were
    asked for all of them."""
    _damage(with_runs, "first")
    listed = lyra("vega", "runs", "--db", str(with_runs), "--json")
    states = {facts["run"]: facts["state"] for facts in json.loads(listed.stdout)}
    assert states == {"first": "damaged", "second": "finished"}
    assert (listed.returncode, "error[corrupt]: 1 of 2 runs cannot be read: first" in listed.stderr) == (1, True)
    shown = lyra("vega", "runs", "--db", str(with_runs))
    assert "second" in shown.stdout
    assert "damaged" in shown.stdout
    assert lyra.json("store", "info", str(with_runs))["runs"]["first"] == "damaged"
    checked = lyra("store", "check", str(with_runs))
    assert (checked.returncode, "run first: " in checked.stdout) == (1, True)
    exported = lyra("store", "export", str(with_runs))
    assert exported.returncode == 1
    assert {json.loads(line).get("run") for line in exported.stdout.splitlines()} == {None, "second"}
    assert lyra("vega", "resume", "second", "--db", str(with_runs)).returncode == 0
