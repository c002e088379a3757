"""The steps of a node as a picture: a flow chart in SVG, as text.

    draw_node(node)

The flow goes from top to bottom. A condition is a diamond with a column for each of its outcomes; loops, parallel steps
and transactions are frames around their steps; what answers an error stands at the right of its step, behind a dashed
line. Steps that act outside, calls of nodes and agents, and the ends of the node have colours of their own, and say in
words what they are. The picture follows the reader's light or dark colours, loads nothing, and is the same for the
same file. What a step does is said in a few words: `POST stripe /v1/charges`, `total = a + b`.

A `_Part` is a piece of the chart that has its size and can draw itself at a place. Its axis is the line on which the
flow enters it and leaves it; pieces are joined by lining up their axes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple
from unicodedata import east_asian_width

from lyra.core.svg_graph import Canvas
from lyra.vesper.nodes.model import Node, StepDeclaration
from lyra.vesper.nodes.steps import CUSTOM, EFFECTS

_CONDITION_KEYS: Final = ("condition", "guard", "check", "expression", "rule")


def words_of(value: Any) -> str:
    """Return a setting in one line: texts as they are, other values as JSON-like text."""
    if isinstance(value, dict):
        return ", ".join(f"{key}: {words_of(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(words_of(item) for item in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else " ".join(str(value).split())


def setting(step: StepDeclaration, *keys: str) -> str:
    """Return the first of these settings that the step has, in one line; empty where it has none."""
    for key in keys:
        entry = step.settings.get(key)
        if entry is not None and entry.value is not None:
            return words_of(entry.value)
    return ""


def conditions_of(step: StepDeclaration, *keys: str) -> list[str]:
    """Return the conditions under these keys, one a line."""
    lines: list[str] = []
    for key in keys:
        entry = step.settings.get(key)
        if entry is None or entry.value is None:
            continue
        for item in entry.value if isinstance(entry.value, list) else [entry.value]:
            named = next((name for name in _CONDITION_KEYS if name in item), None) if isinstance(item, dict) else None
            lines.append(words_of(item if named is None else item[named]))
    return lines


def describe_step(step: StepDeclaration) -> list[str]:
    """Describe a step in one or two lines; the last has the number of tries and the time-out."""
    describe = _WORDS.get(step.operation)
    if describe is not None:
        lines = [describe(step)]
    else:
        lines = [
            " ".join([step.operation, *(f"{key}={words_of(item.value)}" for key, item in step.parameters.items())])
        ]
    limits = []
    if timeout := setting(step, "timeout"):
        limits.append(f"within {timeout}")
    retry = step.settings.get("retry_policy")
    if retry is not None and isinstance(retry.value, dict):
        limits.append(f"at most {words_of(retry.value.get('max_attempts', 3))} attempts")
    if limits:
        lines.append(", ".join(limits))
    return lines


def describe_answer(value: Any) -> str:
    """Return the code of a declared error, with its message where it has one."""
    if not isinstance(value, dict):
        return words_of(value)
    code = next((value[key] for key in ("error_code", "code", "error") if value.get(key) is not None), None)
    message = value.get("message")
    parts = [words_of(part) for part in (code, message) if part is not None]
    return ": ".join(parts) or words_of(value)


def describe_rule(rule: dict[str, Any]) -> str:
    """Describe what a rule does about its error besides compensating."""
    for key in ("return_error", "map_to"):
        if rule.get(key) is not None:
            return f"answers {describe_answer(rule[key])}"
    if rule.get("error_code") is not None:
        return f"answers {describe_answer(rule)}"
    action = rule.get("action")
    if action in ("retry", "backoff"):
        count = rule.get("max_attempts")
        more = rule.get("max_retries")
        if count is not None:
            return f"tries again, at most {words_of(count)} attempts"
        return "tries again" + ("" if more is None else f", at most {words_of(more)} times")
    if action == "circuit_breaker":
        return f"opens a circuit breaker after {words_of(rule.get('threshold', 5))} failures"
    if action == "return_error":
        return "answers this error"
    return "" if action in (None, "compensate") else words_of(action)


def rules_of(value: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the error and the mapping of each rule of an `on_error`, whose index is that of its entry in the file."""
    if isinstance(value, list):
        return [(_error_of(item), item) for item in value if isinstance(item, dict)]
    if not isinstance(value, dict):
        return []
    if any(key in value for key in ("action", "error_type", "error_code", "return_error", "map_to")):
        return [(_error_of(value), value)]
    return [(str(error), item if isinstance(item, dict) else {"action": item}) for error, item in value.items()]


def _error_of(rule: dict[str, Any]) -> str:
    error = str(rule.get("error_type") or rule.get("error") or "*")
    return "any error" if error in ("*", "any") else error


def _fields(step: StepDeclaration, *keys: str) -> str:
    for key in keys:
        entry = step.settings.get(key)
        if entry is not None:
            return ", ".join(map(str, entry.value)) if isinstance(entry.value, dict) else words_of(entry.value)
    return ""


def _assign(step: StepDeclaration, value: str) -> str:
    return f"{setting(step, 'output') or step.name} = {value}"


def _call(step: StepDeclaration) -> str:
    method = setting(step, "method") or "POST"
    return " ".join(part for part in (method, setting(step, "provider"), setting(step, "endpoint", "url")) if part)


def _transition(step: StepDeclaration) -> str:
    entity = setting(step, "entity")
    of_entity = f" of {entity}" if entity else ""
    return f"{setting(step, 'state_machine')}{of_entity}: {setting(step, 'from')} → {setting(step, 'to')}"


def _transform(step: StepDeclaration) -> str:
    keys: Sequence[str] = ("function", "condition", "field", "group_by", "aggregations")
    more = "; ".join(text for key in keys if (text := setting(step, key)))
    words = f"{setting(step, 'transform')} of {setting(step, 'input')}"
    return _assign(step, f"{words}: {more}" if more else words)


def _return(step: StepDeclaration) -> str:
    error = step.settings.get("return_error") or step.settings.get("error")
    if error is not None:
        return describe_answer(error.value)
    return _fields(step, "return_success", "success")


_WORDS: Final[dict[str, Callable[[StepDeclaration], str]]] = {
    "state_machine_transition": _transition,
    "database_query": lambda step: setting(step, "query"),
    "database_write": lambda step: f"adds a row to {setting(step, 'table')}: {_fields(step, 'data')}",
    "database_update": lambda step: (
        f"changes {_fields(step, 'set')} in {setting(step, 'table')} where {setting(step, 'where')}"
    ),
    "database_delete": lambda step: f"removes rows from {setting(step, 'table')} where {setting(step, 'where')}",
    "external_api_call": _call,
    "event_publish": lambda step: f"publishes {setting(step, 'event_type')}",
    "event_subscribe": lambda step: f"subscribes {setting(step, 'handler')} to {setting(step, 'event_type')}",
    "data_transform": _transform,
    "string_template": lambda step: _assign(step, f"“{setting(step, 'template')}”"),
    "arithmetic": lambda step: _assign(step, setting(step, "expression")),
    "return": _return,
    "call_node": lambda step: f"runs the node {setting(step, 'node_id')}",
    "agent_call": lambda step: f"asks the agent {setting(step, 'agent')}",
    "matrix.multiply": lambda step: _assign(step, f"{setting(step, 'left')} × {setting(step, 'right')}"),
}


_GAP: Final = 30  # between one step and the next
_COLUMN_GAP: Final = 36
_SIDE_GAP: Final = 44  # from a step to what answers its errors
_PAD: Final = 20  # inside a frame
_MARGIN: Final = 24
_LINE: Final = 15
_NAME_CHARACTER: Final = 7.4
_CHARACTER: Final = 6.2
_LINE_LENGTH_MAX: Final = 44
_CONDITION_LENGTH_MAX: Final = 30
_LINES_MAX: Final = 4
_EMPTY_COLUMN: Final = 24
_STYLE: Final = """\
text.name { font-weight: 600; } text.words { font-size: 11px; fill: #3c4654; }
text.caption { font-size: 11.5px; font-weight: 600; text-anchor: start; fill: #55606e; }
.frame { fill: none; stroke: #98a2b0; stroke-width: 1.2; stroke-dasharray: 6 4; }
.effect { fill: #fff3dc; stroke: #b97a12; } .call { fill: #f1e9fd; stroke: #7d4fc0; stroke-width: 3; }
.condition { fill: #f4f6f9; stroke: #6b7684; } .success { fill: #e3f5e7; stroke: #2c8a4b; }
.failure { fill: #fdeaea; stroke: #c23b3b; } .handler { fill: #fdeaea; stroke: #c23b3b; stroke-dasharray: 5 4; }
.edge { stroke-linejoin: round; }
@media (prefers-color-scheme: dark) {
  svg > rect:first-of-type { fill: #14181f; }
  text { fill: #e6eaf0; } text.words { fill: #c3cad4; } text.caption, .label, .small { fill: #a4adba; }
  .back { fill: #14181f; } .node { fill: #1d2a44; stroke: #7d9fe6; }
  .node.effect { fill: #3a2d12; stroke: #d9a441; } .node.call { fill: #2c2142; stroke: #a981e6; }
  .node.condition { fill: #232932; stroke: #98a2b0; } .node.success { fill: #15331f; stroke: #4fb874; }
  .node.failure, .node.handler { fill: #3b1c1f; stroke: #e57373; } .node.frame { fill: none; stroke: #6b7684; }
}
"""


class _Part(NamedTuple):
    """A piece of the chart. `left` and `right` are its reach from the axis, `leaves_at` is how far below its top the
    flow leaves it; None where it ends there."""

    left: float
    right: float
    height: float
    leaves_at: float | None
    draw: Callable[[Canvas, float, float], None]  # with the axis and the top


def draw_node(node: Node) -> str:
    """Return the picture of a node's steps as a whole SVG document."""
    flow = _sequence([_start(node), *map(_step, node.flow)])
    if flow.leaves_at is not None:
        flow = _sequence([flow, _box("end", _lines("answers " + _names(node.success)), "success", shape="round")])
    parts = [flow]
    rules = [
        _handler(rule.code, {key: entry.value for key, entry in rule.settings.items()}, rule.compensation)
        for rule in node.error_handling
    ]
    if rules:
        parts.append(_frame("errors of any step", _column(rules), is_entered=False))
    width = max(part.left + part.right for part in parts) + 2 * _MARGIN
    axis = _MARGIN + max(flow.left, *(part.left for part in parts))
    width = max(width, axis + max(part.right for part in parts) + _MARGIN)
    canvas = Canvas()
    top: float = _MARGIN
    for part in parts:
        part.draw(canvas, axis, top)
        top += part.height + _GAP
    return canvas.document(f"{node.node_id}: {node.intent}", width, top - _GAP + _MARGIN, _STYLE)


def _start(node: Node) -> _Part:
    lines = _lines("takes " + _names(node.inputs)) if node.inputs else ["takes nothing"]
    before, after = len(node.contracts.preconditions), len(node.contracts.postconditions)
    counts = [f"{count} {word}" for count, word in ((before, "preconditions"), (after, "postconditions")) if count]
    return _box(node.node_id, [*lines, *([", ".join(counts)] if counts else [])], "condition", shape="round")


def _names(fields: Sequence[object]) -> str:
    return ", ".join(getattr(field, "name", "") for field in fields) or "nothing"


def _lines(text: str, length_max: int = _LINE_LENGTH_MAX) -> list[str]:
    """Return a text in lines; the last of a long one ends in an ellipsis."""
    lines = textwrap.wrap(text, length_max, break_on_hyphens=False) or [""]
    if len(lines) > _LINES_MAX:
        lines = [*lines[: _LINES_MAX - 1], lines[_LINES_MAX - 1][: length_max - 1] + "…"]
    return lines


def _cells(line: str) -> int:
    """Return how wide a line is in characters, those of East Asian scripts counted twice."""
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in line)


# ---------------------------------------------------------------- pieces
def _box(name: str, lines: Sequence[str], kind: str = "", *, shape: str = "box", title: str = "") -> _Part:
    """Return a box with a name and lines below it. Without a name the lines stand alone."""
    heads = _lines(name, _LINE_LENGTH_MAX) if name else []
    longest = max(
        [_cells(line) * _NAME_CHARACTER for line in heads] + [_cells(line) * _CHARACTER for line in lines], default=0
    )
    rows = len(heads) + len(lines)
    width, height = max(longest + 32, 96), rows * _LINE + 16
    if shape == "diamond":
        height += 26
        width = (longest + 12) / (1 - rows * _LINE / height)
    whole = title or "\n".join([name, *lines]).strip()

    def draw(canvas: Canvas, axis: float, top: float) -> None:
        canvas.box(axis - width / 2, top, width, height, kind, shape=shape, title=whole)
        first = top + (height - rows * _LINE) / 2 + 11.5
        for index, line in enumerate([*heads, *lines]):
            canvas.text(axis, first + index * _LINE, line, "name" if index < len(heads) else "words")

    ends = kind in ("success", "failure") or kind.startswith("handler")
    return _Part(width / 2, width / 2, height, None if ends else height, draw)


def _sequence(parts: Sequence[_Part]) -> _Part:
    """Return the parts below each other, with arrows between them."""
    if not parts:
        return _Part(_EMPTY_COLUMN / 2, _EMPTY_COLUMN / 2, 0, 0, _draw_nothing)
    tops = [0.0]
    for part in parts[:-1]:
        tops.append(tops[-1] + part.height + _GAP)

    def draw(canvas: Canvas, axis: float, top: float) -> None:
        for part, part_top in zip(parts, tops, strict=True):
            part.draw(canvas, axis, top + part_top)
        for part, part_top, next_top in zip(parts, tops, tops[1:], strict=False):
            if part.leaves_at is not None:
                canvas.route([(axis, top + part_top + part.leaves_at), (axis, top + next_top)])

    height = tops[-1] + parts[-1].height
    leaves_at = None if any(part.leaves_at is None for part in parts) else tops[-1] + (parts[-1].leaves_at or 0)
    return _Part(max(part.left for part in parts), max(part.right for part in parts), height, leaves_at, draw)


def _branch(head: _Part, columns: Sequence[tuple[str, _Part]]) -> _Part:
    """Return a condition with its two outcomes side by side, which meet below where both continue."""
    (_, left), (_, right) = columns
    reach = max(head.left, head.right)
    half = max((left.right + _COLUMN_GAP + right.left) / 2, reach + 14)
    top_of_columns = head.height + 14
    bottom = top_of_columns + max(left.height, right.height) + 16
    is_open = any(part.leaves_at is not None for _, part in columns)

    def draw(canvas: Canvas, axis: float, top: float) -> None:
        head.draw(canvas, axis, top)
        for sign, (label, part) in zip((-1, 1), columns, strict=True):
            middle, x = top + head.height / 2, axis + sign * half
            side = axis + sign * (head.right if sign > 0 else head.left)
            end = top + top_of_columns
            canvas.route([(side, middle), (x, middle), (x, end)], has_arrow=part.height > 0)
            canvas.label(x, (middle + end) / 2 + 2, label)
            part.draw(canvas, x, end)
            if part.leaves_at is not None:
                way = [(x, end + part.leaves_at), (x, top + bottom), (axis, top + bottom)]
                canvas.route(way, has_arrow=False)

    leaves_at = bottom if is_open else None
    return _Part(half + max(left.left, 16), half + max(right.right, 16), bottom, leaves_at, draw)


def _column(parts: Sequence[_Part]) -> _Part:
    """Return parts below each other that no flow joins, with their left sides in one line."""
    left, right = max(part.left for part in parts), max(part.left + part.right for part in parts)

    def draw(canvas: Canvas, axis: float, top: float) -> None:
        for part in parts:
            part.draw(canvas, axis - left + part.left, top)
            top += part.height + 12

    return _Part(left, right - left, sum(part.height + 12 for part in parts) - 12, None, draw)


def _beside(parts: Sequence[_Part]) -> _Part:
    """Return parts side by side, entered from one line above and left to one line below."""
    if len(parts) == 1:
        return parts[0]
    width = sum(part.left + part.right for part in parts) + _COLUMN_GAP * (len(parts) - 1)
    height = max((part.height for part in parts), default=0)
    bottom = height + 32

    def draw(canvas: Canvas, axis: float, top: float) -> None:
        x = axis - width / 2
        for part in parts:
            place = x + part.left
            canvas.route([(axis, top), (place, top), (place, top + 16)])
            part.draw(canvas, place, top + 16)
            if part.leaves_at is not None:
                way = [(place, top + 16 + part.leaves_at), (place, top + bottom), (axis, top + bottom)]
                canvas.route(way, has_arrow=False)
            x += part.left + part.right + _COLUMN_GAP

    is_open = not parts or any(part.leaves_at is not None for part in parts)
    return _Part(width / 2, width / 2, bottom, bottom if is_open else None, draw)


def _frame(caption: str, inner: _Part, *, again: str = "", is_entered: bool = True) -> _Part:
    """Return a frame around steps. With `again` an arrow leads from the end of them back to their start."""
    head = _lines(caption, 60)
    lane = 34 if again else 0
    left = inner.left + _PAD
    right = max(inner.right + _PAD + lane, max(map(_cells, head)) * 7.0 + 2 * _PAD - left)
    below_caption = len(head) * _LINE + 10
    above = below_caption + (26 if is_entered else 4)
    height = above + inner.height + _PAD + (10 if again else 0)
    is_open = bool(again) or inner.leaves_at is not None

    def draw(canvas: Canvas, axis: float, top: float) -> None:
        canvas.box(axis - left, top, left + right, height, "frame", title=caption)
        for index, line in enumerate(head):
            canvas.text(axis - left + 12, top + 18 + index * _LINE, line, "caption")
        inner.draw(canvas, axis, top + above)
        if is_entered:
            canvas.route([(axis, top + below_caption), (axis, top + above)])
        if again and inner.leaves_at is not None:
            end, side = top + above + inner.height + 10, axis + inner.right + lane / 2 + 6
            back = top + above - 14
            canvas.route([(axis, top + above + inner.leaves_at), (axis, end), (side, end), (side, back), (axis, back)])
            canvas.label(side, (end + back) / 2, again)

    return _Part(left, right, height, height if is_open else None, draw)


def _draw_nothing(canvas: Canvas, axis: float, top: float) -> None:
    """Draw a column without steps: the line past it is drawn by what it is a part of."""


# ---------------------------------------------------------------- steps
def _step(step: StepDeclaration) -> _Part:
    name = step.name if step.is_named else ""
    guards = conditions_of(step, "guards") if step.operation != "validation" else []
    captions = [part for part in (name, f"only if {' and '.join(guards)}" if guards else "") if part]
    match step.operation:
        case "conditional":
            head = _box(name, _lines(setting(step, "condition"), _CONDITION_LENGTH_MAX), "condition", shape="diamond")
            columns = [("yes", _block(step, "then")), ("no", _block(step, "else"))]
            return _branch(head, columns)
        case "for_each":
            words = f"for each {setting(step, 'as') or 'item'} in {setting(step, 'input')}"
            part = _frame(": ".join([*captions, words]), _block(step, "steps"), again="next")
        case "loop":
            limit = setting(step, "max_iterations")
            words = f"while {setting(step, 'condition')}" + (f", at most {limit} times" if limit else "")
            part = _frame(": ".join([*captions, words]), _block(step, "steps"), again="again")
        case "parallel":
            words = ": ".join([*captions, "at once"])
            part = _frame(words, _beside([_step(inner) for inner in step.blocks.get("steps", ())]))
        case "transaction":
            part = _frame(": ".join([*captions, "transaction, all steps or none"]), _block(step, "steps"))
        case _:
            part = _act(step, name, guards)
    part = _with_handlers(part, _handlers_of(step))
    if "if_found" in step.blocks or "if_empty" in step.blocks:
        head = _box("", ["rows found?"], "condition", shape="diamond")
        columns = [("yes", _block(step, "if_found")), ("no", _block(step, "if_empty"))]
        return _sequence([part, _branch(head, columns)])
    return part


def _block(step: StepDeclaration, name: str) -> _Part:
    return _sequence([_step(inner) for inner in step.blocks.get(name, ())])


def _act(step: StepDeclaration, name: str, guards: Sequence[str]) -> _Part:
    """Return a step without steps inside it as a box."""
    if step.operation == "return":
        is_error = "return_error" in step.settings or "error" in step.settings
        words = ("fails with " if is_error else "answers ") + describe_step(step)[0]
        part = _box(name, _lines(words), "failure" if is_error else "success", shape="round")
        return (
            part
            if not guards
            else _branch(
                _box("", _lines(" and ".join(guards), _CONDITION_LENGTH_MAX), "condition", shape="diamond"),
                [("yes", part), ("no", _sequence([]))],
            )
        )
    if step.operation == "validation":
        checks = conditions_of(step, "guards", "conditions", "condition", "rules", "checks")
        lines = [f"✓ {line}" for check in checks[:6] for line in _lines(check)[:1]]
        if len(checks) > 6:
            lines.append(f"and {len(checks) - 6} more")
        return _box(name or "checks", lines, title="\n".join(checks))
    lines = [line for words in describe_step(step) for line in _lines(words)]
    if guards:
        lines = [*_lines("only if " + " and ".join(guards)), *lines]
    is_call = step.operation in ("call_node", "agent_call")
    acts = step.operation in EFFECTS or step.operation.startswith(CUSTOM)
    whole = "\n".join(part for part in (step.name, step.description, *describe_step(step)) if part)
    return _box(name, lines, "call" if is_call else "effect" if acts else "", title=whole)


# ---------------------------------------------------------------- errors
def _handlers_of(step: StepDeclaration) -> list[_Part]:
    parts = []
    failure = step.settings.get("on_failure") or step.settings.get("return_error")
    if step.operation == "validation" and failure is not None and failure.value is not None:
        answer = failure.value
        if isinstance(answer, dict) and answer.get("return_error") is not None:
            answer = answer["return_error"]
        parts.append(_box("not all true", _lines(f"answers {describe_answer(answer)}"), "handler"))
    rules = step.settings.get("on_error") or step.settings.get("error_handling")
    if rules is not None:
        for index, (error, rule) in enumerate(rules_of(rules.value)):
            parts.append(_handler(error, rule, step.compensations.get(index, ())))
    return parts


def _handler(error: str, rule: dict[str, object], compensation: Sequence[StepDeclaration]) -> _Part:
    """Return the picture of an error's handler: its compensation and its answer."""
    name = "any error" if error in ("*", "any") else error
    words = describe_rule(dict(rule))
    if not compensation:
        return _box(name, _lines(words) if words else [], "handler")
    inner = [_step(inner) for inner in compensation]
    if words:
        inner.append(_box("", _lines(words), "handler"))
    return _frame(f"{words_of(name)}: compensation", _sequence(inner), is_entered=False)


def _with_handlers(part: _Part, handlers: Sequence[_Part]) -> _Part:
    """Return a part with what answers its errors at its right."""
    if not handlers:
        return part
    lane = part.right + _SIDE_GAP / 2
    edge = part.right + _SIDE_GAP
    height = max(part.height, sum(handler.height + 10 for handler in handlers) - 10)

    def draw(canvas: Canvas, axis: float, top: float) -> None:
        part.draw(canvas, axis, top)
        middle, y = top + min(part.height / 2, 40), top
        for handler in handlers:
            target = y + min(handler.height / 2, 24)
            canvas.route(
                [(axis + part.right, middle), (axis + lane, middle), (axis + lane, target), (axis + edge, target)],
                "error",
            )
            handler.draw(canvas, axis + edge + handler.left, y)
            y += handler.height + 10

    right = edge + max(handler.left + handler.right for handler in handlers)
    return _Part(part.left, right, height, part.leaves_at, draw)
