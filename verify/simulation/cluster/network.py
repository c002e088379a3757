"""The network of a simulated cluster: calls between hosts, and of hosts to the database, as bad as the seed wants them.

A call is carried as bytes. It may be lost, late, carried twice, or overtaken by a later one, and so may its answer: a
caller that hears nothing gets an error after its time-out, whether or not the call was carried out. `cut` parts two
ends, in one direction or in both. What a host has sent goes on without it: a call of a host that was killed, or a
statement that it gave the database, still arrives.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any

from lyra.cluster.peers import answer_encoded, read_answer
from lyra.core import codec
from lyra.core.ids import ProcessRandom
from lyra.errors import DeadlineExceeded, LyraError, StoreError, Unreachable
from lyra.testing.clock import SimClock
from verify.simulation.cluster.loops import HostLoop

if TYPE_CHECKING:
    from verify.simulation.cluster.world import SimHost

DATABASE = "database"
_RECONNECT_S = 10.0  # that a statement is tried again before the store gives up


class Network:
    """See the module. `loss` and `repeats` are the chances of a call to be lost, and to be carried twice."""

    def __init__(self, clock: SimClock, rng: ProcessRandom, *, loss: float, repeats: float, late: float) -> None:
        self.clock = clock
        self.rng = rng
        self.loss = loss
        self.repeats = repeats
        self.late = late
        self.hosts: dict[str, SimHost] = {}  # by address: the newest of that name
        self.is_cut: dict[tuple[str, str], int] = {}  # (from, to) → how many cuts
        self.calls = self.lost = self.repeated = 0

    # ------------------------------------------------------------------ partitions

    def cut(self, left: str, right: str, *, both: bool = True) -> Callable[[], None]:
        """Part two ends; gives the function that joins them again."""
        ways = [(left, right), (right, left)] if both else [(left, right)]
        for way in ways:
            self.is_cut[way] = self.is_cut.get(way, 0) + 1

        def heal() -> None:
            for way in ways:
                if self.is_cut.get(way, 0) > 0:
                    self.is_cut[way] -= 1

        return heal

    def heal_all(self) -> None:
        self.is_cut.clear()
        self.loss = self.repeats = self.late = 0.0

    def parted(self, left: str, right: str) -> bool:
        return self.is_cut.get((left, right), 0) > 0

    # ------------------------------------------------------------------ calls of hosts

    def carry(self, sender: str, address: str, request: bytes, answer: asyncio.Future[bytes]) -> None:
        """Carry a call and its answer, or not."""
        self.calls += 1
        copies = 2 if self.rng.random() < self.repeats else 1
        self.repeated += copies - 1
        for _ in range(copies):
            if self.rng.random() < self.loss:
                self.lost += 1
                continue
            self._after(self._delay(), lambda: self._arrive(sender, address, request, answer))

    def _arrive(self, sender: str, address: str, request: bytes, answer: asyncio.Future[bytes]) -> None:
        host = self.hosts.get(address)
        if self.parted(sender, address):
            return
        if host is None or host.loop.is_dead or host.host is None:
            self._reply(address, sender, answer, None)
            return
        target = host.host

        async def serve() -> None:
            told = await answer_encoded(target.answer, request)
            if self.rng.random() >= self.loss:
                self._after(self._delay(), lambda: self._reply(address, sender, answer, told))

        host.loop.create_task(serve())

    def _reply(self, sender: str, receiver: str, answer: asyncio.Future[bytes], told: bytes | None) -> None:
        loop = answer.get_loop()
        assert isinstance(loop, HostLoop)
        if loop.is_dead or self.parted(sender, receiver):
            return

        def settle() -> None:
            if answer.done():
                return
            if told is None:
                answer.set_exception(Unreachable(f"host {sender} cannot be reached: connection refused"))
            else:
                answer.set_result(told)

        loop.call_soon(settle)

    def _delay(self) -> float:
        if self.rng.random() < self.late:
            return self.rng.uniform(0.05, 6.0)
        return self.rng.uniform(0.0002, 0.004)

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        self.clock.call_at(self.clock.monotonic() + seconds, action)


class SimCarrier:
    """Calls of one host, or of a client."""

    def __init__(self, network: Network, sender: str) -> None:
        self._network = network
        self._sender = sender

    async def call(self, address: str, method: str, data: Any, *, timeout_s: float) -> Any:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bytes] = loop.create_future()

        def give_up() -> None:
            if not answer.done():
                answer.set_exception(DeadlineExceeded(f"host {address} did not answer within {timeout_s:g} s"))

        timer = loop.call_later(timeout_s, give_up)
        self._network.carry(self._sender, address, codec.encode([method, data]), answer)
        try:
            return read_answer(await answer)
        finally:
            timer.cancel()

    def forget(self, alive: Container[str]) -> None: ...

    async def close(self) -> None:
        """Do nothing: there is no connection."""


class SimWriter:
    """Stands for the thread that talks to the database: statements in order, each with a way there and a way back.

    A statement that cannot get through is tried again for a while, as the real stores do; one whose answer is lost was
    carried out, and its caller gets an error.
    """

    network: Network  # of the world that runs; set by it

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        assert isinstance(loop, HostLoop)
        self._loop = loop
        self._network = SimWriter.network
        self._jobs: deque[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], asyncio.Future[Any]]] = deque()
        self._is_busy = False
        self._is_closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        if self._is_closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        done: asyncio.Future[Any] = self._loop.create_future()
        self._jobs.append((fn, args, kwargs, done))
        self._go_on()
        return done

    def wait_for(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        while self._jobs:
            self._run(self._jobs.popleft())
        return fn(*args)

    def close(self) -> None:
        """Wait for what is on its way, as a thread that is joined."""
        self._is_closed = True
        while self._jobs and not self._loop.is_dead:
            self._run(self._jobs.popleft())

    def _go_on(self) -> None:
        if self._jobs and not self._is_busy:
            self._is_busy = True
            self._network._after(self._network.rng.uniform(0.0005, 0.01), lambda: self._reach(0.0))

    def _reach(self, waited_s: float) -> None:
        """Arrive at the database with the oldest statement."""
        if not self._jobs:
            self._is_busy = False
            return
        network = self._network
        if network.parted(self._loop.name, DATABASE):
            if waited_s >= _RECONNECT_S:
                self._fail(self._jobs.popleft()[3])
                return
            if self._loop.is_dead:
                return  # nothing is left that would try again
            network._after(0.5, lambda: self._reach(waited_s + 0.5))
            return
        self._run(self._jobs.popleft())

    def _run(self, job: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], asyncio.Future[Any]]) -> None:
        fn, args, kwargs, done = job
        try:
            result, error = fn(*args, **kwargs), None
        except LyraError as refusal:
            result, error = None, refusal
        self._is_busy = True
        if self._network.parted(DATABASE, self._loop.name) and not self._is_closed:
            self._network._after(_RECONNECT_S, lambda: self._fail(done))
        elif self._is_closed:
            self._settle(done, result, error)
        else:
            way_s = self._network.rng.uniform(0.0005, 0.01)
            self._network._after(way_s, lambda: self._settle(done, result, error))

    def _fail(self, done: asyncio.Future[Any]) -> None:
        self._settle(done, None, StoreError("the connection to the database is lost; whether it arrived is not known"))

    def _settle(self, done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self._is_busy = False
        if self._loop.is_dead:
            self._jobs.clear()
            return

        def settle() -> None:
            if done.done():
                return
            if error is None:
                done.set_result(result)
            else:
                done.set_exception(error)

        self._loop.call_soon(settle)
        self._go_on()


class NoPulse:
    """Stands for the thread that renews a host's row while its loop is held up: simulated loops hold nothing up."""

    def __init__(self, _beat: Callable[[], object], _interval_s: float) -> None:
        pass

    def put_off(self) -> None:
        pass

    def close(self) -> None:
        pass
