"""Posts: what one shard tells another, once and in order, across any crash of either.

    sender      row `remote.posted` in the batch of what caused it; sent on when that batch is durable, again until
                the receiver has it; row `remote.acknowledged` then, and the post is forgotten
    receiver    row `remote.taken` with the number of the post, in one batch with everything that the post does there;
                answers with the number once the batch is durable. A number that it has seen does nothing again

Posts of a pair of shards are numbered and taken in their order, so a receiver remembers one number for each sender.
A post never leaves before the rows that it depends on are durable, since it is one of them. Whether, when and how
often a batch of posts reaches the other shard is up to `Remote.deliver`, which the cluster fills in.

What posts there are, and what each does, is a matter of the parts (`Part`): each has its kinds of posts, what it
remembers of those it sent and took, and what one does where it arrives.

The address of a process is `shard/pid`. The shard never changes, its owner does: addresses in journals stay true.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar, Final

from lyra.core import codec
from lyra.core.faultpoint import point
from lyra.core.limits import POSTS_AT_ONCE, POSTS_WAITING_MAX
from lyra.errors import LyraError, Overloaded, ProcessError
from lyra.kernel.base.subsystem import Subsystem

if TYPE_CHECKING:
    from lyra.kernel.assembly import KernelParts
    from lyra.kernel.base.core import Core
    from lyra.kernel.process.process import Process

_log: Final = logging.getLogger("lyra.kernel")
_RETRY_FIRST_S: Final = 0.05
_RETRY_MOST_S: Final = 2.0

# Shard, number of the first post and the posts → number of the last post that the shard has. Raises LyraError.
Deliver = Callable[[str, int, list[bytes]], Awaitable[int]]


def split_address(address: str) -> tuple[str, str]:
    """Return the shard and the pid of an address; "" for the shard of a bare pid or name."""
    shard, slash, pid = address.partition("/")
    return (shard, pid) if slash else ("", address)


def home_of(name: str, shards: Iterable[str]) -> str:
    """Return the home shard of a name: the one that draws the highest number for it. Another shard in the cluster takes
    names over from each, and moves none between the others."""
    return max(sorted(shards), key=lambda shard: blake2b(f"{shard}/{name}".encode(), digest_size=8).digest())


class Part:
    """A part of what shards tell each other: some kinds of posts. Each method does nothing unless a part overrides it.

    What a part remembers is made of the posts that its shard wrote (`apply_posted`) and took (`apply_taken`), and of
    facts of its own (`apply_noted`, written by `Remote.note`); like a `State` it may use nothing but the row. `take` is
    what a post does beside that where it arrives: it runs in one go with the row, and never waits or raises.
    """

    NAME: ClassVar[str] = ""  # in a snapshot, and in the rows of its own facts; empty where it remembers nothing
    SENDS: ClassVar[frozenset[str]] = frozenset()  # its kinds of posts
    KEEPS: ClassVar[frozenset[str]] = frozenset()  # those whose data `apply_taken` needs, so that the row repeats it

    def apply_posted(self, pid: str, shard: str, what: str, data: dict[str, Any]) -> None:
        """Remember a post that this shard wrote, caused by the process `pid`."""

    def apply_taken(self, shard: str, what: str, data: dict[str, Any]) -> None:
        """Remember a post of another shard, one of `KEEPS`."""

    def apply_noted(self, pid: str, time: float, data: dict[str, Any]) -> None:
        """Remember a fact of the part itself."""

    def dump(self) -> Any:
        """Return what it remembers as plain data."""

    def load(self, data: Any) -> None:
        """Load what `dump` gave, into a fresh part."""

    def before_take(self, sender: str, what: str, data: dict[str, Any]) -> Any:
        """Return what `take` has to know of how things stood before the post was remembered."""

    def take(self, sender: str, what: str, data: dict[str, Any], before: Any) -> None:
        """Do what a post says."""

    def process_ended(self, process: Process, how: Any) -> None:
        """Note that a process of this shard has ended."""

    def on_restored(self) -> None:
        """Act on the journal that has been read; no program has run yet."""


class RemoteState:
    """What a shard remembers of the others: the numbers of posts, those on their way, and what the parts know."""

    NAME: ClassVar[str] = "remote"
    KINDS: ClassVar[frozenset[str]] = frozenset(
        {"remote.posted", "remote.taken", "remote.acknowledged", "remote.noted"}
    )

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}  # shard → number of the last post to it
        self.posts: dict[str, dict[int, list[Any]]] = {}  # shard → number → what and data, until acknowledged
        self.seen: dict[str, int] = {}  # shard → number of the last post from it
        self.parts: dict[str, Part] = {}  # by name
        self.by_post: dict[str, Part] = {}  # by kind of post

    def add(self, part: Part) -> None:
        if part.NAME:
            self.parts[part.NAME] = part
        for what in part.SENDS:
            self.by_post[what] = part

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:
        if kind == "remote.posted":
            shard, number, what = data["to"], data["n"], data["what"]
            self.numbers[shard] = number
            self.posts.setdefault(shard, {})[number] = [what, data["data"]]
            self.by_post[what].apply_posted(pid, shard, what, data["data"])
        elif kind == "remote.acknowledged":
            posts = self.posts.get(data["to"], {})
            for number in [number for number in posts if number <= data["n"]]:
                del posts[number]
            if not posts:
                self.posts.pop(data["to"], None)
        elif kind == "remote.taken":
            self.seen[data["from"]] = data["n"]
            if "data" in data:
                self.by_post[data["what"]].apply_taken(data["from"], data["what"], data["data"])
        else:
            self.parts[data["part"]].apply_noted(pid, time, data["data"])

    def dump(self) -> Any:
        return {
            "numbers": self.numbers,
            "posts": self.posts,
            "seen": self.seen,
            "parts": {name: part.dump() for name, part in self.parts.items()},
        }

    def load(self, data: Any) -> None:
        self.numbers = {str(shard): int(number) for shard, number in data["numbers"].items()}
        self.seen = {str(shard): int(number) for shard, number in data["seen"].items()}
        self.posts = {
            shard: {int(number): post for number, post in posts.items()} for shard, posts in data["posts"].items()
        }
        for name, kept in data["parts"].items():
            self.parts[name].load(kept)


class Remote(Subsystem):
    """`kernel.core.remote` of a shard; see the module. `parts` makes the parts, given the kernel's and this."""

    NAME = "remote"

    def __init__(
        self,
        parts: KernelParts,
        shard: str,
        shards: Collection[str],
        deliver: Deliver,
        make: Iterable[Callable[[KernelParts, Remote], Part]] | None = None,
    ) -> None:
        from lyra.kernel.remote.acts import Acts
        from lyra.kernel.remote.groups import SharedGroups
        from lyra.kernel.remote.schedules import Schedules
        from lyra.kernel.remote.services import SharedServices
        from lyra.kernel.remote.ties import Ties

        self.shard = shard
        self.shards = shards  # the names of all
        self.deliver = deliver
        self.state = RemoteState()
        self.core: Core[Process] = parts.core
        self.core.remote = self
        self.acts = Acts(parts, self)
        self.ties = Ties(parts, self)
        self.groups = SharedGroups(parts, self)
        self.schedules = Schedules(parts, self)
        self.services = SharedServices(parts, self)
        self.parts: list[Part] = [
            self.acts,
            self.ties,
            self.groups,
            self.schedules,
            self.services,
            *[make_part(parts, self) for make_part in make or ()],
        ]
        for part in self.parts:
            self.state.add(part)
        self._rows: dict[str, dict[int, int]] = {}  # shard → number → row of a post that is not durable yet
        self._feeds: dict[str, asyncio.Event] = {}
        self.core.after_commit.append(self._on_commit)

    # ------------------------------------------------------------------ addresses

    def knows(self, address: str) -> bool:
        """Return whether an address is one of another shard of this cluster."""
        shard, slash, pid = address.partition("/")
        return bool(slash and pid) and shard != self.shard and shard in self.shards

    def own(self, address: str) -> str | None:
        """Return the pid of an address in this shard; None where it is another one's or none."""
        shard, slash, pid = address.partition("/")
        return pid if slash and shard == self.shard else None

    def address_of(self, pid: str) -> str:
        return f"{self.shard}/{pid}"

    def home_of(self, name: str) -> str:
        """Return the shard that keeps what several shards share under a name; every shard gives the same."""
        return home_of(name, self.shards)

    # ------------------------------------------------------------------ sending

    def next_number(self, shard: str) -> int:
        """Return the number that the next post for a shard will have: no other of this pair ever has it."""
        return self.state.numbers.get(shard, 0) + 1

    def post(self, shard: str, what: str, data: dict[str, Any], *, pid: str = "", refusable: bool = True) -> int:
        """Write a post for another shard, caused by the process `pid`; gives its row.

        Overloaded where too many wait for that shard. One that is not `refusable` (an end, an answer) is written all
        the same: nobody is there to be told.
        """
        core, state = self.core, self.state
        waiting = state.posts.get(shard)
        if refusable and waiting is not None and len(waiting) >= POSTS_WAITING_MAX:
            raise Overloaded(
                f"{len(waiting)} posts wait for shard {shard}", hint="is it open? lyra cluster status says", shard=shard
            )
        number = self.next_number(shard)
        seq = core.fact(state, pid, "remote.posted", {"to": shard, "n": number, "what": what, "data": data})
        self._rows.setdefault(shard, {})[number] = seq
        return seq

    def note(self, part: Part, data: dict[str, Any], *, pid: str = "") -> int:
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
            first, batch = self._next_batch(shard)
            if not batch:
                woken.clear()
                await woken.wait()
                continue
            try:
                last = await self.deliver(shard, first, batch)
            except (LyraError, OSError) as error:
                _log.info("posts of shard %s for %s wait: %s", self.shard, shard, error)
                await core.outside_pause(delay_s)
                delay_s = min(2 * delay_s, _RETRY_MOST_S)
                continue
            delay_s = _RETRY_FIRST_S
            if core.stopping or core.failure is not None:
                return
            point("remote.delivered")
            if last >= first:
                core.fact(self.state, "", "remote.acknowledged", {"to": shard, "n": last})
            else:
                await core.outside_pause(_RETRY_FIRST_S)

    def _next_batch(self, shard: str) -> tuple[int, list[bytes]]:
        """Return the number of the first post that waits, and the durable posts from there on, some at a time."""
        posts, rows = self.state.posts.get(shard, {}), self._rows.get(shard, {})
        batch: list[bytes] = []
        first = 0
        for number, post in posts.items():
            if number in rows or len(batch) >= POSTS_AT_ONCE:
                break
            first = first or number
            batch.append(codec.encode(post))
        return first, batch

    # ------------------------------------------------------------------ receiving

    async def take(self, sender: str, first: int, posts: list[bytes]) -> int:
        """Take posts of another shard, numbered from `first`; gives the number of the last one that this shard has,
        once it is durable."""
        core, state = self.core, self.state
        core.raise_if_closed()
        if core.draining:
            raise ProcessError(f"shard {self.shard} is being closed", shard=self.shard)
        for number, raw in enumerate(posts, first):
            seen = state.seen.get(sender, 0)
            if number > seen + 1:
                break
            if number == seen + 1:
                self._take_one(sender, number, *codec.decode(raw))
                point("remote.taken")
        journal = core.journal
        assert journal is not None
        await journal.wait_until_durable(journal.seq)
        return state.seen.get(sender, 0)

    def _take_one(self, sender: str, number: int, what: str, data: dict[str, Any]) -> None:
        part = self.state.by_post.get(what)
        row: dict[str, Any] = {"from": sender, "n": number, "what": what}
        if part is None:
            _log.warning("shard %s posted %r, which this version does not know", sender, what)
            self.core.fact(self.state, "", "remote.taken", row)
            return
        before = part.before_take(sender, what, data)
        if what in part.KEEPS:
            row["data"] = data
        self.core.fact(self.state, "", "remote.taken", row)
        part.take(sender, what, data, before)

    # ------------------------------------------------------------------ moments

    def process_ended(self, process: Process, how: Any) -> None:
        for part in self.parts:
            part.process_ended(process, how)

    def on_restored(self) -> None:
        for shard in self.state.posts:
            self._wake(shard)
        for part in self.parts:
            part.on_restored()


def drop_item(table: dict[str, dict[str, Any]], key: str, item: str) -> None:
    """Take an item out of a table of tables, and a table that is empty with it."""
    items = table.get(key)
    if items is not None:
        items.pop(item, None)
        if not items:
            del table[key]


def read_tables(data: Mapping[str, Any], names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the tables that a part wrote down; TypeError where one is none."""
    tables = {}
    for name in names:
        table = data.get(name, {})
        if not isinstance(table, Mapping):
            raise TypeError(f"{name} is no table")
        tables[name] = {str(key): value for key, value in table.items()}
    return tables
