"""Differential tests: two paths run the same executions, and every difference is reported with small inputs.

`test(program, count, seed)` compares `count` inputs that `evidence.search` makes: old failures from the corpus first,
those of the node's own test cases, then what reaches further. Only inputs past the entry checks show anything: the
report counts the distinct ones that were accepted and those with which the node succeeded, and names the steps,
branches and declared errors that were not reached. Divergences are counted; the first few are shrunk, kept in the
report and added to the corpus, a folder with one small JSON file each, as are inputs that break a contract. A path that
raises differs from one that does not. Programs with effects run the first path in a simulated world, and the second
against a replay of it; nodes that are called run on both paths. An accepted input with which the node breaks its own
contract is a `Violation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lyra.core.clock import SystemClock
from lyra.errors import ConfigError
from lyra.vesper import ir
from lyra.vesper.check.judge import program_of
from lyra.vesper.confidence import lower_bound
from lyra.vesper.direct import run as direct_path
from lyra.vesper.evidence.answers import names_in
from lyra.vesper.evidence.compare import compare
from lyra.vesper.evidence.reach import ReachPlan, Watched, watch
from lyra.vesper.evidence.search import InputSearch, SearchCase, shrink
from lyra.vesper.evidence.seen import ACCEPTED, SUCCEEDED, InputTexts, SeenInputs
from lyra.vesper.evidence.worlds import (
    CallableNodes,
    SimulatedEffects,
    SimulatedReplay,
    WorldAnswer,
    executions,
    open_execution,
)
from lyra.vesper.ir import NodeProgram
from lyra.vesper.python import run as python_path
from lyra.vesper.values.json_values import from_json, to_json
from lyra.vesper.values.outcome import WRONG_ANSWER, Execution, NodeFailure, Outcome
from lyra.vesper.values.types import EnumType, without_null

if TYPE_CHECKING:
    from lyra.vesper.nodes.model import Node

# ruff: noqa: PT028 - `test` is not a test of pytest's


RunPath = Callable[..., Outcome]  # (program, inputs, execution, effects)
_COMPILERS: Final[dict[RunPath, Callable[[NodeProgram], Any]]] = {
    path.run: path.compile_program for path in (python_path, direct_path)
}
# Functions that take a program and give inputs to begin with; see prove.prover.join_evidence.
INPUT_MAKERS: Final[list[Callable[[NodeProgram], list[dict[str, Any]]]]] = []
KEPT_MAX: Final = 10
SUCCEEDING_SHARE: Final = 0.15  # of the inputs; below it a report says that it shows little
_WATCHED_FIRST: Final = 100  # executions that are watched
_WATCHED_FIRST_MISSING: Final = 1_000  # as long as something is not reached, or few inputs succeed
_WATCHED_OF: Final = 64  # of later ones, one in so many is at least, and more where they reach something new
_WATCHED_OF_MISSING: Final = 3
_WATCHED_DRY: Final = 4  # that reach nothing new, for one more that is left out
_CALM_OF: Final = 6  # from so many on, most inputs are drawn and few are changed, if so many succeed
_CALM_SUCCEEDING_SHARE: Final = 0.25
_REPEATS_DRY: Final = 30  # inputs in a row that were tried before: then lists of inputs grow
_REPEATS_MAX: Final = 300  # inputs in a row that were tried before: then there are no others
_PROGRESS_OF: Final = 64  # inputs between two calls of `progress`
# Codes with which a node breaks its own contract, unless it declares them as its errors.
_MISTAKES: Final = ("overflow", "division_by_zero", "loop_limit", "type_error")
BREACHES: Final = frozenset({"postcondition_failed", "invariant_failed", "incomplete_output", *_MISTAKES})
_CONTRACTS: Final = {"postcondition_failed": "postcondition", "invariant_failed": "invariant"}


class PathDivergence(msgspec.Struct, frozen=True):
    """Inputs for which the paths differ, as they were drawn and as small as they could be made."""

    inputs: dict[str, Any]
    shrunk: dict[str, Any]
    differences: list[dict[str, Any]]  # of the shrunk inputs


class Violation(msgspec.Struct, frozen=True):
    """An accepted input with which a node breaks its own contract, as small as it could be made."""

    kind: str  # the code that it ended with
    expression: str  # the contract, or the step that failed
    input: dict[str, Any]
    answers: dict[str, Any] = {}  # by step: what the acts were made to answer
    sides: tuple[str, ...] = ()  # each comparison of the contract that is false, with its values


class ComparisonReport(msgspec.Struct, frozen=True):
    """What a differential test came to."""

    compared: int
    divergences: int
    kept: tuple[PathDivergence, ...]  # the first ones
    seconds: float
    interrupted: bool = False  # by Ctrl-C; what was compared before counts
    seen: bytes = b""  # keys of the distinct inputs, see `evidence.seen`
    goals: tuple[str, ...] = ()  # steps, branches and declared errors
    reached: tuple[str, ...] = ()  # of them
    unreached: tuple[str, ...] = ()
    unreachable: dict[str, str] = {}  # those that no execution can reach, with the reason
    complete: bool = False  # all inputs that the node may accept were compared
    violations: tuple[Violation, ...] = ()
    doubts: tuple[Violation, ...] = ()  # after guessed answers, which no type declares: the node may be right

    @property
    def counts(self) -> SeenInputs:
        return SeenInputs(self.seen)

    @property
    def confidence(self) -> float:
        if self.complete and not self.divergences:
            return 1.0
        return lower_bound(max(self.counts.accepted, self.divergences), self.divergences)


def weak_evidence(report: ComparisonReport) -> Iterator[str]:
    """Yield why a report shows less than its number of inputs says: most of them never came to the end of the node."""
    for doubt in report.doubts:
        acts = ", ".join(f"`{step}`" for step in doubt.answers)
        yield (
            f"`{doubt.expression}` does not hold after answers of {acts} that were made up without a declared type: "
            "check an answer before it is used, if the outside world can give one that breaks the contract"
        )
    counts = report.counts
    if report.complete or not report.compared or counts.successes >= SUCCEEDING_SHARE * len(counts):
        return
    yield (
        f"only {counts.successes} of {len(counts)} inputs succeeded (under {SUCCEEDING_SHARE:.0%}), so that a mistake "
        "behind the checks is easily missed: add test cases with inputs that the node accepts, of each form that it "
        "takes, and give its inputs the constraints and patterns that its steps check"
    )


class Comparison(NamedTuple):
    """One execution on both paths."""

    differences: list[dict[str, Any]]
    outcome: Outcome | None  # of the first path; None where it raised
    world: SimulatedEffects | None  # of a program with effects


class PathPair:
    """Two paths that run the same executions of one program."""

    def __init__(
        self, program: NodeProgram, first: RunPath | None, second: RunPath | None, nodes: CallableNodes | None = None
    ) -> None:
        if first is None or second is None:
            python, direct = default_paths()
            first, second = first or python, second or direct
        self.program, self._first, self._second = program, first, second
        self._nodes = nodes or CallableNodes()
        self._compiled = (_compile_on_path(first, program), _compile_on_path(second, program)) if program.pure else None
        self._entry = _compile_on_path(python_path.run, _entry_of(program))

    def run(self, case: SearchCase, execution: Execution) -> Comparison:
        """Run an execution on both paths. A path that raises always differs."""
        if self._compiled is not None:
            try:
                outcome = self._compiled[0](case.inputs, execution)
                return Comparison(compare(outcome, self._compiled[1](case.inputs, execution)), outcome, None)
            except Exception:  # noqa: BLE001 - a crash is a finding
                return Comparison(self._crashes(case, execution), None, None)
        world = self._world(case, execution)
        try:
            outcome = self._first(self.program, case.inputs, execution, world)
            replay = SimulatedReplay(world.log)
            direct = self._second(self.program, case.inputs, execution, replay)
            differences = [*compare(outcome, direct), *replay.mismatches(), *self._compare_called(world)]
            return Comparison(differences, outcome, world)
        except Exception:  # noqa: BLE001 - a crash is a finding
            return Comparison(self._crashes(case, execution), None, world)

    def _world(self, case: SearchCase, execution: Execution) -> SimulatedEffects:
        return SimulatedEffects(
            self.program, self._nodes, case.seed, script=case.script, execution=execution, path=self._first
        )

    def _compare_called(self, world: SimulatedEffects) -> Iterator[dict[str, Any]]:
        """Yield how the paths differ in the nodes that were called."""
        for called in world.called:
            replay = SimulatedReplay(called.log)
            second = self._second(called.program, called.inputs, called.execution, replay)
            for row in (*compare(called.outcome, second), *replay.mismatches()):
                yield {**row, "path": f"{called.program.node_id}: {row['path']}"}

    def is_accepted(self, inputs: Mapping[str, Any], execution: Execution, outcome: Outcome) -> bool:
        """Return whether an execution came past the entry checks."""
        error = outcome.error
        if error is None or error.phase in ("input", "precondition"):
            return error is None
        return self._entry(inputs, execution).error is None

    def _crashes(self, case: SearchCase, execution: Execution) -> list[dict[str, Any]]:
        live = None if self.program.pure else self._world(case, execution)
        python = _ending(self._first, self.program, case.inputs, execution, live)
        replay = None if live is None else SimulatedReplay(live.log)
        direct = _ending(self._second, self.program, case.inputs, execution, replay)
        return [{"path": "root", "kind": "crash", "python": python, "direct": direct}]


def _ending(path: RunPath, *arguments: Any) -> str:
    """Return how an execution ended, an exception of the path included."""
    try:
        outcome = path(*arguments)
    except Exception as error:  # noqa: BLE001 - a crash is a finding
        return f"{type(error).__name__}: {error}"
    return outcome.status if outcome.error is None else outcome.error.code


def _entry_of(program: NodeProgram) -> NodeProgram:
    """Return a program that checks its entry as another one does, and ends there."""
    return msgspec.structs.replace(
        program,
        success=(),
        steps=(ir.ReturnStep(name="entry", success=()),),
        postconditions=(),
        olds=(),
        rules=(),
        pure=True,
        digest=f"{program.digest}-entry",
    )


def is_past_entry(
    program: NodeProgram, inputs: Mapping[str, Any], execution: Execution, outcome: Outcome, path: RunPath
) -> bool:
    """Return whether an execution came past the entry checks; one that ended with an error is checked again."""
    error = outcome.error
    if error is None or error.phase in ("input", "precondition"):
        return error is None
    return path(_entry_of(program), inputs, execution).error is None


def default_paths() -> tuple[RunPath, RunPath]:
    return python_path.run, direct_path.run


def _compile_on_path(path: RunPath, program: NodeProgram) -> Callable[[Mapping[str, Any], Execution], Outcome]:
    """Return a function that runs a pure program on a path; on Lyra's own paths, the program is compiled here, once."""
    compile_program = _COMPILERS.get(path)
    return partial(path, program) if compile_program is None else compile_program(program).execute


def test(
    program: NodeProgram,
    count: int,
    seed: int = 0,
    *,
    first: RunPath | None = None,
    second: RunPath | None = None,
    corpus: Path | None = None,
    cases: Sequence[Mapping[str, Any]] = (),
    nodes: CallableNodes | None = None,
    accepted: int | None = None,
    stop_after: int | None = None,
    keep_interrupted: bool = False,
    progress: Callable[[int], None] | None = None,
) -> ComparisonReport:
    """Compare the paths on `count` inputs, on all of a node that has few, or until `accepted` distinct ones were
    accepted; at most until `stop_after` divergences. `cases` are the inputs of the node's test cases, `nodes` those
    that it may call. With `keep_interrupted`, Ctrl-C ends the comparing and not the caller. `progress` is called now
    and then with the number of inputs that were compared."""
    clock = SystemClock()
    began = clock.monotonic()
    run = _Comparing(PathPair(program, first, second, nodes), seed, corpus, cases)
    is_interrupted = False
    try:
        while run.has_more(count, accepted, stop_after):
            before = run.compared
            run.compare_next()
            if progress is not None and run.compared > before and run.compared % _PROGRESS_OF == 0:
                progress(run.compared)
    except KeyboardInterrupt:
        if not keep_interrupted:
            raise
        is_interrupted = True
    seconds = clock.monotonic() - began
    kept = tuple(run.shrunk(*failing, is_wanted=not is_interrupted) for failing in run.failing)
    if corpus is not None:
        for failure in (*(row.shrunk for row in kept), *(row.input for row in run.violations.values())):
            Corpus(corpus).add(program.node_id, failure)
    tried = run.plan.missing(run.reached) if run.is_complete else ()
    return ComparisonReport(
        run.compared,
        run.divergences,
        kept,
        seconds,
        is_interrupted,
        run.seen.data,
        run.plan.goals,
        tuple(goal for goal in run.plan.goals if goal in run.reached),
        () if run.is_complete else run.plan.missing(run.reached),
        {**dict.fromkeys(tried, "all inputs were tried"), **run.plan.unreachable},
        run.is_complete,
        tuple(run.violations.values()),
        tuple(doubt for place, doubt in run.doubts.items() if place not in run.violations),
    )


def test_node(
    node: Node,
    count: int,
    seed: int = 1,
    *,
    find: Callable[[str], Node | None] | None = None,
    cases: Sequence[Mapping[str, Any]] = (),
    **options: Any,
) -> ComparisonReport:
    """Run `test` for a node: around its test cases and other `cases`, with the nodes that it calls, which `find` gives
    by their ids."""

    def find_program(name: str) -> NodeProgram | None:
        callee = None if find is None else find(name)
        return None if callee is None else program_of(callee)

    program = program_of(node)
    begun = [*cases, *(case.inputs for case in node.testing.test_cases)]
    begun += [inputs for make in INPUT_MAKERS for inputs in make(program)]
    return test(program, count, seed, cases=begun, nodes=CallableNodes(find_program), **options)


class _Comparing:
    """A differential test under way."""

    def __init__(self, pair: PathPair, seed: int, corpus: Path | None, cases: Sequence[Mapping[str, Any]]) -> None:
        program = pair.program
        self.pair = pair
        self.contexts = executions(program, seed)
        if len(self.contexts) > 1:
            self.contexts = [open_execution(program, seed), *self.contexts]
        first = Corpus(corpus).read_inputs(program.node_id) if corpus is not None else []
        self._is_settled = not program.pure and pair._nodes.settle(program)
        self.search = InputSearch(
            program, seed, first=first, cases=cases, contexts=len(self.contexts), is_settled=self._is_settled
        )
        self.least = len(first)
        self.plan = ReachPlan(program)
        self.seen = SeenInputs()
        self.reached: set[str] = set()
        self.failing: list[tuple[SearchCase, list[dict[str, Any]]]] = []
        self.violations: dict[tuple[str, str], Violation] = {}
        self.doubts: dict[tuple[str, str], Violation] = {}
        self.compared = self.divergences = self._repeats = 0
        self._unwatched = 0  # executions since one was watched
        self._watched_of = 1
        self._dry = 0  # watched executions that reached nothing new
        self._endings: set[tuple[str, str]] = set()
        self._tried: set[int] = set()
        self._is_dry = False  # most of what is drawn was tried before
        self._texts = InputTexts(program)
        self._left = {self._texts.key(inputs) for inputs in self.search.all_inputs or ()}
        self._forms = pair._nodes.forms(program)
        self._own_errors = _list_error_codes(program)
        # Inputs alone tell executions apart.
        self._is_plain = (program.pure or self._is_settled) and len(self.contexts) == 1
        self._is_missing = bool(self.plan.missing(()))

    def has_more(self, count: int, accepted: int | None, stop_after: int | None) -> bool:
        if stop_after is not None and self.divergences >= stop_after:
            return False
        if self._left:
            return True
        if accepted is not None and self.seen.accepted >= accepted:
            return False
        return self.compared < count + self.least and self._repeats < _REPEATS_MAX

    @property
    def is_complete(self) -> bool:
        return self.search.all_inputs is not None and not self._left

    def compare_next(self) -> None:
        case = self.search.case()
        if self._is_dry:
            case = self.search.grow(case)
        inputs, context = case.inputs, case.context
        text = repr(inputs)
        key = hash(text if self._is_plain else (text, context, case.seed, repr(case.script)))
        if key in self._tried:
            self._repeats += 1
            self._is_dry = self._is_dry or self._repeats >= _REPEATS_DRY
            return
        self._tried.add(key)
        self._repeats = 0
        execution = self.contexts[context]
        differences, outcome, world = self.pair.run(case, execution)
        self.compared += 1
        if differences:
            self.divergences += 1
            if len(self.failing) < KEPT_MAX:
                self.failing.append((case, differences))
        if outcome is None:
            return
        error = outcome.error
        is_accepted = error is None or self.pair.is_accepted(inputs, execution, outcome)
        answers = {} if world is None else world.answers
        own = self._texts.key(inputs, None if self._is_settled else answers)
        self.seen.add(own, ACCEPTED | SUCCEEDED if error is None else ACCEPTED if is_accepted else 0)
        if self._left:
            self._left.discard(own)
        self._unwatched += 1
        if self._unwatched >= self._watched_of or (error is not None and self._is_new_ending(error)):
            self._learn(case, world, answers)
        if is_accepted and error is not None and self.breach(case, outcome, world):
            self.add_violation(case, outcome, world)

    def _is_new_ending(self, error: NodeFailure) -> bool:
        ending = error.code, error.phase
        if ending in self._endings:
            return False
        self._endings.add(ending)
        return True

    def _learn(
        self,
        case: SearchCase,
        world: SimulatedEffects | None,
        answers: Mapping[tuple[str, int], WorldAnswer],
    ) -> None:
        """Watch an execution, and the next one sooner or later by whether this one reached something new."""
        self._unwatched = 0
        watched = self.watch(case, world)
        if watched is None:
            return
        is_new = self.search.learn(case, watched, answers)
        self._dry = self._dry // 2 if is_new else self._dry + 1
        if not watched.names <= self.reached:
            self.reached |= watched.names
            self._is_missing = bool(self.plan.missing(self.reached))
        few = self.seen.successes < _CALM_SUCCEEDING_SHARE * self.compared
        limit = _WATCHED_OF_MISSING if self._is_missing or few else _WATCHED_OF
        if self.compared >= (_WATCHED_FIRST_MISSING if self._is_missing or few else _WATCHED_FIRST):
            self._watched_of = min(limit, 1 + self._dry // _WATCHED_DRY)
        self.search.is_failing = few
        self.search.is_calm = self._watched_of >= _CALM_OF and not few

    def watch(self, case: SearchCase, world: SimulatedEffects | None) -> Watched | None:
        try:
            replay = None if world is None else SimulatedReplay(world.log)
            return watch(self.plan, case.inputs, self.contexts[case.context], replay)
        except Exception:  # noqa: BLE001 - the comparison of paths reports a broken reference evaluator
            return None

    # ------------------------------------------------------------ contracts

    def breach(self, case: SearchCase, outcome: Outcome, world: SimulatedEffects | None) -> str:
        """Return the code with which an accepted execution breaks the node's contract, "" where it does not. What
        follows from a wrong answer, a guessed type or a called node's broken contract says nothing about the node."""
        error = outcome.error
        if error is None or error.code not in BREACHES or case.context != 0:
            return ""
        phase = _CONTRACTS.get(error.code)
        if phase is not None and error.phase != phase:
            return ""  # of a node that was called
        if phase is None and (error.code in self._own_errors or error.message.startswith(WRONG_ANSWER)):
            return ""
        if world is not None:
            if world.is_wrong or any(
                c.outcome.error is not None and c.outcome.error.code in BREACHES for c in world.called
            ):
                return ""
            if world.is_guessed and phase is None:
                return ""
        expression = None if phase is None else self._contract_of(error.message)
        return "" if expression is not None and self._forms.ambient & names_in(expression) else error.code

    def _contract_of(self, text: str) -> ir.TypedExpression | None:
        program = self.pair.program
        contracts = (*program.postconditions, *program.invariants)
        return next((contract.expression for contract in contracts if contract.text in text), None)

    def _is_doubtful(self, case: SearchCase, outcome: Outcome, world: SimulatedEffects | None) -> bool:
        """Return whether a contract may be broken by a guessed answer alone, which the world would never give."""
        assert outcome.error is not None
        expression = self._contract_of(outcome.error.message) if outcome.error.code in _CONTRACTS else None
        if expression is None or world is None or not world.is_guessed:
            return False
        if not self._forms.guessed & names_in(expression):
            return False
        return bool(case.script) or not self._forms.is_own_relation(expression)

    def add_violation(self, case: SearchCase, outcome: Outcome, world: SimulatedEffects | None) -> None:
        place = self._place(case, outcome)
        assert outcome.error is not None
        is_doubtful = self._is_doubtful(case, outcome, world)
        kept = self.doubts if is_doubtful else self.violations
        if len(kept) >= KEPT_MAX or (outcome.error.code, place) in kept:
            return

        def still_breaks(inputs: dict[str, Any]) -> bool:
            smaller = msgspec.structs.replace(case, inputs=inputs)
            execution = self.contexts[case.context]
            comparison = self.pair.run(smaller, execution)
            ended = comparison.outcome
            if ended is None or ended.error is None or not self.breach(smaller, ended, comparison.world):
                return False
            is_same = ended.error.code == kind and self._place(smaller, ended) == place
            is_same = is_same and self._is_doubtful(smaller, ended, comparison.world) is is_doubtful
            return is_same and self.pair.is_accepted(inputs, execution, ended)

        kind = outcome.error.code
        small = shrink(case.inputs, still_breaks)
        smallest = msgspec.structs.replace(case, inputs=small)
        world = self.pair.run(smallest, self.contexts[case.context]).world
        watched = self.watch(smallest, world) if kind in _CONTRACTS else None
        sides = () if watched is None else watched.sides
        kept[kind, place] = Violation(kind, place, small, _answers_of(world), sides)

    def _place(self, case: SearchCase, outcome: Outcome) -> str:
        """Return the contract that an execution breaks, or the step at which it failed."""
        assert outcome.error is not None
        program = self.pair.program
        if outcome.error.code in _CONTRACTS:
            texts = [contract.text for contract in (*program.postconditions, *program.invariants)]
            return next((text for text in texts if text in outcome.error.message), outcome.error.message)
        world = self.pair.run(case, self.contexts[case.context]).world
        watched = self.watch(case, world)
        return watched.last_step if watched is not None else outcome.error.message

    def shrunk(self, case: SearchCase, differences: list[dict[str, Any]], *, is_wanted: bool) -> PathDivergence:
        """Return the divergence with the smallest inputs that show it, if these are wanted."""
        if not is_wanted:
            return PathDivergence(case.inputs, case.inputs, differences)
        kinds = {row["kind"] for row in differences}
        execution = self.contexts[case.context]

        def differences_of(inputs: dict[str, Any]) -> list[dict[str, Any]]:
            return self.pair.run(msgspec.structs.replace(case, inputs=inputs), execution).differences

        small = shrink(case.inputs, lambda inputs: any(row["kind"] in kinds for row in differences_of(inputs)))
        return PathDivergence(case.inputs, small, differences_of(small))


def _answers_of(world: SimulatedEffects | None) -> dict[str, Any]:
    """Return the answers to the acts of an execution by their steps; those of a later round have its number."""
    answers = {} if world is None else world.answers
    return {
        step if not number else f"{step} ({number + 1})": {"error": answer.error} if answer.error else answer.value
        for (step, number), answer in answers.items()
    }


def _list_error_codes(program: NodeProgram) -> frozenset[str]:
    """Return the codes that a node declares as its errors."""
    kinds = [without_null(output.type) for output in program.error if output.name in ("error_code", "code")]
    return frozenset(code for kind in kinds if isinstance(kind, EnumType) for code in kind.values)


# ---------------------------------------------------------------- corpus

FILES_MAX: Final = 10_000
_SIZE_MAX: Final = 1024 * 1024


class _KeptInputs(msgspec.Struct):
    node_id: str
    inputs: dict[str, Any]


class Corpus:
    """The folder of old failures."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, node_id: str, inputs: Mapping[str, Any]) -> Path:
        """Keep inputs; the same ones are kept once."""
        data = msgspec.json.encode({"node_id": node_id, "inputs": to_json(dict(inputs))})
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{node_id}-{blake2b(data, digest_size=8).hexdigest()}.json"
        path.write_bytes(data)
        return path

    def read_inputs(self, node_id: str) -> list[dict[str, Any]]:
        """Return the kept inputs of a node, in the order of their files' names."""
        kept = []
        for path in sorted(self._folder.glob("*.json"))[:FILES_MAX]:
            if path.stat().st_size > _SIZE_MAX:
                continue
            try:
                content = msgspec.json.decode(path.read_bytes(), type=_KeptInputs)
                if content.node_id == node_id:
                    kept.append(from_json(content.inputs))
            except (ValueError, ArithmeticError) as error:
                hint = 'it has {"node_id": …, "inputs": {…}}; `vesper verify --corpus` writes such files'
                raise ConfigError(f"{path} has no kept input: {error}", hint=hint) from None
        return kept
