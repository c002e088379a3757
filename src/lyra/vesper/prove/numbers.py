"""Two encodings of numbers for the solver: `RealEncoding` and `ScaledEncoding`.

`RealEncoding` takes every number as a real one. It allows more than there is (integers need not be whole, decimals may
have any digits), so what is proved in it holds; rounding is a new number within the bounds of its rounding.
`ScaledEncoding` takes a decimal as an integer with a fixed number of digits after the point: exact, rounding included,
so its counterexamples are inputs. Decimals without a scale are given `GUESSED_SCALE` digits there, which proves nothing
about longer ones.

Each axiom in `axioms` holds for all executions, whatever their inputs. `overflow` of a decimal, which depends on 10 000
digits, is an open truth value for each term; with a known scale it needs a very large number.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import z3

from lyra.vesper.prove.values import FALSE, TRUE, NumberValue, Term, UnsupportedNode, conj, disj, implies, ite, negate
from lyra.vesper.values.types import INTEGER_MAX, INTEGER_MIN

GUESSED_SCALE: Final = 4
_LARGE: Final = 10**30  # a decimal with a known scale has no 10 000 digits below this
_QUOTIENT_DIGITS: Final = 6  # digits after the point that a quotient adds in `ScaledEncoding`
_QUOTIENT_EXACT: Final = 10**20  # a quotient of known scale below this has at most 28 digits
_SCALE_SMALL: Final = 7  # digits after the point for which that is so
_SCALE_KNOWN_MAX: Final = 5_000  # a bound above this says nothing about 10 000 digits
_TO_NEAREST: Final = ("half_even", "half_up", "half_down")
_CASES_MAX: Final = 4  # of a term that are treated one by one where decimals overflow
_GRID_MAX: Final = 12  # numbers that each rounding is compared with


def constant_parts(value: int | Decimal) -> tuple[Fraction, int]:
    exponent = 0 if isinstance(value, int) else int(value.as_tuple().exponent)
    return Fraction(value), max(0, -exponent)


class NumberEncoding:
    """What both encodings share; `incomplete` says why a proof in this encoding would not hold for all inputs."""

    is_exact = False  # terms of whole numbers are whole

    def __init__(self) -> None:
        self.axioms: list[Term] = []
        self.incomplete: set[str] = set()
        self._count = 0
        self._flags: dict[int, tuple[Term, Term]] = {}

    def name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}!{self._count}"

    def fresh_bool(self, prefix: str = "b") -> Term:
        return z3.Bool(self.name(prefix))

    def fresh_text(self, prefix: str = "t") -> Term:
        return z3.String(self.name(prefix))

    def align(self, left: NumberValue, right: NumberValue) -> tuple[NumberValue, NumberValue]:
        """Return both numbers with terms that can be compared and added."""
        return left, right

    def note(self, number: NumberValue) -> None:
        """Have later roundings compared with this number: rounding never passes a number that has few digits."""

    def from_length(self, term: Term) -> NumberValue:
        raise NotImplementedError

    def to_integer(self, number: NumberValue) -> Term:
        """Return a whole number as the solver counts characters."""
        raise NotImplementedError

    def constant(self, value: int | Decimal) -> NumberValue:
        raise NotImplementedError

    def fresh(self, prefix: str, *, whole: bool, scale: int | None = 0) -> NumberValue:
        raise NotImplementedError

    def add(self, left: NumberValue, right: NumberValue) -> NumberValue:
        left, right = self.align(left, right)
        return NumberValue(left.term + right.term, left.whole and right.whole, _larger(left.scale, right.scale))

    def subtract(self, left: NumberValue, right: NumberValue) -> NumberValue:
        left, right = self.align(left, right)
        return NumberValue(left.term - right.term, left.whole and right.whole, _larger(left.scale, right.scale))

    def multiply(self, left: NumberValue, right: NumberValue) -> NumberValue:
        scale = None if left.scale is None or right.scale is None else left.scale + right.scale
        return NumberValue(left.term * right.term, left.whole and right.whole, scale)

    def negate(self, number: NumberValue) -> NumberValue:
        return NumberValue(-number.term, number.whole, number.scale)

    def less(self, left: NumberValue, right: NumberValue) -> Term:
        left, right = self.align(left, right)
        return z3.simplify(left.term < right.term)

    def equal(self, left: NumberValue, right: NumberValue) -> Term:
        left, right = self.align(left, right)
        return z3.simplify(left.term == right.term)

    def at_most(self, left: NumberValue, right: NumberValue) -> Term:
        return negate(self.less(right, left))

    def is_zero(self, number: NumberValue) -> Term:
        return z3.simplify(number.term == 0)

    def overflow(self, number: NumberValue) -> Term:
        if number.whole:
            low, high = self.constant(INTEGER_MIN), self.constant(INTEGER_MAX)
            return disj(self.less(number, low), self.less(high, number))
        return self._decimal_overflow(z3.simplify(number.term, som=True), number.scale, _CASES_MAX)

    def _decimal_overflow(self, term: Term, scale: int | None, cases: int) -> Term:
        """Return the open truth value of a term; of a term with cases, that of each case."""
        if z3.is_rational_value(term) or z3.is_int_value(term):
            return FALSE
        case = _first_case(term) if cases else None
        if case is not None:
            condition, then, other = case.children()
            both = (z3.simplify(z3.substitute(term, (case, part)), som=True) for part in (then, other))
            flags = [self._decimal_overflow(part, scale, cases - 1) for part in both]
            return ite(condition, *flags)
        key = term.get_id()
        if key not in self._flags:
            flag = self.fresh_bool("overflow")
            self._flags[key] = flag, term  # the term is kept: its id is reused otherwise
            if scale is not None and scale <= _SCALE_KNOWN_MAX:
                self.axioms.append(implies(flag, self.is_large(NumberValue(term, False, scale))))
        return self._flags[key][0]

    def fits(self, number: NumberValue) -> None:
        """Know that a decimal has no more digits than it may have: it is one already."""
        term = z3.simplify(number.term, som=True)
        self._flags[term.get_id()] = FALSE, term

    def is_large(self, number: NumberValue) -> Term:
        limit = self.constant(_LARGE)
        return disj(self.less(limit, number), self.less(number, self.negate(limit)))

    def divide(self, left: NumberValue, right: NumberValue) -> list[tuple[Term, NumberValue]]:
        raise NotImplementedError

    def remainder(self, left: NumberValue, right: NumberValue) -> NumberValue:
        raise NotImplementedError

    def round_quotient(self, left: NumberValue, right: NumberValue | None, scale: int, rounding: str) -> NumberValue:
        """Return the quotient, or the first number where there is no second, rounded to `scale` digits after the
        point."""
        raise NotImplementedError


def _first_case(term: Term) -> Term | None:
    """Return an `If` between the operations of a term."""
    todo = [term]
    while todo:
        part = todo.pop()
        if z3.is_app_of(part, z3.Z3_OP_ITE):
            return part
        if z3.is_add(part) or z3.is_mul(part) or z3.is_sub(part) or z3.is_app_of(part, z3.Z3_OP_UMINUS):
            todo.extend(part.children())
    return None


def _larger(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else max(left, right)


class RealEncoding(NumberEncoding):
    def __init__(self) -> None:
        super().__init__()
        self._quotients: dict[tuple[int, int], tuple[Term, Any]] = {}
        self._rounded: dict[tuple[int, int, str], tuple[Term, NumberValue]] = {}
        self._grid: dict[int, NumberValue] = {}

    def from_length(self, term: Term) -> NumberValue:
        return NumberValue(z3.ToReal(term), True)

    def to_integer(self, number: NumberValue) -> Term:
        return z3.simplify(z3.ToInt(number.term))

    def constant(self, value: int | Decimal) -> NumberValue:
        fraction, scale = constant_parts(value)
        return NumberValue(z3.RealVal(f"{fraction.numerator}/{fraction.denominator}"), isinstance(value, int), scale)

    def fresh(self, prefix: str, *, whole: bool, scale: int | None = 0) -> NumberValue:
        return NumberValue(z3.Real(self.name(prefix)), whole, 0 if whole else scale)

    def note(self, number: NumberValue) -> None:
        if number.scale is not None and len(self._grid) < _GRID_MAX:
            self._grid.setdefault(number.term.get_id(), number)

    def quotient(self, left: NumberValue, right: NumberValue) -> Term:
        """Return the exact quotient; it means nothing where the divisor is 0."""
        if z3.is_rational_value(right.term):
            return FALSE if right.term.as_fraction() == 0 else left.term / right.term
        key = left.term.get_id(), right.term.get_id()
        if key not in self._quotients:
            exact = z3.Real(self.name("quotient"))
            self._quotients[key] = exact, (left.term, right.term)
            self.axioms.append(implies(right.term != 0, exact * right.term == left.term))
        return self._quotients[key][0]

    def divide(self, left: NumberValue, right: NumberValue) -> list[tuple[Term, NumberValue]]:
        exact = self.quotient(left, right)
        if z3.is_false(exact):
            return []
        divisor = right.term.as_fraction() if z3.is_rational_value(right.term) else None
        near = z3.Real(self.name("near"))
        error, size = near - exact, z3.If(exact < 0, -exact, exact)
        unit = size * z3.RealVal(Fraction(1, 10**27))
        self.axioms.append(implies(right.term != 0, z3.And(error <= unit, -error <= unit)))
        scale = None
        if divisor is not None and left.scale is not None:
            digits = _exact_digits(divisor)
            if digits is not None and left.scale + digits <= _SCALE_SMALL:
                # Exact: neither does the quotient of a number of this size have more than 28 digits.
                self.axioms.append(implies(size < _QUOTIENT_EXACT, near == exact))
            scale = 28 + left.scale + len(str(divisor.numerator)) + len(str(divisor.denominator))
        elif right.whole and left.scale is not None:
            scale = 28 + left.scale + 19
        if not (left.whole and right.whole):
            return [(TRUE, NumberValue(near, False, scale))]
        if divisor is not None and abs(divisor) == 1:
            return [(TRUE, NumberValue(exact, True))]
        is_whole = self.fresh_bool("divides")
        return [(is_whole, NumberValue(exact, True)), (negate(is_whole), NumberValue(near, False, scale))]

    def remainder(self, left: NumberValue, right: NumberValue) -> NumberValue:
        result = self.fresh("remainder", whole=left.whole and right.whole, scale=_larger(left.scale, right.scale))
        rest, number, divisor = result.term, left.term, right.term
        size = z3.If(divisor < 0, -divisor, divisor)
        self.axioms += [
            implies(divisor != 0, z3.And(rest < size, -rest < size)),
            implies(conj(divisor != 0, number >= 0), z3.And(rest >= 0, rest <= number)),
            implies(conj(divisor != 0, number <= 0), z3.And(rest <= 0, rest >= number)),
        ]
        return result

    def round_quotient(self, left: NumberValue, right: NumberValue | None, scale: int, rounding: str) -> NumberValue:
        exact = left.term if right is None else self.quotient(left, right)
        if z3.is_false(exact):
            return self.constant(0)
        if right is None and left.scale is not None and left.scale <= scale:
            return NumberValue(left.term, False, scale)
        exact = z3.simplify(exact, som=True)
        key = exact.get_id(), scale, rounding
        if key in self._rounded:
            return self._rounded[key][1]
        result = self.fresh("rounded", whole=False, scale=scale)
        unit = z3.RealVal(Fraction(1, 10**scale)) / (2 if rounding in _TO_NEAREST else 1)
        error = result.term - exact
        self.axioms.append(z3.And(error <= unit, -error <= unit))
        if rounding not in _TO_NEAREST:
            is_below = {"floor": TRUE, "ceiling": FALSE, "down": exact >= 0, "up": exact <= 0}[rounding]
            self.axioms.append(ite(is_below, error <= 0, error >= 0))
        for other in (self.constant(0), self.constant(1), self.constant(-1), *self._grid.values()):
            if other.scale is not None and other.scale <= scale:
                self.axioms.append(implies(exact <= other.term, result.term <= other.term))
                self.axioms.append(implies(exact >= other.term, result.term >= other.term))
        for (_, other_scale, other_rounding), (other_exact, other_result) in self._rounded.items():
            if other_scale == scale and other_rounding == rounding:
                self.axioms.append(implies(exact <= other_exact, result.term <= other_result.term))
                self.axioms.append(implies(exact >= other_exact, result.term >= other_result.term))
        self._rounded[key] = exact, result
        self.note(result)
        return result


def _exact_digits(divisor: Fraction) -> int | None:
    """Return how many digits after the point a division by this adds at most; None where it may have no end."""
    rest, twos, fives = abs(divisor.numerator), 0, 0
    while rest and rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest and rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    return max(twos, fives) + len(str(divisor.denominator)) if rest == 1 else None


class ScaledEncoding(NumberEncoding):
    is_exact = True

    def from_length(self, term: Term) -> NumberValue:
        return NumberValue(term, True)

    def to_integer(self, number: NumberValue) -> Term:
        return number.term

    def constant(self, value: int | Decimal) -> NumberValue:
        fraction, scale = constant_parts(value)
        return NumberValue(z3.IntVal(int(fraction * 10**scale)), isinstance(value, int), scale)

    def fresh(self, prefix: str, *, whole: bool, scale: int | None = 0) -> NumberValue:
        if scale is None:
            self.incomplete.add(f"decimals of at most {GUESSED_SCALE} digits after the point")
            scale = GUESSED_SCALE
        return NumberValue(z3.Int(self.name(prefix)), whole, 0 if whole else scale)

    def rescale(self, number: NumberValue, scale: int) -> NumberValue:
        assert number.scale is not None
        if scale == number.scale:
            return number
        return NumberValue(number.term * 10 ** (scale - number.scale), number.whole, scale)

    def align(self, left: NumberValue, right: NumberValue) -> tuple[NumberValue, NumberValue]:
        scale = max(left.scale or 0, right.scale or 0)
        if scale > 60:
            raise UnsupportedNode("a number with too many digits after the point")
        return self.rescale(left, scale), self.rescale(right, scale)

    def divide(self, left: NumberValue, right: NumberValue) -> list[tuple[Term, NumberValue]]:
        assert left.scale is not None
        assert right.scale is not None
        divisor = Fraction(right.term.as_long(), 10**right.scale) if z3.is_int_value(right.term) else None
        if divisor == 0:
            return []
        digits = _exact_digits(divisor) if divisor is not None else None
        if divisor is None or digits is None:
            # A quotient that has few digits: the walk leaves out inputs with which it has more.
            assert left.scale is not None
            assert right.scale is not None
            result = self.fresh("quotient", whole=False, scale=left.scale + _QUOTIENT_DIGITS)
            product = result.term * right.term * 10**left.scale
            self.axioms.append(implies(right.term != 0, product == left.term * 10 ** (result.scale + right.scale)))  # type: ignore[operator]
            scaled = result
        else:
            scaled = NumberValue(left.term * int(Fraction(10**digits) / divisor), False, left.scale + digits)
        if not (left.whole and digits is not None and digits <= _SCALE_SMALL):  # else it has at most 28 digits
            self.incomplete.add("quotients of few digits")
            self.axioms.append(z3.And(scaled.term < 10**27, scaled.term > -(10**27)))
        if not (left.whole and right.whole):
            return [(TRUE, scaled)]
        divides = left.term % right.term == 0
        return [(divides, NumberValue(left.term / right.term, True)), (negate(divides), scaled)]

    def remainder(self, left: NumberValue, right: NumberValue) -> NumberValue:
        whole = left.whole and right.whole
        left, right = self.align(left, right)
        size = ite(right.term < 0, -right.term, right.term)
        return NumberValue(z3.If(left.term >= 0, left.term % size, -((-left.term) % size)), whole, left.scale)

    def round_quotient(self, left: NumberValue, right: NumberValue | None, scale: int, rounding: str) -> NumberValue:
        assert left.scale is not None
        top, bottom = left.term, z3.IntVal(10**left.scale)
        if right is not None:
            assert right.scale is not None
            sign = ite(right.term < 0, z3.IntVal(-1), z3.IntVal(1))
            top, bottom = z3.simplify(top * sign * 10**right.scale), z3.simplify(bottom * right.term * sign)
        top = z3.simplify(top * 10**scale)
        if z3.is_int_value(bottom) and bottom.as_long() == 0:
            return self.constant(0)
        if right is None and left.scale <= scale:
            return NumberValue(left.term * 10 ** (scale - left.scale), False, scale)
        low, rest = top / bottom, top % bottom  # towards minus infinity, since the divisor is positive
        up = {
            "half_even": z3.Or(2 * rest > bottom, z3.And(2 * rest == bottom, low % 2 == 1)),
            "half_up": z3.If(top >= 0, 2 * rest >= bottom, 2 * rest > bottom),
            "half_down": z3.If(top >= 0, 2 * rest > bottom, 2 * rest >= bottom),
            "down": z3.And(top < 0, rest > 0),
            "up": z3.And(top > 0, rest > 0),
            "floor": FALSE,
            "ceiling": rest > 0,
        }[rounding]
        return NumberValue(z3.If(up, low + 1, low), False, scale)
