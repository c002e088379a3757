"""The plan of a Python file's `@lyra.parallel` functions, in the same words as a Vega program's."""

from __future__ import annotations

import ast

from lyra.agents.overlap.picture import picture_of
from lyra.agents.overlap.stretches import Called
from lyra.vega.plan.notes import Alone, Overlapping, PlannedCall
from lyra.vega.plan.plan import Plan

__all__ = ["plan_of_python"]


def plan_of_python(text: str, name: str) -> Plan:
    """The plan of a source that is not imported; ParseError when it is no Python."""
    picture = picture_of(text, name)
    groups: list[Overlapping] = []
    alone: list[Alone] = []
    for function, calls, in_loop in picture.groups:
        levels = _levels(calls)
        for level in sorted(set(levels.values())):
            found = [call for call in calls if levels[call.number] == level]
            planned = tuple(_planned(call, name, in_loop=in_loop, unless=_unless(call)) for call in found)
            if len(planned) > 1 or in_loop:
                groups.append(Overlapping(function=function, step=level, calls=planned))
            else:
                alone.append(Alone(planned[0], f"it needs the answer of line {', '.join(map(str, planned[0].after))}"))
    alone += [Alone(_planned(call, name), why) for _, call, why in picture.alone]
    alone += [
        Alone(PlannedCall(name, line, 1, f"@lyra.parallel {function}"), f"the function is refused: {why}")
        for function, line, why in picture.refused
    ]
    return Plan(name, tuple(groups), tuple(sorted(alone, key=lambda each: each.call.line)))


def _levels(calls: list[Called]) -> dict[int, int]:
    """1 for a call that needs no answer of its stretch, else one more than the latest it needs."""
    found: dict[int, int] = {}
    for call in calls:
        found[call.number] = 1 + max((found[other.number] for other in call.after), default=0)
    return found


def _unless(call: Called) -> str:
    """What decides when the function runs: whom it asks, and where that one lives."""
    more = "the agent has a memory, a prompt made anew for each call, or tools that do more than read"
    asked = call.node.value if isinstance(call.node, ast.Await) else call.node
    if isinstance(asked, ast.Call) and isinstance(asked.func, ast.Attribute) and asked.func.attr == "send":
        return f"a journal keeps the conversation, or {more}"
    if call.place is not None:
        return f"`on` is a kernel with a journal (a program's ctx may have one), or {more}"
    return more


def _planned(call: Called, name: str, *, in_loop: bool = False, unless: str = "") -> PlannedCall:
    return PlannedCall(
        file=name,
        line=call.line,
        column=call.node.col_offset + 1,
        text=ast.unparse(call.node),
        agent=ast.unparse(call.target),
        in_loop=in_loop,
        after=tuple(sorted({other.line for other in call.after})),
        unless=unless,
    )
