"""Whatever is in a `.vgb`: it runs, or it is a BytecodeError."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import lyra.vega
from lyra.core.ids import seeded
from lyra.errors import BytecodeError
from lyra.testing.vega_fuzz import attempt, mutated_bytes, sealed
from lyra.vega.bytecode import HEAD, content_hash, dump, load
from lyra.vega.disasm import disassemble

COUNT = int(os.environ.get("VEGA_FUZZ", "2000"))
SEED = int(os.environ.get("VEGA_SEED", "6"))

SOURCE = (Path(__file__).parent / "everything.vega").read_text()


def ran(data: bytes) -> bool:
    """Whether it was let through; anything but a BytecodeError gets through to the test."""
    try:
        attempt(data)
    except BytecodeError:
        return False
    return True


def test_a_file_gives_back_the_program():
    program = lyra.vega.compile(SOURCE, "everything.vega")
    again = load(dump(program))
    assert dump(again) == dump(program)
    assert content_hash(again) == content_hash(program)
    assert "fn #" in disassemble(again)


def test_any_damage_to_a_file_is_found():
    """A file whose bytes were changed does not fit its hash."""
    good = dump(lyra.vega.compile(SOURCE, "everything.vega"))
    chance = seeded(SEED)
    for _ in range(300):
        bad = mutated_bytes(good, chance)
        if bad != good:
            with pytest.raises(BytecodeError):
                load(bad)
    for size in range(0, len(good), 97):
        with pytest.raises(BytecodeError):
            load(good[:size])


def test_mutated_programs_only_ever_raise_bytecode_errors():
    """The same with a hash that fits: the verifier refuses, or what it lets through cannot hurt."""
    body = dump(lyra.vega.compile(SOURCE, "everything.vega"))[HEAD:]
    chance = seeded(SEED)
    passed = 0
    for number in range(COUNT):
        data = sealed(mutated_bytes(body, chance))
        try:
            passed += ran(data)
        except Exception as error:
            raise AssertionError(f"mutation {number} of seed {SEED}: {error!r}") from error
    assert 0 < passed < COUNT


def test_mutated_instructions():
    """Operands and opcodes changed one by one: closer to what a verifier has to see than random bytes."""
    program = lyra.vega.compile(SOURCE, "everything.vega")
    chance = seeded(SEED)
    for number in range(COUNT // 4):
        function = chance.choice([function for function in program.functions if function.code])
        at = chance.randrange(len(function.code))
        old = function.code[at]
        new = list(old)
        new[chance.randrange(4)] = chance.choice([-1, 0, 1, 2, 3, 7, 255, 70_000, chance.randrange(256), 1 << 40])
        function.code[at] = (new[0], new[1], new[2], new[3])
        try:
            ran(dump(program))
        except Exception as error:
            raise AssertionError(f"instruction {number} of seed {SEED}: {old} → {new}: {error!r}") from error
        finally:
            function.code[at] = old
