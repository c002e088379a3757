"""Quotas: how much of everything a process may use, what it has used, and what is left.

`ResourceTracker` counts model calls, tool calls, hops, iterations, tokens and inference requests by pid, by user and
for the whole kernel; time is read from the lifecycle's `started_at`, and watched by `time_limits`. A quota is exceeded
when usage is above it (`>`), and `CHECKS` is the order in which the limits are checked. Passing four fifths of a limit,
or the soft time-out, is reported once as a `resource.warning`; passing the limit once as a `resource.exceeded`. Nothing
here stops a process: its worker calls `check_quota`, and the lifecycle refuses to schedule a process over its quota.

Money and the budgets of programs are in `lyra.core.budgets.budget`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

import msgspec

from lyra.core.checking.check import check_integer, sendable_text
from lyra.core.limits import COUNTED_MAX, QUOTA_WARN_PERCENT, USERS_KEPT
from lyra.errors import LimitExceeded, NoSuchProcess
from lyra.kernel.base.acting import require_signal
from lyra.kernel.base.subsystem import Subsystem
from lyra.kernel.journal.rows import durable_value
from lyra.kernel.process.process import Process
from lyra.kernel.workers.quota import (
    CHECKS,
    COUNTED,
    LEFT,
    LIMITS,
    QuotaResult,
    RemainingBudget,
    ResourceQuota,
    ResourceUsage,
    SystemUsage,
    first_over,
    how_far,
)

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core
    from lyra.kernel.programs.lifetime import Lifetimes
    from lyra.kernel.workers.lifecycle import LifecycleManager
    from lyra.kernel.workers.rate_limits import RateLimiter
    from lyra.kernel.workers.time_limits import TimeLimits

__all__ = [
    "CHECKS",
    "COUNTED",
    "QuotaResult",
    "RemainingBudget",
    "ResourceQuota",
    "ResourceState",
    "ResourceTracker",
    "ResourceUsage",
    "SystemUsage",
]


class _Account(msgspec.Struct):
    """The quota and usage of one pid."""

    quota: ResourceQuota
    user_id: str = ""
    used: dict[str, int] = msgspec.field(default_factory=dict)
    said: dict[str, str] = msgspec.field(
        default_factory=dict
    )  # resource → warning | exceeded: the reports that were made, each once
    at: float = 0.0  # when it was last used


_DEFAULT_QUOTA: Final = ResourceQuota()


class ResourceState:
    NAME: ClassVar[str] = "resources"
    KINDS: ClassVar[frozenset[str]] = frozenset(
        {"pcb.quota", "pcb.used", "pcb.said", "pcb.books_closed", "pcb.default_quota"}
    )

    __slots__ = ("_last", "accounts", "default", "opened", "total", "users")

    def __init__(self) -> None:
        self.accounts: dict[str, _Account] = {}
        self.users: dict[str, dict[str, int]] = {}  # the least recently active first
        self.total: dict[str, int] = {}
        self.opened = 0
        self.default = _DEFAULT_QUOTA
        self._last: tuple[dict[str, Any], ResourceQuota] = ({}, _DEFAULT_QUOTA)

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:
        del time
        if kind == "pcb.quota":
            quota = self._read_quota(data["quota"])
            account = self.accounts.get(pid)
            if account is None:
                self.accounts[pid] = _Account(quota, data["user_id"], at=data["at"])
                self.opened += 1
            else:
                account.user_id = account.user_id or data["user_id"]
                account.quota = quota
                account.said = {}  # under a new quota everything may be reported again
        elif kind == "pcb.used":
            self.accounts[pid].at = data["at"]
            self._apply_used(self.accounts[pid], data["amounts"])
        elif kind == "pcb.said":
            self.accounts[pid].said[data["resource"]] = data["level"]
        elif kind == "pcb.default_quota":
            self.default = ResourceQuota(**data["quota"])
        else:
            del self.accounts[pid]

    def _read_quota(self, data: dict[str, Any]) -> ResourceQuota:
        """Return the quota of a row; the cached last one if it is equal, as it is for most pids."""
        if data != self._last[0]:
            self._last = data, ResourceQuota(**data)
        return self._last[1]

    def _apply_used(self, account: _Account, data: dict[str, int]) -> None:
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
            pid: {**msgspec.structs.asdict(account), "quota": account.quota.to_data()}
            for pid, account in self.accounts.items()
        }
        default = self.default.to_data()
        return {
            "accounts": accounts,
            "users": self.users,
            "total": self.total,
            "opened": self.opened,
            "default": default,
        }

    def load(self, data: Any) -> None:
        for pid, account in data["accounts"].items():
            self.accounts[pid] = _Account(**{**account, "quota": ResourceQuota(**account["quota"])})
        self.users = data["users"]
        self.total = data["total"]
        self.opened = data["opened"]
        self.default = ResourceQuota(**data.get("default", {}))


class ResourceTracker(Subsystem):
    __slots__ = ("_core", "_last_quota_row", "_lifecycle", "_lifetimes", "rate_limiter", "state", "time_limits")

    def __init__(self, core: Core[Process], lifetimes: Lifetimes, lifecycle: LifecycleManager) -> None:
        self._core = core
        self._lifetimes = lifetimes
        self._lifecycle = lifecycle
        lifecycle.resources = self
        # Filled in by the parts beside it when they are made:
        self.rate_limiter: RateLimiter
        self.time_limits: TimeLimits
        self.state = ResourceState()
        self._last_quota_row = self.default_quota, self.default_quota.to_data()

    # ------------------------------------------------------------------ quotas

    def set_default_quota(self, quota: ResourceQuota | Mapping[str, Any]) -> ResourceQuota:
        """Set the quota of later processes that name none, also after a restart."""
        require_signal("kernel")
        row = {"quota": self.resolve(quota).to_data()}
        self._core.setting(self.state, "pcb.default_quota", row)
        return self.default_quota

    @property
    def default_quota(self) -> ResourceQuota:
        return self.state.default

    def resolve(self, quota: ResourceQuota | Mapping[str, Any] | None) -> ResourceQuota:
        """Return a complete quota: fields that were not given have this kernel's defaults."""
        if quota is None or quota == {}:
            return self.default_quota
        return self.default_quota.with_changes(quota.given if isinstance(quota, ResourceQuota) else quota)

    def open(self, pid: str, quota: ResourceQuota, *, user_id: str = "") -> None:
        """Set the quota of a pid and begin to count its usage."""
        if quota is not self._last_quota_row[0]:  # most pids have the default
            self._last_quota_row = quota, quota.to_data()
        row = {"quota": self._last_quota_row[1], "user_id": user_id, "at": self._core.now()}
        self._core.fact(self.state, pid, "pcb.quota", row)
        if user_id and (quota.rate_limit_rpm or quota.rate_limit_rph or quota.rate_limit_burst):
            self.rate_limiter.tighten(pid, user_id, quota)

    def close(self, pid: str) -> None:
        """Remove a pid; its usage stays in the totals."""
        if pid in self.state.accounts:
            self._core.fact(self.state, pid, "pcb.books_closed", {})

    def close_idle(self, age_s: float) -> int:
        """Forget pids that were not submitted, are not run or driven, and used nothing for so long; gives how many."""
        before = self._core.now() - age_s
        idle = [pid for pid, account in self.state.accounts.items() if account.at <= before and self._is_stray(pid)]
        for pid in idle:
            self.close(pid)
        return len(idle)

    def _is_stray(self, pid: str) -> bool:
        lifecycle = self._lifecycle
        return lifecycle.find(pid) is None and pid not in lifecycle.pipelines.state.sessions

    def is_tracked(self, pid: str) -> bool:
        return pid in self.state.accounts

    def get_quota(self, pid: str) -> ResourceQuota:
        account = self.state.accounts.get(pid if type(pid) is str else _text(pid))
        return account.quota if account is not None else self.state.default

    def adjust_quota(self, pid: str, changes: Mapping[str, Any]) -> ResourceQuota:
        """Change the fields that are named; the others, and those given as 0, stay as they are."""
        self._core.raise_if_closed()
        require_signal(pid)
        account = self.state.accounts.get(_text(pid))
        if account is None:
            raise NoSuchProcess(f"no process {pid!r} has a quota here", hint="submit it first", pid=pid)
        quota = account.quota.with_changes(changes)
        with self._core.listeners.act:
            self.open(pid, quota, user_id=account.user_id)
            self._look(pid)
            self.time_limits.watch(pid)
            return durable_value(self._core, msgspec.structs.replace(quota))

    def check_quota(self, pid: str) -> QuotaResult:
        """Tell whether a pid is within its quota, and if not, the first reason why; an untracked pid is within it."""
        result = self._check(_text(pid))
        if not self._core.stopping:
            with self._core.listeners.act:
                self._look(pid)
        return result

    def _check(self, pid: str) -> QuotaResult:
        usage, quota = self.get_usage(pid), self.get_quota(pid)
        reason = first_over(usage, quota, timed=pid not in self._core.processes)  # a program's time is its budget's
        return QuotaResult(not reason, reason, usage, quota)

    def first_over(self, pid: str, *, timed: bool) -> str:
        """Return why a pid is over its quota; "" if it is not."""
        return first_over(self.get_usage(pid), self.get_quota(pid), timed=timed)

    def take(self, pid: str, amounts: dict[str, int]) -> None:
        """Count usage before it happens: usage that would exceed a quota is reported and refused, and not counted."""
        quota, usage = self.get_quota(pid), self.get_usage(pid)
        for name, amount in amounts.items():
            limit = getattr(quota, LIMITS[name])
            if getattr(usage, name) + amount > limit:
                self._refuse(pid, name, getattr(usage, name) + amount, limit)
        self.count(pid, amounts)

    def _refuse(self, pid: str, resource: str, wanted: int, limit: int) -> NoReturn:
        account = self.state.accounts.get(pid)
        if account is None or account.said.get(resource) != "exceeded":
            if account is not None:
                self._core.fact(self.state, pid, "pcb.said", {"resource": resource, "level": "exceeded"})
            user = account.user_id if account is not None else ""
            event = {"resource": resource, "usage": wanted, "quota": limit, "user_id": user}
            self._core.listeners.tell(pid, "resource.exceeded", event)
        reason = f"{LIMITS[resource]}_exceeded"
        raise LimitExceeded(
            f"process {pid} is over its quota: {reason}", hint="adjust_quota raises it", pid=pid, reason=reason
        )

    def get_remaining_budget(self, pid: str) -> RemainingBudget:
        self._lifecycle.must_exist(pid)
        usage, quota = self.get_usage(pid), self.get_quota(pid)
        left = {
            f"{resource}_remaining": max(0, getattr(quota, limit) - getattr(usage, resource))
            for resource, limit in LEFT.items()
        }
        return RemainingBudget(**left, time_remaining_seconds=self._time_left_s(pid, quota, usage))

    def _time_left_s(self, pid: str, quota: ResourceQuota, usage: ResourceUsage) -> float:
        process = self._core.processes.get(pid)
        if process is None:
            return max(0.0, quota.timeout_seconds - usage.elapsed_seconds)
        due = self._lifetimes.deadlines.due(process.budget)  # a program is held to its budget
        return quota.timeout_seconds if due is None else max(0.0, due - self._core.clock.monotonic())

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
        """Add to what a pid has used; a pid that is not tracked yet gets the default quota."""
        self._core.raise_if_closed()
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
            name: check_integer(value, name, most=COUNTED_MAX)
            for name, value in zip(COUNTED, given, strict=True)
            if value
        }
        if self.state.accounts.get(_text(pid)) is None:
            self._lifecycle.raise_if_closing("usage of a new process")
        with self._core.listeners.act:
            self.count(pid, amounts)
            return durable_value(self._core, self.get_usage(pid))

    def count(self, pid: str, amounts: dict[str, int]) -> None:
        """`record_usage` for amounts that are known to be whole numbers."""
        tokens = amounts.get("tokens_in", 0) + amounts.get("tokens_out", 0)
        if tokens and amounts.get("llm_calls", 0) <= 1:  # the tokens of one call: the size of its context
            amounts = {**amounts, "context_tokens": min(tokens, COUNTED_MAX)}
        account = self.state.accounts.get(pid)
        if account is None:
            self.open(self._lifecycle.check_pid(pid), self.default_quota)
            account = self.state.accounts[pid]
        if amounts:
            self._core.fact(self.state, pid, "pcb.used", {"amounts": amounts, "at": self._core.now()})
        process = self._core.processes.get(pid)
        if pid not in self.state.accounts:  # a listener tidied it up
            return
        if self._is_near(pid, account, amounts) or (process is not None and process.has_own_budget):
            with self._core.listeners.act:
                self._look(pid)

    def _is_near(self, pid: str, account: _Account, amounts: dict[str, int]) -> bool:
        """Return whether there may be something new to report for these resources, or for the time."""
        quota, used, reported = account.quota, account.used, account.said
        for name in amounts:
            limit = getattr(quota, LIMITS[name])
            if used[name] * 100 >= limit * QUOTA_WARN_PERCENT and reported.get(name) != "exceeded":
                return True
        return self._lifecycle.measure_elapsed_s(pid) >= min(quota.soft_timeout_seconds, quota.timeout_seconds)

    def record_tool_call(self, pid: str) -> ResourceUsage:
        return self.record_usage(pid, tool_calls=1)

    def record_agent_hop(self, pid: str) -> ResourceUsage:
        return self.record_usage(pid, agent_hops=1)

    def get_usage(self, pid: str) -> ResourceUsage:
        """Return the usage of a pid. Where none is reported, or its budget is its own, a program's spending counts."""
        return self.usage_of(_text(pid), self._core.processes.get(pid), self._lifecycle.measure_elapsed_s(pid))

    def usage_of(self, pid: str, process: Process | None, elapsed_s: float) -> ResourceUsage:
        """Return the usage of a pid whose process and time are known already."""
        account = self.state.accounts.get(pid)
        counted = dict(account.used) if account is not None else {}
        if process is not None and process.spent.packed and (account is None or process.has_own_budget):
            # What a program and those below it have spent, in the words of quotas.
            spent = process.spent.to_data()
            words = {"hops": "agent_hops", "input_tokens": "tokens_in", "output_tokens": "tokens_out"}
            _add(counted, {words.get(name, name): amount for name, amount in spent.items() if name != "usd"})
        return ResourceUsage(**counted, elapsed_seconds=elapsed_s)

    def get_user_usage(self, user_id: str) -> ResourceUsage:
        """Return what all processes of a user have used, ended ones included."""
        return ResourceUsage(**self.state.users.get(user_id, {}))

    def get_system_usage(self) -> SystemUsage:
        total = {name: self.state.total.get(name, 0) for name in COUNTED}
        return SystemUsage(total_processes=self.state.opened, active_processes=self._lifecycle.active, **total)

    # ------------------------------------------------------------------ reports

    def _look(self, pid: str) -> None:
        account = self.state.accounts.get(pid)
        if account is None:
            return
        usage = self.get_usage(pid)
        for check in CHECKS:
            if check.resource == "elapsed_seconds" and pid in self._core.processes:
                continue
            used, limit = getattr(usage, check.resource), getattr(account.quota, check.limit)
            reported = account.said.get(check.resource)
            level = how_far(check.resource, used, limit, account.quota)
            if level == "" or reported == level or reported == "exceeded":
                continue
            self._core.fact(self.state, pid, "pcb.said", {"resource": check.resource, "level": level})
            event = {"resource": check.resource, "usage": used, "quota": limit, "user_id": account.user_id}
            self._core.listeners.tell(pid, f"resource.{level}", event)


def _text(pid: Any) -> str:
    return pid if type(pid) is str else sendable_text(pid, "a pid")


def _add(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = min(total.get(name, 0) + amount, COUNTED_MAX)
