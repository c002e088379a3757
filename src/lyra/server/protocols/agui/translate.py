"""From the events of an agent's turn to the events of AG-UI: which message, reasoning, call or step is open.

`feed` takes one event and gives those that tell it; `close` ends what is open, so that a run may end. Pure: it knows no
kernel and no stream. The table `_FEEDS` has a row for each kind of event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lyra.agents.session.events import (
    AgentEvent,
    AnswerDone,
    HookNotice,
    Interrupted,
    Restart,
    Text,
    Thinking,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    UsageTold,
)
from lyra.agents.turn.model_effect import CallDraft
from lyra.models.stream import CUT_BY_BUDGET, CUT_BY_PROVIDER
from lyra.server.protocols.agui.messages import MessageIds, as_json, as_text
from lyra.server.protocols.agui.sdk import agui_types
from lyra.server.protocols.agui.turns import AguiTurn


class EventTranslator:
    """Translates for one run. `place` is the number of the assistant's next message in the transcript."""

    def __init__(self, turn: AguiTurn, ids: MessageIds, place: int, client_tools: frozenset[str]) -> None:
        self._types = agui_types()
        self._turn = turn
        self._ids = ids
        self._place = place
        self._client_tools = client_tools
        self._text_id = ""  # the message that is open
        self._thought_id = ""  # the reasoning that is open
        self._thoughts = 0
        self._restarts = 0
        self._step = ""  # the step that is open
        self._steps = 0
        self._drafts: dict[str, bool] = {}  # ids of calls that were told while they were written; whether still open
        self.usage: list[UsageTold] = []

    def feed(self, event: AgentEvent) -> list[Any]:
        handler = _FEEDS.get(type(event))
        return [] if handler is None else handler(self, event)

    def follow(self, turn: AguiTurn) -> None:
        """Go on with another turn of the same thread."""
        self._turn = turn

    def close(self) -> list[Any]:
        """End all that is open."""
        events = self._close_text() + self._close_thought() + self._close_drafts()
        if self._step:
            events.append(self._types.StepFinishedEvent(step_name=self._step))
            self._step = ""
        return events

    # ------------------------------------------------------------------ steps, messages, reasoning

    def _begin_step(self) -> list[Any]:
        """A step is a call of the model with the tool calls that it asks for."""
        if self._step:
            return []
        self._steps += 1
        self._step = f"step {self._steps}"
        return [self._types.StepStartedEvent(step_name=self._step)]

    def _close_text(self) -> list[Any]:
        if not self._text_id:
            return []
        ended, self._text_id = self._text_id, ""
        return [self._types.TextMessageEndEvent(message_id=ended)]

    def _close_thought(self) -> list[Any]:
        if not self._thought_id:
            return []
        ended, self._thought_id = self._thought_id, ""
        return [
            self._types.ReasoningMessageEndEvent(message_id=ended),
            self._types.ReasoningEndEvent(message_id=ended),
        ]

    @property
    def _message_id(self) -> str:
        base = self._ids.assistant(self._place)
        return f"{base}-{self._restarts}" if self._restarts else base

    def _text(self, event: Text) -> list[Any]:
        events = self._close_thought() + self._begin_step()
        if not self._text_id:
            self._text_id = self._message_id
            events.append(self._types.TextMessageStartEvent(message_id=self._text_id, role="assistant"))
        events.append(self._types.TextMessageContentEvent(message_id=self._text_id, delta=event.delta))
        return events

    def _thinking(self, event: Thinking) -> list[Any]:
        events = self._close_text() + self._begin_step()
        if not self._thought_id:
            self._thought_id = self._ids.reasoning(self._place, self._thoughts)
            self._thoughts += 1
            events += [
                self._types.ReasoningStartEvent(message_id=self._thought_id),
                self._types.ReasoningMessageStartEvent(message_id=self._thought_id, role="reasoning"),
            ]
        events.append(self._types.ReasoningMessageContentEvent(message_id=self._thought_id, delta=event.delta))
        return events

    def _restart(self, _event: Restart) -> list[Any]:
        """The text so far does not hold: it is closed, and the answer comes as another message. The snapshot at the
        end of the run has the second alone."""
        self._restarts += 1
        return self._close_text() + self._close_thought()

    def _usage(self, event: UsageTold) -> list[Any]:
        """The model's message is whole."""
        self.usage.append(event)
        events = self._close_text() + self._close_thought()
        self._place += 1
        self._restarts = 0
        return events

    # ------------------------------------------------------------------ tools

    def _draft(self, event: CallDraft) -> list[Any]:
        """A call as the model writes it. The answer may begin anew; what was told of it then stands until the snapshot
        at the end of the run, and a call under the same id is told whole."""
        if not event.id:
            return self._close_drafts()
        types, events = self._types, []
        if event.id not in self._drafts:
            self._drafts[event.id] = True
            events = self._close_text() + self._close_thought() + self._begin_step()
            parent = self._ids.assistant(self._place)
            events.append(
                types.ToolCallStartEvent(tool_call_id=event.id, tool_call_name=event.name, parent_message_id=parent)
            )
        if event.delta and self._drafts[event.id]:
            events.append(types.ToolCallArgsEvent(tool_call_id=event.id, delta=event.delta))
        return events

    def _close_drafts(self) -> list[Any]:
        still_open = [call_id for call_id, is_open in self._drafts.items() if is_open]
        self._drafts.update(dict.fromkeys(still_open, False))
        return [self._types.ToolCallEndEvent(tool_call_id=call_id) for call_id in still_open]

    def _tool_started(self, event: ToolStarted) -> list[Any]:
        self._turn.calls.add(event.id)
        types = self._types
        if self._drafts.pop(event.id, False):
            return [types.ToolCallEndEvent(tool_call_id=event.id)]
        return [
            *self._close_text(),
            *self._close_thought(),
            *self._begin_step(),
            types.ToolCallStartEvent(
                tool_call_id=event.id,
                tool_call_name=event.name,
                parent_message_id=self._ids.assistant(max(0, self._place - 1)),
            ),
            types.ToolCallArgsEvent(tool_call_id=event.id, delta=as_json(event.arguments)),
            types.ToolCallEndEvent(tool_call_id=event.id),
        ]

    def _tool_ended(self, event: ToolEnded) -> list[Any]:
        self._turn.calls.discard(event.id)
        events: list[Any] = []
        if event.name not in self._client_tools:  # the front end has the result of its own tool
            message_id, text = self._ids.tool(event.id), as_text(event.output)
            result = self._types.ToolCallResultEvent(message_id=message_id, tool_call_id=event.id, content=text)
            events.append(result)
        if not self._turn.calls and self._step:
            events.append(self._types.StepFinishedEvent(step_name=self._step))
            self._step = ""
        return events

    def _tool_progress(self, event: ToolProgress) -> list[Any]:
        value = {"toolCallId": event.id, "text": event.text, "fraction": event.fraction}
        return [self._types.CustomEvent(name="lyra.tool_progress", value=value)]

    def _interrupted(self, event: Interrupted) -> list[Any]:
        """The run's outcome tells it; what is noted here is the call that it is about, where the front end knows it:
        the call of a helper is not told."""
        call_id = str(event.about.get("call_id", ""))
        if event.id and call_id in self._turn.calls:
            self._turn.call_of[event.id] = call_id
        return []

    def _done(self, event: AnswerDone) -> list[Any]:
        """Tell an answer that was cut off; how any other ended is in the end of the run."""
        is_cut = event.status in (CUT_BY_PROVIDER, CUT_BY_BUDGET) and event.text
        return [self._types.CustomEvent(name="lyra.cut_off", value={"status": event.status})] if is_cut else []

    def _notice(self, event: HookNotice) -> list[Any]:
        return [self._types.CustomEvent(name="lyra.notice", value={"text": event.text, "level": event.level})]


_FEEDS: Final[dict[type[AgentEvent], Callable[[EventTranslator, Any], list[Any]]]] = {
    AnswerDone: EventTranslator._done,
    Text: EventTranslator._text,
    Thinking: EventTranslator._thinking,
    Restart: EventTranslator._restart,
    UsageTold: EventTranslator._usage,
    CallDraft: EventTranslator._draft,
    ToolStarted: EventTranslator._tool_started,
    ToolEnded: EventTranslator._tool_ended,
    ToolProgress: EventTranslator._tool_progress,
    Interrupted: EventTranslator._interrupted,
    HookNotice: EventTranslator._notice,
}
