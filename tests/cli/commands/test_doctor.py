"""`lyra doctor`: tries things, says how to get the rest, changes nothing."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lyra.cli.app import Invocation
from lyra.cli.commands import doctor
from lyra.config import Config
from lyra.server import machine_checks
from lyra.store.sqlite import SqliteStore

CHECKS = [
    "lyra",
    "python",
    "postgres",
    "uvloop",
    "vertex",
    "bedrock",
    "mcp",
    "lsp",
    "native",
    "otel",
    "sqlite",
    "config",
    "store",
    "colours",
    "clock",
]
CHECKS += ["sandbox", "postgres server"]


def _rows(done: Any) -> dict[str, dict[str, str]]:
    return {row["name"]: row for row in json.loads(done.stdout)["checks"]}


def test_a_healthy_machine(lyra):
    """Exit 0; every row has a state; the store is not created."""
    done = lyra("doctor", "--json")
    assert done.returncode == 0, done.stdout
    data = json.loads(done.stdout)
    assert data["ok"] is True
    rows = _rows(done)
    assert list(rows) == CHECKS
    assert {row["state"] for row in rows.values()} <= {"ok", "missing"}
    assert all(row["how"] for row in rows.values() if row["state"] == "missing")
    assert rows["store"]["detail"] == ".lyra/lyra.db: not created yet"
    assert "write-ahead log works" in rows["sqlite"]["detail"]
    assert list(lyra.folder.iterdir()) == []


def test_the_table_for_a_person(lyra):
    """The same rows, one a line."""
    lines = lyra.real("doctor").stdout.splitlines()
    assert lines[0].split()[:3] == ["check", "state", "detail"]
    assert lines[1].split()[:2] == ["lyra", "ok"]


def test_a_wrong_config_is_a_problem_and_the_rest_is_still_told(lyra):
    """Exit 1, the place of the mistake, and every check that needs no settings."""
    Path(lyra.folder, "lyra.toml").write_text("[kernel]\nstroe = 1")
    done = lyra("doctor", "--json")
    assert done.returncode == 1
    rows = _rows(done)
    assert rows["config"]["state"] == "problem"
    assert "lyra.toml:2" in rows["config"]["detail"]
    assert rows["sqlite"]["state"] == "ok"


def test_the_files_in_force_are_named(lyra):
    """With what a project could not do beside them."""
    Path(lyra.folder, "lyra.toml").write_text("budget.on_exceed = 'allow'")
    detail = _rows(lyra("doctor", "--json"))["config"]["detail"]
    assert f"{lyra.folder}/lyra.toml" in detail
    assert "only tighten" in detail


def test_a_store_that_exists_is_looked_at(lyra):
    """A real one is ok and keeps its bytes; another file is a problem."""
    path = Path(lyra.folder, "x.db")
    SqliteStore(path).close()
    before = path.read_bytes()
    row = _rows(lyra("doctor", "--json", "--set", "kernel.store=x.db"))["store"]
    assert row["state"] == "ok"
    assert path.read_bytes() == before
    Path(lyra.folder, "y.db").write_text("hello")
    done = lyra("doctor", "--json", "--set", "kernel.store=y.db")
    assert done.returncode == 1
    assert "not a SQLite file" in _rows(done)["store"]["detail"]


@pytest.mark.parametrize(
    ("store", "state", "detail"),
    [
        ("memory", "ok", "nothing outlives"),
        ("redis://h", "problem", "no store speaks this"),
        ("env:NOT_SET_HERE", "problem", "NOT_SET_HERE is not set"),
        ("postgresql://u:hunter2@127.0.0.1:1/db", "problem", "postgresql://u:***@127.0.0.1:1/db"),
        (".", "problem", "Is a directory"),
        ("/dev/null/x.db", "problem", ""),
    ],
)
def test_other_stores(lyra, store, state, detail):
    """Each kind is tried as far as it can be without making anything; a password is never shown."""
    done = lyra("doctor", "--json", "--set", f"kernel.store={store}")
    row = _rows(done)["store"]
    assert (row["state"], done.returncode) == (state, 0 if state == "ok" else 1)
    assert detail in row["detail"]
    assert "hunter2" not in done.stdout + done.stderr


def _find_store(target: object) -> machine_checks.Finding:
    return machine_checks._store(Config.load(flags=(f"kernel.store={target}",)))


def test_a_postgres_url_is_tried_as_the_driver_takes_it(monkeypatch):
    """The schema is for our store; everything else reaches the server."""
    tried = []

    def connect(url: str, **_: Any) -> io.StringIO:
        tried.append(url)
        return io.StringIO()

    monkeypatch.setattr(psycopg, "connect", connect)
    assert _find_store("postgresql://h/d?schema=a&sslmode=require").state == "ok"
    assert _find_store("postgresql://h/d").state == "ok"
    assert tried == ["postgresql://h/d?sslmode=require", "postgresql://h/d"]


def test_a_store_that_cannot_be_written(tmp_path, monkeypatch):
    """Said before a kernel finds out."""
    path = tmp_path / "x.db"
    assert _find_store(path).detail.endswith("not created yet")
    monkeypatch.setattr(os, "access", lambda *_args: False)
    assert _find_store(path).state == "problem"
    SqliteStore(path).close()
    assert _find_store(path) == machine_checks.Finding(
        "store", "problem", f"{path} cannot be written", "change its owner or its mode"
    )


def test_a_missing_extra_is_one_sentence_with_the_command(monkeypatch):
    """missing, not a problem: nothing needed is broken."""
    row = machine_checks._extra("postgres", "no_such_module_here", "PostgreSQL stores")
    assert row.state == "missing"
    assert row.how == "pip install 'lyra-agents[postgres]'"
    for module, extra in (("google.auth", "vertex"), ("botocore", "bedrock")):
        monkeypatch.setitem(sys.modules, module, None)
        missing = {row.name: row.how for row in doctor.examine(Invocation()) if row.state == "missing"}
        assert missing[extra] == f"pip install 'lyra-agents[{extra}]'"
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert _find_store("postgresql://h").how == "pip install 'lyra-agents[postgres]'"


def test_sqlite_is_tried(monkeypatch, tmp_path):
    """Too old, not built in, no place to write: a problem each."""
    import sqlite3

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "sqlite_version_info", (3, 34, 0))
        assert machine_checks._sqlite().how == "install SQLite 3.35 or newer"
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "sqlite3", None)
        assert machine_checks._sqlite().state == "problem"
    with monkeypatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
        assert "TMPDIR" in machine_checks._sqlite().how


def test_a_clock_that_was_never_set(monkeypatch):
    """Leases and journals depend on it."""
    from lyra.core import clock

    with monkeypatch.context() as patch:
        patch.setattr(clock.SystemClock, "now", lambda _self: 1000.0)
        assert machine_checks._clock().state == "problem"
    times = iter([2.0, 1.0])
    monkeypatch.setattr(clock.SystemClock, "monotonic", lambda _self: next(times))
    assert "backwards" in machine_checks._clock().detail


def test_no_postgres_server_is_no_problem(monkeypatch):
    """It is only for Lyra's own tests."""
    monkeypatch.setattr("shutil.which", lambda _name: None)
    monkeypatch.setattr("glob.glob", lambda _pattern: [])
    assert machine_checks._postgres_server().state == "missing"


def test_an_old_python(monkeypatch):
    """Said in a sentence."""
    monkeypatch.setattr(sys, "version_info", (3, 10, 0, "final", 0))
    assert machine_checks._python().state == "problem"


@pytest.mark.parametrize(
    ("states", "state", "detail", "how"),
    [
        ([("bubblewrap", None), ("landlock", None)], "ok", "bubblewrap holds", ""),
        (
            [("bubblewrap", "bubblewrap is not installed: apt-get …"), ("landlock", None)],
            "missing",
            "landlock is used instead; a hole",
            "install the package bubblewrap",
        ),
        (
            [("bubblewrap", "bubblewrap does not work here: no permission"), ("landlock", "version 0")],
            "missing",
            "refuse to run: bubblewrap does not work here: no permission; version 0",
            "let bubblewrap make user namespaces (container settings, AppArmor, sysctl)",
        ),
        (
            [("bubblewrap", "bubblewrap is for Linux, and this is darwin"), ("landlock", "landlock is for Linux")],
            "missing",
            "refuse to run",
            "run Lyra in a Linux container or machine",
        ),
    ],
)
def test_the_sandbox_and_what_would_give_a_better_one(monkeypatch, states, state, detail, how):
    """The tier that is used, its holes, and what to do for a better one."""
    from lyra.sandbox import TierState

    async def examine():
        return [TierState(name, problem, (f"{name}: a hole",)) for name, problem in states]

    monkeypatch.setattr("lyra.sandbox.examine", examine)
    row = machine_checks._sandbox()
    assert (row.name, row.state, row.how) == ("sandbox", state, how)
    assert detail in row.detail
