"""What a call through the gateway is charged, and whether a try that failed may be on the provider's bill.

A key with a budget is charged the provider's own count where the whole answer told it, and never more than was
reserved. A call without that count (cut off, its client gone, an answer without usage) is charged its reservation: a
provider bills tokens that it never showed, and what it made while the connection broke. That holds also for an error
with the status of a success: some providers send the status before the model has answered, and bill what the model did
until it failed. A key without a budget has no reservation that bounds a call; its calls are recorded by an estimate.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from lyra.core.budgets.budget import Usage
from lyra.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from lyra.server.gateway.call import GatewayCall


_log: Final = logging.getLogger("lyra.server.gateway")
# Statuses by which a proxy in front of a provider says that it gave up waiting: the provider may have gone on.
_GAVE_UP: Final = frozenset({408, 499, 502, 504, *range(520, 528)})


def may_be_billed(error: BaseException) -> bool:
    """Whether a provider may bill a try that ended so. A refusal with a status is free; so is what was never sent."""
    if isinstance(error, ConfigError):
        return False
    if not isinstance(error, ModelError):
        return True
    status = error.fields.get("status")
    if isinstance(status, int):
        return status < 400 or status in _GAVE_UP
    return not error.fields.get("unsent")


def spent(call: GatewayCall, *, is_whole: bool) -> Usage:
    """What a call is charged; sets what its record says that it cost."""
    if call.request.format.is_free:
        call.micro_usd = 0
        return call.quoted
    tokens = call.meter.tokens(call.quoted["input_tokens"], is_whole=is_whole)
    price = call.target.price
    call.micro_usd = None if price is None else price.cost(tokens)
    usage = Usage.of_call(call.micro_usd or 0, tokens.total_input, tokens.output_tokens)
    if not call.is_limited:
        return usage
    if tokens.estimated:
        usage = call.quoted
    elif usage["usd"] > call.quoted["usd"]:
        _log.warning(
            "%s told a usage of %s for a call that costs at most %s; the key is charged the latter",
            call.target.name,
            usage.usd,
            call.quoted.usd,
        )
        usage = Usage.of_call(
            *(min(usage[name], call.quoted[name]) for name in ("usd", "input_tokens", "output_tokens"))
        )
    call.micro_usd = usage["usd"]
    return usage
