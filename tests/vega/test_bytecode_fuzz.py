"""Whatever is in a `.vgb`: it runs, or it is a BytecodeError."""

from __future__ import annotations

import hashlib
import os
import random
from pathlib import Path

import pytest

import lyra.vega
from lyra.errors import BytecodeError
from lyra.vega.bytecode import _HEAD, MAGIC, VERSION, content_hash, dump, load
from lyra.vega.disasm import disassemble
from lyra.vega.fiber import Fiber, OutOfFuel, VmEffect
from lyra.vega.link import link
from lyra.vega.vm import run

COUNT = int(os.environ.get("VEGA_FUZZ", "2000"))
SEED = int(os.environ.get("VEGA_SEED", "6"))

SOURCE = (Path(__file__).parent / "everything.vega").read_text()


def mutated(body: bytes, chance: random.Random) -> bytes:
    """Some bytes changed, cut, repeated or put in."""
    data = bytearray(body)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data))
        kind = chance.randrange(5)
        if kind == 0:
            data[at] = chance.randrange(256)
        elif kind == 1:
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 2:
            del data[at : at + chance.randint(1, 8)]
        elif kind == 3:
            data[at:at] = bytes(chance.randrange(256) for _ in range(chance.randint(1, 8)))
        else:
            piece = data[at : at + chance.randint(1, 32)]
            to = chance.randrange(len(data))
            data[to : to + len(piece)] = piece
        if not data:
            data = bytearray(b"\x00")
    return bytes(data)


def sealed(body: bytes) -> bytes:
    """A file whose hash fits, so that the damage is only found by looking at it."""
    return MAGIC + VERSION.to_bytes(2, "big") + hashlib.sha256(body).digest() + body


def attempt(data: bytes) -> bool:
    """Load, list and run for a bounded time; anything but a BytecodeError gets through to the test."""
    try:
        program = load(data)
    except BytecodeError:
        return False
    disassemble(program)
    fiber = Fiber.start(link(program))
    for _ in range(50):
        result = run(fiber, 5_000)
        if isinstance(result, OutOfFuel):
            continue
        if not isinstance(result, VmEffect):
            break
        if result.kind == "receive":
            fiber.expire()
        else:
            fiber.resume(None)
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
    chance = random.Random(SEED)
    for _ in range(300):
        bad = mutated(good, chance)
        if bad != good:
            with pytest.raises(BytecodeError):
                load(bad)
    for size in range(0, len(good), 97):
        with pytest.raises(BytecodeError):
            load(good[:size])


def test_mutated_programs_only_ever_raise_bytecode_errors():
    """The same with a hash that fits: the verifier refuses, or what it lets through cannot hurt."""
    body = dump(lyra.vega.compile(SOURCE, "everything.vega"))[_HEAD:]
    chance = random.Random(SEED)
    ran = 0
    for number in range(COUNT):
        data = sealed(mutated(body, chance))
        try:
            ran += attempt(data)
        except Exception as error:
            raise AssertionError(f"mutation {number} of seed {SEED}: {error!r}") from error
    assert 0 < ran < COUNT


def test_mutated_instructions():
    """Operands and opcodes changed one by one: closer to what a verifier has to see than random bytes."""
    program = lyra.vega.compile(SOURCE, "everything.vega")
    chance = random.Random(SEED)
    for number in range(COUNT // 4):
        function = chance.choice([function for function in program.functions if function.code])
        at = chance.randrange(len(function.code))
        old = function.code[at]
        new = list(old)
        new[chance.randrange(4)] = chance.choice([-1, 0, 1, 2, 3, 7, 255, 70_000, chance.randrange(256), 1 << 40])
        function.code[at] = (new[0], new[1], new[2], new[3])
        try:
            attempt(dump(program))
        except Exception as error:
            raise AssertionError(f"instruction {number} of seed {SEED}: {old} → {new}: {error!r}") from error
        finally:
            function.code[at] = old
