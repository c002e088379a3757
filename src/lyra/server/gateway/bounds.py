"""The most that a call may cost, before it is made: bounds of the tokens that go in and come out.

A budget holds only if no call can cost more than was reserved for it, so these are bounds, not guesses: no tokenizer
makes more tokens of a text than it has bytes, an image counts as the largest that providers take, and an answer has at
most the tokens that the request allows. What has no bound is refused for a key with a budget, and so is a member that
is not known and could make the answer longer: it has a number, or a name that speaks of lengths, numbers or text from
elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isinf
from typing import Any, Final, NamedTuple

import msgspec

from lyra.errors import ConfigError
from lyra.models.tokens import BASE_TOKENS, IMAGE_TOKENS, MESSAGE_TOKENS, TOOLS_TOKENS
from lyra.server.gateway.request import ANSWER_BOUNDS, GatewayRequest

ANSWER_TOKENS: Final = 32_768  # the bound of an answer where neither the request nor the money left sets a lower one
# Models whose provider refuses a higher bound than this, by the beginning of their names.
_ANSWER_TOKENS_BY_NAME: Final = (
    *(("gpt-4o", 16_384), ("chatgpt-4o", 16_384), ("gpt-4.", ANSWER_TOKENS), ("gpt-4", 4_096)),
    *(("gpt-3.5", 4_096), ("deepseek-chat", 8_192)),
)
_ANSWER_TOKENS_LEAST: Final = 64  # for a shorter answer than this, or than was asked for, the model is not asked
_IMAGE_PARTS: Final = frozenset({"image", "image_url", "input_image"})
_CONVERSATION: Final = ("messages", "input", "system", "instructions")
_MESSAGES: Final = ("messages", "input")  # whose entries may say a role alone, and no type
# The names in a message or a part of one that decide what it costs.
_PART_NAMES: Final = frozenset({"type", "content", "output", "audio", "source", "image_url", "tools"})
# The parts of a conversation whose tokens are bounded by their bytes, or are those of an image. Any other may bring in
# text that is not in the request (a file, a stored item, what a tool of the provider found), sound or moving pictures.
_BOUNDED_PARTS: Final = {
    "chat": frozenset({"message", "text", "image_url", "refusal"}),
    "messages": frozenset(
        {
            *("text", "image", "tool_use", "tool_result", "thinking", "redacted_thinking"),
            *("search_result", "tool_reference"),
        }
    ),
    "responses": frozenset(
        {
            *("message", "input_text", "output_text", "input_image", "refusal", "text"),
            *("reasoning", "reasoning_text", "summary_text", "encrypted_content"),
            *("function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"),
            *("local_shell_call", "local_shell_call_output", "apply_patch_call", "apply_patch_call_output"),
            *("tool_search_call", "tool_search_output", "agent_message", "additional_tools", "configuration_update"),
        }
    ),
    "embeddings": frozenset[str](),
}
# Members that bring in text which the gateway does not see, or that are paid for in another way than by the token.
_UNBOUNDED: Final = (
    *("previous_response_id", "conversation", "thread", "prompt", "background", "compaction"),
    *("container", "mcp_servers", "web_search_options", "audio", "image", "moderation", "prediction"),
    *("search_parameters", "enable_search", "plugins", "best_of"),
    *("fallbacks", "models", "route", "provider", "speed", "inference_geo"),  # another model, or another price
)
# What a key with a budget may send: members that make neither the question nor the answer longer than their own bytes
# and the bound say, or that are looked at below. `_UNBOUNDED` has those of which more can be said than "not known".
_SAMPLING: Final = ("temperature", "top_p", "top_k", "min_p", "top_a", "repetition_penalty", "seed", "stream")
_THINKING: Final = ("thinking", "reasoning", "max_reasoning_tokens", "thinking_budget")
_OPENAI: Final = frozenset(
    {
        *("model", "n", "tools", "tool_choice", "parallel_tool_calls", "stream_options", "service_tier", "store"),
        *("metadata", "user", "safety_identifier", "top_logprobs", "verbosity", "access_programs", "client_metadata"),
        *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
        *_SAMPLING,
        *_THINKING,
        *ANSWER_BOUNDS,
    }
)
_KNOWN: Final[dict[str, frozenset[str]]] = {
    "chat": _OPENAI
    | {
        *("messages", "functions", "function_call", "response_format", "reasoning_effort", "modalities", "usage"),
        *("stop", "logprobs", "logit_bias", "frequency_penalty", "presence_penalty"),
    },
    "responses": _OPENAI
    | {"input", "instructions", "include", "max_tool_calls", "text", "truncation", "context_management"},
    "messages": frozenset(
        {
            *("model", "messages", "system", "tools", "tool_choice", "stop_sequences", "metadata", "service_tier"),
            *("output_config", "output_format", "cache_control", "context_management", "betas", "diagnostics"),
            *("user_profile_id", "workspace_id", "fallback_credit_token"),
            *_SAMPLING,
            *_THINKING,
            *ANSWER_BOUNDS,
        }
    ),
    "embeddings": frozenset(
        {"model", "input", "dimensions", "encoding_format", "user", "input_type", "truncate", "stream"}
    ),
}
# Known members that may be objects, or have some inside; the others are single values, or lists of them.
_OBJECTS: Final = frozenset(
    {
        *_CONVERSATION,
        *("tools", "functions"),
        *("tool_choice", "function_call", "response_format", "output_format", "logit_bias", "metadata", "usage"),
        *("client_metadata", "access_programs", "prompt_cache_options", "cache_control", "diagnostics"),
        *("context_management", "fallback_credit_token", "thinking", "reasoning", "stream_options", "text"),
        "output_config",
    }
)
# What is known inside of some of them.
_KNOWN_INSIDE: Final = {
    "thinking": frozenset({"type", "display", "budget_tokens"}),
    "reasoning": frozenset(
        {"effort", "summary", "generate_summary", "context", "mode", "max_tokens", "enabled", "exclude"}
    ),
    "stream_options": frozenset({"include_usage", "include_obfuscation"}),
    "text": frozenset({"format", "verbosity"}),
    "output_config": frozenset({"effort", "format", "task_budget"}),
    "usage": frozenset({"include"}),
}
# Parts of names by which a member that is not known could make a question or an answer longer, or dearer.
_LENGTHENING: Final = (
    *("token", "max", "predict", "len", "limit", "budget", "best", "beam", "candidate", "choice", "count", "num"),
    *("repeat", "sample", "think", "reason", "effort", "output", "generat", "option", "config", "extra", "template"),
    *("prompt", "message", "input", "context", "document", "file", "url", "image", "audio", "video", "search", "tool"),
    *("model", "provider", "route", "plugin", "fallback", "server", "param"),
)
# Edits of a conversation before the model reads it. These take text away; others (compaction) ask the model once more.
_SHORTENING_EDITS: Final = ("clear_thinking_", "clear_tool_uses_")
_USUAL_TIERS: Final = (None, "auto", "default", "flex", "standard", "standard_only")


# The tokens of an image as large as providers take them: models of OpenAI count by tiles or patches, each in its way.
_IMAGE_TOKENS_BY_NAME: Final = (("4o-mini", 50_000), ("claude", IMAGE_TOKENS))
_IMAGE_TOKENS_USUAL: Final = 25_000


def input_bound(request: GatewayRequest, model: str) -> int:
    """Return the most tokens that the request can be for a model."""
    image_tokens = next(iter([most for word, most in _IMAGE_TOKENS_BY_NAME if word in model]), _IMAGE_TOKENS_USUAL)
    has_tools = request.may_name("tools") or request.has("functions")
    tokens = request.size_bytes + BASE_TOKENS + (TOOLS_TOKENS if has_tools else 0)
    tokens += count_described_tokens(request)
    for _, part in _parts(request):
        tokens += MESSAGE_TOKENS
        if _type(part) in _IMAGE_PARTS:
            tokens += image_tokens - _data_bytes(part)
    return tokens


def _parts(request: GatewayRequest) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the messages of a request (level 0), their parts (1), the parts of tools' results (2), and what is inside
    those. Only what a provider reads as a part is one: an object inside the arguments of a tool call is text to it."""
    for name in _CONVERSATION:
        level = int(name not in _MESSAGES)
        pending = [request.values[name]] if isinstance(request.values.get(name), (dict, list)) else []
        while pending and (parts := list(_objects(pending))):
            yield from [(level, part) for part in parts]
            inside = [part.get(field) for part in parts for field in ("content", "output")]
            pending = [node for node in inside if isinstance(node, (dict, list))]
            level += 1


def _objects(nodes: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield the objects of a list, also where they are in lists inside of it."""
    pending = list(reversed(nodes))
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield node
        elif isinstance(node, list):
            pending += reversed(node)


def _type(part: dict[str, Any]) -> str:
    kind = part.get("type")
    return kind if isinstance(kind, str) else ""


def _data_bytes(part: dict[str, Any]) -> int:
    """Return the bytes of an image's data inside a request."""
    source = part.get("source")
    if isinstance(source, dict):
        return len(source["data"]) if isinstance(source.get("data"), str) and source.get("type") == "base64" else 0
    url = part.get("image_url")
    text = url.get("url") if isinstance(url, dict) else url
    return len(text) if isinstance(text, str) and text.startswith("data:image/") else 0


def output_bound(request: GatewayRequest, model: str) -> int:
    """Return the most tokens that the answer can have, of each of its choices."""
    if not request.format.limits:
        return 0
    return request.limit or next(
        (most for word, most in _ANSWER_TOKENS_BY_NAME if model.startswith(word)), ANSWER_TOKENS
    )


def _thinking_bounds(request: GatewayRequest) -> dict[str, Any]:
    """Return the numbers of tokens that a request allows for thinking, by their names."""
    bounds = {name: request.values.get(name) for name in ("max_reasoning_tokens", "thinking_budget")}
    for name, inner in (("thinking", "budget_tokens"), ("reasoning", "max_tokens")):
        given = request.values.get(name)
        bounds[f"{name}.{inner}"] = given.get(inner) if isinstance(given, dict) else None
    return {name: bound for name, bound in bounds.items() if bound is not None}


def thinking_beside(request: GatewayRequest, bound: int) -> int:
    """Return the most tokens of thinking that an answer may have beside those that `bound` allows. Anthropic counts
    thoughts towards the bound, unless they are allowed more than that; of other providers only some do."""
    tokens = sum(_thinking_bounds(request).values())
    return 0 if request.format.vendor == "anthropic" and tokens < bound else tokens


def answer_least(request: GatewayRequest) -> int:
    """Return the fewest tokens of answer that are worth a call: the provider refuses a bound that its thinking would
    fill."""
    thinking = request.values.get("thinking")
    budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    return _ANSWER_TOKENS_LEAST + (budget if isinstance(budget, int) and budget > 0 else 0)


def choices(request: GatewayRequest) -> int:
    """Return how many answers are asked for."""
    count = request.values.get("n")
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 1 else 1


def refuse_unbounded(request: GatewayRequest, tools: BoundedTools) -> None:
    """Refuse what has no known bound; `tools` are those of the request."""
    _refuse_members(request)
    if not _only_shortens(request.values.get("context_management")):
        raise _make_refusal("context_management")
    if tools.unbounded is not None:
        raise _make_tool_refusal(tools.unbounded)
    if request.may_name("ttl") and _is_cached_long(request.data()):
        raise _make_refusal("a cache_control of another ttl than 5m")
    if request.values.get("service_tier") not in _USUAL_TIERS:
        raise _make_refusal("service_tier")
    bounded = _BOUNDED_PARTS[request.format.name]
    for level, part in _parts(request):
        is_message = not level and bool(bounded) and part.get("type") is None  # it says its role alone
        if (not is_message and _type(part) not in bounded) or part.get("audio"):
            raise _make_refusal(f"a part of type {_type(part)[:60]!r}")
        if any(name not in _PART_NAMES and name.casefold() in _PART_NAMES for name in part):
            raise _make_refusal("a part with names in capital letters")
        if (hosted := find_hosted_tool(part.get("tools"))) is not None:
            raise _make_tool_refusal(hosted)


def _refuse_members(request: GatewayRequest) -> None:
    """Refuse members that are not known, or whose values could make the answer longer than its bound."""
    for name in _UNBOUNDED:
        if request.values.get(name):
            raise _make_refusal(name)
    known_here = _KNOWN[request.format.name]
    for name in request.names:
        given = request.values.get(name)
        if name not in known_here and name.casefold() in known_here.union(_UNBOUNDED):
            raise _make_refusal(f"the member {name[:60]!r}")  # to some providers it is the other one
        is_known = name in known_here and (name in _OBJECTS or not any(_objects([given])))
        if not is_known and name not in _UNBOUNDED and _may_lengthen({name: given}):
            raise _make_refusal(f"the member {name[:60]!r}")
    for name, known in _KNOWN_INSIDE.items():
        given = request.values.get(name)
        unknown = {key: value for key, value in given.items() if key not in known} if isinstance(given, dict) else {}
        if _may_lengthen(unknown):
            raise _make_refusal(f"the member {f'{name}.{min(unknown)}'[:60]!r}")
    for name, bound in {**request.limits, **_thinking_bounds(request)}.items():
        if type(bound) is not int or bound < 1:  # to some providers "50" is 50, and -1 is no bound
            raise ConfigError(f"{name} is a whole number above 0", key=name)
    count, reasoning = request.values.get("n"), request.values.get("reasoning")
    if count is not None and (type(count) is not int or count < 1):
        raise ConfigError("n is a whole number above 0", key="n")
    if request.values.get("modalities") not in (None, ["text"]):
        raise _make_refusal("modalities")
    if isinstance(reasoning, dict) and reasoning.get("mode") not in (None, "standard"):
        raise _make_refusal("reasoning.mode")


def _may_lengthen(node: Any) -> bool:
    """Return whether something that is not known could make the answer longer: by its names, or by a whole number above
    1."""
    if isinstance(node, dict):
        given = {name.casefold(): value for name, value in node.items() if value is not None}
        return any(word in name for name in given for word in _LENGTHENING) or any(map(_may_lengthen, given.values()))
    if isinstance(node, list):
        return any(map(_may_lengthen, node))
    try:
        number = float(node or 0)
    except (TypeError, ValueError):
        return False
    return not -1 < number <= 1 and (isinf(number) or number.is_integer())


def _make_tool_refusal(kind: str) -> ConfigError:
    return _make_refusal(f"the tool {kind[:60]!r}", hint="switch that tool off, or use a key without a budget")


def _is_cached_long(data: Any) -> bool:
    """Return whether a part asks for a cache that costs more to write than the price of the model says."""
    pending = [data]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            control = node.get("cache_control")
            if isinstance(control, dict) and control.get("ttl", "5m") != "5m":
                return True
            pending += node.values()
        elif isinstance(node, list):
            pending += node
    return False


def _only_shortens(management: Any) -> bool:
    """Return whether the edits of a conversation that the provider makes only take text away."""
    if not management:
        return True
    is_known = isinstance(management, dict) and management.keys() <= {"edits"}
    edits = management.get("edits") if is_known else None
    return isinstance(edits, list) and all(
        isinstance(edit, dict) and _type(edit).startswith(_SHORTENING_EDITS) for edit in edits
    )


def _make_refusal(what: str, *, hint: str = "leave it out, or use a key without a budget") -> ConfigError:
    return ConfigError(
        f"the cost of {what} is not known before the call, so the budget of the key cannot be held to", hint=hint
    )


# ---------------------------------------------------------------- tool bounds
# The tools of a request that a budget can hold.

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


def select_bounded_tools(request: GatewayRequest) -> BoundedTools:
    """Which tools of a request can be sent for a key with a budget."""
    tools = request.values.get("tools")
    if not isinstance(tools, list):
        return BoundedTools()
    are_of_client = [_is_of_client(tool) or bool(_find_described_kind(request, tool)) for tool in tools]
    hosted = [tool for tool, is_of_client in zip(tools, are_of_client, strict=True) if not is_of_client]
    if not hosted:
        return BoundedTools()
    may_leave_out = (
        request.format.name == "responses"
        and len(hosted) < len(tools)
        and request.values.get("tool_choice") in _FREE_CHOICES
    )
    needed = [tool for tool in hosted if not may_leave_out or _tool_type(tool) not in _OPTIONAL_TOOLS]
    if needed:
        return BoundedTools(unbounded=_tool_type(needed[0]))
    raw = _entries.decode(request.raw("tools"))
    kept = [entry for entry, is_of_client in zip(raw, are_of_client, strict=True) if is_of_client]
    return BoundedTools(kept, tuple(sorted({_tool_type(tool) for tool in hosted})))


def find_hosted_tool(tools: Any) -> str | None:
    """Return the type of the first tool that the provider would run, of those that an item of a conversation brings."""
    entries = tools if isinstance(tools, list) else []
    return next((_tool_type(tool) for tool in entries if not _is_of_client(tool)), None)


def count_described_tokens(request: GatewayRequest) -> int:
    """Return the most input tokens that the provider's own descriptions of the client's tools add to a request."""
    tools = request.values.get("tools")
    kinds = [_find_described_kind(request, tool) for tool in tools] if isinstance(tools, list) else []
    return sum([_DESCRIBED_TOKENS[kind] for kind in kinds if kind])


def _find_described_kind(request: GatewayRequest, tool: Any) -> str:
    """Return the kind of a tool that the client runs and the provider describes; "" for any other."""
    match = _DESCRIBED.fullmatch(_tool_type(tool)) if request.format.vendor == "anthropic" else None
    return "" if match is None else match[1]


def _tool_type(tool: Any) -> str:
    kind = tool.get("type") if isinstance(tool, dict) else ""
    return str(kind or "")


def _is_of_client(tool: Any) -> bool:
    """Return whether the client runs a tool, or all tools of a group. A name in capital letters hides a type from no
    provider that reads it without regard to them."""
    if isinstance(tool, dict) and any(name.casefold() in _DECIDING and name not in _DECIDING for name in tool):
        return False
    if _tool_type(tool) != _GROUP:
        return _tool_type(tool) in _CLIENT_TOOLS
    inner = tool.get("tools")
    return isinstance(inner, list) and all(_tool_type(entry) in _CLIENT_TOOLS for entry in inner)
