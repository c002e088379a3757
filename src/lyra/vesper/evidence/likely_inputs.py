"""Inputs with which a node is likely to succeed, for property tests.

Random values rarely pass the constraints of all inputs at once. `LikelyInputs` keeps, for each input, values that its
own constraints accept (random ones, boundaries, and texts that match its patterns; the reference evaluator judges
them). A row has such a value for each input, or is that of a test case with one input changed. What the contracts say
about several inputs together is left to chance.

`pattern_drawer("^ord_[a-z0-9]{16,}$")` draws `ord_7w0k…`. Repetitions without an end have a few more rounds than they
need, and a text has a longest length. What is drawn nearly always matches: boundaries of words and the like are not
looked at, so a caller checks each text. Patterns that Lyra's own matcher does not take are not drawn from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from random import Random  # noqa: TID251 - the type; generators come from core.ids
from re import _parser as parser  # type: ignore[attr-defined, unused-ignore]
from typing import Any, Final

import msgspec

from lyra.core.linear_regex import BadPattern
from lyra.vesper import ir
from lyra.vesper.evidence.inputs import Boundaries, Draw, drawer, parts_of
from lyra.vesper.reference.run import run
from lyra.vesper.values.limits import DRAWN_TEXT_CHARS_MAX
from lyra.vesper.values.outcome import Execution
from lyra.vesper.values.patterns import compile_pattern

_POOL: Final = 32  # accepted values of an input
_TRIES: Final = 400  # to find them
_ABSENT_SHARE: Final = 0.2  # of optional inputs that a row leaves out
_LONG_TEXT: Final = "abcdefghijklmnopqrstuvwxyz0123456789"


class LikelyInputs:
    """Rows of inputs for one program, around the inputs of its test cases."""

    def __init__(self, program: ir.NodeProgram, cases: Sequence[Mapping[str, Any]], rng: Random) -> None:
        self._rng = rng
        self._cases = [dict(case) for case in cases]
        self._inputs = program.inputs
        boundaries = Boundaries(program)
        self._draws = {declared.name: drawer(declared.type, boundaries) for declared in program.inputs}
        self._accepted = {declared.name: self._values(program, declared) for declared in program.inputs}

    def row(self) -> dict[str, Any]:
        """Return inputs that are each accepted by themselves."""
        rng = self._rng
        chosen = [item for item in self._inputs if item.required or rng.random() >= _ABSENT_SHARE]
        return {declared.name: self.value(declared.name) for declared in chosen}

    def near_case(self) -> dict[str, Any]:
        """Return the inputs of a test case with one of them changed; any row where there is no test case."""
        if not self._cases or not self._inputs:
            return self.row()
        name = self._rng.choice(self._inputs).name
        return {**self._rng.choice(self._cases), name: self.value(name)}

    def value(self, name: str) -> Any:
        """Return a value that the constraints of an input accept; any of its type where none is known."""
        pool = self._accepted[name]
        return self._rng.choice(pool) if pool else self._draws[name](self._rng)

    def _values(self, program: ir.NodeProgram, declared: ir.NodeInput) -> list[Any]:
        """Return values that an input accepts, from several sources in turn."""
        sources = [self._draws[declared.name], *_pattern_draws(declared), _long_text]
        given = [case[declared.name] for case in self._cases if declared.name in case]
        alone = _alone(program, declared)
        pool: list[Any] = []
        for value in self._candidates(given, sources):
            if _is_accepted(alone, {declared.name: value}):
                pool.append(value)
                if len(pool) == _POOL:
                    break
        return pool

    def _candidates(self, given: list[Any], sources: list[Draw]) -> Iterator[Any]:
        yield from given
        for number in range(_TRIES):
            yield sources[number % len(sources)](self._rng)


def _pattern_draws(declared: ir.NodeInput) -> list[Draw]:
    """Draws texts for the patterns in an input's constraints."""
    draws = []
    for part in parts_of(declared.constraints):
        if isinstance(part, ir.FunctionCall) and part.function == "matches":
            pattern = part.arguments[-1]
            draw = pattern_drawer(pattern.value) if isinstance(pattern, ir.Constant) else None
            if draw is not None:
                draws.append(draw)
    return draws


def _long_text(rng: Random) -> str:
    """Draws a text for those that have to have some length."""
    return "".join(rng.choices(_LONG_TEXT, k=rng.randrange(4, 40)))


def _alone(program: ir.NodeProgram, declared: ir.NodeInput) -> ir.NodeProgram:
    """Return a program with one input of another, which only checks it."""
    return msgspec.structs.replace(
        program,
        inputs=(declared,),
        success=(),
        steps=(ir.ReturnStep(name="end", success=()),),
        preconditions=(),
        postconditions=(),
        invariants=(),
        olds=(),
        machines=(),
        rules=(),
        pure=True,
        digest=f"{program.digest}-{declared.name}",
    )


def _is_accepted(program: ir.NodeProgram, inputs: Mapping[str, Any]) -> bool:
    execution = Execution(now=datetime(2026, 1, 1, tzinfo=UTC), trace_id="accepted")
    return run(program, inputs, execution).error is None


# ---------------------------------------------------------------- pattern texts

_MORE_ROUNDS: Final = 4  # of a repetition, beyond those it needs
_CLASS_TRIES: Final = 64  # to draw a character that a class with exceptions takes
_ANY_CHARACTERS: Final = "abcxyzABCXYZ0123456789_- .@é"
_CATEGORIES: Final = {
    "CATEGORY_DIGIT": "0123456789",
    "CATEGORY_SPACE": " \t",
    "CATEGORY_WORD": "abcxyzABCXYZ0123456789_",
    "CATEGORY_NOT_DIGIT": "abcxyz -",
    "CATEGORY_NOT_SPACE": "abcxyz019-",
    "CATEGORY_NOT_WORD": " -.@",
}


class _TooLong(Exception):
    """The text would be longer than a drawn text may be."""


def pattern_drawer(pattern: str) -> Callable[[Random], str | None] | None:
    """Draws texts for a pattern, None where one became too long; None for a pattern that cannot be used."""
    try:
        compile_pattern(pattern)
    except BadPattern:
        return None
    tree = parser.parse(pattern)

    def draw(rng: Random) -> str | None:
        walk = _PatternWalk(rng)
        try:
            walk.row(tree)
        except _TooLong:
            return None
        return "".join(walk.characters)

    return draw


class _PatternWalk:
    """One way through a parsed pattern, and the characters along it."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.characters: list[str] = []

    def row(self, items: Any) -> None:
        for kind, value in items:
            self._item(str(kind), value)

    def _item(self, kind: str, value: Any) -> None:
        match kind:
            case "LITERAL":
                self._add(chr(value))
            case "NOT_LITERAL":
                self._add(self._rng.choice(_ANY_CHARACTERS.replace(chr(value), "")))
            case "ANY":
                self._add(self._rng.choice(_ANY_CHARACTERS))
            case "IN":
                self._add(self._member([(str(name), part) for name, part in value]))
            case "SUBPATTERN":
                self.row(value[3])
            case "BRANCH":
                self.row(self._rng.choice(value[1]))
            case "MAX_REPEAT" | "MIN_REPEAT":
                least, most, items = value
                for _ in range(self._rng.randint(least, min(int(most), least + _MORE_ROUNDS))):
                    self.row(items)

    def _add(self, character: str) -> None:
        if len(self.characters) >= DRAWN_TEXT_CHARS_MAX:
            raise _TooLong
        self.characters.append(character)

    def _member(self, parts: list[tuple[str, Any]]) -> str:
        """Return a character of a class such as `[a-z_]` or `[^0-9]`."""
        if parts[0][0] != "NEGATE":
            return self._character(*self._rng.choice(parts))
        for _ in range(_CLASS_TRIES):
            character = self._rng.choice(_ANY_CHARACTERS)
            if not any(_has(name, part, character) for name, part in parts[1:]):
                return character
        raise _TooLong  # no common character is left

    def _character(self, name: str, part: Any) -> str:
        if name == "LITERAL":
            return chr(part)
        if name == "RANGE":
            return chr(self._rng.randint(*part))
        return self._rng.choice(_CATEGORIES[str(part)])


def _has(name: str, part: Any, character: str) -> bool:
    if name == "LITERAL":
        return bool(ord(character) == part)
    if name == "RANGE":
        low, high = part
        return bool(low <= ord(character) <= high)
    mark = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}[str(part).rpartition("_")[2]]
    is_excluded = "NOT" in str(part)
    return bool(re.fullmatch(mark, character)) is not is_excluded
