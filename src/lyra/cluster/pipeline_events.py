"""The events of a pipeline on any shard, as `kernel.execute_pipeline` gives them on its own.

They are made from the rows of the pipeline's process (`PipelineState` is their fold), so a follower is told
each event once and in order, from the first one on, wherever it is and however often the shard moves meanwhile.
Pieces of answers (`token`) are in no row and come on the pipeline's own shard alone; so do questions that a stage's
agent asks in a process of its own, which `cluster.interrupts()` lists.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final

from lyra.core import codec
from lyra.errors import Conflict, DeadlineExceeded, LyraError, NameTaken, ProcessError, ProcessExit, StoreError
from lyra.kernel.journal.rows import error_from_row
from lyra.kernel.pipelines.declaration import PipelineConfig
from lyra.kernel.pipelines.feeds import PipelineEvent
from lyra.kernel.pipelines.state import PipelineState

_ASKED: Final = "interrupt.created"
_ENDED: Final = "process.terminated"
_KINDS: Final = sorted((*PipelineState.KINDS, _ASKED, _ENDED))
_WAIT_S: Final = 5.0  # of one call for what comes next
_PAUSE_S: Final = 0.2  # after a call to a shard that is open nowhere


async def follow_pipeline(
    call: Callable[..., Awaitable[Any]], shard: str, pid: str, config: PipelineConfig | None = None
) -> AsyncGenerator[PipelineEvent, None]:
    """Give the events of a pipeline from its first one to its end; raises the error of one that ended early, and
    NameTaken where it is another than `config`. `call` calls a shard wherever it is open."""
    state = PipelineState()
    told: list[PipelineEvent] = []
    row_seq = 0

    def tell(pid: str, kind: str, stage: str, facts: dict[str, Any]) -> None:
        told.append(PipelineEvent(kind, stage, pid, state.sessions[pid].envelope, {**facts, "seq": row_seq}))

    state.tell = tell
    after = 0
    while True:
        rows, after = await _read_on(call, shard, pid, after)
        for row in rows:
            row_seq, time, _, kind, raw = row
            data = codec.decode(raw)
            if kind in PipelineState.KINDS:
                if pid not in state.sessions and kind not in ("pipeline.initialized", "pipeline.restored"):
                    raise Conflict(f"the first rows of pipeline {shard}/{pid} are not kept any more", dropped=True)
                state.apply(kind, pid, time, data)
                begun = state.sessions[pid].pipeline_config if kind == "pipeline.initialized" else None
                if begun is not None and config is not None and not begun.means_the_same(config):
                    raise NameTaken(f"{shard}/{pid} runs another pipeline", hint="use another pid", pid=pid)
            elif kind == _ASKED and data["kind"] == "in_doubt" and pid in state.sessions:
                asked = {name: data.get(name, "") for name in ("id", "kind", "question", "message")}
                tell(pid, "interrupt_raised", state.sessions[pid].envelope.current_stage, {"interrupt": asked})
            elif kind == _ENDED:
                _raise_early_end(data, f"{shard}/{pid}")
            while told:
                event = told.pop(0)
                yield event
                if event.type == "pipeline_completed":
                    return


async def _read_on(
    call: Callable[..., Awaitable[Any]], shard: str, pid: str, after: int
) -> tuple[list[list[Any]], int]:
    """Return the next rows of a process and the number of the last row that was looked at."""
    data = {"shard": shard, "after": after, "kinds": _KINDS, "wait_s": _WAIT_S, "pid": pid}
    while True:
        try:
            answer = await call(shard, "events", data, timeout_s=_WAIT_S + 10.0)
            return answer["rows"], answer["upto"]
        except LyraError as error:
            passes = isinstance(error, (StoreError, DeadlineExceeded)) or type(error) is ProcessError
            if not passes or error.fields.get("dropped"):
                raise
        await asyncio.sleep(_PAUSE_S)


def _raise_early_end(data: dict[str, Any], address: str) -> None:
    """Raise why the process of a pipeline ended before the pipeline did."""
    if data.get("error") is not None:
        raise error_from_row(data["error"])
    reason = data.get("reason", "")
    raise ProcessExit(f"pipeline {address} ended early: {reason}", reason=reason, pid=address)
