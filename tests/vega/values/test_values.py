"""How values are shown, compared and copied."""

from __future__ import annotations

import pytest

from lyra.core.budgets.money import Money
from lyra.vega.values.values import (
    INT_MAX,
    Builder,
    Cell,
    Closure,
    Duration,
    Err,
    Fault,
    Ok,
    check_int,
    copy_value,
    equal,
    render,
)


def test_durations_are_exact_and_shown_short():
    assert str(Duration.parse("1.5", "s")) == "1500ms"
    assert str(Duration.parse("60", "m")) == "1h"
    assert Duration.parse("1", "d") == Duration.parse("24", "h")
    assert str(Duration.parse("24", "h")) == "24h"
    with pytest.raises(Fault, match="finer"):
        Duration.parse("0.0000000001", "s")
    with pytest.raises(Fault, match="overflow"):
        Duration.parse("99999999999999", "h")


def test_ints_are_checked():
    assert check_int(INT_MAX) == INT_MAX
    with pytest.raises(Fault, match="overflow"):
        check_int(INT_MAX + 1)


def test_kinds_that_python_confuses_are_not_equal():
    assert equal(1, 1.0)
    assert not equal(True, 1)
    assert not equal(Money(1), 1)
    assert not equal(Money(1), Duration(1))
    assert not equal([True], [1])


def test_values_that_hold_themselves():
    circular: list[object] = [1]
    circular.append(circular)
    other: list[object] = [1]
    other.append(other)
    assert render(circular) == "[1, […]]"
    assert equal(circular, other)
    copy = copy_value(circular)
    assert copy is not circular
    assert copy[1] is copy


def test_a_copy_shares_nothing_but_keeps_identity_inside():
    part = [1]
    cell = Cell(part)
    closure = Closure(3, (cell,))
    builder = Builder()
    builder.parts.append("x")
    value = {"a": part, "b": part, "f": closure, "ok": Ok(part), "err": Err(builder)}
    copy = copy_value(value)
    assert copy["a"] is copy["b"] is copy["ok"].value is copy["f"].captured[0].value
    assert copy["a"] is not part
    assert copy["err"].value is not builder


def test_a_host_value_is_not_sent():
    with pytest.raises(Fault, match="cannot be sent"):
        copy_value([object()])
