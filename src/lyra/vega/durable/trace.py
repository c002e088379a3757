"""What a run did, as a tree: its processes below each other, and below each the calls that it made.

Made from the rows of a run that are kept, so it covers all its executions. A `RunSpan` is a process, a model
call, a tool's call or another effect; money, tokens, calls and retries of a span are its own and those of all below it.
What was spent is known for as long as the run is: calls whose rows were dropped are in the sums of their process, and
in `unlisted` of the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from lyra.core import codec
from lyra.core.naming import VEGA_AGENT, VEGA_PROCESS
from lyra.errors import LyraError
from lyra.kernel.journal import rows
from lyra.kernel.journal.rows import error_from_row
from lyra.store.protocol import Record
from lyra.vega.durable.record import MAIN
from lyra.vega.durable.runs import DurableRun

_PIECES: Final = "vega.stream:"  # each a piece of an answer, which is shown as a call


class RunSpan(msgspec.Struct, kw_only=True):
    """`kind` is process, agent, call, model, tool, effect, or, as the program told it, span or event. `status` is ok,
    running, stopped, the reason of an end, or the name of an error, whose text is `error`."""

    kind: str
    name: str
    pid: str
    key: str = ""
    began: float = 0.0
    ended: float | None = None
    status: str = "running"
    error: str = ""
    micro_usd: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    estimated: bool = False  # the provider of a model call counted no tokens: they are Lyra's own count
    calls: int = 0
    retries: int = 0
    attributes: dict[str, Any] = {}  # of a span that the program told
    spans: list[RunSpan] = []

    @property
    def latency_ms(self) -> int | None:
        return None if self.ended is None else round(1000 * (self.ended - self.began))

    def to_data(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "pid": self.pid,
            "key": self.key,
            "began": self.began,
            "latency_ms": self.latency_ms,
            "status": self.status,
            "error": self.error,
            "cost_usd": self.micro_usd / 1_000_000,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            **({"estimated": True} if self.estimated else {}),
            "calls": self.calls,
            "retries": self.retries,
            **({"attributes": self.attributes} if self.attributes else {}),
            "spans": [span.to_data() for span in self.spans],
        }

    def walk(self, depth: int = 0) -> Iterator[tuple[int, RunSpan]]:
        """This and all below it, each with how deep it stands."""
        todo = [(depth, self)]
        while todo:
            level, span = todo.pop()
            yield level, span
            todo += [(level + 1, inner) for inner in reversed(span.spans)]


class Trace(NamedTuple):
    """`root` is the main process. Rows from before `since` are not kept any more: of what was done then `unlisted`
    calls are in the sums and not in the tree."""

    root: RunSpan
    since: float | None
    unlisted: int


def trace(run: DurableRun) -> Trace:
    """Return the tree of a run."""
    return _Tracer(run).trace()


class _Tracer:
    def __init__(self, run: DurableRun) -> None:
        self._run = run
        self._program = run.program()
        self._processes: dict[str, RunSpan] = {}
        self._parents: dict[str, str] = {}
        self._open: dict[tuple[str, str], RunSpan] = {}
        self._told: dict[tuple[str, str, int], RunSpan] = {}  # spans and events of the program, by their places
        self._answered: set[str] = set()  # processes whose turn came to a good end
        self._since = 0.0  # 0: there are all
        for pid, state in run.processes.items():  # those whose first or last rows are not kept any more
            self._add_process(pid, state.created, state.created_at)
            if state.exit is not None:
                self._end_process(pid, state.exit, state.exit_at)
        first = run.space.first_seq()
        for row in run.rows():
            if row.seq == first > 1:
                self._since = row.time
            act = _ACTS.get(row.kind)
            if act is not None:
                act(self, row, rows.DECODERS[row.kind].decode(row.data) if row.kind in rows.DECODERS else None)

    def trace(self) -> Trace:
        unlisted = self._charge_unlisted()
        return Trace(self._root(), self._since or None, unlisted)

    def _charge_unlisted(self) -> int:
        """Lay what was spent in calls that are listed no more on the processes that made them; how many there were."""
        count = 0
        for pid, span in self._processes.items():
            state = self._run.processes.get(pid)
            spent = dict(state.spent) if state is not None else {}
            if pid == MAIN:  # and of processes that the journal has forgotten
                for dimension, amount in self._run.fold.spent.items():
                    spent[dimension] = spent.get(dimension, 0) + amount
            for name, dimension in _SPENT.items():
                left = spent.get(dimension, 0) - sum(getattr(inner, name) for inner in span.spans)
                if left > 0:
                    setattr(span, name, left)
                    count += left if name == "calls" else 0
        return count

    def _root(self) -> RunSpan:
        for pid, span in self._processes.items():
            above = self._processes.get(self._parents.get(pid, ""))
            if above is not None and above is not span:
                above.spans.append(span)
        root = self._processes[MAIN]
        for _, span in root.walk():
            if span.kind == "call" and span.status == "shutdown" and span.pid in self._answered:
                span.status = "ok"  # the answer of a stream is all there; its process is stopped by the reader
            if span.ended is None and self._run.is_over:
                span.status = "stopped"  # with the run
            span.spans = _nest(sorted(span.spans, key=_began))
        for _, span in reversed(list(root.walk())):
            for inner in span.spans:
                span.micro_usd += inner.micro_usd
                span.input_tokens += inner.input_tokens
                span.output_tokens += inner.output_tokens
                span.estimated |= inner.estimated
                span.calls += inner.calls
                span.retries += inner.retries
        return root

    # ------------------------------------------------------------ processes

    def _add_process(self, pid: str, created: rows.Created, time: float) -> None:
        if pid in self._processes:
            return
        kind, name = self._what(pid, created)
        self._processes[pid] = RunSpan(kind=kind, name=name, pid=pid, began=time)
        self._parents[pid] = created.parent

    def _what(self, pid: str, created: rows.Created) -> tuple[str, str]:
        if pid == MAIN:
            return "process", self._run.file
        if created.program.startswith("agent:"):
            return "call", created.program[6:].partition("~")[0]  # ~1 has the settings of a migration
        if created.program == VEGA_AGENT:
            return "agent", str(self._arguments(created)[1])
        if created.program == VEGA_PROCESS:
            seed = self._arguments(created)[1]
            return "process", f"fn {self._function(seed)}"
        return "process", created.program.rpartition(":")[2]

    def _arguments(self, created: rows.Created) -> Any:
        return codec.decode(self._run.space.get_blob(created.blob) if created.blob else bytes(created.args))

    def _function(self, seed: Any) -> str:
        """Return the name of the function that a process runs: of the first value that its seed holds."""
        try:
            first = seed["heap"][seed["value"][1]][1][0]
            name: str = self._program.functions[seed["heap"][first[1]][1]].name
        except (KeyError, IndexError, TypeError):
            return "?"
        return name

    def _on_created(self, row: Record, created: rows.Created) -> None:
        self._add_process(row.pid, created, row.time)

    def _on_terminated(self, row: Record, ended: rows.Terminated) -> None:
        self._end_process(row.pid, ended, row.time)

    def _end_process(self, pid: str, ended: rows.Terminated, time: float) -> None:
        span = self._processes.get(pid)
        if span is not None:
            span.ended = time
            span.status = "ok" if ended.reason == "normal" else ended.reason
            _fail(span, ended.error)

    # ------------------------------------------------------------ effects

    def _on_started(self, row: Record, started: rows.Started) -> None:
        above = self._processes.get(row.pid)
        place = (row.pid, str(started.key))
        if above is None or started.name.startswith(_PIECES):
            return
        if place in self._open:  # begun again: it was in flight when its process was killed
            self._open[place].retries += 1
            return
        kind, _, name = started.name.partition(":")
        kind = {"model": "model", "tool": "tool"}.get(kind, "effect")
        if kind == "effect":
            name = started.name
        elif kind == "model":
            name = name.partition(":")[2]
        span = self._open[place] = RunSpan(kind=kind, name=name, pid=row.pid, key=place[1], began=row.time)
        above.spans.append(span)

    def _on_finished(self, row: Record, finished: rows.Finished) -> None:
        if finished.form == "passage" and finished.name == "turn":
            self._end_turn(row.pid, bytes(finished.value), finished.blob)
        span = self._open.get((row.pid, str(finished.key)))
        if span is None:
            return
        span.ended = row.time
        span.status = "ok"
        _fail(span, finished.error)
        usage = finished.usage or {}
        span.micro_usd += usage.get("usd", 0)
        span.input_tokens += usage.get("input_tokens", 0)
        span.output_tokens += usage.get("output_tokens", 0)
        span.calls += usage.get("llm_calls", 0)
        if span.kind == "model" and finished.error is None:
            completion = codec.decode(self._run.space.get_blob(finished.blob) if finished.blob else finished.value)
            span.estimated = bool(completion["usage"].get("estimated"))

    def _on_checkpointed(self, row: Record, kept: rows.Checkpointed) -> None:
        self._end_turn(row.pid, bytes(kept.state), kept.blob)

    def _end_turn(self, pid: str, value: bytes, blob: str) -> None:
        """Note whether an agent's turn that is over gave an answer, as its row says."""
        if pid in self._processes and self._processes[pid].kind == "call":
            told = codec.decode(self._run.space.get_blob(blob) if blob else value)
            if "error" not in told:
                self._answered.add(pid)

    # ------------------------------------------------------------ what the program told

    def _span(self, row: Record, _: Any) -> None:
        told = codec.decode(row.data)
        attributes = {str(key): value for key, value in told["attributes"].items()}
        self._tell(row, told, kind="span", name=str(told["name"]), began=told["began"], attributes=attributes)

    def _event(self, row: Record, _: Any) -> None:
        told = codec.decode(row.data)
        self._tell(row, told, kind="event", name=str(told["text"]), began=row.time)

    def _tell(self, row: Record, told: Any, **facts: Any) -> None:
        above, (key, number) = self._processes.get(row.pid), told["place"]
        if above is not None and (row.pid, key, number) not in self._told:
            span = RunSpan(pid=row.pid, key=key, ended=row.time, status="ok", **facts)
            self._told[row.pid, key, number] = span
            above.spans.append(span)

    def _on_retried(self, row: Record, _: Any) -> None:
        span = self._open.get((row.pid, str(codec.decode(row.data)["key"])))
        if span is not None:
            span.retries += 1


def _began(span: RunSpan) -> tuple[float, bool]:
    return span.began, span.kind != "span"  # a span stands before what began with it


def _nest(spans: list[RunSpan]) -> list[RunSpan]:
    """Return the spans of one process in order, those that began while the program had a span open inside that."""
    top: list[RunSpan] = []
    around: list[RunSpan] = []
    for span in spans:
        while around and (span.began > (around[-1].ended or 0.0)):
            around.pop()
        (around[-1].spans if around else top).append(span)
        if span.kind == "span":
            around.append(span)
    return top


def _fail(span: RunSpan, error: dict[str, Any] | None) -> None:
    if error is not None:
        exception = error_from_row(error)
        fields = exception.fields if isinstance(exception, LyraError) else {}
        span.status = str(fields.get("name") or error.get("code"))  # an error of the program by its own name
        span.error = str(fields.get("text") or error.get("message") or "")


_SPENT: Final = {
    "micro_usd": "usd",
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "calls": "llm_calls",
}
_ACTS: Final[dict[str, Callable[[_Tracer, Record, Any], None]]] = {
    "process.created": _Tracer._on_created,
    "process.terminated": _Tracer._on_terminated,
    "effect.started": _Tracer._on_started,
    "effect.finished": _Tracer._on_finished,
    "effect.retried": _Tracer._on_retried,
    "program.checkpoint": _Tracer._on_checkpointed,
    "trace.span": _Tracer._span,
    "trace.event": _Tracer._event,
}
