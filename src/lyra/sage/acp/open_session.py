"""OpenSession: one session that an editor has open: its LiveSession, its MCP servers, the prompt that is under way.

`prompt` sends a message and tells the editor what happens; questions of the agent become permission requests. A slash
command runs and its result is told as text. One prompt at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Final

from acp import RequestError, helpers, schema

from lyra.errors import ConfigError, LyraError
from lyra.sage.acp.editor_files import EditorFiles
from lyra.sage.acp.prompt import EditorPrompt
from lyra.sage.acp.updates import call_title, diff_of, ended, kind_of, message_updates, plan_of, shown_text, started
from lyra.sage.agent.live import LiveSession
from lyra.sage.commands.registry import command_list, run_command
from lyra.sage.commands.result import plain_text

__all__ = ["OpenSession"]

_STOP_REASONS: Final[dict[str, schema.StopReason]] = {
    "success": "end_turn",
    "interrupted": "cancelled",
    "max_turns": "max_turn_requests",
    "max_iterations": "max_turn_requests",
    "max_tokens": "max_tokens",
    "content_filter": "refusal",
}
_DECISIONS: Final[dict[str, tuple[str, schema.PermissionOptionKind]]] = {
    "allow": ("Allow once", "allow_once"),
    "always": ("Always allow", "allow_always"),
    "deny": ("No", "reject_once"),
    "never": ("Never", "reject_always"),
}


class OpenSession:
    """`client` is the editor's side of the connection."""

    def __init__(self, client: Any, live: LiveSession, stack: contextlib.AsyncExitStack, files: EditorFiles) -> None:
        self._client = client
        self.live = live
        self._stack = stack
        self._diffs: set[str] = set()  # calls whose content is a diff
        self._title = live.record.label
        self._is_cancelled = False
        files.session_id = live.id

    async def close(self) -> None:
        if self.live.is_busy:
            await self.live.interrupt()
        await self._stack.aclose()

    # ------------------------------------------------------------------ telling

    async def _tell(self, update: Any) -> None:
        await self._client.session_update(session_id=self.live.id, update=update)

    async def tell_commands(self) -> None:
        commands = [
            schema.AvailableCommand(
                name=name,
                description=shown_text(about) or name,
                input=schema.AvailableCommandInput(root=schema.UnstructuredCommandInput(hint="arguments")),
            )
            for name, about in command_list(self.live)
        ]
        await self._tell(helpers.update_available_commands(commands))

    async def replay(self) -> None:
        """Tell the conversation so far, and what the last run left in doubt."""
        for update in message_updates(self.live.messages, self.live.folder):
            await self._tell(update)
        for doubt in self.live.doubts:
            await self._tell(helpers.update_agent_message_text(shown_text(f"In doubt: {doubt}")))

    # ------------------------------------------------------------------ prompts

    async def prompt(self, prompt: EditorPrompt) -> schema.PromptResponse:
        if self.live.is_busy:
            raise RequestError.invalid_request({"reason": "a prompt is under way in this session"})
        self._is_cancelled = False
        content, more = prompt.content, {"beside": prompt.beside}
        if prompt.text.startswith("/"):
            result = await self._command(prompt.text)
            if result.prompt is None:
                return schema.PromptResponse(stop_reason="end_turn")
            content, more = result.prompt, result.send_with
        last: dict[str, Any] = {}
        try:
            async with contextlib.aclosing(self.live.send(content, **more)) as lines:
                async for line in lines:
                    last = line
                    await self._line(line)
        except LyraError as error:
            raise RequestError.internal_error({"reason": shown_text(error.message)}) from None
        await self._tell_figures()
        return self._response(last)

    def _response(self, result: dict[str, Any]) -> schema.PromptResponse:
        status = "interrupted" if self._is_cancelled else result["status"]
        reason = _STOP_REASONS.get(status)
        if reason is None:
            failure = self.live.headless.failure
            message = failure.message if failure is not None else f"the turn ended with {status}"
            raise RequestError.internal_error({"reason": shown_text(message), "status": status})
        if result.get("cut_off"):
            reason = "max_tokens"
        return schema.PromptResponse(stop_reason=reason)

    async def cancel(self) -> None:
        self._is_cancelled = self.live.is_busy
        await self.live.interrupt()

    async def _command(self, text: str) -> Any:
        try:
            result = await run_command(self.live, text)
        except LyraError as error:
            message = f"{error.message}\n{error.hint}" if error.hint else error.message
            raise RequestError.invalid_params({"reason": shown_text(message)}) from None
        told = plain_text(result.blocks)
        if result.open_session:
            told = f"{told}\nOpen the session {result.open_session} from the list of the editor.".strip()
        if told:
            await self._tell(helpers.update_agent_message_text(shown_text(told)))
        return result

    async def _line(self, line: dict[str, Any]) -> None:
        kind = line["type"]
        if kind == "text_delta":
            await self._tell(helpers.update_agent_message_text(shown_text(line["delta"])))
        elif kind == "thinking_delta":
            await self._tell(helpers.update_agent_thought_text(shown_text(line["delta"])))
        elif kind == "tool_start":
            await self._started(line)
        elif kind == "tool_progress":
            block = helpers.tool_content(helpers.text_block(shown_text(line["text"])))
            if line["id"] not in self._diffs:
                await self._tell(helpers.update_tool_call(line["id"], status="in_progress", content=[block]))
        elif kind == "tool_end":
            await self._tell(ended(line, keep_diff=line["id"] in self._diffs))
        elif kind == "interrupt":
            await self._ask(line)

    async def _started(self, line: dict[str, Any]) -> None:
        update = started(line, self.live.folder)
        if update.content:
            self._diffs.add(line["id"])
        await self._tell(update)
        plan = plan_of(line["arguments"]) if line["name"] == "TodoWrite" else None
        if plan is not None:
            await self._tell(plan)

    async def _tell_figures(self) -> None:
        context = self.live.context()
        size = context.get("window")
        if isinstance(size, int) and size > 0:
            cost = self.live.process.metrics.cost_usd
            priced = None if cost is None else schema.Cost(amount=cost, currency="USD")
            used = int(context["total"])
            await self._tell(schema.UsageUpdate(session_update="usage_update", used=used, size=size, cost=priced))
        if self.live.record.label != self._title:
            self._title = self.live.record.label
            await self._tell(schema.SessionInfoUpdate(session_update="session_info_update", title=self._title))

    # ------------------------------------------------------------------ questions

    async def _ask(self, line: dict[str, Any]) -> None:
        if "tool" in line:
            await self._ask_permission(line)
        else:
            await self._ask_in_words(line)

    async def _ask_permission(self, line: dict[str, Any]) -> None:
        tool, arguments = line["tool"], line["arguments"]
        names = {word: name for word, (name, _) in _DECISIONS.items()}
        if line.get("always"):
            names["always"] = f"Always allow {shown_text(line['always'])}"
        else:
            del names["always"], names["never"]
        call = schema.ToolCallUpdate(
            tool_call_id=line["call_id"],
            title=call_title(tool, arguments),
            kind=kind_of(tool),
            status="pending",
            content=diff_of(tool, arguments, self.live.folder) or None,
            raw_input=arguments,
        )
        decision = await self._chosen(call, names)
        await self._answer(line["id"], decision or "deny")

    async def _ask_in_words(self, line: dict[str, Any]) -> None:
        """A question with a few answers; the editor shows them as options."""
        words = _answers_of(line)
        about: list[Any] | None = (
            [helpers.tool_content(helpers.text_block(shown_text(line["message"])))] if line["message"] else None
        )
        call = schema.ToolCallUpdate(
            tool_call_id=f"question-{line['id']}",
            title=shown_text(line["question"])[:500],
            kind="think",
            status="pending",
            content=about,
        )
        await self._tell(helpers.start_tool_call(call.tool_call_id, call.title or "", kind="think", status="pending"))
        chosen = await self._chosen(call, {word: shown_text(word) for word in words})
        await self._tell(helpers.update_tool_call(call.tool_call_id, status="completed" if chosen else "failed"))
        if chosen and line["kind"] == "clarification":
            await self._answer(line["id"], "", text=chosen)
        else:
            await self._answer(line["id"], chosen or "deny")

    async def _chosen(self, call: schema.ToolCallUpdate, names: dict[str, str]) -> str:
        """The word that the user chose; empty where the editor was cancelled."""
        options = [
            schema.PermissionOption(option_id=word, name=name, kind=_DECISIONS.get(word, ("", "allow_once"))[1])
            for word, name in names.items()
        ]
        try:
            response = await self._client.request_permission(session_id=self.live.id, tool_call=call, options=options)
        except RequestError:
            return ""
        outcome = response.outcome
        chosen = getattr(outcome, "option_id", "") if outcome.outcome == "selected" else ""
        return chosen if chosen in names else ""

    async def _answer(self, interrupt_id: str, decision: str, *, text: str = "") -> None:
        with contextlib.suppress(LyraError):  # the turn was cancelled meanwhile
            await self.live.answer(interrupt_id, decision, text=text)

    # ------------------------------------------------------------------ settings

    async def set_mode(self, mode: str) -> None:
        try:
            await self.live.set_mode(mode)
        except ConfigError as error:
            raise RequestError.invalid_params({"reason": error.message}) from None
        await self._tell(helpers.update_current_mode(mode))


def _answers_of(line: dict[str, Any]) -> Sequence[str]:
    """The answers that a question offers, by its kind; a free text cannot be typed into an option."""
    options = line.get("options")
    if isinstance(options, list) and options:
        return [str(option) for option in options]
    if line["kind"] == "effect_in_doubt" or "retry" in str(line["message"]):
        return ("retry", "skip", "fail")
    return ("yes", "no")
