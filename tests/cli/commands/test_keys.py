"""`lyra keys`: on a store, and on the server that owns it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests import warm
from tests.cli.conftest import TARGET, Lyra


def test_a_key_is_made_shown_and_revoked_in_a_store(lyra: Lyra) -> None:
    """Without a server the command opens the store itself; the key's text is shown once and never again."""
    options = ("--budget", "$5", "--models", "openai/*", "--models", "anthropic/claude-*", "--team", "red")
    created = lyra.json(
        "keys", "create", "keys.db", "--name", "ci", *options, "--requests-per-minute", "60", "--fallback", "openai/x"
    )
    assert set(created) == {"id", "key"}
    assert created["key"].startswith("sk-lyra-")
    listed = lyra("keys", "list", "keys.db", "--json")
    assert created["key"] not in listed.stdout
    (row,) = json.loads(listed.stdout)
    assert (row["id"], row["name"], row["team"], row["budget_micro_usd"]) == (created["id"], "ci", "red", 5_000_000)
    assert (row["models"], row["fallbacks"]) == (["openai/*", "anthropic/claude-*"], ["openai/x"])
    assert lyra.json("keys", "show", "ci", "keys.db") == row
    assert "$5.00" in lyra("keys", "show", created["id"], "keys.db").stdout
    assert "ci" in lyra("keys", "list", "keys.db").stdout
    assert lyra("keys", "revoke", "ci", "keys.db").returncode == 0
    assert lyra.json("keys", "list", "keys.db") == []
    assert lyra("keys", "revoke", "ci", "keys.db").returncode == 1


def test_a_name_belongs_to_one_key(lyra: Lyra) -> None:
    """Costs are listed by name, so two keys in force never share one; a revoked name is free again."""
    assert lyra("keys", "create", "keys.db", "--name", "ci").returncode == 0
    again = lyra("keys", "create", "keys.db", "--name", "ci")
    assert again.returncode == 1
    assert "already" in again.stderr
    assert lyra("keys", "revoke", "ci", "keys.db").returncode == 0
    assert lyra("keys", "create", "keys.db", "--name", "ci").returncode == 0


def test_for_whom_how_often_and_with_which_memory_a_key_is_used(lyra: Lyra) -> None:
    """The settings of a key are those that it was made with; without them there is no user, limit or cache."""
    options = ("--user", "ada", "--requests-per-minute", "60", "--cache", "2.5")
    lyra.json("keys", "create", "keys.db", "--name", "own", *options)
    lyra.json("keys", "create", "keys.db", "--name", "plain")
    rows = {row["name"]: row for row in lyra.json("keys", "list", "keys.db")}
    shown = {name: (row["user"], row["requests_per_minute"], row["cache_s"]) for name, row in rows.items()}
    assert shown == {"own": ("ada", 60, 2.5), "plain": ("", None, 0.0)}


def test_a_revoked_key_is_told_as_json(lyra: Lyra) -> None:
    """A program reads which key is gone; without --json stdout is empty."""
    for name in ("first", "second"):
        lyra.json("keys", "create", "keys.db", "--name", name)
    assert json.loads(lyra("keys", "revoke", "first", "keys.db", "--json").stdout) == {"revoked": "first"}
    assert lyra("keys", "revoke", "second", "keys.db").stdout == ""


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--name", "a b"), "name"),
        (("--name", "x" * 65), "name"),
        (("--name", "ok", "--budget", "five"), "money"),
        (("--name", "ok", "--user", "a/b"), "user"),
        (("--name", "ok", "--models", "a b"), "models"),
        (("--name", "ok", "--cache", "nan"), "seconds"),
        (("--name", "ok", "--cache", "inf"), "seconds"),
        (("--name", "ok", "--requests-per-minute", "10000000000"), "1,000,000,000"),
    ],
)
def test_settings_that_cannot_be_are_refused(lyra: Lyra, options: tuple[str, ...], word: str) -> None:
    """Exit code 2 and a sentence, and no key."""
    lyra.json("keys", "create", "keys.db", "--name", "first")
    done = lyra("keys", "create", "keys.db", *options)
    assert done.returncode == 2, done
    assert word in done.stderr
    assert [row["name"] for row in lyra.json("keys", "list", "keys.db")] == ["first"]


def test_looking_makes_no_store(lyra: Lyra) -> None:
    """A store that is named and not there is an error, and no file; the configured one has no keys yet."""
    for words in (("list",), ("show", "ci"), ("revoke", "ci")):
        done = lyra("keys", *words, "typo/keys.db")
        assert (done.returncode, "there is no store at typo/keys.db" in done.stderr) == (1, True)
    assert lyra.json("keys", "list", LYRA_KERNEL_STORE="other.db") == []
    assert lyra("keys", "revoke", "ci", LYRA_KERNEL_STORE="other.db").returncode == 1
    assert not list(lyra.folder.rglob("*.db"))


def test_a_memory_store_has_no_keys_without_its_server(lyra: Lyra) -> None:
    """The error says what to name instead."""
    done = lyra("keys", "list", "memory")
    assert done.returncode == 2
    assert "server" in done.stderr


def start_server(lyra: Lyra, db: str) -> subprocess.Popen[str]:
    command = [*warm.command(TARGET), "serve", "--gateway", "--grpc", "none", "--http", "127.0.0.1:0", "--db", db]
    return subprocess.Popen(command, cwd=lyra.folder, env=lyra.env, stdout=subprocess.PIPE, text=True)


@contextmanager
def serving(lyra: Lyra, db: str = "keys.db") -> Iterator[str]:
    with start_server(lyra, db) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["http"]
        finally:
            process.terminate()
            process.wait(timeout=60)


def status(url: str, key: str) -> int:
    body = {"model": "sim/echo", "messages": [{"role": "user", "content": "hi"}]}
    headers = {"authorization": f"Bearer {key}"}
    return httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=60).status_code


@pytest.mark.slow
def test_a_running_server_is_asked(lyra: Lyra) -> None:
    """A key that is made while the server runs works at once, and a revoked one no longer; the server is found by its
    address, by its store, and without an argument."""
    before = lyra.json("keys", "create", "keys.db", "--name", "before")["key"]
    with serving(lyra) as url:
        assert status(url, before) == 200
        during = lyra.json("keys", "create", "--name", "during")["key"]
        assert status(url, during) == 200
        taken = lyra("keys", "create", "--name", "during")
        assert (taken.returncode, "already" in taken.stderr) == (1, True)
        assert [row["calls"] for row in lyra.json("keys", "list", url)] == [1, 1]
        assert lyra("keys", "revoke", "before", "keys.db").returncode == 0
        assert (status(url, before), status(url, during)) == (401, 200)
    assert [(row["name"], row["calls"]) for row in lyra.json("keys", "list", "keys.db")] == [("during", 2)]
    paid = lyra.json("cost", "keys.db", "--by", "key")["rows"]
    assert {(row["key"], row["calls"]) for row in paid} == {("before", 1), ("during", 2)}


@pytest.mark.slow
def test_a_store_that_comes_with_a_folder_does_not_let_its_maker_in(lyra: Lyra, tmp_path: Path) -> None:
    """Signed by its maker or not at all: no server opens it. `check` names the signer. Once the user has adopted it,
    the maker's key is revoked and the user's own keys work."""
    texts = {}
    for maker, variables in {"signed": {"HOME": str(tmp_path / "maker")}, "unsigned": {"HOME": ""}}.items():
        texts[maker] = lyra.json("keys", "create", f"{maker}.db", "--name", "theirs", **variables)["key"]
    for maker, process in {maker: start_server(lyra, f"{maker}.db") for maker in texts}.items():
        with process:
            assert process.stdout is not None
            try:
                ready = process.stdout.readline()
                assert not ready or status(json.loads(ready)["http"], texts[maker]) != 200
                assert ready == ""
            finally:
                process.terminate()
            assert process.wait(timeout=60) == 3
    assert "signed with the key of another user or machine: " in lyra("store", "check", "signed.db").stdout
    assert "not signed" in lyra("store", "check", "unsigned.db").stdout
    assert lyra("store", "adopt", "unsigned.db", "--yes").returncode == 0
    own = lyra.json("keys", "create", "unsigned.db", "--name", "own")["key"]
    with serving(lyra, "unsigned.db") as url:
        assert (status(url, texts["unsigned"]), status(url, own)) == (401, 200)


def test_a_server_that_is_asked_without_a_token_names_the_variable(lyra: Lyra) -> None:
    """Nobody has to guess from a header that could not be sent."""
    done = lyra("keys", "list", "http://127.0.0.1:1")
    assert done.returncode == 3
    assert "asks for a token" in done.stderr
    assert "LYRA_TOKEN" in done.stderr
