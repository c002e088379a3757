"""Budgets: limits that nest, and spending that is reserved before it happens.

    reserve(usage)          used + reserved + asked ≤ limit here and in every scope above, or BudgetExceeded
    settle(reservation, …)  replace it by the real usage; the difference is free again
    release(reservation)    give it back: the act never happened
    charge(usage)           record usage that already happened (a replayed journal); never refused

Because a reservation counts as spent until it is settled, no interleaving of callers can pass a limit, and
`remaining()` is exact at every moment. `on_exceed` says what a scope does at its limit: `block` refuses,
`warn` lets through and lists it in `Reservation.over`, `allow` lets through; a blocking scope above still
blocks. Seconds are a deadline, not a counter.

This module knows no clock, price or process: the kernel calls it. Amounts are whole numbers, money in
micro-dollars. The amounts of all dimensions are lanes of one integer, for speed: this code runs twice in every effect,
and one addition adds them all, one subtraction compares them all with their limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias

import msgspec

from lyra.core.budgets.money import Money, money
from lyra.core.checking.check import check_integer, check_keys, one_of, real, short_text
from lyra.core.limits import MONEY_MICRO_USD_MAX, NAME_LENGTH_MAX
from lyra.errors import BudgetExceeded, ConfigError, InternalError

if TYPE_CHECKING:
    from decimal import Decimal


Limits: TypeAlias = "Budget | Money | Decimal | str | Mapping[str, Any]"  # what `Budget.of` reads
Amount: TypeAlias = "Usage | Money | Decimal | str | Mapping[str, Any]"  # what `Usage.of` reads

DIMENSIONS: Final = ("usd", "input_tokens", "output_tokens", "llm_calls", "tool_calls", "hops", "iterations")
ON_EXCEED: Final = ("block", "warn", "allow")

_INDEX: Final = {name: index for index, name in enumerate(DIMENSIONS)}
_USD: Final = 0
_UNLIMITED: Final = 1 << 80  # above every sum of 63-bit amounts, so that "no limit" needs no branch

# Lanes: bits 96·i to 96·i + 95 of a packed integer are the amount of dimension i. The top bit of a lane is a guard. It
# is added before a subtraction, and is still there afterwards unless the difference is below zero. Lanes may be below
# zero in between (`- reserved + used`), and in a Usage that takes back another.
_LANE: Final = 96
_SHIFTS: Final = tuple(range(0, _LANE * len(DIMENSIONS), _LANE))
_LANE_MAX: Final = (1 << _LANE) - 1
_GUARD: Final = 1 << (_LANE - 1)
_GUARDS: Final = sum(_GUARD << shift for shift in _SHIFTS)
_BELOW_GUARDS: Final = _GUARDS - sum(1 << shift for shift in _SHIFTS)
_TOKENS_IN, _TOKENS_OUT = _SHIFTS[1:3]
_CALL: Final = 1 << _SHIFTS[DIMENSIONS.index("llm_calls")]
_NO_LIMITS: Final = sum(_UNLIMITED << shift for shift in _SHIFTS)
_TOKENS: Final = (_GUARD << _TOKENS_IN) + (_GUARD << _TOKENS_OUT)


def lanes(packed: int) -> list[int]:
    """Return the amounts in a packed integer, by the index of their dimension."""
    amounts = [0] * len(DIMENSIONS)
    index = 0
    while packed:
        amount = packed & _LANE_MAX
        if amount >= _GUARD:  # below zero
            amount -= _LANE_MAX + 1
        amounts[index] = amount
        packed = (packed - amount) >> _LANE
        index += 1
    return amounts


def _lane(packed: int, index: int) -> int:
    """Return the amount of one dimension."""
    return (((packed + _GUARDS) >> _SHIFTS[index]) & _LANE_MAX) - _GUARD


def _pack(amounts: Iterable[int]) -> int:
    return sum([amount << shift for amount, shift in zip(amounts, _SHIFTS, strict=True)])


def _amount(dimension: str, value: Any) -> int:
    if dimension == "usd":
        return int(money(value))
    return check_integer(value, dimension, most=MONEY_MICRO_USD_MAX)


def _index(dimension: str) -> int:
    index = _INDEX.get(dimension)
    return index if index is not None else _INDEX[one_of(dimension, DIMENSIONS, "a budget's dimension")]


class Usage:
    """An amount for each dimension. Immutable; empty is false; `+` adds."""

    __slots__ = ("packed",)

    packed: int  # a lane for each dimension; 0 where there is nothing

    def __init__(
        self,
        *,
        usd: Money | int | str = 0,
        input_tokens: int = 0,
        output_tokens: int = 0,
        llm_calls: int = 0,
        tool_calls: int = 0,
        hops: int = 0,
        iterations: int = 0,
    ) -> None:
        values = (usd, input_tokens, output_tokens, llm_calls, tool_calls, hops, iterations)
        self.packed = sum([_amount(DIMENSIONS[i], value) << _SHIFTS[i] for i, value in enumerate(values) if value])

    @classmethod
    def _from_packed(cls, packed: int) -> Usage:
        usage = cls.__new__(cls)
        usage.packed = packed
        return usage

    @classmethod
    def from_call(cls, micro_usd: int, input_tokens: int, output_tokens: int) -> Usage:
        """Return the usage of one model call; the caller knows that the numbers are whole, so nothing is checked."""
        usage = cls.__new__(cls)
        usage.packed = micro_usd + (input_tokens << _TOKENS_IN) + (output_tokens << _TOKENS_OUT) + _CALL
        return usage

    @classmethod
    def of(cls, value: Any) -> Usage:
        """None (nothing), a Usage, a mapping of dimensions, or an amount of money."""
        if value is None:
            return NOTHING
        if isinstance(value, Usage):
            return value
        return cls.from_data(value) if isinstance(value, Mapping) else cls(usd=money(value))

    @classmethod
    def from_data(cls, data: Any) -> Usage:
        if not isinstance(data, Mapping):
            raise ConfigError(f"a usage is a mapping of dimensions, not {data!r}")
        check_keys(data, DIMENSIONS, "a usage")
        return cls(**data)

    def to_data(self) -> dict[str, int]:
        return {DIMENSIONS[index]: amount for index, amount in self.items}

    @property
    def items(self) -> tuple[tuple[int, int], ...]:
        """Return (index of the dimension, amount) for each that is not zero, by index."""
        return tuple([pair for pair in enumerate(lanes(self.packed)) if pair[1]])

    @property
    def usd(self) -> Money:
        return Money(self.micro_usd)

    @property
    def micro_usd(self) -> int:
        """Return the money as a whole number of micro-dollars."""
        return ((self.packed + _GUARDS) & _LANE_MAX) - _GUARD

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        packed = self.packed + _GUARDS
        return ((packed >> _TOKENS_IN) & _LANE_MAX) + ((packed >> _TOKENS_OUT) & _LANE_MAX) - 2 * _GUARD

    def __getitem__(self, dimension: str) -> int:
        return _lane(self.packed, _index(dimension))

    def __add__(self, other: Usage) -> Usage:
        if not other.packed:
            return self
        if not self.packed:
            return other
        usage = Usage.__new__(Usage)
        usage.packed = self.packed + other.packed
        return usage

    def __neg__(self) -> Usage:
        return Usage._from_packed(-self.packed)

    def __bool__(self) -> bool:
        return bool(self.packed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Usage) and self.packed == other.packed

    def __hash__(self) -> int:
        return hash(self.packed)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={str(Money(n)) if name == 'usd' else n}" for name, n in self.to_data().items())
        return f"Usage({shown})"


NOTHING: Final = Usage()


def read_cost(value: Any) -> Usage:
    """`Usage.of` for a cost that a person writes, where a plain int is refused."""
    _refuse_plain_int(value, "cost")
    return Usage.of(value)


def _refuse_plain_int(value: Any, key: str) -> None:
    if isinstance(value, int) and not isinstance(value, (bool, Money)):
        raise ConfigError(
            f"a {key} of {value} reads as dollars and would be micro-dollars",
            hint=f"write '${value}.00', or Money({value}) for micro-dollars",
            key=key,
        )


class Excess(NamedTuple):
    """One limit that was, or would be, passed: the facts of a BudgetExceeded or of a warning."""

    scope: str
    dimension: str
    limit: int
    used: int
    reserved: int
    asked: int

    def to_data(self) -> dict[str, Any]:
        return self._asdict()


class Reservation(msgspec.Struct):
    """Amounts held in one scope and all above it until they are settled or released, once."""

    scope: Budget
    packed: int  # the amounts, as in a Usage
    over: tuple[Excess, ...] = ()  # limits of `warn` scopes that this passed
    open: bool = True

    @property
    def usage(self) -> Usage:
        return Usage._from_packed(self.packed)


class Budget:
    """One scope: its limits, what was used in it and below it, and the scope above."""

    __slots__ = (
        "_chain",
        "_limited",
        "_limits",
        "_room",
        "_taken",
        "_used",
        "_warns",
        "due_s",
        "limits_anything",
        "limits_money",
        "limits_tokens",
        "name",
        "on_exceed",
        "parent",
        "seconds",
        "speculative",
    )

    parent: Budget | None
    name: str
    on_exceed: str
    seconds: float | None

    def __init__(
        self,
        *,
        usd: Money | int | str | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        llm_calls: int | None = None,
        tool_calls: int | None = None,
        hops: int | None = None,
        iterations: int | None = None,
        seconds: float | None = None,
        parent: Budget | None = None,
        on_exceed: str = "block",
        name: str = "",
    ) -> None:
        values = (usd, input_tokens, output_tokens, llm_calls, tool_calls, hops, iterations)
        limits = [
            _UNLIMITED if value is None else _amount(DIMENSIONS[index], value) for index, value in enumerate(values)
        ]
        self.name = short_text(name, "a budget's name", most=NAME_LENGTH_MAX)
        self.on_exceed = one_of(on_exceed, ON_EXCEED, "on_exceed")
        self.seconds = None if seconds is None else real(seconds, "seconds", above=0.0)
        self._limits = _pack(limits)
        self._begin(parent)

    def _begin(self, parent: Budget | None) -> None:
        """Begin with nothing used, below another scope where there is one. Limits and settings are set already."""
        self.due_s: float | None = None  # when its seconds are over; None until the kernel starts to count them
        self.parent = parent
        self.speculative = NOTHING  # usage of early calls that were not needed: paid for, and not charged here
        if parent is not None and parent.limits_anything:  # a limit cannot be larger than the one above it
            pairs = zip(lanes(self._limits), parent._lowest(), strict=True)
            self._limits = _pack([own if own == _UNLIMITED else min(own, above) for own, above in pairs])
        if parent is not None and parent.seconds is not None:
            self.seconds = parent.seconds if self.seconds is None else min(self.seconds, parent.seconds)
        limits = self._limits
        # The guards of the dimensions that this scope or one above has a limit on.
        limited = (_NO_LIMITS - limits + _BELOW_GUARDS) & _GUARDS
        self._limited: int = limited if parent is None else limited | parent._limited
        # Whether this scope or one above has a limit on money or tokens, whatever its `on_exceed`.
        self.limits_money: bool = bool(self._limited & _GUARD)
        self.limits_tokens: bool = bool(self._limited & _TOKENS)
        self.limits_anything: bool = bool(self._limited)
        self._used = 0
        self._taken = 0  # used + reserved
        # The limits that block, with their guards.
        self._room = (limits if self.on_exceed == "block" else _NO_LIMITS) + _GUARDS
        # This scope and those above, nearest first: all that are asked to reserve.
        self._chain: tuple[Budget, ...] = (self,) if parent is None else (self, *parent._chain)
        self._warns: bool = self.on_exceed == "warn" or (parent is not None and parent._warns)

    # ------------------------------------------------------------ making one
    @classmethod
    def of(cls, value: Any) -> Budget:
        """None (no limit), a Budget, a mapping of limits, or an amount of money: text, a Decimal or Money."""
        if isinstance(value, Budget):
            return value
        return cls(**cls._settings(value))

    @staticmethod
    def _settings(value: Any) -> dict[str, Any]:
        if value is None:
            return {}
        if isinstance(value, Mapping):
            check_keys(value, (*DIMENSIONS, "seconds", "on_exceed", "name"), "a budget")
            return dict(value)
        _refuse_plain_int(value, "budget")
        return {"usd": money(value)}

    def child(self, value: Any = None, **limits: Any) -> Budget:
        """Return a scope below this one: what it spends counts here too, and its limits are no larger than these."""
        if isinstance(value, Budget):
            if not limits:
                return value._copy_below(self)
            value = value._limit_data()
        settings = {**self._settings(value), **limits}
        check_keys(settings, (*DIMENSIONS, "seconds", "on_exceed", "name"), "a budget")
        return Budget(parent=self, **settings)

    def _copy_below(self, parent: Budget) -> Budget:
        """Return a scope with its limits and settings below another one."""
        scope = Budget.__new__(Budget)
        scope.name, scope.on_exceed, scope.seconds = self.name, self.on_exceed, self.seconds
        scope._limits = self._limits
        scope._begin(parent)
        return scope

    def within_parent(self) -> Budget:
        """Return a scope by itself with all limits that hold here: its own, and those of the scopes above."""
        limits = zip(DIMENSIONS, self._lowest(), strict=True)
        known: dict[str, Any] = {name: most for name, most in limits if most != _UNLIMITED}
        return Budget(seconds=self.seconds, on_exceed=self.on_exceed, name=self.name, **known)

    # ------------------------------------------------------------ spending
    def reserve(self, usage: Usage) -> Reservation:
        """Hold `usage` here and in every scope above, all of it or (BudgetExceeded) nothing."""
        asked = usage.packed
        if not asked:
            return Reservation(self, 0)
        chain = self._chain
        if self.limits_anything:
            guards = (asked + _BELOW_GUARDS) & _GUARDS  # of what is asked for: another limit may have been passed
            for scope in chain:
                if not scope.limits_anything:  # nor has one above it a limit
                    break
                if (scope._room - scope._taken - asked) & guards != guards:
                    raise self._make_error(usage)
        over = self._excesses(usage, "warn") if self._warns else ()
        for scope in chain:
            scope._taken += asked
        return Reservation(self, asked, over)

    def settle(self, reservation: Reservation, actual: Usage | None = None) -> Usage:
        """Turn a reservation into spending; gives what `actual` has above the reservation (normally nothing).

        An overrun is recorded in full, since the money is spent. The caller publishes it.
        """
        if not reservation.open or reservation.scope is not self:
            raise InternalError("a budget reservation is settled once, in the scope that made it")
        reservation.open = False
        held = reservation.packed
        spent = held if actual is None else actual.packed
        if spent == held:
            for scope in self._chain:
                scope._used += spent
            return NOTHING
        more = spent - held
        for scope in self._chain:
            scope._used += spent
            scope._taken += more
        if (held + _GUARDS - spent) & _GUARDS == _GUARDS:
            return NOTHING
        return Usage._from_packed(_pack([max(0, amount) for amount in lanes(more)]))

    def cut_off(self, guess: Usage) -> bool:  # noqa: ARG002 - for scopes that count it
        """Record a guess for a call that was cut off, whose usage stays unknown; True where this scope counts it."""
        return False

    def release(self, reservation: Reservation) -> None:
        """Give a reservation back: the act did not happen."""
        self.settle(reservation, NOTHING)

    def charge(self, usage: Usage) -> None:
        """Record spending that has happened; never refused, because it cannot be undone."""
        for scope in self._chain:
            scope._used += usage.packed
            scope._taken += usage.packed

    def charge_alone(self, usage: Usage) -> None:
        """Record spending that the scopes above have counted already."""
        self._used += usage.packed
        self._taken += usage.packed

    # ------------------------------------------------------------ lending to other shards
    def hold(self, usage: Usage) -> Reservation:
        """Reserve without asking for room: the journal says that it is reserved."""
        for scope in self._chain:
            scope._taken += usage.packed
        return Reservation(self, usage.packed)

    def full_scopes(self, usage: Usage) -> list[Budget]:
        """Return the scopes that have no room for `usage`, nearest first."""
        asked = usage.packed
        guards = (asked + _BELOW_GUARDS) & _GUARDS
        return [scope for scope in self._chain if (scope._room - scope._taken - asked) & guards != guards]

    def blocking(self) -> dict[str, int]:
        """Return the limits here and above that block, the least of each dimension."""
        chain = [scope for scope in self._chain if scope.on_exceed == "block"]
        rows = [lanes(scope._limits) for scope in chain] or [[_UNLIMITED] * len(DIMENSIONS)]
        lowest = [min(limits) for limits in zip(*rows, strict=True)]
        return {name: limit for name, limit in zip(DIMENSIONS, lowest, strict=True) if limit != _UNLIMITED}

    # ------------------------------------------------------------ reading
    def remaining(self, dimension: str = "usd") -> Money | int | None:
        """Return the least of limit − used − reserved here and above, never below 0; None without a limit."""
        index = _index(dimension)
        least = min(_lane(scope._limits - scope._taken, index) for scope in self.chain())
        return _to_amount(index, max(least, 0)) if least < _UNLIMITED // 2 else None

    def spendable(self, dimension: str, *, with_reserved: bool = False) -> int | None:
        """Return what the scopes that block have left, as a bare number, with what is only reserved or without it; None
        where none of them has a limit."""
        index = _INDEX[dimension]
        if with_reserved:
            left = [scope._room - _GUARDS - scope._used for scope in self._chain]
        else:
            left = [scope._left for scope in self._chain]
        least = min([_lane(packed, index) for packed in left])
        return max(least, 0) if least < _UNLIMITED // 2 else None

    @property
    def _left(self) -> int:
        """Return what is left of the limits that block in this scope, packed; not of those above."""
        return self._room - _GUARDS - self._taken

    def covers(self, dimension: str, amount: int) -> bool:
        """Return whether no scope that blocks has less than this left."""
        shift = _SHIFTS[_INDEX[dimension]]
        asked, guard = amount << shift, _GUARD << shift
        for scope in self._chain:  # noqa: SIM110 (a generator takes twice as long)
            if not (scope._room - scope._taken - asked) & guard:
                return False
        return True

    def used(self, dimension: str = "usd") -> Money | int:
        index = _index(dimension)
        return _to_amount(index, _lane(self._used, index))

    def reserved(self, dimension: str = "usd") -> Money | int:
        index = _index(dimension)
        return _to_amount(index, _lane(self._taken - self._used, index))

    def limit(self, dimension: str = "usd") -> Money | int | None:
        """Return the least limit here and above; None without one."""
        index = _index(dimension)
        lowest = self._lowest()[index]
        return None if lowest == _UNLIMITED else _to_amount(index, lowest)

    def _limits_any(self, usage: Usage) -> bool:
        """Return whether this scope or one above has a limit on something that `usage` has."""
        return bool(self._limited & (usage.packed + _BELOW_GUARDS) & _GUARDS)

    def within(self) -> bool:
        """Return whether used plus reserved is inside every limit of this scope; for tests."""
        return (self._limits + _GUARDS - self._taken) & _GUARDS == _GUARDS

    @property
    def usage(self) -> Usage:
        """Everything used in this scope and below it."""
        return Usage._from_packed(self._used)

    def deadline(self, started_at: float) -> float | None:
        return None if self.seconds is None else started_at + self.seconds

    # ------------------------------------------------------------ saving
    def to_data(self) -> dict[str, Any]:
        """Limits and usage as plain data. Reservations are not saved: after a crash the journal settles them."""
        used = self.usage
        return {"limits": self._limit_data(), "used": used.to_data()} if used else {"limits": self._limit_data()}

    @classmethod
    def from_data(cls, data: Any, *, parent: Budget | None = None) -> Self:
        """Return the scope `to_data` described. Its spending is not charged to `parent`, which has its own."""
        if not isinstance(data, Mapping):
            raise ConfigError(f"a saved budget is a mapping, not {data!r}")
        check_keys(data, ("limits", "used"), "a saved budget")
        limits = data.get("limits", {})
        budget = cls(parent=parent, **cls._settings(limits if limits is not None else {}))
        budget._used = budget._taken = Usage.from_data(data.get("used", {})).packed
        return budget

    def _limit_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            DIMENSIONS[index]: limit for index, limit in enumerate(lanes(self._limits)) if limit != _UNLIMITED
        }
        if self.seconds is not None:
            data["seconds"] = self.seconds
        if self.on_exceed != "block":
            data["on_exceed"] = self.on_exceed
        if self.name:
            data["name"] = self.name
        return data

    def __repr__(self) -> str:
        return f"Budget({self.to_data()})"

    # ------------------------------------------------------------ helpers
    def chain(self) -> list[Budget]:
        """This scope and those above it, nearest first."""
        scopes, scope = [], self
        while True:
            scopes.append(scope)
            if scope.parent is None:
                return scopes
            scope = scope.parent

    def _lowest(self) -> list[int]:
        """Return the least limit of each dimension, here and above."""
        return [min(limits) for limits in zip(*[lanes(scope._limits) for scope in self.chain()], strict=True)]

    def _excesses(self, usage: Usage, mode: str) -> tuple[Excess, ...]:
        """Return the limits of `mode` scopes that taking `usage` now would pass, nearest scope first."""
        excesses = []
        for scope in self.chain():
            if scope.on_exceed == mode:
                limits = lanes(scope._room - _GUARDS if mode == "block" else scope._limits)
                used, taken = lanes(scope._used), lanes(scope._taken)
                excesses += [
                    Excess(scope.name, DIMENSIONS[i], limits[i], used[i], taken[i] - used[i], amount)
                    for i, amount in usage.items
                    if taken[i] + amount > limits[i]
                ]
        return tuple(excesses)

    def _make_error(self, usage: Usage) -> BudgetExceeded:
        excess = self._excesses(usage, "block")[0]
        index = _INDEX[excess.dimension]
        left = max(excess.limit - excess.used - excess.reserved, 0)
        where = f"the budget {excess.scope!r}" if excess.scope else "the budget"
        return BudgetExceeded(
            f"{where} has {_to_amount(index, left)} of {_to_amount(index, excess.limit)} {excess.dimension} left, "
            f"and {_to_amount(index, excess.asked)} was asked for",
            hint="raise the limit, ask for less, or set on_exceed to 'warn'",
            remaining=left,
            **excess.to_data(),
        )


def _to_amount(index: int, amount: int) -> Money | int:
    return Money(amount) if index == _USD else amount
