"""Google's Gemini API: the address, the key, request bodies, and the reader of its streams, which Vertex uses too.

`streamGenerateContent` sends chunks as server-sent events. Calls of tools come whole and often without an id, which is
then made up. An answer is whole when its bytes have ended and a chunk gave its `finishReason`, which need not be the
last one; a prompt that is blocked is a ModelError of kind `content_filter`. Signatures of thoughts are collected and
sent at the end in the form that the next request reads.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote

import msgspec

from lyra.core.message import Message
from lyra.core.tool import Tool, ToolCall, ToolResult
from lyra.errors import ModelError
from lyra.models.conversation_parts import (
    WebSources,
    first_call_number,
    is_made_up,
    output_parts,
    parts,
    schema_in_words,
    system_text,
    thoughts,
)
from lyra.models.provider import Request
from lyra.models.stream import Finished, Started, StreamEvent, TextDelta, ThinkingDelta, TokenUsage, UsageSeen
from lyra.models.toolcalls import ToolCalls
from lyra.models.wire.faults import UNREADABLE, answer_malformed, fault, from_status, stream_truncated, unknown_stop
from lyra.models.wire.remote import RemoteProvider, image_url, piece
from lyra.models.wire.sse import ServerEvent, ServerEventReader

# ---------------------------------------------------------------- what goes out
SIGNED: Final = "gemini:"
_MODES: Final[dict[str, str]] = {"auto": "AUTO", "any": "ANY", "none": "NONE"}
_LEVELS: Final = ((4_096, "low"), (16_384, "medium"))  # models from 3 on: fewer thinking tokens than this
_THINKING_LEAST: Final = 512  # the highest of the models' own least budgets
_UNSIGNED: Final = "skip_thought_signature_validator"  # Google's value for calls that another model made


def gemini_body(request: Request) -> dict[str, Any]:
    early = _is_early(request.model)
    in_words = bool(request.output_schema and request.tools and early)
    system = [system_text(request), schema_in_words(request) if in_words else ""]
    body: dict[str, Any] = {"contents": _contents(request, early=early)}
    if any(system):
        body["systemInstruction"] = {"parts": [{"text": text} for text in system if text]}
    if request.web_search:
        body["tools"] = [{"googleSearch": {}}]
    elif request.tools:
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
    if request.thinking_tokens and not _is_early(request.model):
        level = next((word for most, word in _LEVELS if request.thinking_tokens < most), "high")
        config["thinkingConfig"] = {"thinkingLevel": level, "includeThoughts": True}
    elif (thinking := _thinking_budget(request)) is not None:
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
    """Return whether a turn holds results of calls. They stand alone: as many as calls, and no other parts."""
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
        sent_parts.append(_add_signature({"text": thought, "thought": True}, signed["thought"]))
    texts = [part["text"] for part in parts(message) if part["type"] == "text"]
    sent_parts += [{"text": text} for text in texts[:-1]]
    if texts:
        sent_parts.append(_add_signature({"text": texts[-1]}, signed.get("text", "")))
    if "end" in signed:
        sent_parts.append(_add_signature({"text": ""}, signed["end"]))
    for number, call in enumerate(message.tool_calls):
        missing = _UNSIGNED if number == 0 and not early else ""
        sent_parts.append(_add_signature(_encode_call(call), signed.get(f"call {number}", missing)))
    return sent_parts


def _encode_call(call: ToolCall) -> dict[str, Any]:
    return {"functionCall": {**_id(call.id), "name": call.name, "args": dict(call.arguments)}}


def _id(call_id: str) -> dict[str, str]:
    return {} if is_made_up(call_id) else {"id": call_id}


def _add_signature(part: dict[str, Any], signature: str) -> dict[str, Any]:
    return {**part, "thoughtSignature": signature} if signature else part


def _signatures(message: Message) -> dict[str, str]:
    """Return the part of the answer → its signature; signatures of other providers are ignored."""
    signatures: dict[str, str] = {}
    for thought in thoughts(message):
        signature = thought.get("signature", "")
        if isinstance(signature, str) and signature.startswith(SIGNED):
            with suppress(*UNREADABLE):  # an edited transcript may hold anything
                signatures.update(msgspec.json.decode(signature.removeprefix(SIGNED), type=dict[str, str]))
    return signatures


def _add_results(contents: list[dict[str, Any]], results: tuple[ToolResult, ...], *, early: bool) -> None:
    """Add the results of one turn of calls; images go inside them where the model can, else right after them."""
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


BASE_URL: Final = "https://generativelanguage.googleapis.com"

_STOPS: Final[dict[str, str]] = {
    "STOP": "end",
    "MAX_TOKENS": "max_tokens",
    "FUNCTION_CALL": "end",  # of servers that speak Google's format
    "CONTINUATION": "pause",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "LANGUAGE": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "OTHER": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
    "IMAGE_OTHER": "content_filter",
    "NO_IMAGE": "content_filter",
    "MALFORMED_FUNCTION_CALL": "broken_call",
    "UNEXPECTED_TOOL_CALL": "broken_call",
}
# The model wrote an invalid answer: the request is retried.
_BROKEN: Final = ("TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE")


class _Camel(msgspec.Struct, rename="camel", gc=False):
    pass


class _FunctionCall(_Camel, gc=False):
    name: str = ""
    args: Any = None
    id: str | None = None
    partial_args: Any = None
    will_continue: bool | None = None


class _Part(_Camel, gc=False):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: _FunctionCall | None = None


class _Content(_Camel, gc=False):
    parts: tuple[_Part, ...] | None = None


class _Page(_Camel, gc=False):
    uri: str | None = None
    title: str | None = None


class _GroundingChunk(_Camel, gc=False):
    web: _Page | None = None


class _Grounding(_Camel, gc=False):
    grounding_chunks: tuple[_GroundingChunk, ...] | None = None


class _Candidate(_Camel, gc=False):
    content: _Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    grounding_metadata: _Grounding | None = None
    index: int | None = None


class _Counts(_Camel, gc=False):
    prompt_token_count: float | None = None
    candidates_token_count: float | None = None
    cached_content_token_count: float | None = None
    thoughts_token_count: float | None = None
    tool_use_prompt_token_count: float | None = None


class _Feedback(_Camel, gc=False):
    block_reason: str | None = None
    block_reason_message: str | None = None


class _Chunk(_Camel, gc=False):
    candidates: tuple[_Candidate, ...] | None = None
    usage_metadata: _Counts | None = None
    prompt_feedback: _Feedback | None = None
    model_version: str | None = None
    response_id: str | None = None
    error: dict[str, Any] | None = None


_CHUNK: Final = msgspec.json.Decoder(_Chunk)


class GeminiReader(ServerEventReader):
    """Turns the bytes of one answer into events; `close` when they have ended."""

    __slots__ = ("_broken", "_calls", "_counted", "_signatures", "_sources", "_started", "_stop")

    def __init__(self, first_call: int = 0) -> None:
        super().__init__()
        self._calls = ToolCalls(first_call)
        self._signatures: dict[str, str] = {}
        self._sources = WebSources()
        self._counted: _Counts | None = None
        self._started = False
        self._stop = ""
        self._broken: ModelError | None = None

    @property
    def settled(self) -> bool:
        return bool(self._stop) and self._counted is not None

    def _end(self, events: list[StreamEvent]) -> None:
        if not self._stop:
            raise stream_truncated("the answer ended without a finish reason")
        stop = _STOPS.get(self._stop)
        if stop is None:
            raise unknown_stop(self._stop)
        self.done = True
        events += self._sources.events()
        if self._signatures:
            events.append(ThinkingDelta("", SIGNED + msgspec.json.encode(self._signatures).decode()))
        events.append(Finished("tool_calls" if stop == "end" and self._calls.seen else stop))

    def _read(self, sent: list[ServerEvent], events: list[StreamEvent]) -> None:
        for server_event in sent:
            self._chunk(piece(_CHUNK, server_event.data), events)

    def _chunk(self, chunk: _Chunk, events: list[StreamEvent]) -> None:
        if chunk.error is not None:
            raise _stream_error(chunk.error)
        if not self._started:
            self._started = True
            events.append(Started(chunk.response_id or "", chunk.model_version or ""))
        for candidate in chunk.candidates or ():
            if not candidate.index:  # only the first candidate: no others are requested
                self._candidate(candidate, events)
        counts = chunk.usage_metadata
        if counts is not None and counts != self._counted:
            self._counted = counts
            events.append(UsageSeen(_usage(counts)))
        feedback = chunk.prompt_feedback
        if feedback is not None and feedback.block_reason and not chunk.candidates:
            message = feedback.block_reason_message or f"the prompt is blocked: {feedback.block_reason}"
            raise fault("content_filter", message, provider_code=feedback.block_reason)
        if self._broken is not None:  # raised after the token counts of the same chunk
            raise self._broken

    def _candidate(self, candidate: _Candidate, events: list[StreamEvent]) -> None:
        content, reason = candidate.content, candidate.finish_reason
        if content is not None:
            for part in content.parts or ():
                self._part(part, events)
        for chunk in candidate.grounding_metadata.grounding_chunks or () if candidate.grounding_metadata else ():
            if chunk.web is not None:
                self._sources.add(chunk.web.uri, chunk.web.title)
        if reason is None:
            return
        if reason in _BROKEN:
            message = candidate.finish_message or f"the model's answer is no answer: {reason}"
            self._broken = answer_malformed(message, provider_code=reason)
        self._stop = reason

    def _part(self, part: _Part, events: list[StreamEvent]) -> None:
        call, place = part.function_call, "text" if part.text else "end"
        if call is not None:
            if call.partial_args is not None or call.will_continue:
                raise answer_malformed(
                    f"a call to {call.name!r} came in pieces that were not asked for", tool=call.name
                )
            place = f"call {self._calls.seen}"
            events += self._calls.add_whole(call.id or "", call.name, {} if call.args is None else call.args)
        elif part.thought:
            place = "thought"
            if part.text:
                events.append(ThinkingDelta(part.text))
        elif part.text:
            events.append(TextDelta(part.text))
        if part.thought_signature:
            self._signatures[place] = part.thought_signature


def _usage(counts: _Counts) -> TokenUsage:
    """Google counts thoughts separately from the answer, and cached tokens within the prompt."""
    thought = int(counts.thoughts_token_count or 0)
    return TokenUsage(
        input_tokens=int((counts.prompt_token_count or 0) + (counts.tool_use_prompt_token_count or 0)),
        output_tokens=int(counts.candidates_token_count or 0) + thought,
        cache_read_tokens=int(counts.cached_content_token_count or 0),
        reasoning_tokens=thought,
    )


def _stream_error(error: Mapping[str, Any]) -> ModelError:
    """Return the ModelError of an error in the middle of a stream."""
    status = error.get("code")
    code, message = _sentence(0, {"error": error})
    return from_status(
        status if isinstance(status, int) else 500,
        message or "the provider broke the answer off",
        code=code,
        retry_after_s=_delay({"error": error}),
    )


def _sentence(_status: int, data: Any) -> tuple[str, str]:
    """(code, sentence) of Google's errors; the reason is more precise than the status (a wrong key is
    INVALID_ARGUMENT)."""
    error = _error(data)
    reasons = [detail.get("reason") for detail in _details(error)]
    code = next((reason for reason in reasons if isinstance(reason, str)), error.get("status"))
    message = error.get("message")
    return code if isinstance(code, str) else "", message if isinstance(message, str) else ""


def _delay(data: Any) -> float | None:
    """Seconds of the RetryInfo among the details (`"34.5s"`)."""
    for detail in _details(_error(data)):
        text = detail.get("retryDelay")
        if isinstance(text, str) and text.endswith("s"):
            try:
                seconds = float(text[:-1])
            except ValueError:
                continue
            if 0.0 <= seconds < 1e9:
                return seconds
    return None


def _error(data: Any) -> Mapping[str, Any]:
    document = data[0] if isinstance(data, list) and data else data
    error = document.get("error") if isinstance(document, Mapping) else None
    return error if isinstance(error, Mapping) else {}


def _details(error: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    details = error.get("details")
    return [detail for detail in details if isinstance(detail, Mapping)] if isinstance(details, list) else []


class Gemini(RemoteProvider):
    """The Gemini API; the key goes in a header, never into the URL."""

    settle_s = 5.0
    searches_web = True

    def url(self, request: Request) -> str:
        return f"{self.models()}/{quote(request.model, safe='')}:streamGenerateContent?alt=sse"

    def models(self) -> str:
        """Return the address that a model's name is appended to."""
        return f"{self.settings.base_url or BASE_URL}/{self.settings.api_version or 'v1beta'}/models"

    def headers(self, request: Request) -> dict[str, str]:
        return {"x-goog-api-key": self.settings.key()}

    def body(self, request: Request) -> dict[str, Any]:
        return gemini_body(request)

    def reader(self, request: Request) -> GeminiReader:
        return GeminiReader(first_call_number(request))

    def sentence(self, status: int, data: Any) -> tuple[str, str]:
        return _sentence(status, data)

    def delay(self, data: Any) -> float | None:
        return _delay(data)
