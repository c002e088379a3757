"""The first and last lines of a session: what was in doubt, the last exchange of one that goes on, how to go on."""

from __future__ import annotations

from typing import Any, Final

from lyra.sage.terminal.conversation import Conversation
from lyra.sage.terminal.echo import note_lines, prompt_lines
from lyra.sage.terminal.first_run import welcome_lines
from lyra.sage.terminal.text.markdown_stream import MarkdownStream
from lyra.sage.terminal.text.markdown_view import markdown_lines
from lyra.sage.terminal.text.styled_lines import MARGIN, indented

_ANSWER_BLOCKS_MAX: Final = 12


def show(conversation: Conversation, *, is_first: bool = False) -> None:
    """What a session begins with: the last exchange of one that goes on, a welcome for a user's first."""
    session, sheet = conversation.session, conversation.sheet
    width, facts = sheet.width, conversation.paper.facts
    if is_first and not session.messages:
        sheet.print("welcome", welcome_lines(session, width, plain=facts.plain))
    asked, answered = _last_exchange(session.messages)
    if asked:
        sheet.print("user", prompt_lines(asked, width, facts))
    stream = MarkdownStream()
    blocks = [*stream.feed(answered), *stream.finish()][-_ANSWER_BLOCKS_MAX:] if answered else []
    for block in blocks:
        sheet.print("text", indented(markdown_lines(block, width - MARGIN, colour=facts.colour), MARGIN))
    for doubt in session.doubts:
        sheet.print("note", note_lines(f"in doubt: {doubt}", width, "waits"))


def leave(conversation: Conversation) -> None:
    """The last line: how to come back."""
    session = conversation.session
    if session.messages:
        conversation.note(f"session {session.id}; go on with: sage -c")


def _last_exchange(messages: Any) -> tuple[str, str]:
    """The last words of the user, and the last of the model after them."""
    answered = ""
    for message in reversed(messages):
        text = message.text
        if message.role == "assistant" and not answered:
            answered = text
        elif message.role == "user" and text.strip():
            return text, answered
    return "", answered
