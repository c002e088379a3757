"""The Events of all shards as one stream: `async with cluster.events() as events`.

Each shard's journal is read from a position on, so the Events of a shard come in its order, each once, also when the
shard moves to another host meanwhile. Between shards there is no order; `time` is that of the host which had the shard.
`position` says how far the stream has come in each shard: given as `after`, another stream goes on from there.

Only rows of the journal are in it, and those only while they are kept (`retention_s`). A position that is older than
that is a Conflict.

`follow_pipeline` gives the events of one pipeline on any shard, as `kernel.execute_pipeline` gives them on its own.
They are made from the rows of the pipeline's process (`PipelineState` is their fold), so a follower is told each event
once and in order, from the first one on, however often the shard moves. Pieces of answers (`token`) are in no row and
come on the pipeline's own shard alone; so do questions of a stage's agent, which `cluster.interrupts()` lists.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from lyra.core import codec
from lyra.core.checking.check import check_integer, one_of
from lyra.core.event import KINDS
from lyra.errors import (
    ConfigError,
    Conflict,
    DeadlineExceeded,
    LyraError,
    NameTaken,
    ProcessError,
    ProcessExit,
    StoreError,
)
from lyra.kernel.base.listeners import words
from lyra.kernel.base.tasks import Tasks
from lyra.kernel.journal.rows import error_from_row
from lyra.kernel.pipelines.declaration import PipelineConfig
from lyra.kernel.pipelines.feeds import PipelineEvent
from lyra.kernel.pipelines.state import PipelineState

_WAIT_S: Final = 5.0  # of one call for what comes next
_PAUSE_S: Final = 0.2  # after a call to a shard that is open nowhere
_WAITING_MAX: Final = 1_000  # Events that wait for the reader; then the shards are not asked
_ASKED: Final = "interrupt.created"
_ENDED: Final = "process.terminated"
_KINDS: Final = sorted((*PipelineState.KINDS, _ASKED, _ENDED))


class ClusterEvent(msgspec.Struct, frozen=True):
    """An Event of a shard."""

    shard: str
    seq: int
    time: float
    pid: str
    kind: str
    data: dict[str, Any]

    @property
    def address(self) -> str:
        """Return the address of the process that it is about; "" for none."""
        return f"{self.shard}/{self.pid}" if self.pid and "/" not in self.pid else self.pid


class EventStream:
    """See the module. `call` calls a shard wherever it is open."""

    def __init__(
        self,
        call: Callable[..., Awaitable[Any]],
        find_shards: Callable[[], Awaitable[Iterable[str]]],
        *,
        after: Mapping[str, int] | None,
        kinds: Iterable[str] | None,
    ) -> None:
        self._call = call
        self._find_shards = find_shards
        self._kinds = None if kinds is None else [one_of(kind, KINDS, "an event's kind") for kind in words(kinds)]
        if after is not None and not isinstance(after, Mapping):
            raise ConfigError(f"after is a number for each shard, not {after!r}", hint="stream.position", key="after")
        self._is_from_now = after is None
        self.position = {shard: check_integer(seq, f"after[{shard!r}]") for shard, seq in (after or {}).items()}
        self._queue: asyncio.Queue[tuple[str, int, ClusterEvent | None] | LyraError] = asyncio.Queue(_WAITING_MAX)
        self._tasks = Tasks()
        self._is_started = False

    async def start(self) -> None:
        """Begin to follow. What happens after this is in the stream, and without `after` nothing before it."""
        self._is_started = True
        shards = list(await self._find_shards())
        for shard in self.position:
            if shard not in shards:
                raise ConfigError(f"there is no shard {shard!r}", hint="lyra cluster status lists them", key="after")
        if self._is_from_now:
            asked = [self._call(shard, "events", {"shard": shard, "after": None}) for shard in shards]
            ends = await asyncio.gather(*asked)
            self.position = {shard: end["upto"] for shard, end in zip(shards, ends, strict=True)}
        for shard in shards:
            after = self.position.setdefault(shard, 0)
            self._tasks.start(self._follow(shard, after), name=f"lyra-events {shard}")

    async def close(self) -> None:
        await self._tasks.close()

    async def __aenter__(self) -> EventStream:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> ClusterEvent:
        if not self._is_started:
            await self.start()
        while True:
            item = await self._queue.get()
            if isinstance(item, LyraError):
                await self.close()
                raise item
            shard, seq, event = item
            self.position[shard] = seq
            if event is not None:
                return event

    async def _follow(self, shard: str, after: int) -> None:
        while True:
            data = {"shard": shard, "after": after, "kinds": self._kinds, "wait_s": _WAIT_S}
            try:
                told = await self._call(shard, "events", data, timeout_s=_WAIT_S + 10.0)
            except LyraError as error:
                passes = isinstance(error, (StoreError, DeadlineExceeded)) or type(error) is ProcessError
                if passes and not error.fields.get("dropped"):
                    await asyncio.sleep(_PAUSE_S)
                    continue
                await self._queue.put(error)
                return
            for seq, time, pid, kind, raw in told["rows"]:
                await self._queue.put((shard, seq, ClusterEvent(shard, seq, time, pid, kind, codec.decode(raw))))
            if told["upto"] > after:
                after = told["upto"]
                await self._queue.put((shard, after, None))


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
