"""A node with effects as a process of the kernel.

The process is given everything that decides what it does (the text of the node, its inputs, the time, the paths), so
that a kernel which opens the store after a crash can resume it: finished effects are replayed from the journal, and the
rest is performed. The live path performs effects; the other one, where executions are compared, replays what was
performed and is never live. If a live direct path breaks, the Python path replaces it: finished effects are replayed to
it first. Of a node with sensitive values, inputs and outcome are sealed in the journal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.codec import canonical
from lyra.core.naming import VESPER_NODE, give_name
from lyra.vesper.effects.door import DoorEffects, ExecutionTime
from lyra.vesper.effects.replay import EffectLog, ReplayEffects
from lyra.vesper.values.outcome import Execution, Outcome, outcome_data

if TYPE_CHECKING:
    from lyra.kernel.programs.context import Context
    from lyra.vesper.effects.request import EffectRequest, TransactionBody, TransactionEnd
    from lyra.vesper.ir import NodeProgram
    from lyra.vesper.runtime.runtime import Runtime


PART: Final = "vesper"  # by which a kernel knows its runtime


class ExecutionOrder(msgspec.Struct):
    """What a process of a node is started with."""

    source: str
    digest: str
    inputs: Any  # as `values.json_values` writes them; sensitive ones are only in `sealed`
    now: float
    trace_id: str
    mode: str
    live: str
    compare: bool
    ambient: dict[str, Any] = {}
    once: str = ""  # executions with an equal word are one
    sealed: str = ""  # of a private node: the inputs and the ambient objects
    hidden: list[str] = []  # inputs that the caller declares sensitive


class _Resumed:
    """Effects of a path that replaces a broken one: finished effects are replayed, new ones are performed."""

    def __init__(self, done: EffectLog, live: DoorEffects) -> None:
        self._replay = ReplayEffects(done)
        self._live = live

    async def perform(self, request: EffectRequest) -> Any:
        if self._replay.has(request):
            return await self._replay.perform(request)
        return await self._live.perform(request)

    async def transact(self, request: EffectRequest, body: TransactionBody) -> TransactionEnd:
        return await (self._replay if self._replay.has(request) else self._live).transact(request, body)


@give_name(VESPER_NODE)
async def node_process(ctx: Context, order: ExecutionOrder) -> dict[str, Any]:
    """Execute a node; gives its outcome as plain data, and a digest of what it was asked."""
    runtime: Runtime = ctx.own_process.kernel.parts[PART]
    program = runtime.program_of_source(order.source)
    inputs, ambient = runtime.open_order(order)
    time = ExecutionTime(program.limits.time_s, ctx.own_process.core.clock.monotonic)
    execution = msgspec.structs.replace(execution_of(order, runtime, ambient), monotonic=time)
    private = runtime.privacy.effects(program, inputs, order.hidden)
    effects = DoorEffects(ctx, runtime.world, EffectLog(), program, time, private)
    outcome, has_broken = await _live(runtime, program, order, inputs, execution, effects)
    if order.compare and not has_broken:
        other = "direct" if order.live == "python" else "python"
        replay = ReplayEffects(effects.log, replayed=other)
        second: Outcome | Exception
        try:
            second = await runtime.paths[other].start(program, inputs, execution, replay)
        except Exception as error:  # noqa: BLE001 - a path that breaks differs from one that does not
            second = error
        python, direct = (outcome, second) if order.live == "python" else (second, outcome)
        runtime.note_comparison(program, order, execution, python, direct, replay.mismatches())
    runtime.note_end(program, order, outcome, effects.log.records)
    data: Any = outcome_data(outcome)
    if private is not None:
        data = private.sealer.seal(data)
    return {"outcome": data, "inputs": inputs_digest(order), "trace_id": order.trace_id}


async def _live(
    runtime: Runtime,
    program: NodeProgram,
    order: ExecutionOrder,
    inputs: Mapping[str, Any],
    execution: Execution,
    effects: DoorEffects,
) -> tuple[Outcome, bool]:
    """Return the outcome, and whether the direct path broke and Python replaced it. An exception of the effects is no
    crash of a path: it ends the process."""
    path = runtime.paths.get(order.live) or runtime.paths["python"]  # a debugger does not outlive its command
    try:
        return await path.start(program, inputs, execution, effects), False
    except Exception as error:
        if order.live != "direct" or error is effects.failure:
            raise
        resumed = _Resumed(effects.log.copy(), effects)
        try:
            outcome = await runtime.paths["python"].start(program, inputs, execution, resumed)
        except Exception as second:
            runtime.note_comparison(program, order, execution, second, error, [])
            raise
        runtime.note_comparison(program, order, execution, outcome, error, [])
        return outcome, True


def inputs_digest(order: ExecutionOrder) -> str:
    """Return the digest that tells executions with the same idempotency key but other inputs apart."""
    inputs = [order.inputs, order.sealed] if order.sealed else order.inputs
    return hashlib.sha256(canonical([order.digest, inputs])).hexdigest()[:32]


def execution_of(order: ExecutionOrder, runtime: Runtime, ambient: Mapping[str, Any]) -> Execution:
    return Execution(
        now=datetime.fromtimestamp(order.now, UTC),
        trace_id=order.trace_id,
        predicates=runtime.predicates,
        ambient=ambient,
    )
