"""Declaring effects: what may be said, at the function or at the call, and what is refused."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable
from typing import Any

import pytest

from lyra.core.budgets.budget import Usage
from lyra.core.effect import OPTIONS, Charged, Effect, effect, make_typed_decoder
from lyra.core.ids import Entropy
from lyra.core.rights.capability import Capability
from lyra.errors import ConfigError


async def act(number: int = 1) -> int:
    return number


async def _await(waiting):
    return await waiting


def test_a_plain_function_declares_nothing():
    """Name from module and function, nothing needed, nothing reserved, not idempotent."""
    plain = Effect.of(act)
    assert plain.name == f"{__name__}:act"
    assert (plain.idempotent, plain.needy, plain.cost_data, plain.gated, plain.plain) == (
        False,
        False,
        None,
        False,
        True,
    )
    assert repr(plain) == f"<Effect {plain.name}>"
    assert asyncio.run(_await(plain(7))) == 7
    assert Effect.of(plain) is plain


def test_declared_at_the_function_and_changed_at_the_call():
    """A call's options replace the declaration's; the rest stays."""
    declared = effect(act, cost="$0.02", needs=["fs.read:/a"], retry=3, timeout_s=5, name="read")
    changed = Effect.of(declared, cost="$0.05", idempotent=True)
    assert (changed.name, changed.idempotent, changed.cost.usd) == ("read", True, 50_000)
    assert changed.retry == declared.retry
    assert changed.timeout_s == 5
    assert list(changed.needs_for((), {})) == [Capability.parse("fs.read:/a")]
    assert declared.cost.usd == 20_000
    assert not declared.plain


def test_the_decorator_has_two_forms():
    """`@effect` and `@effect(…)` both give an Effect."""

    @effect
    async def bare() -> None: ...

    @effect(idempotent=True)
    async def full() -> None: ...

    assert isinstance(bare, Effect)
    assert isinstance(full, Effect)
    assert full.idempotent


def test_partials_and_callables_have_names_and_types():
    """functools.partial and callable objects are functions too."""
    half = Effect.of(functools.partial(act, 3))
    assert half.name == f"{__name__}:act"
    assert asyncio.run(_await(half())) == 3

    class Tool:
        async def __call__(self, idempotency_key: str) -> str:
            return idempotency_key

    assert Effect.of(Tool()).takes_key


def test_keywords_are_split():
    """Option words are the door's, the rest is the function's."""
    assert Effect.split({"cost": "$1", "page": 2}) == ({"cost": "$1"}, {"page": 2})
    assert Effect.split({"cost": "$1"}) == ({"cost": "$1"}, {})
    assert set(OPTIONS) >= {"idempotent", "needs", "cost", "retry", "timeout_s", "policy"}


@pytest.mark.parametrize(
    "options",
    [{"needs": 5}, {"cost": 0.5}, {"idempotent": 1}, {"retry": "often"}, {"timeout_s": -1}, {"rate_limit": {}}],
)
def test_wrong_declarations_are_refused(options):
    """A declaration that makes no sense is a ConfigError where it is made."""
    with pytest.raises(ConfigError):
        Effect(act, **options)


def test_what_is_no_function_is_refused():
    """Only something that can be called can be performed."""
    with pytest.raises(ConfigError):
        Effect.of(5)
    with pytest.raises(ConfigError):
        Effect.of(Effect.of(act), bananas=1)


def test_needs_may_be_a_function():
    """Capabilities worked out from the arguments are parsed like any other."""
    reading = Effect(act, needs=lambda number: (f"fs.read:/{number}",))
    assert [str(need) for need in reading.needs_for((4,), {})] == ["fs.read:/4"]


def test_results_are_read_as_declared_or_plain():
    """A saved value that does not fit the annotation comes back plain, never as an error."""
    assert make_typed_decoder(dict[str, int])(b"\x81\xa1a\x01") == {"a": 1}
    assert make_typed_decoder(dict[str, int])(b"\x91\x05") == [5]
    assert make_typed_decoder(int)(b"\x05") == 5

    async def odd() -> Undefined:  # type: ignore[name-defined]  # noqa: F821 - cannot be looked up
        ...

    assert Effect.of(odd).decode(b"\x05") == 5


def test_charged_takes_what_usage_takes():
    """A charge may be given as money, a mapping or nothing."""
    assert Charged(1, "$0.01").usage == Usage(usd="$0.01")
    assert Charged(1, {"input_tokens": 3}).usage == Usage(input_tokens=3)
    assert not Charged(1, None).usage


def test_entropy():
    """A seeded source repeats itself and makes no secrets; the real one does neither."""
    assert Entropy(5).text(12) == Entropy(5).text(12)
    assert Entropy(5).id("x").startswith("x-")
    with pytest.raises(RuntimeError):
        Entropy(5).token()
    assert len(Entropy().token()) == 64
    assert Entropy().token() != Entropy().token()


@pytest.mark.parametrize("name", [5, b"x", ["x"], "\ud800"])
def test_a_name_that_no_journal_can_hold_is_refused(name):
    """A store with such a row would not open again."""

    async def act() -> int:
        return 1

    with pytest.raises(ConfigError, match="an effect's name"):
        Effect(act, name=name)


def test_a_plain_function_is_refused_when_it_is_declared():
    """Not when it has run: with and without options, as a method, in a partial, as a generator, and behind `wraps`."""
    ran = []

    def plain(number: int) -> int:
        ran.append(number)
        return number

    class Service:
        def charge(self, number: int) -> int:
            return plain(number)

    def numbers():
        yield 1

    @functools.wraps(plain)
    def wrapped(*args: Any) -> Any:
        return plain(*args)

    functions: tuple[Any, ...] = (plain, Service().charge, functools.partial(plain, 1), numbers, wrapped)
    for function in functions:
        for declare in (effect, effect(idempotent=True), Effect):
            with pytest.raises(ConfigError, match="not an async function") as refused:
                declare(function)
            assert "async def" in str(refused.value.hint)
    assert not ran


def test_what_gives_an_awaitable_is_an_effect():
    """An async function behind a plain wrapper, a plain one that says it, a lambda, and an object that is called."""

    async def pay(number: int) -> int:
        return number

    @functools.wraps(pay)
    def wrapped(*args: Any) -> Any:
        return pay(*args)

    def said(number: int) -> Awaitable[int]:
        return pay(number)

    class Paying:
        async def __call__(self, number: int) -> int:
            return number

    for function in (pay, wrapped, said, functools.partial(pay), lambda number: pay(number + 0), Paying()):
        assert asyncio.run(_called(Effect(function, name="pay"))) == 1


async def _called(declared: Effect[Any, int]) -> int:
    return await declared(1)
