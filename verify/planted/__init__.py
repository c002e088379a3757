"""Planted bugs: changes to Lyra's functions during a test, which the comparisons of random programs must notice.

A comparison that never fails proves nothing. Each rule that the shipped code keeps has a row here which breaks it:
the functions concerned, the piece of their source that keeps the rule, and the code that stands there instead.

    apply                 changes functions for the time of a `with` block
    vega_early_calls      bugs in the early calls of Vega programs, by rule
    vega_generated_code   bugs in the generated code of Vega functions, by guard
    agent_early_calls     bugs in the early calls of Python functions, by rule
"""

from __future__ import annotations

from verify.planted.apply import Change, PlantingError, changed, planted

__all__ = ["Change", "PlantingError", "changed", "planted"]
