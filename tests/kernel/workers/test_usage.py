"""Quotas, usage and what is left."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lyra.core.limits import QUOTA_DEFAULTS
from lyra.errors import ConfigError, NoSuchProcess, ProcessError
from lyra.kernel import Kernel, ResourceQuota
from lyra.kernel.workers.usage import CHECKS, COUNTED
from lyra.testing.clock import SimClock
from tests.cases import cases
from tests.kernel.conftest import Crash, run, settle
from tests.kernel.workers.test_lifecycle import Rows


async def act(value=1):
    return value


async def pays(ctx):
    await ctx.do(act, cost={"llm_calls": 2, "input_tokens": 30, "hops": 1})
    await ctx.receive()


def test_the_defaults():
    """A quota that says nothing has the published defaults; 0 means the same as nothing."""
    quota = ResourceQuota(max_llm_calls=0, timeout_seconds=0)
    assert quota == ResourceQuota()
    assert quota.max_llm_calls == QUOTA_DEFAULTS["llm_calls"] == 100
    assert quota.max_tool_calls == QUOTA_DEFAULTS["tool_calls"] == 200
    assert (quota.max_agent_hops, quota.max_iterations) == (21, 20)
    assert (quota.max_input_tokens, quota.max_output_tokens, quota.max_context_tokens) == (100_000, 50_000, 150_000)
    assert (quota.timeout_seconds, quota.soft_timeout_seconds) == (300.0, 240.0)
    assert (quota.max_inference_requests, quota.max_inference_input_chars) == (100, 100_000)
    assert (quota.rate_limit_rpm, quota.rate_limit_rph, quota.rate_limit_burst) == (0, 0, 0)


def test_a_kernel_has_its_own_defaults():
    """`set_default_quota` holds for entries that come after it, where they say nothing."""

    async def main():
        async with Kernel() as kernel:
            kernel.submit("before")
            kernel.resources.set_default_quota({"max_llm_calls": 5, "max_tool_calls": 6})
            kernel.submit("after", quota={"max_tool_calls": 7, "max_llm_calls": 0})
            assert kernel.get_process("before").quota.max_llm_calls == 100
            quota = kernel.get_process("after").quota
            assert (quota.max_llm_calls, quota.max_tool_calls, quota.max_agent_hops) == (5, 7, 21)

    run(main())


AMOUNTS = {check.resource: check for check in CHECKS if check.resource in COUNTED}


@pytest.mark.parametrize("resource", AMOUNTS)
def test_above_the_limit_is_exceeded(target, resource):
    """At the limit a process is within its quota; one more and it is not, with the reason by name."""
    check = AMOUNTS[resource]

    async def main():
        async with Kernel(target) as kernel:
            kernel.submit("p", quota={check.limit: 5})
            kernel.record_usage("p", **{resource: 5})
            assert kernel.check_quota("p").within_bounds
            usage = kernel.record_usage("p", **{resource: 1})
            assert getattr(usage, resource) == 6
            result = kernel.check_quota("p")
            assert (result.within_bounds, result.exceeded_reason) == (False, f"{check.limit}_exceeded")
            assert getattr(result.usage, resource) == 6
            assert getattr(result.quota, check.limit) == 5

    run(main())


def test_the_first_reason_in_order_is_given(clock):
    """With several limits passed, the order of the table decides; time comes last."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            kernel.submit("p", quota={check.limit: 1 for check in CHECKS})
            kernel.schedule("p")
            kernel.get_next_runnable()
            clock.advance(2)
            assert kernel.check_quota("p").exceeded_reason == "timeout_exceeded"
            for check in reversed(AMOUNTS.values()):
                kernel.record_usage("p", **{check.resource: 2})
                assert kernel.check_quota("p").exceeded_reason == f"{check.limit}_exceeded"

    run(main())


def test_a_context_is_one_call():
    """The context limit looks at the largest single model call, not at their sum."""

    async def main():
        async with Kernel() as kernel:
            kernel.submit("p", quota={"max_context_tokens": 100})
            for _ in range(3):
                kernel.record_usage("p", llm_calls=1, tokens_in=60, tokens_out=40)
            assert kernel.check_quota("p").within_bounds
            assert kernel.get_process("p").usage.context_tokens == 100
            kernel.record_usage("p", llm_calls=1, tokens_in=101)
            assert kernel.check_quota("p").exceeded_reason == "max_context_tokens_exceeded"

    run(main())


def test_time_runs_from_the_first_start(clock):
    """Elapsed time counts from started_at by the clock, ends with the process, and never goes back."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            kernel.submit("p", quota={"timeout_seconds": 10})
            clock.advance(100)
            assert kernel.get_remaining_budget("p").time_remaining_seconds == 10.0
            kernel.schedule("p")
            kernel.get_next_runnable()
            clock.advance(4)
            assert kernel.get_remaining_budget("p").time_remaining_seconds == 6.0
            clock.advance(6)
            assert kernel.check_quota("p").within_bounds
            clock.advance(0.5)
            assert kernel.check_quota("p").exceeded_reason == "timeout_exceeded"
            assert kernel.get_remaining_budget("p").time_remaining_seconds == 0.0
            clock.jump(-1000)
            assert kernel.get_process("p").usage.elapsed_seconds == 10.5

    run(main())


def test_what_is_left_never_goes_below_zero(target):
    """The remaining budget has every resource, clamped at 0."""

    async def main():
        async with Kernel(target) as kernel:
            kernel.submit("p", quota={"max_llm_calls": 3, "max_input_tokens": 10})
            kernel.record_usage("p", llm_calls=1, tokens_in=99, iterations=2)
            kernel.record_tool_call("p")
            kernel.record_agent_hop("p")
            left = kernel.get_remaining_budget("p")
            assert (left.llm_calls_remaining, left.tokens_in_remaining, left.iterations_remaining) == (2, 0, 18)
            assert (left.tool_calls_remaining, left.agent_hops_remaining) == (199, 20)
            assert left.tokens_out_remaining == 50_000
            assert (left.inference_requests_remaining, left.inference_input_chars_remaining) == (100, 100_000)

    run(main())


def test_pids_that_are_not_tracked(target):
    """Checking one is fine; recording begins its books with the default quota; submitting goes on with them."""

    async def main():
        async with Kernel(target) as kernel:
            assert kernel.check_quota("ghost").within_bounds
            assert not kernel.resources.is_tracked("ghost")
            with pytest.raises(NoSuchProcess):
                kernel.get_remaining_budget("ghost")
            with pytest.raises(NoSuchProcess):
                kernel.adjust_quota("ghost", {"max_llm_calls": 1})
            assert kernel.record_usage("ghost", llm_calls=101).llm_calls == 101
            assert kernel.check_quota("ghost").exceeded_reason == "max_llm_calls_exceeded"
            assert kernel.get_remaining_budget("ghost").llm_calls_remaining == 0
            assert kernel.submit("ghost", user_id="ada").usage.llm_calls == 101
            kernel.record_usage("ghost", llm_calls=1)
            assert kernel.resources.get_user_usage("ada").llm_calls == 1
            assert kernel.resources.get_system_usage().llm_calls == 102

    run(main())


@pytest.mark.parametrize(
    "amounts", [{"llm_calls": -1}, {"llm_calls": 1.5}, {"tokens_in": True}, {"llm_cals": 1}, {"tokens_out": 2**60}]
)
def test_bad_amounts_change_nothing(target, amounts):
    """Negative, broken, unknown and absurd amounts are ConfigErrors; nothing is counted, no books are begun."""

    async def main():
        async with Kernel(target) as kernel:
            with pytest.raises(ConfigError):
                kernel.record_usage("p", **amounts)
            assert not kernel.resources.is_tracked("p")
            with pytest.raises(ConfigError):
                kernel.record_usage("", llm_calls=1)

    run(main())


def test_adjusting(target):
    """Named fields change, the others and those given as 0 stay; unknown keys are refused with a hint."""

    async def main():
        async with Kernel(target) as kernel:
            kernel.submit("p", quota={"max_llm_calls": 1, "max_tool_calls": 9})
            quota = kernel.adjust_quota("p", {"max_llm_calls": 2, "max_tool_calls": 0, "timeout_seconds": 1.5})
            assert (quota.max_llm_calls, quota.max_tool_calls, quota.timeout_seconds) == (2, 9, 1.5)
            assert kernel.get_process("p").quota == quota
            wrong: list[Any] = [{"max_llm_call": 3}, {"max_llm_calls": -3}, {"max_llm_calls": "many"}, [("a", 1)]]
            for changes in wrong:
                with pytest.raises(ConfigError):
                    kernel.adjust_quota("p", changes)
            assert kernel.get_process("p").quota == quota

    run(main())


def test_warnings_and_overruns_are_said_once(target, clock):
    """Four fifths of a limit and the soft time-out warn, the limit itself is exceeded: one Event each."""

    async def main():
        events: list[tuple[str, dict[str, Any]]] = []
        async with Kernel(target, clock) as kernel:
            kernel.on_event(
                lambda event: events.append((event.kind, dict(event.data))) if event.kind.startswith("resource.") else 0
            )
            quota = {"max_llm_calls": 10, "timeout_seconds": 100, "soft_timeout_seconds": 50}
            kernel.submit("p", user_id="ada", quota=quota)
            kernel.record_usage("p", llm_calls=7)
            assert events == []
            for _ in range(6):
                kernel.record_usage("p", llm_calls=1)
                kernel.check_quota("p")
            await kernel.durable()
            assert [(kind, data["usage"], data["quota"]) for kind, data in events] == [
                ("resource.warning", 8, 10),
                ("resource.exceeded", 11, 10),
            ]
            assert events[0][1]["resource"] == events[1][1]["resource"] == "llm_calls"
            kernel.adjust_quota("p", {"max_llm_calls": 100})
            assert len(events) == 2
            kernel.schedule("p")
            kernel.get_next_runnable()
            clock.advance(50)
            kernel.check_quota("p")
            clock.advance(51)
            kernel.check_quota("p")
            await kernel.durable()
            assert [(kind, data["resource"], round(data["usage"], 1)) for kind, data in events[2:]] == [
                ("resource.warning", "elapsed_seconds", 50.0),
                ("resource.exceeded", "elapsed_seconds", 100.0),
            ]

    run(main())


def test_users_and_the_whole_kernel(target):
    """Totals of a user and of the kernel outlive the processes they came from."""

    async def main():
        async with Kernel(target) as kernel:
            for pid, user in (("a", "ada"), ("b", "ada"), ("c", "bob")):
                kernel.submit(pid, user_id=user)
                kernel.record_usage(pid, llm_calls=1, tokens_in=10)
            kernel.terminate("a")
            kernel.cleanup_process("a")
            assert kernel.resources.get_user_usage("ada").tokens_in == 20
            assert kernel.resources.get_user_usage("missing").tokens_in == 0
            usage = kernel.resources.get_system_usage()
            assert (usage.total_processes, usage.active_processes, usage.llm_calls, usage.tokens_in) == (3, 2, 3, 30)

    run(main())


def test_totals_of_users_are_bounded(monkeypatch):
    """The user that was inactive longest is forgotten first."""
    monkeypatch.setattr("lyra.kernel.workers.usage.USERS_KEPT", 2)

    async def main():
        async with Kernel() as kernel:
            for user in ("ada", "bob", "ada", "eve"):
                kernel.submit(user, user_id=user)
                kernel.record_tool_call(user)
            assert list(kernel.resources.state.users) == ["ada", "eve"]

    run(main())


def test_a_program_shows_what_it_spent(target):
    """A program process with a budget of its own shows its spending as usage."""

    async def main():
        async with Kernel(target) as kernel:
            await kernel.spawn(pays, pid="p", budget={"llm_calls": 5})
            await settle(kernel)
            usage = kernel.get_process("p").usage
            assert (usage.llm_calls, usage.tokens_in, usage.agent_hops) == (2, 30, 1)
            assert kernel.get_remaining_budget("p").llm_calls_remaining == 98

    run(main())


def test_rates_in_a_quota_tighten_the_users_limits(target):
    """A quota's rates lower the limits of the process's user; they never raise them."""

    async def main():
        async with Kernel(target) as kernel:
            kernel.submit("a", user_id="ada", quota={"rate_limit_rpm": 3, "rate_limit_rph": 9_999_999})
            config = kernel.rate_limiter.get_config("ada")
            assert (config.requests_per_minute, config.requests_per_hour, config.burst_size) == (3, 1000, 10)
            kernel.submit("b", user_id="ada", quota={"rate_limit_rpm": 50, "rate_limit_burst": 2})
            config = kernel.rate_limiter.get_config("ada")
            assert (config.requests_per_minute, config.burst_size) == (3, 2)
            assert kernel.rate_limiter.get_config("bob").requests_per_minute == 60

    run(main())


@pytest.mark.parametrize("snapshot", [False, True])
def test_books_survive_a_kill(path, clock, snapshot):
    """Quotas, usage, totals and what was already said come back."""

    async def main():
        async with Crash(Kernel(path, clock)) as kernel:
            kernel.submit("p", user_id="ada", quota={"max_llm_calls": 10})
            kernel.record_usage("p", llm_calls=9, tokens_in=5)
            if snapshot:
                await settle(kernel)
                await kernel._snapshots.write()
            kernel.record_usage("p", tool_calls=1)
            kernel.adjust_quota("p", {"max_tool_calls": 3})
            kernel.check_quota("p")
            await settle(kernel)
            before = kernel.get_request_status("p"), kernel.resources.get_system_usage()
        kinds: list[str] = []
        async with Kernel(path, clock) as kernel:
            kernel.on_event(lambda event: kinds.append(event.kind))
            assert (kernel.get_request_status("p"), kernel.resources.get_system_usage()) == before
            assert kernel.resources.get_user_usage("ada").llm_calls == 9
            kernel.check_quota("p")
            assert kinds == []
        with pytest.raises(ProcessError):
            kernel.record_usage("p", llm_calls=1)

    run(main())


# ---------------------------------------------------------------- all of it at once
class Spending(RuleBasedStateMachine):
    """Random spending of three pids against plain sums."""

    @initialize()
    def begin(self) -> None:
        self.clock = SimClock(1_000.0)
        self.world = Rows(self.clock)
        self.kernel = self.world.kernel
        self.used: dict[str, dict[str, int]] = {}
        self.total = dict.fromkeys(COUNTED, 0)
        self.limit: dict[str, int] = {}
        self.overruns: list[tuple[str, str]] = []
        self.kernel.on_event(
            lambda event: (
                self.overruns.append((event.pid, event.data["resource"])) if event.kind == "resource.exceeded" else None
            )
        )

    @rule(pid=st.sampled_from("abc"), limit=st.integers(1, 20))
    def submit(self, pid: str, limit: int) -> None:
        fresh = pid not in {process.pid for process in self.kernel.list_processes()}
        self.kernel.submit(pid, user_id="ada", quota={"max_llm_calls": limit})
        if fresh:
            self.used.setdefault(pid, dict.fromkeys(COUNTED, 0))
            self.limit[pid] = limit
            self.overruns = [overrun for overrun in self.overruns if overrun[0] != pid]

    @rule(pid=st.sampled_from("abc"), amounts=st.dictionaries(st.sampled_from(COUNTED), st.integers(0, 9)))
    def spend(self, pid: str, amounts: dict[str, int]) -> None:
        self.kernel.record_usage(pid, **amounts)
        self.limit.setdefault(pid, 100)
        used = self.used.setdefault(pid, dict.fromkeys(COUNTED, 0))
        for name, amount in amounts.items():
            used[name] += amount
            self.total[name] += amount

    @rule(pid=st.sampled_from("abc"), limit=st.integers(1, 50))
    def adjust(self, pid: str, limit: int) -> None:
        try:
            self.kernel.adjust_quota(pid, {"max_llm_calls": limit})
        except NoSuchProcess:
            assert pid not in self.used
        else:
            self.limit[pid] = limit
            again = self.used[pid]["llm_calls"] > limit
            self.overruns = [overrun for overrun in self.overruns if overrun[0] != pid] + (
                [(pid, "llm_calls")] if again else []
            )

    @invariant()
    def agrees(self) -> None:
        for pid, used in getattr(self, "used", {}).items():
            usage = self.kernel.resources.get_usage(pid)
            assert {name: getattr(usage, name) for name in COUNTED} == used
            over = used["llm_calls"] > self.limit[pid]
            assert (self.kernel.check_quota(pid).exceeded_reason == "max_llm_calls_exceeded") == over
            assert self.overruns.count((pid, "llm_calls")) == over
            left = self.kernel.get_remaining_budget(pid).llm_calls_remaining
            assert left == max(0, self.limit[pid] - used["llm_calls"])
        if hasattr(self, "kernel"):
            total = self.kernel.resources.get_system_usage()
            assert {name: getattr(total, name) for name in COUNTED} == self.total

    def teardown(self) -> None:
        self.world.close()


Spending.TestCase.settings = settings(max_examples=cases(30), stateful_step_count=30, deadline=None)
test_random_spending = Spending.TestCase
