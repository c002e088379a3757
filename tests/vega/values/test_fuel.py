"""Steps over much data: they count as many, so that a turn stays a turn, and one alone takes no longer than it must."""

from __future__ import annotations

import asyncio
import math
import random
import time
from typing import Any

import pytest

from lyra import vega
from lyra.vega.machine.fiber import Fiber, OutOfFuel
from lyra.vega.machine.link import link
from lyra.vega.machine.vm import run
from lyra.vega.stdlib.natives import NATIVES
from lyra.vega.values.values import Closure, Duration, Err, Ok, Process, compute_mark, equal
from verify.compare import vega_tiers

# One step of a program whose variables are: a list, one of lists, a text, a map.
STEPS = [
    "list::unique(xs)",
    "list::reverse(xs)",
    "list::index_of(xs, -1)",
    "list::contains(nested, 7)",
    "list::slice(xs, 0)",
    "list::concat(xs, xs)",
    "list::range(0, 25000)",
    "list::sum(xs)",
    "list::flatten(nested)",
    "list::zip(xs, xs)",
    "list::sort(xs)",
    "list::sort([1.5] + xs)",
    "xs + xs",
    "xs == list::slice(xs, 0)",
    "nested != list::slice(nested, 0)",
    "str::upper(text)",
    "str::reverse(text)",
    'str::split(text, ",")',
    "str::lines(text)",
    'str::replace(text, "a", "b")',
    'str::contains(text, "zz")',
    "str::repeat(text, 4)",
    "str::join(xs)",
    'text + text + "!"',
    '"${text}${text}"',
    "str::from(xs)",
    'json::parse("[" + str::join(xs, ",") + "]")',
    "json::stringify(xs)",
    'regex::find_all(str::slice(text, 0, 5000), "a+")',
    "map::keys(entries)",
    "map::entries(entries)",
    "map::merge(entries, entries)",
    "xs.reverse()",
]
# How the variables are made; a program makes those that its step names.
VARIABLES = {
    "xs": "let xs = list::range(0, 25000);",
    "nested": "let nested = list::zip(list::range(0, 25000), list::range(0, 25000));",
    "text": 'let text = str::repeat("abc,", 250000);',
    "entries": "let entries = {}; for x in list::range(0, 25000) { entries[x] = x; }",
}


def turns(source: str, fuel: int = 4_096) -> int:
    """How often a program has to be stepped to its end."""
    fiber = Fiber.start(link(vega_tiers.program_of(source)))
    count = 1
    while isinstance(run(fiber, fuel), OutOfFuel):
        count += 1
    return count


@pytest.mark.parametrize("step", STEPS)
def test_a_step_over_much_data_counts_as_many(step: str):
    """… so a loop of such steps lets the others have their turns."""
    variables = " ".join(made for name, made in VARIABLES.items() if name in step)
    source = f"{variables} let i = 0; while i < %d {{ {step}; i = i + 1; }}"
    assert turns(source % 8, 1_024) - turns(source % 0, 1_024) >= 3


def test_a_small_step_counts_as_nothing():
    """Fuel is calls and loop turns, as before."""
    source = 'let i = 0; while i < %d { list::unique([1, [2]]); str::upper("a"); [1] == [2]; i = i + 1; }'
    assert turns(source % 4_000) <= turns(source % 0) + 3


def test_others_run_beside_library_steps():
    """A process that sleeps for 10 ms does so beside one that calls the library again and again."""
    source = """
fn tick(n) { for let i = 0; i < n; i = i + 1 { process::sleep(1ms); print("tick ${i}"); } }
spawn fn tick(3);
let xs = list::reverse(list::range(0, 30000));
let i = 0;
while i < 60 { list::unique(xs); i = i + 1; }
print("done");
"""
    printed: list[str] = []
    vega.run(source, stdout=printed.append)
    assert printed[:3] == ["tick 0", "tick 1", "tick 2"]


@pytest.mark.parametrize("effect", ['print("x");', "process::self();"])
def test_the_loop_runs_beside_effects_that_take_long_each(effect: str):
    """It is not the number of effects alone that ends a turn."""
    source = f"""
let xs = list::reverse(list::range(0, 30000)); let i = 0;
while i < 60 {{ list::unique(xs); {effect} i = i + 1; }}
"""
    beats = 0

    async def main() -> None:
        nonlocal beats
        work = asyncio.ensure_future(vega.run(source, stdout=lambda _: None))
        while not work.done():
            await asyncio.sleep(0)
            beats += 1

    asyncio.run(main())
    assert beats >= 30


# ---------------------------------------------------------------- one step alone


def test_unique_compares_only_what_may_be_equal():
    """In seconds it would be minutes: every list with every other one."""
    unique = NATIVES["list::unique"]
    items: list[Any] = [[number % 6_000, {"a": [number % 6_000]}] for number in range(12_000)]
    before = time.process_time()
    assert len(unique(items)) == 6_000
    assert time.process_time() - before < 5


def value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(12 if depth < 3 else 7)
    if kind >= 7:
        inner = [value(rng, depth + 1) for _ in range(rng.randrange(3))]
        if kind == 7:
            return {str(rng.randrange(3)): item for item in inner}
        return [inner, inner, inner, Ok(inner), Err(inner)][kind - 7]
    return [rng.randrange(3), float(rng.randrange(3)), "a", None, True, Duration(1), Process("1")][kind]


def test_unique_gives_what_comparing_all_gives():
    unique = NATIVES["list::unique"]
    rng = random.Random(7)
    for _ in range(300):
        items = [value(rng) for _ in range(rng.randrange(12))]
        wanted: list[Any] = []
        for item in items:
            if not any(equal(item, other) for other in wanted):
                wanted.append(item)
        assert [id(item) for item in unique(items)] == [id(item) for item in wanted]


def test_equal_values_share_their_mark():
    rng = random.Random(8)
    values = [value(rng) for _ in range(400)]
    nested = [item for item in values if type(item) in (list, dict, Ok, Err)]
    known: dict[int, int] = {}
    for item in nested:
        for other in nested:
            if equal(item, other):
                assert compute_mark(item, known) == compute_mark(other, {})


def test_what_holds_itself_is_compared_too():
    circular: list[Any] = [1]
    circular.append(circular)
    other: list[Any] = [1, [1]]
    other[1].append(other)
    assert equal(circular, other)
    function = Closure(1)
    distinct = NATIVES["list::unique"]([circular, other, function, [circular, 2], Closure(1), [other, 2]])
    assert [id(item) for item in distinct] == [id(circular), id(function), id(distinct[2])]


def test_a_range_is_made_in_pieces():
    """… between which a signal is heard, and is the same as if it were not."""
    assert NATIVES["list::range"](5, 3_000_000, 2) == list(range(5, 3_000_000, 2))
    assert NATIVES["list::range"](3_000_000, 0, -1) == list(range(3_000_000, 0, -1))


def test_not_a_number_is_never_found():
    """Whether it is the same object is not promised: machine code gives a new one each time."""
    nan = math.nan
    assert NATIVES["list::index_of"]([nan], nan) == -1
    assert NATIVES["list::contains"]([1, nan], nan) is False
    assert len(NATIVES["list::unique"]([nan, nan, 1.0, 1])) == 3


def test_processes_that_only_talk_let_the_loop_have_its_turn():
    """However much each of them does for a message."""
    source = """
fn echo(back) {
    let xs = list::reverse(list::range(0, 30000));
    while true { receive { n => { list::unique(xs); back <- n; } } }
}
let me = process::self();
let other = spawn fn echo(me);
let i = 0;
while i < 100 { other <- i; receive { n => { i = n + 1; } } }
"""
    beats = 0

    async def main() -> None:
        nonlocal beats
        work = asyncio.ensure_future(vega.run(source))
        while not work.done():
            await asyncio.sleep(0)
            beats += 1

    asyncio.run(main())
    assert beats >= 90
