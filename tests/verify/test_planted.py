"""Planted bugs: each rule has one, each still fits the code it changes, and all of it is undone."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from verify.planted import (
    Change,
    PlantingError,
    agent_early_calls,
    apply,
    changed,
    planted,
    vega_early_calls,
    vega_generated_code,
)

TABLES: list[tuple[Mapping[str, str], dict[str, tuple[Change, ...]]]] = [
    (vega_early_calls.RULES, vega_early_calls.BUGS),
    (vega_generated_code.GUARDS, vega_generated_code.BUGS),
    (agent_early_calls.RULES, agent_early_calls.BUGS),
]
ROWS = [
    *(pytest.param(changes, id=name) for _, bugs in TABLES for name, changes in bugs.items()),
    pytest.param(agent_early_calls.NO_SILENT_ERRORS, id="no silent errors"),
]


@pytest.mark.parametrize(("rules", "bugs"), TABLES)
def test_each_rule_has_a_bug_that_breaks_it(rules: Mapping[str, str], bugs: Mapping[str, tuple[Change, ...]]):
    assert bugs.keys() == rules.keys()
    assert all(bugs.values())


@pytest.mark.parametrize("changes", ROWS)
def test_each_bug_fits_the_code_and_is_undone(changes: tuple[Change, ...]):
    functions = {apply._function(change) for change in changes}
    before = {function: function.__code__ for function in functions}
    with changed(changes):
        for function, code in before.items():
            assert function.__code__ is not code
            assert (function.__code__.co_code, function.__code__.co_consts) != (code.co_code, code.co_consts)
            assert function.__code__.co_qualname == code.co_qualname
            assert function.__code__.co_filename == code.co_filename
    assert {function: function.__code__ for function in functions} == before


def test_two_bugs_of_one_function_are_planted_together():
    names = ["room", "once", "early", "ordered"]
    function = apply._function(next(c for c in vega_early_calls.BUGS["once"]))
    with planted(vega_early_calls.BUGS, *names):
        both = function.__code__
    with planted(vega_early_calls.BUGS, "once"):
        assert function.__code__.co_code != both.co_code


# ---------------------------------------------------------------- kinds of functions

HERE = __name__


def plain(number: int, add: int = 1) -> int:
    return number + add  # a comment that the comparison does not see


alias = plain


def generator() -> Iterator[int]:
    yield 1


async def coroutine() -> int:
    await asyncio.sleep(0)
    return 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


@contextmanager
def manager() -> Iterator[int]:
    yield 1


def _counter() -> tuple[Any, Any]:
    count = 10

    def more() -> int:
        nonlocal count
        count += 1
        return count

    return more, lambda: count


more, counted = _counter()


def outer() -> int:
    def inner() -> int:
        return 1

    return inner()


def twice() -> int:
    return len("a") + len("a")


class Base:
    def __init__(self) -> None:
        self.__hidden = 1

    def method(self) -> int:
        return 1

    def hidden(self) -> int:
        return self.__hidden

    @property
    def value(self) -> int:
        return 1

    @functools.cached_property
    def cached(self) -> int:
        return 1

    @staticmethod
    def static() -> int:
        return 1

    @classmethod
    def of_class(cls) -> int:
        return 1


class Derived(Base):
    def method(self) -> int:
        return super().method() + 1


async def listed() -> list[int]:
    return [item async for item in async_generator()]


def managed() -> int:
    with manager() as value:
        return value


@pytest.mark.parametrize(
    ("qualname", "fragment", "replacement", "call", "values"),
    [
        ("plain", "number + add", "number - add", lambda: alias(5), (6, 4)),
        ("plain", "return number + add", "number *= 10\nreturn number", lambda: alias(5), (6, 50)),
        ("generator", "1", "2", lambda: [*generator()], ([1], [2])),
        ("generator", "yield 1", "yield from (1, 2)", lambda: [*generator()], ([1], [1, 2])),
        ("coroutine", "return 1", "return 2", lambda: asyncio.run(coroutine()), (1, 2)),
        ("async_generator", "yield 1", "yield 2", lambda: asyncio.run(listed()), ([1], [2])),
        ("manager", "1", "2", managed, (1, 2)),
        ("outer", "1", "2", outer, (1, 2)),
        ("Base.method", "1", "2", lambda: Base().method(), (1, 2)),
        ("Base.hidden", "self.__hidden", "self.__hidden + 1", lambda: Base().hidden(), (1, 2)),
        ("Base.value", "1", "2", lambda: Base().value, (1, 2)),
        ("Base.cached", "1", "2", lambda: Base().cached, (1, 2)),
        ("Base.static", "1", "2", Base.static, (1, 2)),
        ("Base.of_class", "1", "2", Base.of_class, (1, 2)),
        ("Derived.method", "super().method() + 1", "super().method() + 2", lambda: Derived().method(), (2, 3)),
        ("Derived.method", "super().method() + 1", "5", lambda: Derived().method(), (2, 5)),
    ],
)
def test_each_kind_of_function_can_be_changed(
    qualname: str, fragment: str, replacement: str, call: Any, values: tuple[Any, Any]
):
    """Under all its names, and as it was afterwards."""
    before, meanwhile = values
    assert call() == before
    with changed([Change(HERE, qualname, fragment, replacement)]):
        assert call() == meanwhile
    assert call() == before


def test_free_variables_stay():
    assert (more(), counted()) == (11, 11)
    with changed([Change(HERE, "more", "count += 1", "count += 100")]):
        assert (more(), counted()) == (111, 111)
    with changed([Change(HERE, "more", "return count", "return 0"), Change(HERE, "more", "count += 1", "pass")]):
        assert (more(), counted()) == (0, 111)
    assert (more(), counted()) == (112, 112)


def test_an_error_in_the_block_undoes_the_change():
    with pytest.raises(ZeroDivisionError), changed([Change(HERE, "plain", "number + add", "number / 0")]):
        plain(1)
    assert plain(1) == 2


# ---------------------------------------------------------------- what does not fit is an error


@pytest.mark.parametrize(
    ("qualname", "fragment", "replacement", "message"),
    [
        ("plain", "number * add", "0", "0 times"),
        ("twice", "len('a')", "0", "2 times"),
        ("gone", "1", "2", "there is no"),
        ("Base.gone", "1", "2", "there is no"),
        ("Base", "1", "2", "no function"),
        ("contextmanager", "1", "2", "no function of that module"),
        ("plain", "number\nadd", "2", "one expression or one statement"),
        ("plain", "number + add", "return 2", "replaced by an expression"),
        ("generator", "yield 1", "None", "another kind of function"),
    ],
)
def test_a_change_that_does_not_fit_is_refused(qualname: str, fragment: str, replacement: str, message: str):
    code = plain.__code__
    changes = [Change(HERE, "plain", "number", "0"), Change(HERE, qualname, fragment, replacement)]
    with pytest.raises(PlantingError, match=message), changed(changes):
        raise AssertionError("the block is not entered")
    assert plain.__code__ is code


def test_a_function_is_changed_by_one_block_at_a_time():
    with (
        changed([Change(HERE, "plain", "number + add", "7")]),
        pytest.raises(PlantingError, match="changed already"),
        changed([Change(HERE, "plain", "number", "0")]),
    ):
        raise AssertionError("the block is not entered")
    assert plain(1) == 2


def test_places_in_the_source_stay():
    """Traces of a changed function show the lines of the file."""
    line = plain.__code__.co_firstlineno
    with changed([Change(HERE, "plain", "number + add", "number / 0")]), pytest.raises(ZeroDivisionError) as caught:
        plain(1)
    assert caught.traceback[-1].lineno + 1 == line + 1
