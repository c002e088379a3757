"""The one table of opcodes, and everything that repeats a number from it."""

from __future__ import annotations

import re

from lyra.vega.bytecode import opcodes
from lyra.vega.machine import generate_vm, rare_instructions

# The language specification's own numbers.
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
    """Document 001 gives 0x90–0xC2; they can be read as constants and from the table."""
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
    assert generate_vm.TARGET.read_text() == generate_vm.generated()


def test_the_machine_knows_every_opcode():
    """Each opcode has a branch in the template of the loop or a row in the table of rare instructions, and no other
    numeral is compared with an opcode."""
    template = generate_vm.TEMPLATE.read_text()
    branches = {f"OP_{name}" for name in re.findall(r"op == OP_([A-Z_]+)", template)} | {"OP_LOOP_IF"}
    in_loop = {getattr(opcodes, name) for name in branches}
    assert in_loop | set(rare_instructions._RARE) == set(opcodes.OPCODES) - {opcodes.OP_HALT}
    assert not in_loop & set(rare_instructions._RARE)
    assert not re.findall(r"op [<>=]+ \d", template)


def test_the_generated_machine_has_the_numbers_of_the_table():
    """Each comparison in the loop has its opcode's name beside it."""
    pairs = re.findall(r"op == 0x([0-9A-F]{2}):  # ([A-Z_]+)$", generate_vm.TARGET.read_text(), re.MULTILINE)
    assert len(pairs) > 60
    for number, name in pairs:
        assert opcodes.OPCODES[int(number, 16)].name == name
