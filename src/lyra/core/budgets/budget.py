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
micro-dollars. The lists indexed by dimension are for speed: this code runs twice in every effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter, le
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
_NO_LIMITS: Final = [_UNLIMITED] * len(DIMENSIONS)


def _amount(dimension: str, value: Any) -> int:
    if dimension == "usd":
        return int(money(value))
    return check_integer(value, dimension, most=MONEY_MICRO_USD_MAX)


def _index(dimension: str) -> int:
    index = _INDEX.get(dimension)
    return index if index is not None else _INDEX[one_of(dimension, DIMENSIONS, "a budget's dimension")]


class Usage:
    """An amount for each dimension. Immutable; empty is false; `+` adds."""

    __slots__ = ("items",)

    items: tuple[tuple[int, int], ...]  # (index of the dimension, amount), none zero, by index

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
        pairs = [(i, _amount(DIMENSIONS[i], value)) for i, value in enumerate(values) if value]
        self.items = tuple([pair for pair in pairs if pair[1]])

    @classmethod
    def _from_pairs(cls, items: tuple[tuple[int, int], ...]) -> Usage:
        usage = cls.__new__(cls)
        usage.items = items
        return usage

    @classmethod
    def from_call(cls, micro_usd: int, input_tokens: int, output_tokens: int) -> Usage:
        """Return the usage of one model call; the caller knows that the numbers are whole, so nothing is checked."""
        usage = cls.__new__(cls)
        items = ((0, micro_usd), (1, input_tokens), (2, output_tokens), (3, 1))
        usage.items = items if micro_usd and input_tokens and output_tokens else tuple(filter(_amount_of, items))
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
        data: dict[str, int] = {}
        for index, amount in self.items:
            data[DIMENSIONS[index]] = amount
        return data

    @property
    def usd(self) -> Money:
        return Money(self.micro_usd)

    @property
    def micro_usd(self) -> int:
        """Return the money as a whole number of micro-dollars."""
        items = self.items
        return items[0][1] if items and items[0][0] == 0 else 0

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        total = 0
        for index, amount in self.items:
            if index == 1 or index == 2:
                total += amount
        return total

    def __getitem__(self, dimension: str) -> int:
        wanted = _INDEX.get(dimension)
        if wanted is None:
            wanted = _index(dimension)
        for index, amount in self.items:
            if index == wanted:
                return amount
        return 0

    def __add__(self, other: Usage) -> Usage:
        if not other.items:
            return self
        if not self.items:
            return other
        total = dict(self.items)
        for index, amount in other.items:
            total[index] = total.get(index, 0) + amount
        usage = Usage.__new__(Usage)
        usage.items = tuple(sorted(total.items()))
        return usage

    def __bool__(self) -> bool:
        return bool(self.items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Usage) and self.items == other.items

    def __hash__(self) -> int:
        return hash(self.items)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={str(Money(n)) if name == 'usd' else n}" for name, n in self.to_data().items())
        return f"Usage({shown})"


NOTHING: Final = Usage()
_amount_of: Final = itemgetter(1)


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
    items: tuple[tuple[int, int], ...]
    over: tuple[Excess, ...] = ()  # limits of `warn` scopes that this passed
    open: bool = True

    @property
    def usage(self) -> Usage:
        return Usage._from_pairs(self.items)


class Budget:
    """One scope: its limits, what was used in it and below it, and the scope above."""

    __slots__ = (
        "_chain",
        "_limits",
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
        self.due_s: float | None = None  # when its seconds are over; None until the kernel starts to count them
        self.parent = parent
        self.speculative = NOTHING  # usage of early calls that were not needed: paid for, and not charged here
        if parent is not None:  # a limit cannot be larger than the one above it, which blocks first
            limits = [own if own == _UNLIMITED else min(own, parent._lowest(i)) for i, own in enumerate(limits)]
            if parent.seconds is not None:
                self.seconds = parent.seconds if self.seconds is None else min(self.seconds, parent.seconds)
        self._limits = limits
        # Whether this scope or one above has a limit on money or tokens, whatever its `on_exceed`.
        self.limits_money: bool = limits[0] != _UNLIMITED or (parent is not None and parent.limits_money)
        tokens = limits[1] != _UNLIMITED or limits[2] != _UNLIMITED
        self.limits_tokens: bool = tokens or (parent is not None and parent.limits_tokens)
        self.limits_anything: bool = limits != _NO_LIMITS or (parent is not None and parent.limits_anything)
        self._used = [0] * len(DIMENSIONS)
        self._taken = [0] * len(DIMENSIONS)  # used + reserved
        # (used, taken, limits that block) of this scope and those above, nearest first: all that `reserve` reads.
        blocking = limits if self.on_exceed == "block" else [_UNLIMITED] * len(DIMENSIONS)
        above = parent._chain if parent is not None else ()
        self._chain: tuple[tuple[list[int], list[int], list[int]], ...] = (
            (self._used, self._taken, blocking),
            *above,
        )
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
            value = value._limit_data()
        settings = {**self._settings(value), **limits}
        check_keys(settings, (*DIMENSIONS, "seconds", "on_exceed", "name"), "a budget")
        return Budget(parent=self, **settings)

    def within_parent(self) -> Budget:
        """Return a scope by itself with all limits that hold here: its own, and those of the scopes above."""
        limits = {name: self._lowest(index) for index, name in enumerate(DIMENSIONS)}
        known: dict[str, Any] = {name: most for name, most in limits.items() if most != _UNLIMITED}
        return Budget(seconds=self.seconds, on_exceed=self.on_exceed, name=self.name, **known)

    # ------------------------------------------------------------ spending
    def reserve(self, usage: Usage) -> Reservation:
        """Hold `usage` here and in every scope above, all of it or (BudgetExceeded) nothing."""
        items = usage.items
        if not items:
            return Reservation(self, items)
        chain = self._chain
        for _, taken, limits in chain:
            for index, amount in items:
                if taken[index] + amount > limits[index]:
                    raise self._make_error(items)
        over = self._excesses(items, "warn") if self._warns else ()
        for _, taken, _ in chain:
            for index, amount in items:
                taken[index] += amount
        return Reservation(self, items, over)

    def settle(self, reservation: Reservation, actual: Usage | None = None) -> Usage:
        """Turn a reservation into spending; gives what `actual` has above the reservation (normally nothing).

        An overrun is recorded in full, since the money is spent. The caller publishes it.
        """
        if not reservation.open or reservation.scope is not self:
            raise InternalError("a budget reservation is settled once, in the scope that made it")
        reservation.open = False
        items = reservation.items
        if actual is None or actual.items == items:
            for used, _, _ in self._chain:
                for index, amount in items:
                    used[index] += amount
            return NOTHING
        chain = self._chain
        held = dict(items)
        over = None
        for index, amount in actual.items:
            more = amount - held.pop(index, 0)
            if more > 0:
                over = [*(over or ()), (index, more)]
            for used, taken, _ in chain:
                used[index] += amount
                taken[index] += more
        for index, amount in held.items():  # dimensions that were reserved and not used at all
            for _, taken, _ in chain:
                taken[index] -= amount
        if over is None:
            return NOTHING
        overrun = Usage.__new__(Usage)
        overrun.items = tuple(over)
        return overrun

    def cut_off(self, guess: Usage) -> bool:  # noqa: ARG002 - for scopes that count it
        """Record a guess for a call that was cut off, whose usage stays unknown; True where this scope counts it."""
        return False

    def release(self, reservation: Reservation) -> None:
        """Give a reservation back: the act did not happen."""
        self.settle(reservation, NOTHING)

    def charge(self, usage: Usage) -> None:
        """Record spending that has happened; never refused, because it cannot be undone."""
        for used, taken, _ in self._chain:
            for index, amount in usage.items:
                used[index] += amount
                taken[index] += amount

    def charge_alone(self, usage: Usage) -> None:
        """Record spending that the scopes above have counted already."""
        for index, amount in usage.items:
            self._used[index] += amount
            self._taken[index] += amount

    # ------------------------------------------------------------ reading
    def remaining(self, dimension: str = "usd") -> Money | int | None:
        """Return the least of limit − used − reserved here and above, never below 0; None without a limit."""
        index = _index(dimension)
        least = min(scope._limits[index] - scope._taken[index] for scope in self.chain())
        return _to_amount(index, max(least, 0)) if least < _UNLIMITED // 2 else None

    def spendable(self, dimension: str, *, with_reserved: bool = False) -> int | None:
        """Return what the scopes that block have left, as a bare number, with what is only reserved or without it; None
        where none of them has a limit."""
        index = _INDEX[dimension]
        if with_reserved:
            least = min([limits[index] - used[index] for used, _, limits in self._chain])
        else:
            least = min([limits[index] - taken[index] for _, taken, limits in self._chain])
        return max(least, 0) if least < _UNLIMITED // 2 else None

    def covers(self, dimension: str, amount: int) -> bool:
        """Return whether no scope that blocks has less than this left."""
        index = _INDEX[dimension]
        for _, taken, limits in self._chain:  # noqa: SIM110 (a generator takes twice as long)
            if taken[index] + amount > limits[index]:
                return False
        return True

    def used(self, dimension: str = "usd") -> Money | int:
        index = _index(dimension)
        return _to_amount(index, self._used[index])

    def reserved(self, dimension: str = "usd") -> Money | int:
        index = _index(dimension)
        return _to_amount(index, self._taken[index] - self._used[index])

    def limit(self, dimension: str = "usd") -> Money | int | None:
        """Return the least limit here and above; None without one."""
        index = _index(dimension)
        lowest = self._lowest(index)
        return None if lowest == _UNLIMITED else _to_amount(index, lowest)

    def _limits_any(self, usage: Usage) -> bool:
        """Return whether this scope or one above has a limit on something that `usage` has."""
        scope: Budget | None = self
        while scope is not None:
            for index, _ in usage.items:
                if scope._limits[index] != _UNLIMITED:
                    return True
            scope = scope.parent
        return False

    def within(self) -> bool:
        """Return whether used plus reserved is inside every limit of this scope; for tests."""
        return all(map(le, self._taken, self._limits))

    @property
    def usage(self) -> Usage:
        """Everything used in this scope and below it."""
        return Usage._from_pairs(tuple((index, amount) for index, amount in enumerate(self._used) if amount))

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
        for index, amount in Usage.from_data(data.get("used", {})).items:
            budget._used[index] = budget._taken[index] = amount
        return budget

    def _limit_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            DIMENSIONS[index]: limit for index, limit in enumerate(self._limits) if limit != _UNLIMITED
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

    def _lowest(self, index: int) -> int:
        return min(scope._limits[index] for scope in self.chain())

    def _excesses(self, items: tuple[tuple[int, int], ...], mode: str) -> tuple[Excess, ...]:
        """Return the limits of `mode` scopes that taking `items` now would pass, nearest scope first."""
        return tuple(
            Excess(
                scope.name,
                DIMENSIONS[index],
                scope._limits[index],
                scope._used[index],
                scope._taken[index] - scope._used[index],
                amount,
            )
            for scope in self.chain()
            if scope.on_exceed == mode
            for index, amount in items
            if scope._taken[index] + amount > scope._limits[index]
        )

    def _make_error(self, items: tuple[tuple[int, int], ...]) -> BudgetExceeded:
        excess = self._excesses(items, "block")[0]
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
