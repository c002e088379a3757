"""What a program writes to `sage -p --input-format stream-json`: one JSON object a line.

    {"type": "user", "text": "fix the test"}              a message; it waits while a turn is under way
    {"type": "interrupt"}                                 stop the turn that is under way
    {"type": "answer", "id": "…", "decision": "allow"}    answer a question; its `interrupt` line has the id

An answer has a `decision` (allow, always, deny, never), a `text`, or both, and may have changed `arguments` of a call.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from lyra.errors import ConfigError


class UserRequest(msgspec.Struct, tag_field="type", tag="user", forbid_unknown_fields=True):
    text: str


class InterruptRequest(msgspec.Struct, tag_field="type", tag="interrupt", forbid_unknown_fields=True):
    pass


class AnswerRequest(msgspec.Struct, tag_field="type", tag="answer", forbid_unknown_fields=True):
    id: str
    decision: str = ""
    text: str = ""
    arguments: dict[str, Any] | None = None


PrintRequest: TypeAlias = UserRequest | InterruptRequest | AnswerRequest
_decoder: Final[msgspec.json.Decoder[PrintRequest]] = msgspec.json.Decoder(
    UserRequest | InterruptRequest | AnswerRequest
)
_HINT: Final = (
    'write {"type": "user", "text": "…"}, {"type": "interrupt"} or {"type": "answer", "id": "…", "decision": "…"}'
)


def read_request(line: bytes) -> PrintRequest:
    """The request of one line; ConfigError says what is wrong with it."""
    try:
        request = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"a line of the input is no request: {error}", hint=_HINT, key="input") from None
    if isinstance(request, UserRequest) and not request.text.strip():
        raise ConfigError("the text of a message is empty", hint=_HINT, key="input")
    return request
