"""Stages whose agent runs in another program: what that program's side is given, and how it is told of a call's end.

An `OutsideAgent` stands for the agent in this kernel; the server above makes one for each agent that a worker serves.
`OutsideStages` ties it to the door: a stage counts as begun when a worker gets it (`StageRun.begin`), and after a
restart of the kernel the worker may still deliver what it had got before (`find_out`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from lyra.core.envelope import Envelope

if TYPE_CHECKING:
    from lyra.kernel.pipelines.declaration import AgentConfig
    from lyra.kernel.pipelines.runner import Runner


async def _begun(may_repeat: bool) -> None:
    """Do nothing: the work was begun before."""


class StageRun(msgspec.Struct, kw_only=True):
    """One run of a stage: `key` is the same in every lifetime of the kernel, and no other run's."""

    key: str
    pid: str
    agent_name: str
    envelope: Envelope
    stage: Any  # an AgentConfig
    may_repeat: bool  # the stage may be run again, whatever its agent says
    # Awaited right before a worker gets the work, with whether another may be given it if this one is lost.
    begin: Callable[[bool], Awaitable[None]] = _begun


class OutsideAgent(Protocol):
    """An agent in another program. `agents.register` knows it by `__lyra_outside__`."""

    __lyra_outside__: bool

    def serves(self, user_id: str) -> bool:
        """Whether that program runs it for this user; "" is no user."""

    async def run(self, work: StageRun) -> Any: ...

    async def find_out(self, work: StageRun) -> Any: ...

    def asked(self, interrupt_id: str, key: str) -> None: ...

    def settled(self, key: str, *, is_durable: bool) -> None: ...


class OutsideStages:
    """The runs of an agent that another program performs, as the door calls them (`PerformedOutside`)."""

    __slots__ = ("_agent", "_runner")

    def __init__(self, runner: Runner, agent: OutsideAgent) -> None:
        self._runner = runner
        self._agent = agent

    async def run(
        self,
        pid: str,
        run: int,
        stage_name: str,
        *_asked: str,
        begin: Callable[[bool], Awaitable[None]],
        idempotency_key: str,
    ) -> Any:
        """The function of the effect."""
        return await self._perform(pid, run, stage_name, idempotency_key, self._agent.run, begin)

    async def find_out(self, *call: Any, may_repeat: bool, idempotency_key: str) -> Any:
        pid, run, stage_name = call[:3]
        return await self._perform(pid, run, stage_name, idempotency_key, self._agent.find_out, may_repeat=may_repeat)

    def asked(self, interrupt_id: str, *call: Any, idempotency_key: str) -> None:
        self._agent.asked(interrupt_id, self._runner.run_key(call[0], call[1], idempotency_key))

    def settled(self, is_durable: bool, /, *call: Any, idempotency_key: str) -> None:
        self._agent.settled(self._runner.run_key(call[0], call[1], idempotency_key), is_durable=is_durable)

    async def _perform(
        self,
        pid: str,
        run: int,
        stage_name: str,
        idempotency_key: str,
        call: Callable[[StageRun], Awaitable[Any]],
        begin: Callable[[bool], Awaitable[None]] = _begun,
        *,
        may_repeat: bool = False,
    ) -> Any:
        key = self._runner.run_key(pid, run, idempotency_key)

        def work(envelope: Envelope, stage: AgentConfig) -> Awaitable[Any]:
            return call(
                StageRun(
                    key=key,
                    pid=pid,
                    agent_name=stage.agent_name,
                    envelope=envelope,
                    stage=stage,
                    may_repeat=may_repeat or stage.retry is not None,
                    begin=begin,
                )
            )

        return await self._runner.perform(pid, run, stage_name, work)


def skipped_result(data: Any) -> dict[str, Any]:
    """The result of a run that a person skipped: the answer's data is the output, unless it is a whole result."""
    if isinstance(data, dict) and isinstance(data.get("output"), dict) and set(data) <= {"output", "metrics"}:
        return {"metrics": {}, **data}
    return {"output": data if isinstance(data, dict) else {} if data is None else {"text": str(data)}, "metrics": {}}
