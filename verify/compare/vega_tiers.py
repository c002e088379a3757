"""Pure functions in Vega, run by the machine and as generated code: the same value, or the same error and place.

`compare(seed)` makes one random program and calls each of its functions with several rows of arguments, interpreted
and generated: as Python, and where it is about numbers alone as machine code too; each of these at one go, and with a
pause in every turn of a loop. What is compared is more than
equality: kinds, the sign of zero, the order of keys, which lists are the same list, whether arguments were left alone,
and of an error its text, place and trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from lyra.core.ids import make_random
from lyra.vega.bytecode.program import Program
from lyra.vega.compiler.compiler import compile_module
from lyra.vega.machine.fiber import Done, Fiber
from lyra.vega.machine.link import LinkedProgram, link
from lyra.vega.machine.pure import MISS
from lyra.vega.machine.pure.native import is_installed
from lyra.vega.machine.pure.switch import Pure, PureTier
from lyra.vega.machine.vm import run as run_fiber
from lyra.vega.syntax.parser import parse
from lyra.vega.syntax.source import Source
from lyra.vega.values.values import Err, Ok, copy_value
from verify.compare import vega_functions

__all__ = ["Result", "compare", "program_of", "run"]

FUEL: Final = 4_000
NATIVE: Final[tuple[Literal["always", "never"], ...]] = ("never", "always") if is_installed() else ("never",)
ROWS: Final = 3  # of arguments, for each function
PAUSED: Final = 3  # one in so many programs is run with pauses as well
MIXED: Final = 20  # one in so many programs that are not about numbers alone has machine code all the same


class Result(msgspec.Struct):
    """What a run of the comparison came to. `taken` calls were made by generated code, `given_up` by the machine after
    all; so often did calls pause."""

    programs: int = 0
    functions: int = 0
    calls: int = 0
    taken: int = 0
    given_up: int = 0
    unfit: int = 0
    native: int = 0
    pauses: int = 0
    failures: list[str] = []


def run(count: int, seed: int, *, progress: Callable[[int, int], None] | None = None) -> Result:
    """Programs from this seed on, until that many functions have been compared."""
    result = Result()
    while result.functions < count:
        compare(seed + result.programs, result)
        if progress is not None and result.programs % 100 == 0:
            progress(min(result.functions, count), count)
    return result


def program_of(text: str) -> Program:
    return compile_module(parse(text, "tiers.vega"), Source("tiers.vega", text))


def compare(seed: int, result: Result, *, is_native: bool = True) -> None:
    """One program all ways (or without machine code); differences are added to the result."""
    rng = make_random(seed)
    text, functions, is_numeric = vega_functions.functions(rng)
    program = program_of(text)
    plain = link(program)
    natives = NATIVE if is_native and (is_numeric or seed % MIXED == 0) else NATIVE[:1]
    ways = (False, True) if seed % PAUSED == 0 else (False,)
    tiers = [_tiered(program, native, pauses=pauses) for native in natives for pauses in ways]
    result.programs += 1
    result.functions += len(functions)
    for number, kinds in enumerate(functions):
        for _ in range(ROWS):
            row = vega_functions.arguments(rng, kinds)
            wanted = _called(plain, f"go{number}", row)
            if wanted is None:
                continue  # it takes too long
            for tiered in tiers:
                called = _called(tiered, f"go{number}", row)
                direct = _direct(tiered, f"f{number}", row, result)
                for got in (called, direct):
                    if got is not None and got != wanted and not _is_deep(got, wanted):
                        how = f"f{number}{tuple(row)!r}, native: {tiered.tier.native}, pauses: {tiered.tier.contended}"
                        lines = (f"seed {seed}: {how}", f"  the machine: {wanted}", f"  generated:   {got}", text)
                        result.failures.append("\n".join(lines))
                        return
    result.native += sum(len(tiered.tier.native_functions) for tiered in tiers if tiered.tier is not None)


def _tiered(program: Program, native: Literal["always", "never"], *, pauses: bool = False) -> LinkedProgram:
    linked = link(program, tier=PureTier)
    if linked.tier is not None:
        linked.tier.is_eager = linked.tier.is_strict = True
        linked.tier.native = native
        if pauses:
            linked.tier.contended = lambda: False
            linked.tier.watch.is_awake = (
                True  # pauses all the time, without the thread that looks for waiting processes
            )
    return linked


def _index(linked: LinkedProgram, name: str) -> int:
    return next(code.index for code in linked.functions if code.name == name)


def _called(linked: LinkedProgram, name: str, row: list[Any]) -> str | None:
    """What a call comes to, as a text that says everything; None when it takes too long."""
    row = copy_value(row)
    done = run_fiber(Fiber.call(linked, _index(linked, name), row[:], []), FUEL)
    if not isinstance(done, Done):
        return None
    if done.error is not None:
        return f"{done.error!r} {_written([row])}"
    return _written([done.value, row])


def _direct(linked: LinkedProgram, name: str, row: list[Any], result: Result) -> str | None:
    """The same without the machine: None where generated code leaves it to the machine."""
    pure = linked.functions[_index(linked, name)].pure
    if pure is None:
        result.unfit += 1
        return None
    row = copy_value(row)
    result.calls += 1
    before = _written([row])
    value = _in_pieces(linked.tier, pure, row[:], result)
    if value is MISS:
        result.given_up += 1
        if _written([row]) != before:
            return f"arguments changed: {_written([row])}"
        return None
    result.taken += 1
    return _written([value, row])


def _in_pieces(tier: PureTier, pure: Pure, row: list[Any], result: Result) -> Any:
    """A call with as many pauses as it can make."""
    if tier.contended is None:
        return pure(row)
    tier.names["PAUSE"] = True
    if tier.machine_code is not None:
        tier.machine_code.flag.value = 1
    value = pure(row)
    while value is MISS and tier.paused is not None:
        result.pauses += 1
        paused, tier.paused = tier.paused, None
        value = paused.go_on()
    tier.names["PAUSE"] = False
    return value


def _is_deep(got: str, wanted: str) -> bool:
    """Where a runaway recursion ends is looked at now and then only, so its place may differ."""
    return "name='StackOverflow'" in got and "name='StackOverflow'" in wanted


def _written(value: Any) -> str:
    """A value as text, with kinds, and with the same list written once and then by its number."""
    numbers: dict[int, int] = {}

    def write(item: Any) -> str:
        kind = type(item)
        if kind not in (list, dict, Ok, Err):
            return repr(item)
        known = numbers.get(id(item))
        if known is not None and kind in (list, dict):
            return f"#{known}"
        numbers[id(item)] = len(numbers)
        if kind is list:
            return "[" + ", ".join(map(write, item)) + "]"
        if kind is dict:
            return "{" + ", ".join(f"{key!r}: {write(inner)}" for key, inner in item.items()) + "}"
        return f"{kind.__name__}({write(item.value)})"

    return write(value)
