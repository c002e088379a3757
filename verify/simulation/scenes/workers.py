"""Workers outside and what they use: entries of the process table, services, rate limits, the bus, tidying up.

`client` is a durable program whose effects go to a service; `desk` workers take entries from the line, use what they
need, ask people, and end them. Services come and go with every life of the kernel, are slow, fail, change their health
and are full at times. The scene counts what only it can see: how many of a service's handlers run at once, and who
heard a message of the bus.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from lyra.core.effect import Effect
from lyra.core.ids import ProcessRandom
from lyra.errors import DeadlineExceeded, InvalidTransition, LyraError
from verify.simulation.scenes import Scene

if TYPE_CHECKING:
    from verify.simulation.world import Life, World

__all__ = ["PROGRAMS", "Workers", "client"]

_SERVICES: Final[dict[str, dict[str, Any]]] = {
    "narrow": {"service_type": "worker", "max_concurrent": 1},
    "wide": {"service_type": "worker", "max_concurrent": 4},
    "oracle": {"service_type": "inference", "max_concurrent": 2, "capabilities": ["small"]},
}
_STATUSES: Final = ("healthy", "healthy", "degraded", "unhealthy", "unknown")
_USERS: Final = ("ann", "bob")
_LIMITS: Final = {"requests_per_minute": 4, "requests_per_hour": 9, "requests_per_day": 20, "burst_size": 2}
_here: Workers | None = None  # the scene whose world runs now: effects are functions without a world


async def _ask_service(name: str, number: int, idempotency_key: str) -> Any:
    assert _here is not None, "no scene: a world sets it"
    return await _here.serve(name, number, idempotency_key)


USE: Final = Effect(_ask_service, name="sim:service", idempotent=True, timeout_s=60.0, retry={"max_attempts": 2})


async def client(ctx: Any, names: list[str]) -> list[Any]:
    """A program that uses services through the door."""
    out: list[Any] = []
    for number, name in enumerate(names):
        try:
            out.append(await ctx.do(USE, name, number))
        except LyraError as error:
            out.append(error.code)
        await ctx.sleep(1.0)
    return out


PROGRAMS: Final = (client,)


class Workers(Scene):
    def __init__(self, world: World, rng: ProcessRandom) -> None:
        super().__init__(world, rng)
        self.clients = {
            f"c{number}": [rng.choice(["narrow", "wide"]) for _ in range(rng.randint(1, 5))]
            for number in range(rng.randint(1, 3))
        }
        self.entries_submitted = 0
        self.running: dict[int, dict[str, int]] = {}  # requests at work by service, in each life
        self.trouble = {
            self._submit: 2, self._desk: 2, self._dispatch: 3, self._nurse: 1, self._slots: 1,
            self._hurry: 2, self._bus: 2, self._tidy: 1, self._questions: 1,
        }  # fmt: skip

    def furnish(self, life: Life) -> None:
        global _here
        _here = self
        self.running[life.number] = dict.fromkeys(_SERVICES, 0)

    async def begin(self, world: World, life: Life) -> None:
        kernel = life.kernel
        for name, info in _SERVICES.items():
            kernel.register_service({"name": name, **info})
            kernel.register_handler(name, self._handler(life, name))
        kernel.rate_limiter.set_user_limits("ann", _LIMITS)
        kernel.rate_limiter.set_endpoint_limits("search", {**_LIMITS, "requests_per_minute": 0})
        for pid, names in self.clients.items():
            kernel.spawn(client, names, pid=pid)
        if life.rng.random() < 0.3:
            kernel.cleanup_every(100.0)
        if life.rng.random() < 0.3:
            kernel.health.start(interval_s=30.0)
        await kernel.durable()
        for name in _SERVICES:
            if not any(row[3] == "service.registered" and name.encode() in row[4] for row in world.ledger.rows):
                world.violate("acknowledged", f"the service {name} was acknowledged and is not in the journal")

    async def finish(self, _world: World, life: Life) -> None:
        """End all entries that are left: no worker drives them any more."""
        kernel = life.kernel
        await asyncio.sleep(life.rng.choice([10.0, 200.0]))
        for block in kernel.list_processes(user_id="ann") + kernel.list_processes(user_id="bob"):
            if not block.terminal:
                kernel.terminate(block.pid, "closing time", force=True)

    # ------------------------------------------------------------------ services

    def _handler(self, life: Life, name: str) -> Callable[[Any], Awaitable[Any]]:
        running, most = self.running[life.number], _SERVICES[name]["max_concurrent"]

        async def handle(request: Any) -> Any:
            running[name] += 1
            if running[name] > most:
                self.world.violate("slots", f"{running[name]} requests at once in {name}, which takes {most}")
            try:
                if "key" not in request.metadata:
                    return await _work(life)
                act = {"kind": "read", "label": "service", "needs": [], "micro_usd": 0}
                answer = await self.world.provider.perform(act, request.metadata["key"])
                return {"metadata": {"nth": answer["nth"] if isinstance(answer, dict) else 0}}
            finally:
                running[name] -= 1

        return handle

    async def serve(self, name: str, number: int, key: str) -> Any:
        """What a client's effect does."""
        loop = asyncio.get_running_loop()  # a kernel that was paused wakes up beside a newer one
        kernel = next((life.kernel for life in self.world.lives if life.loop is loop), None)
        if kernel is None:
            return {}  # a replay, which has no kernel to ask
        request = {"metadata": {"key": key, "number": number}}
        response = await kernel.dispatch(name, request, timeout_s=20.0)
        return response.metadata

    async def _dispatch(self, world: World, life: Life) -> None:
        for _ in range(life.rng.randint(1, 5)):
            await asyncio.sleep(life.rng.choice([0.0, 1.0, 20.0]) * life.rng.random())
            name = life.rng.choice(list(_SERVICES))
            try:
                if name == "oracle":
                    await life.kernel.dispatch_inference("small", "what now?", timeout_s=5.0)
                else:
                    retries = life.rng.randint(0, 2)
                    response = await life.kernel.dispatch(name, None, timeout_s=8.0, max_retries=retries)
                    if response.retries > retries:
                        world.violate("slots", f"{name} was tried {response.retries} times more, not {retries}")
            except LyraError as refusal:
                if refusal.code == "conflict":
                    raise

    async def _nurse(self, _world: World, life: Life) -> None:
        """Health goes up and down; a check of its own watches one service for a while."""
        kernel, rng = life.kernel, life.rng
        await asyncio.sleep(1.0)
        stop = kernel.services.check_health("wide", lambda: rng.random() < 0.8, interval_s=10.0)
        for _ in range(rng.randint(1, 6)):
            await asyncio.sleep(rng.choice([1.0, 10.0, 60.0]))
            kernel.services.update_health(rng.choice(list(_SERVICES)), rng.choice(_STATUSES))
        stop()
        for name in _SERVICES:
            kernel.services.update_health(name, "healthy")

    async def _slots(self, _world: World, life: Life) -> None:
        """Slots taken by hand are given back."""
        kernel = life.kernel
        for _ in range(life.rng.randint(1, 4)):
            await asyncio.sleep(life.rng.choice([0.5, 10.0]))
            try:
                kernel.services.acquire_slot("wide")
            except LyraError:
                continue
            self.running[life.number]["wide"] += 1
            try:
                await asyncio.sleep(life.rng.choice([0.0, 5.0]))
            finally:
                self.running[life.number]["wide"] -= 1
                kernel.services.release_slot("wide")

    # ------------------------------------------------------------------ entries

    async def _submit(self, world: World, life: Life) -> None:
        kernel, rng = life.kernel, life.rng
        for _ in range(rng.randint(1, 5)):
            await asyncio.sleep(rng.choice([0.0, 5.0, 60.0]) * rng.random())
            self.entries_submitted += 1
            pid = f"e{self.entries_submitted}"
            quota = {"max_llm_calls": rng.choice([1, 100]), "timeout_seconds": rng.choice([20, 300])}
            priority = rng.choice(["realtime", "high", "normal", "low", "idle"])
            kernel.submit(pid, user_id=rng.choice(_USERS), priority=priority, quota=quota)
            if rng.random() < 0.9:
                kernel.schedule(pid)
            await kernel.durable()
            if pid not in world.ledger.parts.entries.states:
                world.violate("acknowledged", f"the entry {pid} was acknowledged and is not in the journal")

    async def _desk(self, _world: World, life: Life) -> None:
        """A worker: takes who is next, and does one thing and another with it."""
        kernel, rng = life.kernel, life.rng
        for _ in range(rng.randint(3, 12)):
            await asyncio.sleep(rng.choice([0.1, 3.0, 30.0]) * rng.random())
            taken = kernel.get_next_runnable()
            if taken is None:
                continue
            await asyncio.sleep(rng.choice([0.0, 2.0]))
            try:
                self._work_on(life, taken.pid)
            except InvalidTransition:
                continue  # ended meanwhile: by its quota, or by an operator
            await kernel.durable()

    def _work_on(self, life: Life, pid: str) -> None:
        kernel, rng = life.kernel, life.rng
        if kernel.get_process(pid).state != "running":
            return
        kernel.record_usage(pid, llm_calls=rng.choice([0, 1]), tokens_in=10)
        word = rng.choice(["ready", "blocked", "ask", "end", "end"])
        if word == "ask":
            kind = rng.choice(["confirmation", "resource_exhausted", "timeout"])
            kernel.create_interrupt(pid, kind, question="may it?", ttl_s=rng.choice([5.0, 60.0, 600.0]))
        elif word == "end":
            kernel.terminate(pid, "done", force=True)
        elif word == "blocked":
            kernel.transition_state(pid, "blocked", "quota")
            kernel.transition_state(pid, "ready")
        else:
            kernel.transition_state(pid, "ready")

    async def _questions(self, _world: World, life: Life) -> None:
        """Answer one of the open questions, take one back, let the others run out."""
        kernel, rng = life.kernel, life.rng
        for _ in range(rng.randint(1, 6)):
            await asyncio.sleep(rng.choice([1.0, 20.0, 100.0]))
            pending = [
                interrupt
                for interrupt in kernel.interrupts.list_interrupts(status="pending")
                if interrupt.pid.startswith("e")
            ]
            if pending and rng.random() < 0.5:
                kernel.interrupts.cancel_interrupt(rng.choice(pending).id, "taken back")
            kernel.interrupts.expire_old_interrupts()

    # ------------------------------------------------------------------ rates, bus, tidying up

    async def _hurry(self, _world: World, life: Life) -> None:
        kernel, rng = life.kernel, life.rng
        for _ in range(rng.randint(2, 20)):
            await asyncio.sleep(rng.choice([0.0, 0.0, 1.0, 15.0]))
            kernel.check_rate_limit(rng.choice(_USERS), rng.choice(["", "search"]), record=rng.random() < 0.9)
        if rng.random() < 0.1:
            kernel.rate_limiter.reset_user("bob")

    async def _bus(self, world: World, life: Life) -> None:
        """An event reaches each subscriber once; a command and a query reach their one handler."""
        kernel, rng = life.kernel, life.rng
        await asyncio.sleep(rng.choice([0.0, 5.0]))
        word = f"w{rng.getrandbits(30)}"
        heard: list[int] = []

        async def hear(message: Any) -> None:
            await asyncio.sleep(rng.choice([0.0, 1.0]))
            heard.append(message["n"])

        stops = [kernel.bus.subscribe(word, hear) for _ in range(rng.randint(0, 3))]
        told = await kernel.bus.publish(word, {"n": 1})
        if (told, len(heard)) != (len(stops), len(stops)):
            world.violate("bus", f"{told} were told and {len(heard)} heard, of {len(stops)} subscribers")
        for stop in stops:
            stop()
        if await kernel.bus.publish(word, {"n": 2}) or len(heard) != len(stops):
            world.violate("bus", "a subscriber heard a message after it had unsubscribed")

        async def answer(message: Any) -> int:
            await asyncio.sleep(message["after_s"])
            return int(message["n"]) + 1

        kernel.bus.register_handler(word, answer)
        after_s = rng.choice([0.0, 1.0, 60.0])
        try:
            got = await kernel.bus.query(word, {"n": 1, "after_s": after_s}, timeout_s=10.0)
            if got != 2 or after_s > 10.0:
                world.violate("bus", f"a query that takes {after_s:g} s of 10 was answered with {got}")
        except DeadlineExceeded:
            if after_s == 0.0 and not life.paused:  # of the others, a slow disk may have eaten the time
                world.violate("bus", "a query that takes no time at all was too late")
        kernel.bus.unregister_handler(word)

    async def _tidy(self, _world: World, life: Life) -> None:
        await asyncio.sleep(life.rng.choice([10.0, 300.0]) * life.rng.random())
        life.kernel.cleanup()


async def _work(life: Life) -> None:
    """A request without a user."""
    await asyncio.sleep(life.rng.choice([0.0, 0.5, 10.0]))
    if life.rng.random() < 0.3:
        raise RuntimeError("a service that fails on purpose")
