"""Quotas: how much of everything a process may use, what it has used, and what is left.

`ResourceTracker` counts model calls, tool calls, hops, iterations, tokens and inference requests by pid, by user and
for the whole kernel; time is read from the lifecycle's `started_at`, and watched by `time_limits`. A quota is exceeded
when usage is above it (`>`), and `CHECKS` is the order in which that is looked at. Passing four fifths of a limit, or
the soft time-out, is said once as a `resource.warning`; passing the limit once as a `resource.exceeded`. Nothing here
stops a process: whoever drives it asks `check_quota`, and the lifecycle refuses to schedule one that is over.

Money and the budgets of programs are another matter: see `lyra.core.budget` and the door.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import msgspec

from lyra.core.check import Declaration, known_keys, real, whole
from lyra.core.limits import (
    COUNTED_MAX,
    INFERENCE_INPUT_CHARS_MAX,
    INFERENCE_REQUESTS_MAX,
    QUOTA_DEFAULTS,
    QUOTA_WARN_PERCENT,
    USERS_KEPT,
)
from lyra.errors import ConfigError, NoSuchProcess
from lyra.kernel.process import Process

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel

__all__ = [
    "CHECKS",
    "QuotaResult",
    "RemainingBudget",
    "ResourceQuota",
    "ResourceState",
    "ResourceTracker",
    "ResourceUsage",
    "SystemUsage",
]

_DEFAULTS: Final[dict[str, float]] = {
    "max_input_tokens": QUOTA_DEFAULTS["input_tokens"],
    "max_output_tokens": QUOTA_DEFAULTS["output_tokens"],
    "max_context_tokens": QUOTA_DEFAULTS["context_tokens"],
    "max_llm_calls": QUOTA_DEFAULTS["llm_calls"],
    "max_tool_calls": QUOTA_DEFAULTS["tool_calls"],
    "max_agent_hops": QUOTA_DEFAULTS["agent_hops"],
    "max_iterations": QUOTA_DEFAULTS["iterations"],
    "timeout_seconds": QUOTA_DEFAULTS["timeout_s"],
    "soft_timeout_seconds": QUOTA_DEFAULTS["soft_timeout_s"],
    "max_inference_requests": INFERENCE_REQUESTS_MAX,
    "max_inference_input_chars": INFERENCE_INPUT_CHARS_MAX,
}
_SECONDS: Final = ("timeout_seconds", "soft_timeout_seconds")


class ResourceQuota(Declaration, frozen=True):
    """What a process may use. A field left out, or 0 as a wire sends it, takes its default; the three rates have none:
    where they are set, they tighten the limits of the process's user."""

    WORD: ClassVar[str] = "quota"

    max_input_tokens: int = 0
    max_output_tokens: int = 0
    max_context_tokens: int = 0
    max_llm_calls: int = 0
    max_tool_calls: int = 0
    max_agent_hops: int = 0
    max_iterations: int = 0
    timeout_seconds: float = 0.0
    soft_timeout_seconds: float = 0.0
    rate_limit_rpm: int = 0
    rate_limit_rph: int = 0
    rate_limit_burst: int = 0
    max_inference_requests: int = 0
    max_inference_input_chars: int = 0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            checked = real(value, name) if name in _SECONDS else whole(value, name, most=COUNTED_MAX)
            self._put(**{name: checked or _DEFAULTS.get(name, 0)})

    def changed(self, changes: Any) -> ResourceQuota:
        """This one with the fields that are named; 0 leaves a field as it is here."""
        if not isinstance(changes, Mapping):
            raise ConfigError(f"{self.WORD} is a mapping of settings, not {changes!r}")
        known_keys(changes, self.__struct_fields__, self.WORD)
        return ResourceQuota(**{**self.to_data(), **{name: value for name, value in changes.items() if value != 0}})


class ResourceUsage(msgspec.Struct, frozen=True):
    """What was used. `context_tokens` is the largest single model call seen."""

    llm_calls: int = 0
    tool_calls: int = 0
    agent_hops: int = 0
    iterations: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    elapsed_seconds: float = 0.0
    inference_requests: int = 0
    inference_input_chars: int = 0
    context_tokens: int = 0


class QuotaResult(NamedTuple):
    within_bounds: bool
    exceeded_reason: str
    usage: ResourceUsage
    quota: ResourceQuota


class RemainingBudget(msgspec.Struct, frozen=True):
    """What is left of each, never below 0."""

    llm_calls_remaining: int
    tool_calls_remaining: int
    agent_hops_remaining: int
    iterations_remaining: int
    tokens_in_remaining: int
    tokens_out_remaining: int
    inference_requests_remaining: int
    inference_input_chars_remaining: int
    time_remaining_seconds: float


class SystemUsage(msgspec.Struct, frozen=True):
    """Everything that was ever used here, also by processes that are forgotten."""

    total_processes: int
    active_processes: int
    llm_calls: int
    tool_calls: int
    agent_hops: int
    iterations: int
    tokens_in: int
    tokens_out: int
    inference_requests: int
    inference_input_chars: int


class Check(NamedTuple):
    resource: str  # a field of the usage
    limit: str  # a field of the quota
    reason: str


# In the order in which they are looked at; the first that is over is the reason.
CHECKS: Final[tuple[Check, ...]] = (
    Check("llm_calls", "max_llm_calls", "max_llm_calls_exceeded"),
    Check("tool_calls", "max_tool_calls", "max_tool_calls_exceeded"),
    Check("agent_hops", "max_agent_hops", "max_agent_hops_exceeded"),
    Check("iterations", "max_iterations", "max_iterations_exceeded"),
    Check("tokens_in", "max_input_tokens", "max_input_tokens_exceeded"),
    Check("tokens_out", "max_output_tokens", "max_output_tokens_exceeded"),
    Check("context_tokens", "max_context_tokens", "max_context_tokens_exceeded"),
    Check("inference_requests", "max_inference_requests", "max_inference_requests_exceeded"),
    Check("inference_input_chars", "max_inference_input_chars", "max_inference_input_chars_exceeded"),
    Check("elapsed_seconds", "timeout_seconds", "timeout_exceeded"),
)

COUNTED: Final = (
    "llm_calls",
    "tool_calls",
    "agent_hops",
    "iterations",
    "tokens_in",
    "tokens_out",
    "inference_requests",
    "inference_input_chars",
)

_LIMITS: Final[dict[str, str]] = {check.resource: check.limit for check in CHECKS}
_LEFT: Final[dict[str, str]] = {check.resource: check.limit for check in CHECKS if check.resource in COUNTED}


class _Account(msgspec.Struct):
    """The books of one pid."""

    quota: ResourceQuota
    user_id: str = ""
    used: dict[str, int] = msgspec.field(default_factory=dict)
    said: dict[str, str] = msgspec.field(default_factory=dict)  # resource → warning | exceeded: each is said once
    at: float = 0.0  # when it was last used


class ResourceState:
    NAME: ClassVar[str] = "resources"
    KINDS: ClassVar[frozenset[str]] = frozenset({"pcb.quota", "pcb.used", "pcb.said", "pcb.books_closed"})

    __slots__ = ("_last", "accounts", "opened", "total", "users")

    def __init__(self) -> None:
        self.accounts: dict[str, _Account] = {}
        self.users: dict[str, dict[str, int]] = {}  # the least recently active first
        self.total: dict[str, int] = {}
        self.opened = 0
        self._last: tuple[dict[str, Any], ResourceQuota] = ({}, ResourceQuota())

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:
        del time
        if kind == "pcb.quota":
            self._quota(pid, data)
        elif kind == "pcb.used":
            self.accounts[pid].at = data["at"]
            self._used(self.accounts[pid], data["amounts"])
        elif kind == "pcb.said":
            self.accounts[pid].said[data["resource"]] = data["level"]
        else:
            del self.accounts[pid]

    def _quota(self, pid: str, data: dict[str, Any]) -> None:
        quota = self._known_quota(data["quota"])
        account = self.accounts.get(pid)
        if account is None:
            self.accounts[pid] = _Account(quota, data["user_id"], at=data["at"])
            self.opened += 1
        else:
            account.quota = quota
            account.said = {}  # under a new quota everything may be said again

    def _known_quota(self, data: dict[str, Any]) -> ResourceQuota:
        """The quota of a row; the last one again if it says the same, as it does for most pids."""
        if data != self._last[0]:
            self._last = data, ResourceQuota(**data)
        return self._last[1]

    def _used(self, account: _Account, data: dict[str, int]) -> None:
        amounts = data
        if "context_tokens" in data:
            amounts = dict(data)
            peak = amounts.pop("context_tokens")
            account.used["context_tokens"] = max(account.used.get("context_tokens", 0), peak)
        _add(account.used, amounts)
        _add(self.total, amounts)
        if account.user_id:
            spent = self.users.pop(account.user_id, {})
            _add(spent, amounts)
            self.users[account.user_id] = spent
            if len(self.users) > USERS_KEPT:
                del self.users[next(iter(self.users))]

    def dump(self) -> Any:
        accounts = {
            pid: {**msgspec.structs.asdict(one), "quota": one.quota.to_data()} for pid, one in self.accounts.items()
        }
        return {"accounts": accounts, "users": self.users, "total": self.total, "opened": self.opened}

    def load(self, data: Any) -> None:
        for pid, one in data["accounts"].items():
            self.accounts[pid] = _Account(**{**one, "quota": ResourceQuota(**one["quota"])})
        self.users = data["users"]
        self.total = data["total"]
        self.opened = data["opened"]


class ResourceTracker:
    __slots__ = ("_kernel", "_said", "default_quota", "state")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.state = ResourceState()
        self.default_quota = ResourceQuota()
        self._said = self.default_quota, self.default_quota.to_data()

    # ------------------------------------------------------------------ quotas

    def set_default_quota(self, quota: ResourceQuota | Mapping[str, Any]) -> ResourceQuota:
        """What processes that come after get where they say nothing."""
        self.default_quota = self.resolve(quota)
        return self.default_quota

    def resolve(self, quota: ResourceQuota | Mapping[str, Any] | None) -> ResourceQuota:
        """A quota with nothing left open: what was not said is this kernel's default."""
        if quota is None:
            return self.default_quota
        return quota if isinstance(quota, ResourceQuota) else self.default_quota.changed(quota)

    def open(self, pid: str, quota: ResourceQuota, *, user_id: str = "") -> None:
        """Begin the books of a pid."""
        if quota is not self._said[0]:  # most pids have the default
            self._said = quota, quota.to_data()
        row = {"quota": self._said[1], "user_id": user_id, "at": self._kernel.clock.now()}
        self._kernel.fact(self.state, pid, "pcb.quota", row)

    def close(self, pid: str) -> None:
        """Forget a pid; what it used stays in the totals."""
        if pid in self.state.accounts:
            self._kernel.fact(self.state, pid, "pcb.books_closed", {})

    def close_idle(self, age_s: float) -> int:
        """Forget pids that nobody submitted, runs or drives, and that used nothing for so long; gives how many."""
        before = self._kernel.clock.now() - age_s
        idle = [pid for pid, one in self.state.accounts.items() if one.at <= before and self._is_stray(pid)]
        for pid in idle:
            self.close(pid)
        return len(idle)

    def _is_stray(self, pid: str) -> bool:
        kernel = self._kernel
        return kernel.lifecycle.find(pid) is None and pid not in kernel.orchestrator.state.sessions

    def is_tracked(self, pid: str) -> bool:
        return pid in self.state.accounts

    def get_quota(self, pid: str) -> ResourceQuota:
        account = self.state.accounts.get(pid)
        return account.quota if account is not None else self.default_quota

    def adjust_quota(self, pid: str, changes: Mapping[str, Any]) -> ResourceQuota:
        """Change the fields that are named; the others, and those given as 0, stay as they are."""
        self._kernel._raise_if_closed()
        account = self.state.accounts.get(pid)
        if account is None:
            raise NoSuchProcess(f"no process {pid!r} has a quota here", hint="submit it first", pid=pid)
        quota = account.quota.changed(changes)
        self.open(pid, quota, user_id=account.user_id)
        self._look(pid)
        self._kernel.time_limits.watch(pid)
        return quota

    def check_quota(self, pid: str) -> QuotaResult:
        """Whether a pid is within its quota, and if not, the first reason why; one that nobody tracks is."""
        result = self._check(pid)
        if not self._kernel.stopping:
            self._look(pid)
        return result

    def _check(self, pid: str) -> QuotaResult:
        usage, quota = self.get_usage(pid), self.get_quota(pid)
        for check in CHECKS:
            if getattr(usage, check.resource) > getattr(quota, check.limit):
                return QuotaResult(False, check.reason, usage, quota)
        return QuotaResult(True, "", usage, quota)

    def get_remaining_budget(self, pid: str) -> RemainingBudget:
        self._kernel.lifecycle.must_exist(pid)
        usage, quota = self.get_usage(pid), self.get_quota(pid)
        left = {
            f"{resource}_remaining": max(0, getattr(quota, limit) - getattr(usage, resource))
            for resource, limit in _LEFT.items()
        }
        return RemainingBudget(**left, time_remaining_seconds=max(0.0, quota.timeout_seconds - usage.elapsed_seconds))

    # ------------------------------------------------------------------ usage

    def record_usage(
        self,
        pid: str,
        *,
        llm_calls: int = 0,
        tool_calls: int = 0,
        agent_hops: int = 0,
        iterations: int = 0,
        tokens_in: int = 0,
        tokens_out: int = 0,
        inference_requests: int = 0,
        inference_input_chars: int = 0,
    ) -> ResourceUsage:
        """Add to what a pid has used; one that nobody tracks yet gets the default quota."""
        self._kernel._raise_if_closed()
        given = (
            llm_calls,
            tool_calls,
            agent_hops,
            iterations,
            tokens_in,
            tokens_out,
            inference_requests,
            inference_input_chars,
        )
        amounts = {
            name: whole(value, name, most=COUNTED_MAX) for name, value in zip(COUNTED, given, strict=True) if value
        }
        self.count(pid, amounts)
        return self.get_usage(pid)

    def count(self, pid: str, amounts: dict[str, int]) -> None:
        """The same for amounts that are known to be whole numbers."""
        tokens = amounts.get("tokens_in", 0) + amounts.get("tokens_out", 0)
        if tokens and amounts.get("llm_calls", 0) <= 1:  # one call's worth: what its context held
            amounts = {**amounts, "context_tokens": min(tokens, COUNTED_MAX)}
        account = self.state.accounts.get(pid)
        if account is None:
            self.open(self._kernel.lifecycle.checked_pid(pid), self.default_quota)
            account = self.state.accounts[pid]
        if amounts:
            self._kernel.fact(self.state, pid, "pcb.used", {"amounts": amounts, "at": self._kernel.clock.now()})
        process = self._kernel.processes.get(pid)
        if self._is_near(pid, account, amounts) or (process is not None and _has_own_budget(process)):
            self._look(pid)

    def _is_near(self, pid: str, account: _Account, amounts: dict[str, int]) -> bool:
        """Whether there may be something new to say of what was just counted, or of the time."""
        quota, used, said = account.quota, account.used, account.said
        for name in amounts:
            limit = getattr(quota, _LIMITS[name])
            if used[name] * 100 >= limit * QUOTA_WARN_PERCENT and said.get(name) != "exceeded":
                return True
        return self._kernel.lifecycle.elapsed_s(pid) >= min(quota.soft_timeout_seconds, quota.timeout_seconds)

    def record_tool_call(self, pid: str) -> ResourceUsage:
        return self.record_usage(pid, tool_calls=1)

    def record_agent_hop(self, pid: str) -> ResourceUsage:
        return self.record_usage(pid, agent_hops=1)

    def get_usage(self, pid: str) -> ResourceUsage:
        """What a pid has used; nothing, if nobody tracks it. A program's own spending counts, if its budget is its
        own."""
        account = self.state.accounts.get(pid)
        counted = dict(account.used) if account is not None else {}
        process = self._kernel.processes.get(pid)
        if process is not None:
            _add(counted, _spent(process))
        return ResourceUsage(**counted, elapsed_seconds=self._kernel.lifecycle.elapsed_s(pid))

    def get_user_usage(self, user_id: str) -> ResourceUsage:
        """What all processes of a user have used, ended ones included."""
        return ResourceUsage(**self.state.users.get(user_id, {}))

    def get_system_usage(self) -> SystemUsage:
        total = {name: self.state.total.get(name, 0) for name in COUNTED}
        return SystemUsage(total_processes=self.state.opened, active_processes=self._kernel.lifecycle.active, **total)

    # ------------------------------------------------------------------ saying so, once

    def _look(self, pid: str) -> None:
        account = self.state.accounts.get(pid)
        if account is None:
            return
        usage = self.get_usage(pid)
        for check in CHECKS:
            used, limit = getattr(usage, check.resource), getattr(account.quota, check.limit)
            said = account.said.get(check.resource)
            level = _level(check.resource, used, limit, account.quota)
            if level == "" or said == level or said == "exceeded":
                continue
            self._kernel.fact(self.state, pid, "pcb.said", {"resource": check.resource, "level": level})
            event = {"resource": check.resource, "usage": used, "quota": limit, "user_id": account.user_id}
            self._kernel.publish(pid, f"resource.{level}", event)


def _level(resource: str, used: float, limit: float, quota: ResourceQuota) -> str:
    if used > limit:
        return "exceeded"
    if resource == "elapsed_seconds":
        return "warning" if used >= quota.soft_timeout_seconds else ""
    return "warning" if used * 100 >= limit * QUOTA_WARN_PERCENT else ""


def _has_own_budget(process: Process) -> bool:
    parent = process.parent.budget if process.parent is not None else process.kernel.budget
    return process.budget is not parent and process.budget is not process.kernel.budget


def _spent(process: Process) -> dict[str, int]:
    """What a program spent through the door, where its budget is not shared with others."""
    if not _has_own_budget(process):
        return {}
    spent = process.budget.usage.to_data()
    words = {"hops": "agent_hops", "input_tokens": "tokens_in", "output_tokens": "tokens_out"}
    return {words.get(name, name): amount for name, amount in spent.items() if name != "usd"}


def _add(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = min(total.get(name, 0) + amount, COUNTED_MAX)
