"""A quota, the usage counted against it, and when it is exceeded: plain values and two functions.

`CHECKS` is the order in which the limits of a quota are checked. `usage` keeps the quota and the usage of each pid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from lyra.core.checking.check import FrozenSettings, check_integer, check_keys, real, sendable_text, short_text
from lyra.core.limits import (
    COUNTED_MAX,
    INFERENCE_INPUT_CHARS_MAX,
    INFERENCE_REQUESTS_MAX,
    NAME_LENGTH_MAX,
    QUOTA_DEFAULTS,
    QUOTA_WARN_PERCENT,
)
from lyra.errors import ConfigError, Denied
from lyra.kernel.journal.rows import DurableValue


# ---------------------------------------------------------------- ownership
# A caller that names no user is the program around the kernel, and may do everything. A user may only act on what is
# theirs; what belongs to no user is out of every user's reach.
def check_user(user_id: object) -> str:
    """Return the id of a user who asks; not empty."""
    text = short_text(sendable_text(user_id, "user_id"), "user_id", most=NAME_LENGTH_MAX)
    if not text:
        raise ConfigError("user_id is empty", hint="name the user who asks", key="user_id")
    return text


def check_owner(owner: str, user_id: str | None, what: str) -> None:
    """Raise Denied if a user asks for something of another user, or of none. The message does not name the owner."""
    if user_id is not None and owner != user_id:
        raise Denied(f"{what} is not {user_id}'s", hint="its owner may do this", user_id=user_id)


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


class ResourceQuota(DurableValue, FrozenSettings, frozen=True, dict=True):
    """What a process may use. A field left out, or 0 as a wire sends it, takes its default; the three rates have none:
    where they are set, they tighten the limits of the process's user while the process lives."""

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
        given = []
        for name in self.__struct_fields__:
            value = getattr(self, name)
            checked = real(value, name) if name in _SECONDS else check_integer(value, name, most=COUNTED_MAX)
            if checked:
                given.append(name)
            self._put(**{name: checked or (float if name in _SECONDS else int)(_DEFAULTS.get(name, 0))})
        self._put(_given=tuple(given))

    @property
    def given(self) -> dict[str, Any]:
        """The fields that were given; the others took their defaults."""
        return {name: getattr(self, name) for name in self.__dict__["_given"]}

    def with_changes(self, changes: Any) -> ResourceQuota:
        """This quota with the named fields changed; 0 leaves a field unchanged."""
        if not isinstance(changes, Mapping):
            raise ConfigError(f"{self.WORD} is a mapping of settings, not {changes!r}")
        check_keys(changes, self.__struct_fields__, self.WORD)
        return ResourceQuota(**{**self.to_data(), **{name: value for name, value in changes.items() if value != 0}})


class ResourceUsage(DurableValue, msgspec.Struct, frozen=True, dict=True):
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
    """What is left of each resource, never below 0."""

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
    """The usage of all processes, removed ones included."""

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


# In the order in which they are checked; the first limit that is exceeded is the reason.
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

LIMITS: Final[dict[str, str]] = {check.resource: check.limit for check in CHECKS}
LEFT: Final[dict[str, str]] = {check.resource: check.limit for check in CHECKS if check.resource in COUNTED}


def first_over(usage: ResourceUsage, quota: ResourceQuota, *, timed: bool) -> str:
    """Return the first reason why usage exceeds a quota; "" if it does not."""
    for check in CHECKS:
        if getattr(usage, check.resource) > getattr(quota, check.limit) and (timed or check.limit != "timeout_seconds"):
            return check.reason
    return ""


def how_far(resource: str, used: float, limit: float, quota: ResourceQuota) -> str:
    """`exceeded`, `warning` (near the limit) or ""."""
    if used > limit:
        return "exceeded"
    if resource == "elapsed_seconds":
        return "warning" if used >= quota.soft_timeout_seconds else ""
    return "warning" if used * 100 >= limit * QUOTA_WARN_PERCENT else ""
