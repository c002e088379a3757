"""Differential tests: two paths run the same random inputs, and every difference is reported with small inputs.

`test(program, count, seed)` first runs old failures from the corpus, then generated inputs in batches. Divergences are
counted; the first few are shrunk, kept in the report and added to the corpus, a folder with one small JSON file each. A
path that raises differs from one that does not. Programs with effects run the first path against simulated effects, and
the second against a replay of them.

`shrink(inputs, still_fails)` tries simpler values one at a time and keeps each that still fails, until none does or the
number of attempts is used up. Simpler means: absent, null, zero, false, empty, shorter, nearer to zero, fewer digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from hashlib import blake2b
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import msgspec

from lyra.core.clock import SystemClock
from lyra.vesper.confidence import lower_bound
from lyra.vesper.direct import run as direct_path
from lyra.vesper.effects.replay import ReplayEffects
from lyra.vesper.evidence.compare import compare
from lyra.vesper.evidence.inputs import InputGenerator
from lyra.vesper.evidence.worlds import SimulatedEffects, executions, simulator
from lyra.vesper.ir import NodeProgram
from lyra.vesper.python import run as python_path
from lyra.vesper.values.json_values import from_json, to_json
from lyra.vesper.values.outcome import Execution, Outcome

# ruff: noqa: PT028 - `test` is not a test of pytest's


RunPath = Callable[..., Outcome]  # (program, inputs, execution, effects)
_COMPILERS: Final[dict[RunPath, Callable[[NodeProgram], Any]]] = {
    path.run: path.compile_program for path in (python_path, direct_path)
}
_BATCH: Final = 4096
KEPT_MAX: Final = 10


class PathDivergence(msgspec.Struct, frozen=True):
    """Inputs for which the paths differ, as they were drawn and as small as they could be made."""

    inputs: dict[str, Any]
    shrunk: dict[str, Any]
    differences: list[dict[str, Any]]  # of the shrunk inputs


class ComparisonReport(msgspec.Struct, frozen=True):
    """What a differential test came to."""

    compared: int
    divergences: int
    kept: tuple[PathDivergence, ...]  # the first ones
    seconds: float
    interrupted: bool = False  # by Ctrl-C; what was compared before counts

    @property
    def confidence(self) -> float:
        return lower_bound(self.compared, self.divergences)


class PathPair:
    """Two paths that run the same executions of one program."""

    def __init__(self, program: NodeProgram, first: RunPath | None, second: RunPath | None, seed: int = 0) -> None:
        if first is None or second is None:
            python, direct = default_paths()
            first, second = first or python, second or direct
        self._program, self._first, self._second = program, first, second
        self._simulated = None if program.pure else simulator(program, seed)
        self.ended = 0  # comparisons of the batch under way

    def differing(self, batch: Iterable[Mapping[str, Any]], contexts: Sequence[Execution]) -> Iterator[int]:
        """Yield the numbers of the inputs for which the paths differ; the contexts take turns. `ended` counts those
        that were compared, for one who stops in the middle."""
        if self._simulated is not None:
            for number, inputs in enumerate(batch):
                self.ended = number
                if self.differences(inputs, contexts[number % len(contexts)]):
                    yield number
            return
        first, second = (_compiled(path, self._program) for path in (self._first, self._second))
        for number, (inputs, execution) in enumerate(zip(batch, cycle(contexts), strict=False)):
            self.ended = number
            try:
                if compare(first(inputs, execution), second(inputs, execution)):
                    yield number
            except Exception:  # noqa: BLE001 - a crash is a finding
                yield number

    def differences(self, inputs: Mapping[str, Any], execution: Execution) -> list[dict[str, Any]]:
        """Return how the two paths differ for some inputs; empty if they do not. A path that raises always differs."""
        try:
            if self._simulated is None:
                arguments = self._program, inputs, execution
                return compare(self._first(*arguments), self._second(*arguments))
            return self._replayed(inputs, execution, self._simulated())
        except Exception:  # noqa: BLE001 - a crash is a finding
            return self._crashes(inputs, execution)

    def _replayed(
        self, inputs: Mapping[str, Any], execution: Execution, live: SimulatedEffects
    ) -> list[dict[str, Any]]:
        python = self._first(self._program, inputs, execution, live)
        replay = ReplayEffects(live.log)
        direct = self._second(self._program, inputs, execution, replay)
        return [*compare(python, direct), *replay.mismatches()]

    def _crashes(self, inputs: Mapping[str, Any], execution: Execution) -> list[dict[str, Any]]:
        live = None if self._simulated is None else self._simulated()
        python = _ending(self._first, self._program, inputs, execution, live)
        replay = None if live is None else ReplayEffects(live.log)
        direct = _ending(self._second, self._program, inputs, execution, replay)
        return [{"path": "root", "kind": "crash", "python": python, "direct": direct}]


def _ending(path: RunPath, *arguments: Any) -> str:
    """Return how an execution ended, an exception of the path included."""
    try:
        outcome = path(*arguments)
    except Exception as error:  # noqa: BLE001 - a crash is a finding
        return f"{type(error).__name__}: {error}"
    return outcome.status if outcome.error is None else outcome.error.code


def default_paths() -> tuple[RunPath, RunPath]:
    return python_path.run, direct_path.run


def _compiled(path: RunPath, program: NodeProgram) -> Callable[[Mapping[str, Any], Execution], Outcome]:
    """Return what runs one pure program on the path; Lyra's own paths are not asked for the compiled program every
    time."""
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
    stop_after: int | None = None,
    keep_interrupted: bool = False,
) -> ComparisonReport:
    """Compare the paths on `count` generated inputs; `stop_after` so many divergences. With `keep_interrupted`, Ctrl-C
    ends the comparing and not the caller."""
    pair = PathPair(program, first, second, seed)
    clock = SystemClock()
    began = clock.monotonic()
    contexts = executions(program, seed)
    generator = InputGenerator(program, seed)
    batch = Corpus(corpus).of(program.node_id) if corpus is not None else []
    total = count + len(batch)
    compared = divergences = 0
    failing: list[tuple[dict[str, Any], Execution]] = []
    is_interrupted = False
    try:
        while compared < total and not _is_enough(divergences, stop_after):
            ended = len(batch)
            for number in pair.differing(batch, contexts):
                divergences += 1
                if len(failing) < KEPT_MAX:
                    failing.append((batch[number], contexts[number % len(contexts)]))
                if _is_enough(divergences, stop_after):
                    ended = number + 1
                    break
            compared += ended
            batch = generator.batch(min(total - compared, _BATCH))
    except KeyboardInterrupt:
        if not keep_interrupted:
            raise
        compared += pair.ended  # the comparison under way does not count
        is_interrupted = True
    seconds = clock.monotonic() - began
    kept = tuple(_shrunk(pair, inputs, execution, is_wanted=not is_interrupted) for inputs, execution in failing)
    if corpus is not None:
        for divergence in kept:
            Corpus(corpus).add(program.node_id, divergence.shrunk)
    return ComparisonReport(compared, divergences, kept, seconds, is_interrupted)


def _is_enough(divergences: int, stop_after: int | None) -> bool:
    return stop_after is not None and divergences >= stop_after


def _shrunk(pair: PathPair, inputs: dict[str, Any], execution: Execution, *, is_wanted: bool) -> PathDivergence:
    """Return the divergence with the smallest inputs that show it, if these are wanted."""
    if not is_wanted:
        return PathDivergence(inputs, inputs, pair.differences(inputs, execution))
    kinds = {row["kind"] for row in pair.differences(inputs, execution)}

    def still_differs(candidate: dict[str, Any]) -> bool:
        return any(row["kind"] in kinds for row in pair.differences(candidate, execution))

    shrunk = shrink(inputs, still_differs)
    return PathDivergence(inputs, shrunk, pair.differences(shrunk, execution))


# ---------------------------------------------------------------- corpus

FILES_MAX: Final = 10_000
_SIZE_MAX: Final = 1024 * 1024


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

    def of(self, node_id: str) -> list[dict[str, Any]]:
        """Return the kept inputs of a node, in the order of their files' names."""
        kept = []
        for path in sorted(self._folder.glob("*.json"))[:FILES_MAX]:
            if path.stat().st_size > _SIZE_MAX:
                continue
            content = msgspec.json.decode(path.read_bytes())
            if content["node_id"] == node_id:
                kept.append(from_json(content["inputs"]))
        return kept


# ---------------------------------------------------------------- shrinking

ATTEMPTS_MAX: Final = 2000
_DIGITS_MAX: Final = 60


def shrink(
    inputs: Mapping[str, Any], still_fails: Callable[[dict[str, Any]], bool], attempts_max: int = ATTEMPTS_MAX
) -> dict[str, Any]:
    """Return the simplest inputs that were reached and still fail."""
    best = dict(inputs)
    left = attempts_max
    improved = True
    while improved and left > 0:
        improved = False
        for candidate in _simpler_map(best):
            left -= 1
            if still_fails(candidate):
                best, improved = candidate, True
                break
            if left <= 0:
                break
    return best


def simpler(value: Any) -> Iterator[Any]:
    """Yield values that are simpler than this one, the simplest first."""
    match value:
        case bool():
            if value:
                yield False
        case int():
            yield from _simpler_integers(value)
        case float():
            if value == int(value) if abs(value) < 1e15 else False:
                yield int(value)
        case Decimal():
            yield from _simpler_decimals(value)
        case str():
            yield from _simpler_texts(value)
        case bytes():
            yield from (value[:length] for length in _shorter(len(value)))
        case list():
            yield from _simpler_lists(value)
        case dict():
            yield from _simpler_map(value)


def _simpler_integers(value: int) -> Iterator[int]:
    if value == 0:
        return
    yield 0
    if value < 0:
        yield -value
    step = value // 2 if value > 0 else -(-value // 2)
    while step:
        yield value - step
        step = int(step / 2) if abs(step) < 2**53 else step // 2


def _simpler_decimals(value: Decimal) -> Iterator[Decimal]:
    if not value.is_finite() or len(value.as_tuple().digits) > _DIGITS_MAX:
        yield Decimal(0)
        return
    if value != 0 or value.is_signed() or value.as_tuple().exponent != 0:
        yield Decimal(0)
    if value < 0:
        yield abs(value)
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and exponent < 0:
        yield Decimal(int(value))
        yield value.quantize(Decimal((0, (1,), exponent + 1)))
    coefficient = int(value.scaleb(-exponent)) if isinstance(exponent, int) else 0
    for number in _simpler_integers(coefficient):
        yield Decimal(number).scaleb(exponent) if isinstance(exponent, int) else Decimal(0)


def _shorter(length: int) -> Iterator[int]:
    """Lengths below this one: 0, the half, one less."""
    yield from sorted({0, length // 2, length - 1} & set(range(length)))


def _simpler_texts(value: str) -> Iterator[str]:
    yield from (value[:length] for length in _shorter(len(value)))
    if len(value) <= 64:
        yield from (value[:index] + value[index + 1 :] for index in range(len(value)))
        for index, char in enumerate(value):
            yield from (value[:index] + plain + value[index + 1 :] for plain in "0a" if plain < char)


def _simpler_lists(value: list[Any]) -> Iterator[list[Any]]:
    yield from (value[:length] for length in _shorter(len(value)))
    yield from (value[:index] + value[index + 1 :] for index in range(len(value)))
    for index, item in enumerate(value):
        yield from ([*value[:index], other, *value[index + 1 :]] for other in simpler(item))


def _simpler_map(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in value:
        yield {other: item for other, item in value.items() if other != name}
    for name, item in value.items():
        yield from ({**value, name: other} for other in simpler(item))
