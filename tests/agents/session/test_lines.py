"""The lines of a run and their types: what an event writes is what its line declares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NotRequired, get_args, get_origin, get_type_hints

import pytest

from lyra.agents.headless.headless import error_line, event_line, result_line
from lyra.agents.session import events
from lyra.errors import ToolError

if TYPE_CHECKING:
    from lyra.sage.agent.live import LiveSession

LINES: dict[str, Any] = {get_args(get_type_hints(line)["type"])[0]: line for line in get_args(events.AnyLine)}
EVENTS = (
    events.Text("a"),
    events.Thinking("a"),
    events.ToolStarted("1", "Read", {"file_path": "a"}),
    events.ToolProgress("1", "Read", "half", 0.5),
    events.ToolEnded("1", "Read", "text"),
    events.ToolEnded("1", "Read", "no", is_error=True, error_code="permission_denied"),
    events.UsageTold(1, 2, 3, None, estimated=True),
    events.Interrupted("1", "confirmation", "May I?", "why", {"call_id": "1", "tool": "Bash", "arguments": {}}),
    events.HookNotice("mind the gap"),
    events.Restart("as far as"),
)


def check_fields(line: Any, declared: Any) -> None:
    """The line has every field that is required, and none that is not declared."""
    hints = get_type_hints(declared, include_extras=True)
    required = {name for name, hint in hints.items() if get_origin(hint) is not NotRequired}
    assert required <= set(line) <= set(hints)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_writes_the_fields_of_its_line(event: events.AgentEvent) -> None:
    line = event_line(event, progress=True)
    assert line is not None
    check_fields(line, LINES[line["type"]])


def test_errors_and_results_write_the_fields_of_their_lines() -> None:
    check_fields(error_line(ToolError("no", hint="try", kind="temporary")), events.ErrorLine)
    result = result_line("success", "text")
    check_fields(result, events.ResultLine)
    check_fields(result["usage"], events.RunUsage)


if TYPE_CHECKING:  # a wrong key is a mistake: mypy refuses an `ignore` that is not needed

    def wrong(line: events.AnyLine, session: LiveSession) -> None:
        if line["type"] == "usage":
            print(line["cost"])  # type: ignore[typeddict-item]
        if line["type"] == "result":
            print(line["usage"]["total"])  # type: ignore[typeddict-item]
        print(session.context().total)  # type: ignore[attr-defined]
        print(session.usage()["cost_usd"])  # type: ignore[call-overload]
