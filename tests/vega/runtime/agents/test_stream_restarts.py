"""Streams whose answer breaks off and comes out differently: the program never reads two answers as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lyra.models.provider import Request
from lyra.models.script import Reply
from tests.vega.recorded import Recorded
from tests.vega.support import Seen, play

READ = (
    'try { for piece in s <~ "go" { text = text + piece; } } catch AgentFailed(reason) { text = text + "! " + reason; }'
)
WHOLE = 'text = await (s <~ "go");'
ANEW = "the answer begins anew, and the text that was read does not hold"


def program(read: str, memory: str) -> str:
    retry = "retry { max_attempts 3 backoff constant(1ms) }"
    return (
        f'agent S {{ model "sim/script" memory {memory} {retry} }} let s = spawn S; let text = ""; {read} print(text);'
    )


class Breaking(Seen):
    """Says "one two" and breaks; after that, what it is told to."""

    def __init__(self, then: str) -> None:
        super().__init__(self._next)
        self._then = then

    def _next(self, _: Request) -> Any:
        if len(self.requests) > 1:
            return self._then
        return Reply.from_data({"text": "one two three", "error": {"kind": "stream_truncated", "after_chunks": 2}})


@pytest.mark.parametrize("memory", ["none", "conversation"])
def test_a_loop_ends_with_an_error_where_the_next_try_differs(memory):
    assert play(program(READ, memory), Breaking("one zwei drei")) == [f"one two ! {ANEW}"]
    assert play(program(READ, memory), Breaking("one two three")) == ["one two three"]


@pytest.mark.parametrize("memory", ["none", "conversation"])
def test_the_whole_is_the_answer_that_holds(memory):
    assert play(program(WHOLE, memory), Breaking("one zwei drei")) == ["one zwei drei"]
    assert play(program(WHOLE, memory), Breaking("one")) == ["one"]


SLOW = {"text": "one two three four five six seven eight nine ten eleven twelve", "chunk_s": 0.15}


@pytest.mark.parametrize("again", ["one zwei drei", "one", None], ids=["differs", "less", "same"])
def test_an_answer_that_differs_after_a_kill_is_not_joined_to_what_was_read(tmp_path: Path, again):
    """The run was killed in the middle of an answer: the model is asked again, and may say something else, or less."""
    recorded, source = Recorded(tmp_path), program(READ, "none")
    recorded.run(source, model=Seen(lambda _: Reply.from_data(SLOW)), stop_after_s=1.0)
    recorded.resume(model=Seen(lambda _: again or SLOW["text"]))
    (line,) = recorded.output()
    assert line.startswith("one two ")
    assert (line == SLOW["text"]) if again is None else line.endswith(f"! {ANEW}")
