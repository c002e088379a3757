"""`run_terminal`: a session in this terminal, from its first line to its last. Connects session, conversation, screen.

The prompt is drawn before anything slow happens: the branch, the highlighter and the list of files are read afterwards.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from lyra.agents.session.events import NoticeLine
from lyra.kernel.base.tasks import Tasks
from lyra.sage.agent.live import LiveSession
from lyra.sage.agent.session_notices import SessionNotices
from lyra.sage.terminal import opening
from lyra.sage.terminal.conversation import Conversation, Submission
from lyra.sage.terminal.facts import TerminalFacts
from lyra.sage.terminal.keys import Keyboard, bindings
from lyra.sage.terminal.paper import Paper
from lyra.sage.terminal.plain import PlainScreen
from lyra.sage.terminal.prompt.box import PromptBox
from lyra.sage.terminal.prompt.completion import CommandName, PromptCompleter
from lyra.sage.terminal.prompt.file_names import FileNames
from lyra.sage.terminal.prompt.history import PromptHistory, history_file
from lyra.sage.terminal.screen import LiveScreen
from lyra.sage.terminal.shown_session import ShownSession
from lyra.sage.terminal.status_bar import StatusBar
from lyra.sage.terminal.text.markdown_view import load


async def run_terminal(session: ShownSession, first_task: str | None) -> int:
    """Show a session until the user leaves it; gives the exit code."""
    facts = TerminalFacts.read(sys.stdin, sys.stdout)
    kept = PromptHistory(history_file(), session.without_keys)
    if facts.plain:
        paper = PlainScreen(facts)
        conversation = _conversation(session, paper, first_task, kept)
        await paper.run(conversation, kept)
    else:
        conversation = await _run_live(session, first_task, facts, kept)
    opening.leave(conversation)
    return 0


def _conversation(session: ShownSession, paper: Paper, first_task: str | None, kept: PromptHistory) -> Conversation:
    conversation = Conversation(session, paper)
    session.on_notice.append(conversation.notice)
    if isinstance(session, LiveSession):
        conversation.look = FileNotices(session, conversation.note).look
    conversation.reopened = lambda: opening.show(conversation, is_first=False)
    opening.show(conversation, is_first=not kept.entries and not first_task)
    if first_task:
        conversation.submit(Submission(first_task))
    return conversation


async def _run_live(
    session: ShownSession, first_task: str | None, facts: TerminalFacts, kept: PromptHistory
) -> Conversation:
    screen = LiveScreen(facts)
    conversation = _conversation(session, screen, first_task, kept)
    files = FileNames(session.folder, conversation.clock)
    box = PromptBox(kept, PromptCompleter(files, lambda: command_names(session)), facts.marks, screen.style)
    bar = StatusBar(session, screen, conversation)
    conversation.refresh = bar.refresh
    conversation.restore = conversation.desk.restore = box.replace
    box.label = lambda: conversation.desk.label
    keyboard = Keyboard(conversation, box)
    screen.connect(
        conversation.live_lines,
        bar.line,
        box.container,
        box.window,
        bindings(keyboard, screen),
        lambda: conversation.working,
        conversation.end,
    )
    for number in (signal.SIGTERM, signal.SIGHUP):  # so that the terminal is left as it was
        asyncio.get_running_loop().add_signal_handler(number, conversation.end)
    tasks = Tasks()
    tasks.start(_after_first_frame(session, bar, conversation), name="after the first frame")
    try:
        await screen.run(conversation.run)
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().remove_signal_handler(number)
        await tasks.close()
        await bar.close()
    return conversation


async def _after_first_frame(session: ShownSession, bar: StatusBar, conversation: Conversation) -> None:
    """What may take longer than the prompt: the branch, the highlighter, the sandbox."""
    await asyncio.sleep(0.05)
    await asyncio.to_thread(_load_slow_parts)
    bar.refresh()
    conversation.desk.sandbox = str((await session.opening()).get("sandbox", ""))


def _load_slow_parts() -> None:
    """Import what the first answer needs, beside the loop that reads the keyboard."""
    import lyra.sage.project.git_state  # noqa: F401 - for the import alone

    load()


def command_names(session: Any) -> Sequence[CommandName]:
    """The commands that can be completed."""
    from lyra.sage.commands.registry import command_list

    return sorted(CommandName(name, summary) for name, summary in command_list(session))


# FileNotices: tells in the terminal that files of extensions and tools were read again, or cannot be used.
class FileNotices:
    """`note` prints a sentence in a style."""

    def __init__(self, session: LiveSession, note: Callable[[str, str], object]) -> None:
        self._session = session
        self._note = note
        self._told = set(self._problems())
        self._notices = SessionNotices(session, self._tell, known=self._told)

    def look(self) -> None:
        """Tell what has changed since the last look."""
        self._notices.look()
        problems = self._problems()
        for problem in problems:
            if problem not in self._told:
                self._note(problem, "failed")
        self._told = set(problems)

    def _tell(self, notice: NoticeLine) -> None:
        if notice.get("source") == "extensions":  # tasks are told by the conversation
            self._told.add(notice["text"])
            self._note(notice["text"], "failed" if notice["level"] == "warning" else "faint")

    def _problems(self) -> list[str]:
        """What is wrong with files of tools and extensions now."""
        sources = self._session.headless.agent.sources
        of_sources = [problem for source in sources for problem in getattr(source, "problems", ())]
        equipment = self._session.equipment
        return list(dict.fromkeys([*of_sources, *(equipment.problems if equipment is not None else ())]))
