"""Simulated surroundings of executions: contexts that follow from a seed, and an outside world that remembers.

`RememberingWorld`, for property tests, answers each request by what it asks for, so that equal questions have equal
answers on both paths and in both of two executions. It performs a request once for its key, as the real performers do,
keeps where the entities of state machines stand, and notes what no node may do: a transition that its machine does not
declare, and another request under a key that was used before. Contexts, for differential tests, have a fixed time,
ambient objects, predicates and effects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from random import Random  # noqa: TID251 - the type; generators come from core.ids
from typing import Any, Final, NamedTuple

import msgspec

from lyra.core.ids import make_random
from lyra.vesper import ir
from lyra.vesper.effects.replay import EffectLog, EffectRecord, ReplayEffects, request_digest
from lyra.vesper.effects.request import EffectError, EffectRequest, TransactionBody, TransactionEnd
from lyra.vesper.evidence.answers import AnswerForms, list_call_failures
from lyra.vesper.evidence.clock_changes import NOW
from lyra.vesper.evidence.compare import is_same
from lyra.vesper.evidence.inputs import Boundaries, drawer, parts_of, pick
from lyra.vesper.evidence.keys import list_called_nodes
from lyra.vesper.evidence.rooms import depends_on_inputs
from lyra.vesper.values.outcome import Execution, Outcome
from lyra.vesper.values.types import ANY

_READING_METHODS: Final = ("GET", "HEAD")
_FAILING_SHARE: Final = 0.1
_ODD_SHARE: Final = 0.15  # of responses that are anything
_CALM_SHARE: Final = 0.6  # of simulated worlds in which all answers are right
_ERROR_SHARE: Final = 0.25  # of the answers of other worlds
_WRONG_SHARE: Final = 0.1
_CALL_DEPTH_MAX: Final = 8


class RememberingWorld:
    """Shared by the executions of one property test on one path."""

    def __init__(self, program: ir.NodeProgram, forms: AnswerForms, seed: int) -> None:
        self._forms = forms
        self._seed = seed
        self._machines = {machine.name: machine for machine in program.machines}
        self._by_key: dict[str, tuple[str, Any, EffectError | None]] = {}
        self.states: dict[tuple[str, str], str] = {}
        self.changes: list[str] = []  # acts that changed something, in their order
        self.problems: list[str] = []

    async def perform(self, request: EffectRequest) -> Any:
        asked = request_digest(msgspec.structs.replace(request, idempotency_key="", timeout_s=None, retry=None))
        earlier = self._by_key.get(request.idempotency_key)
        if earlier is None:
            earlier = asked, *self._answer(request, asked)
            self._by_key[request.idempotency_key] = earlier
        elif earlier[0] != asked:
            self.problems.append(f"{request.step} asks for something else under the key of an earlier request")
        _, response, error = earlier
        if error is not None:
            raise EffectError(error.kind, error.message, error.fields)
        return response

    def _answer(self, request: EffectRequest, asked: str) -> tuple[Any, EffectError | None]:
        if request.kind == "state.transition":
            return self._move(request)
        if not _only_reads(request):
            self.changes.append(f"{request.step} ({request.kind})")
        rng = make_random(int(asked, 16) ^ self._seed)
        if rng.random() < _FAILING_SHARE:
            return None, EffectError("timeout", "simulated")
        if rng.random() < _ODD_SHARE:
            return self._forms.wrong(rng), None
        return self._forms.right(request.step, request.kind, request.payload, rng), None

    def _move(self, request: EffectRequest) -> tuple[Any, EffectError | None]:
        payload = request.payload
        name, source, target = payload["machine"], payload["from"], payload["to"]
        machine = self._machines[name]
        if target not in machine.states:
            self.problems.append(f"{request.step}: {name} has no state {target!r}")
        if not any((start, end) == (source, target) for start, end, _ in machine.moves):
            self.problems.append(f"{request.step}: {name} declares no transition from {source!r} to {target!r}")
        place = name, repr(payload["entity"])
        here = self.states.get(place, machine.initial)
        if here != source:
            return None, EffectError("invalid_transition", f"{name} is {here}, not {source}")
        self.changes.append(f"{request.step} (state.transition)")
        self.states[place] = target
        return target, None


def _only_reads(request: EffectRequest) -> bool:
    if request.kind == "http.call":
        return str(request.payload.get("method") or "POST").upper() in _READING_METHODS
    return request.kind in ("db.query", "event.subscribe")


# ---------------------------------------------------------------- contexts


def executions(program: ir.NodeProgram, seed: int, count: int = 8) -> list[Execution]:
    """Return some contexts; in the last, predicates and ambient objects are missing."""
    hosts = sorted({part.name for part in parts_of(program) if isinstance(part, ir.HostCall)})
    if not hosts and not program.ambient:
        return [Execution(now=NOW, trace_id=f"t{seed}")]
    rng, draw = make_random(seed), drawer(ANY, Boundaries(program))
    fields = _ambient_fields(program)
    contexts = []
    for number in range(count - 1):
        ambient = {name: {field: draw(rng) for field in fields[name]} for name in program.ambient}
        predicates = {name: _predicate(f"{seed}/{number}/{name}") for name in hosts}
        contexts.append(Execution(now=NOW, trace_id=f"t{seed}-{number}", predicates=predicates, ambient=ambient))
    return [*contexts, Execution(now=NOW, trace_id=f"t{seed}-bare")]


def open_execution(program: ir.NodeProgram, seed: int) -> Execution:
    """Return a context that stands in no node's way: predicates hold, and contracts about ambient objects are
    unverifiable."""
    hosts = {part.name for part in parts_of(program) if isinstance(part, ir.HostCall)}
    predicates: dict[str, Callable[..., bool]] = dict.fromkeys(hosts, _holds)
    return Execution(now=NOW, trace_id=f"t{seed}-open", predicates=predicates)


def _holds(*_: Any) -> bool:
    return True


def _ambient_fields(program: ir.NodeProgram) -> dict[str, list[str]]:
    """Return the fields of ambient objects that the program reads."""
    fields: dict[str, set[str]] = {name: set() for name in program.ambient}
    for part in parts_of(program):
        if isinstance(part, ir.FieldOf) and isinstance(part.target, ir.NodeVariable) and part.target.name in fields:
            fields[part.target.name].add(part.name)
    return {name: sorted(names) for name, names in fields.items()}


def _predicate(key: str) -> Callable[..., bool]:
    def answer(*values: Any) -> bool:
        return blake2b(repr(values).encode(), key=key.encode()[:64]).digest()[0] < 128

    return answer


# ---------------------------------------------------------------- simulated effects


class WorldAnswer(NamedTuple):
    """What a request is answered with: a value, or an error of a kind."""

    value: Any = None
    error: str = ""
    is_wrong: bool = False  # not of the form that such an act answers with


Script = Mapping[tuple[str, int], WorldAnswer]  # by the step and the number of its request


class CallableNodes:
    """The nodes that a program may call, by what it calls them."""

    def __init__(self, find: Callable[[str], ir.NodeProgram | None] | None = None) -> None:
        self._find = find
        self._known: dict[str, ir.NodeProgram | None] = {}
        self._forms: dict[str, AnswerForms] = {}

    def find(self, name: str) -> ir.NodeProgram | None:
        if name not in self._known:
            self._known[name] = None if self._find is None else self._find(name)
        return self._known[name]

    def settle(self, program: ir.NodeProgram, depth: int = 0) -> bool:
        """Return whether all acts of a program are calls of known nodes that only their inputs decide."""
        acts = (ir.EffectStep, ir.TransitionStep, ir.TransactionStep)
        parts = parts_of((program.steps, program.rules))
        kinds = {getattr(part, "kind", "") for part in parts if isinstance(part, acts)}
        if kinds - {"node.call"} or depth > _CALL_DEPTH_MAX or any(list_call_failures(program).values()):
            return False
        callees = [self.find(name) for name in list_called_nodes(program)]
        return all(
            callee is not None
            and depends_on_inputs(callee, is_settled=True)
            and (callee.pure or self.settle(callee, depth + 1))
            for callee in callees
        )

    def forms(self, program: ir.NodeProgram) -> AnswerForms:
        forms = self._forms.get(program.digest)
        if forms is None:
            forms = self._forms[program.digest] = AnswerForms(program)
        return forms


class SimulatedLog(EffectLog):
    """A log that keeps the requests instead of their digests, which take longer than to compare two requests."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: dict[tuple[str, int], EffectRequest] = {}

    def add(
        self,
        request: EffectRequest,
        *,
        response: Any = None,
        error: EffectError | None = None,
        milliseconds: float = 0.0,
    ) -> None:
        place = request.step, request.call_index
        self.requests[place] = request
        kind, message, fields = ("", "", {}) if error is None else (error.kind, error.message, error.fields)
        self.records.append(EffectRecord(*place, "", response, kind, message, fields, milliseconds))


class SimulatedReplay(ReplayEffects):
    """Answers requests from the log of a simulated world."""

    def __init__(self, log: SimulatedLog) -> None:
        super().__init__(log)
        self._requests = log.requests

    def is_asked(self, record: EffectRecord, request: EffectRequest) -> bool:
        logged = self._requests[record.step, record.call_index]
        values, others = msgspec.structs.astuple(logged), msgspec.structs.astuple(request)
        return all(map(is_same, values, others)) or request_digest(logged) == request_digest(request)

    def digest_of(self, record: EffectRecord) -> str:
        return request_digest(self._requests[record.step, record.call_index])


class CalledNode(NamedTuple):
    """A node that really ran for another one."""

    program: ir.NodeProgram
    inputs: Any
    execution: Execution
    log: SimulatedLog
    outcome: Outcome


class SimulatedEffects:
    """Answers every request of one execution at once, and logs it.

    What a request is answered with follows from the seed, the step and the number of its request, unless the script
    says it. In most worlds all answers are right; in the others, some acts fail, transactions as a whole, too, and
    some answers are anything. Nodes that are called really run, on the path that is handed in; in the other worlds some
    calls fail as the rules of their step say, by a time-out for example.
    """

    def __init__(
        self,
        program: ir.NodeProgram,
        nodes: CallableNodes,
        seed: int,
        *,
        script: Script | None = None,
        execution: Execution | None = None,
        path: Callable[..., Outcome] | None = None,
        depth: int = 0,
    ) -> None:
        self._forms = nodes.forms(program)
        self._nodes, self._seed, self._script = nodes, seed, script or {}
        self._execution, self._path, self._depth = execution, path, depth
        self._is_calm = make_random(seed).random() < _CALM_SHARE
        self.log = SimulatedLog()
        self.answers: dict[tuple[str, int], WorldAnswer] = {}
        self.called: list[CalledNode] = []
        self.is_wrong = False  # an answer was anything
        self.is_guessed = False  # an answer without a declared type was made up

    async def perform(self, request: EffectRequest) -> Any:
        answer, fields = self._call(request) if request.kind == "node.call" else (self._answer(request), {})
        self.answers[request.step, request.call_index] = answer
        if answer.error:
            error = EffectError(answer.error, "simulated", fields)
            self.log.add(request, error=error)
            raise error
        self.log.add(request, response=answer.value)
        return answer.value

    async def transact(self, request: EffectRequest, body: TransactionBody) -> TransactionEnd:
        """Run the steps of a transaction over simulated answers, or let it fail as a whole."""
        place = request.step, request.call_index
        scripted = self._script.get(place)
        rng = self._random(request)
        fails = not self._is_calm and rng.random() < _ERROR_SHARE
        kind = self._forms.error(request.step, request.kind, rng) if fails else ""
        answer = WorldAnswer(error=kind) if scripted is None else scripted
        if not answer.error:
            return await body(self)
        self.answers[place] = answer
        error = EffectError(answer.error, "simulated")
        self.log.add(request, error=error)
        raise error

    def _random(self, request: EffectRequest) -> Random:
        """Return the generator of what a request is answered with."""
        key = f"{self._seed}/{request.step}/{request.call_index}".encode()
        return make_random(int.from_bytes(blake2b(key, digest_size=8).digest(), "big"))

    def _answer(self, request: EffectRequest) -> WorldAnswer:
        scripted = self._script.get((request.step, request.call_index))
        self.is_guessed = self.is_guessed or not self._forms.is_declared.get(request.step, True)
        if scripted is not None:
            self.is_wrong = self.is_wrong or scripted.is_wrong
            return scripted
        rng = self._random(request)
        choice = 1.0 if self._is_calm else rng.random()
        if choice < _ERROR_SHARE:
            return WorldAnswer(error=self._forms.error(request.step, request.kind, rng))
        if choice < _ERROR_SHARE + _WRONG_SHARE:
            self.is_wrong = True
            return WorldAnswer(self._forms.wrong(rng), is_wrong=True)
        return WorldAnswer(self._forms.right(request.step, request.kind, request.payload, rng))

    def _call(self, request: EffectRequest) -> tuple[WorldAnswer, dict[str, Any]]:
        """Run the node that is called, in a world of its own; also returns the fields of its error."""
        program = self._nodes.find(str(request.payload.get("node_id") or ""))
        if program is None or self._path is None or self._execution is None or self._depth >= _CALL_DEPTH_MAX:
            return WorldAnswer(error="unknown_node"), {}
        failures = self._forms.call_failures.get(request.step)
        if failures and not self._is_calm:
            rng = self._random(request)
            if rng.random() < _ERROR_SHARE:
                return WorldAnswer(error=pick(rng, failures)), {}
        inputs = request.payload.get("parameters") or {}
        execution = msgspec.structs.replace(self._execution, ambient={})
        seed = self._seed + 1 + request.call_index
        world = SimulatedEffects(
            program, self._nodes, seed, execution=execution, path=self._path, depth=self._depth + 1
        )
        outcome = self._path(program, inputs, execution, world)
        self.called += [*world.called, CalledNode(program, inputs, execution, world.log, outcome)]
        self.is_wrong = self.is_wrong or world.is_wrong
        self.is_guessed = self.is_guessed or world.is_guessed
        if outcome.error is None:
            return WorldAnswer(outcome.outputs), {}
        return WorldAnswer(error=outcome.error.code), outcome.error.fields
