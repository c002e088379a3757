"""Questions to people: asked over gRPC, answered over gRPC and HTTP in turns."""

from __future__ import annotations

from typing import Any, Final

from verify.crash.server.callers import Scene

__all__ = ["Questions"]

_COMPARED_MAX: Final = 15


class _Asked:
    __slots__ = ("answer", "answered", "id", "pid")

    def __init__(self, pid: str) -> None:
        self.pid = pid
        self.id = ""
        self.answer = ""  # that was tried
        self.answered = False  # and acknowledged


class Questions(Scene):
    name = "questions"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._asked: list[_Asked] = []

    async def unit(self) -> None:
        asked = _Asked(self.next_name())
        await self.until_done(lambda: self.ask("submit", asked.pid))
        self._asked.append(asked)
        await self.until_done(lambda: self._put(asked))
        await self.until_done(lambda: self._answer(asked))

    async def _put(self, asked: _Asked) -> None:
        known = await self.ask("list_interrupts", pid=asked.pid)
        if not known:
            known = [await self.ask("create_interrupt", asked.pid, "clarification", "why", question=f"{asked.pid}?")]
        asked.id = str(known[0].id)

    async def _answer(self, asked: _Asked) -> None:
        (known,) = await self.ask("list_interrupts", pid=asked.pid)
        if str(known.status) == "pending":
            asked.answer = f"because {asked.pid}"
            if self.units % 2:
                await self.ask("resolve_interrupt", asked.id, {"text": asked.answer})
            else:
                path = f"/api/interrupts/{asked.id}/answer"
                await self.request("POST", path, json={"text": asked.answer})
        asked.answered = True

    async def compare(self) -> None:
        for asked in self._asked[-_COMPARED_MAX:]:
            listed = await self.ask("list_interrupts", pid=asked.pid)
            if asked.id:
                self.expect(len(listed) == 1, f"{asked.pid}: {len(listed)} questions where 1 was asked")
            for question in listed:
                self.expect(question.question == f"{asked.pid}?", f"{asked.pid}: asks {question.question!r}")
                status = str(question.status)
                self.expect(status != "pending" or not asked.answered, f"{asked.pid}: the answer is lost")
                if status == "resolved":
                    self.expect(question.response.text == asked.answer, f"{asked.pid}: another answer")
