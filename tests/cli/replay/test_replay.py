"""`lyra replay` steps through runs and forks them; `lyra diff` compares two."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lyra import Kernel
from tests.agents.forks import programs
from tests.kept_stores.test_kept_stores import HERE as KEPT_STORES
from tests.source import PYTHONPATH

FILE = str(Path(programs.__file__))


@pytest.fixture(autouse=True)
def acts_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = str(tmp_path / "acts.txt")
    monkeypatch.setenv(programs.ACTS, path)
    return path


@pytest.fixture(scope="module")
def first_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a conversation and a program that ended, under the names that a script of that file has."""
    folder = tmp_path_factory.mktemp("replay")
    path = str(folder / "run.db")
    script = f"import programs, asyncio; asyncio.run(programs.talk({path!r})); asyncio.run(programs.book({path!r}))"
    acts = {programs.ACTS: str(folder / "acts.txt")}
    env = {**os.environ, **acts, "PYTHONPATH": f"{os.path.dirname(FILE)}:{PYTHONPATH}", "HOME": str(folder / "home")}
    (folder / "home").mkdir()
    subprocess.run([sys.executable, "-c", script], env=env, check=True, timeout=60)
    return folder


@pytest.fixture
def store(lyra: Any, acts_file: str, first_store: Path) -> str:
    """Copy that store, its acts and the home of its maker for one test."""
    lyra.env[programs.ACTS] = acts_file
    for file in first_store.glob("run.db*"):
        shutil.copy(file, Path(lyra.folder, file.name))
    shutil.copytree(first_store / "home", lyra.env["HOME"], dirs_exist_ok=True)  # with the key that signed it
    if (first_store / "acts.txt").exists():
        shutil.copy(first_store / "acts.txt", acts_file)
    return str(Path(lyra.folder, "run.db"))


def talked(lyra: Any, monkeypatch: pytest.MonkeyPatch, text: str, *words: str) -> Any:
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    return lyra("replay", *words)


def test_the_steps_and_the_moments_are_printed(lyra: Any, store: str) -> None:
    """As lines, and as one JSON document."""
    done = lyra("replay", store, "talk", "--steps")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 9
    assert 'weather {"city":"Oslo"} → sunny in Oslo' in done.stdout
    page = lyra.json("replay", store, "talk", "--after", "2", "--limit", "3")
    assert [step["kind"] for step in page["timeline"]] == ["model", "tool", "model"]
    assert (page["steps"], page["program"]) == (9, "agent:guide")
    moment = lyra.json("replay", store, "talk", "--at", "4")
    assert moment["conversation"]["count"] == 3
    shown = lyra("replay", store, "talk", "--at", "5").stdout
    assert "assistant: It is sunny in Oslo." in shown
    assert "of $0.5" in shown


def test_a_moment_is_told_of_one_process_of_the_run(lyra: Any, store: str) -> None:
    """`--process` chooses it."""
    child = lyra.json("replay", store, "trip")["timeline"][2]["child"]
    assert lyra.json("replay", store, "trip", "--at", "10", "--process", child)["pid"] == child
    assert lyra.json("replay", store, "trip", "--at", "10")["pid"] == "trip"
    assert lyra("replay", store, "trip", "--process", child).returncode == 2


def test_the_prompt_steps_forwards_and_backwards(lyra: Any, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And finds, shows and tells; a wrong word is told and the rest is done."""
    looks = ("conversation", "budget", "tree", "cost", "vars", "mailbox", "detail", "steps", "show", "help")
    script = "\n".join(("step 2", "back", "goto end", "goto 3", "find sunny", *looks, ""))
    done = talked(lyra, monkeypatch, script, store, "talk")
    assert done.returncode == 0, done.stderr
    assert "> before the first of 9 steps" in done.stdout
    assert ">   2 talk     message" in done.stdout
    assert ">   1 talk     began" in done.stdout
    assert ">   9 talk     turn" in done.stdout
    assert ">   4 talk     tool" in done.stdout
    assert "tool weather gives sunny in Oslo" in done.stdout
    wrong = talked(lyra, monkeypatch, "stepp\ngoto 99\nstep\nquit\nstep\n", store, "talk")
    assert wrong.returncode == 1
    assert "did you mean step?" in wrong.stderr
    assert "no step 99" in wrong.stderr
    assert wrong.stdout.count(">") == 2


def test_a_wrong_store_or_pid_is_one_sentence_and_exit_code_2(lyra: Any, store: str) -> None:
    """With what to do about it."""
    Path(lyra.folder, "text.db").write_text("no store at all")
    for words, text in (
        (("none.db", "talk"), "there is no store at"),
        (("text.db", "talk"), "is not a Lyra store"),
        ((store, "tolk"), "did you mean 'talk'?"),
        (("memory", "talk"), "nothing to look at"),
        (("http://127.0.0.1:1", "talk"), "is a server"),
    ):
        for command in (("replay", *words), ("diff", *words, "talk")):
            done = lyra(*command)
            assert done.returncode == 2, done.stderr
            assert text in done.stderr
            assert done.stdout == ""
    assert not Path(lyra.folder, "none.db").exists()


def test_a_fork_from_the_command_line(lyra: Any, store: str) -> None:
    """It is a process of the store from then on, and nothing from before is performed again."""
    facts = lyra.json("replay", store, "talk", "--fork-at", "5", "--reply", "It rains.", "--load", FILE)
    assert (facts["fork"], facts["answer"], facts["first_difference"]) == ("talk-fork-1", "It rains.", 5)
    assert facts["cost_usd"] == 0
    assert facts["recorded"]["usd"] > 0
    facts = lyra.json("replay", store, "talk", "--fork-at", "4", "--tool-result", "snow", "--load", FILE, "--as", "s")
    assert (facts["fork"], facts["answer"]) == ("s", "It is snow.")
    facts = lyra.json("replay", store, "talk", "--fork-at", "3", "--model", "sim/echo", "--load", FILE)
    assert facts["answer"] == "weather in Oslo?"
    facts = lyra.json("replay", store, "talk", "--fork-at", "7", "--prompt", "ciao", "--system", "x", "--load", FILE)
    assert facts["answer"] == "You said: ciao"
    assert lyra.json("replay", store, facts["fork"])["fork"]["system"] == "x"
    facts = lyra.json("replay", store, "trip", "--fork-at", "8", "--prompt", '{"amount": 3}', "--load", FILE)
    assert facts["answer"]["paid"] == 3
    assert programs.acts() == ["weather-Oslo", "reserve-sea", "mail-sea", "pay-120", "pay-3"]
    pids = {row["pid"] for row in lyra.json("ps", store, "-a")}
    assert {"talk", "talk-fork-1", "s", "trip-fork-1"} <= pids


def test_a_fork_whose_turn_fails_says_why(lyra: Any, store: str) -> None:
    """Without a key of the other model there is no answer, also where the conversation had one before the step."""
    lyra.env.pop("OPENAI_API_KEY", None)
    for step in ("3", "7"):
        words = ("replay", store, "talk", "--fork-at", step, "--model", "openai/gpt-4.1-mini", "--load", FILE)
        done = lyra(*words, "--json")
        facts = json.loads(done.stdout)
        assert (done.returncode, facts["answer"]) == (1, None)
        assert "OPENAI_API_KEY" in facts["error"]
    assert "it failed: " in lyra(*words).stdout


def test_a_fork_from_the_prompt(lyra: Any, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done = talked(lyra, monkeypatch, 'goto 4\nfork result "hail"\n', store, "talk", "--load", FILE)
    assert done.returncode == 0, done.stderr
    assert "it came to: It is hail." in done.stdout
    assert "step 4 is the first that differs" in done.stdout


def test_with_its_file_a_program_tells_its_variables_and_arguments(
    lyra: Any, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the lists, at a moment and at the prompt; without it, what the journal has. Nothing is performed."""
    before = programs.acts()
    steps = lyra("replay", store, "trip", "--steps", "--load", FILE).stdout
    assert 'programs:reserve {"room":"sea"} → ' in steps
    assert 'programs:pay {"amount":120} → 120' in steps
    assert 'programs:mail {"text":"sea"} → sea' in steps  # of the child
    assert '"amount":120} → 120' not in lyra("replay", store, "trip", "--steps").stdout
    moment = lyra.json("replay", store, "trip", "--at", "8", "--load", FILE)
    (frame,) = moment["frames"]
    assert (frame["function"], frame["variables"]["order"]) == ("booking", {"amount": 120})
    assert "frames" not in lyra.json("replay", store, "trip", "--at", "8")
    shown = talked(lyra, monkeypatch, "goto 8\nvars\n", store, "trip", "--load", FILE).stdout
    assert f"in booking, {FILE}:" in shown
    assert 'order = {"amount": 120}' in shown
    assert programs.acts() == before
    other = Path(lyra.folder, "other.py")
    other.write_text("x = 1\n")
    done = lyra("replay", store, "trip", "--at", "8", "--load", str(other))
    assert done.returncode == 0
    assert "cannot be run again" in done.stderr
    assert "arguments = " in done.stdout


def test_a_fork_of_a_program_needs_its_file(lyra: Any, store: str) -> None:
    """And says so; nothing is written."""
    done = lyra("replay", store, "trip", "--fork-at", "9")
    assert done.returncode == 2
    assert "does not know the program" in done.stderr
    assert "trip-fork-1" not in {row["pid"] for row in lyra.json("ps", store, "-a")}


def test_options_that_would_do_nothing_are_refused(lyra: Any, store: str) -> None:
    """With what is missing."""
    for words, hint in (
        (("--reply", "x"), "--fork-at"),
        (("--as", "x"), "--fork-at"),
        (("--tool-result", "1"), "--fork-at"),
        (("--model", "sim/echo"), "--fork-at"),
        (("--resume", "--prompt", "x"), "--fork-at"),
        (("--after", "2"), "--steps"),
        (("--at", "2", "--limit", "2"), "--steps"),
        (("--steps", "--process", "talk"), "--at"),
        (("--fork-at", "5", "--resume"), "one of them"),
        (("--steps", "--at", "2"), "one of them"),
    ):
        done = lyra("replay", store, "talk", *words)
        assert done.returncode == 2, words
        assert hint in done.stderr, words
        assert done.stdout == ""


def test_two_runs_are_compared(lyra: Any, store: str) -> None:
    """Exit code 0 where they are the same, 1 where they differ, with the first difference and the cost of each."""
    lyra.json("replay", store, "talk", "--fork-at", "5", "--reply", "It rains.", "--load", FILE)
    same = lyra("diff", store, "trip", "trip")
    assert (same.returncode, same.stdout.splitlines()[-1]) == (0, "the runs are the same")
    done = lyra("diff", store, "talk", "talk-fork-1")
    assert done.returncode == 1
    assert "step 5 is the first that differs:" in done.stdout
    assert "It rains." in done.stdout
    assert "steps 1 to 1 are the same" in done.stdout
    for flag in ("-a", "--all"):
        assert "steps 1 to 1 are the same" not in lyra("diff", store, "talk", "talk-fork-1", flag).stdout
    compared = lyra("diff", store, "talk", "talk-fork-1", "--json")
    assert compared.returncode == 1
    data = json.loads(compared.stdout)
    assert data["first_difference"] == 5
    assert data["left"]["cost_usd"] > data["right"]["cost_usd"] == 0


def test_stores_of_earlier_versions_can_be_looked_at(lyra: Any) -> None:
    """Also compacted ones, of which only the last state is left."""
    for version in ("v0.1.0", "v0.1.0-fixed-names", "v0.1.0-store-ids"):
        for name in ("agents", "agents-compacted", "effects", "supervisors"):
            path = str(KEPT_STORES / version / f"{name}.db")
            for row in lyra.json("ps", path, "-a")[:3]:
                shown = lyra.json("replay", path, row["pid"])
                assert shown["pid"] == row["pid"]
                assert lyra("replay", path, row["pid"], "--at", str(shown["steps"])).returncode == 0


# ---------------------------------------------------------------------- kill -9


def killed(command: list[str], env: dict[str, str], until: Any) -> None:
    """Start a command, wait for something, and end it with SIGKILL."""
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while not until() and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        _, told = process.communicate()
    assert until(), told.decode()


@pytest.mark.slow
def test_a_killed_run_is_looked_at_and_forked_and_a_killed_fork_goes_on(
    lyra: Any, acts_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every act is performed once in each run: by the killed run, by the killed fork, and after it was resumed."""
    store = str(Path(lyra.folder, "run.db"))
    lyra.env[programs.ACTS] = acts_file
    env = {**os.environ, "HOME": lyra.env["HOME"]}
    killed([sys.executable, FILE, store], env, lambda: len(programs.acts()) >= 3)
    first = sorted(programs.acts())
    assert first == ["mail-sea", "reserve-sea", "weather-Oslo"]
    run = lyra.json("replay", store, "trip")
    assert (run["state"], run["timeline"][1]["status"]) == ("running", "ok")

    fork = [*lyra.command, "replay", store, "trip", "--fork-at", "2", "--tool-result", '{"room": "sky"}']
    killed(
        [*fork, "--load", FILE], {**env, **lyra.env, programs.PAUSE: "1"}, lambda: programs.PAUSED in programs.acts()
    )
    assert sorted(programs.acts()) == sorted([*first, "mail-sky", programs.PAUSED])
    page = lyra.json("replay", store, "trip-fork-1")
    assert page["fork"] == {"of": "trip", "at": 2}

    monkeypatch.setenv("HOME", lyra.env["HOME"])  # where the key is that the store is signed with

    async def order() -> None:
        async with Kernel(store) as kernel:  # without its programs: nothing goes on
            await kernel.send("trip-fork-1", {"amount": 5})

    asyncio.run(order())
    facts = lyra.json("replay", store, "trip-fork-1", "--resume", "--load", FILE)
    assert facts["answer"] == {"room": "sky", "mailed": "sky", "paid": 5, "timed": True}
    assert sorted(programs.acts()) == sorted([*first, "mail-sky", programs.PAUSED, "pay-5"])
    assert lyra.json("replay", store, "trip")["steps"] == run["steps"]


# ---------------------------------------------------------------------- a terminal


SLOW = """
import asyncio
from lyra import Kernel

async def work(number: int) -> int:
    await asyncio.sleep(0 if number == 1 else 60)
    return number

async def job(ctx, text):
    first = await ctx.do(work, 1)
    await ctx.sleep(3600)
    return await ctx.do(work, 2)

async def main(store):
    async with Kernel(store, programs=[job]) as kernel:
        kernel.spawn(job, "long " * 60, pid="job")
        await asyncio.sleep(0.2)
        await kernel.durable()
"""


class Terminal:
    """A command in a terminal of so many columns."""

    def __init__(self, command: list[str], env: dict[str, str], columns: int) -> None:
        self.text = ""
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            own = {name: value for name, value in env.items() if name not in ("COLUMNS", "LINES")}  # of the tests' run
            os.execvpe(command[0], command, {**own, "TERM": "xterm"})

    def until(self, text: str, *, after: int = 0) -> str:
        deadline = time.monotonic() + 60
        while text not in self.text[after:]:
            assert time.monotonic() < deadline, self.text
            if select.select([self._fd], [], [], 0.05)[0]:
                self.text += os.read(self._fd, 65536).decode()
        return self.text[after:]

    def type(self, text: str, until: str) -> str:
        after = len(self.text)
        os.write(self._fd, text.encode())
        return self.until(until, after=after)

    def end(self) -> int:
        os.write(self._fd, b"quit\n")
        with suppress(OSError):
            while os.read(self._fd, 65536):
                pass
        os.close(self._fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.mark.slow
def test_in_a_terminal_lines_fit_and_ctrl_c_stops_a_fork_and_not_the_prompt(lyra: Any) -> None:
    """The fork stays in the store, and the prompt stands where it stood."""
    file, store = Path(lyra.folder, "job.py"), str(Path(lyra.folder, "run.db"))
    file.write_text(SLOW)
    env = {**os.environ, "PYTHONPATH": f"{lyra.folder}:{PYTHONPATH}", "HOME": lyra.env["HOME"]}
    start = f"import job, asyncio; asyncio.run(job.main({store!r}))"
    subprocess.run([sys.executable, "-c", start], env=env, check=True, timeout=60)
    terminal = Terminal([*lyra.command, "replay", store, "job", "--load", str(file)], {**env, **lyra.env}, 40)
    terminal.until("replay> ")
    shown = terminal.type("steps\n", "replay> ")
    lines = [line.rstrip("\r") for line in shown.split("\n")[1:-1]]
    assert len(lines) == 3
    assert [line for line in lines if len(line) > 40] == []
    assert lines[0].endswith("…")
    terminal.type("goto 1\ndetail\n", "long " * 50)  # whole values are not cut
    terminal.type("goto 3\n", ">   3 job")
    terminal.type("fork\n", "process job-fork-1 runs")
    stopped = terminal.type("\x03", "replay> ")
    assert "stopped" in stopped
    assert ">   3 job" in terminal.type("back 0\n", ">   3 job")
    assert terminal.end() == 0
    assert "job-fork-1" in {row["pid"] for row in lyra.json("ps", store, "-a")}
    piped = lyra("replay", store, "job", "--steps").stdout
    assert len(piped.splitlines()[0]) > 100
