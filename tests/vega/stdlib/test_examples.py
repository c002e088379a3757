"""Every function of the library is done where its row says, has an example, and the examples are true."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from lyra import Event, Kernel, vega
from lyra.vega.compiler.calls import _BUDGET, _SINGLE, PRIVATE
from lyra.vega.runtime.handlers import HANDLERS
from lyra.vega.stdlib.natives import NATIVES
from lyra.vega.stdlib.table import GLOBALS, LIBRARY, METHODS, PRELUDE
from verify.reference.vega_examples import EXAMPLES

NAMES = [*GLOBALS, *(f"{module}::{name}" for module, rows in LIBRARY.items() for name in rows)]
# A process whose worker fails while it waits, and whether it outlives that.
TIED = """
fn fails() {{ process::sleep(20ms); throw Broken("x"); }}
fn waits() {{
    let worker = spawn fn fails() supervised by {{ strategy stop }};
    %s;
    process::monitor(worker);
    receive {{ ["DOWN", who, why] => {{ print("goes on"); }} }}
}}
process::monitor(spawn fn waits() supervised by {{ strategy stop }});
receive {{ ["DOWN", who, why] => {{ print(why); }} }}
"""
# Those without a result: a program around the example, and what that prints because the example did its work.
SHOWN = {
    "print": ("{};", ["hello"]),
    "assert": ("{}; try {{ assert(2 < 1, 'order'); }} catch AssertionFailed(text) {{ print(text); }}", ["order"]),
    "list::each": ("{};", ["1", "2"]),
    "time::iso": ("let t = {}; print(t.len()); print(t > '2020-01-01T00:00:00Z');", ["20", "true"]),
    "budget::remaining": ("print({}); session budget $1.00 {{ print({}); }}", ["inf", "1"]),
    "budget::limit": ("print({}); session budget $1.00 {{ print({}); }}", ["inf", "1"]),
    "process::sleep": ("let t = time::now(); {}; print(time::now() - t >= 0.001);", ["true"]),
    "process::link": (TIED % "{}", ["a linked process ended: error: Broken: x"]),
    "process::unlink": (TIED % "process::link(worker); {}", ["goes on", "normal"]),
    "process::monitor": (
        "fn f() {{ }} let worker = spawn fn f(); {}; receive {{ down => {{ print(down); }} }}",
        ["[DOWN, <process>, normal]"],
    ),
    "process::register": ("{}; print(process::whereis('boss') == process::self());", ["true"]),
    "trace::span": ("print({});", ["null"]),
    "trace::event": ("print({});", ["null"]),
    "trace::set_attribute": ("print({});", ["null"]),
    "file::write": ("{}; print(file::read('new.txt'));", ["text"]),
    "file::append": ("{}; print(file::read('note.txt'));", ["hi!"]),
    "file::remove": ("{}; print(file::exists('note.txt'));", ["false"]),
}
# Those that need the world outside, or end the program: the error of a program that may do nothing.
ENDS = {
    "exec": "CapabilityDenied: process.exec:pytest -q is denied",
    "http::get": "CapabilityDenied: net.http:example.org:443 is denied",
    "http::post": "CapabilityDenied: net.http:example.org:443 is denied",
    "process::exit": "ProcessExit: done",
}


# Where a function is, by the word of its row.
PLACES: dict[str, tuple[Mapping[str, Any], str]] = {
    "pure": (NATIVES, "a function in FUNCTIONS of strings.py, or in a table of natives.py, in vega/stdlib"),
    "vega": (PRELUDE, "a source in PRELUDE of vega/stdlib/table.py"),
    "effect": (HANDLERS, "a handler in LIBRARY of vega/runtime/library.py"),
}
WITHOUT_A_ROW = {*PRIVATE, "test::mock", *(name for names in METHODS.values() for name in names.values())}
INSTRUCTIONS = {*_SINGLE, *_BUDGET, "process::exit", "Ok", "Err"}  # each has an instruction of its own


def test_each_is_done_where_its_row_says():
    """A function that is not there, and one without a row, are named with their place."""
    rows = {f"{module}::{name}": row.how for module, rows in LIBRARY.items() for name, row in rows.items()}
    rows |= {name: row.how for name, row in GLOBALS.items()}
    gaps = []
    for how, (table, place) in PLACES.items():
        wanted = {name for name, its in rows.items() if its == how}
        missing = sorted(wanted - {*table} - INSTRUCTIONS)
        gaps += [f"{name} is {how!r} in vega/stdlib/table.py: give it {place}" for name in missing]
        unknown = sorted({name for name in table if "::" in name} - wanted - WITHOUT_A_ROW)
        say = f"give it a row that says {how!r} in LIBRARY of vega/stdlib/table.py"
        gaps += [f"{name} is {place}: {say}" for name in unknown]
    assert not gaps, "; ".join(gaps)


def test_each_function_has_one():
    missing, unknown = set(NAMES) - set(EXAMPLES), set(EXAMPLES) - set(NAMES)
    assert not missing, f"without an example in EXAMPLES of verify/reference/vega_examples.py: {sorted(missing)}"
    assert not unknown, f"with an example, and without a row in lyra/vega/stdlib/table.py: {sorted(unknown)}"
    for name, (code, _) in EXAMPLES.items():
        assert name + "(" in code


def test_each_expects_something():
    """A result, or the program that shows what it did: an example that expects nothing would always be true."""
    silent = {name for name, (_, result) in EXAMPLES.items() if not result}
    assert silent == {*SHOWN, *ENDS}


@pytest.mark.parametrize("name", [name for name in NAMES if name in EXAMPLES.keys() - ENDS])
def test_it_gives_what_it_says(name, tmp_path):
    (tmp_path / "note.txt").write_text("hi")
    code, result = EXAMPLES[name]
    around, expected = SHOWN.get(name, ("print({});", [result]))
    lines: list[str] = []
    source = around.replace("'", '"').format(code, code)
    vega.run(source, stdout=lines.append, folder=str(tmp_path), args=["a", "b"])
    assert lines == expected


@pytest.mark.parametrize(
    ("name", "kind", "field", "value"),
    [
        ("trace::span", "trace.span", "name", "review"),
        ("trace::event", "trace.event", "text", "begun"),
        ("trace::set_attribute", "trace.span", "attributes", {"files": 3}),
    ],
)
def test_what_it_traces_is_told(name, kind, field, value):
    events: list[Event] = []

    async def main() -> None:
        async with Kernel() as kernel:
            kernel.on_event(events.append, [kind])
            await vega.run(f'let around = trace::span("around"); {EXAMPLES[name][0]}; around.end();', kernel=kernel)

    asyncio.run(main())
    assert value in [event.data[field] for event in events]


@pytest.mark.parametrize("name", ENDS)
def test_it_ends_as_it_says(name):
    assert vega.check(f"{EXAMPLES[name][0]};") == []
    with pytest.raises(vega.VegaError) as caught:
        vega.run(f'{EXAMPLES[name][0]}; print("after");', stdout=pytest.fail)
    assert str(caught.value).startswith(ENDS[name])
