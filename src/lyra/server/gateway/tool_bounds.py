"""The tools of a request that a budget can hold.

Tools that the client runs cost the bytes of their description. Some of them are described by the provider, which adds
a text of its own to the input: they cost an allowance of tokens besides (`described_tokens`). Tools that the provider
runs are paid for by use, and bring in text of any length: they have no bound. A request whose only tools they are, or
that demands one, is refused. A program that offers a web search beside tools of its own, as codex does without being
asked, works without it: the entry is left out of what is sent, and a header of the answer says so.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import msgspec

from lyra.server.gateway.request import GatewayRequest

_CLIENT_TOOLS: Final = frozenset({"", "function", "custom", "local_shell", "apply_patch"})
# Tools of Anthropic's that the client runs: the most input tokens that the provider's own description of one adds. It
# publishes 245 for the shell, 700 for the editor, 735 for the computer and 500 for the system prompt that comes with
# it, and none for the memory. Each is allowed at least three times as many, for versions to come.
_DESCRIBED_TOKENS: Final = {"bash": 1_000, "text_editor": 3_000, "computer": 4_000, "memory": 4_000}
_DESCRIBED: Final = re.compile(rf"({'|'.join(_DESCRIBED_TOKENS)})_[0-9]{{8}}")  # with the date of its version
_DECIDING: Final = ("type", "tools")  # the names in a tool that say who runs it
_GROUP: Final = "namespace"  # tools of the client under one name
_OPTIONAL_TOOLS: Final = frozenset({"web_search", "web_search_preview"})
_FREE_CHOICES: Final = (None, "auto", "none")
_entries: Final = msgspec.json.Decoder(list[msgspec.Raw])


class BoundedTools(NamedTuple):
    """`kept` are the entries to send, None for all as they came; `left_out` are the types of the others; `unbounded` is
    the type of a tool for which the request has to be refused."""

    kept: list[msgspec.Raw] | None = None
    left_out: tuple[str, ...] = ()
    unbounded: str | None = None


def bounded_tools(request: GatewayRequest) -> BoundedTools:
    """Which tools of a request can be sent for a key with a budget."""
    tools = request.value("tools")
    if not isinstance(tools, list):
        return BoundedTools()
    are_of_client = [_is_of_client(tool) or bool(_described(request, tool)) for tool in tools]
    hosted = [tool for tool, is_of_client in zip(tools, are_of_client, strict=True) if not is_of_client]
    if not hosted:
        return BoundedTools()
    may_leave_out = (
        request.format.name == "responses"
        and len(hosted) < len(tools)
        and request.value("tool_choice") in _FREE_CHOICES
    )
    needed = [tool for tool in hosted if not may_leave_out or _type(tool) not in _OPTIONAL_TOOLS]
    if needed:
        return BoundedTools(unbounded=_type(needed[0]))
    raw = _entries.decode(request.raw("tools"))
    kept = [entry for entry, is_of_client in zip(raw, are_of_client, strict=True) if is_of_client]
    return BoundedTools(kept, tuple(sorted({_type(tool) for tool in hosted})))


def hosted_tool(tools: Any) -> str | None:
    """The type of the first tool that the provider would run, of those that an item of a conversation brings."""
    entries = tools if isinstance(tools, list) else []
    return next((_type(tool) for tool in entries if not _is_of_client(tool)), None)


def described_tokens(request: GatewayRequest) -> int:
    """The most input tokens that the provider's own descriptions of the client's tools add to a request."""
    tools = request.value("tools")
    kinds = [_described(request, tool) for tool in tools] if isinstance(tools, list) else []
    return sum(_DESCRIBED_TOKENS[kind] for kind in kinds if kind)


def _described(request: GatewayRequest, tool: Any) -> str:
    """The kind of a tool that the client runs and the provider describes; "" for any other."""
    match = _DESCRIBED.fullmatch(_type(tool)) if request.format.vendor == "anthropic" else None
    return "" if match is None else match[1]


def _type(tool: Any) -> str:
    kind = tool.get("type") if isinstance(tool, dict) else ""
    return str(kind or "")


def _is_of_client(tool: Any) -> bool:
    """Whether the client runs a tool, or all tools of a group. A name in capital letters hides a type from no provider
    that reads it without regard to them."""
    if isinstance(tool, dict) and any(name.casefold() in _DECIDING and name not in _DECIDING for name in tool):
        return False
    if _type(tool) != _GROUP:
        return _type(tool) in _CLIENT_TOOLS
    inner = tool.get("tools")
    return isinstance(inner, list) and all(_type(entry) in _CLIENT_TOOLS for entry in inner)
