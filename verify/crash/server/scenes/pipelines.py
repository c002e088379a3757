"""Pipelines that the server runs: a stage that may be repeated, one that must not be, and one of a remote worker.

Their events are read over gRPC (by the pid) or over HTTP (with `Last-Event-ID`), and read on after a restart. A stage
that a client was told of is finished, and must not run again.
"""

from __future__ import annotations

from typing import Any, Final

from verify.crash.server.callers import Scene, ServerLost
from verify.crash.server.outside import answer_to

__all__ = ["HttpPipelines", "RpcPipelines"]

_KINDS: Final = {"measure": "repeatable", "pay": "once", "deliver": "worker"}
_CONFIG: Final = {
    "name": "order",
    "agents": [
        {"name": "measure", "stage_order": 0, "default_next": "pay"},
        {"name": "pay", "stage_order": 1, "default_next": "deliver"},
        {"name": "deliver", "stage_order": 2, "default_next": "end"},
    ],
}
_COMPARED_MAX: Final = 10


def _outputs(unit: str) -> dict[str, Any]:
    return {stage: {"receipt": answer_to(unit)} for stage in _KINDS}


class RpcPipelines(Scene):
    name = "pipelines"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._told: dict[str, set[str]] = {}  # unit → stages that the client knows to be over

    async def unit(self) -> None:
        unit = self.next_name()
        last = await self.until_done(lambda: self._read(unit))
        envelope = last.envelope
        self.expect(str(envelope.terminal_reason) == "completed", f"{unit} ended as {envelope.terminal_reason}")
        self.expect(dict(envelope.outputs) == _outputs(unit), f"{unit} gives {envelope.outputs}")

    async def _read(self, unit: str) -> Any:
        async def read() -> Any:
            last = None
            async for event in self.kernel.execute_pipeline(_CONFIG, {"raw_input": unit}, pid=unit):
                told = self._told.setdefault(unit, set())  # its first event says that the run is in the store
                last = event
                if str(event.type) == "stage_completed":
                    told.add(str(event.stage))
                    self.world.log.note("seen", f"{_KINDS[str(event.stage)]}/{unit}")
            if last is None or str(last.type) != "pipeline_completed":
                raise ServerLost
            return last

        return await self.world.asked(f"execute_pipeline {unit}", read)

    async def compare(self) -> None:
        for unit, stages in list(self._told.items())[-_COMPARED_MAX:]:
            state = await self.ask("get_orchestration_state", unit)
            lost = stages - set(state.envelope.outputs)
            self.expect(not lost, f"{unit}: stages that were over are not: {lost}")


class _Run:
    __slots__ = ("event_id", "is_over", "run_id", "unit")

    def __init__(self, unit: str, run_id: str) -> None:
        self.unit = unit
        self.run_id = run_id
        self.event_id = ""
        self.is_over = False


class HttpPipelines(Scene):
    name = "runs"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._runs: list[_Run] = []

    async def unit(self) -> None:
        unit = self.next_name()
        try:
            started = await self.request("POST", "/api/pipelines", json={"pipeline": _CONFIG, "input": unit})
        except ServerLost:
            return  # its id is not known
        run = _Run(unit, started["run_id"])
        self._runs.append(run)
        await self.until_done(lambda: self._follow(run))
        await self.until_done(lambda: self._compare(run))

    async def _follow(self, run: _Run) -> None:
        headers = {"last-event-id": run.event_id} if run.event_id else {}
        path = f"/api/pipelines/{run.run_id}/events"
        async for event in self.world.events("GET", path, user=self.user, headers=headers):
            run.event_id = event.id or run.event_id
            if event.word == "stage_completed":
                self.world.log.note("seen", f"{_KINDS[event.data['stage']]}/{run.unit}")
            if event.word == "pipeline_completed":
                run.is_over = True
        if not run.is_over:
            state = await self.request("GET", f"/api/pipelines/{run.run_id}")
            run.is_over = state["status"] == "completed"
            self.expect(run.is_over, f"{run.unit}: its events end, and it is {state['status']}")

    async def _compare(self, run: _Run) -> None:
        state = await self.request("GET", f"/api/pipelines/{run.run_id}")
        if run.is_over:
            self.expect(state["status"] == "completed", f"{run.unit} was over and is {state['status']}")
            result = await self.request("GET", f"/api/pipelines/{run.run_id}/result")
            self.expect(result["outputs"] == _outputs(run.unit), f"{run.unit} gives {result['outputs']}")

    async def compare(self) -> None:
        for run in self._runs[-_COMPARED_MAX:]:
            await self._compare(run)
