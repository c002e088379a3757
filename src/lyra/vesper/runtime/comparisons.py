"""What a runtime learns about its nodes: executions counted, paths compared, divergences, modes.

`Comparisons` runs the other path of a node without effects, writes what differs, without sensitive values, and leads a
node whose direct path was trusted back to shadow_direct at once. It counts what agrees: `Counters` gathers the numbers
of all threads, and the runtime writes them when enough have come together, when a mode is judged, and at the end. A
mode is changed by hand, as far as the evidence allows it, or one step up by `promote`.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lyra.vesper.check.derived import sensitive_inputs
from lyra.vesper.evidence.compare import compare_ends
from lyra.vesper.evidence.differential import ComparisonReport, is_past_entry
from lyra.vesper.evidence.keys import TIER, FindProgram, evidence_key, list_called_nodes
from lyra.vesper.evidence.modes import RELYING_ON_DIRECT, check_mode, find_promotion
from lyra.vesper.evidence.reach import ReachPlan, watch
from lyra.vesper.evidence.seen import ACCEPTED, SUCCEEDED, InputTexts, SeenInputs
from lyra.vesper.evidence.state import (
    DURATION_BUCKETS_MS,
    WINDOW,
    EvidenceState,
    NodeEvidence,
    empty_spread,
    observe,
    slow_alert,
)
from lyra.vesper.runtime.privacy import (
    Privacy,
    redact_differences,
    redact_fields,
    redact_outcome,
    redaction_of,
)
from lyra.vesper.runtime.recording import cut_values
from lyra.vesper.values.outcome import Execution, Outcome, new_execution
from lyra.vesper.values.redaction import Redaction

if TYPE_CHECKING:
    from lyra.kernel import Kernel
    from lyra.vesper.evidence.shared import SharedLog
    from lyra.vesper.ir import NodeProgram
    from lyra.vesper.runtime.kernel_thread import KernelThread
    from lyra.vesper.runtime.paths import ExecutionPath
    from lyra.vesper.runtime.watch import NodeWatch


_log: Final = logging.getLogger("lyra.vesper")
COUNTED_AT_ONCE: Final = 1_000  # executions of a node that are written as one row
_SEEN_ROW: Final = 32 * 1024  # bytes of the keys of distinct inputs in one row
DIFFERENCES_KEPT: Final = 20  # of one divergence


class Comparisons:
    """See the module."""

    def __init__(
        self,
        paths: Mapping[str, ExecutionPath],
        state: EvidenceState,
        thread: KernelThread,
        find: FindProgram,
        privacy: Privacy,
        min_successes: int,
        shared: SharedLog | None = None,
    ) -> None:
        self._shared = shared  # where the evidence is that of all shards of a cluster
        self._find, self._privacy, self._min_successes = find, privacy, min_successes
        self._keys: dict[str, str] = {}  # of evidence, by the digest of a program
        self._looks: dict[str, _LiveReach] = {}  # by the key of evidence
        self._paths = paths
        self._state = state
        self._thread = thread
        self._counters = Counters()
        self.waiting = ComparisonQueue(self._compare_later)

    # ------------------------------------------------------------------ comparing
    def agree(
        self,
        program: NodeProgram,
        inputs: Mapping[str, Any],
        execution: Execution,
        mode: str,
        live: str,
        outcome: Outcome,
        hidden: Collection[str] = (),
    ) -> bool:
        """Run the other path of a node without effects; whether both agree."""
        second = self._end("direct" if live == "python" else "python", program, inputs, execution)
        python, direct = (outcome, second) if live == "python" else (second, outcome)
        if not compare_ends(python, direct):
            return True
        self.note_divergence(program, inputs, execution, mode, python, direct, hidden=hidden)
        return False

    def _end(
        self, path: str, program: NodeProgram, inputs: Mapping[str, Any], execution: Execution
    ) -> Outcome | Exception:
        """Return the outcome of a path, or what its evaluator raised."""
        try:
            return self._paths[path].run(program, inputs, execution)
        except Exception as error:  # noqa: BLE001 - a path that breaks differs from one that does not
            return error

    def _compare_later(
        self,
        program: NodeProgram,
        inputs: Mapping[str, Any],
        execution: Execution,
        mode: str,
        outcome: Outcome,
        hidden: Collection[str],
    ) -> None:
        if self.agree(program, inputs, execution, mode, "python", outcome, hidden):
            self.note_agreement(program, inputs, execution, outcome)

    def note_agreement(
        self, program: NodeProgram, inputs: Mapping[str, Any], execution: Execution, outcome: Outcome
    ) -> None:
        """Count a comparison without a difference."""
        self._counters.count_comparison(
            program.node_id, self.key(program), self._mark(program, inputs, execution, outcome)
        )

    def _mark(self, program: NodeProgram, inputs: Mapping[str, Any], execution: Execution, outcome: Outcome) -> _Mark:
        """Return the mark that counts an input once, with the parts that its execution reached."""
        is_private = bool(sensitive_inputs(program))
        secret = b""
        if is_private:
            secret = self._privacy.sealer.digest("inputs").encode() if self._shared is None else self._shared.part.key
        is_accepted = is_past_entry(program, inputs, execution, outcome, self._paths["python"].run)
        marks = (ACCEPTED if is_accepted else 0) | (SUCCEEDED if outcome.error is None else 0)
        key = self.key(program)
        look = self._looks.get(key)
        if look is None:
            look = self._looks[key] = _LiveReach(program, self._state.by_digest.get(key))
        number = look.texts.key(inputs, execution.ambient, secret)
        return _Mark(number | marks, look.row(inputs, execution) if program.pure else {})

    def key(self, program: NodeProgram) -> str:
        """Return the key of the evidence for a program as it is now, with the nodes that it calls as they are now."""
        key = self._keys.get(program.digest)
        if key is None:
            tier = getattr(self._paths["direct"], "tier", TIER)
            key = evidence_key(program, self._find, tier)
            if not list_called_nodes(program):
                self._keys[program.digest] = key
        return key

    def note_divergence(
        self,
        program: NodeProgram,
        inputs: Mapping[str, Any],
        execution: Execution,
        mode: str,
        python: Outcome | Exception,
        direct: Outcome | Exception,
        mismatches: Iterable[dict[str, Any]] = (),
        hidden: Collection[str] = (),
    ) -> None:
        """Write what differs; a node whose mode relies on the direct path goes back. `mismatches` are those of the
        requests."""
        redaction = redaction_of(program, inputs, hidden)
        differences = [*compare_ends(python, direct), *mismatches]
        row = {
            "node": program.node_id,
            "digest": self.key(program),
            "mode": mode,
            "inputs": redact_fields(program, inputs, redaction, hidden),
            "differences": redact_differences(program, differences[:DIFFERENCES_KEPT], redaction),
            "reproducible": program.pure and self._happens_again(program, inputs, execution),
            "trace_id": execution.trace_id,
            **self._ends(program, inputs, execution, (python, direct), hidden),
        }
        self._write("vesper.diverged", row)
        self._roll_back(program)

    def _roll_back(self, program: NodeProgram) -> None:
        """Take the direct path out of use after a divergence; a node in a lower mode stays there. The home of a node
        that shards share does it itself."""
        if self._shared is None and self.mode(program) in RELYING_ON_DIRECT:
            self._change_mode(program, "shadow_direct", why="a divergence", forced=False)

    def _happens_again(self, program: NodeProgram, inputs: Mapping[str, Any], execution: Execution) -> bool:
        return bool(compare_ends(*(self._end(path, program, inputs, execution) for path in ("python", "direct"))))

    def _ends(
        self,
        program: NodeProgram,
        inputs: Mapping[str, Any],
        execution: Execution,
        ends: Iterable[Outcome | Exception],
        hidden: Collection[str],
    ) -> dict[str, Any]:
        """Return how both paths ended, without sensitive values, and the step after which their values differ."""
        from lyra.vesper.runtime.stepping import step_of_parting

        redaction = redaction_of(program, inputs, hidden)
        rows: dict[str, Any] = {}
        for path, end in zip(("python", "direct"), ends, strict=True):
            if isinstance(end, Exception):
                error = {"code": "crash", "message": redaction.text(f"{type(end).__name__}: {end}"), "phase": "flow"}
                rows[path] = {"status": "crash", "outputs": {}, "error": error}
                continue
            failure = redact_outcome(program, inputs, end, hidden).error
            rows[path] = {
                "status": end.status,
                "outputs": cut_values(redact_fields(program, end.outputs, redaction, hidden)),
                "error": None
                if failure is None
                else {"code": failure.code, "message": failure.message, "phase": failure.phase},
            }
        return {**rows, "step": step_of_parting(program, inputs, execution) if program.pure else ""}

    def add_report(self, program: NodeProgram, report: ComparisonReport) -> None:
        """Add the result of a differential test to the evidence. Its divergences are reproducible."""
        head = {"node": program.node_id, "digest": self.key(program)}
        clean = report.compared - report.divergences
        row = {**head, "compared": clean, "errors": 0, "executions": {}, "seen": report.seen[:_SEEN_ROW]}
        row |= {"goals": list(report.goals), "reached": list(report.reached)}
        row |= {"unreachable": report.unreachable, "complete": report.complete}
        row["breaches"] = [
            {
                "kind": broken.kind,
                "expression": broken.expression,
                "input": redact_fields(program, broken.input, Redaction(())),
            }
            for broken in report.violations
        ]
        self._write("vesper.compared", row)
        for start in range(_SEEN_ROW, len(report.seen), _SEEN_ROW):
            more = {**head, "compared": 0, "errors": 0, "executions": {}}
            self._write("vesper.compared", {**more, "seen": report.seen[start : start + _SEEN_ROW]})
        execution = new_execution()
        for number in range(report.divergences):
            shown = report.kept[number] if number < len(report.kept) else None
            differences = [] if shown is None else shown.differences[:DIFFERENCES_KEPT]
            row = {
                **head,
                "mode": "verify",
                "inputs": None if shown is None else redact_fields(program, shown.shrunk, Redaction(())),
                "differences": []
                if shown is None
                else redact_differences(program, differences, redaction_of(program, shown.shrunk)),
                "reproducible": True,
                "trace_id": "",
            }
            if shown is not None and program.pure:
                ends = [self._end(path, program, shown.shrunk, execution) for path in ("python", "direct")]
                row |= self._ends(program, shown.shrunk, execution, ends, ())
            self._write("vesper.diverged", row)
        if report.divergences:
            self._roll_back(program)

    # ------------------------------------------------------------------ counting
    def count(
        self,
        program: NodeProgram,
        outcome: Outcome,
        inputs: Mapping[str, Any],
        milliseconds: float,
        *,
        compared: Execution | None = None,
        watch: NodeWatch | None = None,
    ) -> None:
        """Count an execution that has ended; `compared` is the one on which both paths agreed."""
        key = self._keys.get(program.digest) or self.key(program)  # without a call, as every execution asks
        waiting = self._counters.count_execution(
            program.node_id,
            key,
            outcome.path,
            milliseconds,
            mark=None if compared is None else self._mark(program, inputs, compared, outcome),
            code="" if outcome.error is None else outcome.error.code,
            count=None if watch is None else partial(watch.count, outcome, inputs, milliseconds),
        )
        if waiting >= COUNTED_AT_ONCE:
            for row in self._counters.take(key):
                if self._shared is not None:
                    self._shared.post("vesper.compared", row)
                else:
                    self._thread.post(partial(self._write_count, row))

    def _write_count(self, row: dict[str, Any], kernel: Kernel) -> None:
        self._count_and_watch(row, partial(kernel.core.fact, self._state, ""))

    def _count_and_watch(self, row: dict[str, Any], write: Callable[[str, dict[str, Any]], object]) -> None:
        """Write a row, and an alert for each path on which the node has just become slower than its own past."""
        node_id = row["node"]
        known = self._state.slow_paths(node_id)
        write("vesper.compared", row)
        for path in sorted(self._state.slow_paths(node_id) - known):
            write("vesper.alert", slow_alert(node_id, row["digest"], path, self._state.speeds[node_id][path]))

    def flush(self) -> None:
        """Write what was counted, and wait until it is durable."""
        for row in self._counters.take():
            if self._shared is not None:
                self._shared.write("vesper.compared", row)
            else:
                self._count_and_watch(row, self._write)

    # ------------------------------------------------------------------ modes
    def evidence(self, program: NodeProgram) -> NodeEvidence:
        key = self.key(program)
        if self._shared is not None:
            self._shared.read(program.node_id, key)
        return self._state.by_digest.get(key) or NodeEvidence(program.node_id, key)

    def mode(self, program: NodeProgram) -> str:
        if self._shared is not None:
            return self._shared.part.mode(self.key(program))
        evidence = self._state.by_digest.get(self._keys.get(program.digest) or self.key(program))
        return "python_only" if evidence is None else evidence.mode

    def set_mode(self, program: NodeProgram, mode: str, *, force: bool) -> None:
        """Change the mode of a node; a promotion needs the evidence for it, unless it is forced."""
        if self._shared is not None:
            key = self.key(program)
            self._shared.ask("set", program.node_id, key, mode=mode, least=self._min_successes, force=force)
            return
        forced = check_mode(self.evidence(program), mode, self._min_successes, force=force)
        self._change_mode(program, mode, why="set by hand", forced=forced)

    def promote(self, program: NodeProgram) -> None:
        """Move a node one mode up, if its evidence allows that."""
        evidence = self.evidence(program)
        if self._shared is not None:
            key = self.key(program)
            self._shared.ask("promote", program.node_id, key, mode=evidence.mode, least=self._min_successes)
            return
        higher = find_promotion(evidence, self._min_successes)
        if higher is not None:
            self._change_mode(program, higher, why="the evidence", forced=False)

    def _change_mode(self, program: NodeProgram, mode: str, *, why: str, forced: bool) -> None:
        row = {"node": program.node_id, "digest": self.key(program), "to": mode, "why": why, "forced": forced}
        self._write("vesper.mode", row)

    def _write(self, kind: str, row: dict[str, Any]) -> None:
        if self._shared is not None:
            self._shared.write(kind, row)
        else:
            self._thread.write(self._state, kind, row)

    def write_alert(self, row: dict[str, Any]) -> None:
        self._write("vesper.alert", row)


# Executions that wait to be compared, on a thread of their own.
WAITING_MAX: Final = 1_000


class ComparisonQueue:
    """See the module: `compare` is called with what was added."""

    def __init__(self, compare: Callable[..., object]) -> None:
        self._compare = compare
        self._waiting: queue.Queue[tuple[Any, ...] | None] = queue.Queue(WAITING_MAX)
        self._thread: threading.Thread | None = None

    def add(self, *work: Any) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work_off, name="lyra-vesper-shadow", daemon=True)
            self._thread.start()
        with suppress(queue.Full):
            self._waiting.put_nowait(work)

    def _work_off(self) -> None:
        while (work := self._waiting.get()) is not None:
            try:
                self._compare(*work)
            except Exception:  # noqa: BLE001 - a store that fails is no divergence, and the next execution is compared
                _log.exception("an execution could not be compared")
            finally:
                self._waiting.task_done()
        self._waiting.task_done()

    def settle(self) -> None:
        """Wait until nothing waits."""
        self._waiting.join()

    def close(self) -> None:
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None


_LOOKS_MAX: Final = 500  # executions of a node that are watched, as long as something is not reached


class _Mark(NamedTuple):
    """What is counted of a comparison: the key of its input with its marks, and what was reached, if that is new."""

    number: int
    reach: dict[str, Any]


class _LiveReach:
    """What the executions of one node reach, for as long as something is missing."""

    def __init__(self, program: NodeProgram, evidence: NodeEvidence | None) -> None:
        self.texts = InputTexts(program)
        self._plan = ReachPlan(program)
        self._reached = set(() if evidence is None else evidence.reached)
        self._left = _LOOKS_MAX if self._plan.missing(self._reached) or evidence is None else 0

    def row(self, inputs: Mapping[str, Any], execution: Execution) -> dict[str, Any]:
        """Return the parts reached so far, as a row has them; empty where an execution reached nothing new."""
        if self._left <= 0:
            return {}
        self._left -= 1
        try:
            names = watch(self._plan, inputs, execution).names - self._reached
        except Exception:  # noqa: BLE001 - what breaks the reference evaluator is no matter of this execution
            return {}
        if not names:
            return {}
        self._reached |= names
        if not self._plan.missing(self._reached):
            self._left = 0
        goals, reached = list(self._plan.goals), sorted(self._reached.intersection(self._plan.goals))
        return {"goals": goals, "reached": reached, "unreachable": self._plan.unreachable, "complete": False}


class Counters:
    """What happened since the last row, by the digest of a node."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_digest: dict[str, _NodeCount] = {}

    def count_comparison(self, node_id: str, digest: str, mark: _Mark) -> None:
        """Count a comparison without a difference."""
        with self._lock:
            self._count(node_id, digest).add(mark)

    def count_execution(
        self,
        node_id: str,
        digest: str,
        path: str,
        milliseconds: float,
        *,
        mark: _Mark | None = None,
        code: str = "",
        count: Callable[[dict[str, Any]], None] | None = None,
    ) -> int:
        """Count an execution: its path, its duration, its comparison, its error; `count` adds to the metrics that the
        node declares. Gives how many executions of this node wait to be written."""
        with self._lock:
            known = self._by_digest.get(digest) or self._count(node_id, digest)
            spread = known.durations.get(path)
            if spread is None:
                spread = known.durations[path] = empty_spread(DURATION_BUCKETS_MS)
            observe(spread, DURATION_BUCKETS_MS, milliseconds)
            if mark is not None:
                known.add(mark)
            if not code:
                times = known.times.get(path) or known.times.setdefault(path, [])
                if len(times) < WINDOW:
                    times.append(round(milliseconds, 4))
            if code:
                known.codes[code] = known.codes.get(code, 0) + 1
            if count is not None:
                count(known.metrics)
            known.waiting += 1
            return known.waiting

    def _count(self, node_id: str, digest: str) -> _NodeCount:
        known = self._by_digest.get(digest)
        if known is None:
            known = self._by_digest[digest] = _NodeCount(node_id, digest)
        return known

    def take(self, digest: str | None = None) -> list[dict[str, Any]]:
        """Return the rows of one node or of all, which count from zero again."""
        with self._lock:
            if digest is None:
                counts, self._by_digest = list(self._by_digest.values()), {}
            else:
                known = self._by_digest.pop(digest, None)
                counts = [] if known is None else [known]
        return [known.row() for known in counts]


class _NodeCount:
    """What happened to one content of one node."""

    __slots__ = (
        "codes",
        "compared",
        "digest",
        "durations",
        "metrics",
        "node_id",
        "reach",
        "seen",
        "times",
        "waiting",
    )

    def __init__(self, node_id: str, digest: str) -> None:
        self.node_id = node_id
        self.digest = digest
        self.compared = 0
        self.waiting = 0  # executions
        self.codes: dict[str, int] = {}
        self.durations: dict[str, list[float]] = {}
        self.times: dict[str, list[float]] = {}  # milliseconds of successes, a sample
        self.metrics: dict[str, Any] = {}
        self.seen = SeenInputs()
        self.reach: dict[str, Any] = {}

    def add(self, mark: _Mark) -> None:
        self.compared += 1
        self.seen.add(mark.number & ~(ACCEPTED | SUCCEEDED), mark.number & (ACCEPTED | SUCCEEDED))
        if mark.reach:
            self.reach = mark.reach

    def row(self) -> dict[str, Any]:
        return {
            "node": self.node_id,
            "digest": self.digest,
            "compared": self.compared,
            "errors": sum(self.codes.values()),
            "executions": {path: int(sum(spread[:-1])) for path, spread in self.durations.items()},
            "codes": self.codes,
            "durations": self.durations,
            "times": {path: times for path, times in self.times.items() if times},
            "metrics": self.metrics,
            "seen": self.seen.data,
            **self.reach,
        }
