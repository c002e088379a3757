"""Posts: what one shard tells another, once and in order, across any crash of either.

    sender      row remote.posted in the batch of what caused it; sent on when that batch is durable, again until
                the receiver has it; row remote.acknowledged a little later, and the post is forgotten
    receiver    row remote.taken with the number of the post, in one batch with everything that the post does there;
                answers with the number once the batch is durable. A number that it has seen does nothing again

Posts of a pair of shards are numbered and taken in their order, so a receiver remembers one number for each sender.
Posts of two shards have no order: a message to a process whose spawn is on its way from a third shard is put aside
until that is here, which the pid (`s1.7`: post 7 of shard s1) tells.
A post never leaves before the rows that it depends on are durable, since it is one of them. Whether, when and how
often a batch of posts reaches the other shard is up to `Remote.deliver`, which the cluster fills in. Large values of a
post are blobs of the store while it waits. A post of a kind that this version does not know is refused: it waits, and
those behind it, until the shard is open in a version that does.

What posts there are, and what each does, is a matter of the parts (`RemotePart`): each has its kinds of posts, what it
remembers of those it sent and took, and what one does where it arrives.

The address of a process is `shard/pid`. The shard never changes, its owner does: addresses in journals stay true.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextvars import Context as ContextVars
from typing import TYPE_CHECKING, Any, Final

from lyra.core import codec
from lyra.core.faultpoint import point
from lyra.core.limits import (
    BLOB_INLINE_BYTES_MAX,
    EARLY_RECEIVERS_MAX,
    POSTS_AT_ONCE,
    POSTS_BYTES_AT_ONCE,
    POSTS_WAITING_MAX,
)
from lyra.errors import ConfigError, LyraError, Overloaded, ProcessError
from lyra.kernel.base.subsystem import Subsystem
from lyra.kernel.base.waiting import resume
from lyra.kernel.remote.acts import Acts
from lyra.kernel.remote.asks import Asks
from lyra.kernel.remote.groups import SharedGroups
from lyra.kernel.remote.handle import HandleAbroad
from lyra.kernel.remote.loans import Loans
from lyra.kernel.remote.messages import Messages
from lyra.kernel.remote.part import CLIENT, RemotePart, RemoteState, home_of
from lyra.kernel.remote.revoked import Revoked
from lyra.kernel.remote.schedules import Schedules
from lyra.kernel.remote.services import SharedAgents, SharedServices
from lyra.kernel.remote.shares import SharedRates, Shares
from lyra.kernel.remote.ties import Ties

if TYPE_CHECKING:
    from lyra.kernel.assembly import KernelParts
    from lyra.kernel.base.core import Core
    from lyra.kernel.process.process import Process

_log: Final = logging.getLogger("lyra.kernel")
_RETRY_FIRST_S: Final = 0.05
_RETRY_MOST_S: Final = 2.0
_BLOBS: Final = "~blobs"  # in the data of a post that is kept: field → digest of the blob that has its value
_HOMES_KEPT: Final = 1_024  # a hash for each shard is spared
_ACKNOWLEDGED_WITHIN_S: Final = 0.2

# Raised with each kind of post or fact that earlier versions do not know: a shard that a host has opened moves only to
# hosts that know as much.
POSTS_FORMAT: Final = 4

# Shard, number of the first post and the posts → number of the last post that the shard has. Raises LyraError.
Deliver = Callable[[str, int, list[bytes]], Awaitable[int]]


class Remote(Subsystem):
    """`kernel.core.remote` of a shard; see the module. `parts` makes the parts, given the kernel's and this."""

    NAME = "remote"

    def __init__(
        self,
        parts: KernelParts,
        shard: str,
        shards: Collection[str],
        deliver: Deliver,
        make: Iterable[Callable[[KernelParts, Remote], RemotePart]] | None = None,
    ) -> None:
        self.shard = shard
        self.shards = shards  # the names of all
        self.deliver = deliver
        self.state = RemoteState()
        self.core: Core[Process] = parts.core
        self.core.remote = self
        self.messages = Messages(parts, self)
        self.acts = Acts(parts, self)
        self.ties = Ties(parts, self)
        self.loans = Loans(parts, self)
        self.shares = Shares(parts, self)
        self.groups = SharedGroups(parts, self)
        self.schedules = Schedules(parts, self)
        self.services = SharedServices(parts, self)
        self.agents = SharedAgents(parts, self)
        self.asks = Asks(parts, self)
        self.revoked = Revoked(parts, self)
        self.rates = SharedRates(parts, self)
        self.beside: dict[str, Any] = {}  # what the kernels of one host share; filled in by the cluster
        shared: list[RemotePart] = [self.loans, self.shares, self.groups, self.schedules, self.services, self.agents]
        self.parts: list[RemotePart] = [self.messages, self.acts, self.ties, *shared, self.asks]
        self.parts += [self.revoked, self.rates]
        self.parts += [make_part(parts, self) for make_part in make or ()]
        for part in self.parts:
            self.state.add(part)
        self._acknowledged: dict[str, int] = {}  # shard → number of the last post it has, where no row says so yet
        self._homes: dict[str, str] = {}  # name → its home shard, of names that were asked for
        self._unknown: set[tuple[str, str]] = set()  # senders and kinds of posts that were refused, each told once
        self._rows: dict[str, dict[int, int]] = {}  # shard → number → row of a post that is not durable yet
        self._feeds: dict[str, asyncio.Event] = {}
        self._retries: dict[str, asyncio.Future[None]] = {}  # shard → the pause before its posts are carried again
        self.core.after_commit.append(self._on_commit)

    # ------------------------------------------------------------------ addresses

    def knows(self, address: str) -> bool:
        """Return whether an address is one of another shard of this cluster."""
        shard, slash, pid = address.partition("/")
        return bool(slash and pid) and shard != self.shard and shard in self.shards

    def find_own(self, address: str) -> str | None:
        """Return the pid of an address in this shard; None where it is another one's or none."""
        shard, slash, pid = address.partition("/")
        return pid if slash and shard == self.shard else None

    def address_named(self, process: Any) -> str | None:
        """Return the address that a caller means, by a word or by a handle, if it is another shard's."""
        word = process if isinstance(process, str) else getattr(process, "pid", None)
        return word if isinstance(word, str) and self.knows(word) else None

    def handle_of(self, kernel: Any, address: str) -> Any:
        """Return what the outside holds of a process on another shard."""
        return HandleAbroad(kernel, address)

    def agent_of(self, kernel: Any, address: str) -> Any:
        """Return what the outside holds of an agent process on another shard; ConfigError where this kernel knows no
        agent at all."""
        for program in kernel.programs.list_known().values():
            if hasattr(program, "__lyra_agent__"):
                handle_of = program.__lyra_handle__
                return getattr(handle_of, "func", handle_of).abroad(kernel, address)
        raise ConfigError("this kernel knows no agent", hint="Kernel(…, programs=[agent]) or kernel.register(agent)")

    def address_of(self, pid: str) -> str:
        return f"{self.shard}/{pid}"

    def home_of(self, name: str) -> str:
        """Return the shard that keeps what several shards share under a name; every shard gives the same."""
        home = self._homes.get(name)
        if home is None:
            if len(self._homes) >= _HOMES_KEPT:
                self._homes.clear()
            home = self._homes[name] = home_of(name, self.shards)
        return home

    def draw_id(self, length: int, prefix: str = "") -> str:
        """Return a new id whose home is this shard, so that the id says where what it names is."""
        while True:
            name = prefix + self.core.entropy.text(length)
            if self.home_of(name) == self.shard:
                return name

    # ------------------------------------------------------------------ sending

    def next_number(self, shard: str) -> int:
        """Return the number that the next post for a shard will have: no other of this pair ever has it."""
        return self.state.numbers.get(shard, 0) + 1

    def post(self, shard: str, what: str, data: dict[str, Any], *, pid: str = "", refusable: bool = True) -> int:
        """Write a post for another shard, caused by the process `pid`; gives its row.

        Overloaded where too many wait for that shard. One that is not `refusable` (an end, an answer) is written all
        the same: no caller is there to be told.
        """
        core, state = self.core, self.state
        waiting = state.posts.get(shard)
        if refusable and waiting is not None and len(waiting) >= POSTS_WAITING_MAX:
            raise Overloaded(
                f"{len(waiting)} posts wait for shard {shard}", hint="is it open? lyra cluster status says", shard=shard
            )
        self._write_acknowledged()
        number = self.next_number(shard)
        kept = self._put_blobs(data)
        seq = core.fact(state, pid, "remote.posted", {"to": shard, "n": number, "what": what, "data": kept})
        self._rows.setdefault(shard, {})[number] = seq
        return seq

    def _put_blobs(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return the data of a post as rows and snapshots have it: large values are blobs."""
        blobs = {}
        for name, value in data.items():
            if type(value) is bytes and len(value) > BLOB_INLINE_BYTES_MAX:
                digest = self.core.put_blob_now(value)
                if digest:  # else the disk is full: the value goes into the row, which waits for room
                    blobs[name] = digest
        return {**data, **dict.fromkeys(blobs, b""), _BLOBS: blobs} if blobs else data

    async def get_blobs(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return the data of a post that was kept as it was posted."""
        blobs = data.get(_BLOBS)
        if not blobs:
            return data
        core, journal = self.core, self.core.journal
        assert journal is not None
        whole = {name: value for name, value in data.items() if name != _BLOBS}
        for name, digest in blobs.items():
            whole[name] = await core.call(journal.store.get_blob, digest)
        return whole

    def note(self, part: RemotePart, data: dict[str, Any], *, pid: str = "") -> int:
        """Write a fact of a part itself; gives its row."""
        return self.core.fact(self.state, pid, "remote.noted", {"part": part.NAME, "data": data})

    def _on_commit(self, seq: int) -> None:
        for shard, rows in self._rows.items():
            if rows and next(iter(rows.values())) <= seq:
                for number in [number for number, row in rows.items() if row <= seq]:
                    del rows[number]
                self._wake(shard)

    def _wake(self, shard: str) -> None:
        woken = self._feeds.get(shard)
        if woken is None:
            if self.core.stopping:
                return
            woken = self._feeds[shard] = asyncio.Event()
            self.core.tasks.start(self._feed(shard, woken), name=f"lyra-posts {self.shard} to {shard}")
        woken.set()

    async def _feed(self, shard: str, woken: asyncio.Event) -> None:
        """Carry the posts for one shard there, for as long as the kernel is open."""
        core, delay_s = self.core, _RETRY_FIRST_S
        while core.failure is None:
            first, batch = await self._next_batch(shard)
            if not batch:
                woken.clear()
                await woken.wait()
                continue
            try:
                last = await self.deliver(shard, first, batch)
            except Exception as error:  # noqa: BLE001 - whatever a carrier meets, the posts are carried again
                if not isinstance(error, (LyraError, OSError)):
                    _log.exception("posts of shard %s for %s cannot be carried", self.shard, shard)
                _log.info("posts of shard %s for %s wait: %s", self.shard, shard, error)
                last = 0
            if core.stopping or core.failure is not None:
                return
            if last >= first:
                delay_s = _RETRY_FIRST_S
                point("remote.delivered")
                self._acknowledge(shard, last)
            else:
                await self._wait_to_retry(shard, delay_s)
                delay_s = min(2 * delay_s, _RETRY_MOST_S)

    def _acknowledge(self, shard: str, number: int) -> None:
        """Forget the posts that a shard has. The row that says so goes with the next post or a little later: in a batch
        of its own it would hold up the answer that comes at the same time. A crash before it costs a repetition."""
        core, data = self.core, {"to": shard, "n": number}
        if core.journal is None:
            core.fact(self.state, "", "remote.acknowledged", data)
            return
        self.state.apply("remote.acknowledged", "", core.now(), data)
        if not self._acknowledged:
            core.clock.call_at(core.clock.monotonic() + _ACKNOWLEDGED_WITHIN_S, self._write_acknowledged)
        self._acknowledged[shard] = number

    def _write_acknowledged(self) -> None:
        core, acknowledged = self.core, self._acknowledged
        if not acknowledged or core.journal is None or core.stopping or core.failure is not None:
            return
        self._acknowledged = {}
        for shard, number in acknowledged.items():
            core.journal.write("", "remote.acknowledged", codec.encode({"to": shard, "n": number}))

    async def _wait_to_retry(self, shard: str, seconds: float) -> None:
        """Pause before posts are carried again, at most until `hurry`."""
        core = self.core
        pause = self._retries[shard] = core.loop.create_future()
        timer = core.clock.call_at(core.clock.monotonic() + seconds, lambda: resume(pause))
        try:
            await pause
        finally:
            timer.cancel()
            self._retries.pop(shard, None)

    def hurry(self, shard: str) -> None:
        """Carry waiting posts to a shard now: it has moved."""
        pause = self._retries.get(shard)
        if pause is not None:
            resume(pause)

    async def _next_batch(self, shard: str) -> tuple[int, list[bytes]]:
        """Return the number of the first post that waits, and the durable posts from there on, some at a time."""
        posts, rows = self.state.posts.get(shard, {}), self._rows.get(shard, {})
        wanted: list[list[Any]] = []
        first = 0
        for number, post in posts.items():
            if number in rows or len(wanted) >= POSTS_AT_ONCE:
                break
            first = first or number
            wanted.append(post)
        batch: list[bytes] = []
        room = POSTS_BYTES_AT_ONCE
        for what, data in wanted:
            batch.append(codec.encode([what, await self.get_blobs(data)]))
            room -= len(batch[-1])
            if room <= 0:
                break
        return first, batch

    # ------------------------------------------------------------------ receiving

    async def take(self, sender: str, first: int, posts: list[bytes]) -> int:
        """Take posts of another shard, numbered from `first`; gives the number of the last one that this shard has,
        once it is durable. A post of a kind that this version does not know is refused, and so are those after it: they
        wait at the sender until the shard is on a host that knows it."""
        core, state = self.core, self.state
        core.raise_if_closed()
        if core.draining:
            raise ProcessError(f"shard {self.shard} is being closed", shard=self.shard)
        for number, raw in enumerate(posts, first):
            seen = state.seen.get(sender, 0)
            if number > seen + 1:
                break
            if number == seen + 1:
                what, data = codec.decode(raw)
                if what not in state.by_post:
                    self._tell_unknown(sender, what)
                    break
                if sender.startswith(CLIENT) and what == "message":
                    self.messages.check_room(data["to"])
                receiver = state.by_post[what].find_receiver(what, data)
                if receiver and self._is_on_its_way(receiver, sender):
                    if len(raw) > BLOB_INLINE_BYTES_MAX or len(state.early) >= EARLY_RECEIVERS_MAX:
                        break  # too large, or too many, to be put aside: it waits at its sender
                    row = {"from": sender, "n": number, "what": what, "early": receiver, "data": data}
                    core.fact(state, "", "remote.taken", row)
                else:
                    # In a context of its own: the task that carries the posts here is not what they act for.
                    ContextVars().run(self._take_one, sender, number, what, data)
                    if state.early:
                        self._take_early(f"{sender}.{number}")
                point("remote.taken")
        journal = core.journal
        assert journal is not None
        last = state.seen.get(sender, 0)  # another call may take more while this one waits: that is not durable then
        await journal.wait_until_durable(journal.seq)
        return last

    def _tell_unknown(self, sender: str, what: str) -> None:
        if (sender, what) not in self._unknown:
            self._unknown.add((sender, what))
            _log.warning(
                "shard %s posts %r, which this version does not know: its posts wait until shard %s is on a host that"
                " does; upgrade this one",
                sender,
                what,
                self.shard,
            )

    def _is_on_its_way(self, pid: str, sender: str) -> bool:
        """Return whether a pid names a post of a third shard that is not here yet: that shard has told the sender of
        the process that it spawns here."""
        spawner, _, number = pid.rpartition(".")
        return (
            spawner in self.shards
            and spawner not in (sender, self.shard)
            and number.isdecimal()
            and int(number) > self.state.seen.get(spawner, 0)
            and self.core.lookup(pid) is None
        )

    def _take_early(self, pid: str) -> None:
        """Take the posts for a process that overtook its spawn, which is here now."""
        for sender, what, data in list(self.state.early.get(pid, ())):
            ContextVars().run(self._take_one, sender, 0, what, data, again=pid)

    def _take_one(self, sender: str, number: int, what: str, data: dict[str, Any], *, again: str = "") -> None:
        """Take a post: the row that says so, and what it does. One that cannot be taken must not hold up the others.
        `again` is the process for which it was put aside."""
        part = self.state.by_post[what]
        row: dict[str, Any] = {"from": sender, "n": number, "what": what}
        if again:
            row["again"] = again
        before, fault = None, None
        try:
            before = part.before_take(sender, what, data)
        except Exception as error:  # noqa: BLE001 - see above
            fault = error
        if fault is None and what in part.KEEPS:
            row["data"] = self._put_blobs(data)
        self.core.fact(self.state, "", "remote.taken", row)
        if fault is None:
            try:
                part.take(sender, what, data, before)
            except Exception as error:  # noqa: BLE001 - see above
                fault = error
        if fault is not None:
            context = {"message": f"the post {what!r} of shard {sender} cannot be taken", "exception": fault}
            self.core.loop.call_exception_handler(context)

    # ------------------------------------------------------------------ moments

    def process_started(self, parent: Any, process: Any) -> None:  # noqa: ARG002 (one signature)
        for part in self.parts:
            part.process_started(process)

    def process_ended(self, process: Process, how: Any) -> None:
        for part in self.parts:
            part.process_ended(process, how)

    def forgotten(self, process: Process) -> None:
        for part in self.parts:
            part.forgotten(process)

    def on_restored(self) -> None:
        for shard in self.state.posts:
            self._wake(shard)
        for part in self.parts:
            part.on_restored()
