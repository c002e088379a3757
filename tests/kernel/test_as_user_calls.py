"""Each call of a user's view does what the kernel's does, with every argument that it is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lyra import Agent
from lyra.errors import NameTaken, NoSuchInterrupt
from lyra.kernel import Kernel, ServiceRequest, UserKernel
from tests.kernel.conftest import run, settle

LINE = {"name": "line", "agents": [{"name": "a", "default_next": "b"}, {"name": "b"}]}


async def idle(ctx: Any) -> None:
    await ctx.receive()


async def listens(ctx: Any) -> Any:
    return await ctx.receive()


async def answers(envelope: Any) -> dict[str, Any]:
    return {"raw_input": envelope.raw_input}


async def _processes(kernel: Kernel, ann: UserKernel) -> None:
    assert ann.submit("entry", priority="high").pid == "entry"
    ann.submit("waiting")
    ann.schedule("waiting")
    assert [block.pid for block in ann.list_processes(state="ready")] == ["waiting"]
    assert {block.pid for block in ann.list_processes()} == {"entry", "waiting"}
    assert ann.get_process_counts().total == 2
    assert ann.get_next_runnable().pid == "waiting"
    ann.check("entry")
    assert kernel.get_process("entry").user_id == "ann"


async def _programs(kernel: Kernel, ann: UserKernel) -> None:
    handle = ann.spawn(listens, pid="listens")
    assert (handle.pid, ann.process("listens").pid) == ("listens", "listens")
    await ann.send("listens", "tea")
    assert (await handle.wait()).result == "tea"
    ann.spawn(idle, pid="idle")
    await ann.kill("idle", reason="enough")
    assert (await kernel.process("idle").wait()).reason == "enough"


async def _agents(kernel: Kernel, ann: UserKernel) -> None:
    ann.spawn(Agent(name="helper", model="sim/echo"), pid="helper")
    await settle(kernel)
    assert ann.agent("helper") is not None
    assert ann.agent("helper").pid == "helper"


async def _questions(kernel: Kernel, ann: UserKernel) -> None:
    for pid in ("first", "second"):
        ann.submit(pid)
    asked = ann.create_interrupt("first", "clarification", "which?")
    other = ann.create_interrupt("second", "clarification", "when?")
    assert ann.get_interrupt(asked.id).message == "which?"
    assert [interrupt.id for interrupt in ann.list_interrupts("first")] == [asked.id]
    ann.resolve_interrupt(asked.id, {"text": "this"})
    assert ann.get_interrupt(asked.id).response.text == "this"
    assert [interrupt.id for interrupt in ann.list_interrupts(status="pending")] == [other.id]
    assert ann.cancel_interrupt(other.id, reason="too late").status == "cancelled"
    with pytest.raises(NoSuchInterrupt):
        ann.get_interrupt("int_x")


async def _reason(kernel: Kernel, ann: UserKernel) -> None:
    reasons = []
    kernel.on_event(lambda event: reasons.append(event.data["reason"]), ["interrupt.cancelled"])
    ann.submit("entry")
    ann.cancel_interrupt(ann.create_interrupt("entry", "clarification", "?").id, reason="too late")
    await settle(kernel)
    assert reasons == ["too late"]


async def _rates(kernel: Kernel, ann: UserKernel) -> None:
    kernel.rate_limiter.set_default_config({"burst_size": 2})
    assert ann.check_rate_limit("chat", record=False).current_count == 0
    assert ann.check_rate_limit("chat").current_count == 1
    assert ann.check_rate_limit("other", record=False).current_count == 0


async def _envelopes(kernel: Kernel, ann: UserKernel) -> None:
    envelope = ann.create_envelope({"raw_input": "tea"}, request_id="r", session_id="s")
    assert (envelope.raw_input, envelope.request_id, envelope.session_id) == ("tea", "r", "s")
    assert ann.update_envelope({"envelope_id": envelope.envelope_id, "llm_call_count": 4}).llm_call_count == 4
    assert ann.clone_envelope(envelope.envelope_id).llm_call_count == 4
    assert ann.check_bounds(envelope.envelope_id).llm_calls_remaining == envelope.max_llm_calls - 4


async def _driven(kernel: Kernel, ann: UserKernel) -> None:
    state = ann.initialize_orchestration("driven", LINE, {"raw_input": "tea"})
    assert (state.current_stage, ann.get_envelope("driven").raw_input) == ("a", "tea")
    with pytest.raises(NameTaken):
        ann.initialize_orchestration("driven", LINE)
    ann.initialize_orchestration("driven", LINE, {"raw_input": "coffee"}, force=True)
    assert ann.get_envelope("driven").raw_input == "coffee"
    assert ann.store_envelope("driven", {"raw_input": "water"}).raw_input == "water"
    assert ann.get_envelope("driven").user_id == "ann"


async def _pipelines(kernel: Kernel, ann: UserKernel) -> None:
    kernel.register_agent("a", answers)
    kernel.register_agent("b", answers)
    events = [event async for event in ann.execute_pipeline(LINE, {"raw_input": "tea"}, pid="run")]
    assert events[-1].pid == "run"
    assert events[-1].envelope.outputs == {"a": {"raw_input": "tea"}, "b": {"raw_input": "tea"}}


async def _single(kernel: Kernel, ann: UserKernel) -> None:
    kernel.register_agent("a", answers)
    done = await ann.execute_agent("a", {"raw_input": "tea"}, {"output_key": "cup"}, pid="single")
    assert (done.pid, done.output) == ("single", {"raw_input": "tea"})
    assert done.envelope.outputs["cup"] == {"raw_input": "tea"}
    assert done.envelope.user_id == "ann"


async def _services(kernel: Kernel, ann: UserKernel) -> None:
    ann.submit("entry", quota={"max_inference_requests": 1})
    kernel.register_service({"name": "mail", "service_type": "worker"})
    kernel.register_handler("mail", lambda request: {"to": request.metadata["to"], "pid": request.pid})
    request = ServiceRequest(pid="entry", metadata={"to": "bob"})
    assert (await ann.dispatch("mail", request)).metadata == {"to": "bob", "pid": "entry"}
    for name, model in (("first", "n"), ("second", "m")):
        kernel.register_service({"name": name, "service_type": "inference", "metadata": {"models": [model]}})
        kernel.register_handler(name, lambda request: {"heard": request.metadata["input"]})
    heard = await ann.dispatch_inference("m", "text", pid="entry")
    assert (heard.service, heard.metadata) == ("second", {"heard": "text"})
    assert kernel.resources.get_usage("entry").inference_requests == 1


CHECKS: dict[str, Callable[[Kernel, UserKernel], Awaitable[None]]] = {
    "processes": _processes,
    "programs": _programs,
    "agents": _agents,
    "questions": _questions,
    "reason": _reason,
    "rates": _rates,
    "envelopes": _envelopes,
    "driven": _driven,
    "pipelines": _pipelines,
    "single": _single,
    "services": _services,
}


@pytest.mark.parametrize("subject", CHECKS)
def test_each_argument_reaches_the_kernel(subject: str) -> None:
    """What a user gives is what the kernel does, for that user."""

    async def main() -> None:
        async with Kernel() as kernel:
            await CHECKS[subject](kernel, UserKernel(kernel, "ann"))

    run(main())
