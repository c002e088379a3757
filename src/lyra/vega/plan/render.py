"""A plan for people and for tools: as text, as a DOT graph, as an SVG picture drawn here."""

from __future__ import annotations

import ast
from typing import Final

from lyra.agents.parallel.source.plan import CallSite, plan_of
from lyra.core.svg_graph import Canvas
from lyra.vega.plan.plan import Alone, Overlapping, OverlapPlan, PlannedCall


def text_of(plan: OverlapPlan) -> str:
    lines: list[str] = []
    for group in plan.groups:
        lines.append(f"{_title(group)}:")
        lines.extend(f"  {_place(call)}  {call.text}{_facts(call)}" for call in group.calls)
        lines.extend(f"  unless {why}" for why in dict.fromkeys(call.unless for call in group.calls if call.unless))
        lines.append("")
    if plan.alone:
        lines.append("in their turn:")
        for row in plan.alone:
            lines.append(f"  {_place(row.call)}  {row.call.text}")
            lines.append(f"      {row.why}")
    elif not plan.groups:
        lines.append(f"{plan.name} asks no agent")
    return "\n".join(lines).rstrip() + "\n"


def _title(group: Overlapping) -> str:
    if group.is_declared:
        return f"side by side in {group.function}, as `parallel` says"
    again = ", when the answers they need are there" if group.step > 1 else ""
    return f"side by side in {group.function}{again}"


def _place(call: PlannedCall) -> str:
    return f"{call.file}:{call.line}:{call.column}"


def _facts(call: PlannedCall) -> str:
    facts = [call.agent] if call.agent else []
    if call.in_loop:
        facts.append("each turn of its loop")
    if call.after:
        facts.append(f"needs line {', '.join(map(str, call.after))}")
    return f"  ({'; '.join(facts)})" if facts else ""


def dot_of(plan: OverlapPlan) -> str:
    lines = ["digraph plan {", "  rankdir=LR;", '  node [shape=box, fontname="sans-serif"];']
    names = {_key(call): f"c{index}" for index, call in enumerate(plan.calls)}
    for index, group in enumerate(plan.groups):
        lines.append(f"  subgraph cluster_{index} {{")
        lines.append(f"    label={_quote(_title(group))};")
        lines.extend(f"    {names[_key(call)]} [label={_quote(_label(call))}];" for call in group.calls)
        lines.append("  }")
    for row in plan.alone:
        text = f"{_label(row.call)}\n{row.why}"
        lines.append(f"  {names[_key(row.call)]} [label={_quote(text)}, style=dashed];")
    lines.extend(f"  {names[_key(earlier)]} -> {names[_key(other)]};" for earlier, other in _edges(plan))
    return "\n".join([*lines, "}"]) + "\n"


def _key(call: PlannedCall) -> tuple[str, int, int]:
    return call.file, call.line, call.column


def _label(call: PlannedCall) -> str:
    return f"line {call.line}: {call.text}" + (" …" if call.in_loop else "")


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _edges(plan: OverlapPlan) -> list[tuple[PlannedCall, PlannedCall]]:
    """From each call to those that need its answer."""
    by_line: dict[tuple[str, int], list[PlannedCall]] = {}
    for call in plan.calls:
        by_line.setdefault((call.file, call.line), []).append(call)
    return [
        (earlier, call)
        for call in plan.calls
        for line in call.after
        for earlier in by_line.get((call.file, line), ())
        if earlier != call
    ]


_WIDTH: Final = 300
_HEIGHT: Final = 34
_MARGIN: Final = 24
_TEXT_LENGTH_MAX: Final = 44
_STYLE: Final = """\
text { text-anchor: start; } .title { font-size: 13px; } .why { fill: #777766; font-style: italic; }
.alone { fill: #ffffff; stroke-dasharray: 4 3; }
"""


def svg_of(plan: OverlapPlan, *, embedded: bool = False) -> str:
    """Time goes to the right: what stands in one column is under way together. With `embedded` it is an `<svg>` element
    for a page that has the style sheet."""
    canvas = Canvas()
    corners: dict[tuple[str, int, int], tuple[int, int]] = {}
    alone = [(row.call, int(bool(row.call.after)), "alone", row.why) for row in plan.alone]
    sections = [
        (_title(group), [(call, max(group.step, 1) - 1, "", "") for call in group.calls]) for group in plan.groups
    ]
    if alone or not sections:
        sections.append(("in their turn" if alone else f"{plan.name} asks no agent", alone))
    y = _MARGIN
    for title, calls in sections:
        canvas.text(_MARGIN, y + 12, title, "title")
        y += 22
        for call, column, kind, why in calls:
            x = _MARGIN + column * (_WIDTH + 70)
            corners[_key(call)] = (x, y)
            canvas.box(x, y, _WIDTH, _HEIGHT, kind, title=f"{_place(call)} {call.text}")
            canvas.text(x + 10, y + 21, _label(call), length_max=_TEXT_LENGTH_MAX)
            if why:
                canvas.text(x + _WIDTH + 10, y + 21, why, "why")
            y += _HEIGHT + 10
        y += 10
    for source, target in _edges(plan):
        (x1, y1), (x2, y2) = corners[_key(source)], corners[_key(target)]
        x1, y1, y2 = x1 + _WIDTH, y1 + _HEIGHT // 2, y2 + _HEIGHT // 2
        bend = max(abs(x2 - x1) // 2, 30)
        canvas.curve([(x1, y1), (x1 + bend, y1), (x2 - bend, y2), (x2, y2)])
    width = max((x for x, _ in corners.values()), default=0) + _WIDTH + 480
    if embedded:
        return canvas.element(plan.name, width, y + _MARGIN)
    return canvas.document(plan.name, width, y + _MARGIN, _STYLE)


def plan_of_python(text: str, name: str) -> OverlapPlan:
    """Return the plan of a source that is not imported; ParseError when it is no Python."""
    plan = plan_of(text, name)
    groups = [
        Overlapping(
            function=function,
            step=step,
            calls=tuple(_describe_call(call, name, unless=_unless(call)) for call in calls),
        )
        for function, step, calls in plan.groups
    ]
    alone = [Alone(_describe_call(call, name), why) for _, call, why in plan.alone]
    alone += [
        Alone(PlannedCall(name, line, 1, f"@lyra.parallel {function}"), f"the function is refused: {why}")
        for function, line, why in plan.refused
    ]
    return OverlapPlan(name, tuple(groups), tuple(sorted(alone, key=lambda note: note.call.line)))


def _unless(call: CallSite) -> str:
    """Say what decides when the function runs: whom it asks, and where that one lives."""
    more = "the agent has a memory, a limit, a prompt made anew for each call, or tools that do more than read"
    asked = call.node.value if isinstance(call.node, ast.Await) else call.node
    if isinstance(asked, ast.Call) and isinstance(asked.func, ast.Attribute) and asked.func.attr == "send":
        return f"a journal keeps the conversation, or {more}"
    if isinstance(asked, ast.Call) and any(keyword.arg == "on" for keyword in asked.keywords):
        return f"`on` is a kernel with a journal (a program's ctx may have one), or {more}"
    return more


def _describe_call(call: CallSite, name: str, *, unless: str = "") -> PlannedCall:
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
