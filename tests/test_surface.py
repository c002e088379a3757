"""The whole surface has tests: the tables of verify/surface name a test of each entry, and no claim is empty.

`python -m verify surface` writes the page and lists the entries without a test; `make surface` switches every entry off
again and looks whether its test fails. Here a part of them is tried.
"""

from __future__ import annotations

import pytest

from verify.surface import trials
from verify.surface.entries import Entry
from verify.surface.evidence import Usage, fault, usage_of
from verify.surface.page import Surface, read, text

# A ratchet: this count only goes down, to zero.
WITHOUT_A_TEST_MAX = 0
_TRIED = 8  # of the entries; `make surface` tries all


@pytest.fixture(scope="module")
def surface() -> Surface:
    return read()


def test_the_page_has_every_entry_with_its_test(surface: Surface) -> None:
    rows = set(text(surface).splitlines())
    for entry in surface.entries:
        assert f"| `{entry.name}` | `{surface.test_of(entry).removeprefix('tests/')}` |" in rows


def test_every_claimed_test_is_there_and_uses_its_entry(surface: Surface) -> None:
    assert surface.faults() == []


def test_entries_that_no_test_shows_become_fewer(surface: Surface) -> None:
    """A new key, flag, parameter or opcode comes with its test: `python -m verify surface --uses FOLDER` finds it."""
    without = [entry.id for entry in surface.without()]
    assert len(without) <= WITHOUT_A_TEST_MAX, without
    assert len(without) == WITHOUT_A_TEST_MAX, "fewer than the limit: lower it"


def test_entries_that_are_switched_off_are_missed(surface: Surface) -> None:
    chosen = trials.part_of([entry for entry in surface.entries if entry.id in surface.seen], _TRIED)
    outcomes = {entry.id: trials.trial(entry, [surface.seen[entry.id]]).test for entry in chosen}
    assert outcomes == {entry.id: surface.seen[entry.id] for entry in chosen}


THIS = "tests/test_surface.py"


def test_a_claim_that_is_not_true_is_found() -> None:
    """A test that is not there, one that uses something else, one that asserts nothing."""
    verb = Entry("verb", "fs.read", ("fs.read",))
    assert fault(verb, "tests/test_surface.py::test_of_nothing").endswith(
        "there is no test " + f"{THIS}::test_of_nothing"
    )
    assert "does not use it" in fault(
        Entry("verb", "fs.fly", ("fs." + "fly" * 2,)), f"{THIS}::test_a_claim_that_is_not_true_is_found"
    )
    assert fault(verb, f"{THIS}::test_a_claim_that_is_not_true_is_found") == ""


def test_a_parameter_is_used_where_a_call_gives_it() -> None:
    """By name or by position; a helper may hand it on."""
    usage = usage_of(f"{THIS}::test_a_parameter_is_used_where_a_call_gives_it")
    assert isinstance(usage, Usage)
    assert usage.uses(Entry("parameter", "", ("usage_of", "test"), 0))
    assert not usage.uses(Entry("parameter", "", ("usage_of", "alo" + "ne"), None))


def test_a_program_uses_the_opcodes_that_it_is_compiled_to() -> None:
    usage = usage_of("tests/language/values/remainder_has_the_left_sign.vega")
    assert usage is not None
    assert usage.uses(Entry("opcode", "MOD", ("MOD",)))
    assert not usage.uses(Entry("opcode", "SPAWN", ("SPAWN",)))
