"""Rate limits of kernel requests: so many a minute, an hour, a day, and at once, for each user and endpoint.

A window slides: it is kept as up to ten parts, each with how many requests it holds and when its first and last came. A
part leaves when its last request is as old as the window, so no period of that length ever has more requests than the
limit, and a caller that waits `retry_after_seconds` is admitted. An endpoint's own limits come before a user's own, and
those before the default; a limit of 0 or less means none. Refused requests are not counted.

Answers at once, never waits and never raises for a refused request: the caller decides what to do.
In a shard of a cluster the home of a user and an endpoint answers, so that the answer is awaited (`remote.shares`).
The token buckets of models and agents are in `lyra.core.policies.rate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from lyra.core.checking.check import FrozenSettings, check_integer, sendable_text, short_text
from lyra.core.limits import (
    COUNTED_MAX,
    NAME_LENGTH_MAX,
    RATE_BUCKETS,
    RATE_BURST_S,
    RATE_DEFAULTS,
    RATE_KEYS_MAX,
    RATE_OVERRIDES_MAX,
)
from lyra.errors import Overloaded
from lyra.kernel.base.acting import require_signal
from lyra.kernel.base.subsystem import Subsystem
from lyra.kernel.journal.rows import DurableValue, durable_value

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core
    from lyra.kernel.workers.lifecycle import LifecycleManager
    from lyra.kernel.workers.usage import ResourceQuota, ResourceTracker


# limit_type → (seconds, the setting), in the order in which they are checked.
WINDOWS: Final[dict[str, tuple[float, str]]] = {
    "minute": (60.0, "requests_per_minute"),
    "hour": (3600.0, "requests_per_hour"),
    "day": (86400.0, "requests_per_day"),
    "burst": (RATE_BURST_S, "burst_size"),
}
_SLACK_S: Final = 1e-6  # wall clocks are floats, and after the wait it was told a caller must be admitted
CALLERS: Final = "~callers"  # in the place of an endpoint: requests of any kind that one caller makes of a server
UNLIMITED: Final = -1  # in `remaining`, where nothing is limited


class RateLimitConfig(FrozenSettings, frozen=True):
    """Requests in each window; 0 or less: no limit."""

    WORD: ClassVar[str] = "rate limit"

    requests_per_minute: int = RATE_DEFAULTS["requests_per_minute"]
    requests_per_hour: int = RATE_DEFAULTS["requests_per_hour"]
    requests_per_day: int = RATE_DEFAULTS["requests_per_day"]
    burst_size: int = RATE_DEFAULTS["burst_size"]

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            check_integer(getattr(self, name), name, least=-COUNTED_MAX, most=COUNTED_MAX)

    @classmethod
    def of(cls, value: Any) -> RateLimitConfig:
        return value if isinstance(value, RateLimitConfig) else cls.from_data(value)

    def limit(self, window: str) -> int:
        return int(getattr(self, WINDOWS[window][1]))

    def tighten(self, **limits: int) -> RateLimitConfig:
        """This config with lower limits; a higher limit or 0 changes nothing."""
        lower = {
            name: value if getattr(self, name) <= 0 else min(value, getattr(self, name))
            for name, value in limits.items()
            if value > 0
        }
        return RateLimitConfig(**{**self.to_data(), **lower})


class RateLimitResult(DurableValue, msgspec.Struct, frozen=True, dict=True):
    """`limit_type`, `current_count` and `limit` are those of the window that refused, else the minute's."""

    allowed: bool
    exceeded: bool
    reason: str
    limit_type: str
    current_count: int
    limit: int
    retry_after_seconds: float
    remaining: int


class RateLimitUsage(msgspec.Struct, frozen=True):
    """Requests in each window now."""

    minute: int = 0
    hour: int = 0
    day: int = 0
    burst: int = 0


_Part = list[Any]  # [first, last, count]


class _Windows:
    """The four windows of one user at one endpoint."""

    __slots__ = ("last", "parts")

    def __init__(self, parts: dict[str, list[_Part]] | None = None, last: float = 0.0) -> None:
        self.parts: dict[str, list[_Part]] = parts if parts is not None else {name: [] for name in WINDOWS}
        self.last = last  # the newest request

    def add(self, request_time: float) -> None:
        self.set_back_to(request_time)
        self.last = request_time
        for name, (seconds, _) in WINDOWS.items():
            parts = self.parts[name]
            while parts and parts[0][1] + seconds <= request_time:
                parts.pop(0)
            if parts and request_time - parts[-1][0] < seconds / RATE_BUCKETS:
                parts[-1][1] = request_time
                parts[-1][2] += 1
            else:
                parts.append([request_time, request_time, 1])

    def set_back_to(self, now: float) -> None:
        """Shift requests back. Where the newest request is in the future, the clock was wrong then or is now: all
        requests keep their distances and the newest is taken as made now. That neither makes room nor locks out for
        more than a window."""
        ahead_s = self.last - now
        if ahead_s > 0:
            self.last = now
            for parts in self.parts.values():
                for part in parts:
                    part[0] -= ahead_s
                    part[1] -= ahead_s

    def count(self, window: str, now: float) -> int:
        now, seconds = max(now, self.last), WINDOWS[window][0]
        return sum(count for _, last, count in self.parts[window] if last + seconds - now > _SLACK_S)

    def free_in(self, window: str, now: float, limit: int) -> float:
        """Seconds until one more request fits."""
        since, seconds = max(now, self.last), WINDOWS[window][0]
        over = self.count(window, now) - limit + 1
        for _, last, count in self.parts[window]:
            if last + seconds - since > _SLACK_S:
                over -= count
                if over <= 0:
                    return float(last + seconds - now)
        return seconds

    def is_expired(self, now: float) -> bool:
        return all(self.count(name, now) == 0 for name in WINDOWS)


_DEFAULT: Final = RateLimitConfig()


class RateState:
    NAME: ClassVar[str] = "rates"
    KINDS: ClassVar[frozenset[str]] = frozenset(
        {"rate.counted", "rate.limited", "rate.reset", "rate.forgotten", "rate.set_back"}
    )

    def __init__(self) -> None:
        self.default = _DEFAULT
        self.users: dict[str, RateLimitConfig] = {}
        self.endpoints: dict[str, RateLimitConfig] = {}
        self.windows: dict[tuple[str, str], _Windows] = {}  # the longest unused first

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:
        del pid, time
        if kind == "rate.counted":
            self._count(data["user"], data["endpoint"], data["at"])
        elif kind == "rate.limited":
            self._limit(data["scope"], data["name"], data["config"])
        elif kind == "rate.set_back":
            for windows in self.windows.values():
                windows.set_back_to(data["at"])
        elif kind == "rate.reset":
            self._forget([key for key in self.windows if key[0] == data["user"]])
        else:
            self._forget([key for key, windows in self.windows.items() if windows.is_expired(data["at"])])

    def _count(self, user: str, endpoint: str, request_time: float) -> None:
        key = (user, endpoint)
        windows = self.windows.pop(key, None) or _Windows()
        windows.add(request_time)
        self.windows[key] = windows
        if len(self.windows) > RATE_KEYS_MAX:
            del self.windows[next(iter(self.windows))]

    def _limit(self, scope: str, name: str, config: dict[str, int] | None) -> None:
        if scope == "default":
            self.default = _DEFAULT if config is None else RateLimitConfig(**config)
            return
        table = self.users if scope == "user" else self.endpoints
        if config is None:
            table.pop(name, None)
        else:
            table[name] = RateLimitConfig(**config)

    def _forget(self, keys: list[tuple[str, str]]) -> None:
        for key in keys:
            del self.windows[key]

    def dump(self) -> Any:
        return {
            "default": self.default.to_data(),
            "users": {name: config.to_data() for name, config in self.users.items()},
            "endpoints": {name: config.to_data() for name, config in self.endpoints.items()},
            "windows": [[*key, windows.parts, windows.last] for key, windows in self.windows.items()],
        }

    def load(self, data: Any) -> None:
        self.default = RateLimitConfig(**data["default"])
        self.users = {name: RateLimitConfig(**config) for name, config in data["users"].items()}
        self.endpoints = {name: RateLimitConfig(**config) for name, config in data["endpoints"].items()}
        for user, endpoint, parts, last in data["windows"]:
            self.windows[user, endpoint] = _Windows({name: parts[name] for name in WINDOWS}, last)


class RateLimiter(Subsystem):
    def __init__(self, core: Core[Any], lifecycle: LifecycleManager, resources: ResourceTracker) -> None:
        self._core = core
        self._lifecycle = lifecycle
        self._resources = resources
        lifecycle.rate_limiter = resources.rate_limiter = self
        self.state = RateState()
        self._tight: dict[str, dict[str, dict[str, int]]] = {}  # user → pid → the rates in the quota of that live entry

    # ------------------------------------------------------------------ checking

    def check_rate_limit(self, user_id: str, endpoint: str = "", *, record: bool = True) -> RateLimitResult:
        """Tell whether one more request fits now; if it does and `record`, it is counted. In a shard of a cluster it
        has to be awaited: `remote.shares`."""
        core = self._core
        core.raise_if_closed()
        config = self.get_config(user_id, endpoint)
        if core.remote is not None:
            return core.remote.rates.ask(user_id, endpoint, config, record=record)  # type: ignore[no-any-return]
        return self._check_with(config, user_id, endpoint, record=record)

    def _check_with(
        self, config: RateLimitConfig, user_id: str, endpoint: str, *, record: bool = True
    ) -> RateLimitResult:
        """Check these limits, and count here."""
        self._core.raise_if_closed()
        key = (_word(user_id, "user_id"), _word(endpoint, "endpoint"))
        now = self._core.now()
        windows = self.state.windows.get(key) or _Windows()
        refusals = [
            (name, count, limit, windows.free_in(name, now, limit))
            for name in WINDOWS
            if (limit := config.limit(name)) > 0 and (count := windows.count(name, now)) >= limit
        ]
        if refusals:
            return _make_refusal(refusals)  # nothing was written
        if record:
            self._core.fact(self.state, "", "rate.counted", {"user": user_id, "endpoint": endpoint, "at": now})
            windows = self.state.windows[key]
        return durable_value(self._core, _make_admission(config, windows, now))

    def get_config(self, user_id: str, endpoint: str = "") -> RateLimitConfig:
        """Return the limits in force: the endpoint's own, else the user's own, else the default; the last two tightened
        by the quotas of the user's live processes."""
        own = self.state.endpoints.get(_word(endpoint, "endpoint"))
        if own is not None:
            return own
        config = self.state.users.get(_word(user_id, "user_id")) or self.state.default
        for asked in self._tight.get(user_id, {}).values():
            config = config.tighten(**asked)
        return config

    def get_usage(self, user_id: str, endpoint: str = "") -> RateLimitUsage:
        now = self._core.now()
        windows = self.state.windows.get((_word(user_id, "user_id"), _word(endpoint, "endpoint")))
        return RateLimitUsage() if windows is None else RateLimitUsage(*(windows.count(name, now) for name in WINDOWS))

    def get_usage_by_user(self) -> dict[str, RateLimitUsage]:
        """For every user with requests in a window, their sum over endpoints."""
        now = self._core.now()
        counts_by_user: dict[str, list[int]] = {}
        for (user, endpoint), windows in self.state.windows.items():
            if endpoint == CALLERS:
                continue
            counts = [windows.count(name, now) for name in WINDOWS]
            if any(counts):
                counts_by_user[user] = [
                    a + b for a, b in zip(counts_by_user.get(user, [0] * len(WINDOWS)), counts, strict=True)
                ]
        return {user: RateLimitUsage(*counts) for user, counts in counts_by_user.items()}

    # ------------------------------------------------------------------ setting

    def set_default_config(self, config: RateLimitConfig | Mapping[str, Any] | None) -> RateLimitConfig:
        """Set the limits of users without their own; None: the defaults of `lyra.core.limits`."""
        self._limit("default", "", config)
        return self.state.default

    def set_user_limits(self, user_id: str, config: RateLimitConfig | Mapping[str, Any] | None) -> RateLimitConfig:
        """Set a user's own limits; None removes them."""
        self._limit("user", _word(user_id, "user_id"), config)
        return self.get_config(user_id)

    def set_endpoint_limits(self, endpoint: str, config: RateLimitConfig | Mapping[str, Any] | None) -> RateLimitConfig:
        """Set an endpoint's own limits, for each of its users; None removes them."""
        self._limit("endpoint", _word(endpoint, "endpoint"), config)
        return self.get_config("", endpoint)

    def tighten(self, pid: str, user_id: str, quota: ResourceQuota) -> None:
        """Apply the rates in a live process's quota to its user; higher rates than the user has change nothing."""
        asked = {
            "requests_per_minute": quota.rate_limit_rpm,
            "requests_per_hour": quota.rate_limit_rph,
            "burst_size": quota.rate_limit_burst,
        }
        self._tight.setdefault(user_id, {})[pid] = asked

    def loosen(self, pid: str, user_id: str) -> None:
        """Remove the rates of a process that ended."""
        asked = self._tight.get(user_id)
        if asked is not None:
            asked.pop(pid, None)
            if not asked:
                del self._tight[user_id]

    def on_restored(self) -> None:
        """After a restart: the quotas of live entries hold again, and no request lies in the future."""
        now = self._core.now()
        if any(windows.last > now for windows in self.state.windows.values()):
            self._core.fact(self.state, "", "rate.set_back", {"at": now})
        for pid, entry in self._lifecycle.state.entries.items():
            quota = self._resources.get_quota(pid)
            rates = quota.rate_limit_rpm or quota.rate_limit_rph or quota.rate_limit_burst
            if entry.user_id and rates and self._lifecycle.is_live(pid):
                self.tighten(pid, entry.user_id, quota)

    def _limit(self, scope: str, name: str, config: RateLimitConfig | Mapping[str, Any] | None) -> None:
        self._core.raise_if_closed()
        require_signal("kernel")
        checked = None if config is None else RateLimitConfig.of(config).to_data()
        known = self.state.users if scope == "user" else self.state.endpoints
        if len(self.state.users) + len(self.state.endpoints) >= RATE_OVERRIDES_MAX and name not in known and checked:
            raise Overloaded(
                f"{RATE_OVERRIDES_MAX} limits are set, the most there may be",
                hint="None takes one back",
                limit=RATE_OVERRIDES_MAX,
            )
        data = {"scope": scope, "name": name, "config": checked}
        self._core.fact(self.state, "", "rate.limited", data)
        if self._core.remote is not None:
            self._core.remote.rates.tell_limits(data)

    # ------------------------------------------------------------------ forgetting

    def reset_user(self, user_id: str) -> int:
        """Forget a user's requests, at every endpoint; gives how many windows that were. Their limits stay."""
        self._core.raise_if_closed()
        before = len(self.state.windows)
        self._core.fact(self.state, "", "rate.reset", {"user": _word(user_id, "user_id")})
        return before - len(self.state.windows)

    def cleanup_expired(self) -> int:
        """Forget users and endpoints whose windows are all empty; gives how many."""
        self._core.raise_if_closed()
        now, before = self._core.now(), len(self.state.windows)
        if any(windows.is_expired(now) for windows in self.state.windows.values()):
            self._core.fact(self.state, "", "rate.forgotten", {"at": now})
        return before - len(self.state.windows)


def _make_refusal(refusals: list[tuple[str, int, int, float]]) -> RateLimitResult:
    """Return the result for a refused request: the first window in order is the reason; the wait is enough for all."""
    window, count, limit, _ = refusals[0]
    wait_s = max(free_in for _, _, _, free_in in refusals)
    what = f"{count} requests in {WINDOWS[window][0]:g} s, limit {limit}"
    return RateLimitResult(False, True, f"rate limit exceeded: {what}", window, count, limit, wait_s, 0)


def _make_admission(config: RateLimitConfig, windows: _Windows, now: float) -> RateLimitResult:
    """Return the result for an admitted request; `remaining` is the minute's or, without a limit there, the least of
    all."""
    left = {name: config.limit(name) - windows.count(name, now) for name in WINDOWS if config.limit(name) > 0}
    remaining = left["minute"] if "minute" in left else min(left.values(), default=UNLIMITED)
    limit = max(0, config.limit("minute"))
    return RateLimitResult(True, False, "", "", windows.count("minute", now), limit, 0.0, remaining)


def _word(value: Any, what: str) -> str:
    return sendable_text(short_text(value, what, most=NAME_LENGTH_MAX), what)
