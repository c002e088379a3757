"""`lyra demo` shows what it says it shows."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from lyra.cli.demo.team import FILES
from lyra.cli.main import main
from lyra.core.codec import decode
from lyra.store.sqlite import SqliteStore
from tests import warm
from tests.cases import first

BUDGETS = {"lead": "$0.50", **{file: budget for file, (_, budget, _) in FILES.items()}}


def command(*arguments):
    return [*warm.command("lyra.cli.main:main"), "demo", *arguments]


def environment(tmp_path):
    paths = os.pathsep.join(path for path in sys.path if path)
    return {**os.environ, "PYTHONPATH": paths, "TMPDIR": str(tmp_path), "NO_COLOR": "1"}


def demo(tmp_path, *arguments, text_in=None):
    words = ["demo", *arguments]
    return warm.run("lyra.cli.main:main", words, cwd=Path.cwd(), env=environment(tmp_path), given=text_in)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    done = demo(folder, "--fast", "--json")
    assert done.returncode == 0, done.stderr
    assert list(folder.iterdir()) == []
    return json.loads(done.stdout)


def test_nothing_finished_is_performed_again(report):
    """The kernel is killed with SIGKILL in the middle; what was finished is not performed again by the second one."""
    effects = report["effects"]
    assert effects["finished_before_the_kill"] > 5
    assert effects["finished_and_performed_again"] == 0
    assert effects["performed_twice"] == 0
    assert effects["asked_again_with_the_same_key"] >= 1
    assert effects["performed_once"] > effects["finished_before_the_kill"]
    assert report["problems"] == []


def test_the_service_is_flaky_and_the_money_holds(report):
    """There were refusals and retries, one reviewer ran out of money, and no budget was passed."""
    assert report["service"]["429"] > 0
    assert report["service"]["503"] > 0
    assert report["result"]["skipped"] > 0
    assert report["result"]["published"] is True
    for name, spent in report["money"]["by_process"].items():
        assert float(spent[1:]) <= float(BUDGETS[name][1:])


def test_supervisors_restart_what_crashes(report):
    """One restart before the kill, one after it, and the next is one too many: the window outlives the kernel."""
    desk, team = (report["supervision"]["supervisors"][name] for name in ("desk", "team"))
    assert (desk["strategy"], team["strategy"]) == ("rest_for_one", "one_for_one")
    assert (desk["restarts_before_the_kill"], desk["restarts_after_the_kill"]) == (1, 1)
    assert desk["max_restarts"] == 2
    assert (desk["gave_up"], team["gave_up"]) == (1, 0)
    assert (team["restarts_before_the_kill"], team["restarts_after_the_kill"]) == (0, 1)
    assert report["supervision"]["children"] == {
        "desk": {"restart": "permanent", "starts": 2, "crashes": 0},
        "rules": {"restart": "temporary", "starts": 2, "crashes": 0},
        "session": {"restart": "permanent", "starts": 4, "crashes": 3},
        "index": {"restart": "permanent", "starts": 4, "crashes": 0},
        "lead": {"restart": "transient", "starts": 1, "crashes": 0},
    }
    assert report["result"]["filed"] == report["result"]["findings"]  # by the last process called index


def test_the_journal_has_every_restart(tmp_path):
    """What the report says is in the journal: the processes, their names, their ends, and the kill between them."""
    path = tmp_path / "kept.db"
    report = json.loads(demo(tmp_path, "--fast", "--json", "--store", str(path)).stdout)
    store = SqliteStore(path)
    rows = [(row.seq, row.pid, row.kind, decode(row.data)) for row in store.read()]
    store.close()
    sessions = {pid: seq for seq, pid, kind, data in rows if kind == "process.created" and data["name"] == "session"}
    ends = {pid: (seq, data["reason"]) for seq, pid, kind, data in rows if kind == "process.terminated"}
    killed_at = report["kill"]["journal_rows"]
    assert report["kill"]["signal"] == signal.SIGKILL
    assert len(sessions) == report["supervision"]["children"]["session"]["starts"]
    assert [ends[pid][1] for pid in sessions] == ["error"] * 3 + ["shutdown"]
    assert sorted(sessions.values()) == list(sessions.values())
    assert sum(seq <= killed_at for seq in sessions.values()) == 2
    assert all(ends[before][0] < sessions[after] for before, after in pairwise(sessions))
    across = [pid for pid, seq in sessions.items() if seq <= killed_at < ends[pid][0]]
    assert len(across) == 1  # it went on after the kill, and crashed later
    assert all(pid in ends for _, pid, kind, _ in rows if kind == "process.created")


def test_the_same_seed_tells_the_same(tmp_path, report):
    """All but times and row numbers is a function of the seed."""
    again = json.loads(demo(tmp_path, "--fast", "--json").stdout)
    for part in ("result", "supervision", "money"):
        assert again[part] == report[part]


@pytest.mark.slow
@pytest.mark.parametrize("seed", first(range(2, 8), 1))
def test_other_seeds(tmp_path, seed):
    """It holds for other seeds of the service too."""
    done = demo(tmp_path, "--fast", "--json", "--seed", str(seed))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["effects"]["finished_and_performed_again"] == 0


def test_plain_lines_without_a_terminal(tmp_path):
    """A pipe gets lines: the journal, the kill, the result."""
    done = demo(tmp_path, "--fast")
    assert done.returncode == 0, done.stderr
    for words in (
        "process.created",
        "kill -9",
        "a second kernel goes on",
        "interrupt.resolved",
        "none performed again",
        "session crashed",
        "crashed once too often",
        "rest_for_one: 1 restart before the kill, 1 after it",
        "crashed 3 times, 4 starts under one name",
    ):
        assert words in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("arguments", [("--fast", "--ask"), pytest.param(("--fast",), marks=pytest.mark.long)])
def test_a_terminal_gets_a_tree(tmp_path, arguments):
    """In a real terminal: the supervision tree with its branches, the banner of the kill, then the last lines."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    env = {**environment(tmp_path), "TERM": "xterm-256color"}
    running = subprocess.Popen(command(*arguments), env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen, answered = "", False
    with suppress(OSError):  # the other end is closed
        while chunk := os.read(ours, 65536):
            seen += chunk.decode(errors="replace")
            if "[y/N]" in seen and not answered:
                answered = os.write(ours, b"y\n") > 0
    os.close(ours)
    assert running.wait(30) == 0, seen[-2000:]
    assert answered == ("--ask" in arguments)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)
    for words in ("├─ desk", "│  ├─ session", "└─ lead", "kill -9", "1 restart", "crashed 3 times", "published"):
        assert words in plain
    assert max(len(line) for line in plain.splitlines()) <= 80


def test_ask_puts_the_question_to_the_user(tmp_path):
    """With --ask a no is a no: nothing is published."""
    done = demo(tmp_path, "--fast", "--json", "--ask", text_in="n\n")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"]["published"] is False
    assert "Publish" in done.stderr


@pytest.mark.parametrize("speed", ["nan", "inf", "-inf", "-1", "0", "1e9", "fast"])
def test_a_speed_that_is_none(lyra, speed):
    """Nothing is started for a speed that makes no sense; the error names the flag."""
    done = lyra("demo", "--speed", speed)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "--speed" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_store_and_keep(tmp_path):
    """--store keeps the journal in a new file, never in an old one; --keep keeps the temporary folder."""
    path = tmp_path / "kept.db"
    done = demo(tmp_path, "--fast", "--json", "--store", str(path))
    assert json.loads(done.stdout)["store"] == str(path)
    assert path.exists()
    again = demo(tmp_path, "--fast", "--json", "--store", str(path))
    assert again.returncode == 2
    assert again.stdout == ""
    kept = json.loads(demo(tmp_path, "--fast", "--json", "--keep").stdout)["store"]
    assert Path(kept).exists()


@pytest.mark.long
def test_speed_changes_the_time(tmp_path):
    """Twenty times as fast takes less time than four times."""
    quick = json.loads(demo(tmp_path, "--json", "--speed", "20").stdout)["seconds"]
    slower = json.loads(demo(tmp_path, "--json", "--speed", "4").stdout)["seconds"]
    assert quick < slower


def test_ctrl_c_leaves_nothing_behind(tmp_path):
    """SIGINT in the middle: exit 130, no process and no folder is left."""
    running = subprocess.Popen(
        command(),
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 (heard where tests ignore it)
    )
    assert running.stdout is not None
    for line in running.stdout:
        if "effect.started" in line:
            break
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    workers = children.read_text().split() if children.exists() else []
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=30)
    assert running.returncode == 130
    assert list(tmp_path.iterdir()) == []
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)


@pytest.mark.parametrize(
    ("words", "seed", "pauses"), [((), 1, True), (("--fast",), 1, False), (("--seed", "7"), 7, True)]
)
def test_the_flags_of_the_show(monkeypatch, words, seed, pauses):
    """The seed of the service's failures, and whether there are pauses."""
    shown = []

    class Show:
        def __init__(self, *_: object, **settings: object) -> None:
            shown.append(settings)

        def run(self) -> dict[str, object]:
            return {"problems": []}

        def close(self) -> None:
            pass

    monkeypatch.setattr("lyra.cli.demo.command.Demo", Show)
    assert main(["demo", "--json", *words]) == 0
    (settings,) = shown
    assert (settings["seed"], settings["pace"] > 0) == (seed, pauses)  # type: ignore[operator]
