"""Kill, resume, compare: a scene is run by `vega run` in a process of its own, killed at a random moment or when it has
made some requests, gone on with by `vega resume`, killed again, until it comes to its end.

Judged by the provider and by the printed output: the output is that of an undisturbed run; a call whose end was in
the journal when its process was killed is never made again; one that was in flight is made again under the same key
with the same question; and there are as many keys as there were calls in the undisturbed run. A session that ends at
its budget ends earlier where calls were cut off, as they stay charged: it prints no more than the undisturbed one, and
the provider never bills more for it than its limit, over all lives. In every other run the processes are saved at
almost each effect, and not as seldom as usual.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final, NamedTuple
from unittest import mock

import httpx2  # noqa: F401 - imported once here, not in every life

import lyra.models.providers.anthropic
import lyra.vega.durable.durable_run
import lyra.vega.runtime.handlers  # noqa: F401
from lyra.core.ids import ProcessRandom, make_random
from lyra.store.space import Space
from lyra.vega.durable import durable_run as saving
from lyra.vega.durable.durable_run import answer_note
from lyra.vega.durable.runs import DurableRun, Runs
from verify.crash.vega.provider import Asked, Provider, billed
from verify.crash.vega.scenes import LIMITS, SCENES

__all__ = ["ID", "Books", "Result", "Scene", "calm", "is_within", "run"]

# What a life with an agent imports on its way, the list of prices above all: half a second of each life otherwise.
_IMPORTED: Final = (
    "anyio._backends._asyncio",
    "anyio.streams.tls",
    "genai_prices.data",
    "genai_prices.data_snapshot",
    "httpcore2",
    "lyra.agents.session.agent_process",
    "lyra.agents.turn.loop",
    "lyra.agents.turn.program",
    "lyra.cli.vega.group",
    "lyra.cli.vega.run",
    "lyra.cli.vega.runs",
    "lyra.cli.vega.start",
    "lyra.config.hook_settings",
    "lyra.config.settings",
    "lyra.vega.compiler.compiler",
)
_LIFE_S_MAX: Final = 60.0
_KILLS_A_RUN: Final = 6
_ASKED_MAX: Final = 6  # requests of one life that is killed in the middle of them
ID: Final = "scene"


class Result(NamedTuple):
    """What came of some kills; `again` are calls that were in flight when their process was killed."""

    kills: int
    runs: int
    calls: int
    again: int
    failures: list[str]


class Calm(NamedTuple):
    """What an undisturbed run of a scene gives."""

    output: str
    calls: int
    seconds: float


def run(n: int, seed: int, *, progress: Callable[[int, int], None] | None = None) -> Result:
    """Kill `n` times, scene after scene."""
    rng = make_random(seed)
    failures: list[str] = []
    kills = runs = calls = again = 0
    with Provider() as provider:
        peace = {name: calm(name, provider) for name in SCENES}
        while kills < n and len(failures) < 5:
            for number, name in enumerate(SCENES):
                is_odd = (runs // len(SCENES) + number) % 2  # each scene both ways, in turns
                disturbed = _disturbed(name, peace[name], provider, rng, saves_often=bool(is_odd))
                runs += 1
                kills, calls, again = kills + disturbed.kills, calls + disturbed.calls, again + disturbed.again
                failures += disturbed.failures
                if progress is not None:
                    progress(min(kills, n), n)
                if kills >= n:
                    break
    return Result(kills, runs, calls, again, failures)


def calm(name: str, provider: Provider) -> Calm:
    """The scene in peace."""
    with tempfile.TemporaryDirectory(prefix="lyra-vega-crash-") as folder:
        scene = Scene(Path(folder), SCENES[name], provider)
        began = time.monotonic()
        status = scene.life(None)
        if status != 0:
            raise AssertionError(f"{name} in peace ended with {status}: {scene.errors}")
        return Calm(scene.output, len({asked.key for asked in provider.take()}), time.monotonic() - began)


def _disturbed(name: str, peace: Calm, provider: Provider, rng: ProcessRandom, *, saves_often: bool) -> Result:
    with tempfile.TemporaryDirectory(prefix="lyra-vega-crash-") as folder:
        scene = Scene(Path(folder), SCENES[name], provider, saves_often=saves_often)
        books = Books()
        kills = 0
        while True:
            last = kills >= _KILLS_A_RUN
            if last:
                status = scene.life(None)
            elif rng.uniform(0.0, 1.0) < 0.5:
                status = scene.life(rng.uniform(0.0, 1.0) ** 2 * peace.seconds)
            else:  # while calls are under way, if it comes to so many
                most = rng.randint(1, _ASKED_MAX)
                status = scene.life(None, kill_when=partial(_has_asked, provider, most))
            books.heard(provider.take())
            if status is not None:
                break
            kills += 1
            books.killed(scene.db)
        failures = [f"{name}: {failure}" for failure in books.failures]
        if status != 0:
            failures.append(f"{name}: ended with {status}: {scene.errors}")
        elif name in LIMITS:
            failures += [f"{name}: {failure}" for failure in books.over_budget(LIMITS[name])]
            if not is_within(scene.output, peace.output, LIMITS[name]):
                failures.append(f"{name}: printed\n{scene.output}which is more than\n{peace.output}")
        elif scene.output != peace.output:
            failures.append(f"{name}: printed\n{scene.output}instead of\n{peace.output}")
        elif len(books.questions) != peace.calls:
            failures.append(f"{name}: {len(books.questions)} keys for {peace.calls} calls")
        return Result(kills, 1, len(books.questions), books.again, failures)


def is_within(output: str, peace: str, limit: int) -> bool:
    """Whether a run with limited sessions printed a part of what it prints in peace, in the same order, no session
    missing; figures of what was used are within the limit. A conversation (its length is in brackets behind an answer)
    is not longer than in peace; it may be shorter, since a session that ended sooner leaves less of it to the next."""
    lines, figures = _without_figures(output)
    rest = iter(_without_figures(peace)[0])
    return (
        all(any(text == line and length <= most for line, most in rest) for text, length in lines)
        and output.count("over\n") == peace.count("over\n")
        and all(round(1_000_000 * figure) <= limit for figure in figures)
    )


def _without_figures(output: str) -> tuple[list[tuple[str, int]], list[float]]:
    """The lines with the lengths of conversations behind them, and the figures."""
    lines = output.splitlines()
    figures = [line for line in lines if "." in line and line.replace(".", "").isdigit()]
    matches = [re.fullmatch(r"(.*?)(?: \((\d+)\))?", line) for line in lines if line not in figures]
    return [(match[1], int(match[2] or 0)) for match in matches if match], [float(line) for line in figures]


def _has_asked(provider: Provider, count: int) -> bool:
    return provider.asked >= count


class Books:
    """What the provider was asked, held against what the journal had."""

    def __init__(self) -> None:
        self.questions: dict[str, str] = {}
        self.again = 0
        self.failures: list[str] = []
        self._over: set[str] = set()
        self._billed: dict[str, int] = {}  # micro-dollars, by the number of the session

    def over_budget(self, limit: int) -> list[str]:
        """Sessions for which the provider bills more than their limit, counting every request of every life."""
        return [
            f"the provider bills {bill} for session {session}, the budget is {limit}"
            for session, bill in self._billed.items()
            if bill > limit
        ]

    def heard(self, asked: list[Asked]) -> None:
        self.again += sum(question.key in self.questions for question in asked)
        for question in asked:
            if question.question.startswith("["):
                bill, text = billed(question.question)
                self._billed[text[-1:]] = self._billed.get(text[-1:], 0) + bill
            if not question.key:
                self.failures.append(f"a request without a key: {question.question}")
            if question.key in self._over:
                self.failures.append(f"{question.key} was over and is asked again: {question.question}")
            before = self.questions.setdefault(question.key, question.question)
            if before != question.question:
                self.failures.append(f"{question.key} asks {question.question} where it asked {before}")

    def killed(self, db: Path) -> None:
        """Which calls the journal has the end of."""
        if not db.exists():
            return
        with Runs(db) as runs:
            unfinished = [run for run in runs if run.id == ID]
            for run in unfinished:
                over = _over(run)
                self._over.update(key for key in self.questions if key.startswith(over))


def _over(run: DurableRun) -> tuple[str, ...]:
    """How the keys begin of calls that the journal has the end of: all of a process that ended, some of the others."""
    lines = []
    for pid, state in run.processes.items():
        line = f"{run.began['nonce']}:{run.line(pid)}:"
        if state.exit is not None:
            lines.append(line)
        else:
            lines += [f"{line}{key}:" for key, entry in state.effects.items() if entry.done]
    return tuple(lines)


class Scene:
    """One run of a scene: its folder, its store and its lives."""

    def __init__(self, folder: Path, source: str, provider: Provider, *, saves_often: bool = False) -> None:
        self.folder = folder
        self.saves_often = saves_often
        self.db = folder / "run.db"
        self.file = folder / "scene.vega"
        self.file.write_text(source)
        self._out = folder / "out"
        self._err = folder / "err"
        self._env = {
            "ANTHROPIC_BASE_URL": provider.url,
            "ANTHROPIC_API_KEY": "not a real key",
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder),
        }
        self._asks = "AskUser" in source

    @property
    def output(self) -> str:
        return self._out.read_text() if self._out.exists() else ""

    @property
    def errors(self) -> str:
        return self._err.read_text()[-2000:]

    def life(
        self,
        kill_after_s: float | None,
        *options: str,
        kill_at_row: int | None = None,
        kill_when: Callable[[], bool] = lambda: False,
    ) -> int | None:
        """One life: its exit code, or None when it was killed: after so long, when its journal has so many rows, or as
        soon as `kill_when` says so. `options` are those of `vega resume`."""
        begun = self.has_begun()
        words = ["resume", ID, *options] if begun else ["run", str(self.file), "--run-id", ID]
        pid = self._fork([*words, "--db", str(self.db)])
        due = time.monotonic() + (_LIFE_S_MAX if kill_after_s is None else kill_after_s)
        looked = 0.0
        journal: Space | None = None
        try:
            while True:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    return os.waitstatus_to_exitcode(status)
                now = time.monotonic()
                has_rows = kill_at_row is not None and journal is not None and journal.last_seq() >= kill_at_row
                is_time = has_rows or kill_when()
                if now >= due or is_time:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                    return None if is_time or kill_after_s is not None else 1000
                if now - looked > 0.05:
                    looked = now
                    if self._asks:
                        self._answer()
                    if kill_at_row is not None and journal is None and self.has_begun():
                        journal = Space(str(self.db), ID, make=False)
                time.sleep(0.001)
        finally:
            if journal is not None:
                journal.close()

    def rows(self) -> int:
        """How many rows the run's journal has."""
        if not self.has_begun():
            return 0
        space = Space(str(self.db), ID, make=False)
        try:
            return space.last_seq()
        finally:
            space.close()

    def has_begun(self) -> bool:
        if not self.db.exists():
            return False
        with Runs(self.db) as runs:
            return any(run.id == ID for run in runs)

    def _answer(self) -> None:
        """What a person says to the questions that wait."""
        if not self.has_begun():
            return
        with mock.patch.dict(os.environ, self._env), Runs(self.db) as runs:  # signed with the key of the scene's user
            run = runs[ID]
            told = {number for number, _ in run.space.notes()}
            for question in run.questions() if not told else ():
                words = question.question.rstrip("?").split()
                run.space.leave_note(answer_note(question.id, {"text": f"green {words[-1]}"}))

    def _fork(self, words: list[str]) -> int:
        """`vega` in a process of its own, which has everything imported already."""
        vega = _command()
        pid = os.fork()
        if pid:
            return pid
        code = 70
        try:
            os.environ.update(self._env)
            os.chdir(self.folder)
            sys.stdout, sys.stderr = self._out.open("w", buffering=1), self._err.open("w")
            if self.saves_often:
                saving.EFFECTS, saving.LOOK_EVERY = 2, 1  # type: ignore[misc]  # of this process only
            code = vega(words)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


@cache
def _command() -> Callable[[list[str]], int]:
    """The installed command `vega`, with what its commands import."""
    (script,) = entry_points(group="console_scripts", name="vega")
    for module in _IMPORTED:
        import_module(module)
    command: Callable[[list[str]], int] = script.load()
    return command
