"""`prove(node)`: a verdict for each contract of a node and for each way in which a step can fail.

A verdict is *proved* (it holds for all accepted inputs, within the limits of one execution), *refuted* (with an input
that failed when it was replayed on the reference evaluator) or *unknown* with the reason. The order of a proof: inputs
that are likely to show a failure are run; then the walk over lists of any length is asked with both encodings, and what
the solver finds impossible is proved; then the walk over short lists is asked for an input, which is replayed. A
failure that needs a certain answer of an act outside is unknown: the input alone does not show it.

`boundary_inputs`, `find_refuted_inputs`, `read_refuted_inputs` and `unreachable_steps` are for `vesper verify`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lyra.errors import ConfigError
from lyra.vesper import ir
from lyra.vesper.check.judge import program_of
from lyra.vesper.expressions.functions import FUNCTIONS
from lyra.vesper.prove.replay import InputReplayer, InputRun, candidates

if TYPE_CHECKING:
    from pathlib import Path

    from lyra.vesper.nodes import Node
    from lyra.vesper.prove.flow import NodeWalk

PROVED, REFUTED, UNKNOWN = "proved", "refuted", "unknown"
VERSION: Final = 4  # of the prover: kept verdicts of another one are not used
LIST_ITEMS: Final = 3  # of input lists, in the walk that looks for an input
_MODELS_MAX: Final = 2  # that are replayed for one contract and encoding
QUESTION_RLIMIT: Final = 4_000_000  # steps of the solver for one question
_INPUT_RLIMIT: Final = 2_000_000
_BOUNDARIES_MAX: Final = 40
_BOUNDARY_RLIMIT: Final = 200_000
_SHOWN_MAX: Final = 4  # of what is not modelled, in a reason
_UNREACHABLE: Final = "no accepted input reaches it"
_CODES: Final = {
    "overflow": "overflow",
    "division": "division_by_zero",
    "type_error": "type_error",
    "loop_limit": "loop_limit",
}
_solver = Lock()  # z3 has one context, which takes one thread at a time


class ProofResult(msgspec.Struct, frozen=True):
    """The verdict on one contract, or on one way in which a step or an output can fail."""

    kind: str  # see the table in docs/how-to/prove.md
    expression: str  # as it is written; the name of a step or an output where there is none
    verdict: str
    input: dict[str, Any] | None = None
    reason: str = ""
    step: str = ""


class _Claim(NamedTuple):
    kind: str
    expression: str
    step: str
    violated: Callable[[NodeWalk], Any]  # a condition over the inputs
    deciding: Callable[[NodeWalk], list[Any]]  # terms of it that are its own
    shows: Callable[[InputRun], bool]
    near: Callable[[InputRun], bool]  # an execution of the whole node in which this may fail
    program: ir.NodeProgram  # in which a replay shows it: contracts are judged one at a time


def prove(
    node: Node, *, folder: Path | None = None, progress: Callable[[int], None] | None = None
) -> list[ProofResult]:
    """Return the results for a node. With a folder, verdicts are kept there, by the content of the node. `progress`
    is called with the number of questions that are decided."""
    with _solver:
        proof = _Proof(program_of(node), node)
        return [*_list_unjudged(proof.program), *proof.results(folder, progress)]


def _list_unjudged(program: ir.NodeProgram) -> list[ProofResult]:
    """Return a result for each contract that no execution judges."""
    groups = {
        "precondition": program.preconditions,
        "postcondition": program.postconditions,
        "invariant": program.invariants,
    }
    return [
        ProofResult(kind, contract.text, UNKNOWN, None, f"never judged: {contract.reason}")
        for kind, contracts in groups.items()
        for contract in contracts
        if contract.expression is None
    ]


def prove_program(program: ir.NodeProgram, cases: Sequence[Mapping[str, Any]] = ()) -> list[ProofResult]:
    """Return the results for a program that has no file."""
    with _solver:
        return _Proof(program, None, cases).results(None)


def read_refuted_inputs(node: Node, folder: Path) -> list[dict[str, Any]]:
    """Return the inputs with which `prove` refuted a contract of a node as it is now, of the verdicts in the folder."""
    if find_spec("z3") is None:
        return []
    proof = _Proof(program_of(node), node)
    kept = _read_kept(folder / f"{proof.key(list(_claims(proof.program, node)))}.json") or []
    return [result.input for result in kept if result.input is not None]


def find_refuted_inputs(program: ir.NodeProgram) -> list[dict[str, Any]]:
    """Return the inputs that refute a contract of a program."""
    return [result.input for result in prove_program(program) if result.input is not None]


@lru_cache(maxsize=64)
def _compute_once(make: Callable[[_Proof], Any], program: ProgramKey) -> Any:
    with _solver:
        return make(_Proof(program.program, None))


class ProgramKey:
    """A program as a key of what was found out about it."""

    def __init__(self, program: ir.NodeProgram) -> None:
        self.program = program

    def __hash__(self) -> int:
        return hash(self.program.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProgramKey) and self.program.digest == other.program.digest != ""


def boundary_inputs(program: ir.NodeProgram) -> list[dict[str, Any]]:
    """Return accepted inputs at the boundary of each order that the steps and conditions of a program ask for: equal,
    and a unit to either side."""
    inputs: list[dict[str, Any]] = _compute_once(_Proof.boundaries, ProgramKey(program))
    return inputs


def unreachable_steps(program: ir.NodeProgram) -> dict[str, str]:
    """Return the steps and the sides of conditionals (`NAME: then`, `NAME: else`) that no accepted input reaches, each
    with the reason."""
    names: dict[str, str] = _compute_once(_Proof.unreachable, ProgramKey(program))
    return names


def join_evidence() -> None:
    """Give `vesper verify` boundary inputs and unreachable steps, where z3 is installed."""
    from lyra.vesper.evidence import differential, reach

    if find_spec("z3") is not None and unreachable_steps not in reach.PROVERS:
        reach.PROVERS.append(unreachable_steps)
        differential.INPUT_MAKERS.append(boundary_inputs)


class _Proof:
    """The proof of one program: its walks, made when they are first asked, and the inputs that were tried."""

    def __init__(
        self, program: ir.NodeProgram, node: Node | None, cases: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        try:
            import z3  # noqa: F401
        except ImportError:
            raise ConfigError("vesper prove needs the prove extra", hint="pip install 'lyra-agents[prove]'") from None
        self.program = program
        self.node = node
        tests = () if node is None else node.testing.test_cases
        self._cases = [case.inputs for case in tests] if cases is None else list(cases)
        self._walks: dict[tuple[str, int | None], NodeWalk | str] = {}
        self._tried: list[tuple[dict[str, Any], list[InputRun]]] | None = None
        self._replayer = InputReplayer(program)
        self._replayers = {id(program): self._replayer}  # by the id of their program, which they hold

    # ------------------------------------------------------------ walks and inputs

    def walk(self, encoding: str, list_items: int | None) -> NodeWalk | str:
        """Return the walk, or the reason why it could not be made."""
        import z3

        from lyra.vesper.prove.flow import NodeWalk
        from lyra.vesper.prove.numbers import RealEncoding, ScaledEncoding
        from lyra.vesper.prove.values import UnsupportedNode

        key = encoding, list_items
        if key not in self._walks:
            flow = NodeWalk(self.program, RealEncoding() if encoding == "reals" else ScaledEncoding(), list_items)
            try:
                flow.run()
                self._walks[key] = flow
            except UnsupportedNode as reason:
                self._walks[key] = str(reason)
            except (z3.Z3Exception, RecursionError, OverflowError, MemoryError):
                self._walks[key] = "the solver does not take the node"
        return self._walks[key]

    def walks(self, list_items: int | None) -> Iterator[NodeWalk]:
        for encoding in ("reals", "scaled"):
            flow = self.walk(encoding, list_items)
            if not isinstance(flow, str):
                yield flow

    def try_inputs(self) -> list[tuple[dict[str, Any], list[InputRun]]]:
        """Return the inputs that were tried without a solver, smallest first, with what they led to."""
        if self._tried is None:
            distinct = {
                json.dumps(inputs, sort_keys=True): inputs for inputs in candidates(self._replayer, self._cases)
            }
            ordered = [distinct[text] for text in sorted(distinct, key=lambda text: (len(text), text))]
            self._tried = [(inputs, self._replayer.run(inputs)) for inputs in ordered]
        return self._tried

    # ------------------------------------------------------------ results

    def results(self, folder: Path | None, progress: Callable[[int], None] | None = None) -> list[ProofResult]:
        claims = list(_claims(self.program, self.node))
        file = None if folder is None else folder / f"{self.key(claims)}.json"
        kept = _read_kept(file) if file is not None else None
        if kept is not None and all(self._still_fails(claims, result) for result in kept if result.input is not None):
            return kept
        results = []
        for claim in claims:
            results.append(self._note_vacuous(claim, self.judge(claim)))
            if progress is not None:
                progress(len(results))
        results += self._redundant()
        results += [
            ProofResult("unreachable_step", name, PROVED, None, _UNREACHABLE, name) for name in self._never_reached()
        ]
        if file is not None:
            from lyra.core.own_files import make_folder

            with suppress(OSError):  # a verdict that is not kept is found again
                make_folder(file.parent)
                part = file.with_suffix(".part")
                part.write_bytes(msgspec.json.encode(results))
                part.replace(file)
        return results

    def key(self, claims: list[_Claim]) -> str:
        """Return the name under which the verdicts on these claims are kept."""
        import z3

        texts = [VERSION, z3.get_version_string(), self.program.digest, *(claim[:3] for claim in claims)]
        return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:32]

    def _still_fails(self, claims: list[_Claim], result: ProofResult) -> bool:
        """Return whether a kept counterexample is one: nothing is printed that did not fail just now."""
        same = [c for c in claims if (c.kind, c.expression, c.step) == (result.kind, result.expression, result.step)]
        return any(self._fails(claim, result.input or {}) == REFUTED for claim in same)

    def _fails(self, claim: _Claim, inputs: Mapping[str, Any]) -> str:
        """Return REFUTED where an input fails, UNKNOWN where that depends on what acts answer, else PROVED."""
        replayer = self._replayers.get(id(claim.program)) or InputReplayer(claim.program, self._replayer)
        self._replayers[id(claim.program)] = replayer
        if not any(claim.shows(outcome) for outcome in replayer.run(inputs)):
            return PROVED
        return REFUTED if self.program.pure else UNKNOWN

    def judge(self, claim: _Claim) -> ProofResult:
        def result(verdict: str, inputs: dict[str, Any] | None = None, reason: str = "") -> ProofResult:
            return ProofResult(claim.kind, claim.expression, verdict, inputs, reason, claim.step)

        shown = self._search(claim)
        if shown is not None:
            return result(*shown)
        from lyra.vesper.prove.solve import approximations_in, ask

        reasons: dict[str, None] = {}
        approximations: list[list[str]] = []
        for flow in self.walks(None):
            answer, _ = ask(flow, claim.violated(flow), rlimit=QUESTION_RLIMIT)
            if answer == "unsat" and not flow.numbers.incomplete:
                return result(PROVED)
            if answer == "unknown":
                reasons["the solver reached its limit"] = None
            approximations.append(approximations_in(flow, claim.deciding(flow)))
        refuted, bounded = self._ask_for_input(claim)
        if refuted is not None:
            return result(*refuted)
        if bounded:
            reasons[f"bounded: it holds for {bounded}; beyond that it is not decided"] = None
        reasons.update(dict.fromkeys(walk for walk in self._walks.values() if isinstance(walk, str)))
        fewest = min(approximations, key=len, default=[])
        if not reasons and not fewest:
            fewest = sorted({why for flow in self.walks(None) for why in flow.approximations})
        if fewest:
            reasons[f"not modelled: {', '.join(fewest[:_SHOWN_MAX])}"] = None
        return result(UNKNOWN, None, "; ".join(reasons) or "no proof and no counterexample was found")

    def _search(self, claim: _Claim) -> tuple[str, dict[str, Any] | None, str] | None:
        """Return a verdict where an input that was tried shows a failure."""
        for inputs, outcomes in self.try_inputs():
            if not any(outcome.is_accepted for outcome in outcomes):
                continue
            near = any(claim.near(outcome) for outcome in outcomes)
            shown = near and (claim.program is self.program or self._fails(claim, inputs) != PROVED)
            if shown and self.program.pure:
                return REFUTED, inputs, ""
            if shown:
                return UNKNOWN, None, f"it fails for {json.dumps(inputs)} where the acts answer in a certain way"
        return None

    def _ask_for_input(self, claim: _Claim) -> tuple[tuple[str, dict[str, Any] | None, str] | None, str]:
        """Return a verdict, with an input where one fails, or None, and the bounds within which there is none."""
        from lyra.vesper.prove.solve import NoModelInput, ask, block, input_of

        if not self.program.pure:
            return None, ""
        defaults = next((inputs for inputs, outcomes in self.try_inputs() if any(o.is_accepted for o in outcomes)), {})
        bounds = ""
        for encoding in ("scaled", "reals"):
            flow = self.walk(encoding, LIST_ITEMS)
            if isinstance(flow, str):
                continue
            blocked: list[Any] = []
            for _ in range(_MODELS_MAX):
                answer, model = ask(flow, claim.violated(flow), *blocked, rlimit=_INPUT_RLIMIT)
                if answer == "unsat" and not blocked:
                    if not flow.numbers.incomplete:
                        return (PROVED, None, ""), ""  # no list is longer, and no loop goes round more often
                    bounds = bounds or " and ".join(sorted(flow.numbers.incomplete))
                if answer != "sat":
                    break
                with suppress(NoModelInput):
                    inputs = input_of(flow, model, defaults)
                    if self._fails(claim, inputs) == REFUTED:
                        return (REFUTED, inputs, ""), ""
                blocked.append(block(flow, model))
        return None, bounds

    # ------------------------------------------------------------ remarks

    def _note_vacuous(self, claim: _Claim, result: ProofResult) -> ProofResult:
        """Add to a proved contract why it says nothing, if it does."""
        from lyra.vesper.prove.solve import ask

        if result.verdict != PROVED or claim.kind not in ("postcondition", "invariant", "output"):
            return result
        flow = next(self.walks(None), None)
        if flow is None:
            return result
        if not self._is_ever_accepted() and ask(flow, rlimit=QUESTION_RLIMIT)[0] == "unsat":
            return msgspec.structs.replace(result, reason="vacuous: no input is accepted")
        index = next(
            (i for i, c in enumerate(self.program.postconditions) if (c,) == claim.program.postconditions), None
        )
        matters = None if index is None else flow.trivial.get(("postcondition", index))
        if matters is not None and ask(flow, matters, rlimit=QUESTION_RLIMIT)[0] == "unsat":
            return msgspec.structs.replace(result, reason="vacuous: the left side of => is true for no accepted input")
        return result

    def _is_ever_accepted(self) -> bool:
        return any(outcome.is_accepted for _, outcomes in self.try_inputs() for outcome in outcomes)

    def _redundant(self) -> list[ProofResult]:
        """Return a result for each precondition that follows from the other conditions on the inputs."""
        import z3

        results = []
        texts = [contract.text for contract in self.program.preconditions if contract.expression is not None]
        for flow in self.walks(None):
            if flow.numbers.incomplete:
                continue
            first = len(flow.entry) - len(self.program.invariants) - len(texts)
            for index, text in enumerate(texts):
                others = [condition for i, (_, condition) in enumerate(flow.entry) if i != first + index]
                solver = z3.Solver()
                solver.set("rlimit", QUESTION_RLIMIT)
                asked = [*others, z3.Not(flow.entry[first + index][1])]
                solver.add(*flow.numbers.axioms[: flow.input_axioms], *flow.relevant(*asked), *asked)
                if solver.check() == z3.unsat:
                    reason = "redundant: the other conditions on the inputs imply it"
                    results.append(ProofResult("precondition", text, PROVED, None, reason))
            break
        return results

    def _never_reached(self) -> Iterator[str]:
        """Yield each step that is proved to be reached by no accepted input."""
        reached = {name for _, seen in self.try_inputs() for run in seen if run.is_accepted for name in run.reached}
        names = {part.name: None for part in _steps_of(self.program.steps)}
        yield from (name for name in names if name not in reached and self._is_unreachable(name, QUESTION_RLIMIT))

    def _is_unreachable(self, name: str, rlimit: int) -> bool:
        from lyra.vesper.prove.solve import ask
        from lyra.vesper.prove.values import disj

        for flow in self.walks(None):
            where = disj(*(guard for step, guard in flow.reached if step == name))
            if not flow.numbers.incomplete and ask(flow, where, rlimit=rlimit)[0] == "unsat":
                return True
        return False

    def unreachable(self) -> dict[str, str]:
        names: dict[str, None] = {}
        for step in _steps_of(self.program.steps):
            names[step.name] = None
            if isinstance(step, ir.BranchStep):
                names[f"{step.name}: then"] = names[f"{step.name}: else"] = None
        return {name: _UNREACHABLE for name in names if self._is_unreachable(name, _BOUNDARY_RLIMIT)}

    def boundaries(self) -> list[dict[str, Any]]:
        from lyra.vesper.prove.numbers import ScaledEncoding
        from lyra.vesper.prove.solve import NoModelInput, ask, input_of

        flow = self.walk("scaled", LIST_ITEMS)
        if isinstance(flow, str):
            return []
        assert isinstance(flow.numbers, ScaledEncoding)
        by_text: dict[str, dict[str, Any]] = {}
        for here, first, second in flow.comparisons[:_BOUNDARIES_MAX]:
            left, right = flow.numbers.align(first, second)
            for distance in (0, 1, -1):
                answer, model = ask(flow, here, left.term - right.term == distance, rlimit=_BOUNDARY_RLIMIT)
                if answer == "sat":
                    with suppress(NoModelInput):
                        inputs = input_of(flow, model, {})
                        by_text[json.dumps(inputs, sort_keys=True)] = inputs
        return list(by_text.values())


# ---------------------------------------------------------------- claims


def _claims(program: ir.NodeProgram, node: Node | None) -> Iterator[_Claim]:
    """Yield the claims to prove about a program."""
    from lyra.vesper.prove.values import FALSE

    declared = len(program.postconditions) if node is None else len(node.contracts.postconditions)
    for index, contract in enumerate(program.postconditions):
        if contract.expression is None:
            continue
        alone = msgspec.structs.replace(program, postconditions=(contract,))
        yield _Claim(
            "postcondition" if index < declared else "output",
            contract.text,
            "",
            lambda flow, key=("postcondition", index): flow.broken.get(key, FALSE),  # type: ignore[misc]
            lambda flow, key=("postcondition", index): flow.deciding.get(key, []),  # type: ignore[misc]
            lambda seen: seen.code == "postcondition_failed",
            lambda seen: seen.code == "postcondition_failed",
            alone,
        )
    for index, contract in enumerate(program.invariants):
        if contract.expression is None:
            continue
        others = tuple(other for i, other in enumerate(program.invariants) if i != index)
        alone = msgspec.structs.replace(program, postconditions=(), invariants=(contract, *others))
        yield _Claim(
            "invariant",
            contract.text,
            "",
            lambda flow, key=("invariant", index): flow.broken.get(key, FALSE),  # type: ignore[misc]
            lambda flow, key=("invariant", index): flow.deciding.get(key, []),  # type: ignore[misc]
            lambda seen, text=contract.text: _breaks_invariant(seen, text),  # type: ignore[misc]
            lambda seen: seen.code in ("invariant_failed", "postcondition_failed"),
            alone,
        )
    for name, expression, kind in _operations(program, node):
        code = _CODES[kind]

        def fails(seen: InputRun, failure: tuple[str, str] = (name, code)) -> bool:
            return seen.is_accepted and failure in seen.failed

        failures, guards = partial(_failures, site=name, code=code), partial(_guards, site=name, code=code)
        yield _Claim(kind, expression, name, failures, guards, fails, fails, program)
    for output in program.success:
        if output.required:

            def is_missing(seen: InputRun, name: str = output.name) -> bool:
                return seen.is_accepted and ("output", name) in seen.failed

            site, code = f"output {output.name}", "incomplete_output"
            missing, guards = (partial(find, site=site, code=code) for find in (_failures, _guards))
            yield _Claim("missing_output", output.name, "", missing, guards, is_missing, is_missing, program)
        alone = msgspec.structs.replace(program, success=(output,), postconditions=())
        yield _Claim(
            "type_error",
            f"output {output.name}",
            "",
            partial(_failures, site=f"output {output.name}", code="type_error"),
            partial(_guards, site=f"output {output.name}", code="type_error"),
            lambda seen: seen.is_accepted and ("output", "type_error") in seen.failed,
            lambda seen: ("output", "type_error") in seen.failed,
            alone,
        )


def _breaks_invariant(seen: InputRun, text: str) -> bool:
    failure = seen.outcome.error
    broke = failure is not None and failure.code == "invariant_failed" and failure.message == text
    # Tell whether a run came past the entry: an invariant that is broken before the first step refuses the inputs.
    return seen.is_accepted and broke and (bool(seen.reached) or seen.outcome.error is None)


def _failures(flow: NodeWalk, site: str, code: str) -> Any:
    from lyra.vesper.prove.values import disj

    return disj(*(guard for guard, raised, where in flow.failures if where == site and raised in _codes(code)))


def _guards(flow: NodeWalk, site: str, code: str) -> list[Any]:
    return [guard for guard, raised, where in flow.guards if where == site and raised in _codes(code)]


def _codes(code: str) -> set[str]:
    """Return a code, and those of failures that may be one of it."""
    from lyra.vesper.prove.walk import UNJUDGED
    from lyra.vesper.prove.walk import UNKNOWN as ANY_FAILURE

    return {code, ANY_FAILURE} | ({UNJUDGED} if code == "type_error" else set())


def _operations(program: ir.NodeProgram, node: Node | None) -> Iterator[tuple[str, str, str]]:
    """Yield each step with what it computes, as it is written, and a kind of failure that its operations have."""
    written = {} if node is None else {step.name: _expression_of(step) for step in node.all_steps()}
    for step in _steps_of(program.steps):
        parts = list(_walk_own_parts(step))
        text = written.get(step.name) or step.name
        if any(_adds(part) for part in parts):
            yield step.name, text, "overflow"
        if any(_divides(part) for part in parts):
            yield step.name, text, "division"
        if any(
            not isinstance(part, ir.Constant | ir.NodeVariable)
            for part in parts
            if isinstance(part, ir.TypedExpression)
        ):
            yield step.name, text, "type_error"
        if isinstance(step, ir.LoopStep):
            yield step.name, text, "loop_limit"


def _divides(part: Any) -> bool:
    if isinstance(part, ir.FunctionCall):
        return part.function == "div"
    return isinstance(part, ir.Arithmetic) and part.operator in "/%"


def _adds(part: Any) -> bool:
    match part:
        case ir.Arithmetic():
            return part.operator != "+" or getattr(part.type, "kind", "") != "string"
        case ir.Aggregate():
            return part.function in ("sum", "avg")
        case ir.FunctionCall(function=name, arguments=given):
            errors = FUNCTIONS[name].errors  # those of `hour(at)` are of its zone
            return "overflow" in errors and ("unknown_zone" not in errors or len(given) > 1)
        case ir.GroupBy():
            return any(aggregation.function in ("sum", "avg") for aggregation in part.aggregations)
    return isinstance(part, ir.Negate | ir.MatrixProduct | ir.Rounded)


def _expression_of(step: Any) -> str:
    """Return the expression of a step as its file has it; empty where it has none of one line."""
    for key in ("expression", "function", "condition", "guards", "template", "query", "input"):
        setting = step.settings.get(key)
        if setting is None:
            continue
        value = setting.value
        if isinstance(value, list):
            value = " AND ".join(map(str, value))
        if isinstance(value, str | int) and "\n" not in str(value).strip():
            return str(value).strip()
    return ""


def _steps_of(steps: Any) -> Iterator[ir.Step]:
    for step in steps:
        yield step
        for name in ("then", "otherwise", "steps", "found", "empty"):
            yield from _steps_of(getattr(step, name, ()))


def _walk_own_parts(step: ir.Step) -> Iterator[Any]:
    """Yield the expressions of a step and all in them, without those of the steps inside."""
    todo: list[Any] = [getattr(step, name) for name in step.__struct_fields__ if name not in ("rules", "retry")]
    while todo:
        part = todo.pop()
        if isinstance(part, tuple | list):
            todo.extend(part)
        elif isinstance(part, msgspec.Struct) and not isinstance(part, ir.Step):
            yield part
            todo.extend(getattr(part, name) for name in part.__struct_fields__)


# ---------------------------------------------------------------- kept verdicts


def _read_kept(file: Path) -> list[ProofResult] | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=list[ProofResult])
    except (OSError, msgspec.DecodeError):
        return None
