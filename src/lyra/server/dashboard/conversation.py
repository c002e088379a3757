"""A conversation as HTML: what the person and the agent said, with tool calls folded inline and the cost of each turn.

`static/chat.js` draws an answer that is on its way with the same classes. Text is shown as text, never as HTML or
Markdown: it comes from models and from tools.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.codec import to_plain
from lyra.core.event import ModelCalled
from lyra.core.message import Message
from lyra.core.tool import ToolCall, ToolResult
from lyra.server.dashboard.html import Child, Html, join, tag
from lyra.server.dashboard.words import money, state
from lyra.server.owners import OwnedPid, owner_if_known

if TYPE_CHECKING:
    from lyra.kernel.process.process import Process
    from lyra.server.http.endpoint import HttpCall


_SHORT_CHARS: Final = 80


def speaker(call: HttpCall, process: Process) -> str:
    """Who says what an agent is asked: "You" where the words are the viewer's own, else the user or the agent that
    asks; of a process that no person talks to, a program."""
    if process.parent is not None and process.parent.program.startswith("agent:"):
        return process.parent.name or process.parent.program.partition(":")[2]
    owner, caller = owner_if_known(call.kernel, process.pid), call.caller
    if OwnedPid.read(process.pid) is None:
        return owner or "Program"
    return "You" if owner == caller.user_id and caller.may_change else owner or "Operator"


def conversation(
    messages: Sequence[Message], calls: Sequence[ModelCalled], *, agent: str, person: str, is_running: bool
) -> Html:
    """All turns; `person` is who asks the agent. `calls` are the last ones of the model; the newest call gave the
    newest message of the agent. Of a turn that is under way only the question is drawn: its answer comes as events."""
    spoken = list(messages)
    if is_running:
        last = max((place for place, row in enumerate(spoken) if row.role == "user"), default=len(spoken) - 1)
        spoken = spoken[: last + 1]
    results = {result.id: result for row in messages for result in row.tool_results}
    answers = [row for row in messages if row.role == "assistant"]
    priced = dict(zip((id(row) for row in reversed(answers)), reversed(calls), strict=False))
    parts: list[Child] = []
    for turn in _turns(spoken):
        parts += _turn(turn, results, [priced[id(row)] for row in turn if id(row) in priced], agent, person)
    return join(parts)


def _turns(messages: Sequence[Message]) -> list[list[Message]]:
    """Return the messages, each turn from a question to the last answer to it."""
    turns: list[list[Message]] = []
    for message in messages:
        if message.role == "user" or not turns:
            turns.append([])
        turns[-1].append(message)
    return turns


def _turn(
    turn: list[Message], results: dict[str, ToolResult], calls: list[ModelCalled], agent: str, person: str
) -> list[Child]:
    parts: list[Child] = []
    answer: list[Child] = []
    for message in turn:
        if message.role == "user":
            parts.append(_render_spoken("you", person, [tag("p", message.text, class_="text")]))
        elif message.role == "assistant":
            if message.text:
                answer.append(tag("p", message.text, class_="text"))
            answer += [tool_part(call, results.get(call.id)) for call in message.tool_calls]
    if answer:
        parts.append(_render_spoken("agent", agent, [*answer, _cost_line(calls)]))
    return parts


def _render_spoken(who: str, name: str, children: list[Child]) -> Html:
    return tag("article", tag("h3", name), *children, class_=f"said {who}")


def _cost_line(calls: list[ModelCalled]) -> Html | None:
    if not calls:
        return None
    is_known = all(call.cost_usd is not None for call in calls)
    spent = money(sum(call.micro_usd for call in calls)) if is_known else "cost not known"
    taken, given = sum(call.input_tokens for call in calls), sum(call.output_tokens for call in calls)
    return tag("p", f"{spent} · {taken:,} tokens in, {given:,} out", class_="note cost")


def tool_part(call: ToolCall, result: ToolResult | None) -> Html:
    """Return a call of a tool, folded: its name, its arguments in short, how it ended."""
    arguments = _render_value(call.arguments)
    if result is None:
        mark = state("waiting", "no result")
    else:
        mark = state("error") if result.is_error else state("ok", "done")
    head = tag("summary", tag("code", call.name), " ", tag("code", _short(arguments), class_="note"), " ", mark)
    body: list[Child] = [tag("h4", "Arguments"), tag("pre", tag("code", arguments))]
    if result is not None:
        body += [tag("h4", "Result"), tag("pre", tag("code", _render_value(result.output)))]
    return tag("details", head, *body, class_="tool")


def _render_value(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=to_plain), indent=2).decode()


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHORT_CHARS else f"{line[: _SHORT_CHARS - 1]}…"
