"""`vega run --cluster` with real hosts as processes: a run goes on when its host is killed or stands still."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from lyra.cluster.directory import PostgresDirectory
from lyra.cluster.vega_runs import open_run
from tests.cluster.started import StartedHost, StartHost, cluster_url, database, start_host
from tests.source import KEPT, PYTHONPATH

__all__ = ["cluster_url", "database", "start_host"]

_LEASE_S: Final = 2.0

_PROGRAM: Final = """
fn slow(boss, name) {
    for i in list::range(0, 12) {
        process::sleep(100ms);
        print("${name}${i}");
    }
    boss <- name;
}
let left = spawn fn slow(process::self(), "left");
let right = spawn fn slow(process::self(), "right");
fn main() {
    receive { "left" => { } }
    receive { "right" => { } }
    print("leftright${env::args()[0]}");
    return "leftright";
}
"""


_SCRIPT = {
    "replies": [
        {"user": "tea", "tool_calls": [{"name": "AskUser", "arguments": {"question": "Which tea?"}}]},
        {"tool": "AskUser", "text": "You said {result}."},
    ]
}


class RunCluster:
    """Hosts of one cluster, and commands that use it, which have a home and a key of their own."""

    def __init__(self, url: str, folder: Path, start_host: StartHost) -> None:
        self.url = url
        self.folder = folder
        self._start_host = start_host
        self.hosts: dict[str, StartedHost] = {}
        self.write("program.vega", _PROGRAM)

    def start(self, *names: str) -> None:
        for name in names:
            flags = ("--shards", "2", "--lease", str(_LEASE_S), "--drain", "1")
            self.hosts[name] = self._start_host(name, *flags).until_joined()
        self.directory = PostgresDirectory(self.url, make=False)

    def close(self) -> None:
        if self.hosts:
            self.directory.close()

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def vega(self, verb: str, *words: str) -> subprocess.Popen[str]:
        return self.lyra("vega", verb, "--cluster", self.url, *words)

    def lyra(self, *words: str) -> subprocess.Popen[str]:
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        return subprocess.Popen(
            [sys.executable, "-m", "lyra", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={**kept, "HOME": str(self.folder), "PYTHONPATH": PYTHONPATH, "LC_ALL": "C.UTF-8"},
        )

    def find_owner(self, run: str) -> StartedHost:
        """Return the host that executes a run."""
        space, found = open_run(self.directory, run, make=False)
        assert found is not None
        shard = str(found.began["shard"])
        space.close()
        return self.hosts[_until(lambda: self.directory.view().shards[shard].host)]


@pytest.fixture
def runs(cluster_url: str, tmp_path: Path, start_host: StartHost) -> Iterator[RunCluster]:
    made = RunCluster(cluster_url, tmp_path, start_host)
    yield made
    made.close()


def _read_lines(command: subprocess.Popen[str], number: int) -> list[str]:
    assert command.stdout is not None
    lines = []
    for _ in range(number):
        line = command.stdout.readline()
        assert line, _finish(command)[1]
        lines.append(line.rstrip("\n"))
    return lines


def _finish(command: subprocess.Popen[str]) -> tuple[str, str]:
    """Return what it still prints, and all that it told; `communicate` forgets what `readline` has read ahead."""
    assert command.stdout is not None
    assert command.stderr is not None
    with command.stdout, command.stderr:
        rest, told = command.stdout.read(), command.stderr.read()
    command.wait(60)
    return rest, told


def _check_output(lines: list[str]) -> None:
    """The lines of both functions are there, each once and in its order, and the last one of main."""
    for name in ("left", "right"):
        assert [line for line in lines if line.startswith(name) and line[-1].isdigit()] == [
            f"{name}{number}" for number in range(12)
        ]
    assert lines[-1] == "leftright!"
    assert len(lines) == 25


def _until(holds: Callable[[], Any], within_s: float = 60.0) -> Any:
    until_s = time.monotonic() + within_s
    while not (found := holds()):
        assert time.monotonic() < until_s
        time.sleep(0.05)
    return found


def test_run_goes_on_when_its_host_is_killed(runs: RunCluster) -> None:
    """A run prints to the terminal as it goes; its host killed, it goes on elsewhere, prints nothing twice, and the
    command ends as every `vega run` does. `vega resume` shows all of it again."""
    runs.start("alpha", "beta")
    command = runs.vega("run", "program.vega", "--run-id", "both", "--json", "--", "!")
    shown = runs.vega("run", "program.vega", "--run-id", "both", "--", "!")
    first = _read_lines(shown, 5)
    runs.find_owner("both").close()  # SIGKILL
    rest, told = _finish(shown)
    assert shown.returncode == 0, told
    _check_output([*first, *rest.splitlines()])
    document, told = _finish(command)
    assert command.returncode == 0, told
    result = json.loads(document)
    assert (result["run"], result["ok"], result["value"]) == ("both", True, "leftright")
    _check_output(result["output"])
    again = runs.vega("resume", "both")
    everything, told = _finish(again)
    assert again.returncode == 0, told
    assert everything.splitlines() == result["output"]


@pytest.mark.long
def test_run_goes_on_when_its_host_stands_still(runs: RunCluster) -> None:
    """A host that stands still is fenced out of the run: another one continues it, and the woken one adds nothing."""
    runs.start("alpha", "beta")
    command = runs.vega("run", "program.vega", "--run-id", "held", "--", "!")
    first = _read_lines(command, 5)
    owner = runs.find_owner("held")
    owner.hold()
    rest, told = _finish(command)
    owner.wake()
    assert command.returncode == 0, told
    _check_output([*first, *rest.splitlines()])
    _until(lambda: runs.directory.view().is_alive(owner.name))
    again = runs.vega("resume", "held")
    everything, told = _finish(again)
    assert again.returncode == 0, told
    _check_output(everything.splitlines())


@pytest.mark.long
def test_run_moves_when_its_host_is_stopped(runs: RunCluster) -> None:
    """A host that is stopped in order gives the run to another one, which goes on with it."""
    runs.start("alpha", "beta")
    command = runs.vega("run", "program.vega", "--run-id", "moved", "--", "!")
    first = _read_lines(command, 3)
    assert runs.find_owner("moved").stop()[0] == 0
    rest, told = _finish(command)
    assert command.returncode == 0, told
    _check_output([*first, *rest.splitlines()])


def test_run_goes_on_without_its_command(runs: RunCluster) -> None:
    """The command is only a view: killed, the run goes on, and `vega resume` shows it from the beginning."""
    runs.start("alpha")
    command = runs.vega("run", "program.vega", "--", "!")
    _read_lines(command, 3)
    command.kill()
    _, told = _finish(command)
    run = told.split()[1]
    resumed = runs.vega("resume", run)
    everything, told = _finish(resumed)
    assert resumed.returncode == 0, told
    _check_output(everything.splitlines())


def test_run_is_cancelled_from_any_machine(runs: RunCluster) -> None:
    """A command that is on no host has a run cancelled, and the command that follows it ends."""
    runs.start("alpha")
    runs.write("long.vega", 'fn main() {\n    print("begun");\n    process::sleep(1h);\n}\n')
    command = runs.vega("run", "long.vega", "--run-id", "long")
    assert _read_lines(command, 1) == ["begun"]
    cancelling = runs.vega("cancel", "long")
    said, told = _finish(cancelling)
    assert (cancelling.returncode, said) == (0, "run long is cancelled\n"), told
    _finish(command)
    assert command.returncode != 0


def test_question_of_a_run_is_answered_from_any_machine(runs: RunCluster) -> None:
    """`lyra run` begins a run as `vega run` does; an answer that is left for it is read by its host."""
    runs.start("alpha")
    runs.write("says.json", json.dumps(_SCRIPT))
    agent = f'agent Q {{ model "sim/script:{runs.folder}/says.json" tools ["AskUser"] }}'
    runs.write("asks.vega", f'{agent}\nlet q = spawn Q;\nprint("begun");\nprint(q <- "tea");\n')
    command = runs.lyra("run", "--cluster", runs.url, "asks.vega", "--run-id", "tea")
    assert _read_lines(command, 1) == ["begun"]

    def list_questions() -> str:
        asked, told = _finish(runs.vega("answer", "tea"))
        assert not told
        return asked

    _until(lambda: "Which tea?" in list_questions())
    answering = runs.vega("answer", "tea", "green")
    assert _finish(answering) == ("", "")
    assert answering.returncode == 0
    printed, told = _finish(command)
    assert (command.returncode, printed) == (0, "You said green.\n"), told
    shown, told = _finish(runs.lyra("trace", "--store", runs.url, "--run", "tea", "--json"))
    calls = [call for process in json.loads(shown) for call in process["trace"]]
    assert [call["kind"] for call in calls].count("model") == 2, told
    costs, told = _finish(runs.lyra("cost", "--store", runs.url, "--run", "tea", "--json"))
    assert sum(row["calls"] for row in json.loads(costs)["rows"]) == 2, (costs, told)
    _, told = _finish(runs.lyra("cost", "--store", runs.url, "--run", "coffee"))
    assert "there is no run 'coffee'" in told


def test_failed_run_fails_its_command(runs: RunCluster) -> None:
    """An error that the program did not catch ends the command with its code and place; a program that imports what is
    on this machine is refused, and so is a name that no run has."""
    runs.start("alpha")
    runs.write("failing.vega", "fn main() {\n    print(1);\n    return env::args()[7];\n}\n")
    failing = runs.vega("run", "failing.vega", "--run-id", "bad")
    printed, told = _finish(failing)
    assert (failing.returncode, printed) == (1, "1\n"), told
    assert "failing.vega:3:" in told
    runs.write("here.vega", 'import python "json";\nprint(1);\n')
    refused = runs.vega("run", "here.vega")
    _, told = _finish(refused)
    assert refused.returncode == 2
    assert "imports nothing of this machine" in told
    unknown = runs.vega("resume", "nosuch")
    _, told = _finish(unknown)
    assert unknown.returncode == 2
    assert "no run 'nosuch'" in told
