"""Pipelines whose agents run in the client: it asks for the next instruction, does it, and reports.

A report whose answer was lost is repeated, and one that was answered is sometimes repeated too; each stage counts once.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from lyra.errors import LyraError
from verify.crash.server.callers import Scene

__all__ = ["Sessions"]

_STAGES: Final = ("draft", "check", "print")
_CONFIG: Final = {
    "name": "letters",
    "agents": [
        {"name": "draft", "stage_order": 0, "default_next": "check"},
        {"name": "check", "stage_order": 1, "default_next": "print"},
        {"name": "print", "stage_order": 2, "default_next": "end"},
    ],
}
_COMPARED_MAX: Final = 15


class Sessions(Scene):
    name = "sessions"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._reported: dict[str, dict[str, Any]] = {}  # pid → what was acknowledged

    async def unit(self) -> None:
        pid = self.next_name()
        await self.until_done(lambda: self._begin(pid))
        reported = self._reported[pid] = {}
        while True:
            instruction = await self.until_done(lambda: self.ask("get_next_instruction", pid))
            if str(instruction.kind) == "terminate":
                break
            stage = str(instruction.agent_name)
            self.expect(stage not in reported, f"{pid}: {stage} was reported and is asked for again")
            output = {"text": f"{pid}-{stage}"}
            report = {"agent_name": stage, "run_id": instruction.run_id, "output": output, "success": True}
            await self.until_done(partial(self.ask, "report_agent_result", pid, report))
            reported[stage] = output
            if self.rng.uniform(0.0, 1.0) < 0.3:
                await self.until_done(partial(self.ask, "report_agent_result", pid, report))
        self.expect(list(reported) == list(_STAGES), f"{pid} ended after {list(reported)}")
        await self.until_done(lambda: self._compare(pid, reported, is_over=True))

    async def _begin(self, pid: str) -> None:
        try:
            await self.kernel.get_orchestration_state(pid)
        except LyraError:
            await self.ask("initialize_orchestration", pid, _CONFIG, {"raw_input": pid})

    async def _compare(self, pid: str, reported: dict[str, Any], *, is_over: bool) -> None:
        state = await self.ask("get_orchestration_state", pid)
        outputs = state.envelope.outputs
        for stage, output in reported.items():
            self.expect(outputs.get(stage) == output, f"{pid}: the report of {stage} is lost: {outputs}")
        ways = dict(state.edge_traversals)
        self.expect(all(count <= 1 for count in ways.values()), f"{pid}: a report counts twice: {ways}")
        if is_over:
            self.expect(state.terminated, f"{pid} had ended and goes on")

    async def compare(self) -> None:
        for pid, reported in list(self._reported.items())[-_COMPARED_MAX:]:
            await self._compare(pid, reported, is_over=len(reported) == len(_STAGES))
