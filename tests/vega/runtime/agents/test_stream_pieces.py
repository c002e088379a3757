"""A stream that was whole when its run was killed comes in the pieces in which it would have come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lyra.models.request import Request
from lyra.models.script import Reply
from lyra.models.stream import cut
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
    before = recorded.run(source, model=answers, stop_after_s=0.4, sequential=sequential)
    assert before == peace[:2], "it was not stopped in the middle"
    model = Seen()
    recorded.resume(model=model)
    assert (recorded.output(), model.requests) == (peace, [])


def test_a_text_is_cut_by_its_own_lengths_alone():
    assert list(cut("abcde", [2, 3])) == ["ab", "cde"]
    assert list(cut("abcde", [2, 2])) == list(cut("abcde", [])) == ["abcde"]
