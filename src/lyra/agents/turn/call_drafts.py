"""CallDraft: a piece of a tool call while the model writes it, for a reader that asks for it (`Sink.wants_drafts`).

To show, never to act on: hooks may change a call, and a try that breaks off is made again. The call that counts comes
as `tool_start`. No other surface gets drafts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from lyra.agents.session.events import AgentEvent
from lyra.agents.turn.key_filter import StreamKeyFilter
from lyra.models.stream import ToolDelta, ToolEnd, ToolStart

if TYPE_CHECKING:
    from lyra.agents.session.replies import Sink
    from lyra.core.secrets.known_keys import KnownKeys
    from lyra.models.stream import StreamEvent


class CallDraft(AgentEvent, frozen=True):
    """`delta` is more of the arguments as JSON. Without an id: all drafts so far are void, the answer begins anew."""

    type: ClassVar[str] = "tool_draft"

    id: str
    name: str = ""
    delta: str = ""


class DraftWriter:
    """Puts the calls of one try into a sink, with known keys masked."""

    __slots__ = ("_calls", "_keys", "_sink")

    def __init__(self, sink: Sink, keys: KnownKeys) -> None:
        self._sink = sink
        self._keys = keys
        self._calls: dict[int, tuple[str, str, StreamKeyFilter]] = {}  # by place: id, name
        if sink.has_drafts:
            sink.put(CallDraft(""))
        sink.has_drafts = False

    def feed(self, event: StreamEvent) -> None:
        if isinstance(event, ToolStart) and event.id:
            self._calls[event.index] = (event.id, event.name, StreamKeyFilter(self._keys))
            self._put(event.id, event.name, "")
        elif isinstance(event, ToolDelta) and event.index in self._calls:
            call_id, name, key_filter = self._calls[event.index]
            self._put(call_id, name, key_filter.feed(event.text))
        elif isinstance(event, ToolEnd) and event.index in self._calls:
            call_id, name, key_filter = self._calls.pop(event.index)
            self._put(call_id, name, key_filter.flush())

    def _put(self, call_id: str, name: str, delta: str) -> None:
        self._sink.has_drafts = True
        self._sink.put(CallDraft(call_id, name, delta))
