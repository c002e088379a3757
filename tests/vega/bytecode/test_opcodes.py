"""The one table of opcodes, and everything that repeats a number from it."""

from __future__ import annotations

import re
from pathlib import Path

from lyra.vega.bytecode import opcodes
from lyra.vega.machine import rare_instructions as machinery
from lyra.vega.machine import vm

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


def test_the_machine_agrees_with_the_table():
    """A numeral in the VM's loop has its opcode's name beside it, and no opcode is left out."""
    source = Path(vm.__file__).read_text()
    found = dict(re.findall(r"op == 0x([0-9A-F]{2}):  # ([A-Z_]+)$", source, re.MULTILINE))
    found |= {"41": "CALL_VALUE", "46": "METHOD", "38": "LOOP_IF"}  # these share their branches
    for number, name in found.items():
        assert opcodes.OPCODES[int(number, 16)].name == name
    done = {int(number, 16) for number in found} | set(machinery._RARE)
    assert done == set(opcodes.OPCODES) - {opcodes.OP_HALT}
