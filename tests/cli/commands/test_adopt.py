"""`lyra store adopt`: the rights in a store, listed for a person and signed."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from lyra import Kernel
from lyra.cli.commands import adopt as module
from lyra.errors import ApprovalRefused
from lyra.kernel.stored_rights import grant_words
from lyra.kernel.supervision.child import Child
from lyra.store.rows import compute_unsigned_crc
from lyra.store.space import Space
from lyra.store.sqlite import SqliteStore
from tests.cli.conftest import Lyra

NARROW = {"allow": ["fs.read:/project/**"], "deny": ["fs.read:/project/secret/**"]}


async def rests(ctx: Any, *_: Any) -> None:
    await ctx.sleep(1e9)


async def asks(ctx: Any) -> None:
    await ctx.ask("May I?\n  p1 may do nothing", kind="confirmation")


def live(store: Any) -> None:
    async def main() -> None:
        async with Kernel(store, programs=[rests, asks]) as kernel:
            await kernel.spawn(rests, pid="narrow", name="reader", grant=NARROW)
            await kernel.spawn(rests, pid="wide")
            await kernel.spawn(asks, pid="asking")
            await kernel.supervise([Child("child", rests, grant=NARROW)], pid="tree")
            await kernel.send("narrow", "hello")
            kernel.taint.mark("wide", "a page")
            for _ in range(100):
                if kernel.interrupts.pending():
                    break
                await asyncio.sleep(0.005)

    asyncio.run(main())


@pytest.fixture
def path(lyra: Lyra, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store that a user without a key made, with a run in the same file."""
    monkeypatch.setenv("HOME", "")
    file = Path(lyra.folder, "run.db")
    live(str(file))
    run = Space(file, "r1")
    live(run)
    run.close()
    return file


def test_rights_are_listed_in_plain_words(lyra: Lyra, path: Path) -> None:
    """Each process and what it may do; nothing is signed without an answer."""
    done = lyra("store", "adopt", str(path))
    assert done.returncode == 3
    lines = done.stdout.splitlines()
    assert lines[0] == f"{path} is not signed: an earlier version wrote it, or a program without a key"
    program = f"{__name__}:rests"
    assert f"  narrow (reader) runs {program} and may do fs.read:/project/**; never fs.read:/project/secret/**" in lines
    assert f"  wide runs {program} and may do all that the kernel which opens the store may" in lines
    assert (
        f"    it starts child, {program}, which may do fs.read:/project/**; never fs.read:/project/secret/**" in lines
    )
    assert "    messages that wait for it: 1" in lines
    assert "    it has text from outside: a page" in lines
    assert "    it asks: May I?\\n  p1 may do nothing" in lines  # one line, whatever stands in it
    assert "run r1 is not signed: an earlier version wrote it, or a program without a key" in lines
    assert "nothing is signed" in done.stderr
    assert "error[approval_refused]" in done.stderr
    assert lyra.json("store", "info", str(path))["standing"] == "unsigned"
    assert "not signed: an earlier version wrote it" in lyra("store", "info", str(path)).stdout


def test_yes_signs_the_store_and_its_runs(lyra: Lyra, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = lyra("store", "adopt", str(path), "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == f"signed {path}"
    assert lyra.json("store", "info", str(path))["standing"] == "signed"
    assert lyra("store", "check", str(path)).returncode == 0
    monkeypatch.setenv("HOME", lyra.env["HOME"])
    live_again(str(path))
    run = Space(path, "r1")
    live_again(run)
    run.close()


def live_again(store: Any) -> None:
    """It opens, and its processes have the rights that were listed."""

    async def main() -> None:
        async with Kernel(store, programs=[rests, asks]) as kernel:
            assert kernel.process("narrow").grant.to_data() == NARROW

    asyncio.run(main())


def test_json_has_the_same(lyra: Lyra, path: Path) -> None:
    """One document on stdout; `--yes` decides whether it is signed."""
    done = lyra("store", "adopt", str(path), "--json")
    assert done.returncode == 3
    listed = json.loads(done.stdout)
    assert (listed["location"], listed["signed"]) == (str(path), False)
    store, run = listed["stores"]
    assert (store["run"], run["run"], store["standing"]) == (None, "r1", "unsigned")
    narrow = next(process for process in store["processes"] if process["pid"] == "narrow")
    assert (narrow["grant"], narrow["messages"]) == (NARROW, 1)
    assert lyra.json("store", "adopt", str(path), "--yes", "--json")["signed"] is True


def test_check_and_adopt_name_what_was_changed(lyra: Lyra, path: Path) -> None:
    """A signed store that another program changed: `check` fails, `adopt` shows the place."""
    lyra("store", "adopt", str(path), "--yes")
    connection = sqlite3.connect(path, isolation_level=None)
    seq, count, data = connection.execute("SELECT seq, rows, data FROM journal ORDER BY seq LIMIT 1").fetchone()
    crc = compute_unsigned_crc(seq, count, data)
    connection.execute("UPDATE journal SET signature = NULL, crc = ? WHERE seq = ?", (crc, seq))
    connection.execute("DELETE FROM journal WHERE seq = (SELECT max(seq) FROM journal)")
    connection.close()
    done = lyra("store", "check", str(path))
    assert done.returncode == 1
    assert "not what was signed" in done.stdout
    assert "not what was signed" in lyra("store", "adopt", str(path)).stdout
    assert lyra("store", "adopt", str(path), "--yes").returncode == 0
    assert lyra("store", "check", str(path)).returncode == 0


def test_a_run_of_a_changed_store_says_so(lyra: Lyra) -> None:
    """The code and the exit code are its own: what was changed is no accident."""
    Path(lyra.folder, "a.vega").write_text('print("one");')
    assert lyra("run", "a.vega", "--db", "run.db", "--run-id", "r").stdout == "one\n"
    connection = sqlite3.connect(lyra.folder / "run.db", isolation_level=None)
    connection.execute('DELETE FROM "r/journal" WHERE seq = (SELECT max(seq) FROM "r/journal")')
    seq, count, data = connection.execute('SELECT seq, rows, data FROM "r/journal" ORDER BY seq DESC').fetchone()
    crc = compute_unsigned_crc(seq, count, data)
    connection.execute('UPDATE "r/journal" SET signature = NULL, crc = ? WHERE seq = ?', (crc, seq))
    connection.close()
    done = lyra("vega", "resume", "r", "--db", "run.db")
    assert done.returncode == 3
    assert done.stderr.startswith("error[tampered]: ")


def test_a_file_that_holds_only_runs_is_sound(lyra: Lyra) -> None:
    """Its own store is empty, and was never signed: nothing is missing there."""
    Path(lyra.folder, "a.vega").write_text('print("one");')
    lyra("run", "a.vega", "--db", "run.db", "--run-id", "r")
    assert lyra.json("store", "info", "run.db")["standing"] == "empty"
    assert lyra("store", "check", "run.db").returncode == 0


def test_check_tells_of_a_store_in_the_place_of_another(lyra: Lyra, path: Path) -> None:
    lyra("store", "adopt", str(path), "--yes")
    before = path.read_bytes()
    path.unlink()
    other = SqliteStore(path)
    other.append([(1, 1.0, "p", "trace.event", b"\x80")], 0)
    other.close()
    done = lyra("store", "check", str(path))
    assert done.returncode == 1
    assert "it is not the store that was signed at this place before" in done.stdout
    path.write_bytes(before)
    assert lyra("store", "check", str(path)).returncode == 0


def test_a_person_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal; a no is a refusal, and so is no terminal."""
    answers = iter((True, False))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(click, "confirm", lambda *_, **__: next(answers))
    module.agree("run.db", yes=False, can_ask=True)
    for yes_or_no in (True, False):
        with pytest.raises(ApprovalRefused, match="was not signed"):
            module.agree("run.db", yes=False, can_ask=yes_or_no)
    module.agree("run.db", yes=True, can_ask=False)


def test_a_store_that_is_owned_is_not_signed(lyra: Lyra, path: Path) -> None:
    store = SqliteStore(path)
    store.acquire("somebody", now=0.0, ttl_s=1e12)
    done = lyra("store", "adopt", str(path), "--yes")
    assert done.returncode == 1
    assert "error[conflict]" in done.stderr


def test_without_a_place_for_the_key_nothing_is_signed(lyra: Lyra, path: Path) -> None:
    done = lyra("store", "adopt", str(path), "--yes", HOME="")
    assert done.returncode == 2
    assert "you have no key to sign with" in done.stderr


@pytest.mark.parametrize(
    ("grant", "parent", "words"),
    [
        (None, "", "all that the kernel which opens the store may"),
        (None, "p1", "what process p1 may"),
        ({"allow": ["*"]}, "", "*"),
        ({"allow": []}, "", "nothing"),
        ({"layers": [["fs.read", "db.read"], ["fs.read"]]}, "", "fs.read, db.read; of that only fs.read"),
        (7, "", "something that cannot be read: 7"),
    ],
)
def test_grants_in_words(grant: Any, parent: str, words: str) -> None:
    assert grant_words(grant, parent) == words


def test_a_command_does_not_open_a_store_that_no_one_signed(
    lyra: Lyra, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have come with the folder: its processes stand still until it is adopted. `check` says how it stands. One
    in the user's data folder opens with a warning, and so does one that a Python program names."""
    with closing(Space(path, "vesper")) as nodes:
        live(nodes)
    commands = (
        ("keys", "list", str(path)),
        ("agent", "-p", "hello", "--model", "sim", "--store", str(path)),
        ("serve", "--grpc", "none", "--http", "127.0.0.1:0", "--db", str(path)),
        ("vesper", "status", "--set", f"kernel.store={path}"),
    )
    for command in commands:
        done = lyra(*command)
        assert (done.returncode, done.stdout) == (3, ""), command
        assert "error[tampered]" in done.stderr
        assert f"lyra store adopt {path}" in done.stderr
    assert "not signed: an earlier version wrote it" in lyra("store", "check", str(path)).stdout
    monkeypatch.setenv("HOME", lyra.env["HOME"])
    live_again(str(path))
    own = Path(lyra.env["HOME"], ".local/share/lyra/own.db")
    own.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, own)
    assert lyra("keys", "list", str(own)).returncode == 0
    assert lyra("store", "adopt", str(path), "--yes").returncode == 0
    assert lyra(*commands[0]).returncode == 0


def test_a_store_of_another_user_names_its_signer_and_what_its_keys_let_in(
    lyra: Lyra, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`check` names the key that signed it; the list of `adopt` says what a key of the gateway in it means and that it
    is revoked, and what goes on with it is refused before."""
    from lyra.server.gateway.keys import KeyTable

    file = Path(lyra.folder, "theirs.db")

    async def make() -> str:
        async with Kernel(str(file)) as kernel:
            return (await KeyTable(kernel).create(name="mine"))[1]

    with monkeypatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path / "maker"))
        text = asyncio.run(make())
    store = SqliteStore(file)
    signer = store.get_signing_key()
    store.close()
    checked = lyra("store", "check", str(file))
    assert checked.returncode == 0
    assert signer in checked.stdout
    listed = lyra("store", "adopt", str(file))
    assert listed.returncode == 3
    assert "a key of the gateway: its holder can call models through it" in listed.stdout
    assert "it is revoked when you sign the store" in listed.stdout
    assert text not in listed.stdout
    served = lyra("keys", "list", str(file))
    assert "another user or machine" in served.stderr
    kept = Path(shutil.copy(file, lyra.folder / "kept.db"))
    adopted = lyra("store", "adopt", str(file), "--yes")
    assert adopted.returncode == 0
    assert "revoked key-.key-" in adopted.stdout
    assert lyra.json("keys", "list", str(file)) == []
    assert lyra("store", "check", str(file)).returncode == 0
    assert "revoked" not in lyra("store", "adopt", str(kept), "--yes", "--keep-keys").stdout
    assert [key["name"] for key in lyra.json("keys", "list", str(kept))] == ["mine"]
    assert lyra.json("store", "adopt", str(kept), "--yes")["stores"][0]["revoked"] == []  # it is signed, so it is yours
    assert [key["name"] for key in lyra.json("keys", "list", str(kept))] == ["mine"]
