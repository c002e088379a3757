"""`lyra demo`: a small team at work, killed in the middle with SIGKILL, and resumed.

Runs a kernel in an OS process of its own (`team`) on a SQLite store, shows what happens (`board`),
kills that process while calls are in flight, reads the journal it left, and starts a second one that goes
on. At the end it counts (`report`): what the service performed by key, what the journal says was finished, what
the supervisors restarted. No key, no server, no network.

This module is the one home of subprocesses in the command line.
"""

from __future__ import annotations

import json
import math
import os
import selectors
import shutil
import subprocess  # noqa: TID251 - a real kill -9 needs a real process; this module is its home
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from lyra.cli.app import CliCommand, json_option
from lyra.cli.arguments import check_folder
from lyra.cli.render import document, note, wants_colour
from lyra.core.budgets.money import Money
from lyra.core.clock import SystemClock
from lyra.errors import ConfigError, InternalError, error_from_data

if TYPE_CHECKING:
    from lyra.cli.demo.report import Evidence


_PACE: Final = 0.65  # about ten seconds in all
_FRAME_S: Final = 0.08
_PATIENCE_S: Final = 60.0  # a demo that takes longer than this is broken
_LINE_BYTES_MAX: Final = 1 << 20


@click.command(cls=CliCommand)
@json_option
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the simulated service's failures.")
@click.option("--speed", type=click.FloatRange(0.1, 100.0), default=1.0, show_default=True, help="Speed factor.")
@click.option("--fast", is_flag=True, help="Run without pauses.")
@click.option(
    "--ask", is_flag=True, help="Show the team's question and wait for your answer, instead of answering yes."
)
@click.option("--store", "path", type=click.Path(), metavar="PATH", help="Keep the store in a new file here.")
@click.option("--keep", is_flag=True, help="Keep the temporary store and print its path.")
@click.option("--web", is_flag=True, help="Serve a team at work on this machine, and open its page in the browser.")
@click.option("--port", type=click.IntRange(0, 65535), metavar="N", help="With --web: the port; 0, the default: any.")
@click.option("--no-open", is_flag=True, help="With --web: print the address, and open no page.")
def demo(
    *,
    as_json: bool,
    seed: int,
    speed: float,
    fast: bool,
    ask: bool,
    path: str | None,
    keep: bool,
    web: bool,
    port: int | None,
    no_open: bool,
) -> None:
    """Show a supervised team of processes survive crashes and kill -9.

    A lead and five reviewers call a flaky service, spend from nested budgets and ask a question. Supervisors
    start again what crashes. The kernel is killed in the middle and a second one goes on from the journal.

    With --web another team works until Ctrl-C, and is watched in the browser.
    """
    if math.isnan(speed):  # which is inside every range
        raise ConfigError("--speed is not a number", hint="such as --speed 2")
    _check_together(web, {"--ask": ask, "--fast": fast}, {"--port": port is not None, "--no-open": no_open})
    if path is not None and ("://" in path or os.path.exists(path)):
        raise ConfigError(f"--store makes a new file, and {path} is not one", hint="name a file that is not there yet")
    if path is not None:
        check_folder(path, "--store")
    with _folder(keep=keep) as folder:
        target = path or os.path.join(folder, "demo.db")
        if web:
            from lyra.cli.demo.web.show import WebDemo, run_web_demo

            run_web_demo(WebDemo(target, Path(folder), port or 0, not no_open, as_json, seed, 1.0 / speed))
            if keep and not path:
                note(f"the store is {target}")
            return
        show = Demo(target, folder, seed=seed, pace=0.0 if fast else _PACE / speed, ask=ask, quiet=as_json)
        try:
            report = show.run()
        finally:
            show.close()
        if path or keep:
            report["store"] = target
        if as_json:
            document(report)
        else:
            _print(report)
    if report["problems"]:
        raise InternalError("; ".join(report["problems"]))


def _check_together(web: bool, without: dict[str, bool], needing: dict[str, bool]) -> None:
    """Refuse an option that would do nothing: one that --web has no use for, or one that needs it."""
    for option, is_given in (without if web else needing).items():
        if is_given:
            raise ConfigError(f"{option} {'does not go with' if web else 'needs'} --web", key=option)


@contextmanager
def _folder(*, keep: bool) -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="lyra-demo-")
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


class KernelProcess:
    """One kernel in one OS process, and the lines it writes."""

    def __init__(self, settings: dict[str, Any], errors: str) -> None:
        command = [sys.executable, "-m", "lyra.cli.demo.team", json.dumps(settings)]
        self._errors = errors
        with open(errors, "wb") as file:  # not the terminal: the table is there
            self._process = subprocess.Popen(  # noqa: S603 - our own module, no shell
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, bufsize=0
            )
        assert self._process.stdout is not None
        self._output = self._process.stdout
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._output, selectors.EVENT_READ)
        self._rest = b""
        self.pid = self._process.pid
        self.ended = False

    def lines(self, wait_s: float) -> list[dict[str, Any]]:
        """Return what it wrote, waiting at most so long for the first of it."""
        if not self._selector.select(wait_s):
            return []
        data = os.read(self._output.fileno(), _LINE_BYTES_MAX)
        if not data:
            self.ended = True
            return []
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in whole]

    def answer(self, interrupt_id: str, *, approved: bool) -> None:
        assert self._process.stdin is not None
        answer = {"id": interrupt_id, "approved": approved, "text": "yes" if approved else "no"}
        self._process.stdin.write(json.dumps(answer).encode() + b"\n")

    def kill(self) -> int:
        """SIGKILL: no handler, no clean-up, no goodbye. Gives the signal that ended it."""
        self._process.kill()
        return -self._process.wait()

    def last_words(self) -> str:
        with open(self._errors, encoding="utf-8", errors="replace") as file:
            return "; ".join(file.read().splitlines()[-1:])

    def close(self) -> None:
        if self._process.poll() is None:
            self.kill()
        self._selector.close()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class Demo:
    """One run, from the first kernel to the report."""

    def __init__(self, store: str, folder: str, *, seed: int, pace: float, ask: bool, quiet: bool) -> None:
        from lyra.cli.demo.board import Board

        self.store = store
        self.ledger = os.path.join(folder, "ledger.jsonl")
        self.errors = os.path.join(folder, "stderr.txt")
        self.seed = seed
        self.pace = pace
        self.ask = ask
        self.clock = SystemClock()
        self.began = self.clock.monotonic()
        self.board = Board()
        self.view = self._view(quiet=quiet)
        self.worker: KernelProcess | None = None
        self.result: dict[str, Any] | None = None
        self.evidence: Evidence | None = None

    def _view(self, *, quiet: bool) -> Any:
        from lyra.cli.demo.board import LineView, LiveView, QuietView

        if quiet:
            return QuietView()
        if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
            return LineView(self.elapsed)
        from rich.console import Console

        return LiveView(Console(highlight=False, emoji=False), self.elapsed)

    def elapsed(self) -> float:
        return self.clock.monotonic() - self.began

    def close(self) -> None:
        if self.worker is not None:
            self.worker.close()
        self.view.close(self.board)

    # ------------------------------------------------------------ the play
    def run(self) -> dict[str, Any]:
        self._phase("a supervised team at work")
        first = self._start(hold=True)
        self._watch(first, until_held=True)
        self._after_kill(first, first.kill())
        self._phase("a second kernel goes on")
        self.board.resumed()
        self._watch(self._start(hold=False), until_held=False)
        self._phase("done")
        return self._report()

    def _phase(self, sentence: str) -> None:
        self.board.phase = sentence
        self.view.say(sentence, loud=True)
        self.view.draw(self.board)

    def _start(self, *, hold: bool) -> KernelProcess:
        if self.worker is not None:
            self.worker.close()
        settings = {
            "store": self.store,
            "ledger": self.ledger,
            "seed": self.seed,
            "pace": self.pace,
            "hold": hold,
        }
        self.worker = KernelProcess(settings, self.errors)
        return self.worker

    def _watch(self, worker: KernelProcess, *, until_held: bool) -> None:
        """Show what a worker does until it ends, or until calls have been in flight for a moment."""
        kill_at: float | None = None
        answers: list[tuple[float, str]] = []
        draw_at = 0.0
        while not worker.ended:
            for line in worker.lines(_FRAME_S):
                if "event" in line:
                    self._event(line["event"], answers)
                elif "call" in line:
                    self.board.call(line["call"])
                    if line["call"]["what"] == "held" and kill_at is None:
                        kill_at = self.elapsed() + 0.05 + 0.4 * self.pace
                elif "result" in line:
                    self.result = line["result"]
                else:
                    raise error_from_data(line["error"])
            now = self.elapsed()
            if now >= draw_at:
                self.view.draw(self.board)
                draw_at = now + _FRAME_S
            if until_held and kill_at is not None and now >= kill_at:
                return
            while answers and now >= answers[0][0]:
                self._answer(worker, answers.pop(0)[1])
            if now > _PATIENCE_S / min(1.0, 1.0 / max(self.pace, 1.0)):
                raise InternalError("the demo's kernel did not stop in time")
        if until_held or self.result is None:
            raise InternalError(f"the demo's kernel ended before its time: {worker.last_words()}")

    def _event(self, event: dict[str, Any], answers: list[tuple[float, str]]) -> None:
        sentence = self.board.event(event)
        self.view.told(self.board, event, sentence)
        if event["kind"] == "interrupt.created":
            answers.append((self.elapsed() + (0.0 if self.ask else 1.5 * self.pace), event["data"]["id"]))

    def _answer(self, worker: KernelProcess, interrupt_id: str) -> None:
        approved = True
        if self.ask:
            from lyra.cli.demo.board import LiveView

            live = isinstance(self.view, LiveView)
            if live:
                self.view.pause(self.board)
            asking = next(row.doing for row in self.board.rows.values() if row.doing.startswith("asks: "))
            approved = click.confirm(asking.removeprefix("asks: "), err=True)
            if live:
                self.view.go_on()
        worker.answer(interrupt_id, approved=approved)

    def _after_kill(self, worker: KernelProcess, signal: int) -> None:
        """The process is gone. What is left is the file: read it, and show what it holds."""
        from lyra.cli.demo.report import Evidence, facts, finished, ledger

        while not worker.ended:
            worker.lines(1.0)  # what was still in the pipe: the journal knows better
        journal = facts(self.store)
        for fact in journal:
            if fact.seq > self.board.last_seq:  # durable, and not yet told when the kill came
                event = fact._asdict()
                self.view.told(self.board, event, self.board.event(event))
        self.evidence = Evidence(signal, journal[-1].seq, finished(journal), ledger(self.ledger))
        self.board.killed()
        self.board.banner = (
            f"kill -9 {worker.pid}: the journal holds {self.evidence.seq} rows, "
            f"{len(self.evidence.finished)} finished effects"
        )
        self._phase("the kernel is gone")
        self.view.say(self.board.banner, loud=True)
        self._pause(1.8 * self.pace)
        self.board.banner = ""

    def _pause(self, seconds: float) -> None:
        with selectors.DefaultSelector() as nothing:
            until = self.elapsed() + seconds
            while (left := until - self.elapsed()) > 0:
                nothing.select(min(left, _FRAME_S))
                self.view.draw(self.board)

    def _report(self) -> dict[str, Any]:
        from lyra.cli.demo.report import facts, ledger, report
        from lyra.cli.demo.team import LEAD_BUDGET

        assert self.evidence is not None
        counted = report(
            self.evidence,
            facts(self.store),
            ledger(self.ledger),
            self.board.calls,
            result=self.result,
            limit=Money.parse(LEAD_BUDGET),
        )
        return {**counted, "seed": self.seed, "seconds": round(self.elapsed(), 2)}


def _print(report: dict[str, Any]) -> None:
    from lyra.cli.demo.report import lines

    click.echo()
    for label, text in lines(report):
        shown = f"{label:<8}"
        click.echo(f"{click.style(shown, bold=True) if wants_colour(sys.stdout) else shown}  {text}")
