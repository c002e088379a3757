"""The last events as sentences, kept for the pages that show them. One listener for each server, a bounded list."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lyra.core.event import Event
from lyra.server.dashboard.html import Html, tag
from lyra.server.dashboard.sentences import SENTENCES, sentence_of
from lyra.server.dashboard.words import STATES, clock_time
from lyra.server.owners import owner_if_known

if TYPE_CHECKING:
    from lyra.server.http.parts import HttpParts
    from lyra.server.identity import Caller


_LINES_KEPT: Final = 2_000
_SUBJECTS: Final = ("name", "agent", "service_name", "node", "pipeline")  # of events that are of no process
_SHAPES: Final = {look.colour: look.shape for look in reversed(STATES.values())}


class EventLine(NamedTuple):
    """One line; `number` tells it apart from the others."""

    number: int
    time: float
    pid: str
    name: str
    kind: str
    state: str
    text: str
    owner: str


class EventSentences:
    """See the module."""

    def __init__(self, parts: HttpParts) -> None:
        self._kernel = parts.kernel
        self._lines: deque[EventLine] = deque(maxlen=_LINES_KEPT)
        self._count = 0
        self._kernel.on_event(self._hear, kinds=tuple(SENTENCES))

    def _hear(self, event: Event) -> None:
        told = sentence_of(event.kind, event.data)
        if told is None:
            return
        self._count += 1
        pid = event.pid
        process = self._kernel.processes.get(pid)
        shown = None if process is None else self._kernel.processes.get(process.known_as) or process
        known = "" if shown is None else shown.name or shown.program.partition("agent:")[2]
        name = known or _text(event.data, *_SUBJECTS) or pid or event.kind.partition(".")[0]
        text = told.text
        if event.kind == "child.restarting":
            name, text = _text(event.data, "id") or name, self._restart_words(pid) or text
        elif event.kind == "pipeline.started":
            text = f"{text}: {self._stage(pid, event.data)}"
        elif event.kind == "person.acted":
            name = _text(event.data, "person")
        user = event.data.get("user_id")
        owner = user if isinstance(user, str) and user else owner_if_known(self._kernel, pid) if pid else ""
        known_as = pid if shown is None else shown.pid
        line = EventLine(self._count, event.time, known_as, name, event.kind, told.state, text, owner)
        self._lines.append(line)

    def _restart_words(self, pid: str) -> str:
        """`restart 2 of 3 in 60 s`: how many of the restarts that its supervisor allows are used up."""
        plan, table = self._kernel.supervisors.plans.get(pid), self._kernel.supervisors.tables.get(pid)
        if plan is None or table is None or plan.max_restarts < 0:
            return ""
        return f"restart {len(table.times)} of {plan.max_restarts} in {plan.window_s:g} s"

    def _stage(self, pid: str, data: Mapping[str, Any]) -> str:
        """The stage that a pipeline began."""
        session = self._kernel.orchestrator.state.sessions.get(pid)
        tokens = () if session is None else session.tokens
        return next((token.stage for token in tokens if token.id == data.get("token")), "")

    def last(self, caller: Caller, count: int, *, pid: str = "") -> list[EventLine]:
        """The last lines that a caller may see, the newest first; of one process, or of all."""
        lines: list[EventLine] = []
        for line in reversed(self._lines):
            if (not pid or line.pid == pid) and caller.owns(line.owner):
                lines.append(line)
                if len(lines) == count:
                    break
        return lines


def _text(data: Mapping[str, Any], *names: str) -> str:
    return next((str(data[name]) for name in names if data.get(name) not in (None, "")), "")


def lines_list(lines: list[EventLine], links: dict[str, str], *, label: str = "Events") -> Html:
    """Lines as a list; `links` has the address of each process that has a page."""
    rows = [
        tag(
            "li",
            clock_time(line.time),
            tag("span", _SHAPES.get(line.state, "○"), class_="shape", data_state=line.state, aria_hidden="true"),
            tag("a", line.name, href=links[line.pid], class_="who", title=line.pid)
            if line.pid in links
            else tag("span", line.name, class_="who"),
            tag("span", line.text, class_="what"),
            data_key=line.number,
        )
        for line in lines
    ]
    return tag("ol", rows, class_="events", aria_label=label)
