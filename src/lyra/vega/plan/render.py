"""A plan for people and for tools: as text, as a DOT graph, as an SVG picture drawn here."""

from __future__ import annotations

from typing import Final
from xml.sax.saxutils import escape, quoteattr

from lyra.vega.plan.notes import Overlapping, PlannedCall
from lyra.vega.plan.plan import Plan

__all__ = ["dot_of", "svg_of", "text_of"]


# ---------------------------------------------------------------- text


def text_of(plan: Plan) -> str:
    lines: list[str] = []
    for group in plan.groups:
        lines.append(f"{_title(group)}:")
        lines.extend(f"  {_place(call)}  {call.text}{_facts(call)}" for call in group.calls)
        lines.extend(f"  unless {why}" for why in dict.fromkeys(call.unless for call in group.calls if call.unless))
        lines.append("")
    if plan.alone:
        lines.append("in their turn:")
        for each in plan.alone:
            lines.append(f"  {_place(each.call)}  {each.call.text}")
            lines.append(f"      {each.why}")
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
    found = [call.agent] if call.agent else []
    if call.in_loop:
        found.append("each turn of its loop")
    if call.after:
        found.append(f"needs line {', '.join(map(str, call.after))}")
    return f"  ({'; '.join(found)})" if found else ""


# ---------------------------------------------------------------- dot


def dot_of(plan: Plan) -> str:
    lines = ["digraph plan {", "  rankdir=LR;", '  node [shape=box, fontname="sans-serif"];']
    names = {_key(call): f"c{index}" for index, call in enumerate(plan.calls)}
    for index, group in enumerate(plan.groups):
        lines.append(f"  subgraph cluster_{index} {{")
        lines.append(f"    label={_quoted(_title(group))};")
        lines.extend(f"    {names[_key(call)]} [label={_quoted(_label(call))}];" for call in group.calls)
        lines.append("  }")
    for each in plan.alone:
        text = f"{_label(each.call)}\n{each.why}"
        lines.append(f"  {names[_key(each.call)]} [label={_quoted(text)}, style=dashed];")
    lines.extend(f"  {names[_key(one)]} -> {names[_key(other)]};" for one, other in _edges(plan))
    return "\n".join([*lines, "}"]) + "\n"


def _key(call: PlannedCall) -> tuple[str, int, int]:
    return call.file, call.line, call.column


def _label(call: PlannedCall) -> str:
    return f"line {call.line}: {call.text}" + (" …" if call.in_loop else "")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _edges(plan: Plan) -> list[tuple[PlannedCall, PlannedCall]]:
    """From each call to those that need its answer."""
    by_line: dict[tuple[str, int], list[PlannedCall]] = {}
    for call in plan.calls:
        by_line.setdefault((call.file, call.line), []).append(call)
    return [
        (one, call)
        for call in plan.calls
        for line in call.after
        for one in by_line.get((call.file, line), ())
        if one != call
    ]


# ---------------------------------------------------------------- svg

_BOX: Final = (300, 34)
_GAP: Final = (70, 10)
_MARGIN: Final = 24
_STYLE: Final = (
    "text{font:12px sans-serif;fill:#223}.why{fill:#776;font-style:italic}.title{font-weight:bold}"
    "rect{fill:#eef4ff;stroke:#456}.alone{fill:#fff;stroke-dasharray:4 3}path{fill:none;stroke:#899;stroke-width:1.5}"
)


def svg_of(plan: Plan) -> str:
    """Time goes to the right: what stands in one column is under way together."""
    placed: dict[tuple[str, int, int], tuple[int, int]] = {}
    body: list[str] = []
    y = _MARGIN
    groups: list[tuple[str, list[tuple[int, PlannedCall]]]] = [
        (_title(group), [(max(group.step, 1), call) for call in group.calls]) for group in plan.groups
    ]
    for title, calls in groups:
        body.append(_text(_MARGIN, y + 12, title, "title"))
        y += 22
        for step, call in calls:
            x = _MARGIN + (step - 1) * (_BOX[0] + _GAP[0])
            placed[_key(call)] = (x, y)
            body.append(_box(x, y, _label(call), call, ""))
            y += _BOX[1] + _GAP[1]
        y += _GAP[1]
    if plan.alone:
        body.append(_text(_MARGIN, y + 12, "in their turn", "title"))
        y += 22
    for each in plan.alone:
        x = _MARGIN + (_BOX[0] + _GAP[0] if each.call.after else 0)
        placed[_key(each.call)] = (x, y)
        body.append(_box(x, y, _label(each.call), each.call, "alone"))
        body.append(_text(x + _BOX[0] + 10, y + 21, each.why, "why"))
        y += _BOX[1] + _GAP[1]
    arrows = [_arrow(placed[_key(one)], placed[_key(other)]) for one, other in _edges(plan)]
    width = max([x for x, _ in placed.values()], default=0) + _BOX[0] + 480
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y + _MARGIN}" '
        f'viewBox="0 0 {width} {y + _MARGIN}"><title>{escape(plan.name)}</title><style>{_STYLE}</style>'
    )
    return "\n".join([head, *arrows, *body, "</svg>"]) + "\n"


def _box(x: int, y: int, label: str, call: PlannedCall, kind: str) -> str:
    short = label if len(label) <= 44 else label[:43] + "…"
    title = f"<title>{escape(f'{_place(call)} {call.text}')}</title>"
    rect = f'<rect x="{x}" y="{y}" width="{_BOX[0]}" height="{_BOX[1]}" rx="5" class={quoteattr(kind)}/>'
    return f"<g>{title}{rect}{_text(x + 10, y + 21, short)}</g>"


def _text(x: int, y: int, text: str, kind: str = "") -> str:
    return f'<text x="{x}" y="{y}" class={quoteattr(kind)}>{escape(text)}</text>'


def _arrow(one: tuple[int, int], other: tuple[int, int]) -> str:
    """From the right side of one box to the left side of another."""
    x1, y1 = one[0] + _BOX[0], one[1] + _BOX[1] // 2
    x2, y2 = other[0], other[1] + _BOX[1] // 2
    bend = max(abs(x2 - x1) // 2, 30)
    return f'<path d="M{x1} {y1} C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"/>'
