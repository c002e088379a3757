"""A session as a document: Markdown for people, JSON for programs.

Texts of the conversation come from models, tools and files, so nothing in them is trusted: keys are redacted, escape
sequences are shown as codes, code blocks have a fence that their text cannot close, and HTML and images in answers are
escaped, so that opening the document in a viewer loads nothing. Bytes of images are left out. Never reads a store: the
caller hands over the messages.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from lyra.core.message import Message
from lyra.core.secrets.redact import redact, redact_data
from lyra.core.secrets.secret import Secret
from lyra.core.tool import ToolCall, ToolResult
from lyra.sage.session.files.state import visible_lines
from lyra.sage.session.record import SessionRecord, preview

FORMAT: Final = "lyra.session/1"
_SUMMARY_LENGTH: Final = 80
_BACKTICKS: Final = re.compile(r"`+")
_FENCE: Final = re.compile(r"(`{3,}|~{3,})(.*)")
_INDENTED_FENCE: Final = re.compile(r" {1,3}(?:`{3}|~{3})")
_CODE_SPAN: Final = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_MARKUP: Final = re.compile(r"<(?=[A-Za-z/!?])|(?<=!)\[")


# ------------------------------------------------------------ JSON
def to_json(record: SessionRecord, messages: Iterable[Message], *, secrets: Sequence[str | Secret] = ()) -> str:
    """Return the record and all messages as one JSON object, indented; line ends and tabs stay, other controls are
    codes."""
    data = {
        "format": FORMAT,
        "session": msgspec.structs.asdict(record),
        "messages": [_without_bytes(message.to_data()) for message in messages],
    }
    clean = _visible_data(redact_data(msgspec.to_builtins(data), secrets))
    return msgspec.json.format(msgspec.json.encode(clean), indent=2).decode() + "\n"


def _without_bytes(value: Any) -> Any:
    """Plain data in which the data of images is replaced by its length."""
    if isinstance(value, Mapping):
        if value.get("type") == "image" and isinstance(value.get("data"), str):
            return {**value, "data": f"{len(value['data'])} characters left out"}
        return {key: _without_bytes(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_bytes(item) for item in value]
    return value


def _visible_data(value: Any) -> Any:
    if isinstance(value, str):
        return visible_lines(value)
    if isinstance(value, dict):
        return {_visible_data(key): _visible_data(item) for key, item in value.items()}
    return [_visible_data(item) for item in value] if isinstance(value, list) else value


# ------------------------------------------------------------ Markdown
def to_markdown(record: SessionRecord, messages: Iterable[Message], *, secrets: Sequence[str | Secret] = ()) -> str:
    """Return the conversation: prompts, answers, tool calls with their output folded."""
    writer = _MarkdownWriter(tuple(secrets))
    return "\n\n".join(block for block in (*writer.head(record), *writer.conversation(messages)) if block) + "\n"


class _MarkdownWriter:
    __slots__ = ("_secrets", "_turn")

    def __init__(self, secrets: tuple[str | Secret, ...]) -> None:
        self._secrets = secrets
        self._turn = 0

    def head(self, record: SessionRecord) -> Iterator[str]:
        yield f"# {self._line(record.label, 200)}"
        cost = "?" if record.cost_usd is None else f"${record.cost_usd:.4f}"
        facts = {
            "Session": record.id,
            "Folder": record.folder,
            "Model": record.model,
            "Began": _time(record.created_at),
            "Last used": _time(record.updated_at),
            "Turns": str(record.turns),
            "Cost": cost,
            "Forked from": record.parent,
        }
        yield "\n".join(f"- {name}: {self._line(value, 1_000)}" for name, value in facts.items() if value)

    def conversation(self, messages: Iterable[Message]) -> Iterator[str]:
        results: dict[str, ToolResult] = {}
        history = list(messages)
        for message in history:
            results.update({result.id: result for result in message.tool_results})
        for message in history:
            if message.role == "user":
                self._turn += 1
                yield f"## Turn {self._turn}"
                yield self._fence(message.text) if message.text else ""
                yield from self._images(message)
            elif message.role == "assistant":
                yield from self._answer(message, results)

    def _answer(self, message: Message, results: Mapping[str, ToolResult]) -> Iterator[str]:
        thoughts = [str(part.get("text", "")) for part in _parts(message) if part["type"] == "thinking"]
        if any(thoughts):
            yield self._fold("Thoughts", self._fence("\n".join(thoughts)))
        yield _safe_markdown(self._text(message.text))
        yield from self._images(message)
        for call in message.tool_calls:
            yield self._call(call, results.get(call.id))

    def _images(self, message: Message) -> Iterator[str]:
        for part in _parts(message):
            if part["type"] == "image":
                yield f"*(an image, {self._line(str(part.get('media_type') or part.get('url') or 'unknown'), 200)})*"

    def _call(self, call: ToolCall, result: ToolResult | None) -> str:
        arguments = redact_data(msgspec.to_builtins(call.arguments), self._secrets)
        about = next((value for value in arguments.values() if isinstance(value, str)), "")
        blocks = [self._fence(_data_text(arguments), "json")] if arguments else []
        if result is None:
            blocks.append("*(no result)*")
        else:
            output = redact_data(msgspec.to_builtins(_without_bytes(result.output)), self._secrets)
            blocks.append(self._fence(output if isinstance(output, str) else _data_text(output)))
        outcome = " (failed)" if result is not None and result.is_error else ""
        summary = f"{call.name}{outcome} {preview(about, _SUMMARY_LENGTH)}"
        return self._fold(summary, *blocks)

    def _text(self, text: str) -> str:
        return visible_lines(redact(text, self._secrets).replace("\r\n", "\n"))

    def _line(self, text: str, length: int) -> str:
        """Return a text as one line of Markdown without any markup."""
        line = preview(redact(text, self._secrets), length)
        return re.sub(r"([\\`*_\[\]<>#|!])", r"\\\1", line)

    def _fence(self, text: str, language: str = "") -> str:
        """Return a code block whose fence is longer than any in its text."""
        shown = self._text(text).removesuffix("\n")
        fence = "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(shown)), default=0))
        return f"{fence}{language}\n{shown}\n{fence}"

    def _fold(self, summary: str, *blocks: str) -> str:
        head = f"<details>\n<summary>{html.escape(summary.strip())}</summary>"
        return "\n\n".join((head, *blocks, "</details>"))


def _parts(message: Message) -> Sequence[dict[str, Any]]:
    return () if isinstance(message.content, str) else message.content


def _data_text(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(_visible_data(value)), indent=2).decode()


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC") if seconds else ""


def _safe_markdown(text: str) -> str:
    """Markdown in which HTML and images are escaped and no code block continues behind the end."""
    lines = text.strip("\n").split("\n")
    if any(map(_INDENTED_FENCE.match, lines)):
        # Whether such a line begins or ends a code block depends on the lists around it. A quotation ends every block.
        return "\n".join(f"> {_MARKUP.sub(_entity, line)}" for line in lines)
    safe: list[str] = []
    fence = ""
    is_open = False  # a code span may have begun on an earlier line of the paragraph
    for line in lines:
        match = _FENCE.match(line)
        if fence:
            safe.append(line)
            fence = "" if match and match[1].startswith(fence) and not match[2].strip() else fence
        elif match and not (match[1][0] == "`" and "`" in match[2]):
            safe.append(line)
            fence, is_open = match[1], False
        else:
            is_open = is_open and bool(line.strip())
            is_open = is_open or "\\`" in line or "`" in _CODE_SPAN.sub("", line)
            safe.append(_MARKUP.sub(_entity, line) if is_open else _escape(line))
    return "\n".join([*safe, fence] if fence else safe)


def _escape(line: str) -> str:
    """Return the line with markup escaped outside of its code spans."""
    pieces: list[str] = []
    position = 0
    for span in _CODE_SPAN.finditer(line):
        pieces += [_MARKUP.sub(_entity, line[position : span.start()]), span[0]]
        position = span.end()
    return "".join([*pieces, _MARKUP.sub(_entity, line[position:])])


def _entity(match: re.Match[str]) -> str:
    return f"&#{ord(match[0])};"  # a backslash would be undone by another before it
