"""What the overview tells of events: each sentence has the words that its event brings, and a subject."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra.server.dashboard.sentences import EventLine, EventSentences, sentence_of
from lyra.server.identity import Caller
from tests.server.dashboard.support import Served, served
from tests.server.dashboard.test_pipeline_pages import Gate
from tests.server.http.test_pipelines import TWO


def _lines(parts: Served) -> list[EventLine]:
    sentences: EventSentences = parts.face.app.parts.get_shared(EventSentences)
    return sentences.last(Caller(), 100)


@served()
async def test_a_service_is_told_by_its_name(parts: Served) -> None:
    assert _lines(parts) == []
    parts.kernel.register_service({"name": "mailer", "max_concurrent": 1})
    await parts.kernel.services.update_health("mailer", "degraded")
    told = [(line.name, line.text) for line in _lines(parts)]
    assert told == [("mailer", "service is now: degraded"), ("mailer", "is a service here now")]


gate = Gate()


@served(kernel=gate.kernel)
async def test_the_stage_that_a_pipeline_began_is_told(parts: Served) -> None:
    assert _lines(parts) == []
    gate.is_open.set()
    await parts.operator.post("/api/pipelines", json={"pipeline": TWO, "input": "x"})
    while not any(line.kind == "pipeline.ended" for line in _lines(parts)):
        await asyncio.sleep(0.01)
    begun = [line.text for line in reversed(_lines(parts)) if line.kind == "pipeline.started"]
    assert begun == ["began the stage: first", "began the stage: second"]


# Events as the kernel publishes them, with a word that the sentence has to have.
_EXCESS = {"scope": "", "dimension": "output_tokens", "limit": 5, "used": 4, "reserved": 0, "asked": 3}


@pytest.mark.parametrize(
    ("kind", "data", "word"),
    [
        ("budget.warning", {"effect": "model:a", "over": [_EXCESS]}, "output tokens"),
        ("resource.exceeded", {"effect": "x", "error": {"code": "limit", "message": "too many hops"}}, "too many hops"),
        ("resource.exceeded", {"resource": "llm_calls", "usage": 3, "quota": 2}, "llm_calls"),
        ("health.alert", {"alert": "timeout_warning", "pid": "p1"}, "timeout_warning"),
        ("process.dormant", {"agent": "critic"}, "critic"),
        ("vesper.mode", {"node": "n", "to": "canary_direct", "why": "promoted"}, "canary_direct"),
        ("tool.refused", {"tool": "Bash", "code": "denied", "reason": "no rule allows it"}, "no rule allows it"),
    ],
)
def test_a_sentence_has_what_its_event_says(kind: str, data: dict[str, Any], word: str) -> None:
    told = sentence_of(kind, data)
    assert told is not None
    assert word in told.text


@served()
async def test_an_event_of_no_process_has_a_subject(parts: Served) -> None:
    assert _lines(parts) == []
    parts.kernel.publish("", "store.full", {"rows": 3, "message": "no room"})
    parts.kernel.publish("", "vesper.diverged", {"node": "loyalty"})
    assert [line.name for line in _lines(parts)] == ["loyalty", "store"]
