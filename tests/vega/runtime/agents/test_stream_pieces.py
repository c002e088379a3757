"""A stream that was whole when its run was killed comes in the pieces in which it would have come."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lyra import Kernel, vega
from lyra.agents.session.shared import runtime_of
from lyra.models.provider import Request
from lyra.models.script import Reply
from lyra.models.stream import cut
from lyra.vega.runtime.agents.streams import OpenStream
from tests.vega.recorded import Recorded
from tests.vega.support import Seen

PROGRAM = """
agent S {{ model "sim/script" memory {memory}
    tool look(x: str) -> str capabilities [fs::read] {{ return "seen " + x; }}
}}
let s = spawn S;
let count = 0;
for piece in s <~ "one two three four" {{
    print(piece);
    count = count + 1;
    if count == 2 {{ process::sleep(600ms); }}
}}
print(count);
"""


def uses_a_tool(request: Request) -> Any:
    """Says something, looks, and says more."""
    if request.messages[-1].role == "tool":
        return "it is four five"
    call = {"name": "look", "arguments": {"x": "y"}}
    return Reply.from_data({"text": "let me look ", "tool_calls": [call]})


@pytest.mark.parametrize("model", [None, uses_a_tool], ids=["text", "tool"])
@pytest.mark.parametrize("memory", ["none", "conversation", "window(4)"])
@pytest.mark.parametrize("sequential", [False, True])
def test_the_pieces_are_those_of_the_undisturbed_run(tmp_path: Path, memory: str, sequential: bool, model: Any):
    """No model is asked again for them."""
    recorded, source = Recorded(tmp_path), PROGRAM.format(memory=memory)
    answers = Seen() if model is None else Seen(model)
    peace = recorded.run(source, "peace", model=answers, sequential=sequential)
    assert len(peace) >= 5
    before = recorded.run(source, model=answers, stop_after_lines=2, sequential=sequential)
    assert before == peace[:2], "it was not stopped in the middle"
    model = Seen()
    recorded.resume(model=model)
    assert (recorded.output(), model.requests) == (peace, [])


def test_a_text_is_cut_by_its_own_lengths_alone():
    assert list(cut("abcde", [2, 3])) == ["ab", "cde"]
    assert list(cut("abcde", [2, 2])) == list(cut("abcde", [])) == ["abcde"]


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "plain"])
def test_a_piece_of_a_marked_agent_marks_its_reader(marked: bool):
    """Before it is read, also where the agent is marked in the middle of its answer."""
    source = 'agent A { model "sim/echo" memory conversation } let a = spawn A; for c in a <~ "one two" { print(c); }'
    readers: list[bool] = []

    async def main() -> None:
        async with Kernel() as kernel:

            def show(_line: str) -> None:
                sessions = runtime_of(kernel).sessions
                readers.append(any(kernel.taint.is_tainted(pid) for pid in kernel.processes if pid not in sessions))
                for pid in sessions if marked else ():
                    kernel.taint.mark(pid, "a page")

            await vega.run(source, kernel=kernel, stdout=show)

    asyncio.run(asyncio.wait_for(main(), 20))
    assert readers == [False, marked]


def test_a_stream_that_goes_on_after_a_restart_has_its_reader():
    """The process that reads it gets the mark of the agent's pieces in this life, too."""
    pending = SimpleNamespace(scopes=(), reader="")
    runtime = SimpleNamespace(questions=SimpleNamespace(awaited={"~p1/1": pending}))
    job: Any = SimpleNamespace(
        world=SimpleNamespace(runtime=runtime), ctx=SimpleNamespace(own_process=SimpleNamespace(pid="p1"))
    )
    slot: Any = SimpleNamespace(plan=SimpleNamespace(name="S"))
    OpenStream("p1/1", "p2", slot, None, "hello", ()).find(job)
    assert pending.reader == "p1"
