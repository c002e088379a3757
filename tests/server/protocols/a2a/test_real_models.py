"""A2A on real models: the SDK's client gets the answer, its calls and its cost; pictures reach the model."""

from __future__ import annotations

import base64
from typing import Any

from a2a.types import a2a_pb2 as pb

from lyra import Agent, tool
from tests.real_models import PIXEL, Answer, Call, FakeVendor, Vendor
from tests.server.protocols.a2a.support import in_loop, message, serving, task_of

CALL = Call("add", {"a": 2, "b": 3})


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_a_task_and_one_that_follows(vendor: Vendor, provider: FakeVendor) -> None:
    """The artifact is the answer without its thought; the next task of the context sends the signature back."""
    answers = (Answer(thinking="Sum.", calls=(CALL,)), Answer("It is 5.", thinking="So."), Answer("Yes."))
    provider.say(*answers)
    agent: Agent[Any] = Agent("adder", model=vendor.model, tools=[add], thinking_tokens=2_000)

    async def main() -> None:
        async with serving(agent) as served, served.client("adder") as client:
            request = message("2 + 3?")
            request.message.parts.append(pb.Part(raw=base64.b64decode(PIXEL), media_type="image/png"))
            task = await task_of(client, request)
            assert task.status.state == pb.TASK_STATE_COMPLETED
            assert [part.text for artifact in task.artifacts for part in artifact.parts] == ["It is 5."]
            again = await task_of(client, message("Sure?", context_id=task.context_id))
            assert again.status.state == pb.TASK_STATE_COMPLETED
            costs = [told.metadata["usage"]["cost_usd"] for told in (task, again)]
            assert costs == [vendor.cost_usd(*answers[:2]), vendor.cost_usd(answers[2])]

    in_loop(main())
    assert [request.images for request in provider.requests] == [[("image/png", PIXEL)]] * 3
    assert provider.requests[1].results == ["5"]


def test_a_cut_answer_is_told(vendor: Vendor, provider: FakeVendor) -> None:
    """The task is completed with what there is, and its status says that the answer was cut off."""
    provider.say(Answer("Once upon", is_cut=True))

    async def main() -> None:
        async with serving(Agent("teller", model=vendor.model)) as served, served.client("teller") as client:
            task = await task_of(client, message("A story"))
            assert task.status.state == pb.TASK_STATE_COMPLETED
            assert task.status.message.parts[0].text == "the answer was cut off at its longest"
            assert task.status.message.metadata["code"] == "max_tokens"
            assert [part.text for artifact in task.artifacts for part in artifact.parts] == ["Once upon"]

    in_loop(main())
