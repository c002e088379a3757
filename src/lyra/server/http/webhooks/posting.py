"""One post of a JSON body to a URL that another party named: checked against this network, bounded, not redirected.

A URL inside this network is refused, by the same guard that the tools' requests pass. A failure is an EffectFailed
whose status says whether it is tried again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from lyra.core.policies.retry import Backoff, Retry
from lyra.core.rights.capability import Grant
from lyra.errors import EffectFailed, ToolError

POST_RETRY: Final = Retry(max_attempts=6, backoff=Backoff(initial_s=1.0, factor=4.0, max_s=300.0, jitter=0.2))
POST_TIMEOUT_S: Final = 20.0
_ANSWER_BYTES_MAX: Final = 64 * 1024


def check_url(url: str, inside: Collection[str]) -> None:
    """Raise CapabilityDenied for a URL inside this network, unless `inside` names its `host:port`."""
    from lyra.sandbox.addresses import target_of
    from lyra.tools.http_guard import host_and_port

    if host_and_port(url) not in inside:
        target_of(url)


async def post(url: str, body: bytes, headers: Mapping[str, str], *, inside: Collection[str]) -> int:
    """Post a JSON body; the status of the answer. EffectFailed where the receiver does not take it."""
    from lyra.tools.http_guard import fetch

    try:
        answer = await fetch(
            url,
            grant=Grant.all(),
            method="POST",
            headers={"content-type": "application/json", **headers},
            body=body,
            redirects=0,
            bytes_max=_ANSWER_BYTES_MAX,
            timeout_s=POST_TIMEOUT_S,
            inside=inside,
        )
    except ToolError as error:
        raise EffectFailed(error.message) from None  # tried again
    if answer.status >= 300:  # the status says whether it is tried again; a redirect is not followed
        raise EffectFailed(f"the receiver answered {answer.status}", status=max(answer.status, 400))
    return answer.status
