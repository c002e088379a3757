"""What an execution is charged for: one table of the IR, read by both paths and by the reference evaluator.

An execution has a number of steps (`NodeLimits.steps`); one more ends it with `resource_limit`. A row says what one
step of a part is, and whether the part is charged everywhere or only in the rounds of a loop: outside loops its work is
bounded by the size of its value, and generated code stays plain. Elements are charged all at once, before the first is
looked at. The rounds of a loop are the steps of a `for_each`, the condition and the steps of a `loop`, and the body of
an expression over a collection.

The size of values is bounded for all in the same places: a text when it is made, and an array when each of its elements
is made, by `ELEMENT_BYTES` and the characters of a text.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from lyra.vesper import ir


class Charge(NamedTuple):
    unit: str  # what one step is
    is_always: bool  # False: charged only in the rounds of a loop


CHARGES: Final[dict[type[ir.Step | ir.TypedExpression], Charge]] = {
    ir.ForEachStep: Charge("an element", is_always=True),
    ir.LoopStep: Charge("a round", is_always=True),
    ir.MatrixProduct: Charge("a product of two numbers", is_always=True),
    ir.Quantifier: Charge("an element", is_always=False),
    ir.Aggregate: Charge("an element", is_always=False),
    ir.MapOver: Charge("an element", is_always=False),
    ir.Filter: Charge("an element", is_always=False),
    ir.Reduce: Charge("an element", is_always=False),
    ir.GroupBy: Charge("an element", is_always=False),
    # those of which the table of functions says so
    ir.FunctionCall: Charge("an element, or so many characters, of an argument", is_always=False),
}


def is_charged(kind: type[ir.Step | ir.TypedExpression], *, in_loop: bool) -> bool:
    """Return whether a part of this kind is charged."""
    charge = CHARGES.get(kind)
    return charge is not None and (charge.is_always or in_loop)
