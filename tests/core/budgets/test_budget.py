"""Budgets: never over a limit in any scope, exact at every moment, whatever the interleaving."""

from __future__ import annotations

import timeit
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from lyra.core.budgets.budget import DIMENSIONS, NOTHING, Budget, Reservation, Usage
from lyra.core.budgets.money import Money
from lyra.errors import BudgetExceeded, ConfigError, InternalError
from tests.cases import cases
from verify.load import races

quick = settings(derandomize=True, deadline=None, max_examples=cases(150))

usages = st.dictionaries(st.sampled_from(DIMENSIONS), st.integers(0, 30), max_size=3).map(lambda data: Usage(**data))
limits = st.dictionaries(st.sampled_from(DIMENSIONS), st.integers(0, 60), max_size=3)


# ---------------------------------------------------------------- usage
def test_a_usage_is_made_from_what_people_write():
    """None, text, money, a whole number of micro-dollars, a mapping and a Usage all say what something costs."""
    assert Usage.of(None) is NOTHING
    assert Usage.of("$0.01") == Usage.of(Money(10_000)) == Usage.of(10_000) == Usage(usd="0.01")
    assert Usage.of({"usd": "$1", "llm_calls": 2}) == Usage(usd=1_000_000, llm_calls=2)
    assert Usage.of(NOTHING) is NOTHING
    assert Usage(usd="$1").usd == Money(1_000_000)
    assert (Usage(usd="$1", hops=1).micro_usd, Usage(hops=3).micro_usd) == (1_000_000, 0)
    assert Usage(hops=3)["hops"] == 3
    assert Usage(hops=3)["usd"] == 0
    assert not Usage(usd="$0.00")
    assert Usage(usd=1, hops=0).items == ((0, 1),)
    assert repr(Usage(usd="$0.5", hops=1)) == "Usage(usd=$0.50, hops=1)"
    assert Usage() != 0


@quick
@given(usages, usages)
def test_usages_add_and_survive_being_saved(left, right):
    """`+` adds each dimension, nothing is the neutral element, and from_data ∘ to_data is the identity."""
    total = left + right
    assert all(total[name] == left[name] + right[name] for name in DIMENSIONS)
    assert total == right + left
    assert hash(total) == hash(right + left)
    assert left + NOTHING == left
    assert Usage.from_data(total.to_data()) == total
    assert all(amount for _, amount in total.items)


@pytest.mark.parametrize(
    "wrong", [{"usd": -1}, {"hops": 1.5}, {"hops": True}, {"hop": 1}, 0.5, [], {"llm_calls": -1}, {"hops": 2**63}]
)
def test_a_wrong_usage_is_a_config_error(wrong):
    """Negative, fractional and unknown amounts are refused."""
    with pytest.raises(ConfigError):
        Usage.of(wrong)


def test_plain_data_must_be_a_mapping():
    """Saved data from anywhere is checked on the way in."""
    for read in (Usage.from_data, Budget.from_data):
        with pytest.raises(ConfigError):
            read("x")


# ---------------------------------------------------------------- limits
def test_a_budget_is_made_from_what_people_write():
    """None is without limit; money, text, a number, a mapping and a Budget say how much."""
    assert Budget.of(None).remaining() is None
    assert Budget.of("$0.50").remaining() == Money(500_000)
    assert Budget.of(Money(5)).limit() == Budget.of("$0.000005").limit() == 5
    budget = Budget.of({"usd": "$1", "llm_calls": 3, "seconds": 60, "on_exceed": "warn", "name": "trip"})
    assert (budget.limit("llm_calls"), budget.seconds, budget.on_exceed, budget.name) == (3, 60.0, "warn", "trip")
    assert Budget.of(budget) is budget
    assert type(Budget.of("$1").remaining("usd")) is Money
    assert type(Budget(hops=1).remaining("hops")) is int


@pytest.mark.parametrize(
    "wrong",
    [
        {"usd": 0.5},
        {"usd": -1},
        {"dollars": 1},
        {"seconds": 0},
        {"seconds": "1"},
        {"on_exceed": "blok"},
        {"name": "x" * 201},
        {"name": 5},
        {"llm_calls": "3"},
        0.1,
    ],
)
def test_a_wrong_budget_is_a_config_error(wrong):
    """Floats, unknown keys and words are refused where they are written."""
    with pytest.raises(ConfigError):
        Budget.of(wrong)
    with pytest.raises(ConfigError):
        Budget().child(wrong)


def test_an_unknown_dimension_is_a_config_error():
    """Asking for `token` says which dimensions there are."""
    with pytest.raises(ConfigError, match="input_tokens"):
        Budget().remaining("token")


def test_the_limit_itself_may_be_spent_and_one_more_may_not():
    """`used + reserved + asked <= limit`, to the micro-dollar."""
    budget = Budget.of(Money(100))
    held = budget.reserve(Usage(usd=100))
    assert budget.remaining() == 0
    with pytest.raises(BudgetExceeded):
        budget.reserve(Usage(usd=1))
    budget.settle(held)
    with pytest.raises(BudgetExceeded):
        budget.reserve(Usage(usd=1))
    budget.reserve(Usage(hops=5))


def test_a_refusal_says_everything_and_changes_nothing():
    """BudgetExceeded names the scope, the dimension and the figures; no scope holds anything of it."""
    root = Budget.of({"usd": "$1", "name": "session"})
    child = root.child({"llm_calls": 1, "name": "agent"})
    child.settle(child.reserve(Usage(usd="$0.40")))
    child.reserve(Usage(usd="$0.10"))
    with pytest.raises(BudgetExceeded) as caught:
        child.reserve(Usage(usd="$0.60", llm_calls=1))
    error = caught.value
    assert error.fields == {
        "scope": "session",
        "dimension": "usd",
        "limit": 1_000_000,
        "used": 400_000,
        "reserved": 100_000,
        "asked": 600_000,
        "remaining": 500_000,
    }
    assert "'session' has $0.50 of $1.00 usd left, and $0.60 was asked for" in str(error)
    assert child.remaining("llm_calls") == 1
    assert child.reserved() == root.reserved() == Money(100_000)


def test_a_childs_limit_is_never_larger_than_its_parents():
    """Limits are clamped to the scope above, also through a scope without limits of its own."""
    root = Budget(usd=100, seconds=10)
    middle = root.child()
    child = middle.child(usd=500, hops=7, seconds=99)
    assert child.limit() == 100
    assert child.limit("hops") == 7
    assert child.limit("llm_calls") is None
    assert (middle.seconds, child.seconds, root.child(seconds=3).seconds) == (10.0, 10.0, 3.0)
    assert root.child(Budget(usd=30, name="kept")).limit() == 30
    assert root.child("$0.00001").limit() == 10


def test_remaining_is_the_least_of_all_scopes():
    """What a sibling spent is missing here too, and nothing ever reads below zero."""
    root = Budget(usd=100)
    left, right = root.child(usd=80), root.child(usd=80)
    left.settle(left.reserve(Usage(usd=70)))
    assert (left.remaining(), right.remaining(), root.remaining()) == (10, 30, 30)
    right.charge(Usage(usd=500))
    assert (left.remaining(), right.remaining(), root.remaining()) == (0, 0, 0)
    assert right.used() == Money(500)
    assert root.used() == Money(570)
    assert root.usage == Usage(usd=570)


# ---------------------------------------------------------------- settling
def test_what_was_reserved_too_much_is_free_again():
    """Settling with less gives the rest back at once; releasing gives everything back."""
    budget = Budget(usd=100).child(usd=50)
    held = budget.reserve(Usage(usd=50))
    assert budget.settle(held, Usage(usd=20)) is NOTHING
    assert (budget.used(), budget.remaining()) == (20, 30)
    budget.release(budget.reserve(Usage(usd=30)))
    assert (budget.used(), budget.remaining(), budget.reserved()) == (20, 30, 0)


def test_an_overrun_is_recorded_truthfully_and_returned():
    """Money that is gone is counted, though it was not reserved; the caller learns how much."""
    budget = Budget(usd=100)
    held = budget.reserve(Usage(usd=90, llm_calls=1))
    over = budget.settle(held, Usage(usd=150, hops=2))
    assert over == Usage(usd=60, hops=2)
    assert (budget.used(), budget.remaining(), budget.used("llm_calls")) == (150, 0, 0)
    assert not budget.within()


def test_settling_twice_or_elsewhere_is_a_bug_of_the_caller():
    """A reservation ends once, in the scope that made it."""
    budget = Budget(usd=100)
    held = budget.reserve(Usage(usd=1))
    with pytest.raises(InternalError):
        budget.child().settle(held)
    budget.settle(held)
    for again in (budget.settle, budget.release):
        with pytest.raises(InternalError):
            again(held)
    empty = budget.reserve(NOTHING)
    budget.settle(empty)
    with pytest.raises(InternalError):
        budget.settle(empty)
    assert budget.used() == 1


def test_a_reservation_of_nothing_may_still_turn_out_to_cost():
    """An effect with no estimate that reports a cost is charged for it."""
    budget = Budget(usd=100)
    assert budget.settle(budget.reserve(NOTHING), Usage(usd=5)) == Usage(usd=5)
    assert budget.used() == 5


# ---------------------------------------------------------------- on_exceed
def test_warn_lets_through_and_says_so():
    """Over a `warn` limit the act happens and the reservation carries the facts."""
    budget = Budget(usd=10, on_exceed="warn", name="soft")
    assert budget.reserve(Usage(usd=10)).over == ()
    (excess,) = budget.reserve(Usage(usd=5)).over
    assert excess.to_data() == {
        "scope": "soft",
        "dimension": "usd",
        "limit": 10,
        "used": 0,
        "reserved": 10,
        "asked": 5,
    }
    assert budget.child().reserve(Usage(usd=1)).over[0].scope == "soft"


def test_allow_lets_through_silently():
    """Over an `allow` limit nothing is said, and the figures are still true."""
    budget = Budget(usd=10, on_exceed="allow")
    assert budget.reserve(Usage(usd=50)).over == ()
    assert budget.reserved() == 50
    assert budget.remaining() == 0


@pytest.mark.parametrize("mode", ["warn", "allow"])
def test_a_blocking_scope_above_still_blocks(mode):
    """A lenient child cannot spend its strict parent's money."""
    child = Budget(usd=10).child(usd=5, on_exceed=mode)
    child.reserve(Usage(usd=8))
    with pytest.raises(BudgetExceeded):
        child.reserve(Usage(usd=3))
    assert child.reserved() == 8


# ---------------------------------------------------------------- saving, deadlines
@quick
@given(limits, usages, st.sampled_from(["block", "warn", "allow"]), st.none() | st.integers(1, 99))
def test_a_budget_survives_being_saved(data, used, mode, seconds):
    """Limits and spending come back; the parent is not charged a second time."""
    budget = Budget(**data, on_exceed=mode, seconds=seconds, name="n")
    budget.charge(used)
    budget.reserve(NOTHING)
    parent = Budget()
    again = Budget.from_data(budget.to_data(), parent=parent)
    assert again.to_data() == budget.to_data()
    assert repr(again) == repr(budget)
    assert [again.remaining(name) for name in DIMENSIONS] == [budget.remaining(name) for name in DIMENSIONS]
    assert not parent.usage
    assert Budget(hops=1).to_data() == {"limits": {"hops": 1}}


@pytest.mark.parametrize("wrong", [None, [], {"limit": {}}, {"limits": {"x": 1}}, {"used": {"x": 1}}, {"used": 5}])
def test_wrong_saved_data_is_a_config_error(wrong):
    """A damaged row is an error with a sentence, not a budget without limits."""
    with pytest.raises(ConfigError):
        Budget.from_data(wrong)


def test_seconds_are_a_deadline():
    """`deadline(started_at)` is the moment to stop, or None."""
    assert Budget(seconds=30).deadline(100.0) == 130.0
    assert Budget().deadline(100.0) is None


# ---------------------------------------------------------------- all of it at once
class Scopes(RuleBasedStateMachine):
    """Random trees of blocking scopes against a model that adds up by hand."""

    scopes = Bundle("scopes")
    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.known: list[tuple[Budget, int | None]] = []
        self.used: list[dict[str, int]] = []
        self.reserved: list[dict[str, int]] = []

    def _add(self, budget: Budget, parent: int | None) -> int:
        self.known.append((budget, parent))
        self.used.append(dict.fromkeys(DIMENSIONS, 0))
        self.reserved.append(dict.fromkeys(DIMENSIONS, 0))
        return len(self.known) - 1

    def _chain(self, place: int | None) -> list[int]:
        chain = []
        while place is not None:
            chain.append(place)
            place = self.known[place][1]
        return chain

    @rule(target=scopes, limits=limits)
    def root(self, limits: dict[str, Any]) -> int:
        return self._add(Budget(**limits), None)

    @rule(target=scopes, parent=scopes, limits=limits)
    def child(self, parent: int, limits: dict[str, Any]) -> int:
        return self._add(self.known[parent][0].child(**limits), parent)

    @rule(target=held, place=scopes, usage=usages)
    def reserve(self, place: int, usage: Usage) -> Any:
        chain = self._chain(place)
        fits = all(
            (limit := self.known[scope][0].limit(name)) is None
            or self.used[scope][name] + self.reserved[scope][name] + usage[name] <= limit
            for scope in chain
            for name in DIMENSIONS
            if usage[name]
        )
        try:
            reservation = self.known[place][0].reserve(usage)
        except BudgetExceeded:
            assert not fits
            return None
        assert fits
        for scope in chain:
            for name in DIMENSIONS:
                self.reserved[scope][name] += usage[name]
        return (place, usage, reservation)

    @rule(pair=consumes(held), part=st.integers(0, 4))
    def finish(self, pair: Any, part: int) -> None:
        if pair is None:
            return
        place, usage, reservation = pair
        actual = Usage(**{name: usage[name] * part // 4 for name in DIMENSIONS})
        self.known[place][0].settle(reservation, None if part == 4 else actual)
        for scope in self._chain(place):
            for name in DIMENSIONS:
                self.reserved[scope][name] -= usage[name]
                self.used[scope][name] += actual[name]

    @precondition(lambda self: self.known)
    @invariant()
    def exact_and_within(self) -> None:
        for place, (budget, _) in enumerate(self.known):
            assert budget.within()
            for name in DIMENSIONS:
                assert budget.used(name) == self.used[place][name]
                assert budget.reserved(name) == self.reserved[place][name]


TestScopes = Scopes.TestCase
TestScopes.settings = settings(derandomize=True, deadline=None, max_examples=cases(40), stateful_step_count=25)


SCHEDULES = cases(500)


def test_sixty_four_spenders_never_pass_a_limit_by_one_micro_dollar():
    """Seeded schedules over nested budgets: no scope is ever over, and at the end every cent is accounted for."""
    result = races.run(SCHEDULES, seed=1)
    assert result.schedules == SCHEDULES
    assert result.failures == []


def test_the_race_notices_a_budget_that_forgets(monkeypatch):
    """The race is worth something: with a reserve that checks nothing it reports failures, with their seeds."""

    def careless(self, usage):
        self.charge(usage)
        return Reservation(self, 0)

    monkeypatch.setattr(Budget, "reserve", careless)
    assert any("is over a limit" in failure for failure in races.run(3, seed=1).failures)
    monkeypatch.undo()
    monkeypatch.setattr(Budget, "settle", lambda self, reservation, actual=None: NOTHING)
    assert any("were spent" in failure for failure in races.run(5, seed=1).failures)


def test_reserve_and_settle_are_cheap():
    """This runs twice in every effect: a few microseconds, and next to nothing when nothing is spent."""
    budget = Budget.of("$1000").child("$900").child("$800")
    usage = Usage(usd=1)
    each_us = min(timeit.repeat(lambda: budget.settle(budget.reserve(usage)), number=5_000, repeat=5)) * 200
    assert each_us < 40.0  # measured 1.8; the bound only catches a change of kind


def test_a_bare_number_is_no_budget():
    """It reads as dollars and would mean micro-dollars; a hint says how to write both."""
    for limit in (1, 500_000):
        with pytest.raises(ConfigError, match="reads as dollars") as refused:
            Budget.of(limit)
        assert f"${limit}.00" in str(refused.value.hint)


def test_input_tokens_have_a_limit_of_their_own():
    """Output tokens do not count against it."""
    budget = Budget(input_tokens=10)
    budget.charge(Usage(output_tokens=99))
    budget.settle(budget.reserve(Usage(input_tokens=10)))
    with pytest.raises(BudgetExceeded, match="input_tokens"):
        budget.reserve(Usage(input_tokens=1))


def test_a_budget_that_comes_back_draws_on_its_parent():
    """What it spends from now on counts for the parent, whose limit holds for it."""
    parent = Budget(usd=10)
    again = Budget.from_data(Budget(usd=100).to_data(), parent=parent)
    again.charge(Usage(usd=4))
    assert parent.used() == 4
    with pytest.raises(BudgetExceeded):
        again.reserve(Usage(usd=7))


def test_what_is_reserved_is_told_by_dimension():
    """Money unless another is named; settled, it is reserved no more."""
    budget = Budget()
    held = budget.reserve(Usage(usd=5, hops=2))
    assert (budget.reserved(), budget.reserved("hops"), budget.reserved("iterations")) == (5, 2, 0)
    budget.settle(held)
    assert budget.reserved("hops") == 0


@pytest.mark.parametrize("dimension", ["output_tokens", "tool_calls"])
def test_an_amount_is_refused_where_its_own_limit_is_reached(dimension):
    """And no other dimension stands in for it."""
    budget = Budget.of({dimension: 3})
    budget.charge(Usage(**{dimension: 2}))
    with pytest.raises(BudgetExceeded):
        budget.reserve(Usage(**{dimension: 2}))
    budget.reserve(Usage(llm_calls=2))
    budget.reserve(Usage(**{dimension: 1}))


def test_a_budget_of_tool_calls():
    budget = Budget(tool_calls=1)
    budget.charge(Usage(tool_calls=1))
    with pytest.raises(BudgetExceeded):
        budget.reserve(Usage(tool_calls=1))


def test_what_is_only_reserved_can_be_counted_as_left() -> None:
    """`with_reserved` tells money that calls in flight hold from money that is spent, over all scopes that block."""
    above = Budget(usd="$1.00")
    below = above.child(usd="$0.70")
    held = below.reserve(Usage(usd="$0.40"))
    above.charge(Usage(usd="$0.50"))
    assert (below.spendable("usd"), below.spendable("usd", with_reserved=True)) == (100_000, 500_000)
    below.settle(held, Usage(usd="$0.40"))
    assert (below.spendable("usd"), below.spendable("usd", with_reserved=True)) == (100_000, 100_000)
    assert Budget().spendable("usd", with_reserved=True) is None
