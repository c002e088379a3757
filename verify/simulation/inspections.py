"""Looking at supervisors and subsystems of a live kernel: what must hold between two steps, when idle, and at rest.

`inspect` is asked at the start of every round, `inspect_idle` when nothing is ready, `inspect_rest` when all is over.
`Suspects` remembers what looked wrong: some things may be so for a moment (a child has ended and its supervisor has not
looked yet), and are a finding only when they stay. `same_as_journal` folds the rows anew and compares. Like
`invariants`, these only look.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from lyra.core import codec
from lyra.kernel import Kernel
from lyra.kernel.base.subsystem import State
from lyra.kernel.journal.history import Fold
from lyra.store.protocol import Record
from verify.simulation.ledger import Violation

if TYPE_CHECKING:
    from lyra.kernel.process.process import Process
    from verify.simulation.invariants import Ledger

__all__ = ["Suspects", "inspect", "inspect_idle", "inspect_rest", "plain", "same_as_journal"]

_PATIENCE_S: Final = 5.0


class Suspects:
    """What looked wrong when nothing was ready, and since when."""

    def __init__(self) -> None:
        self._since: dict[Violation, float] = {}

    def judge(self, seen: Iterable[Violation], now: float) -> Iterator[Violation]:
        self._since = {violation: self._since.get(violation, now) for violation in seen}
        for violation, since in self._since.items():
            if now - since > _PATIENCE_S:
                yield violation


# ---------------------------------------------------------------------- between two steps


def inspect(kernel: Kernel) -> Iterator[Violation]:
    for name, process in kernel.names.items():
        if process.exit is not None or process.name != name:
            yield Violation("transitions", f"the name {name} belongs to {process.pid}, which has it no more")
    for pid, session in kernel.orchestrator.state.sessions.items():
        yield from _bounds(pid, session)
    for info in kernel.services.list_services():
        if not 0 <= info.current_load <= info.max_concurrent:
            yield Violation("slots", f"{info.current_load} slots of {info.name} are taken, of {info.max_concurrent}")


def _bounds(pid: str, session: Any) -> Iterator[Violation]:
    config, over = session.pipeline_config, int(session.terminated)  # the step too many is counted, and ends it
    for limit in config.edge_limits:
        taken = session.edge_traversals.get(f"{limit.source}->{limit.target}", 0)
        if taken > limit.max_count + over:
            yield Violation(
                "pipeline_bounds", f"{pid} took {limit.source}->{limit.target} {taken} times, of {limit.max_count}"
            )
    for stage in config.agents:
        visits = session.stage_visits.get(stage.name, 0)
        if stage.max_visits is not None and visits > stage.max_visits + over:
            yield Violation("pipeline_bounds", f"{pid} entered {stage.name} {visits} times, of {stage.max_visits}")
    if session.envelope.agent_hop_count > config.max_agent_hops:
        yield Violation(
            "pipeline_bounds", f"{pid} had {session.envelope.agent_hop_count} hops of {config.max_agent_hops}"
        )
    if session.terminated and (session.tokens or session.waiting):
        yield Violation("pipeline_bounds", f"{pid} is over, and a token stands at a stage")
    asked = {question.token for question in session.waiting}
    for token in session.tokens:
        if token.state == "waiting" and token.id not in asked:
            yield Violation("interrupt_waiting", f"{token.stage} of {pid} waits for an answer to nothing")


# ---------------------------------------------------------------------- nothing is ready


def inspect_idle(kernel: Kernel, suspects: Suspects, *, loose: Container[str] = ()) -> Iterator[Violation]:
    """`loose` are supervisors that may leave a child standing."""
    if kernel.failure is not None or kernel.stopping or kernel.draining:
        return
    if kernel.journal is None or kernel.journal.stuck is not None:
        return  # a full disk holds everybody up
    seen = [*_supervisors(kernel, loose), *_questions(kernel), *_sessions(kernel), *_groups(kernel)]
    yield from suspects.judge(seen, kernel.clock.monotonic())


def _settled(process: Process | None) -> bool:
    """It lives, has come back from the journal, and nothing is in its mailbox."""
    return (
        process is not None
        and process.exit is None
        and process.coroutine is not None
        and process.replay is None
        and not process.inbox
        and process.kill_reason is None
    )


def _supervisors(kernel: Kernel, loose: Container[str]) -> Iterator[Violation]:
    for pid, process in kernel.processes.items():
        if not process.program.endswith(":supervise") or not _settled(process):
            continue
        infos = kernel.supervisor(pid).which_children()
        running = {info.pid for info in infos if info.pid is not None}
        alive = {child for child, child_state in (process.children or {}).items() if child_state.kill_reason is None}
        if len(alive - running) == 1 and any(info.pid is None for info in infos):
            continue  # one is about to be ready, and what happens meanwhile is looked at afterwards
        if running - set(process.children or {}) or alive - running:
            yield Violation("children", f"{pid} has {sorted(running)} in its table, and {sorted(alive)} live under it")
        halting = len(alive) < len(process.children or {})
        for info in infos:
            if (info.state == "running") != (info.pid is not None):
                yield Violation("children", f"{info.id} of {pid} is {info.state} as {info.pid}")
            if info.restart == "permanent" and info.state == "stopped" and pid not in loose and not halting:
                yield Violation("children", f"{info.id} of {pid} must run and stands still")


def _questions(kernel: Kernel) -> Iterator[Violation]:
    """An entry with an open question waits; one that waits has an open question."""
    for pid, entry in kernel.lifecycle.state.entries.items():
        asks = kernel.interrupts.has_pending(pid)
        if asks and entry.state in ("running", "terminated", "zombie"):
            yield Violation("interrupt_waiting", f"{pid} has an open question and is {entry.state}")
        if entry.state == "waiting" and not asks and not _overdue(kernel, pid):
            yield Violation("interrupt_waiting", f"{pid} waits without an open interrupt")


def _overdue(kernel: Kernel, pid: str) -> bool:
    """A question is past its time and its timer has not rung: the wall clock was moved."""
    return any(interrupt.status == "pending" for interrupt in kernel.interrupts.list_interrupts(pid))


def _sessions(kernel: Kernel) -> Iterator[Violation]:
    """A pipeline that waits has a question that can be answered; one whose question is open waits."""
    for pid, session in kernel.orchestrator.state.sessions.items():
        process = kernel.processes.get(pid)
        if session.terminated or not _settled(process):
            continue
        pending = [
            interrupt
            for interrupt in kernel.interrupts.list_interrupts(pid, status="pending")
            if interrupt.kind != "in_doubt"
        ]
        if session.envelope.interrupt_pending and not pending:
            yield Violation("interrupt_waiting", f"pipeline {pid} waits for an answer without an open interrupt")
        asked = {interrupt.id for interrupt in pending}
        for question in session.waiting:
            if question.token and question.id not in asked:
                yield Violation(
                    "interrupt_waiting", f"{question.stage} of {pid} waits for an interrupt that is not open"
                )
        if pending and not session.envelope.interrupt_pending:
            running = any(token.state == "running" for token in session.tokens)
            if not running:
                yield Violation("interrupt_waiting", f"{pending[0].id} is pending and pipeline {pid} does not wait")


def _groups(kernel: Kernel) -> Iterator[Violation]:
    for name in kernel.groups.names():
        for pid in kernel.groups.members(name):
            process = kernel.processes.get(pid)
            if process is None or process.exit is not None:
                yield Violation("groups", f"{pid} is in {name} and has ended")


# ---------------------------------------------------------------------- all is over


def inspect_rest(kernel: Kernel, ledger: Ledger) -> Iterator[Violation]:
    for info in kernel.services.list_services():
        if info.current_load:
            yield Violation("slots", f"{info.current_load} slots of {info.name} are still taken at rest")
    for table in ("_links", "_monitors", "_watched", "_watching"):
        if getattr(kernel.links, table):
            yield Violation("slots", f"the dead are still tied: {table} {getattr(kernel.links, table)}")
    if kernel.names:
        yield Violation("slots", f"names of the dead: {', '.join(kernel.names)}")
    yield from ledger.parts.at_rest()
    for pid, session in kernel.orchestrator.state.sessions.items():
        booked = ledger.parts.pipelines.sessions.get(pid)
        if booked is not None and booked.runs != session.runs:
            yield Violation("stage_once", f"{pid} counts {session.runs} runs, the journal {booked.runs}")


def same_as_journal(kernel: Kernel, rows: list[Record]) -> Iterator[Violation]:
    """What the subsystems know is the fold of all rows."""
    journal = kernel.journal
    if journal is None or journal.pending or journal.seq != len(rows):
        return
    whole = Fold([type(state)() for state in kernel.states.values()])
    whole.add_all(rows)
    for name, state in kernel.states.items():
        if plain(whole.states[f"~{name}"]) != plain(state):
            yield Violation("state_is_fold", f"{name} knows something else than its rows say")


def plain(state: State) -> Any:
    """A state as it comes out of a snapshot: fields that a restart fills in are filled in."""
    again = type(state)()
    again.load(codec.decode(codec.encode(state.dump())))
    return codec.decode(codec.encode(again.dump()))
