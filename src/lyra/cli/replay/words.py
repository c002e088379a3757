"""Steps and moments of a run as lines of text for a terminal or a pipe."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from lyra.cli.render import printable

if TYPE_CHECKING:
    from lyra.observe.timeline.step import RunStep


_TEXT_SHOWN: Final = 2_000
_KIND_WIDTH: Final = 10


def dollars(micro_usd: int) -> str:
    return f"${micro_usd / 1_000_000:.6f}".rstrip("0").rstrip(".") if micro_usd else "$0"


def step_line(step: RunStep, *, is_here: bool = False, side: str = "") -> str:
    """One step on one line: number, kind, what, what came of it, what it cost. `side` stands before it."""
    came = f" → {step.status}: {step.error}" if step.error else f" → {step.result}" if step.result else ""
    if step.status in ("running", "waiting", "cut_off"):
        came = f" → {step.status}"
    asked = f" {step.request}" if step.request else ""
    cost = f"  {dollars(step.micro_usd)}" if step.micro_usd else ""
    tokens = f"  {step.tokens} tokens" if step.tokens else ""
    recorded = "  (recorded)" if step.is_recorded and (step.micro_usd or step.tokens) else ""
    tries = f"  {step.tries} tries" if step.tries > 1 else ""
    head = f"{side}{'>' if is_here else ' '}{step.number:>4} {step.pid:<8} {step.kind:<{_KIND_WIDTH}}"
    return fitted(printable(f"{head} {step.what}{asked}{came}{cost}{tokens}{recorded}{tries}"))


def fitted(line: str) -> str:
    """The line cut to the width of the terminal; for a pipe it is whole."""
    if not sys.stdout.isatty():
        return line
    columns = shutil.get_terminal_size().columns
    return line if len(line) <= columns else f"{line[: columns - 1]}…"


def cost_words(totals: Mapping[str, Any]) -> str:
    usage, recorded = totals["usage"], totals["recorded"]
    words = f"{dollars(usage.get('usd', 0))}, {_tokens(usage)} tokens, {usage.get('llm_calls', 0)} model calls"
    if recorded:
        words += f" (and {dollars(recorded.get('usd', 0))}, {_tokens(recorded)} tokens in the run it was forked from)"
    return words


def _tokens(usage: Mapping[str, int]) -> int:
    return usage.get("input_tokens", 0) + usage.get("output_tokens", 0)


def conversation_lines(conversation: Mapping[str, Any]) -> list[str]:
    messages = conversation["messages"]
    lines = []
    if conversation["count"] > len(messages):
        lines.append(f"  … {conversation['count'] - len(messages)} messages before these")
    for message in messages:
        if message["text"] or not (message.get("tool_calls") or message.get("tool_results")):
            lines += _indented(f"{message['role']}: {message['text']}")
        for call in message.get("tool_calls", ()):
            lines += _indented(f"{message['role']} calls {call['name']}({_json(call['arguments'])})")
        for result in message.get("tool_results", ()):
            word = "fails" if result.get("is_error") else "gives"
            outcome = "has no result yet" if result.get("is_open") else f"{word} {_json(result['output'])}"
            lines += _indented(f"tool {result['name']} {outcome}")
    return [printable(line) for line in lines]


def value_lines(values: Mapping[str, Any]) -> list[str]:
    return [printable(f"  {name} = {_json(value)[:_TEXT_SHOWN]}") for name, value in values.items()]


def variable_lines(moment: Mapping[str, Any]) -> list[str]:
    """The variables of the program where it is known, a function a block, and what the journal knows."""
    lines = []
    for frame in moment.get("frames", ()):
        beside = f" (beside others: {frame['branch']})" if frame["branch"] else ""
        lines.append(printable(f"  in {frame['function']}, {_short_path(frame['file'])}:{frame['line']}{beside}"))
        lines += [f"  {line}" for line in value_lines(frame["variables"])]
    known = value_lines(moment["variables"])
    return [*lines, "  from the journal", *(f"  {line}" for line in known)] if lines and known else [*lines, *known]


def _short_path(file: str) -> str:
    """A file below the current folder as it is called from there."""
    here = os.path.join(os.getcwd(), "")
    return file[len(here) :] if file.startswith(here) else file


def budget_lines(budget: list[Mapping[str, Any]]) -> list[str]:
    lines = []
    for scope in budget:
        names = dict.fromkeys((*scope["limits"], *scope["used"], *scope["reserved"]))
        for name in names:
            if name in ("on_exceed",):
                continue
            lines.append(f"  {scope['pid']} {name}: {_amounts(name, scope)}")
    return [printable(line) for line in lines]


def _amounts(name: str, scope: Mapping[str, Any]) -> str:
    def shown(amount: Any) -> str:
        return dollars(amount) if name == "usd" and isinstance(amount, int) else str(amount)

    used, reserved, limit = scope["used"].get(name, 0), scope["reserved"].get(name, 0), scope["limits"].get(name)
    recorded = scope.get("recorded", {}).get(name, 0)
    words = f"{shown(used)} used"
    words += f", {shown(reserved)} set aside" if reserved else ""
    words += f", of {shown(limit)}" if limit is not None else ""
    return words + (f" (recorded: {shown(recorded)})" if recorded else "")


def tree_lines(tree: list[Mapping[str, Any]]) -> list[str]:
    lines = []
    for row in tree:
        words = [
            row["name"] or row["program"],
            row["pid"],
            row["state"] + (f": {row['reason']}" if row["reason"] else ""),
        ]
        if row["starts"] > 1:
            words.append(f"start {row['starts']}")
        if row["doing"]:
            words.append(f"at {row['doing']}")
        if row["micro_usd"]:
            words.append(dollars(row["micro_usd"]))
        if row["error"]:
            words.append(row["error"])
        lines.append(printable(f"  {'  ' * row['depth']}{'  '.join(words)}"))
    return lines


def moment_lines(moment: Mapping[str, Any], step: RunStep | None) -> list[str]:
    """Everything about a moment."""
    lines = [step_line(step, is_here=True) if step is not None else "> before the first step"]
    sections = (
        ("conversation", conversation_lines(moment["conversation"])),
        ("variables", variable_lines(moment)),
        ("budget", budget_lines(moment["budget"])),
        ("mailbox", [printable(f"  {text}") for text in moment["mailbox"]["messages"]]),
        ("tree", tree_lines(moment["tree"])),
    )
    for title, part in sections:
        if part:
            lines += [f"{title}:", *part]
    return lines


def _json(value: Any) -> str:
    if isinstance(value, str):
        return value
    import json

    return json.dumps(value, ensure_ascii=False, default=str)


def _indented(text: str) -> list[str]:
    first, *rest = text[:_TEXT_SHOWN].split("\n")
    return [f"  {first}", *(f"    {line}" for line in rest)]
