"""What went into calls and what came out, read from Events."""

from __future__ import annotations

from typing import Any

from lyra.core.event import Event
from lyra.observe.history.call_contents import ContentHistory


def rows(*facts: tuple[str, dict[str, Any]]) -> list[Event]:
    return [Event(seq, 10.0 * seq, "p1", kind, data) for seq, (kind, data) in enumerate(facts, 1)]


def answered(text: str, **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 5, "cache_read_tokens": 3}
    return {"message": {"role": "assistant", "content": text, **more}, "usage": usage}


def test_a_call_has_its_request_answer_cache_and_decision() -> None:
    asked = [{"id": "c1", "name": "weather", "arguments": {"city": "Rome"}}]
    decision = {
        "decision": "allow",
        "rule": "weather",
        "reason": "a rule allows it",
        "subject": "Rome",
        "tainted": False,
    }
    history = ContentHistory({7: {"lyra.ask": "x", "content": "weather?"}}.get)
    history.add_all(
        rows(
            ("message.received", {"key": 0, "message": 7}),
            ("effect.started", {"key": 2, "name": "model:echo:sim"}),
            ("effect.retried", {"key": 2}),
            ("effect.finished", {"key": 2, "value": answered("", tool_calls=asked)}),
            ("effect.finished", {"key": "0/0", "name": "admit", "form": "read", "value": decision}),
            ("effect.started", {"key": "0/1", "name": "tool:weather"}),
            ("effect.finished", {"key": "0/1", "value": "sunny"}),
            ("effect.started", {"key": 4, "name": "model:echo:sim"}),
            ("effect.finished", {"key": 4, "value": answered("It is sunny.")}),
        )
    )
    first, tool, last = history.calls.values()
    assert [(part.role, part.text) for part in first.request] == [("message", "weather?")]
    assert first.tries == 2
    assert first.cache == {"cache_read_tokens": 3}
    assert [part.role for part in first.answer] == ["calls weather"]
    assert tool.call_id == "c1"
    assert '"Rome"' in tool.request[0].text
    assert tool.answer[0].text == "sunny"
    assert (tool.decision["decision"], tool.decision["rule"]) == ("allow", "weather")
    assert [(part.role, part.text) for part in last.request] == [("result of weather", "sunny")]
    assert last.answer[0].text == "It is sunny."
    assert history.nearest("tool", "weather", 71.0, "c1") is tool
    assert history.nearest("model", "sim", 41.0) is first
    assert history.nearest("model", "sim", 85.0) is first  # told late: the next call ended soon after it
    assert history.nearest("tool", "other", 0.0) is None


def test_an_agent_that_was_started_for_one_question_has_it_as_its_request() -> None:
    history = ContentHistory()
    history.add_all(
        rows(
            ("process.created", {"program": "agent:summary", "args": ["Change 7: rename"]}),
            ("effect.started", {"key": 0, "name": "model:summary:sim"}),
            ("effect.finished", {"key": 0, "value": answered("Renames.")}),
        )
    )
    assert history.calls["0"].request[0].text == "Change 7: rename"


def test_an_error_is_told_and_a_long_text_is_cut() -> None:
    history = ContentHistory()
    history.add_all(
        rows(
            ("effect.started", {"key": 1, "name": "model:a:m"}),
            ("effect.finished", {"key": 1, "error": {"code": "model", "message": "overloaded"}}),
            ("effect.started", {"key": 2, "name": "tool:big"}),
            ("effect.finished", {"key": 2, "value": "x" * 100_000}),
        )
    )
    assert history.calls["1"].error == "model: overloaded"
    assert len(history.calls["2"].answer[0].text) == 20_000


def test_calls_of_one_tool_are_told_apart_by_their_id() -> None:
    asked = [
        {"id": f"c{number}", "name": "weather", "arguments": {"city": city}} for number, city in ((1, "A"), (2, "B"))
    ]
    history = ContentHistory()
    history.add_all(
        rows(
            ("effect.started", {"key": 0, "name": "model:a:m"}),
            ("effect.finished", {"key": 0, "value": answered("", tool_calls=asked)}),
            ("effect.started", {"key": "0/0", "name": "tool:weather"}),
            ("effect.started", {"key": "1/0", "name": "tool:weather"}),
            ("effect.finished", {"key": "1/0", "value": "of B"}),
            ("effect.finished", {"key": "0/0", "value": "of A"}),
        )
    )
    for call_id, text in (("c1", "of A"), ("c2", "of B")):
        call = history.nearest("tool", "weather", 55.0, call_id)
        assert call is not None
        assert call.answer[0].text == text
