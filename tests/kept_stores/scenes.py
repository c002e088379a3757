"""What `make` leaves in the middle of its work: one scene for each subsystem of the kernel.

A scene brings a kernel to the place where its process is killed. Effects named in `HELD` are in flight then. The tests
know what each scene comes to when it is finished; a scene that was kept is never changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

from lyra import Kernel
from lyra.errors import DeadlineExceeded
from lyra.kernel import Child, ServiceInfo
from tests.kept_stores import programs

MADE_AT = 1_750_000_000.0  # the wall clock of all scenes when they begin

HELD: dict[str, set[str]] = {
    "supervisors": {"note bob hears wait"},
    "groups": {"note ann hears wait"},
    "interrupts": {"note proceed? yes"},
    "services": {"service letter two"},
    "pipelines": {"stage run check", "stage forked right", "stage doubtful draft"},
    "mailboxes": {"note undecided"},
    "effects": {"note right", "pay retried", "pay skipped", "pay failed", "note count 3", "note gated"},
    "memories": {"note tells"},
    "agents": {
        "model think", "look_up slow", "order slow", "model meaning of tea", "model help with it", "model what is hot?",
        "model and now", "model stream", "model after the fall",
    },
    "parallel": {"model one", "model after [two]"},
    "withdrawals": {"model given up", "model kept", "model the last"},
}  # fmt: skip

SNAPSHOT_EVERY_EVENTS = {
    "supervisors": 40,
    "agents": 40,
    "ended": 600,
}  # rows between snapshots, so that some follow the last one


async def settle() -> None:
    """Let everything that can run, run."""
    await asyncio.sleep(0.01)


async def supervisors(kernel: Kernel) -> None:
    """A tree with restarts behind it, a dynamic supervisor, a supervised process and a program's own supervisor."""
    inner = Child.supervisor(
        "inner",
        [Child(name, programs.worker, (name,), name=name) for name in ("cid", "dan")],
        strategy="one_for_all",
    )
    children = [Child(name, programs.worker, (name,), name=name) for name in ("ada", "bob")]
    await kernel.supervise([*children, inner], pid="tree", max_restarts=3, window_s=7200.0)
    dynamic = await kernel.supervise([Child("job", programs.worker)], pid="jobs", strategy="simple_one_for_one")
    for number in (1, 2, 3):
        await dynamic.start_child(args=(f"job {number}",))
    await dynamic.terminate_child("job-2")
    await kernel.spawn(programs.worker, "eve", pid="eve", name="eve", supervision={"max_restarts": 3})
    await kernel.spawn(programs.head, pid="head")
    await settle()
    for name in ("ada", "ada", "cid", "eve", "own"):
        await kernel.send(name, "fall")
        await settle()
    await kernel.send("bob", "wait")
    await settle()
    await kernel.send("bob", "unread")  # it is in the middle of an effect
    await settle()


async def groups(kernel: Kernel) -> None:
    await kernel.groups.create("red")
    await kernel.groups.create("empty")
    await kernel.groups.create("deleted")
    await kernel.groups.delete_group("deleted")
    for name in ("ann", "ben", "cat"):
        await kernel.spawn(programs.worker, name, pid=name)
        kernel.groups.join("red", name)
    kernel.groups.join("empty", "cat")
    kernel.groups.leave("empty", "cat")
    await settle()
    await kernel.send("cat", "end")
    await settle()
    kernel.groups.bb_set("red", "plan", {"steps": [1, 2]})
    kernel.groups.bb_set("red", "gone", True)
    kernel.groups.bb_delete("red", "gone")
    await kernel.send("ann", "wait")
    await settle()
    kernel.groups.broadcast("red", "all")  # stays unread by ann, which is in the middle of an effect
    await settle()


async def interrupts(kernel: Kernel) -> None:
    """Questions of programs and about entries: pending, answered, cancelled, expired, forgotten."""
    kernel.interrupts.set_config("agent_review", {"default_ttl": 5.0})
    await kernel.spawn(programs.ask_once, "in time?", "agent_review", pid="expired")
    await kernel.spawn(programs.ask_once, "still there?", "clarification", pid="killed")
    await kernel.spawn(programs.ask_once, "may I?", "confirmation", pid="pending")
    await kernel.spawn(programs.ask_once, "proceed?", "clarification", pid="answered")
    for pid in ("entry", "other"):
        kernel.submit(pid, user_id="ada")
        kernel.schedule(pid)
        kernel.get_next_runnable()
    await settle()
    await kernel.resolve_interrupt(kernel.get_pending_interrupt("answered").id, {"text": "yes"})
    kernel.create_interrupt("entry", "confirmation", question="delete it?", user_id="ada", data={"file": "a.txt"})
    done = kernel.create_interrupt("entry", "clarification", question="which one?")
    await kernel.resolve_interrupt(done.id, {"text": "the second"})
    kernel.create_interrupt("other", "confirmation", question="too late?", ttl_s=5.0)
    back = kernel.create_interrupt("other", "clarification", question="never mind?")
    kernel.interrupts.cancel_interrupt(back.id, "taken back")
    await kernel.kill("killed")
    await asyncio.sleep(6.0)
    kernel.submit("third")
    kernel.schedule("third")
    kernel.get_next_runnable()
    old = kernel.create_interrupt("third", "clarification", question="forgotten?")
    await kernel.resolve_interrupt(old.id, {"text": "yes"})
    kernel.interrupts.cleanup_process_interrupts("third")


async def services(kernel: Kernel) -> None:
    await kernel.register_service(ServiceInfo("printer", max_concurrent=4, version="2.1", metadata={"room": 7}))
    await kernel.register_service({"name": "oracle", "service_type": "inference", "capabilities": ["small"]})
    await kernel.register_service(ServiceInfo("gone"))
    kernel.services.update_health("oracle", "degraded")
    await kernel.unregister_service("gone")
    kernel.register_handler("printer", programs.serve)
    await kernel.spawn(programs.client, "letter", pid="client")
    await settle()


async def pipelines(kernel: Kernel) -> None:
    """Two that workers outside drive, one of them with an open question; four that the kernel runs itself."""
    kernel.initialize_orchestration("outside", programs.LINE, {"raw_input": "outside"})
    kernel.get_next_instruction("outside")
    kernel.report_agent_result("outside", {"agent_name": "draft", "output": {"n": 1}, "metrics": {"llm_calls": 2}})
    kernel.report_agent_result("outside", {"agent_name": "check", "output": {"again": True}})
    kernel.initialize_orchestration("asks outside", programs.LINE, {"raw_input": "asks outside"})
    kernel.get_next_instruction("asks outside")
    for stage in ("draft", "check"):
        kernel.report_agent_result("asks outside", {"agent_name": stage, "output": {"again": False}})
    kernel.initialize_orchestration("answered outside", programs.LINE, {"raw_input": "answered outside"})
    for stage in ("draft", "check"):
        kernel.report_agent_result("answered outside", {"agent_name": stage, "output": {"again": False}})
    kernel.initialize_orchestration("copied outside", programs.LINE, {"raw_input": "copied outside"})
    kernel.report_agent_result("copied outside", {"agent_name": "draft", "output": {"n": 4}})
    kernel.orchestrator.resume_from_checkpoint("restored outside", kernel.orchestrator.checkpoint("copied outside"))
    kernel.orchestrator.terminate_session("copied outside", message="no longer wanted")
    await settle()
    await kernel.resolve_interrupt(kernel.get_pending_interrupt("answered outside").id, {"approved": True})
    kernel.get_next_instruction("answered outside")
    kernel.initialize_orchestration("cleaned", programs.LINE)
    kernel.orchestrator.terminate_session("cleaned")
    kernel.orchestrator.cleanup_session("cleaned")
    for stage in programs.STAGES:
        kernel.register_agent(stage, programs.run_stage, idempotent=stage != "draft")
    for config, pid in (
        (programs.LINE, "doubtful"),  # a stage that must not be performed twice is in flight
        (programs.LINE, "run"),  # its first check is in flight
        (programs.LINE, "asks"),  # has been through its loop, and waits for a confirmation
        (programs.FORK, "forked"),  # one of two branches is in flight
    ):
        kernel.loop.create_task(follow(kernel.execute_pipeline(config, {"raw_input": pid}, pid=pid)))
        await settle()


async def follow(events: AsyncIterator[Any]) -> list[str]:
    return [event.type async for event in events]


async def workers(kernel: Kernel) -> None:
    """Entries that workers outside drive, in every state, with quotas, usage, rate limits and times."""
    kernel.resources.set_default_quota({"max_llm_calls": 50})
    kernel.rate_limiter.set_user_limits("ada", {"requests_per_minute": 3, "burst_size": 0})
    kernel.rate_limiter.set_endpoint_limits("search", {"requests_per_hour": 5, "burst_size": 0})
    for pid, priority in (("low", "low"), ("high", "high"), ("normal", "normal"), ("late", "normal"), ("dead", "idle")):
        kernel.submit(pid, priority=priority, user_id="ada", request_id=f"r-{pid}", session_id="s")
    kernel.submit("timed", user_id="bob", quota={"timeout_seconds": 100, "soft_timeout_seconds": 50})
    kernel.submit("new", user_id="bob", parent_pid="high")
    for pid in ("timed", "low", "high", "normal", "dead"):
        kernel.schedule(pid)
    kernel.get_next_runnable()  # high
    kernel.record_usage("high", llm_calls=2, tokens_in=100, tokens_out=20)
    kernel.record_tool_call("high")
    kernel.lifecycle.note("high", current_stage="reading", current_service="printer")
    kernel.adjust_quota("high", {"max_tool_calls": 1})
    kernel.get_next_runnable()  # timed
    kernel.get_next_runnable()  # normal
    kernel.transition_state("normal", "blocked", "waits for a file")
    kernel.terminate("dead", "not needed")
    kernel.submit("forgotten", user_id="bob")
    kernel.record_usage("forgotten", llm_calls=3)
    kernel.terminate("forgotten", "done")
    await kernel.cleanup_process("forgotten")
    kernel.check_rate_limit("eve")
    kernel.rate_limiter.reset_user("eve")
    for _ in range(3):
        kernel.check_rate_limit("ada")
    kernel.check_rate_limit("bob", "search")
    await asyncio.sleep(60.0)  # the soft time-out of `timed` passes


async def mailboxes(kernel: Kernel) -> None:
    """Unread messages, links, monitors, trapped exits, timers, names, parents and children."""
    await kernel.spawn(programs.collect, 3, pid="reader", name="reader", priority="low")
    await kernel.send("reader", {"n": 1})
    await settle()
    await kernel.spawn(programs.collect, 1, pid="watched")
    await kernel.spawn(programs.collect, 1, pid="linked")
    await kernel.spawn(programs.watcher, "watched", "linked", pid="watcher")
    await kernel.spawn(programs.collect, 1, pid="other end")
    await kernel.spawn(programs.tied, "other end", pid="tied")
    await kernel.spawn(programs.sleeper, 600.0, pid="sleeper")
    await kernel.spawn(programs.patient, 900.0, pid="patient")
    await kernel.spawn(programs.parent, pid="parent")
    await kernel.spawn(programs.patient, 1.0, pid="over")
    await kernel.spawn(programs.undecided, "reader", pid="undecided")
    await asyncio.sleep(2.0)
    await kernel.kill("linked", "told to")
    await settle()


async def effects(kernel: Kernel) -> None:
    await kernel.spawn(programs.errands, pid="errands", budget="$1.00", grant=["net.http:other.example"])
    for text in ("retried", "skipped", "failed"):
        await kernel.spawn(programs.payer, text, pid=f"payer {text}")
    await kernel.spawn(programs.counter, pid="counter")
    await kernel.spawn(programs.gated, pid="gated")
    await settle()


async def memories(kernel: Kernel) -> None:
    for text, kind in (("likes tea", "preference"), ("lives in Ulm", "fact"), ("is forgotten", "fact")):
        kernel.memories.add("facts", text, kind=kind)
    kernel.memories.forget(kernel.memories.items("facts")[-1].id, scope="facts")
    for pid in ("clean", "marked", "told"):
        await kernel.spawn(programs.learner, pid, pid=pid)
    await kernel.spawn(programs.learner, "tells", pid="tells")
    kernel.taint.mark("marked", "a web page")
    kernel.memories.add("facts", "read somewhere", pid="marked")
    kernel.taint.pass_on("marked", "told", "a message from")
    await kernel.send("tells", "go on")
    await settle()


async def agents(kernel: Kernel) -> None:
    """One agent process for each place in a turn where a kill can find it."""
    plain = await kernel.spawn(programs.plain_agent, pid="thinks")
    await plain.send("hello")
    plain.send_async("think")
    for pid, message in (
        ("looks up", 'use look_up {"word": "slow"}'),  # an idempotent tool is in flight
        ("orders", 'use order {"thing": "slow"}'),  # one that must not run twice is in flight
        ("knows", 'use look_up {"word": "tea"}'),  # the tool is done, the model has its result
        ("confirms", 'use confirm {"question": "tea?"}'),  # a tool waits for a person
    ):
        (await kernel.spawn(programs.tool_agent, pid=pid)).send_async(message)
    (await kernel.spawn(programs.lead, pid="lead")).send_async('use helper {"task": "help with it"}')
    remembering = await kernel.spawn(programs.remembering, pid="remembers")
    await remembering.send('use Remember {"text": "tea is hot"}')
    remembering.send_async("what is hot?")
    compacting = await kernel.spawn(programs.compacting, pid="compacts")
    for number in range(6):
        await compacting.send(f"message number {number} says something of some length")
    compacting.send_async("and now")
    streaming = await kernel.spawn(programs.plain_agent, pid="streams")
    kernel.loop.create_task(read(streaming.stream("stream")))
    guarded = await kernel.spawn(programs.guarded, pid="guarded")
    await guarded.send("before the fall")
    guarded.send_async("after the fall")
    await settle()


async def read(stream: AsyncIterable[Any]) -> None:
    with suppress(asyncio.CancelledError):
        async for _ in stream:
            pass


async def parallel(kernel: Kernel) -> None:
    """Calls ahead of their turn: the second is answered, the third is in flight behind it, as is the first."""
    await kernel.spawn(programs.review, pid="review", budget={"llm_calls": 3})
    await settle()


async def withdrawals(kernel: Kernel) -> None:
    """Messages to agents whose senders gave up: one in the middle of its turn, one that waited, one just before the
    kill; and a process with few rights."""
    asked = await kernel.spawn(programs.plain_agent, pid="asked")
    given_up = asked.send_async("given up")
    waiting = asked.send_async("never begun")
    asked.send_async("kept")
    other = await kernel.spawn(programs.plain_agent, pid="other")
    waiting.cancel()
    with suppress(TimeoutError):
        await asyncio.wait_for(given_up, 0.5)
    with suppress(DeadlineExceeded):
        await other.send("the last", timeout=0.5)
    await kernel.spawn(programs.worker, "few", pid="few", grant={"allow": ["process.send:few"]})
    await settle()


async def ended(kernel: Kernel) -> None:
    """So many processes have ended that most of their states are put away; every tenth pid was chosen."""
    for first in range(0, 1_600, 20):
        numbers = range(first, first + 20)
        chosen = [{} if number % 10 else {"pid": f"old-{number}"} for number in numbers]
        handles = [kernel.spawn(programs.collect, 0, **options) for options in chosen]  # type: ignore[call-overload]
        for handle in handles:
            await handle.wait()
    await kernel.spawn(programs.worker, "left", pid="left")
    await settle()


Scene = Callable[[Kernel], Awaitable[None]]
SCENES: dict[str, Scene] = {
    "supervisors": supervisors,
    "groups": groups,
    "interrupts": interrupts,
    "services": services,
    "pipelines": pipelines,
    "workers": workers,
    "mailboxes": mailboxes,
    "effects": effects,
    "memories": memories,
    "agents": agents,
    "parallel": parallel,
    "withdrawals": withdrawals,
    "ended": ended,
}
