"""Services over several shards: known to all, a local handler first, else the least loaded healthy one abroad."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from lyra.errors import (
    CapabilityDenied,
    DeadlineExceeded,
    EffectFailed,
    LimitExceeded,
    NoSuchService,
    Overloaded,
    StoreError,
)
from lyra.kernel import Kernel, ServiceRequest
from lyra.kernel.programs.context import Context
from tests.kernel.remote.wired import Shards, run_shards


def offer(kernel: Kernel, handler: Any = None, **info: Any) -> None:
    """Register the service `resize` with a handler that says where it ran."""
    shard = kernel.core.remote.shard
    kernel.register_service({"name": "resize", **info})
    kernel.register_handler("resize", handler or (lambda _request: {"shard": shard}))


def status(kernel: Kernel, name: str = "resize") -> str:
    return str(kernel.services.get_service(name).status)


async def place(kernel: Kernel, request: Any = None, **options: Any) -> str:
    return str((await kernel.dispatch("resize", request, **options)).metadata["shard"])


def test_a_service_of_one_shard_is_called_from_all():
    """Requests and answers arrive whole; the registration is listed on each shard, with the shard that has it."""

    async def main() -> None:
        async with Shards("a", "b", "c") as shards:
            offer(shards["a"], lambda request: {"n": request.metadata["n"] + 1, "pid": request.pid}, version="2")
            await shards.settle()
            answer = await shards["b"].dispatch("resize", ServiceRequest(pid="p1", metadata={"n": 1}))
            assert (answer.metadata, answer.error, answer.retries) == ({"n": 2, "pid": "p1"}, None, 0)
            (info,) = shards["c"].services.list_services()
            assert (info.name, info.version, info.metadata, info.status) == ("resize", "2", {"shard": "a"}, "healthy")
            shards["a"].unregister_service("resize")
            await shards.settle()
            with pytest.raises(NoSuchService):
                await shards["b"].dispatch("resize")
            assert shards["c"].services.list_services() == []

    run_shards(main)


def test_envelopes_travel():
    """An envelope reaches the handler abroad, and the one that it gives comes back."""

    async def main() -> None:
        async with Shards("a", "b") as shards:

            def shout(request: ServiceRequest) -> Any:
                assert request.envelope is not None
                request.envelope.outputs["loud"] = {"text": request.envelope.raw_input.upper()}
                return request.envelope

            offer(shards["a"], shout)
            await shards.settle()
            answer = await shards["b"].dispatch("resize", {"envelope": {"raw_input": "hello"}})
            assert answer.envelope is not None
            assert answer.envelope.outputs == {"loud": {"text": "HELLO"}}

    run_shards(main)


def test_a_local_handler_comes_first():
    """A shard uses its own handler while that has room, and one abroad when it is full or unwell."""

    async def main() -> None:
        async with Shards("a", "b") as shards:
            gate = asyncio.Event()

            async def slow(_request: ServiceRequest) -> Any:
                await gate.wait()
                return {"shard": "b"}

            offer(shards["a"])
            offer(shards["b"], slow, max_concurrent=1)
            await shards.settle()
            first = asyncio.ensure_future(place(shards["b"]))
            await asyncio.sleep(0.01)
            assert await place(shards["b"]) == "a"
            gate.set()
            assert await first == "b"
            assert await place(shards["b"]) == "b"
            shards["b"].services.update_health("resize", "unhealthy")
            assert await place(shards["b"]) == "a"

    run_shards(main)


def test_the_least_loaded_place_abroad_is_taken():
    """Twelve requests at once over two shards with eight and four places: each has what it has room for, and the
    thirteenth is refused as a full service refuses."""

    async def main() -> None:
        async with Shards("a", "b", "c") as shards:
            gate, running = asyncio.Event(), Counter[str]()

            def make(name: str) -> Any:
                async def work(_request: ServiceRequest) -> Any:
                    running[name] += 1
                    await gate.wait()
                    return {"shard": name}

                return work

            offer(shards["a"], make("a"), max_concurrent=8)
            offer(shards["b"], make("b"), max_concurrent=4)
            await shards.settle()
            calls = [asyncio.ensure_future(place(shards["c"])) for _ in range(6)]
            await asyncio.sleep(0.01)
            assert running == {"a": 4, "b": 2}  # by the part of their room in use
            calls += [asyncio.ensure_future(place(shards["c"])) for _ in range(6)]
            await asyncio.sleep(0.01)
            assert running == {"a": 8, "b": 4}
            with pytest.raises(Overloaded):
                await place(shards["c"])
            gate.set()
            assert Counter(await asyncio.gather(*calls)) == {"a": 8, "b": 4}

    run_shards(main)


def test_capacity_is_counted_where_the_handler_is():
    """Two shards that know nothing of each other's requests cannot put more on a handler than it takes; the next place
    takes what it refuses."""

    async def main() -> None:
        async with Shards("a", "b", "c", "d") as shards:
            most: Counter[str] = Counter()
            now: Counter[str] = Counter()

            def make(name: str) -> Any:
                async def work(_request: ServiceRequest) -> Any:
                    now[name] += 1
                    most[name] = max(most[name], now[name])
                    await asyncio.sleep(1)
                    now[name] -= 1
                    return {"shard": name}

                return work

            for name in ("a", "b"):
                offer(shards[name], make(name), max_concurrent=3)
            await shards.settle()
            calls = [asyncio.ensure_future(place(shards[name])) for name in ("c", "d") for _ in range(3)]
            assert len(await asyncio.gather(*calls)) == 6
            assert most == {"a": 3, "b": 3}

    run_shards(main)


def test_health_is_told():
    """A degraded place is taken after healthy ones, an unhealthy one never, one that is well again as before."""

    async def main() -> None:
        async with Shards("a", "b", "c") as shards:
            offer(shards["a"])
            offer(shards["b"])
            await shards.settle()
            shards["a"].services.update_health("resize", "degraded")
            await shards.settle()
            assert {await place(shards["c"]) for _ in range(4)} == {"b"}
            shards["b"].services.update_health("resize", "unhealthy")
            await shards.settle()
            assert {await place(shards["c"]) for _ in range(4)} == {"a"}
            shards["b"].services.update_health("resize", "healthy")
            shards["a"].services.update_health("resize", "healthy")
            await shards.settle()
            assert {await place(shards["c"]) for _ in range(4)} == {"a", "b"}

    run_shards(main)


def test_services_of_a_dead_host():
    """A shard that dies is unhealthy at the first call or as soon as the directory knows; open elsewhere its services
    take nothing until the handlers are registered again."""

    async def main() -> None:
        async with Shards("a", "b", "c") as shards:
            offer(shards["a"])
            offer(shards["b"])
            await shards.settle()
            shards.kill("a")
            answers = Counter[str]()
            for _ in range(10):
                try:
                    answers[await place(shards["c"])] += 1
                except StoreError:
                    answers["lost"] += 1
            assert answers == {"b": 9, "lost": 1}
            shards.closed.add("a")
            assert [info.status for info in shards["c"].services.list_services()] == ["unhealthy", "healthy"]
            await asyncio.sleep(10)
            assert {await place(shards["c"]) for _ in range(4)} == {"b"}
            await shards.reopen("a")
            shards.closed.clear()
            await shards.settle()
            assert [info.status for info in shards["c"].services.list_services()] == ["unhealthy", "healthy"]
            assert {await place(shards["c"]) for _ in range(4)} == {"b"}
            offer(shards["a"])
            await shards.settle()
            assert [info.status for info in shards["c"].services.list_services()] == ["healthy", "healthy"]
            assert await place(shards["c"]) == "a"  # it had fewer requests so far

    run_shards(main)


def test_a_service_that_is_unwell_everywhere_is_waited_for_with_retries():
    """A service whose only shard is dead is refused as unhealthy, and not as unknown; a dispatch with retries goes on
    when its handler is registered elsewhere."""

    async def main() -> None:
        async with Shards("a", "b") as shards:
            offer(shards["a"])
            await shards.settle()
            shards.kill("a")
            shards.closed.add("a")
            with pytest.raises(Overloaded, match="unhealthy"):
                await place(shards["b"])
            waiting = asyncio.ensure_future(place(shards["b"], max_retries=10))
            await asyncio.sleep(1)
            await shards.reopen("a")
            offer(shards["a"])
            shards.closed.clear()
            assert await waiting == "a"
            with pytest.raises(NoSuchService):
                await shards["b"].dispatch("resizes")

    run_shards(main)


def test_a_lost_answer_is_asked_for_again_only_with_retries():
    """A shard that falls silent may have done the work: without retries that is the caller's to know."""

    async def main() -> None:
        async with Shards("a", "b", "c") as shards:
            ran = Counter[str]()

            def make(name: str) -> Any:
                async def work(_request: ServiceRequest) -> Any:
                    ran[name] += 1
                    if name == "a":
                        shards.cut.add(("a", "c"))
                    return {"shard": name}

                return work

            offer(shards["a"], make("a"))
            offer(shards["b"], make("b"))
            await shards.settle()
            with pytest.raises(StoreError):
                await place(shards["c"])
            assert ran == {"a": 1}
            shards.cut.clear()
            await asyncio.sleep(10)
            ran.clear()
            results = [await shards["c"].dispatch("resize", max_retries=1) for _ in range(2)]
            assert [answer.metadata["shard"] for answer in results] == ["b", "b"]
            assert sorted(answer.retries for answer in results) in ([0, 0], [0, 1])

    run_shards(main)


def test_time_outs_and_retries_are_those_of_a_dispatch():
    """`timeout_s` bounds the whole; an error of the handler is retried so often, and then is the caller's."""

    async def main() -> None:
        async with Shards("a", "b") as shards:
            tries: list[int] = []

            async def flaky(request: ServiceRequest) -> Any:
                tries.append(1)
                if request.metadata.get("sleep"):
                    await asyncio.sleep(1000)
                if len(tries) % 3:
                    raise ValueError("not yet")
                return {"shard": "a"}

            offer(shards["a"], flaky)
            await shards.settle()
            answer = await shards["b"].dispatch("resize", max_retries=2)
            assert (answer.retries, len(tries)) == (2, 3)
            with pytest.raises(EffectFailed, match="not yet"):
                await shards["b"].dispatch("resize", max_retries=1)
            began = shards.clock.now()
            with pytest.raises(DeadlineExceeded):
                await shards["b"].dispatch("resize", {"metadata": {"sleep": True}}, timeout_s=2.0)
            assert shards.clock.now() - began == pytest.approx(2.0, abs=0.1)

    run_shards(main)


def test_rights_and_marks_go_with_a_call():
    """A process needs the right to send to the service; text from outside marks the handler's process, and its answer
    marks the caller."""

    async def serves(ctx: Context) -> None:
        offer(ctx.own_process.core.face)
        await ctx.receive()

    async def calls(ctx: Context, is_marked: bool) -> bool:
        kernel = ctx.own_process.core.face
        if is_marked:
            kernel.taint.mark(ctx.pid, "a page")

        async def act() -> Any:
            return (await kernel.dispatch("resize")).metadata

        await ctx.do(act)
        return bool(kernel.taint.is_tainted(ctx.pid))

    async def main() -> None:
        async with Shards("a", "b", programs=(serves, calls)) as shards:
            server = shards["a"].spawn(serves)
            await asyncio.sleep(0.1)
            await shards.settle()
            assert await shards["b"].run(calls, False) is False
            ended = await shards["b"].spawn(calls, False, grant={"allow": ["fs.read:/tmp"]}).wait()
            assert isinstance(ended.error, CapabilityDenied)
            assert not shards["a"].taint.is_tainted(server.pid)
            await shards["b"].run(calls, True)
            assert shards["a"].taint.is_tainted(server.pid)
            assert await shards["b"].run(calls, False) is True

    run_shards(main)


def test_models_of_another_shard_are_asked():
    """`dispatch_inference` asks a model of another shard where this one has none with room, with the caller's right to
    the model, its quota and its figures; the answer names the service by its address."""

    async def main() -> None:
        async with Shards("a", "b") as shards:

            def answer(request: ServiceRequest) -> Any:
                assert request.envelope is not None
                return {"said": request.envelope.raw_input}

            info = {"name": "gpu", "service_type": "inference", "capabilities": ["tiny"]}
            shards["a"].register_service(info)
            shards["a"].register_handler("gpu", answer)
            await shards.settle()
            said = await shards["b"].dispatch_inference("tiny", ["one", "two"])
            assert (said.metadata, said.service, said.model) == ({"said": "one\ntwo"}, "a/gpu", "tiny")
            assert said.input_chars == 6
            with pytest.raises(NoSuchService, match="no inference service"):
                await shards["b"].dispatch_inference("huge", "x")
            shards["b"].submit("job", quota={"max_inference_requests": 1})
            await shards["b"].dispatch_inference("tiny", "x", pid="job")
            with pytest.raises(LimitExceeded):
                await shards["b"].dispatch_inference("tiny", "x", pid="job")
            shards.kill("a")
            with pytest.raises(StoreError):
                await shards["b"].dispatch_inference("tiny", "x")

    run_shards(main)
