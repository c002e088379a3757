"""Rate limits of kernel requests."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from lyra.errors import ConfigError, Overloaded, ProcessError
from lyra.kernel import Kernel, RateLimitConfig, ResourceQuota
from lyra.kernel.workers.rate_limits import WINDOWS
from lyra.testing.clock import SimClock
from tests.cases import cases
from tests.kernel.conftest import Crash, run, settle
from tests.kernel.workers.test_lifecycle import Rows

NONE = {"requests_per_minute": 0, "requests_per_hour": 0, "requests_per_day": 0, "burst_size": 0}


def test_the_defaults():
    """60 a minute, 1000 an hour, 10000 a day, 10 in ten seconds."""
    config = RateLimitConfig()
    assert [config.limit(window) for window in WINDOWS] == [60, 1000, 10000, 10]


@pytest.mark.parametrize("window", WINDOWS)
def test_each_window_has_its_limit(clock, window):
    """The request after the limit is refused with the window's name, and let in when the window has passed."""
    seconds, setting = WINDOWS[window]

    async def main():
        async with Kernel("memory", clock) as kernel:
            kernel.rate_limiter.set_default_config({**NONE, setting: 3})
            for count in range(3):
                result = kernel.check_rate_limit("ada", "run")
                assert (result.allowed, result.exceeded, result.reason) == (True, False, "")
                assert result.remaining == 2 - count
            refused = kernel.check_rate_limit("ada", "run")
            assert (refused.allowed, refused.exceeded, refused.limit_type) == (False, True, window)
            assert (refused.current_count, refused.limit, refused.remaining) == (3, 3, 0)
            assert refused.retry_after_seconds == pytest.approx(seconds)
            assert "limit 3" in refused.reason
            assert kernel.check_rate_limit("bob", "run").allowed
            assert kernel.check_rate_limit("ada", "other").allowed
            clock.advance(seconds - 0.5)
            assert not kernel.check_rate_limit("ada", "run").allowed
            clock.advance(0.5)
            assert kernel.check_rate_limit("ada", "run").allowed

    run(main())


def test_the_default_burst(clock):
    """Ten at once, the eleventh waits ten seconds; sixty in a minute, and then the minute is the reason."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            for round_ in range(6):
                assert all(kernel.check_rate_limit("ada").allowed for _ in range(10)), round_
                refused = kernel.check_rate_limit("ada")
                assert refused.limit_type == ("burst" if round_ < 5 else "minute")
                clock.advance(10)

    run(main())


def test_looking_is_not_counting(target):
    """`record=False` answers and counts nothing; refused requests are not counted either."""

    async def main():
        async with Kernel(target) as kernel:
            kernel.rate_limiter.set_default_config({"burst_size": 2})
            for _ in range(5):
                assert kernel.check_rate_limit("ada", record=False).remaining == 60
            assert kernel.rate_limiter.state.windows == {}
            for _ in range(9):
                kernel.check_rate_limit("ada")
            assert kernel.rate_limiter.get_usage("ada").minute == 2
            assert not kernel.check_rate_limit("ada", record=False).allowed

    run(main())


def test_the_wait_is_long_enough_for_all(clock):
    """With several windows full, the first in order is the reason and the wait serves all of them."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            kernel.rate_limiter.set_default_config({**NONE, "requests_per_minute": 2, "requests_per_hour": 2})
            for _ in range(2):
                kernel.check_rate_limit("ada")
            refused = kernel.check_rate_limit("ada")
            assert refused.limit_type == "minute"
            clock.advance(refused.retry_after_seconds)
            assert kernel.check_rate_limit("ada").allowed

    run(main())


def test_whose_limits_hold(target):
    """An endpoint's own limits before a user's own before the default; None takes them back; 0 is no limit."""

    async def main():
        async with Kernel(target) as kernel:
            limiter = kernel.rate_limiter
            limiter.set_default_config({**NONE, "requests_per_minute": 1})
            limiter.set_user_limits("ada", RateLimitConfig(2, 0, 0, 0))
            limiter.set_endpoint_limits("slow", {**NONE, "requests_per_minute": 3})
            allowed = {}
            for user in ("ada", "bob"):
                for endpoint in ("fast", "slow"):
                    answers = [kernel.check_rate_limit(user, endpoint).allowed for _ in range(5)]
                    allowed[user, endpoint] = sum(answers)
            assert allowed == {("ada", "fast"): 2, ("ada", "slow"): 3, ("bob", "fast"): 1, ("bob", "slow"): 3}
            limiter.set_user_limits("ada", None)
            limiter.set_endpoint_limits("slow", None)
            assert limiter.get_config("ada", "slow").requests_per_minute == 1
            limiter.set_default_config({**NONE, "requests_per_day": -1})
            results = [kernel.check_rate_limit("eve") for _ in range(50)]
            assert all(result.allowed for result in results)
            assert results[-1].remaining == -1
            limiter.set_default_config(None)
            assert limiter.get_config("eve") == RateLimitConfig()

    run(main())


def test_resetting_and_usage(target):
    """`reset_user` forgets requests at every endpoint, of that user alone; usage is by window."""

    async def main():
        async with Kernel(target) as kernel:
            for endpoint in ("a", "a", "b"):
                kernel.check_rate_limit("ada", endpoint)
            kernel.check_rate_limit("bob", "a")
            usage = kernel.rate_limiter.get_usage("ada", "a")
            assert (usage.minute, usage.hour, usage.day, usage.burst) == (2, 2, 2, 2)
            assert kernel.rate_limiter.get_usage_by_user()["ada"].minute == 3
            assert kernel.rate_limiter.reset_user("ada") == 2
            assert kernel.rate_limiter.get_usage("ada", "a").day == 0
            assert kernel.rate_limiter.get_usage("bob", "a").day == 1

    run(main())


@pytest.mark.parametrize(
    "config",
    [{"requests_per_minut": 1}, {"burst_size": 1.5}, {"burst_size": "x"}, {"burst_size": True}, [1], "fast"],
)
def test_bad_limits_change_nothing(config):
    """Unknown keys and what is no whole number are ConfigErrors."""

    async def main():
        async with Kernel() as kernel:
            for call in (
                lambda: kernel.rate_limiter.set_default_config(config),
                lambda: kernel.rate_limiter.set_user_limits("ada", config),
                lambda: kernel.rate_limiter.set_endpoint_limits("run", config),
            ):
                with pytest.raises(ConfigError):
                    call()
            assert kernel.rate_limiter.get_config("ada", "run") == RateLimitConfig()

    run(main())


@pytest.mark.parametrize(("user", "endpoint"), [(None, ""), ("x" * 201, ""), ("ada", 3)])
def test_users_and_endpoints_are_short_words(user, endpoint):
    """What is no word is a ConfigError."""

    async def main():
        async with Kernel() as kernel:
            with pytest.raises(ConfigError):
                kernel.check_rate_limit(user, endpoint)

    run(main())


def test_memory_is_bounded(monkeypatch, clock):
    """Windows that are over are forgotten; beyond the limit the longest unused go; overrides have a limit."""
    monkeypatch.setattr("lyra.kernel.workers.rate_limits.RATE_KEYS_MAX", 3)
    monkeypatch.setattr("lyra.kernel.workers.rate_limits.RATE_OVERRIDES_MAX", 2)

    async def main():
        async with Kernel("memory", clock) as kernel:
            for user in ("a", "b", "c", "a", "d"):
                kernel.check_rate_limit(user)
            assert [user for user, _ in kernel.rate_limiter.state.windows] == ["c", "a", "d"]
            assert kernel.rate_limiter.cleanup_expired() == 0
            clock.advance(86_400)
            kernel.check_rate_limit("d")
            assert kernel.rate_limiter.cleanup_expired() == 2
            kernel.rate_limiter.set_user_limits("a", {})
            kernel.rate_limiter.set_endpoint_limits("e", {})
            with pytest.raises(Overloaded):
                kernel.rate_limiter.set_user_limits("b", {})
            kernel.rate_limiter.set_user_limits("a", {"burst_size": 3})
            kernel.rate_limiter.set_user_limits("a", None)
            kernel.rate_limiter.set_user_limits("b", {})

    run(main())


def test_a_window_has_few_parts(clock):
    """However many requests come, a window is kept in about ten parts."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            kernel.rate_limiter.set_default_config(NONE)
            for _ in range(3000):
                kernel.check_rate_limit("ada")
                clock.advance(0.1)
            (windows,) = kernel.rate_limiter.state.windows.values()
            assert max(len(parts) for parts in windows.parts.values()) <= 12
            assert kernel.rate_limiter.get_usage("ada").hour == 3000

    run(main())


def test_a_clock_that_goes_back_makes_no_room(clock):
    """Counted requests stay counted when the wall clock is set back."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            for _ in range(10):
                kernel.check_rate_limit("ada")
            clock.jump(-500)
            refused = kernel.check_rate_limit("ada")
            assert refused.limit_type == "burst"
            clock.advance(refused.retry_after_seconds)
            assert kernel.check_rate_limit("ada").allowed

    run(main())


def test_one_wrong_reading_of_the_clock_locks_no_user_out(clock):
    """The wall clock jumps years ahead for one request and back: the limits go on as if it had not."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            for number in range(10):
                clock.jump(1e9 if number == 5 else 0)
                assert kernel.check_rate_limit("ada").allowed
                clock.jump(-1e9 if number == 5 else 0)
            refused = kernel.check_rate_limit("ada")
            assert (refused.limit_type, refused.retry_after_seconds) == ("burst", 10.0)
            clock.advance(refused.retry_after_seconds)
            assert kernel.check_rate_limit("ada").allowed

    run(main())


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_clock_that_was_ahead_before_a_restart_locks_no_user_out(path, clock, snapshot):
    """Requests that were counted in the future count as made now: for as long as their window, and no longer; and what
    is counted after that is counted the same in the life after."""

    async def main():
        async with Crash(Kernel(path, SimClock(clock.now() + 1e9))) as kernel:
            for _ in range(10):
                kernel.check_rate_limit("ada")
            await settle(kernel)
            if snapshot:
                await kernel._snapshots.write()
        async with Crash(Kernel(path, clock)) as kernel:
            refused = kernel.check_rate_limit("ada")
            assert (refused.limit_type, refused.retry_after_seconds) == ("burst", 10.0)
            clock.advance(10.0)
            for _ in range(10):
                assert kernel.check_rate_limit("ada").allowed
            await settle(kernel)
        async with Kernel(path, clock) as kernel:
            clock.advance(10.0)
            assert kernel.check_rate_limit("ada").allowed

    run(main())


@pytest.mark.parametrize("snapshot", [False, True])
def test_counts_and_limits_survive_a_kill(path, clock, snapshot):
    """A restart gives no user a fresh start."""

    async def main():
        async with Crash(Kernel(path, clock)) as kernel:
            kernel.rate_limiter.set_user_limits("ada", {"burst_size": 3})
            kernel.rate_limiter.set_endpoint_limits("slow", {"burst_size": 1})
            for _ in range(2):
                kernel.check_rate_limit("ada")
            if snapshot:
                await settle(kernel)
                await kernel._snapshots.write()
            kernel.check_rate_limit("ada")
            kernel.check_rate_limit("ada", "slow")
            await settle(kernel)
        async with Kernel(path, clock) as kernel:
            assert kernel.check_rate_limit("ada").limit_type == "burst"
            assert not kernel.check_rate_limit("ada", "slow").allowed
            clock.advance(10)
            assert kernel.check_rate_limit("ada").allowed
        with pytest.raises(ProcessError):
            kernel.check_rate_limit("ada")

    run(main())


# ---------------------------------------------------------------- all of it at once
LIMITS = {"minute": 5, "hour": 9, "day": 14, "burst": 3}


class Requests(RuleBasedStateMachine):
    """Random requests against a list of every time one was let in."""

    @initialize()
    def begin(self) -> None:
        self.clock = SimClock(1_000.0)
        self.world = Rows(self.clock)
        self.limiter = self.world.kernel.rate_limiter
        self.limiter.set_default_config({WINDOWS[name][1]: limit for name, limit in LIMITS.items()})
        self.let_in: dict[str, list[float]] = {"a": [], "b": []}

    def _within(self, user: str, seconds: float, *, slack: float = 0.0) -> int:
        now = self.clock.now()
        return sum(1 for let_in_at in self.let_in[user] if let_in_at + seconds * (1 + slack) > now + 1e-5)

    @rule(user=st.sampled_from("ab"), record=st.booleans())
    def request(self, user: str, record: bool) -> None:
        exact = {name: self._within(user, WINDOWS[name][0]) for name in WINDOWS}
        at_most = {name: self._within(user, WINDOWS[name][0], slack=0.1) for name in WINDOWS}
        result = self.limiter.check_rate_limit(user, record=record)
        if result.allowed:  # never more than the limit in any stretch
            assert all(exact[name] < LIMITS[name] for name in WINDOWS)
            if record:
                self.let_in[user].append(self.clock.now())
        else:  # and refused at most a tenth of a window too long
            assert at_most[result.limit_type] >= LIMITS[result.limit_type]
            assert 0 < result.retry_after_seconds <= 86_400

    @rule(user=st.sampled_from("ab"))
    def wait_as_told(self, user: str) -> None:
        result = self.limiter.check_rate_limit(user, record=False)
        if not result.allowed:
            self.clock.advance(result.retry_after_seconds)
            assert self.limiter.check_rate_limit(user, record=False).allowed

    @rule(seconds=st.sampled_from([0.3, 1.0, 5.9, 6.0, 7.5, 61.0, 599.0, 4000.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def clean(self) -> None:
        self.limiter.cleanup_expired()

    @rule(user=st.sampled_from("ab"))
    def reset(self, user: str) -> None:
        self.limiter.reset_user(user)
        self.let_in[user] = []

    def teardown(self) -> None:
        self.world.close()


Requests.TestCase.settings = settings(max_examples=cases(40), stateful_step_count=50, deadline=None)
test_random_requests = Requests.TestCase


def test_a_quota_may_limit_requests_an_hour(clock):
    """`rate_limit_rph` holds for the user of the process, beside the limits of the minute."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            kernel.submit("p", user_id="ada", quota=ResourceQuota(rate_limit_rph=2))
            allowed = []
            for _ in range(3):
                allowed.append(kernel.check_rate_limit("ada").allowed)
                clock.advance(120.0)
            return allowed, kernel.check_rate_limit("ada").limit_type

    assert run(main()) == ([True, True, False], "hour")
