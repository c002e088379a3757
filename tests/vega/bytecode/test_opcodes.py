"""The one table of opcodes, and everything that repeats a number from it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lyra.vega
import lyra.vega.compiler
from codegen import vega_machine
from lyra import vega
from lyra.errors import BytecodeError
from lyra.vega.bytecode import opcodes
from lyra.vega.bytecode.file import dump, load
from lyra.vega.machine import rare_instructions

# The numbers of tests/vega/documents/001.md.
SPECIFIED = {
    "SPAWN_SUPERVISED": 0x90,
    "LINK": 0x91,
    "MONITOR": 0x92,
    "EXIT": 0x93,
    "SEND_STREAM": 0xA0,
    "STREAM_NEXT": 0xA1,
    "STREAM_DONE": 0xA2,
    "BUDGET_ENTER": 0xB0,
    "BUDGET_EXIT": 0xB1,
    "BUDGET_CHECK": 0xB2,
    "BUDGET_RESERVE": 0xB3,
    "PAR_BEGIN": 0xC0,
    "PAR_SPAWN": 0xC1,
    "PAR_JOIN": 0xC2,
}


def test_the_numbers_of_the_specification():
    """tests/vega/documents/001.md gives 0x90–0xC2; they can be read as constants and from the table."""
    for name, number in SPECIFIED.items():
        assert opcodes.BY_NAME[name].number == number
        assert getattr(opcodes, f"OP_{name}") == number
    assert {row.name for row in opcodes.OPCODES.values() if 0x90 <= row.number <= 0xCF} == set(SPECIFIED)


def test_every_row_has_its_constant():
    for row in opcodes.OPCODES.values():
        assert getattr(opcodes, f"OP_{row.name}") == row.number
        assert row.text


def test_the_machine_is_generated_from_its_template_and_the_table():
    """`vm.py` is what the generator writes: a changed opcode or template without a new `vm.py` fails here."""
    assert vega_machine.TARGET.read_text() == vega_machine.generated()


def test_the_machine_knows_every_opcode():
    """Each opcode has a branch in the template of the loop or a row in the table of rare instructions, and no other
    numeral is compared with an opcode."""
    template = vega_machine.TEMPLATE.read_text()
    branches = {f"OP_{name}" for name in re.findall(r"op == OP_([A-Z_]+)", template)} | {"OP_LOOP_IF"}
    in_loop = {getattr(opcodes, name) for name in branches}
    assert in_loop | set(rare_instructions._RARE) == set(opcodes.OPCODES) - {opcodes.OP_HALT}
    assert not in_loop & set(rare_instructions._RARE)
    assert not re.findall(r"op [<>=]+ \d", template)


def test_the_generated_machine_has_the_numbers_of_the_table():
    """Each comparison in the loop has its opcode's name beside it."""
    pairs = re.findall(r"op == 0x([0-9A-F]{2}):  # ([A-Z_]+)$", vega_machine.TARGET.read_text(), re.MULTILINE)
    assert len(pairs) > 60
    for number, name in pairs:
        assert opcodes.OPCODES[int(number, 16)].name == name


def _printed(source: str, name: str) -> list[str]:
    """What a program prints, loaded from a file in which an opcode stands for the first line that it writes."""
    program = lyra.vega.compile(source)
    rows = next(
        function.code for function in program.functions if any(row[0] == opcodes.OP_PRINT for row in function.code)
    )
    index = next(place for place, row in enumerate(rows) if row[0] == opcodes.OP_PRINT)
    row = opcodes.BY_NAME[name]
    rows[index] = (row.number, rows[index][1] if row.a == "from" else 0, 0, 0)
    lines: list[str] = []
    lyra.vega.run(load(dump(program)), stdout=lines.append, stderr=lambda _: None)
    return lines


def test_nop_does_nothing_and_goes_on():
    """`NOP`, which the compiler does not write."""
    assert _printed('print("first"); print("after");', "NOP") == ["after"]


def test_an_amount_is_set_aside_where_the_budget_has_room_for_it():
    """`BUDGET_RESERVE`, which the compiler does not write: without a budget, and within one, there is room."""
    assert _printed('print($0.01); print("after");', "BUDGET_RESERVE") == ["after"]
    scope = 'session budget $0.02 { print($AMOUNT); print("after"); }'
    assert _printed(scope.replace("AMOUNT", "0.01"), "BUDGET_RESERVE") == ["after"]
    with pytest.raises(lyra.vega.VegaError, match="is left, and") as caught:
        _printed(scope.replace("AMOUNT", "0.03"), "BUDGET_RESERVE")
    assert caught.value.fields["name"] == "BudgetExceeded"


def test_halt_is_refused_in_a_file():
    """`HALT` is a number that is kept free: no program may hold it."""
    with pytest.raises(BytecodeError, match="no instruction 0xff"):
        _printed('print("first");', "HALT")


def test_a_reserved_opcode_is_not_emitted():
    """The table calls BUDGET_RESERVE reserved: no part of the compiler names it, and a program with budgets, calls and
    reservations of all kinds has none."""
    reserved = {row.name: row.number for row in opcodes.OPCODES.values() if row.text.startswith("reserved")}
    assert reserved == {"BUDGET_RESERVE": 0xB3}
    folder = Path(str(lyra.vega.compiler.__file__)).parent
    assert [file.name for file in folder.rglob("*.py") if "BUDGET_RESERVE" in file.read_text()] == []
    everything = Path(__file__).parents[1] / "everything.vega"
    program = vega.compile(everything.read_text(), load=lambda _name, _place: None)
    emitted = {instruction[0] for function in program.functions for instruction in function.code}
    assert opcodes.OP_BUDGET_ENTER in emitted
    assert opcodes.OP_BUDGET_RESERVE not in emitted
