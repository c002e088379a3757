"""Everything in Lyra that needs the MCP SDK: importing this module imports the SDK.

It also answers a server's requests to its client. A form for a person is answered by `elicit(message, schema)` with the
values, or None to decline; a page that a person should open is always declined. Text of a model comes from
`sample(request)`, or None to refuse. `callback_routes` finds the process that answers.

It stands alone so that the MCP SDK is imported at its first use.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from mcp import Client
from mcp_types import (
    INVALID_REQUEST,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitResult,
    ErrorData,
    Implementation,
    TextContent,
)

from lyra.core.checking.schema import mismatch
from lyra.mcp.oauth import Login, TokenStore, client_of
from lyra.mcp.tools import checkable
from lyra.mcp.transports import stdio, web

__all__ = ["Client", "Implementation", "Login", "TokenStore", "client_of", "elicitation", "sampling", "stdio", "web"]

_TOKENS_MAX: Final = 4_096


def elicitation(elicit: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any] | None]]) -> Any:
    async def answer(_context: Any, params: Any) -> ElicitResult | ErrorData:
        if not isinstance(params, ElicitRequestFormParams):
            return ElicitResult(action="decline")
        schema = dict(params.requested_schema)
        given = await elicit(params.message, schema)
        if given is None:
            return ElicitResult(action="decline")
        wrong = mismatch(given, checkable(schema)) if schema.get("type") == "object" else None
        if wrong is not None:
            return ErrorData(code=INVALID_REQUEST, message=f"the answer does not fit the form: {wrong}")
        return ElicitResult(action="accept", content=given)

    return answer


def sampling(sample: Callable[[dict[str, Any]], Awaitable[str | None]]) -> Any:
    async def answer(_context: Any, params: CreateMessageRequestParams) -> CreateMessageResult | ErrorData:
        request = {
            "system": params.system_prompt or "",
            "messages": [{"role": message.role, "text": _text(message.content)} for message in params.messages],
            "max_tokens": min(params.max_tokens, _TOKENS_MAX),
        }
        text = await sample(request)
        if text is None:
            return ErrorData(code=INVALID_REQUEST, message="refused")
        return CreateMessageResult(role="assistant", content=TextContent(type="text", text=text), model="lyra")

    return answer


def _text(content: Any) -> str:
    parts = content if isinstance(content, list) else [content]
    return "\n".join(part.text if part.type == "text" else f"[{part.type}]" for part in parts)
