"""Whatever is in a `.vgb`: it runs, or it is a BytecodeError."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import pytest

import lyra.vega
from lyra.core.ids import make_random
from lyra.errors import BytecodeError
from lyra.vega.bytecode.file import HEAD, content_hash, disassemble, dump, load
from lyra.vega.bytecode.opcodes import OP_CALL, OP_CALL_PURE
from tests.cases import cases
from verify.fuzz.vega_fuzz import PARTS, attempt, mutated_bytes, sealed

COUNT = int(os.environ.get("VEGA_FUZZ") or cases(2000))
SEED = int(os.environ.get("VEGA_SEED", "6"))

SOURCE = (Path(__file__).parents[1] / "everything.vega").read_text()


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
    chance = make_random(SEED)
    for _ in range(cases(300)):
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
    chance = make_random(SEED)
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
    chance = make_random(SEED)
    for number in range(COUNT // 4):
        function = chance.choice([function for function in program.functions if function.code])
        index = chance.randrange(len(function.code))
        old = function.code[index]
        new = list(old)
        new[chance.randrange(4)] = chance.choice([-1, 0, 1, 2, 3, 7, 255, 70_000, chance.randrange(256), 1 << 40])
        function.code[index] = (new[0], new[1], new[2], new[3])
        try:
            ran(dump(program))
        except Exception as error:
            raise AssertionError(f"instruction {number} of seed {SEED}: {old} → {new}: {error!r}") from error
        finally:
            function.code[index] = old


def parts(tree: Any) -> list[tuple[list[Any], int]]:
    """Every place in a tree that something can be put."""
    places, todo = [], [tree]
    while todo:
        node = todo.pop()
        for index, part in enumerate(node):
            places.append((node, index))
            if type(part) is list:
                todo.append(part)
    return places


PURE = next(text for text in PARTS if "fn half" in text)


def test_mutated_trees():
    """What a pure function is generated from, changed place by place: refused, or harmless."""
    chance = make_random(SEED)
    refused = 0
    for number in range(COUNT // 4):
        program = lyra.vega.compile(PURE)
        trees = [function.tree for function in program.functions if function.tree is not None]
        places = [place for tree in trees for place in parts(tree)]
        (node, index), (other, there) = chance.choice(places), chance.choice(places)
        old = node[index]
        node[index] = chance.choice(
            [copy.deepcopy(other[there]), -1, 0, 1, 99, 1 << 40, 1 << 63, "x", "set", None, True, [], [[]], {"a": 1}]
        )
        if chance.random() < 0.2:
            node.append(node[index])
        try:
            refused += not ran(dump(program))
        except Exception as error:
            raise AssertionError(f"tree {number} of seed {SEED}: {old} → {node[index]}: {error!r}") from error
    assert refused > COUNT // 8


def test_a_tree_has_to_keep_its_promise():
    """A pure function has no other parameters than its code, calls what it says, and changes only its own."""
    for change, why in (
        (lambda tree: tree.__setitem__(0, 1), "other parameters"),
        (lambda tree: tree[3].append(0), "other functions"),
        (lambda tree: tree[2].insert(0, ["store", 1, ["constant", 0], ["constant", 0]]), "what its caller sees"),
        (lambda tree: tree[2].insert(0, ["do", ["library", "exec", [["constant", "ls"]]]]), "not pure"),
        (lambda tree: tree[2].insert(0, ["break"]), "leaves a loop"),
        (lambda tree: tree[2].insert(0, ["do", ["slot", 99]]), "no such slot"),
        (lambda tree: tree[2].insert(0, ["do", ["constant", 1 << 63]]), "constant"),
    ):
        program = lyra.vega.compile(PURE)
        tree = next(function.tree for function in program.functions if function.name == "half")
        assert tree is not None
        change(tree)
        with pytest.raises(BytecodeError, match=why):
            load(dump(program))


def test_an_instruction_that_linking_makes_is_refused_in_a_file():
    program = lyra.vega.compile(PURE)
    function = program.functions[program.entry]
    index = next(place for place, row in enumerate(function.code) if row[0] == OP_CALL)
    function.code[index] = (OP_CALL_PURE, *function.code[index][1:])
    with pytest.raises(BytecodeError, match="no instruction 0x47"):
        load(dump(program))
