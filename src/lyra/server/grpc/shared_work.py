"""Workers of a cluster: one that is connected to any host gets work of every shard.

Each shard has a desk of its own (`ShardDesk`), with the leases and the attempts of one server, wherever it is open. The
host to which a worker is connected asks the desks of all shards, by calls of hosts, whether they have work for it, and
then has one of them lend a piece: a claim never holds more than the one that it gives. Ids of work, processes and calls
begin with their shard, so a renewal or a result finds its desk through any host and after the shard has moved. A shard
that is open nowhere at the moment is `Overloaded`: workers try again, and say first what they serve.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Protocol

from lyra.cluster.calls import WORK_DESK
from lyra.core.clock import SystemClock
from lyra.core.limits import WORK_CLAIM_WAIT_S_MAX
from lyra.errors import Conflict, DeadlineExceeded, LyraError, Overloaded, ProcessError, Unreachable
from lyra.kernel.base.tasks import Tasks
from lyra.kernel.kernel import Kernel
from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.services import WorkerCalls
from lyra.server.identity import Caller

_CALL_S: Final = 60.0  # a result is acknowledged when it is durable, or after a restart when its process is back
_PAUSE_S: Final = 0.5  # until a shard that is open nowhere is asked again
_REQUESTS: Final[Mapping[str, type[Any]]] = {
    "claim_work": pb.ClaimWorkRequest,
    "watch_work": pb.ClaimWorkRequest,
    "renew_work": pb.RenewWorkRequest,
    "complete_work": pb.CompleteWorkRequest,
}


class ShardDesk:
    """The desk of one shard, as other hosts call it."""

    def __init__(self, kernel: Kernel) -> None:
        self._calls = WorkerCalls(kernel)

    async def answer(self, data: Mapping[str, Any]) -> bytes:
        """Answer a request of a worker that some host passes on."""
        rpc = data["rpc"]
        request = _REQUESTS[rpc].FromString(data["request"])
        answer = await getattr(self._calls, rpc)(request, Caller(data["user"]))
        return bytes(answer.SerializeToString())

    async def close(self) -> None:
        """End what waits here, with the kernel."""
        self._calls.close()


def open_desk(kernel: Kernel) -> None:
    """Have workers of all hosts serve the shard of a kernel that has just opened."""
    kernel.parts[WORK_DESK] = ShardDesk(kernel)


class ShardDesks(Protocol):
    """What is needed of a host."""

    view: Any

    async def call_shard(self, shard: str, method: str, data: dict[str, Any], *, timeout_s: float = ...) -> Any: ...


class SharedWorkerCalls:
    """The WorkerService of a host of a cluster."""

    def __init__(self, host: ShardDesks) -> None:
        self._host = host
        self._tasks = Tasks()
        self._turn = 0
        self._turns: dict[str, int] = {}  # shard → when it lent something last
        self._is_closed = asyncio.Event()

    def close(self) -> None:
        """End the claims that wait."""
        self._is_closed.set()

    # ------------------------------------------------------------------ what workers call

    async def claim_work(self, request: pb.ClaimWorkRequest, caller: Caller) -> pb.WorkItem:
        if request.announce:
            await self._announce(request, caller)
            return pb.WorkItem()
        clock = SystemClock()
        until_s = clock.monotonic() + min(max(request.wait_seconds, 0.0), WORK_CLAIM_WAIT_S_MAX)
        closing = self._tasks.start(self._is_closed.wait(), name="lyra-work closing")
        watches: dict[str, asyncio.Task[bool]] = {}
        try:
            while not self._is_closed.is_set():
                left_s = until_s - clock.monotonic()
                for shard in self._host.view.shards:
                    if shard not in watches:
                        work = self._watch(shard, request, caller, left_s)
                        watches[shard] = self._tasks.start(work, name=f"lyra-work {shard}")
                done, _ = await asyncio.wait((*watches.values(), closing), return_when=asyncio.FIRST_COMPLETED)
                for shard in sorted(watches, key=lambda shard: self._turns.get(shard, 0)):
                    if watches[shard] not in done:
                        continue
                    if not watches.pop(shard).result():  # the wait is over, or the worker leaves
                        return pb.WorkItem()
                    item = await self._lend(shard, request, caller)
                    if item is not None:
                        return item
        finally:
            for task in (*watches.values(), closing):
                task.cancel()
        return pb.WorkItem()

    async def renew_work(self, request: pb.RenewWorkRequest, caller: Caller) -> pb.RenewWorkResponse:
        shard, request.work_id = self._split(request.work_id)
        if not shard:
            return pb.RenewWorkResponse(held=False, cancelled=False)
        answer: pb.RenewWorkResponse = pb.RenewWorkResponse.FromString(
            await self._ask(shard, "renew_work", request, caller)
        )
        return answer

    async def complete_work(self, request: pb.CompleteWorkRequest, caller: Caller) -> pb.CompleteWorkResponse:
        shard, request.work_id = self._split(request.work_id)
        if not shard:
            return pb.CompleteWorkResponse(accepted=False)
        answer: pb.CompleteWorkResponse = pb.CompleteWorkResponse.FromString(
            await self._ask(shard, "complete_work", request, caller)
        )
        return answer

    # ------------------------------------------------------------------ what desks are asked

    def _split(self, work_id: str) -> tuple[str, str]:
        """Return the shard of a piece of work and its id there; no shard where there is none of that name."""
        shard, _, bare = work_id.partition("/")
        return (shard, bare) if shard in self._host.view.shards else ("", work_id)

    async def _announce(self, request: pb.ClaimWorkRequest, caller: Caller) -> None:
        """Say on all shards what a worker serves; those that do not answer now are told when they are asked for work.
        Overloaded where none answers."""
        asked = [self._ask(shard, "claim_work", request, caller) for shard in self._host.view.shards]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        faults = [answer for answer in answers if isinstance(answer, BaseException)]
        for fault in faults:
            if not isinstance(fault, Overloaded) or len(faults) == len(answers):
                raise fault

    async def _watch(self, shard: str, request: pb.ClaimWorkRequest, caller: Caller, wait_s: float) -> bool:
        """Return whether a desk has work for a worker, as soon as it has some; False when the wait is over."""
        clock = SystemClock()
        until_s = clock.monotonic() + wait_s
        while True:
            left_s = max(0.0, until_s - clock.monotonic())
            asked = pb.ClaimWorkRequest()
            asked.CopyFrom(request)
            asked.wait_seconds = left_s
            try:
                return bool(await self._ask(shard, "watch_work", asked, caller, timeout_s=left_s + _CALL_S))
            except Overloaded:
                if left_s <= 0:
                    return False
            await asyncio.sleep(min(_PAUSE_S, left_s))

    async def _lend(self, shard: str, request: pb.ClaimWorkRequest, caller: Caller) -> pb.WorkItem | None:
        """Have a desk lend a piece of work to a worker; None where another worker was quicker."""
        asked = pb.ClaimWorkRequest()
        asked.CopyFrom(request)
        asked.wait_seconds = 0.0
        try:
            item: pb.WorkItem = pb.WorkItem.FromString(await self._ask(shard, "claim_work", asked, caller))
        except Overloaded:
            return None
        if not item.work_id:
            return None
        self._turn += 1
        self._turns[shard] = self._turn
        item.work_id = f"{shard}/{item.work_id}"
        item.idempotency_key = f"{shard}/{item.idempotency_key}"
        if item.process_id:
            item.process_id = f"{shard}/{item.process_id}"
        return item

    async def _ask(self, shard: str, rpc: str, request: Any, caller: Caller, *, timeout_s: float = _CALL_S) -> bytes:
        """Ask a desk; Overloaded where its shard is open nowhere, or its host has died meanwhile."""
        data = {"shard": shard, "rpc": rpc, "request": request.SerializeToString(), "user": caller.user_id}
        try:
            return bytes(await self._host.call_shard(shard, "work", data, timeout_s=timeout_s))
        except LyraError as error:
            is_lost = isinstance(error, (Unreachable, DeadlineExceeded)) or type(error) is ProcessError
            if is_lost or (isinstance(error, Conflict) and error.fields.get("elsewhere")):
                hint = "it is open again when another host has taken it over"
                raise Overloaded(f"shard {shard} does not answer: {error.message}", hint=hint, shard=shard) from None
            raise
