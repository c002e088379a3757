"""Services: registered, healthy or not, with so many slots, dispatched to; and what of that survives."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lyra.core.envelope import Envelope
from lyra.errors import (
    ConfigError,
    DeadlineExceeded,
    EffectFailed,
    InvalidTransition,
    LimitExceeded,
    NameTaken,
    NoSuchService,
    Overloaded,
    ProcessError,
    RateLimited,
)
from lyra.kernel import Kernel, ServiceInfo, ServiceRequest, ServiceResponse, ServiceStatus
from lyra.kernel.services.registry import STATUSES, ServiceState
from tests.kernel.conftest import Crash, pass_time, run, settle


def echo(request):
    return ServiceResponse(envelope=request.envelope, metadata={"echo": request.metadata})


def test_a_service_is_found_by_name_and_by_type(target):
    """What was registered is listed as it was given, with the defaults of `ServiceInfo`."""

    async def main():
        async with Kernel(target) as kernel:
            await kernel.register_service(ServiceInfo("alpha"))
            kernel.register_service(
                {"name": "beta", "service_type": "INFERENCE", "capabilities": ["m1"], "version": "2"}
            )
            alpha = kernel.services.get_service("alpha")
            assert (alpha.service_type, alpha.version, alpha.max_concurrent) == ("worker", "1.0.0", 10)
            assert (alpha.status, alpha.current_load, alpha.capabilities, alpha.metadata) == ("healthy", 0, [], {})
            assert alpha.last_health_check is not None
            assert [info.name for info in kernel.services.list_services()] == ["alpha", "beta"]
            assert [info.name for info in kernel.services.list_services_by_type("inference")] == ["beta"]
            await kernel.unregister_service("alpha")
            assert [info.name for info in kernel.services.list_services()] == ["beta"]

    run(main())


def test_wrong_registrations_change_nothing(target):
    """A duplicate is NameTaken, an unknown name NoSuchService, a wrong setting ConfigError; nothing is registered."""

    async def main():
        async with Kernel(target) as kernel:
            kernel.register_service(ServiceInfo("alpha", version="1"))
            with pytest.raises(NameTaken):
                kernel.register_service(ServiceInfo("alpha", version="2"))
            rubbish: list[Any] = [
                {"name": "b", "service_typ": "worker"},
                {"service_type": "worker"},
                {"name": "b", "service_type": "worke"},
                {"name": "b", "status": "fine"},
                {"name": "b", "max_concurrent": 0},
                {"name": "b", "capabilities": "m1"},
                {"name": "b", "metadata": 3},
                {"name": "b", "metadata": {"x": object()}},
                {"name": ""},
                "b",
            ]
            for wrong in rubbish:
                with pytest.raises(ConfigError):
                    kernel.register_service(wrong)
            for call in (
                lambda: kernel.unregister_service("missing"),
                lambda: kernel.register_handler("missing", echo),
                lambda: kernel.services.get_service("missing"),
                lambda: kernel.services.update_health("missing", "healthy"),
                lambda: kernel.services.can_accept("missing"),
                lambda: kernel.services.acquire_slot("missing"),
                lambda: kernel.services.release_slot("missing"),
                lambda: kernel.services.check_health("missing", lambda: True),
            ):
                with pytest.raises(NoSuchService):
                    call()
            with pytest.raises(NoSuchService):
                await kernel.dispatch("missing", ServiceRequest())
            with pytest.raises(ConfigError, match="no handler"):
                await kernel.dispatch("alpha", ServiceRequest())
            with pytest.raises(ConfigError):
                kernel.register_handler("alpha", 3)  # type: ignore[arg-type]
            with pytest.raises(ConfigError, match="healthy"):
                kernel.services.update_health("alpha", "healthly")
            assert [info.version for info in kernel.services.list_services()] == ["1"]
            assert kernel.services.get_stats()["total_load"] == 0

    run(main())


@pytest.mark.parametrize("most", [1, 2, 3, 10])
def test_health_decides_how_much_is_accepted(target, most):
    """Healthy takes its maximum, degraded at least one and fewer than that, unhealthy and unknown nothing."""

    async def main():
        async with Kernel(target) as kernel:
            services = kernel.services
            kernel.register_service(ServiceInfo("s", max_concurrent=most))
            taken = {}
            for status in STATUSES:
                services.update_health("s", status)
                count = 0
                while services.can_accept("s"):
                    assert services.acquire_slot("s")
                    count += 1
                with pytest.raises(Overloaded) as full:
                    services.acquire_slot("s")
                assert full.value.status == status
                assert services.get_service("s").current_load == count
                taken[status] = count
                for _ in range(count):
                    services.release_slot("s")
            assert taken["healthy"] == most
            assert 1 <= taken["degraded"] <= max(1, most - 1)
            assert taken["unhealthy"] == taken["unknown"] == 0
            with pytest.raises(InvalidTransition):
                services.release_slot("s")

    run(main())


def test_a_handler_may_give_any_shape(target):
    """A response, an envelope, a mapping or nothing; plain or async; all come back as a ServiceResponse."""

    async def main():
        async with Kernel(target) as kernel:
            envelope = Envelope.create(kernel.entropy, now=0.0, raw_input="hello")
            other = Envelope.create(kernel.entropy, now=0.0, raw_input="bye")
            answers: list[tuple[Any, ServiceResponse]] = [
                (None, ServiceResponse(envelope=envelope)),
                (other, ServiceResponse(envelope=other)),
                ({"found": 3}, ServiceResponse(envelope=envelope, metadata={"found": 3})),
                ({"error": "no"}, ServiceResponse(envelope=envelope, error="no")),
                ({"envelope": other.to_data()}, ServiceResponse(envelope=other)),
                (ServiceResponse(metadata={"a": 1}), ServiceResponse(metadata={"a": 1})),
            ]
            kernel.register_service(ServiceInfo("s"))
            for answer, expected in answers:

                async def slow(request, answer=answer):
                    await asyncio.sleep(0)
                    return answer

                for handler in (slow, lambda request, answer=answer: answer):
                    kernel.register_handler("s", handler)
                    for request in (
                        ServiceRequest(pid="p", envelope=envelope),
                        envelope,
                        {"envelope": envelope.to_data()},
                    ):
                        got = await kernel.dispatch("s", request)
                        assert (got.envelope, got.metadata, got.error) == (
                            expected.envelope,
                            expected.metadata,
                            expected.error,
                        )
                        assert got.success == (expected.error is None)
            kernel.register_handler("s", lambda request: 3)
            with pytest.raises(ConfigError, match="gave int"):
                await kernel.dispatch("s", envelope)
            with pytest.raises(ConfigError):
                await kernel.dispatch("s", 3)
            with pytest.raises(ConfigError, match="envelop"):
                await kernel.dispatch("s", {"envelop": None})
            assert kernel.services.get_service("s").current_load == 0

    run(main())


def test_a_full_service_refuses_and_every_end_frees_its_slot(target, clock):
    """So many at once and no more; a slot is free again after a result, an error, a time-out and a cancellation."""

    async def main():
        async with Kernel(target, clock) as kernel:
            gate = asyncio.Event()

            async def handler(request):
                await gate.wait()
                if request.metadata.get("fail"):
                    raise ValueError("broken")

            kernel.register_service(ServiceInfo("s", max_concurrent=4))
            kernel.register_handler("s", handler)
            start = asyncio.ensure_future
            result = start(kernel.dispatch("s", ServiceRequest()))
            error = start(kernel.dispatch("s", ServiceRequest(metadata={"fail": True})))
            late = start(kernel.dispatch("s", ServiceRequest(), timeout_s=2.0))
            cancelled = start(kernel.dispatch("s", ServiceRequest()))
            await settle(kernel)
            assert kernel.services.get_service("s").current_load == 4
            with pytest.raises(Overloaded, match="capacity"):
                await kernel.dispatch("s", ServiceRequest())
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            assert kernel.services.get_service("s").current_load == 3
            clock.advance(2.0)
            with pytest.raises(DeadlineExceeded, match="within 2 s"):
                await late
            assert kernel.services.get_service("s").current_load == 2
            gate.set()
            assert (await result).success
            with pytest.raises(EffectFailed, match="broken") as failed:
                await error
            assert isinstance(failed.value.__cause__, ValueError)
            stats = kernel.services.get_stats()
            assert (stats["total_load"], stats["dispatched"], stats["failed"]) == (0, 4, 3)
            assert (stats["total_services"], stats["total_handlers"], stats["total_capacity"]) == (1, 1, 4)
            assert (stats["healthy_services"], stats["services_by_type"]) == (1, {"worker": 1})

    run(main())


def test_an_unhealthy_service_is_said_to_be(target):
    """Dispatch says which it is: unhealthy, unknown, or full."""

    async def main():
        async with Kernel(target) as kernel:
            kernel.register_service(ServiceInfo("s", status="unhealthy"))
            kernel.register_handler("s", echo)
            with pytest.raises(Overloaded, match="unhealthy"):
                await kernel.dispatch("s")
            kernel.services.update_health("s", "unknown")
            with pytest.raises(Overloaded, match="unknown"):
                await kernel.dispatch("s")
            kernel.services.update_health("s", ServiceStatus.DEGRADED)
            info = kernel.services.get_service("s")
            assert info.status == "degraded"
            assert info.status == ServiceStatus.DEGRADED
            assert (info.is_healthy, info.capacity) == (True, 5)
            assert (await kernel.dispatch("s")).success

    run(main())


def test_failures_are_tried_again_by_their_class(target, clock):
    """What a later try may not meet is tried again after a pause on the kernel's clock; a mistake is not."""

    async def main():
        async with Kernel(target, clock, seed=1) as kernel:
            calls = []

            async def handler(request):
                calls.append(clock.monotonic())
                errors = request.metadata["errors"]
                if len(calls) <= len(errors):
                    if isinstance(errors[len(calls) - 1], str):
                        return ServiceResponse(error=errors[len(calls) - 1])
                    raise errors[len(calls) - 1]
                return {"calls": len(calls)}

            async def ask(errors, **options):
                calls.clear()
                request = ServiceRequest(metadata={"errors": errors})
                work = asyncio.ensure_future(kernel.dispatch("s", request, **options))
                await pass_time(kernel, clock, 30)
                return await work

            kernel.register_service(ServiceInfo("s"))
            kernel.register_handler("s", handler)
            answer = await ask([RuntimeError("once"), "twice"], max_retries=2)
            assert (answer.metadata, answer.retries) == ({"calls": 3}, 2)
            assert calls[1] > calls[0]
            pauses = {"kind": "constant", "initial_s": 3.0}
            assert (await ask([RuntimeError("once")], max_retries=1, backoff=pauses)).duration_s >= 3.0
            with pytest.raises(EffectFailed, match="twice"):
                await ask([RuntimeError("once"), RuntimeError("twice")], max_retries=1)
            assert (await ask(["no", "still no"], max_retries=1)).error == "still no"
            for once in (ValueError("once"), KeyError("once")):
                assert (await ask([once], max_retries=5)).retries == 1
            with pytest.raises(ConfigError):
                await ask([ConfigError("same mistake")], max_retries=5)
            assert len(calls) == 1
            with pytest.raises(RateLimited):
                await ask([RateLimited("slow down")])
            with pytest.raises(DeadlineExceeded):
                await ask([RuntimeError("x")] * 9, max_retries=9, timeout_s=1.0, backoff=pauses)
            with pytest.raises(ConfigError):
                await kernel.dispatch("s", max_retries=-1)
            with pytest.raises(ConfigError):
                await kernel.dispatch("s", timeout_s=0)
            assert kernel.services.get_stats()["total_load"] == 0

    run(main())


@pytest.mark.parametrize("word", ["draw", "pictures", "worker"])
def test_the_least_loaded_of_several_takes_the_request(word, target):
    """Instances of one name, services with a capability, services of a type: a free one before a full one, a healthy
    one before a degraded one, the one with the least load first, and none without a handler."""

    async def main():
        async with Kernel(target) as kernel:
            seen = []
            release = asyncio.Event()

            def works(name):
                async def handler(request):
                    seen.append(name)
                    if request.metadata.get("wait"):
                        await release.wait()
                    return {"by": name}

                return handler

            kernel.register_service(ServiceInfo("other", service_type="flow"))
            kernel.register_handler("other", works("other"))
            for number, most in ((1, 2), (2, 4)):
                info = ServiceInfo(f"draw/{number}", capabilities=["pictures"], max_concurrent=most)
                kernel.register_service(info)
                kernel.register_handler(info.name, works(info.name))
            kernel.register_service(ServiceInfo("draw/3", capabilities=["pictures"]))  # it has no handler
            busy = []
            for _ in range(6):
                busy.append(asyncio.ensure_future(kernel.dispatch(word, {"metadata": {"wait": True}})))
                await settle(kernel)
            # 0/2 and 0/4: the first; then the emptier one each time, by its part of the capacity
            assert seen == ["draw/1", "draw/2", "draw/2", "draw/1", "draw/2", "draw/2"]
            with pytest.raises(Overloaded, match="at capacity"):
                await kernel.dispatch(word)
            release.set()
            await asyncio.gather(*busy)
            kernel.services.update_health("draw/1", "degraded")
            assert (await kernel.dispatch(word)).metadata == {"by": "draw/2"}
            kernel.services.update_health("draw/2", "unhealthy")
            assert (await kernel.dispatch(word)).metadata == {"by": "draw/1"}
            kernel.unregister_service("draw/1")
            kernel.unregister_service("draw/3")
            with pytest.raises(Overloaded, match="draw/2 is unhealthy"):
                await kernel.dispatch(word)
            assert (await kernel.dispatch("other")).metadata == {"by": "other"}
            with pytest.raises(NoSuchService):
                await kernel.dispatch("paint")

    run(main())


def test_instances_are_known_after_a_restart(path):
    """Their registrations are durable; a request goes to the one whose handler is there again."""

    async def first_life():
        async with Crash(Kernel(path)) as kernel:
            for name in ("draw", "draw/2"):
                kernel.register_service(ServiceInfo(name))
            await kernel.durable()

    async def second_life():
        async with Kernel(path) as kernel:
            kernel.register_handler("draw/2", echo)
            assert kernel.services.choose("draw") == "draw/2"
            assert (await kernel.dispatch("draw", {"metadata": {"n": 1}})).metadata == {"echo": {"n": 1}}

    run(first_life())
    run(second_life())


def test_inference_goes_to_the_least_busy_service_with_the_model(target):
    """A model is found in capabilities, metadata or the name; the quota is asked before, and counted after, always."""

    async def main():
        async with Kernel(target) as kernel:
            seen = []

            def answer(name):
                async def handler(request):
                    seen.append((name, request.envelope.raw_input, request.metadata["model"]))
                    if request.envelope.raw_input == "fail":
                        raise RuntimeError("no answer")
                    return {"text": "ok"}

                return handler

            for info in (
                ServiceInfo("one", service_type="inference", capabilities=["m"]),
                ServiceInfo("two", service_type="inference", metadata={"models": ["m"]}),
                ServiceInfo("three", service_type="inference", metadata={"model": "n"}),
                ServiceInfo("k", service_type="inference"),
                ServiceInfo("m", service_type="worker"),
            ):
                kernel.register_service(info)
                kernel.register_handler(info.name, answer(info.name))
            first = await kernel.dispatch_inference("m", "hi")
            assert (first.metadata, first.model, first.service, first.input_chars) == ({"text": "ok"}, "m", "one", 2)
            kernel.services.acquire_slot("one")
            await kernel.dispatch_inference("m", ["a", "b"])
            kernel.services.update_health("two", "unhealthy")
            await kernel.dispatch_inference("m", {"text": "x", "texts": ["y"]})
            await kernel.dispatch_inference("n", "hi")
            await kernel.dispatch_inference("k", "hi")
            assert [(name, text) for name, text, _ in seen] == [
                ("one", "hi"),
                ("two", "a\nb"),
                ("one", "x\ny"),
                ("three", "hi"),
                ("k", "hi"),
            ]
            with pytest.raises(NoSuchService):
                await kernel.dispatch_inference("x", "hi")
            for wrong in (3, [3], {"txt": "a"}, None):
                with pytest.raises(ConfigError):
                    await kernel.dispatch_inference("m", wrong)
            kernel.submit("job", quota={"max_inference_requests": 2})
            await kernel.dispatch_inference("m", ["abc", "de"], pid="job")
            with pytest.raises(EffectFailed):
                await kernel.dispatch_inference("m", "fail", pid="job")
            usage = kernel.resources.get_usage("job")
            assert (usage.inference_requests, usage.inference_input_chars) == (2, 9)
            count = len(seen)
            with pytest.raises(LimitExceeded, match="inference_requests"):
                await kernel.dispatch_inference("m", "hi", pid="job")
            assert len(seen) == count

    run(main())


def test_health_checks_run_on_the_kernels_clock(target, clock):
    """Failures in a row make a service degraded, then unhealthy; one success makes it healthy; hanging is failing."""

    async def main():
        async with Kernel(target, clock) as kernel:
            answers: list[Any] = [True, False, False, RuntimeError("down"), True, "degraded", "hang", None, "nonsense"]
            asked = []

            async def check():
                asked.append(clock.monotonic())
                answer = answers[len(asked) - 1]
                if answer == "hang":
                    await asyncio.Event().wait()
                if isinstance(answer, Exception):
                    raise answer
                return answer

            changes = []
            kernel.on_event(lambda e: changes.append(e.data["status"]) if e.kind == "service.health_changed" else None)
            kernel.register_service(ServiceInfo("s"))
            stop = kernel.services.check_health("s", check, interval_s=10, degraded_after=2, unhealthy_after=3)
            statuses = []
            for _ in range(6):
                await pass_time(kernel, clock, 10, step_s=5)
                statuses.append(kernel.services.get_service("s").status)
            assert statuses == ["healthy", "healthy", "degraded", "unhealthy", "healthy", "degraded"]
            assert kernel.services.get_service("s").last_health_check == 1_060.0
            await pass_time(kernel, clock, 20, step_s=5)  # hangs, and is given up after one interval
            assert len(asked) == 7
            await pass_time(kernel, clock, 10, step_s=5)
            assert kernel.services.get_service("s").status == "healthy"
            stop()
            await pass_time(kernel, clock, 30, step_s=5)
            assert len(asked) == 8
            assert changes == ["degraded", "unhealthy", "healthy", "degraded", "healthy"]
            for wrong in ({"interval_s": 0}, {"degraded_after": 0}, {"unhealthy_after": 0}):
                with pytest.raises(ConfigError):
                    kernel.services.check_health("s", check, **wrong)
            with pytest.raises(ConfigError):
                kernel.services.check_health("s", "ping")  # type: ignore[arg-type]
            kernel.services.check_health("s", check, interval_s=10)
            kernel.services.check_health("s", lambda: "UNHEALTHY", interval_s=10)  # takes the place of the other
            await pass_time(kernel, clock, 10, step_s=5)
            assert len(asked) == 8
            assert kernel.services.get_service("s").status == "unhealthy"
            kernel.unregister_service("s")
            await pass_time(kernel, clock, 20, step_s=5)
            with pytest.raises(NoSuchService):
                kernel.services.get_service("s")

    run(main())


def test_events_say_what_changed(target):
    """Registered, unregistered and a change of health are Events; a report of the same health is none."""

    async def main():
        async with Kernel(target) as kernel:
            heard = []
            kernel.on_event(lambda event: heard.append((event.kind, dict(event.data))))
            await kernel.register_service(ServiceInfo("s", service_type="flow"))
            await kernel.services.update_health("s", "healthy")
            await kernel.services.update_health("s", "Degraded")
            await kernel.unregister_service("s")
            heard = [(kind, data) for kind, data in heard if kind.startswith("service.")]
            assert [kind for kind, _ in heard] == [
                "service.registered",
                "service.health_changed",
                "service.unregistered",
            ]
            assert (heard[0][1]["service_name"], heard[0][1]["service_type"]) == ("s", "flow")
            assert heard[1][1] == {"service_name": "s", "status": "degraded", "old_status": "healthy"} | {
                "at": heard[1][1]["at"]
            }
            assert heard[2][1] == {"service_name": "s", "service_type": "flow"}

    run(main())


def test_a_request_in_flight_outlives_its_service(target):
    """Unregistering lets requests finish; their slots are not those of a service registered later by that name."""

    async def main():
        async with Kernel(target) as kernel:
            gate = asyncio.Event()

            async def handler(request):
                await gate.wait()
                return {"old": True}

            kernel.register_service(ServiceInfo("s"))
            kernel.register_handler("s", handler)
            work = asyncio.ensure_future(kernel.dispatch("s"))
            await settle(kernel)
            kernel.unregister_service("s")
            kernel.register_service(ServiceInfo("s"))
            with pytest.raises(ConfigError, match="no handler"):
                await kernel.dispatch("s")
            kernel.services.acquire_slot("s")
            gate.set()
            assert (await work).metadata == {"old": True}
            assert kernel.services.get_service("s").current_load == 1

    run(main())


@pytest.mark.parametrize("snapshot", [False, True])
def test_registrations_and_health_survive_a_crash(path, clock, snapshot):
    """After kill -9 a service is there as it was, without load or handler; its program claims it again, once."""

    async def before():
        async with Crash(Kernel(path, clock)) as kernel:
            kernel.register_service(ServiceInfo("a", capabilities=["x"], metadata={"deep": [1, {"k": None}]}))
            kernel.register_service(ServiceInfo("b", service_type="flow"))
            kernel.register_service(ServiceInfo("c"))
            if snapshot:
                await kernel.services.update_health("b", "degraded")
                await kernel._snapshots.write()
            clock.advance(5)
            kernel.services.update_health("a", "degraded")
            kernel.services.acquire_slot("a")
            await kernel.unregister_service("c")
            kernel.register_service(ServiceInfo("lost"))

    async def after():
        async with Kernel(path, clock) as kernel:
            names = [info.name for info in kernel.services.list_services()]
            assert names == ["a", "b"]
            a = kernel.services.get_service("a")
            assert (a.status, a.current_load, a.capabilities, a.metadata, a.last_health_check) == (
                "degraded",
                0,
                ["x"],
                {"deep": [1, {"k": None}]},
                1_005.0,
            )
            with pytest.raises(ConfigError, match="no handler"):
                await kernel.dispatch("a")
            kernel.register_handler("a", echo)
            assert (await kernel.dispatch("a", {"metadata": {"n": 1}})).metadata == {"echo": {"n": 1}}
            kernel.register_service(ServiceInfo("a", version="2"))
            assert kernel.services.get_service("a").version == "2"
            assert (await kernel.dispatch("a")).success
            with pytest.raises(NameTaken):
                kernel.register_service(ServiceInfo("a", version="3"))

    run(before())
    run(after())


def test_there_is_a_most_of_services(target, monkeypatch):
    """One more than may be is Overloaded; registering a known name again is still NameTaken."""

    async def main():
        monkeypatch.setattr("lyra.kernel.services.registry.SERVICES_MAX", 1)
        async with Kernel(target) as kernel:
            kernel.register_service(ServiceInfo("a"))
            with pytest.raises(Overloaded):
                kernel.register_service(ServiceInfo("b"))
            with pytest.raises(NameTaken):
                kernel.register_service(ServiceInfo("a"))
            assert kernel.services.get_stats()["total_services"] == 1

    run(main())


def test_a_closed_kernel_refuses(target):
    """Before it opens and after it closes, nothing is registered or dispatched."""

    async def main():
        kernel = Kernel(target)
        with pytest.raises(ProcessError):
            kernel.register_service(ServiceInfo("a"))
        async with kernel:
            kernel.register_service(ServiceInfo("a"))
            kernel.services.check_health("a", lambda: True)
        with pytest.raises(ProcessError):
            kernel.register_service(ServiceInfo("b"))
        with pytest.raises(ProcessError):
            await kernel.dispatch("a")

    run(main())


def test_a_program_dispatches_in_an_effect(path):
    """What a service answered is journaled with the effect: a replay does not ask again."""
    kernel: Any = None
    asked = []

    async def summary(ctx):
        async def ask(text: str) -> str:
            response = await kernel.dispatch("s", {"pid": ctx.pid, "metadata": {"text": text}})
            return str(response.metadata["text"])

        answer = await ctx.do(ask, "abc")
        await ctx.receive()
        return answer

    def handler(request):
        asked.append(request.pid)
        return {"text": request.metadata["text"].upper()}

    async def before():
        nonlocal kernel
        async with Crash(Kernel(path, programs=[summary])) as kernel:
            kernel.register_service(ServiceInfo("s"))
            kernel.register_handler("s", handler)
            await kernel.spawn(summary, pid="one")
            await settle(kernel)

    async def after():
        nonlocal kernel
        async with Kernel(path, programs=[summary]) as kernel:
            await kernel.send("one", "go on")
            assert (await kernel.process("one").wait()).result == "ABC"
            assert asked == ["one"]

    run(before())
    run(after())


# ---------------------------------------------------------------------- as a state machine

NAMES = st.sampled_from(["a", "b", "c"])
STATUS = st.sampled_from(list(STATUSES))


class Registry(RuleBasedStateMachine):
    """Against a model of three dictionaries; the state is also what its rows, and its dump, make of it again."""

    @initialize()
    def begin(self):
        self.loop = asyncio.new_event_loop()
        self.kernel = Kernel("memory", seed=1)
        self.loop.run_until_complete(self.kernel.start())
        self.services = self.kernel.services
        self.rows: list[Any] = []
        self.kernel.on_event(self.rows.append)
        self.model: dict[str, list[Any]] = {}  # name → [max, status, load]

    @rule(name=NAMES, most=st.integers(1, 4), status=STATUS)
    def register(self, name, most, status):
        info = ServiceInfo(name, max_concurrent=most, status=status)
        if name in self.model:
            with pytest.raises(NameTaken):
                self.kernel.register_service(info)
        else:
            self.kernel.register_service(info)
            self.model[name] = [most, status, 0]

    @rule(name=NAMES)
    def unregister(self, name):
        if name in self.model:
            self.kernel.unregister_service(name)
            del self.model[name]
        else:
            with pytest.raises(NoSuchService):
                self.kernel.unregister_service(name)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), status=STATUS)
    def report(self, data, status):
        name = data.draw(st.sampled_from(sorted(self.model)))
        self.services.update_health(name, status)
        self.model[name][1] = status

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def acquire(self, data):
        name = data.draw(st.sampled_from(sorted(self.model)))
        most, status, load = self.model[name]
        if load < STATUSES[status](most):
            self.services.acquire_slot(name)
            self.model[name][2] += 1
        else:
            assert not self.services.can_accept(name)
            with pytest.raises(Overloaded):
                self.services.acquire_slot(name)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def release(self, data):
        name = data.draw(st.sampled_from(sorted(self.model)))
        if self.model[name][2]:
            self.services.release_slot(name)
            self.model[name][2] -= 1
        else:
            with pytest.raises(InvalidTransition):
                self.services.release_slot(name)

    @invariant()
    def agrees(self):
        if not hasattr(self, "model"):
            return
        services = {i.name: [i.max_concurrent, i.status, i.current_load] for i in self.services.list_services()}
        assert services == self.model
        again = ServiceState()
        for event in self.rows:
            if event.kind in ServiceState.KINDS:
                again.apply(event.kind, event.pid, event.time, dict(event.data))
        kept = ServiceState()
        kept.load(again.dump())
        for state in (again, kept):
            assert {k: (v["max_concurrent"], v["status"]) for k, v in state.services.items()} == {
                k: (v[0], v[1]) for k, v in self.model.items()
            }

    def teardown(self):
        if hasattr(self, "kernel"):
            self.loop.run_until_complete(self.kernel.close())
            self.loop.close()


TestRegistry = Registry.TestCase
TestRegistry.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)


def test_a_response_of_a_model(target, clock):
    """The envelope with the text, how often it was tried again, how long it took; or its error."""

    async def main():
        async with Kernel(target, clock, seed=1) as kernel:
            tries: list[int] = []

            async def handler(request):
                tries.append(1)
                if len(tries) == 1:
                    raise RuntimeError("once")
                failed = "out of paper" if request.envelope.raw_input == "fail" else None
                return ServiceResponse(envelope=request.envelope, error=failed)

            kernel.register_service(ServiceInfo("s", service_type="inference", capabilities=["m"]))
            kernel.register_handler("s", handler)
            work = asyncio.ensure_future(kernel.services.dispatch_inference("m", "hi", max_retries=1))
            await pass_time(kernel, clock, 30)
            return await work, await kernel.services.dispatch_inference("m", "fail")

    answer, refused = run(main())
    assert (answer.envelope.raw_input, answer.error, answer.retries) == ("hi", None, 1)
    assert answer.duration_s > 0
    assert (refused.error, refused.success, refused.retries) == ("out of paper", False, 0)
