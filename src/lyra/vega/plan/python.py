"""The plan of a Python file's `@lyra.parallel` functions, in the same words as a Vega program's."""

from __future__ import annotations

import ast

from lyra.agents.parallel.source.plan import CallSite, plan_of
from lyra.vega.plan.notes import Alone, Overlapping, PlannedCall
from lyra.vega.plan.plan import OverlapPlan


def plan_of_python(text: str, name: str) -> OverlapPlan:
    """The plan of a source that is not imported; ParseError when it is no Python."""
    plan = plan_of(text, name)
    groups = [
        Overlapping(function=function, step=step, calls=tuple(_early(call, name) for call in calls))
        for function, step, calls in plan.groups
    ]
    alone = [Alone(_planned(call, name), why) for _, call, why in plan.alone]
    alone += [
        Alone(PlannedCall(name, line, 1, f"@lyra.parallel {function}"), f"the function is refused: {why}")
        for function, line, why in plan.refused
    ]
    return OverlapPlan(name, tuple(groups), tuple(sorted(alone, key=lambda note: note.call.line)))


def _early(call: CallSite, name: str) -> PlannedCall:
    return _planned(call, name, unless=_unless(call))


def _unless(call: CallSite) -> str:
    """What decides when the function runs: whom it asks, and where that one lives."""
    more = "the agent has a memory, a limit, a prompt made anew for each call, or tools that do more than read"
    asked = call.node.value if isinstance(call.node, ast.Await) else call.node
    if isinstance(asked, ast.Call) and isinstance(asked.func, ast.Attribute) and asked.func.attr == "send":
        return f"a journal keeps the conversation, or {more}"
    if isinstance(asked, ast.Call) and any(keyword.arg == "on" for keyword in asked.keywords):
        return f"`on` is a kernel with a journal (a program's ctx may have one), or {more}"
    return more


def _planned(call: CallSite, name: str, *, unless: str = "") -> PlannedCall:
    return PlannedCall(
        file=name,
        line=call.line,
        column=call.node.col_offset + 1,
        text=ast.unparse(call.node),
        agent=ast.unparse(call.target),
        in_loop=call.in_loop,
        after=tuple(sorted({other.line for other in call.after})),
        unless=unless,
    )
