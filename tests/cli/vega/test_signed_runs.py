"""Durable runs are signed with the user's key: a run that another program changed is not resumed."""

from __future__ import annotations

import json
import sqlite3

from lyra.core import codec
from lyra.store.rows import seal, unseal
from lyra.vega.durable.durable_run import answer_note
from tests.cli.conftest import COMMAND as LYRA
from tests.cli.vega.test_durable import ASKS, SCRIPT, TWO, begin, kill, waiting
from tests.cli.vega_runner import Vega, vega

__all__ = ["vega"]


def widen(vega: Vega) -> None:
    """Let the run work in another folder: files there could be read and written."""
    connection = sqlite3.connect(vega.folder / "run.db", isolation_level=None)
    first = 'SELECT seq, rows, data, crc, signature FROM "r/journal" ORDER BY seq LIMIT 1'
    batch = connection.execute(first).fetchone()
    (began, *others) = unseal(batch) or ()  # type: ignore[misc]
    facts = codec.decode(began.data)
    changed = began._replace(data=codec.encode({**facts, "folder": "/"}))
    ((seq, _, data, crc, _),) = seal([changed, *others])
    change = 'UPDATE "r/journal" SET data = ?, crc = ?, signature = NULL WHERE seq = ?'
    connection.execute(change, (data, crc, seq))
    connection.close()


def test_a_run_that_was_changed_is_not_resumed(vega: Vega) -> None:
    """Not looked at either: what it would show is not what was written."""
    vega.write("two.vega", TWO)
    kill(begin(vega, "run", "two.vega", "--db", "run.db", "--run-id", "r"))
    widen(vega)
    for command in ("resume", "replay"):
        done = vega(command, "r", "--db", "run.db")
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.startswith("error[tampered]: ")
        assert "not what was signed" in done.stderr
    assert "error[corrupt]: 1 of 1 runs cannot be read: r" in vega("runs", "--db", "run.db").stderr


def test_a_changed_run_can_be_adopted(vega: Vega) -> None:
    """The person has seen what is in it, the other folder too."""
    vega.write("two.vega", TWO)
    kill(begin(vega, "run", "two.vega", "--db", "run.db", "--run-id", "r"))
    widen(vega)
    done = vega("store", "adopt", "run.db", "--yes", command=LYRA)
    assert (done.returncode, "  folder: /" in done.stdout.splitlines()) == (0, True)
    assert vega("resume", "r", "--db", "run.db").stdout == "one\ntwo\n"


def test_a_run_that_no_one_signed_is_not_resumed(vega: Vega) -> None:
    """It may have come with the folder: its program runs for this user after the user has adopted it."""
    vega.write("two.vega", TWO)
    home = vega.env.pop("HOME")
    kill(begin(vega, "run", "two.vega", "--db", "run.db", "--run-id", "r"))
    vega.env["HOME"] = home
    done = vega("resume", "r", "--db", "run.db")
    assert (done.returncode, done.stdout) == (3, "")
    assert "error[tampered]: " in done.stderr
    assert "lyra store adopt" in done.stderr
    assert vega("store", "adopt", "run.db", "--yes", command=LYRA).returncode == 0
    assert vega("resume", "r", "--db", "run.db").stdout == "one\ntwo\n"


def test_an_answer_without_a_signature_is_not_used(vega: Vega) -> None:
    """A program that can write the file cannot answer for the person."""
    vega.write("says.json", json.dumps(SCRIPT))
    vega.write("asks.vega", ASKS)
    child = begin(vega, "run", "asks.vega", "--db", "run.db", "--run-id", "r")
    (question,) = waiting(vega)
    connection = sqlite3.connect(vega.folder / "run.db", isolation_level=None)
    note = answer_note(question["id"], {"text": "poison"})
    connection.execute('INSERT INTO "r/notes" (data) VALUES (?)', (note,))
    while connection.execute('SELECT count(*) FROM "r/notes"').fetchone() != (0,):
        pass  # until the run has looked at it
    connection.close()
    assert vega("answer", "r", "green", "--db", "run.db") == (0, "", "")
    out, told = child.communicate(timeout=30)
    assert (child.returncode, out) == (0, "You said green.\n")
    assert "a note that is not signed with your key was not used" in told
