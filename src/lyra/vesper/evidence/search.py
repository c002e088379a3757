"""A search for inputs that a program accepts and that reach all of it.

`InputSearch.case()` gives the next inputs to try, with a seed and a script for what the outside world answers. First
come kept failures and the inputs of test cases, then all inputs of a node that has few, then in turn likely ones, near
ones and random ones. What an execution reached is told with `learn`: inputs that reached something new are kept and
changed further, most of all those with which the node succeeded. A change replaces values, puts separators, prefixes
and lengths that the program names into texts, moves numbers by a unit or by what a comparison was short of, puts the
other side of a comparison where the one side came from, or lets the world answer one request differently. The same
seed gives the same search.

`shrink(inputs, still_fails)` tries simpler values one at a time and keeps each that still fails, until none does or the
number of attempts is used up. Simpler means: absent, null, zero, false, empty, shorter, nearer to zero, fewer digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal, DecimalException
from typing import Any, Final

import msgspec

from lyra.core.ids import make_random
from lyra.vesper import ir
from lyra.vesper.evidence.inputs import InputGenerator, move_time, pick
from lyra.vesper.evidence.likely_inputs import LikelyInputs, insert_pieces
from lyra.vesper.evidence.reach import Watched
from lyra.vesper.evidence.rooms import finite_inputs
from lyra.vesper.evidence.worlds import WorldAnswer

_Path = tuple[Any, ...]
_Leaf = tuple[_Path, Any]  # a value inside inputs, and its place
_KEPT_MAX: Final = 400  # inputs that reached something new
_RANDOM_BATCH: Final = 256
_LEAVES_MAX: Final = 64  # values of one input that a change chooses from
_GROWTH_MAX: Final = 12  # elements by which a list is made longer, and letters by which a text is
_LETTERS: Final = (0x21, 0x2FF)  # code points that are put into texts
_MUTATED_SHARE: Final = 0.55
_CHANGES: Final = (1, 1, 1, 2, 3)  # how many changes make other inputs
_CALM_MUTATED_SHARE: Final = 0.08
_CROSSED_SHARE: Final = 0.1  # of calm inputs: successful ones with one value of another row
_ROWS: Final = 256  # that are drawn at once
_SUCCESSFUL_SHARE: Final = 0.4  # of changed inputs: of those with which the node succeeded
_FAILING_SUCCESSFUL_SHARE: Final = 0.6  # as long as few inputs succeed
_NEAR_SHARE: Final = 0.08  # inputs of test cases with one changed
_RANDOM_SHARE: Final = 0.04  # of any inputs, wrong ones among them
_OPEN_SHARE: Final = 0.6  # in a context that stands in no node's way


class SearchCase(msgspec.Struct, frozen=True):
    """One execution to try."""

    inputs: dict[str, Any]
    seed: int = 0  # of what the world answers
    script: Mapping[tuple[str, int], WorldAnswer] = {}  # answers that are fixed
    context: int = 0  # the number of the context; 0 stands in no node's way


class _KeptCase(msgspec.Struct, frozen=True):
    case: SearchCase
    pairs: tuple[tuple[Any, Any], ...]
    answers: Mapping[tuple[str, int], WorldAnswer]
    leaves: Sequence[_Leaf]  # of its inputs


class InputSearch:
    """See the module."""

    def __init__(
        self,
        program: ir.NodeProgram,
        seed: int,
        *,
        first: Iterable[Mapping[str, Any]] = (),
        cases: Sequence[Mapping[str, Any]] = (),
        contexts: int = 1,
        is_settled: bool = False,
    ) -> None:
        self._rng = make_random(seed)
        self._is_pure, self._contexts = program.pure, contexts
        self._likely = LikelyInputs(program, cases, self._rng)
        self._random = InputGenerator(program, seed)
        self._batch: list[dict[str, Any]] = []
        self.all_inputs = finite_inputs(program, is_settled=is_settled)
        self._given = iter([dict(inputs) for inputs in (*first, *cases, *(self.all_inputs or ()))])
        self._kept: list[_KeptCase] = []
        self._accepted: list[_KeptCase] = []
        self._successful: list[_KeptCase] = []
        self._known: set[Any] = set()
        self._names = [declared.name for declared in program.inputs]
        self._near_share = _NEAR_SHARE if cases else 0.0
        self._rows: list[dict[str, Any]] = []
        self.is_failing = False  # few inputs succeed: more of those that do are changed
        self.is_calm = False  # little that is tried is new: most inputs are drawn, which costs less than changing some

    def case(self) -> SearchCase:
        """Return the next execution to try."""
        rng = self._rng
        given = next(self._given, None)
        if given is not None:
            return self._in_world(given)
        choice = rng.random()
        mutated = _CALM_MUTATED_SHARE if self.is_calm else _MUTATED_SHARE
        if choice < mutated and self._kept:
            pool = self._accepted if self._accepted and rng.random() < 0.9 else self._kept
            successful = _FAILING_SUCCESSFUL_SHARE if self.is_failing else _SUCCESSFUL_SHARE
            pool = self._successful if self._successful and rng.random() < successful else pool
            recent = pool[-24:] if rng.random() < 0.5 else pool
            return self._mutate(pick(rng, recent))
        near = mutated + self._near_share
        if choice < near:
            return self._in_world(self._likely.near_case())
        if choice < near + _RANDOM_SHARE:
            if not self._batch:
                self._batch = self._random.batch(_RANDOM_BATCH)
            return self._in_world(self._batch.pop())
        if not self.is_calm:
            return self._in_world(self._likely.row())
        if not self._rows:
            self._rows = self._likely.rows(_ROWS)
        row = self._rows.pop()
        if choice > 1 - _CROSSED_SHARE and self._successful:
            name = pick(rng, self._names)
            if name in row:
                row = {**pick(rng, self._successful).case.inputs, name: row[name]}
        return self._in_world(row)

    def grow(self, case: SearchCase) -> SearchCase:
        """Return an execution with one list of its inputs made longer, or else one text changed: for a node that takes
        endless lists of few elements, or short texts, whose common ones are all tried."""
        rng = self._rng
        leaves = [*_leaves(case.inputs)]
        lists = [(path, value) for path, value in leaves if isinstance(value, list) and value]
        texts = [(path, value) for path, value in leaves if isinstance(value, str) and value]
        if lists:
            path, value = pick(rng, lists)
            longer = value + rng.choices(value, k=rng.randrange(1, _GROWTH_MAX))
            return msgspec.structs.replace(case, inputs=_put(case.inputs, path, longer))
        if not texts or self.all_inputs is not None:
            return case
        path, text = pick(rng, texts)
        if rng.random() < 0.5:  # as a pattern of few letters takes it
            changed = text + text[-1] * rng.randrange(1, _GROWTH_MAX)
        else:  # as a limit of its length takes it
            index = rng.randrange(0, len(text))
            changed = text[:index] + chr(rng.randrange(*_LETTERS)) + text[index + 1 :]
        return msgspec.structs.replace(case, inputs=_put(case.inputs, path, changed))

    def learn(self, case: SearchCase, watched: Watched, answers: Mapping[tuple[str, int], WorldAnswer]) -> bool:
        """Keep a case that reached something new; returns whether it did."""
        new = watched.features - self._known
        if not new:
            return False
        self._known |= new
        kept = _KeptCase(case, tuple(watched.pairs), dict(answers), tuple(_leaves(case.inputs)))
        pools = [self._kept, *([self._accepted] if watched.is_accepted else [])]
        for pool in pools if watched.outcome.error is not None else (*pools, self._successful):
            if len(pool) >= _KEPT_MAX:
                pool.pop(self._rng.randrange(0, len(pool) // 2))
            pool.append(kept)
        return True

    def _in_world(self, inputs: dict[str, Any]) -> SearchCase:
        rng = self._rng
        context = 0 if self._contexts == 1 or rng.random() < _OPEN_SHARE else rng.randrange(self._contexts)
        return SearchCase(inputs, 0 if self._is_pure else rng.getrandbits(40), {}, context)

    # ------------------------------------------------------------ changes

    def _mutate(self, kept: _KeptCase) -> SearchCase:
        rng = self._rng
        inputs, case = kept.case.inputs, kept.case
        seed, script = case.seed, case.script
        if not self._is_pure and rng.random() < 0.5:
            seed, script = self._change_world(kept)
            if rng.random() < 0.5:
                return msgspec.structs.replace(case, seed=seed, script=script)
        for _ in range(pick(rng, _CHANGES)):
            inputs = self._change(inputs, kept)
        return SearchCase(inputs, seed, script, case.context)

    def _change_world(self, kept: _KeptCase) -> tuple[int, Mapping[tuple[str, int], WorldAnswer]]:
        """Return another seed, or the answers that were given with one of them drawn again or changed."""
        rng = self._rng
        seed = rng.getrandbits(40)
        places = list(kept.answers)
        if not places or rng.random() < 0.2:
            return seed, {}
        place = pick(rng, places)
        script = dict(kept.answers)
        answer = script.pop(place)
        if not answer.error and answer.value is not None and rng.random() < 0.6:
            values = {"": answer.value}
            value = self._change_value(values, list(_leaves(values)), kept.pairs)[""]
            script[place] = WorldAnswer(value, is_wrong=answer.is_wrong or type(value) is not type(answer.value))
        return seed, script

    def _change(self, inputs: dict[str, Any], kept: _KeptCase) -> dict[str, Any]:
        rng = self._rng
        if not self._names:
            return inputs
        choice = rng.random()
        name = pick(rng, self._names)
        if choice < 0.2 or name not in inputs:
            return {**inputs, name: self._likely.value(name)}
        if choice < 0.28 and self._kept:
            other = pick(rng, self._kept).case.inputs
            return {**inputs, name: other[name]} if name in other else inputs
        leaves = kept.leaves if inputs is kept.case.inputs else list(_leaves(inputs))
        return self._change_value(inputs, leaves, kept.pairs)

    def _change_value(
        self, inputs: dict[str, Any], leaves: Sequence[_Leaf], pairs: Sequence[tuple[Any, Any]]
    ) -> dict[str, Any]:
        """Return the values with one of them changed, by what a comparison wants of it or at random."""
        rng = self._rng
        if not leaves:
            return inputs
        if pairs and rng.random() < 0.5:
            left, right = pick(rng, pairs)
            if rng.random() < 0.5:
                left, right = right, left
            same = [(path, value) for path, value in leaves if _is_same(value, left)]
            if same:
                path, value = pick(rng, same)
                new = self._step_beside(right)
                is_whole = isinstance(value, int) and isinstance(new, Decimal)
                return {**_put(inputs, path, int(new) if is_whole else new)}
            numbers = [(path, value) for path, value in leaves if _is_number(value)]
            if numbers and _is_number(left) and _is_number(right):
                path, value = pick(rng, numbers)
                return {**_put(inputs, path, self._move(value, left, right))}
        path, value = pick(rng, leaves)
        return {**_put(inputs, path, self._replace(value))}

    def _step_beside(self, value: Any) -> Any:
        """Return a value, or one just beside it."""
        step = pick(self._rng, (0, 0, 1, -1))
        if isinstance(value, datetime):
            return move_time(value, timedelta(microseconds=step)) if step else value
        if isinstance(value, Decimal):
            exponent = value.as_tuple().exponent
            return value + Decimal(step).scaleb(exponent if isinstance(exponent, int) else 0)
        return value + step if isinstance(value, int) and not isinstance(value, bool) else value

    def _move(self, value: Any, left: Any, right: Any) -> Any:
        """Return a number that is moved by what one side of a comparison was short of."""
        number = _decimal(value)
        try:
            match self._rng.randrange(4):
                case 0:
                    number += _decimal(right) - _decimal(left)
                case 1:
                    number -= _decimal(right) - _decimal(left)
                case 2 if left:
                    number = number * _decimal(right) / _decimal(left)
                case _:
                    number += pick(self._rng, (1, -1))
        except DecimalException:
            return value
        return _convert_like(number, value)

    def _replace(self, value: Any) -> Any:
        rng = self._rng
        match value:
            case bool():
                return not value
            case int():
                return pick(
                    rng, (value + 1, value - 1, -value, value * 2, value // 2, 0, value + rng.randrange(-50, 50))
                )
            case Decimal() | float():
                number = _decimal(value)
                exponent = number.as_tuple().exponent
                unit = Decimal(1).scaleb(exponent if isinstance(exponent, int) else 0)
                choices = (number + unit, number - unit, number * 2, number / 2, -number, Decimal(0))
                return _convert_like(pick(rng, (*choices, number + 1, number - 1)), value)
            case str():
                return self._replace_text(value)
            case list():
                return self._replace_list(value)
            case datetime():
                return move_time(value, timedelta(seconds=pick(rng, (1, -1, 86_400, -86_400, 31 * 86_400))))
            case None:
                return pick(rng, (0, 1, "", "a", True))
        return value

    def _replace_text(self, value: str) -> Any:
        rng = self._rng
        number = _decimal(value)
        if number and rng.random() < 0.5:
            return format(_convert_like(_decimal(self._replace(number)), number), "f")
        if rng.random() < 0.4:
            return insert_pieces(value, self._likely.boundaries, rng)
        place = rng.randrange(0, len(value) + 1)
        match rng.randrange(4):
            case 0:
                return value[:place] + pick(rng, "a0_ Zé") + value[place:]
            case 1:
                return value[:place] + value[place + 1 :]
            case 2:
                return value[:place] + pick(rng, "a0bz9") + value[place + 1 :]
        return value + value[-1:]

    def _replace_list(self, value: list[Any]) -> list[Any]:
        rng = self._rng
        if not value:
            return value
        place = rng.randrange(0, len(value))
        match rng.randrange(4):
            case 0:
                return value[:place] + value[place + 1 :]
            case 1:
                return [*value, value[place]]
            case 2:
                return value[::-1]
        return value[: place + 1]


# ---------------------------------------------------------------- values inside values


def _leaves(value: Any, path: _Path = ()) -> Iterator[_Leaf]:
    """Yield the places of the values inside a value, lists among them."""
    todo: list[tuple[_Path, Any]] = [(path, value)]
    count = 0
    while todo and count < _LEAVES_MAX:
        place, part = todo.pop()
        if isinstance(part, dict):
            todo.extend(((*place, name), item) for name, item in part.items())
            continue
        if isinstance(part, list):
            todo.extend(((*place, number), item) for number, item in enumerate(part))
        if place:
            count += 1
            yield place, part


def _put(value: Any, path: _Path, new: Any) -> Any:
    """Return a copy of a value with one part replaced; the other parts are shared."""
    if not path:
        return new
    head, *rest = path
    if isinstance(value, dict):
        return {**value, head: _put(value[head], tuple(rest), new)}
    return [*value[:head], _put(value[head], tuple(rest), new), *value[head + 1 :]]


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return value != "" and _decimal(value) != 0
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def _decimal(value: Any) -> Decimal:
    """Return a number as a decimal; 0 for other values."""
    try:
        number = Decimal(str(value))
    except DecimalException:
        return Decimal(0)
    return number if number.is_finite() and abs(number.adjusted()) < 40 else Decimal(0)


def _is_same(value: Any, other: Any) -> bool:
    if isinstance(other, datetime) and isinstance(value, str):
        try:
            return datetime.fromisoformat(value) == other
        except (ValueError, TypeError):
            return False
    if isinstance(other, bool) or isinstance(value, bool) or isinstance(other, str):
        return value is other or (isinstance(value, str) and value == other)
    return _is_number(value) and _is_number(other) and _decimal(value) == _decimal(other)


def _convert_like(number: Decimal, value: Any) -> Any:
    """Return a number of the kind, and with the digits after the point, that another one has."""
    try:
        if isinstance(value, int):
            return int(number)
        if isinstance(value, float):
            return float(round(number, 6))
        exponent = _decimal(value).as_tuple().exponent
        unit = Decimal(1).scaleb(min(exponent, 0) if isinstance(exponent, int) else 0)
        rounded = number.quantize(unit)
    except (DecimalException, OverflowError, ValueError):
        return value
    return format(rounded, "f") if isinstance(value, str) else rounded


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
    """Yield shorter lengths: 0, the half, one less."""
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
