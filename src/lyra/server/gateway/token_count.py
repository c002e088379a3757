"""The tokens of a request to a model whose provider does not count them beforehand: Lyra's own estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lyra.agents.session.shared import runtime_of
from lyra.server.gateway.translation.messages import read_messages
from lyra.server.http.endpoint import RawAnswer

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.server.gateway.request import GatewayRequest


def estimated_count(kernel: Kernel, request: GatewayRequest, model: str) -> RawAnswer:
    """The answer of `/v1/messages/count_tokens`; rather too many than too few."""
    tokens = runtime_of(kernel).estimate(model, read_messages(request.data()))
    return RawAnswer(msgspec.json.encode({"input_tokens": tokens}))
