"""Nodes at work: `Runtime` executes them in one of five modes and keeps the evidence.

    runtime = Runtime(store="lyra.db", database="sqlite:///orders.db", providers={"stripe": "https://…"}, grant=[…])
    outcome = runtime.execute(node, {"amount": "99.99"})

`execute` is a plain call, from any thread, and never raises for wrong inputs. A pure node runs where it is called. A
node with effects runs as a process of a kernel on a thread of its own, so that its effects are journaled and it resumes
after a crash; executions with an equal `idempotency_key` are one process. Modes, comparisons and divergences are facts
in the journal. A divergence in a mode with a live direct path, or in dual_verify, leads back to shadow_direct at once.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping
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
from lyra.core.ids import Entropy, ProcessRandom, random_key
from lyra.core.rights.capability import Grant
from lyra.errors import LyraError
from lyra.kernel import Kernel
from lyra.kernel.base.acting import as_registered
from lyra.kernel.seams import Seams
from lyra.observe.exports import export_as_configured
from lyra.vesper.check.derived import sensitive_inputs
from lyra.vesper.check.judge import program_of
from lyra.vesper.effects.database import open_database
from lyra.vesper.effects.performers import Machines, MachineState, NodeWorld, describe_missing_rights, without_denied
from lyra.vesper.effects.request import EffectError
from lyra.vesper.evidence.compare import compare_ends
from lyra.vesper.evidence.modes import SUCCESSES_MIN, Route, mode_named, prometheus, route
from lyra.vesper.evidence.shared import SharedLog
from lyra.vesper.evidence.state import EvidenceState, NodeEvidence
from lyra.vesper.nodes import Node, load
from lyra.vesper.repository.folders import Repository, StoredNodes
from lyra.vesper.repository.versions import is_new
from lyra.vesper.runtime.comparisons import Comparisons
from lyra.vesper.runtime.entries import EventEntry, ScheduleState
from lyra.vesper.runtime.kernel_thread import KernelThread
from lyra.vesper.runtime.paths import DirectPath, ExecutionPath, PythonPath
from lyra.vesper.runtime.privacy import Privacy, redact_fields, redact_outcome, redaction_of
from lyra.vesper.runtime.recording import (
    PART,
    ExecutionOrder,
    ExecutionRecords,
    StoredTrace,
    execution_of,
    inputs_digest,
    node_process,
)
from lyra.vesper.runtime.results import ResultStore, open_results
from lyra.vesper.runtime.watch import NodeWatch, over_rate, watch_of
from lyra.vesper.values.json_values import from_json, to_json
from lyra.vesper.values.outcome import NOT_CONFIGURED, Execution, Outcome, build_refusal, outcome_from
from lyra.vesper.values.plain import UnreadableInputs, to_plain_inputs, wrap_plain_answers

if TYPE_CHECKING:
    from lyra.store.space import Space
    from lyra.vesper.effects.replay import EffectRecord
    from lyra.vesper.evidence.differential import ComparisonReport
    from lyra.vesper.ir import NodeProgram


WATCHED: Final = Route("watched", "")  # the way of an execution under a debugger or a replay


class _ClosedWithShard(NamedTuple):
    """A runtime among the parts of the shard whose evidence it adds to."""

    runtime: Runtime

    async def close(self) -> None:
        await asyncio.to_thread(self.runtime.close)


class NodeCaller(NamedTuple):
    """A program that calls a node: by its key a call that is repeated after a crash is known again."""

    key: str
    grant: Grant


class Runtime:
    """See the module. With `cluster`, the kernel of a shard, modes and evidence are those of all shards of its cluster;
    the runtime is closed with that kernel."""

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
        handlers: Iterable[Node] = (),
        budget: Any = None,
        min_successes: int = SUCCESSES_MIN,
        cluster: Kernel | None = None,
    ) -> None:
        self._store = store if store is not None else "memory"
        self._budget = budget  # of all that its agents spend
        self.min_successes = min_successes  # before the direct path may answer
        self.grant = Grant.none() if grant is None else Grant.of(grant)
        self.paths: dict[str, ExecutionPath] = {"python": PythonPath(), "direct": direct or DirectPath()}
        self.predicates = {name: wrap_plain_answers(predicate) for name, predicate in (predicates or {}).items()}
        self.world = NodeWorld(
            database=None if database is None else open_database(database),
            providers=providers,
            custom=custom,
            agents=agents,
        )
        # Of a shard of a cluster: modes and evidence are those of all its shards.
        self._shared = None if cluster is None else SharedLog(cluster)
        self.is_shared = cluster is not None
        self.state = EvidenceState() if self._shared is None else self._shared.part.state
        self._machines = MachineState()
        self._stored = StoredNodes()
        self._results = open_results(results)
        self.privacy = Privacy(is_durable=self._store != "memory")
        self._programs: dict[str, NodeProgram] = {}  # by the text of the node
        self._callees: dict[str, NodeProgram] = {}  # likewise, of nodes that were looked at and not loaded
        self._watches: dict[str, NodeWatch | None] = {}  # likewise
        self._nodes = nodes if isinstance(nodes, Repository) else Repository(nodes=nodes)  # that `call_node` finds
        self._numbers = count(1)
        self._trace = f"trace_{Entropy().text(12)}_"
        self._draw = ProcessRandom(random_key()).random  # of the sample of direct_only
        self._space: Space | None = None
        self._thread = KernelThread(self._make_kernel)
        self.events = EventEntry(self, self._thread)
        self.schedule_state = ScheduleState()
        self._records = ExecutionRecords(self.privacy, self._thread.write)
        self._comparisons = Comparisons(
            self.paths, self.state, self._thread, self.find_program, self.privacy, min_successes, self._shared
        )
        self._is_closed = False
        if cluster is not None:
            cluster.parts[f"{PART} {id(self)}"] = _ClosedWithShard(self)
        self._handlers = tuple(handlers)  # of events, subscribed before interrupted executions resume
        for node in self._handlers:
            self.program(node)  # a node with mistakes handles nothing
        if self._store != "memory":
            try:
                self.start()
            except BaseException:
                self.close()
                raise

    def start(self) -> None:
        """Open the store, so that processes which a crash interrupted resume; else the first use opens it."""
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
        watched: ExecutionPath | None = None,
    ) -> Outcome:
        """Execute a node; `mode` for this one time. Executions with effects and an equal `once` are one execution. A
        `caller` has rights of its own in place of the runtime's. With `trace`, a pure node too can be replayed. A path
        of a debugger, `watched`, runs in place of both: that is no evidence, and counts nowhere."""
        self._thread.check_open()
        program = self.program(node)
        try:
            inputs = to_plain_inputs(inputs)
            ambient = to_plain_inputs(ambient) if ambient else {}
        except UnreadableInputs as error:
            return build_refusal("invalid_input", str(error), phase="input")
        name = mode if mode is not None else self._comparisons.mode(program)
        settings = mode_named(name)
        number = next(self._numbers)
        result_key = self._results.key(program, inputs, ambient) if program.idempotent and watched is None else ""
        kept = self._results.find(result_key, program) if result_key else None
        grant = self.grant if caller is None else caller.grant
        if kept is not None and self._refusal(program, grant) is None:
            force_setattr(kept, "trace_id", f"{self._trace}{number}")
            return kept
        trace_id = f"{self._trace}{number}"
        if watched is None:
            way, watch = route(settings, program.node_id, inputs, self._draw()), self._watches[node.document.text]
        else:
            way, watch, self.paths[WATCHED.live] = WATCHED, None, watched
        limits = node.performance.rate_limit
        if limits is not None and (refusal := self._thread.call(partial(over_rate, node, limits, inputs, ambient))):
            force_setattr(refusal, "path", way.live)
            return refusal
        started = SystemClock.monotonic()
        if program.pure:
            execution = Execution(
                now=datetime.fromtimestamp(SystemClock.now(), UTC),
                trace_id=trace_id,
                predicates=self.predicates,
                ambient=ambient,
            )
            outcome = self._pure(program, inputs, execution, name, way, watch)
            if trace:
                self._records.trace_pure(program, node.document.text, inputs, execution, outcome, name)
        else:
            outcome = self._with_effects(node, program, inputs, name, way, trace_id, ambient, once, caller)
            trace_id = outcome.trace_id or trace_id
        if outcome.error is not None:
            outcome = redact_outcome(program, inputs, outcome)
        force_setattr(outcome, "trace_id", trace_id)
        force_setattr(outcome, "path", outcome.path or way.live)  # refused before it began: where it would have run
        if watch is not None:
            milliseconds = (SystemClock.monotonic() - started) * 1_000
            evidence = self.state.get_or_create(program.node_id, self._comparisons.key(program))
            watch.note_execution(outcome, milliseconds, evidence, self._tell)
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
            return build_refusal("invalid_input", str(error), phase="input")
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
        if way is not WATCHED:
            self._comparisons.count(program, outcome, inputs, milliseconds, watch=self._watches[node.document.text])
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
        """Return the order of an execution; `inputs` are as `to_json` gives them. Of a private node they are sealed."""
        sealed = ""
        if self.privacy.is_private(program, hidden):
            values = from_json(inputs)
            sealed = self.privacy.sealer.seal([values, dict(ambient)])
            inputs = redact_fields(program, values, redaction_of(program, values, hidden), hidden)
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
        compared: Execution | None = None
        started = SystemClock.monotonic()
        try:
            outcome = self.paths[path].run(program, inputs, execution)
        except Exception as error:
            if path != "direct":
                raise
            outcome = self.paths["python"].run(program, inputs, execution)
            self._comparisons.note_divergence(program, inputs, execution, mode, outcome, error, hidden=hidden)
            milliseconds = (SystemClock.monotonic() - started) * 1_000
        else:
            milliseconds = (SystemClock.monotonic() - started) * 1_000
            if way.compare == "now":
                is_equal = self._comparisons.agree(program, inputs, execution, mode, path, outcome, hidden)
                compared = execution if is_equal else None
            elif way.compare == "shadow":
                self._comparisons.waiting.add(program, inputs, execution, mode, outcome, hidden)
        if way is not WATCHED:
            self._comparisons.count(program, outcome, inputs, milliseconds, compared=compared, watch=watch)
        if program.audit:
            self._records.audit_pure(program, inputs, outcome, mode, execution, hidden)
        return outcome

    def open_order(self, order: ExecutionOrder) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the inputs and the ambient objects of an order."""
        if not order.sealed:
            return from_json(order.inputs), order.ambient
        inputs, ambient = self.privacy.sealer.open(order.sealed)
        return inputs, ambient

    async def _effectful(
        self, kernel: Kernel, program: NodeProgram, order: ExecutionOrder, key: Any, caller: NodeCaller | None = None
    ) -> Outcome:
        """Return the outcome of the process that executes this order, or of an earlier one with the same key."""
        called = None if caller is None else f"import-{caller.key}"
        pid = called if key is None else _pid(program, key)
        grant = self.grant if caller is None else caller.grant
        handle = kernel.spawn(node_process, order, pid=pid, grant=without_denied(grant, program.denied))
        ended = await handle.wait()
        if ended.error is not None:
            raise ended.error
        result = ended.result
        if result["inputs"] != inputs_digest(order):
            message = f"{program.idempotency_key} was used before, with other inputs"
            return build_refusal("invalid_input", message, phase="input")
        return self._outcome(result)

    def _outcome(self, result: Mapping[str, Any]) -> Outcome:
        """Return the outcome of a process. An execution that shares an earlier one has the trace id of that."""
        data = result["outcome"]
        outcome = outcome_from(self.privacy.sealer.open(data) if isinstance(data, str) else data)
        force_setattr(outcome, "trace_id", str(result.get("trace_id", "")))
        return outcome

    def _refusal(self, program: NodeProgram, grant: Grant) -> Outcome | None:
        """Return the outcome of a node that needs a right it has not got, before its first step."""
        missing = describe_missing_rights(grant, program.capabilities)
        return build_refusal("capability_denied", f"{program.node_id} needs {missing}") if missing else None

    # ------------------------------------------------------------------ processes of nodes

    def note_comparison(
        self,
        program: NodeProgram,
        order: ExecutionOrder,
        execution: Execution,
        python: Outcome | Exception,
        direct: Outcome | Exception,
        mismatches: list[dict[str, Any]],
    ) -> None:
        """Note that the process of a node ran both paths, and how they ended."""
        inputs = self.open_order(order)[0]
        if isinstance(python, Exception) or mismatches or compare_ends(python, direct):
            self._comparisons.note_divergence(
                program, inputs, execution, order.mode, python, direct, mismatches, order.hidden
            )
        else:
            self._comparisons.note_agreement(program, inputs, execution, python)

    def note_end(
        self, program: NodeProgram, order: ExecutionOrder, outcome: Outcome, effects: list[EffectRecord]
    ) -> None:
        """Write the audit row and the trace of a process that is about to end."""
        self._records.process_ended(program, order, *self.open_order(order), outcome, effects)

    # ------------------------------------------------------------------ evidence and modes

    def settle(self) -> None:
        """Wait until every shadow execution is compared and counted."""
        self._comparisons.waiting.settle()
        self._flush()

    def _flush(self) -> None:
        self._comparisons.flush()
        self._records.flush()

    def evidence(self, node: Node) -> NodeEvidence:
        """Return the evidence about the present text of a node."""
        self.settle()
        return self._comparisons.evidence(self.program(node))

    def confidence(self, node: Node) -> float:
        return self.evidence(node).confidence

    def mode(self, node: Node) -> str:
        return self._comparisons.mode(self.program(node))

    def set_mode(self, node: Node, mode: str, *, force: bool = False) -> None:
        """Change the mode of a node; a promotion needs the evidence for it, unless it is forced."""
        self.settle()
        self._comparisons.set_mode(self.program(node), mode, force=force)

    def promote(self, node: Node) -> str:
        """Move a node one mode up, if its evidence allows that; gives the mode it has then."""
        self.settle()
        self._comparisons.promote(self.program(node))
        return self.mode(node)

    def add_report(self, node: Node, report: ComparisonReport) -> None:
        """Add the result of a differential test to the evidence."""
        self._comparisons.add_report(self.program(node), report)

    def _tell(self, kind: str, row: dict[str, Any]) -> None:
        """Write an alert, or publish a span."""
        if kind in self.state.KINDS:
            self._comparisons.write_alert(row)
        else:
            self._thread.post(lambda kernel: kernel.core.publish("", kind, row))

    def write_fact(self, state: Any, kind: str, row: dict[str, Any]) -> None:
        """Write a fact and wait until it is durable."""
        self._thread.write(state, kind, row)

    # ------------------------------------------------------------------ parts

    def program(self, node: Node) -> NodeProgram:
        program = self._programs.get(node.document.text)
        if program is None:
            program = program_of(node)
            self._watches[node.document.text] = watch_of(node, program)
            self._programs[node.document.text] = program
            self.events.subscribe_steps(program)
        return program

    def find_node(self, name: str) -> Node | None:
        """Return a node that other nodes may call, by its id."""
        return self._nodes.find(name) or self.stored_nodes().find(name)

    def find_program(self, name: str) -> NodeProgram | None:
        """Return the program of a node that other nodes may call, by its id."""
        node = self.find_node(name)
        if node is None:
            return None
        text = node.document.text
        program = self._programs.get(text) or self._callees.get(text)
        if program is None:
            program = self._callees[text] = program_of(node)
        return program

    def program_of_source(self, source: str) -> NodeProgram:
        program = self._programs.get(source)
        return program if program is not None else self.program(load(source))

    # ------------------------------------------------------------------ nodes of the store

    def stored_nodes(self) -> Repository:
        """Return the nodes that this runtime's store keeps."""
        self._thread.kernel  # noqa: B018 - reads the journal
        return Repository(nodes=self._stored.nodes())

    def add_node(self, node: Node) -> bool:
        """Keep a node in the store; whether it was not there yet. Refused as a repository refuses it."""
        if not is_new(node, self.stored_nodes()):
            return False
        self._thread.write(self._stored, "vesper.added", {"node": node.node_id, "text": node.document.text})
        return True

    def metrics_text(self) -> str:
        """Return the figures of all nodes in the text format of Prometheus, as `PrometheusMetrics.add_text` takes them.
        What was counted is written first, so it may wait for the store."""
        self._flush()
        return prometheus([self.state.by_digest[digest] for _, digest in sorted(self.state.latest.items())])

    def on_event(self, listener: Callable[[Any], Any], kinds: Iterable[str] | None = None) -> None:
        """Be called, on the kernel's thread, with the Events of this runtime: modes, divergences, transitions."""
        wanted = None if kinds is None else tuple(kinds)
        if self._shared is not None:
            self._shared.on_event(listener, wanted)

        async def listen(kernel: Kernel) -> None:
            kernel.on_event(listener, wanted)

        self._thread.call(listen)

    def close(self) -> None:
        """Finish the waiting comparisons, write the counts, and close the kernel and the database."""
        if self._is_closed:
            return
        self._is_closed = True
        self._comparisons.waiting.close()
        if self._shared is not None:
            with suppress(LyraError):  # its shard is closed; counts that are lost make the evidence smaller
                self._comparisons.flush()
        if self._thread.is_running:
            self._flush()
        self._thread.close()
        if self._space is not None:
            self._space.close()
        self._results.close()
        if self.world.database is not None:
            self.world.database.close()

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make_kernel(self) -> Kernel:
        states = (self._machines, self._stored, self.schedule_state, *self._records.states)
        seams = Seams(states=(self.state, *states) if self._shared is None else states)
        self._space = _make_space(self._store)
        store = self._store if self._space is None else self._space
        kernel = Kernel(store, programs=[node_process], seams=seams, budget=self._budget)
        kernel.parts[PART] = _Part(self)
        self.world.kernel = kernel
        self.world.machines = Machines(kernel.core, self._machines)
        self.world.call_node = as_registered(self._call_node)  # the runtime spawns, not the node that calls
        self.world.ask_agent = as_registered(self._ask_agent)
        self.events.add_first(kernel, self._handlers)
        export_as_configured(kernel)
        return kernel

    async def _ask_agent(self, agent: Any, prompt: str, pid: str, grant: Grant) -> Any:
        """Ask an agent for a node that may call it, and return its answer; the agent's process has its own rights."""
        return await self.world.kernel.spawn(agent, pid=pid, grant=grant).send(prompt)

    async def _call_node(
        self, node_id: str, inputs: Mapping[str, Any], key: str, grant: Grant, hidden: frozenset[str]
    ) -> Any:
        """Execute another node for one, in its own mode and with the caller's rights."""
        node = self.find_node(node_id)
        if node is None:
            message = f"no node {node_id!r} is known: put its file beside the caller's or into nodes/"
            raise EffectError(NOT_CONFIGURED, message)
        program = self.program(node)
        mode = self.mode(node)
        trace_id = f"{self._trace}{next(self._numbers)}"
        way = route(mode_named(mode), program.node_id, inputs, self._draw())
        order = self._order(node, program, to_json(dict(inputs)), mode, way, trace_id, {}, hidden)
        if program.pure:
            execution = execution_of(order, self, {})
            outcome = await asyncio.to_thread(self._pure, program, inputs, execution, mode, way, None, hidden)
        else:
            outcome = self._refusal(program, grant) or await self._spawn_called_node(
                order, key, without_denied(grant, program.denied)
            )
        outcome = redact_outcome(program, inputs, outcome, hidden)
        if outcome.error is not None:
            raise EffectError(outcome.error.code, outcome.error.message, outcome.error.fields)
        return outcome.outputs

    async def _spawn_called_node(self, order: ExecutionOrder, key: str, grant: Grant) -> Outcome:
        """Return the outcome of a node with effects that another one calls; a call that is repeated finds its
        process."""
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
        order = self._order(load(trace.source), program, to_json(dict(inputs)), trace.mode, WATCHED, trace_id, {})
        self.paths[WATCHED.live] = path
        return self._thread.call(lambda kernel: self._effectful(kernel, program, order, None))

    # ------------------------------------------------------------------ what is kept of executions

    def audit(self) -> list[dict[str, Any]]:
        """Return the latest audit rows, the oldest first."""
        self.settle()
        return self._records.audit_rows()

    def traces(self) -> dict[str, StoredTrace]:
        """Return the executions that can be replayed, by trace id, the oldest first."""
        self.settle()
        return self._records.traces()


class _Part:
    """The runtime as its kernel sees it: something that is closed with it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    async def close(self) -> None:
        """Do nothing: the runtime closes its kernel, not the other way round."""


def _make_space(store: Any) -> Space | None:
    """Return a space of the store's file, beside the processes of other kernels; None for other stores."""
    if not isinstance(store, (str, FilePath)) or store == "memory":
        return None
    from lyra.store.space import Space

    return Space(store, "vesper")


def _pid(program: NodeProgram, key: Any) -> str:
    digest = hashlib.sha256(canonical([program.node_id, to_json(key)])).hexdigest()
    return f"vesper-{program.node_id}-{digest[:24]}"
