"""A Request as Google's `generateContent` wants it.

Turns alternate (those of one role are joined), results of tools are the user's and stand alone, system messages go to
`systemInstruction`. Ids of calls that are made up are never sent back. Thought signatures belong to single parts (a
call, the text), so they travel in the message's thoughts as one text, `SIGNED` and a JSON object of part to signature,
and go back to the parts they came from. Models before the third generation accept an output schema only without
tools, and images of tools only beside their results. The API has no field for `parallel_tools`; caching is implicit.
"""

from __future__ import annotations

import mimetypes
from contextlib import suppress
from typing import Any, Final

import msgspec

from lyra.core.message import Message
from lyra.core.tool import Tool, ToolCall, ToolResult
from lyra.models.conversation_parts import is_made_up, output_parts, parts, schema_in_words, system_text, thoughts
from lyra.models.request import Request
from lyra.models.wire.faults import UNREADABLE
from lyra.models.wire.remote import image_url

SIGNED: Final = "gemini:"
_MODES: Final[dict[str, str]] = {"auto": "AUTO", "any": "ANY", "none": "NONE"}
_THINKING_LEAST: Final = 512  # the highest of the models' own least budgets
_UNSIGNED: Final = "skip_thought_signature_validator"  # Google's value for calls that another model made


def gemini_body(request: Request) -> dict[str, Any]:
    early = _is_early(request.model)
    in_words = bool(request.output_schema and request.tools and early)
    system = [system_text(request), schema_in_words(request) if in_words else ""]
    body: dict[str, Any] = {"contents": _contents(request, early=early)}
    if any(system):
        body["systemInstruction"] = {"parts": [{"text": text} for text in system if text]}
    if request.tools:
        body["tools"] = [{"functionDeclarations": [_declaration(tool) for tool in request.tools]}]
        body["toolConfig"] = {"functionCallingConfig": _tool_choice(request.tool_choice)}
    config = _config(request)
    if request.output_schema is not None and not in_words:
        config["responseMimeType"] = "application/json"
        config["responseJsonSchema"] = request.output_schema
    if config:
        body["generationConfig"] = config
    return body


def _is_early(model: str) -> bool:
    return model.startswith(("gemini-1", "gemini-2", "gemini-pro", "gemma"))


def _declaration(tool: Tool) -> dict[str, Any]:
    declared = {"name": tool.name, "parametersJsonSchema": tool.schema}
    return {**declared, "description": tool.description} if tool.description else declared


def _tool_choice(choice: str) -> dict[str, Any]:
    if choice in _MODES:
        return {"mode": _MODES[choice]}
    return {"mode": "ANY", "allowedFunctionNames": [choice]}


def _config(request: Request) -> dict[str, Any]:
    config: dict[str, Any] = {
        "maxOutputTokens": request.max_tokens,
        "temperature": request.temperature,
        "topP": request.top_p,
        "stopSequences": list(request.stop) or None,
        "topK": request.top_k,
        "seed": request.seed,
    }
    thinking = _thinking_budget(request)
    if thinking is not None:
        config["thinkingConfig"] = {"thinkingBudget": thinking, "includeThoughts": thinking != 0}
    return {name: value for name, value in config.items() if value is not None}


def _thinking_budget(request: Request) -> int | None:
    """Return the thinking tokens to ask for: fewer than the answer's bound, towards which Google counts thoughts. None
    where the bound leaves fewer than every model takes: the model then decides, within the bound."""
    thinking, bound = request.thinking_tokens, request.max_tokens
    if thinking is None or bound is None or thinking < bound:
        return thinking
    return bound - 1 if bound > _THINKING_LEAST else None


def _contents(request: Request, *, early: bool) -> list[dict[str, Any]]:
    contents: list[dict[str, Any]] = []
    for message in request.messages:
        if message.role == "assistant":
            _add(contents, "model", _assistant_parts(message, early=early))
        elif message.role == "tool":
            _add_results(contents, message.tool_results, early=early)
            _add(contents, "user", [_part(part) for part in parts(message)])
        elif message.role == "user":
            _add(contents, "user", [_part(part) for part in parts(message)])
    return contents


def _add(contents: list[dict[str, Any]], role: str, new_parts: list[dict[str, Any]]) -> None:
    """Add parts; roles alternate, so parts of the same role join the last turn."""
    if not new_parts:
        return
    if contents and contents[-1]["role"] == role and not _answers(contents[-1]):
        contents[-1]["parts"] += new_parts
    else:
        contents.append({"role": role, "parts": new_parts})


def _answers(content: dict[str, Any]) -> bool:
    """Whether a turn holds results of calls. They stand alone: as many as calls, and no other parts."""
    return "functionResponse" in content["parts"][-1]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    return _image(part) if part["type"] == "image" else {"text": part["text"]}


def _image(part: dict[str, Any]) -> dict[str, Any]:
    url = image_url(part)
    if url.startswith("data:"):
        kind, _, data = url.removeprefix("data:").partition(",")
        return {"inlineData": {"mimeType": kind.partition(";")[0], "data": data}}
    kind = part.get("media_type") or mimetypes.guess_type(url.partition("?")[0])[0] or "image/png"
    return {"fileData": {"fileUri": url, "mimeType": kind}}


def _assistant_parts(message: Message, *, early: bool) -> list[dict[str, Any]]:
    signed = _signatures(message)
    sent_parts: list[dict[str, Any]] = []
    if "thought" in signed:
        thought = "".join(thought["thinking"] for thought in thoughts(message))
        sent_parts.append(_signed({"text": thought, "thought": True}, signed["thought"]))
    texts = [part["text"] for part in parts(message) if part["type"] == "text"]
    sent_parts += [{"text": text} for text in texts[:-1]]
    if texts:
        sent_parts.append(_signed({"text": texts[-1]}, signed.get("text", "")))
    if "end" in signed:
        sent_parts.append(_signed({"text": ""}, signed["end"]))
    for number, call in enumerate(message.tool_calls):
        missing = _UNSIGNED if number == 0 and not early else ""
        sent_parts.append(_signed(_called(call), signed.get(f"call {number}", missing)))
    return sent_parts


def _called(call: ToolCall) -> dict[str, Any]:
    return {"functionCall": {**_id(call.id), "name": call.name, "args": dict(call.arguments)}}


def _id(call_id: str) -> dict[str, str]:
    return {} if is_made_up(call_id) else {"id": call_id}


def _signed(part: dict[str, Any], signature: str) -> dict[str, Any]:
    return {**part, "thoughtSignature": signature} if signature else part


def _signatures(message: Message) -> dict[str, str]:
    """The part of the answer → its signature; signatures of other providers are ignored."""
    signatures: dict[str, str] = {}
    for thought in thoughts(message):
        signature = thought.get("signature", "")
        if isinstance(signature, str) and signature.startswith(SIGNED):
            with suppress(*UNREADABLE):  # an edited transcript may hold anything
                signatures.update(msgspec.json.decode(signature.removeprefix(SIGNED), type=dict[str, str]))
    return signatures


def _add_results(contents: list[dict[str, Any]], results: tuple[ToolResult, ...], *, early: bool) -> None:
    """The results of one turn of calls; images go inside them where the model can, else right after them."""
    answers: list[dict[str, Any]] = []
    apart: list[dict[str, Any]] = []
    for result in results:
        given = output_parts(result)
        text = "\n".join(part["text"] for part in given if part["type"] == "text")
        answer: dict[str, Any] = {
            **_id(result.id),
            "name": result.name,
            "response": {"error" if result.is_error else "output": text},
        }
        images = [_image(part) for part in given if part["type"] == "image"]
        if images and early:
            apart += images
        elif images:
            answer["parts"] = images
        answers.append({"functionResponse": answer})
    if not answers:
        return
    if contents and contents[-1]["role"] == "user" and _answers(contents[-1]):
        contents[-1]["parts"] += answers
    else:
        contents.append({"role": "user", "parts": answers})
    if apart:
        contents.append({"role": "user", "parts": apart})
