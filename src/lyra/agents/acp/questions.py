"""EditorQuestions: questions of a session's agents, put to the editor as permission requests.

A call that needs a permission, a choice of AskUser, an effect in doubt: each becomes options that the user picks from.
Questions of sub-agents in the background are asked as well, between prompts too; one that the editor leaves open stays
open, and `/tasks answer` answers it. An answer that is not clearly a yes is a no.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from acp import RequestError, helpers, schema

from lyra.agents.acp.updates import call_title, diff_of, kind_of, render_text
from lyra.agents.session.events import QuestionLine
from lyra.errors import LyraError

_DECISIONS: Final[dict[str, tuple[str, schema.PermissionOptionKind]]] = {
    "allow": ("Allow once", "allow_once"),
    "always": ("Always allow", "allow_always"),
    "deny": ("No", "reject_once"),
    "never": ("Never", "reject_always"),
}
_DOUBT: Final = {"retry": "Do it again", "skip": "It was done, go on", "fail": "Stop here"}
_WIDER: Final = "always: "  # before the rule that the answer becomes
_LATER: Final = "later"
_FREE: Final = {"yes": "Yes", "no": "No", _LATER: "I answer in my next prompt"}
_TEXTS: Final = {  # what the agent is told for an option that is no answer by itself
    _LATER: "The user answers in the next message: end your turn here, with the question.",
    "": "The user gave no answer.",
}
_OPTION: Final = re.compile(r"(?P<number>\d{1,2})\. (?P<words>.+)")
# The end of the message of a question about a call, which names the rule that an answer for good would add.
_RULE: Final = re.compile(r"\balways(?: or never)? for (?P<rule>.+?)(?: and never for .*)?\.\Z", re.DOTALL)
_NOT_YET: Final = ("change", "keep")  # words of a choice by which nothing is done
_TITLE_CHARS_MAX: Final = 500


class AskingSession(Protocol):
    """A session whose questions are put to the editor: the id that the editor knows, its folder, and who takes the
    answers."""

    @property
    def id(self) -> str: ...

    @property
    def folder(self) -> str: ...

    async def answer(self, interrupt_id: str, decision: str = "", *, text: str = "") -> None: ...


class EditorQuestions:
    """`tell` sends an update about this session to the editor, `client` is its side of the connection."""

    def __init__(self, client: Any, session: AskingSession, tell: Callable[[Any], Awaitable[None]]) -> None:
        self._client = client
        self._session = session
        self._tell = tell
        self._choices = 0  # that were asked for
        self._requests: set[asyncio.Task[Any]] = set()  # those of prompts that wait for the editor's answer

    def withdraw(self) -> None:
        """Wait no longer for the editor's answers to what the prompt asks: it was cancelled. An editor should answer
        them with `cancelled`; one that does not must not hold the end of the prompt up."""
        for request in self._requests:
            request.cancel()

    async def ask(self, line: QuestionLine) -> bool:
        """Put the question of an `interrupt` line to the editor, and its answer to the session. False where the editor
        gave none, and the question is of a task in the background: it stays open."""
        is_call = "tool" in line
        names = _names_of(line)
        call = _about_call(line, self._session.folder) if is_call else _about_words(line)
        if not is_call:
            await self._tell(
                helpers.start_tool_call(call.tool_call_id, call.title or "", kind="think", status="pending")
            )
        chosen = await self._ask_choice(call, names, may_be_withdrawn=not line.get("background"))
        if not is_call:
            await self._tell(helpers.update_tool_call(call.tool_call_id, status="completed" if chosen else "failed"))
        if not chosen and line.get("background"):
            return False
        await self._answer(line, chosen)
        return True

    async def choose(self, title: str, names: dict[str, str]) -> str:
        """Have the user choose one of these words, by their names; empty where none was chosen."""
        self._choices += 1
        call_id = f"choice-{self._choices}"
        await self._tell(helpers.start_tool_call(call_id, title, kind="think", status="pending"))
        call = schema.ToolCallUpdate(tool_call_id=call_id, title=title, kind="think", status="pending")
        chosen = await self._ask_choice(call, names, may_be_withdrawn=True)
        await self._tell(helpers.update_tool_call(call_id, status="completed" if chosen else "failed"))
        return chosen

    async def _ask_choice(self, call: schema.ToolCallUpdate, names: dict[str, str], *, may_be_withdrawn: bool) -> str:
        """Return the word that the user chose; empty where the question was cancelled or withdrawn."""
        options = [
            schema.PermissionOption(option_id=word, name=name, kind=_kind_of(word)) for word, name in names.items()
        ]
        try:
            async with asyncio.TaskGroup() as group:
                request = group.create_task(self._request(call, options))
                if may_be_withdrawn:
                    self._requests.add(request)
                    request.add_done_callback(self._requests.discard)
        except* RequestError:
            pass
        if request.cancelled() or request.exception() is not None:
            return ""
        outcome = request.result().outcome
        chosen = getattr(outcome, "option_id", "") if outcome.outcome == "selected" else ""
        return chosen if chosen in names else ""

    async def _request(self, call: schema.ToolCallUpdate, options: list[schema.PermissionOption]) -> Any:
        return await self._client.request_permission(session_id=self._session.id, tool_call=call, options=options)

    async def _answer(self, line: QuestionLine, chosen: str) -> None:
        with contextlib.suppress(LyraError):  # the turn was cancelled meanwhile
            if line["kind"] == "clarification":
                await self._session.answer(line["id"], "", text=_TEXTS.get(chosen, chosen))
            elif chosen.startswith(_WIDER):
                await self._session.answer(line["id"], "always", text=chosen.removeprefix(_WIDER))
            else:
                await self._session.answer(line["id"], chosen or ("fail" if line["kind"] == "in_doubt" else "deny"))


def _kind_of(word: str) -> schema.PermissionOptionKind:
    if word in _NOT_YET:
        return "reject_once"
    return "allow_always" if word.startswith(_WIDER) else _DECISIONS.get(word, ("", "allow_once"))[1]


def _names_of(line: QuestionLine) -> dict[str, str]:
    """Return the answers that a question offers, by its kind; a free text cannot be typed into an option."""
    if line["kind"] == "in_doubt":
        return _DOUBT
    if line["kind"] == "confirmation" or "tool" in line:
        names = {word: name for word, (name, _) in _DECISIONS.items()}
        match = _RULE.search(str(line["message"])) if "always" not in line else None
        rule = match["rule"] if match is not None else line.get("always")
        if rule:
            wider = {f"{_WIDER}{text}": f"Always allow {render_text(text)}" for text in line.get("rules", ())[1:]}
            noes = {word: names[word] for word in ("deny", "never")}
            return {"allow": names["allow"], "always": f"Always allow {render_text(rule)}", **wider, **noes}
        return {word: name for word, name in names.items() if word in ("allow", "deny")}
    options = [_OPTION.fullmatch(row) for row in str(line["message"]).split("\n")]
    listed = {option["number"]: render_text(option["words"]) for option in options if option is not None}
    return {**listed, _LATER: _FREE[_LATER]} if listed else _FREE


def _about_call(line: QuestionLine, folder: str) -> schema.ToolCallUpdate:
    tool, arguments = line["tool"], line["arguments"]
    return schema.ToolCallUpdate(
        tool_call_id=line["call_id"],
        title=call_title(tool, arguments),
        kind=kind_of(tool),
        status="pending",
        content=diff_of(tool, arguments, folder) or None,
        raw_input=arguments,
    )


def _about_words(line: QuestionLine) -> schema.ToolCallUpdate:
    message = str(line["message"])
    return schema.ToolCallUpdate(
        tool_call_id=f"question-{line['id']}",
        title=render_text(line["question"])[:_TITLE_CHARS_MAX],
        kind="think",
        status="pending",
        content=[helpers.tool_content(helpers.text_block(render_text(message)))] if message else None,
    )
