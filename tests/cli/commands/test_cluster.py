"""`lyra cluster`: real hosts on a real PostgreSQL, stopped, held and killed; wrong input ends in one sentence."""

from __future__ import annotations

import asyncio
import configparser
import json
import shlex
import signal
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from lyra.cluster import connect
from lyra.config import KEYS
from lyra.core.limits import CLUSTER_DRAIN_S
from lyra.kernel.remote.part import RemoteState
from tests import warm
from tests.cluster.started import StartHost
from tests.cluster.started import cluster_url as cluster_url  # noqa: PLC0414 - a fixture
from tests.cluster.started import database as database  # noqa: PLC0414 - a fixture
from tests.cluster.started import start_host as start_host  # noqa: PLC0414 - a fixture
from tests.test_docs import blocks, check_command
from verify.servers import PostgresServer

pytestmark = pytest.mark.slow

JOBS = """
from lyra import Agent

async def work(ctx, what):
    return what

async def idle(ctx):
    await ctx.receive()

def setup(kernel):
    kernel.register(work)
    kernel.register(idle)
    kernel.register(Agent(name="helper", model="sim/echo"))
"""
MORE = """
async def more(ctx):
    return "more"

async def setup(kernel):
    kernel.register(more)
"""


def status(lyra: Any, url: str) -> tuple[int, dict[str, Any]]:
    done = lyra("cluster", "status", "--store", url, "--json")
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def test_hosts_share_the_shards_and_give_them_away_when_stopped(
    lyra: Any, cluster_url: str, start_host: StartHost
) -> None:
    """Two hosts have half of the shards each; SIGTERM gives those of one to the other, and both end with 0."""
    a = start_host("a", "--shards", "4", "--resources", "gpu=1,mem=64").until_joined()
    b = start_host("b")
    assert sorted(a.until_shards(2) + b.until_shards(2)) == ["s1", "s2", "s3", "s4"]
    code, told = status(lyra, cluster_url)
    assert (code, told["well"], told["problems"]) == (0, True, [])
    assert [row["state"] for row in told["hosts"]] == ["up", "up"]
    assert (told["hosts"][0]["resources"]["gpu"], told["hosts"][0]["resources"]["mem"]) == (1.0, 64.0)
    assert all(row["open"] for row in told["shards"])
    shown = lyra("cluster", "status", LYRA_CLUSTER_STORE=cluster_url)
    assert shown.stdout.startswith("all is well\n")
    again = start_host("a")
    assert again.process.stdout.readline() == ""
    _, error = again.process.communicate(20)
    assert again.process.returncode == 1
    assert error.startswith("error[conflict]: a host named 'a' is in the cluster already\n")
    assert a.stop()[0] == 0
    assert b.until_shards(4) == ["s1", "s2", "s3", "s4"]
    code, told = status(lyra, cluster_url)
    assert (code, [row["name"] for row in told["hosts"]]) == (0, ["b"])
    assert b.stop()[0] == 0
    code, told = status(lyra, cluster_url)
    assert code == 1
    assert told["problems"][0] == "no host is running: start one with lyra cluster start"


def test_the_programs_and_agents_of_the_files_are_known(
    lyra: Any, tmp_path: Path, cluster_url: str, start_host: StartHost
) -> None:
    """`--load` runs setup(kernel) of each file for each shard; programs go by their names."""
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "more.py").write_text(MORE)
    start_host("a", "--shards", "2", "--load", "jobs.py", "--load", "more.py").until_shards(2)
    (lyra.folder / "client.py").write_text(
        "import asyncio, sys, lyra.cluster\n"
        "async def main():\n"
        "    async with lyra.cluster.connect(sys.argv[1]) as cluster:\n"
        "        for shard in ('s1', 's2'):\n"
        "            for program, args in (('lyra_server_setup:work', ['x']), ('lyra_server_setup:more', [])):\n"
        "                job = await cluster.spawn(program, *args, shard=shard)\n"
        "                print(job.address.partition('/')[0], (await job.wait()).result)\n"
        "asyncio.run(main())\n"
    )
    done = warm.run(str(lyra.folder / "client.py"), [cluster_url], cwd=lyra.folder, env=lyra.env)
    assert done.stdout.split("\n") == ["s1 x", "s1 more", "s2 x", "s2 more", ""], done.stderr


def test_a_setup_that_fails_is_told_by_the_status(
    lyra: Any, tmp_path: Path, cluster_url: str, start_host: StartHost
) -> None:
    """The host goes on, its shards are open nowhere, and the reason names the file."""
    (tmp_path / "wrong.py").write_text("def setup(kernel):\n    raise ValueError('no such table')\n")
    host = start_host("a", "--shards", "1", "--load", "wrong.py").until_joined()
    while not (told := status(lyra, cluster_url)[1])["shards"][0]["note"]:
        pass
    reason = "wrong.py: setup(kernel) failed: ValueError: no such table"
    assert f"shard s1 is open on no host: {reason}" in told["problems"]
    assert host.stop()[0] == 0


def test_draining_moves_the_shards_and_undo_brings_some_back(
    lyra: Any, cluster_url: str, start_host: StartHost
) -> None:
    """`drain` returns when the host has no shard; the host goes on, and takes shards again after `--undo`."""
    a = start_host("a", "--shards", "4").until_joined()
    b = start_host("b")
    a.until_shards(2)
    b.until_shards(2)
    drained = lyra("cluster", "drain", "a", "--store", cluster_url)
    assert drained.returncode == 0, drained.stderr
    lines = drained.stdout.splitlines()
    assert lines[0].startswith("host a has 2 shards left: ")
    assert lines[-1] == "host a has no shard any more: it can be stopped"
    b.until_shards(4)
    a.until_shards(0)
    code, told = status(lyra, cluster_url)
    assert (code, told["remarks"]) == (0, ["host a drains: it has no shard any more: it can be stopped"])
    alone = lyra("cluster", "drain", "b", "--store", cluster_url)
    assert alone.returncode == 1
    assert "no other host takes the shards of b" in alone.stderr
    wrong = lyra("cluster", "drain", "aa", "--store", cluster_url)
    assert wrong.returncode == 2
    assert "did you mean 'a'?" in wrong.stderr
    assert lyra.json("cluster", "drain", "a", "--undo", "--store", cluster_url)["draining"] is False
    a.until_shards(2)
    b.until_shards(2)


def test_a_held_and_a_killed_host_are_told(lyra: Any, cluster_url: str, start_host: StartHost) -> None:
    """A held one is late, and its shards are not known to be open; a killed one is gone, and its shards are taken."""
    a = start_host("a", "--shards", "2", "--lease", "4").until_joined()
    b = start_host("b")
    a.until_shards(1)
    b.until_shards(1)
    a.hold()
    while True:
        code, told = status(lyra, cluster_url)
        if told["problems"] and "host a has not renewed" in told["problems"][0]:
            break
    assert code == 1
    assert (told["hosts"][0]["state"], told["lease_s"]) == ("late", 4.0)
    assert {row["open"] for row in told["shards"]} == {None, True}
    a.close()
    b.until_shards(2)
    code, told = status(lyra, cluster_url)
    assert code == 1
    assert told["hosts"][0]["state"] == "gone"
    assert "it counts as gone; its shards are with others" in told["problems"][0]
    assert [row["open"] for row in told["shards"]] == [True, True]
    drained = lyra("cluster", "drain", "a", "--store", cluster_url)
    assert drained.returncode == 1
    assert "host a does not run" in drained.stderr


SLOW = """
import asyncio

async def wait():
    await asyncio.sleep(60)

async def slow(ctx):
    await ctx.do(wait)

def setup(kernel):
    kernel.register(slow)
"""


def run_host(lyra: Any, *words: str, **env: str) -> Any:
    """Start `lyra cluster start` until it has joined or ended; gives its first line, or its exit code and sentence."""
    process = warm.Started("lyra.cli.main:main", ["cluster", "start", *words], cwd=lyra.folder, env={**lyra.env, **env})
    line = process.stdout.readline()
    if line:
        process.send_signal(signal.SIGKILL)
    _, told = process.communicate(30)
    return line or (process.returncode, told)


def test_each_setting_changes_the_host(lyra: Any, cluster_url: str) -> None:
    """As a variable, and as a flag: where it listens, how others reach it, what it is called."""
    env = {"LYRA_CLUSTER_STORE": cluster_url}
    joined = json.loads(run_host(lyra, "--json", LYRA_CLUSTER_NAME="first", LYRA_CLUSTER_LISTEN="127.0.0.2:0", **env))
    assert joined["joined"] == "first"
    assert joined["address"].startswith("127.0.0.2:")
    joined = json.loads(run_host(lyra, "--json", "--name", "second", "--listen", "127.0.0.3:0", **env))
    assert (joined["joined"], joined["address"].rpartition(":")[0]) == ("second", "127.0.0.3")
    code, told = run_host(lyra, LYRA_CLUSTER_LISTEN="0.0.0.0:0", LYRA_CLUSTER_ADVERTISE="localhost:7", **env)
    assert code == 2
    assert "can be reached from other machines" in told
    words = ("--json", "--name", "third", "--listen", "0.0.0.0:0")
    open_env = {**env, "LYRA_CLUSTER_PLAINTEXT": "true", "LYRA_CLUSTER_ADVERTISE": "localhost:7"}
    assert json.loads(run_host(lyra, *words, **open_env))["address"] == "localhost:7"
    flags = ("--plaintext", "--advertise", "localhost:8")
    line = run_host(lyra, "--store", cluster_url, "--name", "fourth", "--listen", "0.0.0.0:0", *flags)
    assert line.startswith("host fourth has joined the cluster in postgresql://")
    assert line.endswith("others reach it at localhost:8\n")
    (lyra.folder / "lyra.toml").write_text('[cluster]\nname = "fifth"\n')
    untrusted = json.loads(run_host(lyra, "--json", **env))
    trusted = json.loads(run_host(lyra, "--json", "--trust-folder", **env))
    assert (untrusted["joined"] == "fifth", trusted["joined"]) == (False, "fifth")


@pytest.mark.parametrize(
    ("flags", "given"),
    [((), {"LYRA_CLUSTER_DRAIN_S": "0"}), (("--drain", "0"), {}), (("--set", "cluster.drain_s=0"), {})],
)
def test_calls_in_flight_get_so_long_to_end(
    tmp_path: Path, cluster_url: str, start_host: StartHost, flags: tuple[str, ...], given: dict[str, str]
) -> None:
    """A call of a minute is cut off where the setting or `--drain` says that none is waited for."""
    (tmp_path / "slow.py").write_text(SLOW)
    host = start_host("a", "--shards", "1", "--load", "slow.py", *flags, **given)
    host.until_shards(1)

    async def begin() -> None:
        async with connect(cluster_url) as client:
            await client.spawn("lyra_server_setup:slow", shard="s1", pid="slow")

    asyncio.run(begin())
    began_s = time.monotonic()
    assert host.stop()[0] == 0
    assert time.monotonic() - began_s < CLUSTER_DRAIN_S / 2


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("status",), 2, "error[config]: no cluster is named"),
        (
            ("status", "--store", "postgre://h/d"),
            2,
            "error[config]: cluster.store is a URL of PostgreSQL, not postgre:",
        ),
        (("status", "--store", "postgresql://h:x/d"), 1, "error[store]: cannot connect to postgresql://h"),
        (
            ("status", "--store", "postgresql://u:topsecret@127.0.0.1:1/d"),
            1,
            "error[store]: cannot connect to postgres",
        ),
        (("start", "--store", "{url}", "--name", "Not a name"), 2, "error[config]: a host's name is 'Not a name'"),
        (("start", "--store", "{url}", "--listen", "0.0.0.0:7000"), 2, "error[config]: 0.0.0.0:7000 can be reached"),
        (
            ("start", "--store", "{url}", "--listen", "0.0.0.0:7000", "--plaintext"),
            2,
            "error[config]: 0.0.0.0 is no address by which other hosts reach this one",
        ),
        (("start", "--store", "{url}", "--advertise", "10.0.0.1:0"), 2, "error[config]: --advertise names no port"),
        (
            ("start", "--store", "{url}", "--listen", "203.0.113.9:7000", "--plaintext"),
            2,
            "error[config]: cannot listen",
        ),
        (("start", "--store", "{url}", "--resources", "gpu"), 2, "error[config]: 'gpu' is no resource"),
        (("start", "--store", "{url}", "--shards", "0"), 2, "error[config]: a cluster has 1 to 4096 shards, not 0"),
        (("start", "--store", "{url}x-y"), 2, "error[config]: schema is "),
        (
            ("drain", "a", "--store", "{server}&schema=none"),
            1,
            "error[no_cluster]: there is no cluster in postgresql://",
        ),
    ],
)
def test_wrong_input_ends_in_one_sentence(
    lyra: Any, database: PostgresServer, cluster_url: str, words: tuple[str, ...], code: int, sentence: str
) -> None:
    """With the exit code of the design, and never with a password."""
    given = [word.format(url=cluster_url, server=database.url) for word in words]
    done = lyra("cluster", *given)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith(sentence), done.stderr
    assert "topsecret" not in done.stderr
    assert "Traceback" not in done.stderr


def test_the_number_of_shards_never_changes(lyra: Any, cluster_url: str, start_host: StartHost) -> None:
    """Names have their home by the number of shards, so that a cluster keeps the one that it was made with."""
    start_host("a", "--shards", "2").until_shards(2)
    done = lyra("cluster", "start", "--name", "b", "--shards", "3", "--store", cluster_url)
    assert done.returncode == 2
    assert "has 2 shards, which never changes" in done.stderr


def test_a_missing_driver_is_one_sentence(lyra: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] == "psycopg"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    done = lyra("cluster", "status", "--store", "postgresql://h/d")
    assert done.returncode == 2
    assert "PostgreSQL stores need psycopg, which is not installed" in done.stderr


def page_blocks(language: str) -> list[str]:
    page = Path(__file__).parents[3] / "docs" / "how-to" / "cluster.md"
    return [text for _, text in blocks(page, language)]


def test_the_unit_and_the_manifest_of_the_page_start_hosts() -> None:
    """Their commands have options that exist, their variables are read, and what they name is declared."""
    (unit,) = page_blocks("ini")
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read_string(unit)
    words = shlex.split(parsed["Service"]["ExecStart"])
    assert words[0].endswith("/bin/lyra")
    check_command(words[1:])
    assert float(parsed["Service"]["TimeoutStopSec"]) > CLUSTER_DRAIN_S
    (manifest,) = page_blocks("yaml")
    service, hosts = yaml.safe_load_all(manifest)
    spec = hosts["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    check_command([str(word) for word in container["args"]])
    assert spec["terminationGracePeriodSeconds"] > CLUSTER_DRAIN_S
    names = {variable["name"] for variable in container["env"]}
    assert names - {"POD", "XDG_CONFIG_HOME"} <= {key.variable for key in KEYS.values()}
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
    assert hosts["spec"]["serviceName"] == service["metadata"]["name"] == "lyra"
    given = dict(pairwise(map(str, container["args"])))
    assert given["--listen"].rpartition(":")[2] == given["--advertise"].rpartition(":")[2] == "7000"
    assert "--plaintext" in container["args"]


def test_the_settings_of_the_page_are_read(lyra: Any) -> None:
    (settings,) = page_blocks("toml")
    home = Path(lyra.env["HOME"], ".config", "lyra")
    home.mkdir(parents=True)
    (home / "lyra.toml").write_text(settings)
    done = lyra("config", "show", "--json", LYRA_DATABASE_URL="postgresql://u:topsecret@h/d")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)["cluster"]
    assert (shown["listen"], shown["tls_ca"]) == ("10.0.0.1:7000", "/etc/lyra/hosts-ca.pem")
    assert "topsecret" not in done.stdout


def test_the_time_of_a_post_that_waits_is_kept() -> None:
    """Also in a snapshot; it goes when the other shard has the post."""

    class Noted:
        NAME = "noted"
        SENDS = frozenset({"x"})

        def apply_posted(self, *_: Any) -> None: ...

        def dump(self) -> Any: ...

        def load(self, _data: Any) -> None: ...

    state, other = RemoteState(), RemoteState()
    for one in (state, other):
        one.add(Noted())  # type: ignore[arg-type]
    for number in (1, 2):
        state.apply("remote.posted", "p1", 10.0 + number, {"to": "s2", "n": number, "what": "x", "data": {}})
    state.apply("remote.acknowledged", "", 20.0, {"to": "s2", "n": 1})
    assert state.times == {"s2": {2: 12.0}}
    other.load(state.dump())
    assert other.times == {"s2": {2: 12.0}}
    state.apply("remote.acknowledged", "", 21.0, {"to": "s2", "n": 2})
    assert state.times == {}
