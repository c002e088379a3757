"""What a shard remembers of the other shards, in parts.

A `RemotePart` owns some kinds of posts and what it remembers of them. `RemoteState` is all of it as one state of the
kernel: the numbers of posts, those on their way, and what the parts know. Like every state it is made of rows alone.
How posts get from shard to shard is in `posts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar, Final

from lyra.core import codec
from lyra.core.limits import POST_CLIENTS_KEPT
from lyra.errors import InternalError, StoreError

if TYPE_CHECKING:
    from lyra.kernel.process.process import Process

CLIENT: Final = "~"  # begins the name by which a client of the cluster posts; no shard has such a name


def split_address(address: str) -> tuple[str, str]:
    """Return the shard and the pid of an address; "" for the shard of a bare pid or name."""
    shard, slash, pid = address.partition("/")
    return (shard, pid) if slash else ("", address)


def home_of(name: str, shards: Iterable[str]) -> str:
    """Return the home shard of a name: the one that draws the highest number for it. Another shard in the cluster takes
    names over from each, and moves none between the others."""
    return max(sorted(shards), key=lambda shard: blake2b(f"{shard}/{name}".encode(), digest_size=8).digest())


class RemotePart:
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
        """Load what `dump` gave in the place of all that it remembers: into new tables, since a snapshot is made with
        a copy of the part."""

    def find_receiver(self, what: str, data: dict[str, Any]) -> str:  # noqa: ARG002 (one signature)
        """Return the process that a post is for and that has to be there when it is taken; "" for no process."""
        return ""

    def before_take(self, sender: str, what: str, data: dict[str, Any]) -> Any:
        """Return what `take` has to know of how things stood before the post was remembered."""

    def take(self, sender: str, what: str, data: dict[str, Any], before: Any) -> None:
        """Do what a post says."""

    def list_needed(self) -> Iterable[str]:
        """Return the processes that it refers to and that must not be put away when they have ended."""
        return ()

    def process_started(self, process: Process) -> None:
        """Note that a process that another one of this shard starts begins."""

    def process_ended(self, process: Process, how: Any) -> None:
        """Note that a process of this shard has ended."""

    def forgotten(self, process: Process) -> None:
        """Note that an ended process leaves the table."""

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
        self.times: dict[str, dict[int, float]] = {}  # shard → number → when a post that waits was written
        self.seen: dict[str, int] = {}  # shard → number of the last post from it
        # pid whose spawn is on its way from a third shard → sender, kind and data of posts that overtook it
        self.early: dict[str, list[list[Any]]] = {}
        self.parts: dict[str, RemotePart] = {}  # by name
        self._empty: dict[str, bytes] = {}  # what each dumps that has seen no row
        self.by_post: dict[str, RemotePart] = {}  # by kind of post

    def add(self, part: RemotePart) -> None:
        if part.NAME:
            self.parts[part.NAME] = part
            self._empty[part.NAME] = codec.encode(part.dump())
        for what in part.SENDS:
            self.by_post[what] = part

    def list_needed(self) -> Iterable[str]:
        return [pid for part in self.parts.values() for pid in part.list_needed()]

    def fresh(self) -> RemoteState:
        """Return a state with the same parts that has not taken a row, for a snapshot: see `RemotePart.load`."""
        state = RemoteState()
        for part in {id(part): part for part in (*self.parts.values(), *self.by_post.values())}.values():
            bare = copy(part)
            if part.NAME:
                bare.load(codec.decode(self._empty[part.NAME]))
                shared = [name for name, value in vars(bare).items() if value is vars(part)[name]]
                tables = [name for name in shared if name[0] != "_" and isinstance(vars(bare)[name], dict | list | set)]
                if tables:
                    raise InternalError(f"{part.NAME} keeps {', '.join(tables)} when it loads what it remembers")
            state.add(bare)
        return state

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:
        if kind == "remote.posted":
            shard, number, what = data["to"], data["n"], data["what"]
            self.numbers[shard] = number
            self.posts.setdefault(shard, {})[number] = [what, data["data"]]
            self.times.setdefault(shard, {})[number] = time
            part = self.by_post.get(what)
            if part is None:
                raise _newer(f"a post {what!r}")
            part.apply_posted(pid, shard, what, data["data"])
        elif kind == "remote.acknowledged":
            posts, times = self.posts.get(data["to"], {}), self.times.get(data["to"], {})
            while posts and (number := next(iter(posts))) <= data["n"]:
                del posts[number]
                times.pop(number, None)
            if not posts:
                self.posts.pop(data["to"], None)
                self.times.pop(data["to"], None)
        elif kind == "remote.taken":
            if "again" in data:
                self._drop_early(data["again"])
            else:
                self._see(data["from"], data["n"])
            if "early" in data:
                self.early.setdefault(data["early"], []).append([data["from"], data["what"], data["data"]])
                return
            if "data" not in data:
                return
            part = self.by_post.get(data["what"])
            if part is None:
                raise _newer(f"a post {data['what']!r}")
            part.apply_taken(data["from"], data["what"], data["data"])
        else:
            part = self.parts.get(data["part"])
            if part is None:
                raise _newer(f"facts of {data['part']!r}")
            part.apply_noted(pid, time, data["data"])

    def _drop_early(self, pid: str) -> None:
        posts = self.early[pid]
        del posts[0]
        if not posts:
            del self.early[pid]

    def _see(self, sender: str, number: int) -> None:
        """Remember the number of the last post of a shard or a client; of clients those that posted last."""
        if sender.startswith(CLIENT):
            if sender not in self.seen and sum(name.startswith(CLIENT) for name in self.seen) >= POST_CLIENTS_KEPT:
                del self.seen[next(name for name in self.seen if name.startswith(CLIENT))]
            self.seen.pop(sender, None)
        self.seen[sender] = number

    def dump(self) -> Any:
        return {
            "numbers": self.numbers,
            "posts": self.posts,
            "times": self.times,
            "seen": self.seen,
            "early": self.early,
            "parts": {name: part.dump() for name, part in self.parts.items()},
        }

    def load(self, data: Any) -> None:
        self.numbers = {str(shard): int(number) for shard, number in data["numbers"].items()}
        self.seen = {str(shard): int(number) for shard, number in data["seen"].items()}
        self.posts = {
            shard: {int(number): post for number, post in posts.items()} for shard, posts in data["posts"].items()
        }
        self.times = {
            shard: {int(number): float(time) for number, time in times.items()}
            for shard, times in data.get("times", {}).items()
        }
        self.early = {str(pid): [list(post) for post in posts] for pid, posts in data.get("early", {}).items()}
        for name, kept in data["parts"].items():
            part = self.parts.get(name)
            if part is None:
                raise _newer(f"facts of {name!r}")
            part.load(kept)


def _newer(what: str) -> StoreError:
    return StoreError(
        f"the shard was written by a newer Lyra: it has {what}, which this one does not know",
        hint="upgrade with: pip install --upgrade lyra-agents",
    )


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
