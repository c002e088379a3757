"""What a call's record leaves out, for an exporter that asks: the settings of the request, ids, and the content.

Content is only made where the exporter wants it, which its user has to ask for. Known keys, and texts in the form of a
key, are masked in it, and long texts are cut. Read by `lyra.observe.otel`, which finds these as a part of the kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lyra.core.secrets.redact import redact_data

if TYPE_CHECKING:
    from lyra.agents.session.model_call import ModelCall
    from lyra.agents.session.shared import AgentRuntime
    from lyra.core.message import Message
    from lyra.core.tool import ToolCall, ToolResult
    from lyra.models.stream import Completion


_PART: Final = "call_details"
_TEXT_CHARS_MAX: Final = 20_000  # of one text
_MESSAGES_MAX: Final = 100  # the last ones of a conversation


def tell_model_call(runtime: AgentRuntime, span_id: str, call: ModelCall, completion: Completion | None) -> None:
    """Give the details of a model call to the exporter of this kernel, if there is one."""
    exporter = runtime.kernel.parts.get(_PART)
    if exporter is None:
        return
    request = call.request
    details: dict[str, Any] = {
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
    }
    if completion is not None:
        details["response_model"] = completion.model or None
        details["response_id"] = completion.id or None
        details["finish_reason"] = completion.stop_reason
    if exporter.wants_content:
        content: dict[str, Any] = {
            "input": [_message(message) for message in request.messages[-_MESSAGES_MAX:]],
            "system": [_text(request.system)] if request.system else [],
        }
        if completion is not None:
            content["output"] = [{**_message(completion.message), "finish_reason": completion.stop_reason}]
        details |= _clean(runtime, content)
    exporter.add(span_id, details)


def tell_tool_call(runtime: AgentRuntime, span_id: str, call: ToolCall, result: ToolResult | None) -> None:
    """Give arguments and result of a tool call to the exporter of this kernel, if it wants content."""
    exporter = runtime.kernel.parts.get(_PART)
    if exporter is None or not exporter.wants_content:
        return
    content: dict[str, Any] = {"arguments": call.arguments}
    if result is not None:
        content["result"] = str(result.output)[:_TEXT_CHARS_MAX]
    exporter.add(span_id, _clean(runtime, content))


def _clean(runtime: AgentRuntime, content: dict[str, Any]) -> dict[str, Any]:
    clean: dict[str, Any] = redact_data(runtime.clean_data(content), ())
    return clean


def _message(message: Message) -> dict[str, Any]:
    """A message as the GenAI conventions write it: a role and parts. Images are named, not shown."""
    parts: list[dict[str, Any]] = [_text(message.text)] if message.text else []
    if not isinstance(message.content, str):
        parts += [{"type": str(part["type"])} for part in message.content if part["type"] != "text"]
    for call in message.tool_calls:
        parts.append({"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments})
    for result in message.tool_results:
        response = str(result.output)[:_TEXT_CHARS_MAX]
        parts.append({"type": "tool_call_response", "id": result.id, "response": response})
    return {"role": message.role, "parts": parts}


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "content": text[:_TEXT_CHARS_MAX]}
