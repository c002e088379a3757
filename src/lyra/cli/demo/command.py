"""`lyra demo`: a small team at work, killed in the middle with SIGKILL, and resumed.

Runs a kernel in its own OS process (`team`) on a SQLite store, shows what happens, kills that process while calls
are in flight, reads the journal it left, and starts a second one that continues. `DemoScreen` shows the processes as
`lyra tree` does, with the last rows of the journal; where there is no terminal, a line for each row. At the end the
demo counts (`report`): what the service performed by key, what the journal says was finished, what the supervisors
restarted. No key, no server, no network.

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
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from lyra.cli.app import CliCommand, json_option
from lyra.cli.arguments import check_folder
from lyra.cli.render import document, note, wants_colour
from lyra.core.budgets.money import Money
from lyra.core.clock import SystemClock
from lyra.core.event import Event
from lyra.errors import ConfigError, InternalError, error_from_data
from lyra.observe.history.processes import ProcessTable

if TYPE_CHECKING:
    from rich.console import Console

    from lyra.cli.demo.report import Evidence
    from lyra.cli.views.processes import Walked


_PACE: Final = 0.65  # about ten seconds in all
_FRAME_S: Final = 0.08
_PATIENCE_S: Final = 60.0  # a demo that takes longer than this is broken
_LINE_BYTES_MAX: Final = 1 << 20
_TAIL_ROWS: Final = 8


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
    without = {"--ask": ask, "--fast": fast}
    needing = {"--port": port is not None, "--no-open": no_open}
    for option, is_given in (without if web else needing).items():
        if is_given:
            raise ConfigError(f"{option} {'does not go with' if web else 'needs'} --web", key=option)
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
        self.store = store
        self.ledger = os.path.join(folder, "ledger.jsonl")
        self.errors = os.path.join(folder, "stderr.txt")
        self.seed = seed
        self.pace = pace
        self.ask = ask
        self.clock = SystemClock()
        self.began = self.clock.monotonic()
        self.table = ProcessTable()
        self.calls: Counter[str] = Counter()
        self.screen = DemoScreen(self.table, self.measure_elapsed, _console(quiet=quiet), quiet=quiet)
        self.worker: KernelProcess | None = None
        self.result: dict[str, Any] | None = None
        self.evidence: Evidence | None = None

    def measure_elapsed(self) -> float:
        return self.clock.monotonic() - self.began

    def close(self) -> None:
        if self.worker is not None:
            self.worker.close()
        self.screen.close()

    # ------------------------------------------------------------ the play
    def run(self) -> dict[str, Any]:
        self.screen.head("a supervised team at work")
        first = self._start(hold=True)
        self._watch(first, until_held=True)
        self._after_kill(first, first.kill())
        self.screen.head("a second kernel goes on")
        self._mark_live("replaying")
        self._watch(self._start(hold=False), until_held=False)
        self.screen.head("done")
        return self._report()

    def _start(self, *, hold: bool) -> KernelProcess:
        if self.worker is not None:
            self.worker.close()
        settings = {"store": self.store, "ledger": self.ledger, "seed": self.seed, "pace": self.pace, "hold": hold}
        self.worker = KernelProcess(settings, self.errors)
        return self.worker

    def _watch(self, worker: KernelProcess, *, until_held: bool) -> None:
        """Show what a worker does until it ends, or until calls have been in flight for a moment."""
        kill_at: float | None = None
        questions: list[tuple[float, Mapping[str, Any]]] = []
        draw_at = 0.0
        while not worker.ended:
            for line in worker.lines(_FRAME_S):
                if "event" in line:
                    event = Event(**line["event"])
                    self.screen.show(event)
                    if event.kind == "interrupt.created":
                        questions.append((self.measure_elapsed() + (0.0 if self.ask else 1.5 * self.pace), event.data))
                elif "call" in line:
                    self.calls[line["call"]] += 1
                    if line["call"] == "held" and kill_at is None:
                        kill_at = self.measure_elapsed() + 0.05 + 0.4 * self.pace
                elif "result" in line:
                    self.result = line["result"]
                else:
                    raise error_from_data(line["error"])
            now = self.measure_elapsed()
            if now >= draw_at:
                self.screen.draw()
                draw_at = now + _FRAME_S
            if until_held and kill_at is not None and now >= kill_at:
                return
            while questions and now >= questions[0][0]:
                question = questions.pop(0)[1]
                approved = not self.ask or self.screen.confirm(str(question["question"]))
                worker.answer(question["id"], approved=approved)
            if now > _PATIENCE_S / min(1.0, 1.0 / max(self.pace, 1.0)):
                raise InternalError("the demo's kernel did not stop in time")
        if until_held or self.result is None:
            raise InternalError(f"the demo's kernel ended before its time: {worker.last_words()}")

    def _after_kill(self, worker: KernelProcess, signal: int) -> None:
        """Read the file that the killed process left, and show what it holds."""
        from lyra.cli.demo.report import Evidence, find_finished, ledger, read_journal

        while not worker.ended:
            worker.lines(1.0)  # what was still in the pipe: the journal knows better
        journal = read_journal(self.store)
        for event in journal:
            if event.seq > self.table.seq:  # durable, and not yet told when the kill came
                self.screen.show(event)
        self.evidence = Evidence(signal, journal[-1].seq, find_finished(journal), ledger(self.ledger))
        self._mark_live("killed")
        self.screen.head(
            f"kill -9 {worker.pid}: the journal holds {self.evidence.seq} rows, "
            f"{len(self.evidence.finished)} finished effects"
        )
        with selectors.DefaultSelector() as nothing:
            nothing.select(1.8 * self.pace)

    def _mark_live(self, state: str) -> None:
        for record in self.table.records.values():
            if record.is_live:
                record.state = state

    def _report(self) -> dict[str, Any]:
        from lyra.cli.demo.report import ledger, read_journal, report
        from lyra.cli.demo.team import LEAD_BUDGET

        assert self.evidence is not None
        counted = report(
            self.evidence,
            read_journal(self.store),
            ledger(self.ledger),
            self.calls,
            result=self.result,
            limit=Money.parse(LEAD_BUDGET),
        )
        return {**counted, "seed": self.seed, "seconds": round(self.measure_elapsed(), 2)}


def _print(report: dict[str, Any]) -> None:
    from lyra.cli.demo.report import lines

    click.echo()
    for label, text in lines(report):
        shown = f"{label:<8}"
        click.echo(f"{click.style(shown, bold=True) if wants_colour(sys.stdout) else shown}  {text}")


# ---------------------------------------------------------------- screen


def _console(*, quiet: bool) -> Console | None:
    """Return the terminal to draw on; None where there is none."""
    if quiet or not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return None
    from rich.console import Console

    return Console(highlight=False, emoji=False, markup=False)


class DemoScreen:
    """Show the processes as a tree above the last rows of the journal. Without a console, print a line for each row."""

    def __init__(
        self, table: ProcessTable, elapsed: Callable[[], float], console: Console | None, *, quiet: bool = False
    ) -> None:
        self._table = table
        self._elapsed = elapsed
        self._console = console
        self._quiet = quiet
        self._head = ""
        self._tail: deque[str] = deque(maxlen=_TAIL_ROWS)
        self._open()

    def _open(self) -> None:
        if self._console is not None:
            from rich.live import Live

            self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")
            self._live.start()

    def close(self) -> None:
        if self._console is not None:
            self.draw()
            self._live.stop()

    def head(self, sentence: str) -> None:
        self._head = sentence
        self._print(f"== {sentence}")
        self.draw()

    def show(self, event: Event) -> None:
        """Take an Event into the table, and print it if there is a sentence about it."""
        self._table.add(event)
        sentence = describe_event(event)
        if sentence and event.pid in self._table.records:
            name = self._table.records[event.pid].name or event.pid
            self._tail.append(f"{event.seq or '':>4}  {event.kind:<20} {name:<10} {sentence}")
            self._print(self._tail[-1])

    def _print(self, line: str) -> None:
        if self._console is None and not self._quiet:
            click.echo(f"{self._elapsed():6.2f} s  {line}")

    def confirm(self, question: str) -> bool:
        """Ask the person, with the terminal left to the question."""
        self.close()
        approved = click.confirm(question, err=True)
        self._open()
        return approved

    def draw(self) -> None:
        if self._console is not None:
            from rich.text import Text

            text = Text("\n".join(self.lines(self._console.height)), no_wrap=True, overflow="ellipsis")
            self._live.update(text, refresh=True)

    def lines(self, height: int) -> list[str]:
        from lyra.cli.views.processes import tree_lines

        above = [f"lyra demo · {self._elapsed():.1f} s · {self._head}", "", *tree_lines(newest_in_place(self._table))]
        fits = max(3, min(_TAIL_ROWS, height - len(above) - 2))
        return [*above, "", *list(self._tail)[-fits:]]


def newest_in_place(table: ProcessTable) -> Walked:
    """Return each process with its depth; one that was started again stands where the one before it stood."""
    places: dict[str, tuple[str, ...]] = {}
    newest = {}
    for _, record in table.walk():
        place = places[record.pid] = (*places.get(record.parent, ()), record.name or record.pid)
        newest[place] = record
    return [(len(place) - 1, record) for place, record in newest.items()]


def describe_event(event: Event) -> str:
    """Describe an Event in a few words; empty for one that is not worth a line."""
    data = event.data
    if event.kind in ("effect.finished", "message.sent") and (data.get("form") or "do") != "do":
        return ""  # links, readings, and what supervisors tell each other
    if event.kind not in _SENTENCES:
        return ""
    error = data.get("error") or {}
    return str(error["message"] if "message" in error else _SENTENCES[event.kind](data))


_SENTENCES: Final[dict[str, Callable[[Mapping[str, Any]], Any]]] = {
    "process.created": lambda data: f"program {data['program'].rpartition(':')[2]}",
    "process.terminated": lambda data: data["reason"],
    "effect.started": lambda data: data["name"],
    "effect.finished": lambda data: f"value {_words(data.get('value'))}",
    "message.sent": lambda data: f"{data.get('sender', '')}: {_words(data.get('message'))}",
    "interrupt.created": lambda data: data["question"],
    "interrupt.resolved": lambda data: f"the answer is {_words(bool((data.get('response') or {}).get('approved')))}",
    "child.restarting": lambda data: f"{data['id']} {'crashed' if data['reason'] == 'error' else 'ended'}",
    "supervisor.gave_up": lambda data: f"{data['id']} crashed once too often",
}


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_words(item)}" for key, item in value.items())
    return "nothing" if value is None else {"True": "yes", "False": "no"}.get(str(value), str(value))
