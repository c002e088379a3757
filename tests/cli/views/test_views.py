"""`lyra ps`, `tree`, `trace`, `cost`, `events` and `top` show a store, also beside the kernel that runs on it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm

PROGRAM = """
import asyncio, sys
from lyra import Agent, Kernel, tool

@tool
def add(a: int, b: int) -> int:
    "Add."
    return a + b

async def child(ctx):
    await ctx.sleep(3600)

async def parent(ctx):
    await ctx.spawn(child)
    await ctx.ask("May I go on?", kind="confirmation")

async def main():
    async with Kernel(sys.argv[1], programs=[child, parent], snapshot_every_events=1) as kernel:
        helper = kernel.spawn(Agent(name="helper", model="sim/echo"), name="h1")
        await helper.send("hello")
        await kernel.spawn(parent, pid="boss")
        done = kernel.spawn(Agent(name="short", model="sim/echo"), pid="short")
        await done.send("x")
        await kernel.kill("short")
        await kernel.durable()
        while not kernel.journal.store.load_snapshots().seq:  # one is made beside the work
            await asyncio.sleep(0.01)
        print("ready", flush=True)
        if len(sys.argv) > 2:
            sys.stdin.readline()
            await helper.send("again")
            await kernel.durable()
            print("more", flush=True)
            sys.stdin.readline()

asyncio.run(main())
"""


@pytest.fixture
def store(lyra) -> Path:
    (lyra.folder / "program.py").write_text(PROGRAM)
    done = warm.run(str(lyra.folder / "program.py"), ["k.db"], cwd=lyra.folder, env=lyra.env)
    assert done.returncode == 0, done.stderr
    return Path(lyra.folder, "k.db")


def in_json(lyra, *words: str):
    done = lyra(*words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_ps_lists_the_living_and_with_a_all(lyra, store: Path) -> None:
    living = {row["pid"]: row for row in in_json(lyra, "ps", "k.db")}
    assert living["boss"]["state"] == "waiting"
    assert list(living["boss"]["questions"].values()) == ["May I go on?"]
    assert "short" not in living
    every = {row["pid"]: row for row in in_json(lyra, "ps", "k.db", "-a")}
    assert every["short"]["state"] == "terminated"
    assert every["short"]["reason"] == "killed"
    assert {row["pid"] for row in in_json(lyra, "ps", "k.db", "--state", "waiting")} == {"boss"}
    assert in_json(lyra, "ps", "k.db", "--user", "alice") == []
    shown = lyra("ps", "k.db").stdout
    assert "asks: May I go on?" in shown
    assert "h1" in shown


@pytest.mark.slow
def test_tree_draws_children_below_their_parent(lyra, store: Path) -> None:
    lines = lyra("tree", "k.db").stdout.splitlines()
    boss = next(number for number, line in enumerate(lines) if "boss" in line)
    assert lines[boss + 1].startswith("└─ ")
    assert not any("short" in line for line in lines)
    assert any("short" in line for line in lyra("tree", "-a", "k.db").stdout.splitlines())
    depths = {row["pid"]: row["depth"] for row in in_json(lyra, "tree", "k.db")}
    assert sorted(depths.values()) == [0, 0, 1]


@pytest.mark.slow
def test_trace_shows_calls_and_cost_sums_them(lyra, store: Path) -> None:
    shown = lyra("trace", "k.db", "--pid", "h1").stdout
    assert "model sim/echo  ok" in shown
    assert "boss" not in shown
    (traced,) = in_json(lyra, "trace", "k.db", "--pid", "h1")
    assert [call["kind"] for call in traced["trace"]] == ["model"]
    wrong = lyra("trace", "k.db", "--pid", "h2")
    assert wrong.returncode == 1
    assert "did you mean 'h1'" in wrong.stderr
    summed = in_json(lyra, "cost", "k.db", "--by", "agent")
    assert {row["agent"]: row["calls"] for row in summed["rows"]} == {"helper": 1, "short": 1}
    assert in_json(lyra, "cost", "k.db", "--by", "key") == {"rows": [], "cost_usd": 0.0}  # no key paid
    assert "no model call with a key" in lyra("cost", "k.db", "--by", "key", "--by", "model").stderr
    assert "total" in lyra("cost", "k.db", "--by", "model", "--by", "day").stdout
    assert lyra("cost", "k.db", "--by", "month").returncode == 2


@pytest.mark.slow
def test_events_and_top_print_what_there_is(lyra, store: Path) -> None:
    rows = [json.loads(line) for line in lyra("events", "k.db", "--json").stdout.splitlines()]
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    last = lyra("events", "k.db", "-n", "2", "--json").stdout.splitlines()
    assert [json.loads(line) for line in last] == rows[-2:]
    created = lyra("events", "k.db", "--kind", "process.created", "--pid", "boss").stdout.splitlines()
    assert len(created) == 1
    assert lyra("events", "k.db", "--kind", "process.create").returncode == 2
    after = lyra("events", "k.db", "--after", "3", "--json").stdout.splitlines()
    assert len(after) == len(rows) - 3
    picture = json.loads(lyra("top", "k.db", "--once").stdout)
    assert (picture["alive"], picture["waiting"]) == (3, 1)
    assert picture["processes"][0]["pid"] == "boss"


@pytest.mark.slow
def test_events_follows_a_kernel_that_runs(lyra) -> None:
    """The rows of a running kernel come as they are written, and Ctrl-C ends the command."""
    (lyra.folder / "program.py").write_text(PROGRAM)
    kernel = subprocess.Popen(
        [sys.executable, "program.py", "k.db", "stay"],
        cwd=lyra.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert kernel.stdin is not None
    assert kernel.stdout is not None
    try:
        assert kernel.stdout.readline() == "ready\n"
        start = "import sys; from lyra.cli.main import main; sys.exit(main())"
        follow = subprocess.Popen(
            [sys.executable, "-c", start, "events", "k.db", "-f", "-n", "1", "--json"],
            cwd=lyra.folder,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert follow.stdout is not None
        first = json.loads(follow.stdout.readline())
        kernel.stdin.write("\n")
        kernel.stdin.flush()
        assert json.loads(follow.stdout.readline())["seq"] == first["seq"] + 1
        follow.send_signal(2)
        assert follow.wait(30) == 130
        follow.stdout.close()
        assert in_json(lyra, "ps", "k.db")
    finally:
        kernel.communicate("\n\n", timeout=60)


@pytest.mark.slow
def test_a_server_is_shown_as_a_store_is(lyra) -> None:
    """The same commands with the URL of a server, which owns the store; a wrong token is told."""
    (lyra.folder / "setup.py").write_text(
        "from lyra import Agent\n\n\ndef setup(kernel):\n"
        "    kernel.spawn(Agent(name='helper', model='sim/echo'), pid='h', name='h1')\n"
    )
    token = "0123456789abcdef0123"
    (lyra.folder / "tokens").write_text(token)
    start = "import sys; from lyra.cli.main import main; sys.exit(main())"
    words = ("serve", "--grpc", "none", "--http", "127.0.0.1:0", "--db", "k.db")
    server = subprocess.Popen(
        [sys.executable, "-c", start, *words, "--token-file", "tokens", "--load", "setup.py"],
        cwd=lyra.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert server.stdout is not None
    try:
        url = json.loads(server.stdout.readline())["http"]
        shown = lyra("ps", url, "--json", LYRA_TOKEN=token)
        assert shown.returncode == 0, shown.stderr
        assert [row["name"] for row in json.loads(shown.stdout)] == ["h1"]
        assert json.loads(shown.stdout) == in_json(lyra, "ps", "k.db")
        for command in ("tree", "trace", "cost", "events", "top"):
            assert lyra(command, url, LYRA_TOKEN=token).returncode == 0
        refused = lyra("ps", url, LYRA_TOKEN="wrong")
        assert refused.returncode == 3
        assert "error[unauthenticated]" in refused.stderr
    finally:
        server.terminate()
        assert server.wait(30) == 0
        server.stdout.close()


@pytest.mark.slow
def test_a_compacted_store_still_shows_its_processes(lyra, store: Path) -> None:
    before = {row["pid"]: row["state"] for row in in_json(lyra, "ps", "k.db")}
    compacted = lyra("--set", "kernel.retention_s=0", "store", "compact", "k.db")
    assert compacted.returncode == 0, compacted.stderr
    rows = lyra("events", "k.db", "--json").stdout.splitlines()
    assert not rows or json.loads(rows[0])["seq"] > 1
    assert {row["pid"]: row["state"] for row in in_json(lyra, "ps", "k.db")} == before


def test_a_missing_store_and_a_server_that_is_not_there_are_errors(lyra) -> None:
    for command in ("ps", "tree", "trace", "cost", "events", "top"):
        done = lyra(command, "nowhere.db")
        assert (done.returncode, done.stdout) == (1, "")
        assert "there is no store" in done.stderr
    unreachable = lyra("ps", "http://127.0.0.1:1")
    assert unreachable.returncode == 1
    assert "cannot be reached" in unreachable.stderr
    assert lyra("ps", "http://127.0.0.1:1", "--run", "r").returncode == 2


def test_a_row_that_is_no_mapping_is_told_and_no_traceback(lyra) -> None:
    from lyra.core.codec import encode
    from lyra.store.sqlite import SqliteStore

    store = SqliteStore(lyra.folder / "bad.db")
    lease = store.acquire("test", now=1.0, ttl_s=60)
    store.append([(1, 1.0, "p", "effect.started", encode(["no", "mapping"]))], lease.epoch)
    store.release(lease)
    store.close()
    done = lyra("ps", "bad.db")
    assert done.returncode == 1
    assert "error[corrupt]: row 1 (effect.started)" in done.stderr
