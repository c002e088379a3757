"""The desk shows one question after the other and hands the answers to the session."""

from __future__ import annotations

import asyncio
from typing import Any

from lyra.errors import ConfigError
from lyra.kernel.base.tasks import Tasks
from lyra.sage.terminal.echo import Folds, Sheet
from lyra.sage.terminal.question import TerminalQuestion
from lyra.sage.terminal.question_desk import QuestionDesk
from lyra.sage.terminal.turn_view import TurnView
from lyra.testing import SimClock
from tests.sage.terminal.paper_list import PaperList


class Answered:
    """A session that writes down what it is answered."""

    folder = "/work"

    def __init__(self) -> None:
        self.answers: list[tuple[Any, ...]] = []

    async def answer(self, interrupt_id: str, decision: str, *, text: str = "", arguments: Any = None) -> None:
        if interrupt_id == "gone":
            raise ConfigError("it was answered before")
        self.answers.append((interrupt_id, decision, text, arguments))


class Desk:
    def __init__(self) -> None:
        self.session, self.paper, self.clock, self.tasks = Answered(), PaperList(), SimClock(), Tasks()
        session: Any = self.session
        self.desk = QuestionDesk(session, Sheet(self.paper), Folds(), self.clock, self.tasks)
        self.prompt = ""
        self.desk.restore = self.put

    def put(self, text: str) -> None:
        self.prompt = text

    def ask(self, name: str, **more: Any) -> None:
        line = {"id": name, "kind": "confirmation", "tool": "Bash", "arguments": {"command": name}, "always": None}
        asked: Any = {**line, **more}
        self.desk.ask(TerminalQuestion(asked))

    async def settled(self) -> list[tuple[Any, ...]]:
        for _ in range(5):
            await asyncio.sleep(0)
        return self.session.answers


async def test_questions_come_one_after_the_other() -> None:
    """The second is printed when the first is answered."""
    desk = Desk()
    desk.ask("first")
    desk.ask("second")
    assert not any("second" in line for line in desk.paper.lines)
    desk.desk.press("y")
    assert any("second" in line for line in desk.paper.lines)
    desk.desk.press("n")
    desk.desk.submit("not now")
    assert await desk.settled() == [("first", "allow", "", None), ("second", "deny", "not now", None)]
    assert desk.desk.current is None


async def test_an_edited_call_is_allowed_as_edited() -> None:
    desk = Desk()
    desk.ask("ls")
    desk.desk.press("e")
    assert desk.prompt == "ls"
    desk.desk.submit("ls -a")
    assert await desk.settled() == [("ls", "allow", "", {"command": "ls -a"})]


async def test_an_empty_edit_gives_the_text_back_and_answers_nothing() -> None:
    desk = Desk()
    desk.ask("ls")
    desk.desk.press("e")
    desk.desk.submit(" ")
    assert await desk.settled() == []
    assert desk.desk.takes_text


async def test_the_questions_of_a_turn_end_with_it_and_those_of_tasks_stay() -> None:
    """A task in the background still waits for its answer after the turn."""
    desk = Desk()
    desk.ask("turn")
    desk.ask("task", background=True)
    desk.desk.end()
    assert desk.desk.current is not None
    assert desk.desk.current.id == "task"
    assert any("task" in line for line in desk.paper.lines)


async def test_a_question_of_a_task_can_be_left_for_later() -> None:
    """One of a turn cannot: the turn waits for it."""
    desk = Desk()
    desk.ask("task", background=True)
    assert desk.desk.postpone()
    assert desk.desk.current is None
    desk.ask("turn")
    assert not desk.desk.postpone()


async def test_the_same_question_is_shown_once() -> None:
    desk = Desk()
    desk.ask("same")
    desk.ask("same")
    desk.desk.press("y")
    assert desk.desk.current is None


async def test_an_answer_that_comes_too_late_is_told() -> None:
    desk = Desk()
    desk.ask("gone")
    desk.desk.press("y")
    await desk.settled()
    assert any("answered before" in line for line in desk.paper.lines)


async def test_what_ends_while_a_question_is_open_is_printed_after_its_answer() -> None:
    """A question and its answer stay together; nothing that ended meanwhile is lost."""
    desk = Desk()
    view = TurnView(Sheet(desk.paper), Folds(), desk.clock)
    desk.desk.begin(view)
    view.take({"type": "tool_start", "id": "2", "name": "Read", "arguments": {"file_path": "other.py"}})
    desk.ask("first")
    view.take({"type": "tool_end", "id": "2", "name": "Read", "output": "     1\tx", "is_error": False})
    assert not any("other.py" in line for line in desk.paper.lines)
    desk.desk.press("y")
    assert [line.strip() for line in desk.paper.lines[-2:]] == ["allowed once", f"Read    other.py{'1 line':>62}"]


async def test_a_question_of_a_sub_agent_names_it() -> None:
    desk = Desk()
    desk.ask("touch x", agent="general: count docs")
    assert any(line.strip() == "for general: count docs" for line in desk.paper.lines)
