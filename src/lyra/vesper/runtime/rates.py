"""How often a node may be executed: `performance.rate_limit`, held by the kernel's rate limiter.

`per_user` counts the executions of each user (the input `user_id`, or `user.id` of the context), `global` those of all.
Both windows slide, and the counts are in the journal: a restart forgives nothing. An execution that is too many is
answered with the code `rate_limited` before anything is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from lyra.vesper.check.watching import rate_of
from lyra.vesper.values.outcome import failed

if TYPE_CHECKING:
    from lyra.kernel import Kernel
    from lyra.vesper.nodes.model import Node, NodeRates
    from lyra.vesper.values.outcome import Outcome


_ALL: Final = "vesper"  # the user that stands for all of them
_NO_LIMITS: Final = dict.fromkeys(("requests_per_minute", "requests_per_hour", "requests_per_day", "burst_size"), 0)


async def over_rate(
    node: Node, limits: NodeRates, inputs: Mapping[str, Any], ambient: Mapping[str, Any] | None, kernel: Kernel
) -> Outcome | None:
    """Count an execution; the answer where it is too many."""
    counted = []
    if limits.per_user:
        counted.append((_user(inputs, ambient or {}), f"vesper:{node.node_id}:user", limits.per_user))
    if limits.overall:
        counted.append((_ALL, f"vesper:{node.node_id}", limits.overall))
    limiter = kernel.rate_limiter
    for _, endpoint, rate in counted:
        number, unit = rate_of(rate)
        config = {**_NO_LIMITS, f"requests_per_{unit}": number}
        if limiter.get_config("", endpoint).limit(unit) != number:
            limiter.set_endpoint_limits(endpoint, config)
    for records in (False, True):  # one that is refused counts nowhere
        for user, endpoint, rate in counted:
            result = kernel.check_rate_limit(user, endpoint, record=records)
            if not result.allowed:
                return _refused(node, rate, result.retry_after_seconds)
    return None


def _user(inputs: Mapping[str, Any], ambient: Mapping[str, Any]) -> str:
    user = ambient.get("user")
    known = inputs.get("user_id") or (user.get("id") if isinstance(user, Mapping) else None)
    return str(known)[:200] if known else "anonymous"


def _refused(node: Node, rate: str, seconds: float) -> Outcome:
    message = f"{node.node_id} may be executed {rate}; try again in {seconds:.0f} s"
    return failed("rate_limited", message, phase="limit")
