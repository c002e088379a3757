"""`vega run --cluster` with real hosts as processes: a run goes on when its host is killed or stands still."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from lyra.cluster.directory import PostgresDirectory
from tests.source import KEPT, PYTHONPATH
from verify.servers import PostgresServer, postgres_missing

_ROOT: Final = Path(__file__).parents[2]
_LEASE_S: Final = 2.0
_schemas = count(1)

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


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return {**kept, "HOME": str(folder), "PYTHONPATH": PYTHONPATH, "LC_ALL": "C.UTF-8"}


@pytest.fixture(scope="module")
def database() -> Iterator[PostgresServer]:
    missing = postgres_missing()
    if missing:
        pytest.skip(missing)
    with PostgresServer() as server:
        yield server


class RunCluster:
    """Hosts of one cluster by name, and commands that use it."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.directory = PostgresDirectory(url, shards=2, lease_s=_LEASE_S)
        self._folder = folder
        self.hosts: dict[str, subprocess.Popen[bytes]] = {}
        self.write("nothing.py", "def setup(kernel):\n    pass\n")
        self.write("program.vega", _PROGRAM)

    def write(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text)

    def start_host(self, name: str) -> None:
        words = [self.url, name, str(self._folder / "nothing.py")]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.host_process", *words],
            stdout=subprocess.PIPE,
            cwd=_ROOT,
            env=_environment(self._folder),
        )
        self.hosts[name] = process
        assert process.stdout is not None
        assert process.stdout.readline() == b"joined\n"

    def vega(self, verb: str, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "lyra", "vega", verb, "--cluster", self.url, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self._folder,
            env=_environment(self._folder),
        )

    def host_of(self, shard: str) -> str:
        """Return the host that a shard is assigned to."""
        return self.directory.view().shards[shard].host

    def shard_of(self, run: str) -> str:
        from lyra.cluster.vega_runs import open_run

        space, found = open_run(self.url, run, make=False)
        assert found is not None
        shard = str(found.began["shard"])
        space.close()
        return shard

    def close(self) -> None:
        for process in self.hosts.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.communicate(timeout=10)
        self.directory.close()


@pytest.fixture
def runs(database: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunCluster]:
    monkeypatch.setenv("HOME", str(tmp_path))  # whose key signs the stores
    made = RunCluster(f"{database.url}&schema=runs_{next(_schemas)}", tmp_path)
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
    runs.start_host("alpha")
    runs.start_host("beta")
    command = runs.vega("run", "program.vega", "--run-id", "both", "--json", "--", "!")
    shown = runs.vega("run", "program.vega", "--run-id", "both", "--", "!")
    first = _read_lines(shown, 5)
    owner = _until(lambda: runs.host_of(runs.shard_of("both")))
    runs.hosts[owner].send_signal(signal.SIGKILL)
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
    runs.start_host("alpha")
    runs.start_host("beta")
    command = runs.vega("run", "program.vega", "--run-id", "held", "--", "!")
    first = _read_lines(command, 5)
    owner = _until(lambda: runs.host_of(runs.shard_of("held")))
    runs.hosts[owner].send_signal(signal.SIGSTOP)
    rest, told = _finish(command)
    runs.hosts[owner].send_signal(signal.SIGCONT)
    assert command.returncode == 0, told
    _check_output([*first, *rest.splitlines()])
    _until(lambda: runs.directory.view().is_alive(owner))
    again = runs.vega("resume", "held")
    everything, told = _finish(again)
    assert again.returncode == 0, told
    _check_output(everything.splitlines())


def test_run_goes_on_without_its_command(runs: RunCluster) -> None:
    """The command is only a view: killed, the run goes on, and `vega resume` shows it from the beginning."""
    runs.start_host("alpha")
    command = runs.vega("run", "program.vega", "--", "!")
    _read_lines(command, 3)
    command.kill()
    _, told = _finish(command)
    run = told.split()[1]
    resumed = runs.vega("resume", run)
    everything, told = _finish(resumed)
    assert resumed.returncode == 0, told
    _check_output(everything.splitlines())


def test_failed_run_fails_its_command(runs: RunCluster) -> None:
    """An error that the program did not catch ends the command with its code and place; a program that imports what is
    on this machine is refused, and so is a name that no run has."""
    runs.start_host("alpha")
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
