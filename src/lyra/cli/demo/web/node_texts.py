"""The Vesper nodes of the web demo: two that agree on both paths, and one whose direct path has a mistake.

The mistake is planted in the path, not in the node (`MistakenPath`): loyalty points of large orders are rounded the
other way. The runtime finds it by comparing, and takes the node back to where Python answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

if TYPE_CHECKING:
    from lyra.vesper.effects.request import Effects
    from lyra.vesper.ir import NodeProgram
    from lyra.vesper.values.outcome import Execution, Outcome


_LOYALTY: Final = "loyalty_points_v1"
_LARGE: Final = 950  # euros, from where the planted mistake shows
_CLEAN: Final = 300  # executions before the first large order

NODES: Final[dict[str, str]] = {
    "shipping_quote_v1": """\
node_id: shipping_quote_v1
type: function
intent: Quote the price of a shipment
inputs:
  weight: {type: decimal, constraints: [positive]}
  country: string
outputs:
  success: {price: decimal}
  error: {error_code: "enum[too_heavy]", message: string}
contracts:
  postconditions: [success => price > 0]
flow:
  - step: check_weight
    operation: validation
    guards: [weight <= 30]
    on_failure: {return_error: {error_code: too_heavy, message: "{weight} kg is more than 30 kg"}}
  - step: choose_zone
    operation: conditional
    condition: country == "DE"
    then:
      - {step: home, operation: arithmetic, expression: "4.90", output: base}
    else:
      - {step: abroad, operation: arithmetic, expression: "9.90", output: base}
  - {step: find, operation: arithmetic, expression: base + weight * 0.35, scale: 2, rounding: half_up, output: price}
""",
    "order_total_v1": """\
node_id: order_total_v1
type: function
intent: Add tax to the total of an order
inputs:
  subtotal: {type: decimal, scale: 2, min: 0}
  tax_percent: {type: decimal, default: "19", min: 0, max: 50}
outputs:
  success: {tax: decimal, total: decimal}
  error: {error_code: "enum[invalid]", message: string}
contracts:
  postconditions: [success => total == subtotal + tax]
flow:
  - step: find_tax
    operation: arithmetic
    expression: subtotal * tax_percent / 100
    scale: 2
    rounding: half_up
    output: tax
  - {step: find_total, operation: arithmetic, expression: subtotal + tax, output: total}
""",
    _LOYALTY: """\
node_id: loyalty_points_v1
type: function
intent: Count the points of an order
inputs:
  total: {type: decimal, scale: 2, min: 0}
outputs:
  success: {points: decimal}
  error: {error_code: "enum[invalid]", message: string}
flow:
  - {step: count, operation: arithmetic, expression: total / 10, scale: 0, rounding: half_up, output: points}
""",
}


class MistakenPath:
    """The direct path, with one mistake: one loyalty point too many for large orders."""

    def __init__(self) -> None:
        from lyra.vesper.runtime.paths import DirectPath

        self._direct = DirectPath()

    def run(self, program: NodeProgram, inputs: Mapping[str, Any], execution: Execution) -> Outcome:
        outcome: Outcome = self._direct.run(program, inputs, execution)
        if program.node_id == _LOYALTY and outcome.error is None and outcome.outputs["points"] >= _LARGE // 10:
            return replace(outcome, outputs={**outcome.outputs, "points": outcome.outputs["points"] + 1})
        return outcome

    def start(
        self, program: NodeProgram, inputs: Mapping[str, Any], execution: Execution, effects: Effects
    ) -> Awaitable[Outcome]:
        pending: Awaitable[Outcome] = self._direct.start(program, inputs, execution, effects)
        return pending


def inputs_of(node_id: str, number: int) -> dict[str, Any]:
    """The inputs of the execution of that number."""
    if node_id == "shipping_quote_v1":
        return {"weight": f"{1 + number * 7 % 29}.5", "country": ("DE", "FR", "IT")[number % 3]}
    if node_id == "order_total_v1":
        return {"subtotal": f"{number * 131 % 400}.{number % 100:02}"}
    return {"total": f"{number * 97 % (960 if number > _CLEAN else 900)}.00"}
