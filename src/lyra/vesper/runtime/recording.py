"""What is kept of single executions: audit rows, and traces from which they can be replayed.

`ExecutionRecords` holds the two durable states and writes their rows. The rows of processes are written where those
end. Audit rows of pure nodes are gathered, by any thread, and written together, so that a small node is not held up by
the store; those that wait are lost with a killed process.

A `StoredTrace` holds the text of the node, its inputs, the time, and what its effects gave; the steps follow from them,
since a node has no other source of values. Executions that act outside are always stored, pure ones where the caller
asks for it. Of a private node the data is sealed, and a copy without sensitive values is there to be shown. The state
keeps the latest executions within limits of number and size.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from lyra.core import codec
from lyra.core.codec import canonical
from lyra.core.naming import VESPER_NODE, give_name
from lyra.errors import LyraError
from lyra.vesper.check.derived import sensitive_inputs
from lyra.vesper.effects.door import DoorEffects, ExecutionTime
from lyra.vesper.effects.replay import EffectLog, EffectRecord, ReplayEffects
from lyra.vesper.ir import NodeProgram
from lyra.vesper.runtime.privacy import Privacy, redact_fields, redact_outcome, redaction_of, user_of
from lyra.vesper.values.json_values import from_json, to_json
from lyra.vesper.values.limits import (
    AUDIT_ROWS_KEPT,
    AUDIT_VALUE_CHARS_MAX,
    TRACE_BYTES_MAX,
    TRACES_BYTES_MAX,
    TRACES_KEPT,
)
from lyra.vesper.values.outcome import Execution, Outcome, outcome_data
from lyra.vesper.values.redaction import REDACTED

if TYPE_CHECKING:
    from lyra.kernel.programs.context import Context
    from lyra.vesper.effects.request import EffectRequest, TransactionBody, TransactionEnd
    from lyra.vesper.runtime.runtime import Runtime


ROWS_AT_ONCE: Final = 200  # audit rows of pure nodes that are written together
PART: Final = "vesper"  # by which a kernel knows its runtime


class ExecutionRecords:
    """See the module. `write` is given the state that a row belongs to, its kind and the row."""

    def __init__(self, privacy: Privacy, write: Callable[[Any, str, dict[str, Any]], None]) -> None:
        self._privacy = privacy
        self._write = write
        self._audit = AuditState()
        self._traces = TraceState()
        self._lock = threading.Lock()
        self._waiting: list[dict[str, Any]] = []  # audit rows of pure nodes
        self.states = (self._audit, self._traces)

    def audit_pure(
        self,
        program: NodeProgram,
        inputs: Mapping[str, Any],
        outcome: Outcome,
        mode: str,
        execution: Execution,
        hidden: Collection[str],
    ) -> None:
        row = audit_row(program, inputs, execution.ambient, outcome, mode, execution.trace_id, hidden)
        if row is None:
            return
        with self._lock:
            self._waiting.append(row)
            is_full = len(self._waiting) >= ROWS_AT_ONCE
        if is_full:
            self.flush()

    def flush(self) -> None:
        """Write the audit rows that wait."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        if waiting:
            self._write(self._audit, "vesper.audited", {"rows": waiting})

    def trace_pure(
        self,
        program: NodeProgram,
        source: str,
        inputs: Mapping[str, Any],
        execution: Execution,
        outcome: Outcome,
        mode: str,
    ) -> None:
        self._store(
            trace_row(
                self._privacy,
                program,
                source,
                inputs,
                execution.ambient,
                outcome,
                now=execution.now.timestamp(),
                mode=mode,
                trace_id=execution.trace_id,
            )
        )

    def process_ended(
        self,
        program: NodeProgram,
        order: ExecutionOrder,
        inputs: Mapping[str, Any],
        ambient: Mapping[str, Any],
        outcome: Outcome,
        effects: Iterable[EffectRecord],
    ) -> None:
        row = audit_row(program, inputs, ambient, outcome, order.mode, order.trace_id, order.hidden)
        if row is not None:
            self._write(self._audit, "vesper.audited", {"rows": [row]})
        self._store(
            trace_row(
                self._privacy,
                program,
                order.source,
                inputs,
                ambient,
                outcome,
                now=order.now,
                mode=order.mode,
                trace_id=order.trace_id,
                effects=effects,
                hidden=order.hidden,
            )
        )

    def _store(self, row: dict[str, Any] | None) -> None:
        if row is not None:
            self._write(self._traces, "vesper.traced", row)

    def audit_rows(self) -> list[dict[str, Any]]:
        return list(self._audit.rows.values())

    def traces(self) -> dict[str, StoredTrace]:
        return dict(self._traces.traces)


def audit_row(
    program: NodeProgram,
    inputs: Mapping[str, Any],
    ambient: Mapping[str, Any],
    outcome: Outcome,
    mode: str,
    trace_id: str,
    hidden: Collection[str] = (),
) -> dict[str, Any] | None:
    """Return the audit row of an execution; None where the node's level is `none`."""
    level = audit_level(program)
    if level == "none":
        return None
    failure = outcome.error
    row: dict[str, Any] = {
        "trace_id": trace_id,
        "node": program.node_id,
        "user": REDACTED if "user_id" in sensitive_inputs(program, hidden) else user_of(inputs, ambient),
        "action": program.intent,
        "digest": program.digest,
        "path": outcome.path,
        "mode": mode,
        "outcome": outcome.status,
        "code": "" if failure is None else failure.code,
    }
    if level == "detailed":
        try:
            failure = redact_outcome(program, inputs, outcome, hidden).error
            outputs = outcome.outputs if failure is None else failure.fields
            redaction = redaction_of(program, inputs, hidden)
            row["inputs"] = cut_values(redact_fields(program, inputs, redaction, hidden))
            row["outputs"] = cut_values(redact_fields(program, outputs, redaction))
        except (TypeError, ValueError, AttributeError, RecursionError):
            row["inputs"] = row["outputs"] = {}  # inputs that no node takes
    return row


def cut_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values, long ones as the beginning of their text."""
    shown: dict[str, Any] = {}
    for name, value in values.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        shown[name] = value if len(text) <= AUDIT_VALUE_CHARS_MAX else f"{text[:AUDIT_VALUE_CHARS_MAX]}…"
    return shown


def trace_row(
    privacy: Privacy,
    program: NodeProgram,
    source: str,
    inputs: Mapping[str, Any],
    ambient: Mapping[str, Any],
    outcome: Outcome,
    *,
    now: float,
    mode: str,
    trace_id: str,
    effects: Iterable[EffectRecord] = (),
    hidden: Collection[str] = (),
) -> dict[str, Any] | None:
    """Return the trace of an execution; None where it is too large to be stored, or its inputs are no data."""
    try:
        data: Any = [dict(inputs), dict(ambient), [list(msgspec.structs.astuple(record)) for record in effects]]
        is_private = privacy.is_private(program, hidden)
        kept = privacy.sealer.seal(data) if is_private else to_json(data)
        redaction = redaction_of(program, inputs, hidden)
        trace = StoredTrace(
            trace_id=trace_id,
            node=program.node_id,
            source=source,
            now=now,
            mode=mode,
            path=outcome.path,
            status=outcome.status,
            code="" if outcome.error is None else outcome.error.code,
            inputs=redact_fields(program, inputs, redaction, hidden),
            data=kept,
            hidden=sorted(hidden),
        )
        size = len(codec.encode(msgspec.to_builtins(trace)))
    except (TypeError, ValueError, AttributeError, RecursionError, LyraError):
        return None
    if size > TRACE_BYTES_MAX:
        return None
    row: dict[str, Any] = msgspec.to_builtins(trace)
    return {**row, "size": size}


def trace_data(trace: StoredTrace, privacy: Privacy) -> tuple[dict[str, Any], dict[str, Any], list[EffectRecord]]:
    """Return the inputs, the ambient objects and the effects of a stored execution."""
    data = privacy.sealer.open(trace.data) if isinstance(trace.data, str) else from_json(trace.data)
    inputs, ambient, effects = data
    return inputs, ambient, [EffectRecord(*record) for record in effects]


AUDIT_LEVELS: Final[dict[str, str]] = {
    "none": "no row",
    "basic": "the user, the action (the intent of the node), the node, the trace, the path, the mode and the outcome",
    "detailed": "also inputs and outputs, without sensitive values",
}


def audit_level(program: NodeProgram) -> str:
    """Return the level that counts for a node."""
    return program.audit or ("none" if program.pure else "basic")


class AuditState:
    """The durable state: the latest rows, one for each execution."""

    NAME: ClassVar[str] = "vesper-audit"
    KINDS: ClassVar[frozenset[str]] = frozenset({"vesper.audited"})

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}  # by trace id, the newest last

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        for row in data["rows"]:
            # An execution that a crash interrupts at its end writes its row a second time; it is the same one.
            self.rows.setdefault(row["trace_id"], {"time": time, **row})
        while len(self.rows) > AUDIT_ROWS_KEPT:
            del self.rows[next(iter(self.rows))]

    def dump(self) -> Any:
        return list(self.rows.values())

    def load(self, data: Any) -> None:
        self.rows = {str(row["trace_id"]): dict(row) for row in data}


class StoredTrace(msgspec.Struct):
    """One execution that can be replayed."""

    trace_id: str
    node: str
    source: str
    now: float
    mode: str
    path: str
    status: str
    code: str  # of the error; empty for a success
    inputs: Any  # as `values.json_values` writes them, without sensitive values
    data: Any  # [inputs, ambient, effects]; or, sealed, a text
    hidden: list[str] = []
    size: int = 0  # bytes of the row


class TraceState:
    """The durable state: the latest executions, by trace id."""

    NAME: ClassVar[str] = "vesper-traces"
    KINDS: ClassVar[frozenset[str]] = frozenset({"vesper.traced"})

    __slots__ = ("_bytes", "traces")

    def __init__(self) -> None:
        self.traces: dict[str, StoredTrace] = {}
        self._bytes = 0

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        trace = msgspec.convert(data, StoredTrace)
        if trace.trace_id in self.traces:
            return  # written again by an execution that resumed after a crash
        self._add(trace)

    def _add(self, trace: StoredTrace) -> None:
        self.traces[trace.trace_id] = trace
        self._bytes += trace.size
        while len(self.traces) > TRACES_KEPT or self._bytes > TRACES_BYTES_MAX:
            self._bytes -= self.traces.pop(next(iter(self.traces))).size

    def dump(self) -> Any:
        return list(self.traces.values())

    def load(self, data: Any) -> None:
        self.traces, self._bytes = {}, 0
        for trace in msgspec.convert(data, list[StoredTrace]):
            self._add(trace)


class ExecutionOrder(msgspec.Struct):
    """What a process of a node is started with."""

    source: str
    digest: str
    inputs: Any  # as `values.json_values` writes them; sensitive ones are only in `sealed`
    now: float
    trace_id: str
    mode: str
    live: str
    compare: bool
    ambient: dict[str, Any] = {}
    once: str = ""  # executions with an equal word are one
    sealed: str = ""  # of a private node: the inputs and the ambient objects
    hidden: list[str] = []  # inputs that the caller declares sensitive


class _Resumed:
    """Effects of a path that replaces a broken one: finished effects are replayed, new ones are performed."""

    def __init__(self, done: EffectLog, live: DoorEffects) -> None:
        self._replay = ReplayEffects(done)
        self._live = live

    async def perform(self, request: EffectRequest) -> Any:
        if self._replay.has(request):
            return await self._replay.perform(request)
        return await self._live.perform(request)

    async def transact(self, request: EffectRequest, body: TransactionBody) -> TransactionEnd:
        return await (self._replay if self._replay.has(request) else self._live).transact(request, body)


@give_name(VESPER_NODE)
async def node_process(ctx: Context, order: ExecutionOrder) -> dict[str, Any]:
    """Execute a node; gives its outcome as plain data, and a digest of what it was asked."""
    runtime: Runtime = ctx.own_process.kernel.parts[PART]
    program = runtime.program_of_source(order.source)
    inputs, ambient = runtime.open_order(order)
    time = ExecutionTime(program.limits.time_s, ctx.own_process.core.clock.monotonic)
    execution = msgspec.structs.replace(execution_of(order, runtime, ambient), monotonic=time)
    private = runtime.privacy.effects(program, inputs, order.hidden)
    effects = DoorEffects(ctx, runtime.world, EffectLog(), program, time, private)
    outcome, has_broken = await _live(runtime, program, order, inputs, execution, effects)
    if order.compare and not has_broken:
        other = "direct" if order.live == "python" else "python"
        replay = ReplayEffects(effects.log, replayed=other)
        second: Outcome | Exception
        try:
            second = await runtime.paths[other].start(program, inputs, execution, replay)
        except Exception as error:  # noqa: BLE001 - a path that breaks differs from one that does not
            second = error
        python, direct = (outcome, second) if order.live == "python" else (second, outcome)
        runtime.note_comparison(program, order, execution, python, direct, replay.mismatches())
    runtime.note_end(program, order, outcome, effects.log.records)
    data: Any = outcome_data(outcome)
    if private is not None:
        data = private.sealer.seal(data)
    return {"outcome": data, "inputs": inputs_digest(order), "trace_id": order.trace_id}


async def _live(
    runtime: Runtime,
    program: NodeProgram,
    order: ExecutionOrder,
    inputs: Mapping[str, Any],
    execution: Execution,
    effects: DoorEffects,
) -> tuple[Outcome, bool]:
    """Return the outcome, and whether the direct path broke and Python replaced it. An exception of the effects is no
    crash of a path: it ends the process."""
    path = runtime.paths.get(order.live) or runtime.paths["python"]  # a debugger does not outlive its command
    try:
        return await path.start(program, inputs, execution, effects), False
    except Exception as error:
        if order.live != "direct" or error is effects.failure:
            raise
        resumed = _Resumed(effects.log.copy(), effects)
        try:
            outcome = await runtime.paths["python"].start(program, inputs, execution, resumed)
        except Exception as second:
            runtime.note_comparison(program, order, execution, second, error, [])
            raise
        runtime.note_comparison(program, order, execution, outcome, error, [])
        return outcome, True


def inputs_digest(order: ExecutionOrder) -> str:
    """Return the digest that tells executions with the same idempotency key but other inputs apart."""
    inputs = [order.inputs, order.sealed] if order.sealed else order.inputs
    return hashlib.sha256(canonical([order.digest, inputs])).hexdigest()[:32]


def execution_of(order: ExecutionOrder, runtime: Runtime, ambient: Mapping[str, Any]) -> Execution:
    return Execution(
        now=datetime.fromtimestamp(order.now, UTC),
        trace_id=order.trace_id,
        predicates=runtime.predicates,
        ambient=ambient,
    )
