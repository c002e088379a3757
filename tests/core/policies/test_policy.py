"""Reactions: retry by error class, rate limits, breakers and restart windows, each a table and a clock handed in."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra import errors
from lyra.core.ids import make_random
from lyra.core.policies.policy import (
    ERROR_CLASSES,
    Backoff,
    Breaker,
    CircuitBreaker,
    Policy,
    RateLimit,
    RestartWindow,
    Retry,
    Supervision,
    TokenBucket,
    counts_as_failure,
    error_class,
)
from lyra.core.policies.retry import PatientRetry
from lyra.errors import CircuitOpen, ConfigError, ModelError, RateLimited, ToolError
from tests.cases import cases, each
from verify.load import races

quick = settings(derandomize=True, deadline=None, max_examples=cases(200))


class ApiError(Exception):
    """An error of another library, with a status."""

    def __init__(self, status: object, text: str = "") -> None:
        super().__init__(text)
        self.status_code = status


# ---------------------------------------------------------------- error classes
@each(
    [
        (ModelError("x", kind="rate_limit"), "rate_limit"),
        (ModelError("x", kind="overloaded", status=400), "overloaded"),
        (ModelError("x", kind="timeout"), "timeout"),
        (ModelError("x", kind="auth"), "authentication"),
        (ModelError("x", kind="bad_request"), "invalid_request"),
        (ModelError("x", kind="temporary"), "temporary"),
        (ModelError("rate limit reached"), "rate_limit"),
        (ModelError("x", status=529), "overloaded"),
        (ToolError("x", status=500), "temporary"),
        (ToolError("x", status=404), "invalid_request"),
        (ToolError("x", status=402), "budget_exceeded"),
        (ToolError("x", status=200), "temporary"),
        (ToolError("x", status="429"), "temporary"),
        (ApiError(429), "rate_limit"),
        (ApiError(503), "overloaded"),
        (ApiError(408), "timeout"),
        (ApiError(504), "timeout"),
        (ApiError(502), "temporary"),
        (ApiError(400, "rate limit"), "invalid_request"),
        (ApiError(401), "authentication"),
        (ApiError(403), "authentication"),
        (ApiError(None, "Too Many Requests"), "rate_limit"),
        (ApiError(True, "nothing"), "temporary"),
        (Exception("at capacity"), "overloaded"),
        (Exception("Request timed out"), "timeout"),
        (Exception("deadline exceeded"), "timeout"),
        (Exception("validation failed"), "invalid_request"),
        (Exception("Unauthorized"), "authentication"),
        (Exception("who knows"), "temporary"),
        (RuntimeError("who knows"), "temporary"),
        (TimeoutError(), "timeout"),
        (ConnectionResetError(), "temporary"),
        (OSError("x"), "temporary"),
        (FileNotFoundError("x"), "invalid_request"),
        (PermissionError("x"), "authentication"),
        (TypeError("timeout"), "invalid_request"),
        (ValueError("x"), "invalid_request"),
        (KeyError("x"), "invalid_request"),
        (AssertionError(), "invalid_request"),
        (ZeroDivisionError(), "invalid_request"),
        (RecursionError(), "invalid_request"),
        (errors.RateLimited("x"), "rate_limit"),
        (errors.CircuitOpen("x"), "overloaded"),
        (errors.Overloaded("x"), "overloaded"),
        (errors.DeadlineExceeded("x"), "timeout"),
        (errors.BudgetExceeded("x"), "budget_exceeded"),
        (errors.LimitExceeded("x"), "budget_exceeded"),
        (errors.CapabilityDenied("x"), "authentication"),
        (errors.EffectInDoubt("timeout"), "invalid_request"),
        (errors.AgentFailed("x"), "temporary"),
        (errors.EffectFailed("x"), "temporary"),
        (errors.ConfigError("x"), "invalid_request"),
        (errors.ParseError("x"), "invalid_request"),
        (errors.NoSuchProcess("x"), "invalid_request"),
        (errors.ContractViolation("x"), "invalid_request"),
        (errors.Divergence("x"), "invalid_request"),
        (errors.StoreFull("x"), "temporary"),
        (errors.Corrupt("x"), "invalid_request"),
        (errors.InternalError("x"), "invalid_request"),
        (asyncio.CancelledError(), "invalid_request"),
        (KeyboardInterrupt(), "invalid_request"),
    ]
)
def test_every_error_has_a_class(error, expected):
    """A kind beats a status, a status beats a type, a type beats the text; an unknown error is temporary."""
    assert error_class(error) == expected
    assert expected in ERROR_CLASSES


def test_every_error_of_ours_has_a_class():
    """No LyraError is unknown to the table."""
    for name in errors.__all__:
        cls = getattr(errors, name)
        if isinstance(cls, type) and issubclass(cls, errors.LyraError):
            assert error_class(cls("x")) in ERROR_CLASSES


# ---------------------------------------------------------------- back-off and retry
@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        (Backoff(), [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]),
        (Backoff("linear", initial_s=0.5, max_s=2), [0.5, 1.0, 1.5, 2.0, 2.0]),
        (Backoff("constant", initial_s=3), [3.0, 3.0]),
        (Backoff(initial_s=0), [0.0, 0.0]),
        (Backoff(factor=10, max_s=1e9), [1.0, 10.0, 100.0]),
    ],
)
def test_the_pause_grows_as_its_kind_says_and_stops_at_the_most(backoff, delays):
    """Exponential, linear and constant, capped."""
    assert [backoff.delay(attempt, lambda: 0.5) for attempt in range(1, len(delays) + 1)] == delays
    assert Backoff().delay(100_000, lambda: 0.0) == 30.0


@quick
@given(
    st.builds(
        Backoff,
        st.sampled_from(["exponential", "linear", "constant"]),
        initial_s=st.floats(0, 100),
        factor=st.floats(1, 10),
        max_s=st.floats(0, 1000),
        jitter=st.floats(0, 1),
    ),
    st.integers(1, 2_000),
    st.integers(0, 5),
)
def test_jitter_stays_inside_its_fraction(backoff, attempt, seed):
    """Never negative, never above max_s, never further from the plain pause than the fraction."""
    pause = backoff.delay(attempt, make_random(seed))
    plain = Backoff.of({**backoff.to_data(), "jitter": 0}).delay(attempt, make_random(seed))
    assert 0 <= pause <= backoff.max_s
    assert abs(pause - plain) <= plain * backoff.jitter + 1e-9
    assert Backoff.from_data(backoff.to_data()) == backoff


def test_jitter_changes_the_pause():
    """A fraction of jitter is drawn from the generator handed in."""
    assert Backoff("constant", jitter=0.5).delay(1, lambda: 0.0) == 0.5
    assert Backoff("constant", jitter=0.5).delay(1, lambda: 1.0) == 1.5


def test_attempts_count_calls():
    """max_attempts 3 is one call and two more tries; only the classes listed are tried again."""
    retry = Retry(max_attempts=3)
    assert [retry.should_retry(TimeoutError(), attempt) for attempt in (1, 2, 3)] == [True, True, False]
    assert not retry.should_retry(ValueError(), 1)
    assert not retry.should_retry(asyncio.CancelledError(), 1)
    assert not Retry(on=("rate_limit",)).should_retry(TimeoutError(), 1)
    assert Retry(on=("invalid_request",)).should_retry(ValueError(), 1)
    assert not Retry.of(None).should_retry(TimeoutError(), 1)


def test_patience_is_for_servers_that_answer():
    """Many tries where a server said that it has no room or failed; few where nothing says that there is one."""
    patient = PatientRetry(max_attempts=10)
    for error, tries in (
        (ModelError("no room", kind="overloaded", status=529), 10),
        (ModelError("slow down", kind="rate_limit"), 10),
        (ModelError("oops", kind="temporary", status=500), 10),
        (ModelError("no route", kind="connection"), 4),
        (ModelError("broke off", kind="stream_truncated"), 4),
    ):
        assert patient.attempts_for(error) == tries
        assert [patient.should_retry(error, attempt) for attempt in (tries - 1, tries)] == [True, False]
        assert Retry(max_attempts=7).attempts_for(error) == 7
    assert PatientRetry(max_attempts=2).attempts_for(ModelError("no route", kind="connection")) == 2


def test_a_server_that_asks_for_a_pause_gets_it():
    """retry_after_s wins when it is longer, within reason; nonsense is ignored."""
    retry = Retry(backoff=Backoff("constant"))
    for asked, pause in ((5, 5.0), (0.1, 1.0), (1e9, 600.0), (-1, 1.0), ("5", 1.0), (True, 1.0), (float("nan"), 1.0)):
        assert retry.delay(1, make_random(0), RateLimited("x", retry_after_s=asked)) == pause
    assert retry.delay(1, make_random(0)) == retry.delay(1, make_random(0), ValueError()) == 1.0


def test_retry_is_made_from_what_people_write():
    """A number, a mapping or a Retry."""
    assert Retry.of(5) == Retry(max_attempts=5)
    retry = Retry.of({"max_attempts": 2, "backoff": {"kind": "linear", "initial_s": 0.1}, "on": ["timeout"]})
    assert retry == Retry(2, Backoff("linear", initial_s=0.1), ("timeout",))
    assert Retry.of(retry) is retry
    assert Retry(backoff=Backoff("linear")) == Retry.of({"backoff": "linear"})
    assert Retry.from_data(retry.to_data()) == retry
    assert hash(retry) == hash(Retry.from_data(retry.to_data()))


# ---------------------------------------------------------------- rate limits
def test_requests_pass_up_to_the_burst_and_then_at_the_rate():
    """A full bucket, then one every 1/rate seconds; a refused request takes nothing."""
    bucket = TokenBucket(RateLimit(requests_per_minute=60, burst=2))
    assert [bucket.take(0.0), bucket.take(0.0)] == [0.0, 0.0]
    assert bucket.take(0.0) == pytest.approx(1.0)
    assert bucket.take(0.5) == pytest.approx(0.5)
    assert bucket.take(1.0) == 0.0
    assert bucket.take(0.2) > 0.0  # a clock that went back refills nothing
    assert bucket.take(100.0) == 0.0


def test_a_limit_says_when_it_is_ready_and_takes_nothing():
    bucket = TokenBucket(RateLimit(requests_per_minute=60, tokens_per_minute=600, burst=3))
    assert bucket.ready_in(0.0, 3) == 0.0
    assert bucket.is_unused
    assert bucket.take(10.0, 50) == bucket.take(10.0, 0) == 0.0
    assert bucket.ready_in(10.0, 1) == 5.0, "until as many tokens fit as ever do"
    assert bucket.ready_in(15.0, 1) == 0.0
    assert [bucket.take(15.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert bucket.ready_in(15.0, 2) == bucket.ready_in(15.0, 2) == 2.0
    assert bucket.ready_in(15.0, 10**9) == 3.0, "no more than ever fit"
    breaker = Breaker(CircuitBreaker(threshold=1, reset_after=30))
    assert breaker.ready_in(0.0) == 0.0
    breaker.failure(10.0)
    assert (breaker.ready_in(10.0), breaker.ready_in(25.0), breaker.ready_in(99.0)) == (30.0, 15.0, 0.0)


def test_without_a_burst_a_minute_fits_at_once():
    """Unsaid, the burst is a minute's worth."""
    bucket = TokenBucket(RateLimit(requests_per_minute=3))
    assert [bucket.take(0.0) for _ in range(3)] == [0.0] * 3
    assert bucket.take(0.0) == pytest.approx(20.0)


def test_tokens_are_counted_adjusted_and_refunded():
    """Tokens per minute limit too; the estimate is corrected afterwards, in both directions."""
    bucket = TokenBucket(RateLimit(requests_per_minute=600, tokens_per_minute=600, burst=1))
    assert bucket.take(0.0, 600) == 0.0
    assert bucket.take(1.0, 20) == pytest.approx(1.0)
    bucket.adjust(-10)
    assert bucket.take(1.0, 20) == 0.0
    bucket.refund(20)
    assert bucket.take(1.0, 20) == 0.0
    bucket.adjust(60)
    assert bucket.take(2.0, 1) == pytest.approx(5.1)
    only_tokens = TokenBucket(RateLimit(tokens_per_minute=60))
    only_tokens.refund(5)
    assert only_tokens.take(0.0, 60) == 0.0
    only_requests = TokenBucket(RateLimit(requests_per_minute=60))
    only_requests.adjust(100)
    assert only_requests.take(0.0, 10**9) == 0.0


def test_a_call_larger_than_the_bucket_passes_when_it_is_full():
    """It cannot fit, so it waits for a full bucket and leaves it in debt; others wait that out."""
    bucket = TokenBucket(RateLimit(tokens_per_minute=60))
    assert bucket.take(0.0, 120) == 0.0
    assert bucket.take(0.0, 1) == pytest.approx(61.0)


@quick
@given(st.integers(1, 10_000), st.integers(1, 50), st.floats(0, 2e9), st.integers(1, 200))
def test_a_wait_that_was_kept_is_enough(per_minute, burst, now, calls):
    """A caller that waits as long as it was told is admitted within two more tries, on any clock."""
    bucket = TokenBucket(RateLimit(requests_per_minute=per_minute, burst=burst))
    for _ in range(min(calls, burst + 5)):
        for _ in range(3):
            wait = bucket.take(now)
            if wait == 0.0:
                break
            now += wait
        assert wait == 0.0


def test_the_rate_race_notices_a_bucket_that_forgets(monkeypatch):
    """The race is worth something: with a bucket that admits everything it reports failures."""
    monkeypatch.setattr(TokenBucket, "take", lambda self, now, tokens=0: 0.0)
    assert any("rate_race" in failure for failure in races.run(20, seed=3).failures)
    limit = RateLimit(requests_per_minute=600, tokens_per_minute=60, burst=5)
    assert races._too_fast([(0.0, 50), (0.0, 50)], limit) == "100 tokens in 0.000 s"


# ---------------------------------------------------------------- breakers
def test_failures_in_a_row_open_it_and_a_success_starts_again():
    """threshold counts consecutive failures."""
    breaker = Breaker(CircuitBreaker(threshold=2, reset_after=10))
    assert breaker.failure(0.0) is None
    assert breaker.success(0.0) is None
    assert breaker.failure(1.0) is None
    breaker.admit(1.0)
    assert breaker.failure(2.0) == "open"
    with pytest.raises(CircuitOpen) as caught:
        breaker.admit(5.0)
    assert caught.value.fields["retry_after_s"] == 7.0


def test_half_open_admits_a_few_probes_and_their_answer_decides():
    """After reset_after: half_open_max probes at a time; success closes, failure opens again from now."""
    seen: list[str] = []
    breaker = Breaker(
        CircuitBreaker(
            threshold=1,
            reset_after=10,
            half_open_max=2,
            on_open=lambda: seen.append("open"),
            on_close=lambda: seen.append("close"),
        )
    )
    breaker.failure(0.0)
    breaker.admit(10.0)
    breaker.admit(10.0)
    with pytest.raises(CircuitOpen) as caught:
        breaker.admit(10.0)
    assert caught.value.fields["retry_after_s"] == 0.0
    breaker.abandon()
    breaker.admit(10.0)
    assert breaker.failure(11.0) == "open"
    assert breaker.success(11.0) is None  # the other probe's answer comes too late to matter
    assert breaker.failure(11.0) is None
    with pytest.raises(CircuitOpen):
        breaker.admit(20.9)
    breaker.admit(21.0)
    assert breaker.state == "half_open"
    assert breaker.success(21.0) == "closed"
    assert seen == ["open", "open", "close"]
    breaker.abandon()
    breaker.admit(21.0)


def test_a_threshold_of_zero_never_opens():
    """0 switches the breaker off."""
    breaker = Breaker(CircuitBreaker(threshold=0))
    assert [breaker.failure(0.0) for _ in range(100)] == [None] * 100
    breaker.admit(0.0)


def test_a_callback_that_raises_leaves_the_breaker_open():
    """The state changes first, so a broken callback cannot keep a broken service in use."""

    def broken() -> None:
        raise RuntimeError("callback")

    breaker = Breaker(CircuitBreaker(threshold=1, on_open=broken))
    with pytest.raises(RuntimeError, match="callback"):
        breaker.failure(0.0)
    with pytest.raises(CircuitOpen):
        breaker.admit(0.0)


def test_a_bad_request_says_nothing_about_the_service():
    """400 and 401 never count; 429, 500, 503 and time-outs do; a refusal by the breaker itself does not."""
    assert [counts_as_failure(ApiError(status)) for status in (400, 401, 403, 404)] == [False] * 4
    assert [counts_as_failure(ApiError(status)) for status in (429, 500, 503, 504)] == [True] * 4
    assert not counts_as_failure(CircuitOpen("x"))
    assert not counts_as_failure(asyncio.CancelledError())


# ---------------------------------------------------------------- supervision
@pytest.mark.parametrize(
    ("most", "crashes", "allowed"),
    [
        (2, [0, 1, 2], [True, True, False]),
        (2, [0, 1, 60.5, 61.5], [True, True, True, True]),
        (1, [0, 60], [True, False]),  # the boundary counts
        (1, [0, 60.001], [True, True]),
        (0, [0, 1000], [False, False]),
        (-1, [0] * 50, [True] * 50),
        (1, [0, 1, 2, 3, 64], [True, False, False, False, True]),
    ],
)
def test_restarts_are_counted_like_otp(most, crashes, allowed):
    """More than max_restarts within the window, boundary included, means no."""
    window = RestartWindow(Supervision(max_restarts=most, window_s=60))
    assert [window.record(now) for now in crashes] == allowed


def test_restarts_in_the_future_do_not_count():
    """A clock that was set back forgets what it has yet to come to, and counts on from there."""
    window = RestartWindow(Supervision(max_restarts=2, window_s=60), [990, 1000, 1010])
    assert [window.record(now) for now in (1000, 500, 501, 502)] == [False, True, True, False]
    assert list(window.times) == [501, 502]


def test_a_restart_window_can_be_saved_and_stays_small():
    """Its times are plain data, and never more than max_restarts of them are kept."""
    window = RestartWindow(Supervision(max_restarts=2, window_s=60))
    for now in range(100):
        window.record(now)
    assert list(window.times) == [98, 99]
    again = RestartWindow(window.supervision, window.times)
    assert not again.record(100)


@quick
@given(st.integers(0, 5), st.floats(0, 100), st.lists(st.floats(0, 50), max_size=30))
def test_the_window_agrees_with_its_definition(most, window_s, gaps):
    """A crash may be followed by a restart exactly if at most max_restarts crashes lie in the window up to it."""
    window = RestartWindow(Supervision(max_restarts=most, window_s=window_s))
    now, times = 0.0, []
    for gap in gaps:
        now += gap
        times.append(now)
        assert window.record(now) == (sum(now - time <= window_s for time in times) <= most)


def test_strategies_have_one_name():
    """OTP's names are accepted and stored under ours."""
    assert Supervision("one_for_one") == Supervision() == Supervision.of(None)
    assert Supervision.of("one_for_all").strategy == "restart_all"
    given_ = Supervision.of({"strategy": "rest_for_one", "max_restarts": 1, "window_s": 5, "backoff": "constant"})
    assert given_.backoff == Backoff("constant")
    assert Supervision.of(given_) is given_
    assert Supervision.from_data(given_.to_data()) == given_
    assert Supervision.from_data(Supervision().to_data()) == Supervision()


# ---------------------------------------------------------------- the whole
def test_a_policy_is_made_of_mappings_and_survives_being_saved():
    """Each part may be a mapping; callbacks stay behind when it is saved."""
    policy = Policy.of(
        {
            "retry": 4,
            "rate_limit": {"requests_per_minute": 10, "strategy": "reject"},
            "circuit_breaker": {"threshold": 2, "on_open": print},
            "timeout_s": 3,
        }
    )
    assert policy.retry == Retry(4)
    assert policy.rate_limit == RateLimit(requests_per_minute=10, strategy="reject")
    assert policy.circuit_breaker == CircuitBreaker(threshold=2, on_open=print)
    assert policy.timeout_s == 3.0
    saved = policy.to_data()
    assert "on_open" not in saved["circuit_breaker"]
    assert Policy.from_data(saved).circuit_breaker == CircuitBreaker(threshold=2)
    assert Policy.of(policy) is policy
    assert Policy.of(None) == Policy() == Policy.from_data({})
    assert hash(policy) == hash(Policy.of(policy))


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (Policy.of, {"retrry": 3}),
        (Policy.of, {"timeout_s": 0}),
        (Policy.of, [1]),
        (Policy.of, {"retry": {"max_attempts": 0}}),
        (Retry.of, {"max_atempts": 3}),
        (Retry.of, "three"),
        (Retry.of, 1.5),
        (Retry.of, {"on": "timeout"}),
        (Retry.of, {"on": ["timeouts"]}),
        (Retry.of, {"backoff": "exponental"}),
        (Backoff.of, {"jitter": 2}),
        (Backoff.of, {"factor": 0.5}),
        (Backoff.of, {"max_s": float("inf")}),
        (Backoff.of, {"initial_s": True}),
        (Backoff.of, 5),
        (RateLimit.of, {}),
        (RateLimit.of, {"burst": 5, "tokens_per_minute": 5}),
        (RateLimit.of, {"requests_per_minute": 0}),
        (RateLimit.of, {"requests_per_minute": 5, "strategy": "que"}),
        (CircuitBreaker.of, {"threshold": -1}),
        (CircuitBreaker.of, {"half_open_max": 0}),
        (CircuitBreaker.of, {"on_open": "print"}),
        (Supervision.of, {"strategy": "restrat"}),
        (Supervision.of, {"strategy": 5}),
        (Supervision.of, {"max_restarts": -2}),
        (Supervision.of, {"window": 60}),
    ],
)
def test_a_wrong_setting_is_a_config_error(make, wrong):
    """Unknown keys, unknown words and impossible numbers are refused where they are written."""
    with pytest.raises(ConfigError):
        make(wrong)


def test_an_unknown_key_comes_with_a_suggestion():
    """A slip of the finger is answered with the word that was meant."""
    with pytest.raises(ConfigError) as caught:
        Retry.of({"max_atempts": 3})
    assert caught.value.hint == "did you mean 'max_attempts'?"
    with pytest.raises(ConfigError) as caught:
        Backoff.of({"zzz": 3})
    assert str(caught.value.hint).startswith("known keys: kind")


def test_the_pause_of_a_retry_is_its_back_off_with_jitter():
    """The back-off decides the range of the pause, the generator that is given the place in it."""
    retry = Retry(max_attempts=5, backoff=Backoff(kind="constant", initial_s=8.0, jitter=0.5))
    assert [retry.delay(1, lambda draw=draw: draw) for draw in (0.0, 0.5)] == [4.0, 8.0]  # type: ignore[misc]
    assert Retry(backoff=Backoff(kind="constant", initial_s=2.0)).delay(3, lambda: 0.5) == 2.0
