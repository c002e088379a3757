"""Nodes at work: `Runtime` executes them in one of five modes and keeps the evidence.

    runtime = Runtime(store="lyra.db", database="sqlite:///orders.db", providers={"stripe": "https://…"}, grant=[…])
    outcome = runtime.execute(node, {"amount": "99.99"})

`execute` is a plain call, from any thread, and never raises for wrong inputs. A pure node runs where it is called. A
node with effects runs as a process of a kernel on a thread of its own, so that its effects are journaled and it goes on
after a crash; executions with an equal `idempotency_key` are one process. Modes, comparisons and divergences are facts
in the journal. A divergence in a mode with a live direct path, or in dual_verify, leads back to shadow_direct at once.
"""

from __future__ import annotations

import asyncio
import hashlib
import queue
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import force_setattr

from lyra.core import codec
from lyra.core.clock import SystemClock
from lyra.core.codec import canonical
from lyra.core.ids import Entropy
from lyra.core.rights.capability import Capability, Grant
from lyra.errors import CapabilityDenied, ConfigError, LyraError
from lyra.kernel import Kernel
from lyra.kernel.base.acting import as_registered
from lyra.kernel.seams import Seams
from lyra.vesper.check.judge import program_of
from lyra.vesper.effects.database import open_database
from lyra.vesper.effects.machines import Machines, MachineState
from lyra.vesper.effects.performers import NodeWorld
from lyra.vesper.effects.request import EffectError
from lyra.vesper.evidence.compare import compare
from lyra.vesper.evidence.confidence import lower_bound
from lyra.vesper.evidence.modes import GATES, ORDER, Route, allowed, mode_named, route
from lyra.vesper.evidence.state import EvidenceState, NodeEvidence
from lyra.vesper.nodes import Node, load
from lyra.vesper.repository.additions import is_new
from lyra.vesper.repository.folders import Repository
from lyra.vesper.repository.stored import StoredNodes
from lyra.vesper.runtime.counters import Counters
from lyra.vesper.runtime.event_entry import EventEntry
from lyra.vesper.runtime.kernel_thread import KernelThread
from lyra.vesper.runtime.node_process import PART, ExecutionOrder, broken, execution_of, inputs_digest, node_process
from lyra.vesper.runtime.paths import DirectPath, ExecutionPath, PythonPath
from lyra.vesper.runtime.privacy import (
    Privacy,
    redacted_differences,
    redacted_fields,
    redacted_outcome,
    redaction_of,
    sensitive_inputs,
)
from lyra.vesper.runtime.rates import over_rate
from lyra.vesper.runtime.recording import ExecutionRecords
from lyra.vesper.runtime.results import ResultStore, open_results
from lyra.vesper.runtime.scheduled_entry import ScheduleState
from lyra.vesper.runtime.watch import NodeWatch, watch_of
from lyra.vesper.values.execution import Execution
from lyra.vesper.values.outcome import NodeFailure, Outcome
from lyra.vesper.values.redaction import Redaction
from lyra.vesper.values.tagged import from_json, to_json

if TYPE_CHECKING:
    from lyra.vesper.effects.replay import EffectRecord
    from lyra.vesper.evidence.differential import ComparisonReport
    from lyra.vesper.evidence.traces import StoredTrace
    from lyra.vesper.ir.program import NodeProgram

__all__ = ["NodeCaller", "Runtime"]

COUNTED_AT_ONCE: Final = 1_000  # executions of a node that are written as one row
SHADOWS_MAX: Final = 1_000  # executions that wait to be compared; more are not compared
_DEMOTING: Final = ("canary_direct", "dual_verify", "direct_only")


class NodeCaller(NamedTuple):
    """A program that calls a node: by its key a call that is repeated after a crash is known again."""

    key: str
    grant: Grant


class Runtime:
    """See the module."""

    def __init__(
        self,
        store: Any = "memory",
        *,
        database: str | None = None,
        providers: Mapping[str, str] | None = None,
        grant: Any = None,
        direct: ExecutionPath | None = None,
        custom: Mapping[str, Callable[..., Any]] | None = None,
        agents: Mapping[str, Any] | None = None,
        predicates: Mapping[str, Callable[..., Any]] | None = None,
        nodes: Iterable[Node] | Repository = (),
        results: str | ResultStore = "memory",
    ) -> None:
        self._store = store if store is not None else "memory"
        self.grant = Grant.none() if grant is None else Grant.of(grant)
        self.paths: dict[str, ExecutionPath] = {"python": PythonPath(), "direct": direct or DirectPath()}
        self.predicates = dict(predicates or {})
        self.world = NodeWorld(
            database=None if database is None else open_database(database),
            providers=providers,
            custom=custom,
            agents=agents,
        )
        self.state = EvidenceState()
        self._machines = MachineState()
        self._stored = StoredNodes()
        self._results = open_results(results)
        self._counters = Counters()
        self.privacy = Privacy(is_durable=self._store != "memory")
        self._records = ExecutionRecords(self.privacy, self.write_fact)
        self._programs: dict[str, NodeProgram] = {}  # by the text of the node
        self._watches: dict[str, NodeWatch | None] = {}  # likewise
        self._nodes = nodes if isinstance(nodes, Repository) else Repository(nodes=nodes)  # that `call_node` finds
        self._numbers = count(1)
        self._trace = f"trace_{Entropy().text(12)}_"
        self._thread = KernelThread(self._make_kernel)
        self.events = EventEntry(self, self._thread)
        self.schedule_state = ScheduleState()
        self._shadows: queue.Queue[tuple[Any, ...] | None] = queue.Queue(SHADOWS_MAX)
        self._shadow_thread: threading.Thread | None = None
        if self._store != "memory":
            self.start()

    def start(self) -> None:
        """Open the store, so that processes which a crash interrupted go on; by the first need at the latest."""
        self._thread.kernel  # noqa: B018 - the first use starts it

    # ------------------------------------------------------------------ executing

    def execute(
        self,
        node: Node,
        inputs: Mapping[str, Any],
        mode: str | None = None,
        *,
        ambient: Mapping[str, Any] | None = None,
        once: str = "",
        caller: NodeCaller | None = None,
        trace: bool = False,
    ) -> Outcome:
        """Execute a node; `mode` for this one time. Executions with effects and an equal `once` are one execution. A
        `caller` has rights of its own in place of the runtime's. With `trace`, a pure node too can be replayed."""
        program = self.program(node)
        name = mode if mode is not None else self._mode_of(program)
        settings = mode_named(name)
        number = next(self._numbers)
        result_key = self._results.key(program, inputs, ambient or {}) if program.idempotent else ""
        kept = self._results.find(result_key) if result_key else None
        grant = self.grant if caller is None else caller.grant
        if kept is not None and self._refusal(program, grant) is None:
            force_setattr(kept, "trace_id", f"{self._trace}{number}")
            return kept
        way = route(settings, program.node_id, inputs, number)
        trace_id = f"{self._trace}{number}"
        watch = self._watches[node.document.text]
        limits = node.performance.rate_limit
        if limits is not None and (refusal := self._thread.call(partial(over_rate, node, limits, inputs, ambient))):
            return refusal
        started = SystemClock.monotonic()
        if program.pure:
            execution = Execution(
                now=datetime.fromtimestamp(SystemClock.now(), UTC),
                trace_id=trace_id,
                predicates=self.predicates,
                ambient=ambient or {},
            )
            outcome = self._pure(program, inputs, execution, name, way, watch)
            if trace:
                self._records.trace_pure(program, node.document.text, inputs, execution, outcome, name)
        else:
            outcome = self._with_effects(node, program, inputs, name, way, trace_id, ambient or {}, once, caller)
            trace_id = outcome.trace_id or trace_id
        if outcome.error is not None:
            outcome = redacted_outcome(program, inputs, outcome)
        force_setattr(outcome, "trace_id", trace_id)
        if watch is not None:
            milliseconds = (SystemClock.monotonic() - started) * 1_000
            watch.ended(outcome, milliseconds, self.state.of(program.node_id, program.digest), self._tell)
        if result_key:
            self._results.keep(result_key, program, outcome)
        return outcome

    def _with_effects(
        self,
        node: Node,
        program: NodeProgram,
        inputs: Mapping[str, Any],
        mode: str,
        way: Route,
        trace_id: str,
        ambient: Mapping[str, Any],
        once: str,
        caller: NodeCaller | None,
    ) -> Outcome:
        try:
            kept = to_json(dict(inputs))
            codec.encode(kept)
        except (TypeError, ValueError, LyraError) as error:
            return _failed("invalid_input", str(error), phase="input")
        order = self._order(node, program, kept, mode, way, trace_id, ambient)
        order.once = once
        refusal = self._refusal(program, self.grant if caller is None else caller.grant)
        if refusal is not None:
            return refusal
        key = once or (kept.get(program.idempotency_key) if program.idempotency_key else None)
        if key is not None and not once and program.idempotency_key in sensitive_inputs(program):
            key = self.privacy.sealer.digest(key)
        started = SystemClock.monotonic()
        outcome = self._thread.call(lambda kernel: self._effectful(kernel, program, order, key, caller))
        milliseconds = (SystemClock.monotonic() - started) * 1_000
        self._count(program, outcome, inputs, milliseconds, watch=self._watches[node.document.text])
        return outcome

    def _order(
        self,
        node: Node,
        program: NodeProgram,
        inputs: Mapping[str, Any],
        mode: str,
        way: Route,
        trace_id: str,
        ambient: Mapping[str, Any],
        hidden: frozenset[str] = frozenset(),
    ) -> ExecutionOrder:
        """The order of an execution; `inputs` are as `to_json` gives them. Of a private node they are sealed."""
        sealed = ""
        if self.privacy.is_private(program, hidden):
            values = from_json(inputs)
            sealed = self.privacy.sealer.seal([values, dict(ambient)])
            inputs = redacted_fields(program, values, redaction_of(program, values, hidden), hidden)
            ambient = {}
        return ExecutionOrder(
            source=node.document.text,
            digest=program.digest,
            inputs=inputs,
            sealed=sealed,
            hidden=sorted(hidden),
            now=SystemClock.now(),
            trace_id=trace_id,
            mode=mode,
            live=way.live,
            compare=way.compare != "",
            ambient=dict(ambient),
        )

    def _pure(
        self,
        program: NodeProgram,
        inputs: Mapping[str, Any],
        execution: Execution,
        mode: str,
        way: Route,
        watch: NodeWatch | None = None,
        hidden: frozenset[str] = frozenset(),
    ) -> Outcome:
        """Run a node without effects, here and now."""
        path = way.live
        compared = False
        started = SystemClock.monotonic()
        try:
            outcome = self.paths[path].run(program, inputs, execution)
        except Exception as error:
            if path != "direct":
                raise
            self._diverged(program, inputs, execution, mode, [broken(error)], hidden)
            path = "python"
            outcome = self.paths[path].run(program, inputs, execution)
            milliseconds = (SystemClock.monotonic() - started) * 1_000
        else:
            milliseconds = (SystemClock.monotonic() - started) * 1_000
            if way.compare == "now":
                compared = self._compare(program, inputs, execution, mode, path, outcome, hidden)
            elif way.compare == "shadow":
                self._queue_shadow(program, inputs, execution, mode, outcome, hidden)
        self._count(program, outcome, inputs, milliseconds, compared=compared, watch=watch)
        if program.audit:
            self._records.audit_pure(program, inputs, outcome, mode, execution.trace_id, hidden)
        return outcome

    def opened(self, order: ExecutionOrder) -> tuple[dict[str, Any], dict[str, Any]]:
        """The inputs and the ambient objects of an order."""
        if not order.sealed:
            return from_json(order.inputs), order.ambient
        inputs, ambient = self.privacy.sealer.open(order.sealed)
        return inputs, ambient

    async def _effectful(
        self, kernel: Kernel, program: NodeProgram, order: ExecutionOrder, key: Any, caller: NodeCaller | None = None
    ) -> Outcome:
        """The outcome of the process that executes this order, or of an earlier one with the same key."""
        called = None if caller is None else f"import-{caller.key}"
        pid = called if key is None else _pid(program, key)
        grant = self.grant if caller is None else caller.grant
        handle = kernel.spawn(node_process, order, pid=pid, grant=grant)
        ended = await handle.wait()
        if ended.error is not None:
            raise ended.error
        result = ended.result
        if result["inputs"] != inputs_digest(order):
            message = f"{program.idempotency_key} was used before, with other inputs"
            return _failed("invalid_input", message, phase="input")
        return self._outcome(result)

    def _outcome(self, result: Mapping[str, Any]) -> Outcome:
        """The outcome of a process. An execution that shares an earlier one has the trace id of that."""
        data = result["outcome"]
        outcome = _outcome(self.privacy.sealer.open(data) if isinstance(data, str) else data)
        force_setattr(outcome, "trace_id", str(result.get("trace_id", "")))
        return outcome

    def _refusal(self, program: NodeProgram, grant: Grant) -> Outcome | None:
        """The outcome of a node that needs a right it has not got, before its first step."""
        for text in program.capabilities:
            try:
                grant.check(Capability.parse(text))
            except (CapabilityDenied, ConfigError) as error:
                return _failed("capability_denied", f"{program.node_id} needs {text}: {error.message}")
        return None

    # ------------------------------------------------------------------ comparing

    def _compare(
        self,
        program: NodeProgram,
        inputs: Mapping[str, Any],
        execution: Execution,
        mode: str,
        live: str,
        outcome: Outcome,
        hidden: frozenset[str] = frozenset(),
    ) -> bool:
        """Run the other path of a node without effects; whether both agree."""
        other = "direct" if live == "python" else "python"
        try:
            second = self.paths[other].run(program, inputs, execution)
            differences = compare(outcome, second) if live == "python" else compare(second, outcome)
        except Exception as error:  # noqa: BLE001 - a path that breaks differs from one that does not
            differences = [broken(error)]
        if differences:
            self._diverged(program, inputs, execution, mode, differences, hidden)
        return not differences

    def compared(
        self, program: NodeProgram, order: ExecutionOrder, execution: Execution, differences: list[dict[str, Any]]
    ) -> None:
        """The process of a node ran both paths."""
        if differences:
            self._diverged(program, self.opened(order)[0], execution, order.mode, differences, order.hidden)
        else:
            self._counters.compared(program.node_id, program.digest)

    def broke(self, program: NodeProgram, order: ExecutionOrder, execution: Execution, error: Exception) -> None:
        """The direct path of a process raised where it was live."""
        self._diverged(program, self.opened(order)[0], execution, order.mode, [broken(error)], order.hidden)

    def ended(self, program: NodeProgram, order: ExecutionOrder, outcome: Outcome, effects: list[EffectRecord]) -> None:
        """The process of a node is about to end: write its audit row and its trace."""
        self._records.process_ended(program, order, *self.opened(order), outcome, effects)

    def _diverged(
        self,
        program: NodeProgram,
        inputs: Mapping[str, Any],
        execution: Execution,
        mode: str,
        differences: list[dict[str, Any]],
        hidden: Collection[str] = (),
    ) -> None:
        redaction = redaction_of(program, inputs, hidden)
        row = {
            "node": program.node_id,
            "digest": program.digest,
            "mode": mode,
            "inputs": redacted_fields(program, inputs, redaction, hidden),
            "differences": redacted_differences(program, differences[:20], redaction),
            "reproducible": program.pure and self._happens_again(program, inputs, execution),
            "trace_id": execution.trace_id,
        }
        self._write("vesper.diverged", row)
        if mode in _DEMOTING:
            self._change_mode(program, "shadow_direct", why="a divergence", forced=False)

    def _happens_again(self, program: NodeProgram, inputs: Mapping[str, Any], execution: Execution) -> bool:
        try:
            first = self.paths["python"].run(program, inputs, execution)
            second = self.paths["direct"].run(program, inputs, execution)
        except Exception:  # noqa: BLE001 - it breaks again
            return True
        return bool(compare(first, second))

    def _queue_shadow(self, *work: Any) -> None:
        """Have an execution compared by the worker; where too many wait, it is not."""
        if self._shadow_thread is None:
            self._shadow_thread = threading.Thread(target=self._work_off, name="lyra-vesper-shadow", daemon=True)
            self._shadow_thread.start()
        with suppress(queue.Full):
            self._shadows.put_nowait(work)

    def _work_off(self) -> None:
        while (work := self._shadows.get()) is not None:
            program, inputs, execution, mode, outcome, hidden = work
            if self._compare(program, inputs, execution, mode, "python", outcome, hidden):
                self._counters.compared(program.node_id, program.digest)
            self._shadows.task_done()
        self._shadows.task_done()

    def settle(self) -> None:
        """Wait until every shadow execution is compared and counted."""
        self._shadows.join()
        self._flush()

    # ------------------------------------------------------------------ evidence and modes

    def evidence(self, node: Node) -> NodeEvidence:
        """What is known about a node as it is now."""
        self.settle()
        program = self.program(node)
        return self.state.by_digest.get(program.digest) or NodeEvidence(program.node_id, program.digest)

    def confidence(self, node: Node) -> float:
        evidence = self.evidence(node)
        return lower_bound(evidence.compared, evidence.divergences)

    def mode(self, node: Node) -> str:
        return self._mode_of(self.program(node))

    def _mode_of(self, program: NodeProgram) -> str:
        evidence = self.state.by_digest.get(program.digest)
        return "python_only" if evidence is None else evidence.mode

    def set_mode(self, node: Node, mode: str, *, force: bool = False) -> None:
        """Change the mode of a node; a promotion needs the evidence for it, unless it is forced."""
        mode_named(mode)
        program = self.program(node)
        evidence = self.evidence(node)
        best = allowed(evidence.compared, evidence.divergences, blocked=evidence.blocked, clean=evidence.clean)
        enough = ORDER.index(mode) <= max(ORDER.index(best), ORDER.index("shadow_direct"))
        if not enough and not force:
            raise ConfigError(
                f"the evidence for {program.node_id} allows {best}, not {mode}: {_lack(evidence, mode)}",
                hint="compare more (`vesper verify`), or say --force",
                key="mode",
            )
        self._change_mode(program, mode, why="set by hand", forced=not enough)

    def promote(self, node: Node) -> str:
        """Move a node to the highest mode that its evidence allows; gives the mode. It never skips a mode."""
        program, evidence = self.program(node), self.evidence(node)
        best = allowed(evidence.compared, evidence.divergences, blocked=evidence.blocked, clean=evidence.clean)
        here = ORDER.index(evidence.mode)
        if ORDER.index(best) > here:
            self._change_mode(program, ORDER[here + 1], why="the evidence", forced=False)
        return self.mode(node)

    def add_report(self, node: Node, report: ComparisonReport) -> None:
        """Take what a differential test came to as evidence. What it found can be reproduced."""
        program = self.program(node)
        head = {"node": program.node_id, "digest": program.digest}
        clean = report.compared - report.divergences
        self._write("vesper.compared", {**head, "compared": clean, "errors": 0, "executions": {}})
        for number in range(report.divergences):
            shown = report.kept[number] if number < len(report.kept) else None
            row = {
                **head,
                "mode": "verify",
                "inputs": None if shown is None else redacted_fields(program, shown.shrunk, Redaction(())),
                "differences": [] if shown is None else shown.differences[:20],
                "reproducible": True,
                "trace_id": "",
            }
            self._write("vesper.diverged", row)

    def _change_mode(self, program: NodeProgram, mode: str, *, why: str, forced: bool) -> None:
        row = {"node": program.node_id, "digest": program.digest, "to": mode, "why": why, "forced": forced}
        self._write("vesper.mode", row)

    # ------------------------------------------------------------------ rows

    def _count(
        self,
        program: NodeProgram,
        outcome: Outcome,
        inputs: Mapping[str, Any],
        milliseconds: float,
        *,
        compared: bool = False,
        watch: NodeWatch | None = None,
    ) -> None:
        waiting = self._counters.executed(
            program.node_id,
            program.digest,
            outcome.path,
            milliseconds,
            compared=compared,
            code="" if outcome.error is None else outcome.error.code,
            count=None if watch is None else partial(watch.count, outcome, inputs, milliseconds),
        )
        if waiting >= COUNTED_AT_ONCE:
            for row in self._counters.take(program.digest):
                self._thread.post(partial(self._write_count, row))

    def _write_count(self, row: dict[str, Any], kernel: Kernel) -> None:
        kernel.core.fact(self.state, "", "vesper.compared", row)

    def _flush(self) -> None:
        """Write what was counted, and wait until it is durable."""
        for row in self._counters.take():
            self._write("vesper.compared", row)
        self._records.flush()

    def _tell(self, kind: str, row: dict[str, Any]) -> None:
        """Write an alert, or publish a span."""
        if kind in self.state.KINDS:
            self.write_fact(self.state, kind, row)
        else:
            self._thread.post(lambda kernel: kernel.core.publish("", kind, row))

    def _write(self, kind: str, row: dict[str, Any]) -> None:
        self.write_fact(self.state, kind, row)

    def write_fact(self, state: Any, kind: str, row: dict[str, Any]) -> None:
        """Write a fact and wait until it is durable; on the kernel's own thread, without waiting."""
        kernel = self._thread.kernel
        if kernel.core.thread == threading.get_ident():
            kernel.core.fact(state, "", kind, row)
            return

        async def write(kernel: Kernel) -> None:
            kernel.core.fact(state, "", kind, row)
            await kernel.durable()

        self._thread.call(write)

    # ------------------------------------------------------------------ parts

    def program(self, node: Node) -> NodeProgram:
        program = self._programs.get(node.document.text)
        if program is None:
            program = program_of(node)
            self._watches[node.document.text] = watch_of(node, program)
            self._programs[node.document.text] = program
            self.events.loaded(program)
        return program

    def find_node(self, name: str) -> Node | None:
        """A node that other nodes may call, by its id."""
        return self._nodes.find(name) or self.stored_nodes().find(name)

    def program_of_source(self, source: str) -> NodeProgram:
        program = self._programs.get(source)
        return program if program is not None else self.program(load(source))

    # ------------------------------------------------------------------ nodes of the store

    def stored_nodes(self) -> Repository:
        """The nodes that this runtime's store keeps."""
        self._thread.kernel  # noqa: B018 - reads the journal
        return Repository(nodes=self._stored.nodes())

    def add_node(self, node: Node) -> bool:
        """Keep a node in the store; whether it was not there yet. Refused as a repository refuses it."""
        if not is_new(node, self.stored_nodes()):
            return False
        self.write_fact(self._stored, "vesper.added", {"node": node.node_id, "text": node.document.text})
        return True

    def outcome_data(self, outcome: Outcome) -> dict[str, Any]:
        """The outcome as plain data that a journal keeps; `_outcome` reads it."""
        failure = outcome.error
        told = None if failure is None else [failure.code, failure.message, failure.phase, to_json(failure.fields)]
        return {
            "status": outcome.status,
            "outputs": to_json(outcome.outputs),
            "error": told,
            "path": outcome.path,
            "unverifiable": list(outcome.unverifiable),
        }

    def on_event(self, listener: Callable[[Any], Any], kinds: Iterable[str] | None = None) -> None:
        """Be called, on the kernel's thread, with the Events of this runtime: modes, divergences, transitions."""
        wanted = None if kinds is None else tuple(kinds)

        async def listen(kernel: Kernel) -> None:
            kernel.on_event(listener, wanted)

        self._thread.call(listen)

    def close(self) -> None:
        """Compare what waits, write what was counted, close the kernel and the database."""
        if self._shadow_thread is not None:
            self._shadows.put(None)
            self._shadow_thread.join()
            self._shadow_thread = None
        if self._thread.is_running:
            self._flush()
        self._thread.close()
        self._results.close()
        if self.world.database is not None:
            self.world.database.close()

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make_kernel(self) -> Kernel:
        seams = Seams(states=(self.state, self._machines, self._stored, self.schedule_state, *self._records.states))
        kernel = Kernel(_space(self._store), programs=[node_process], seams=seams)
        kernel.parts[PART] = _Part(self)
        self.world.kernel = kernel
        self.world.machines = Machines(kernel.core, self._machines)
        self.world.call_node = as_registered(self._call_node)  # the runtime spawns, not the node that calls
        return kernel

    async def _call_node(
        self, node_id: str, inputs: Mapping[str, Any], key: str, grant: Grant, hidden: frozenset[str]
    ) -> Any:
        """Execute another node for one, in its own mode and with the caller's rights."""
        node = self.find_node(node_id)
        if node is None:
            raise EffectError("unknown_node", f"no node {node_id!r} is known")
        program = self.program(node)
        mode = self.mode(node)
        number = next(self._numbers)
        way = route(mode_named(mode), program.node_id, inputs, number)
        order = self._order(node, program, to_json(dict(inputs)), mode, way, f"{self._trace}{number}", {}, hidden)
        if program.pure:
            execution = execution_of(order, self, {})
            outcome = await asyncio.to_thread(self._pure, program, inputs, execution, mode, way, None, hidden)
        else:
            outcome = self._refusal(program, grant) or await self._called(order, key, grant)
        outcome = redacted_outcome(program, inputs, outcome, hidden)
        if outcome.error is not None:
            raise EffectError(outcome.error.code, outcome.error.message, outcome.error.fields)
        return outcome.outputs

    async def _called(self, order: ExecutionOrder, key: str, grant: Grant) -> Outcome:
        """The outcome of a node with effects that another one calls; a call that is repeated finds its process."""
        handle = self.world.kernel.spawn(node_process, order, pid=f"call-{key}", grant=grant)
        ended = await handle.wait()
        if ended.error is not None:
            raise ended.error
        return self._outcome(ended.result)

    def rerun(self, trace: StoredTrace, inputs: Mapping[str, Any], path: Any) -> Outcome:
        """Execute a stored execution again as a process of its own, on the path that is handed in."""
        program = self.program_of_source(trace.source)
        refusal = self._refusal(program, self.grant)
        if refusal is not None:
            return refusal
        trace_id = f"{self._trace}{next(self._numbers)}"
        order = self._order(
            load(trace.source), program, to_json(dict(inputs)), trace.mode, Route("direct", ""), trace_id, {}
        )
        usual, self.paths["direct"] = self.paths["direct"], path
        try:
            return self._thread.call(lambda kernel: self._effectful(kernel, program, order, None))
        finally:
            self.paths["direct"] = usual

    # ------------------------------------------------------------------ what is kept of executions

    def audit(self) -> list[dict[str, Any]]:
        """The latest audit rows, the oldest first."""
        self.settle()
        return self._records.audit_rows()

    def traces(self) -> dict[str, StoredTrace]:
        """The executions that can be replayed, by trace id, the oldest first."""
        self.settle()
        return self._records.traces()


class _Part:
    """The runtime as its kernel sees it: something that is closed with it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    async def close(self) -> None:
        """The runtime closes its kernel, not the other way round."""


def _space(store: Any) -> Any:
    """A space of the store's file, beside the processes of other kernels."""
    if isinstance(store, (str, FilePath)) and store != "memory":
        from lyra.store.space import Space

        return Space(store, "vesper")
    return store


def _pid(program: NodeProgram, key: Any) -> str:
    digest = hashlib.sha256(canonical([program.node_id, to_json(key)])).hexdigest()
    return f"vesper-{program.node_id}-{digest[:24]}"


def _outcome(data: Mapping[str, Any]) -> Outcome:
    told = data["error"]
    failure = None if told is None else NodeFailure(told[0], told[1], told[2], from_json(told[3]))
    return Outcome(data["status"], from_json(data["outputs"]), failure, data["path"], tuple(data["unverifiable"]))


def _failed(code: str, message: str, *, phase: str = "flow") -> Outcome:
    return Outcome("error", error=NodeFailure(code, message, phase, {"error_code": code, "message": message}))


def _lack(evidence: NodeEvidence, mode: str) -> str:
    if evidence.blocked:
        return "a divergence could be reproduced"
    confidence = lower_bound(evidence.compared, evidence.divergences)
    return f"confidence {confidence:.5f} after {evidence.compared} compared runs, {GATES.get(mode, 0.0)} are needed"
