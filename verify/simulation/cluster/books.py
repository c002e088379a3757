"""What must hold in a cluster, a sentence each, and the books that tell.

`Books` reads each row as it becomes durable, in the one order of the database, and counts again what shards say about
each other: posts and their numbers, messages by sender and receiver, spawns, watches, links. Each shard has the books
of a single kernel besides (`invariants.Ledger`). `at_rest` says what was promised and never came. None of it asks a
kernel, so one that counts wrongly is told from one that counts well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from lyra.core import codec
from lyra.kernel.journal import rows
from lyra.store.protocol import Record
from verify.simulation.invariants import Ledger
from verify.simulation.ledger import Violation

PROMISES: Final[dict[str, str]] = {
    "posts_in_order": "a shard takes the posts of another in their order, each once, and only durable ones",
    "post_kept": "a post is forgotten by its sender only when the receiver has it in its journal",
    "post_arrives": "every post has arrived when the cluster is at rest",
    "message_once": "messages between two processes are delivered in their order, each once",
    "message_lost": "a message that a shard takes is delivered, unless its receiver has ended or never began",
    "spawn_once": "what is spawned on another shard begins there once, or is refused with a reason",
    "answered_once": "every wait and every monitor across shards is answered once",
    "linked": "who is linked across shards to a process that ended is told of it, or ends too",
    "never_again": "a finished effect is never performed again, on any host",
    "at_most_once": "an effect that is not idempotent is performed again only by an answer `retry`",
    "started_first": "an effect that is not idempotent is performed only after its start is durable",
    "after_lease": "no host performs anything after its lease on the shard, or while another host has it",
    "one_writer": "no two hosts commit to one shard: epochs only grow",
    "acknowledged": "what a client was told is in the journal",
    "shards_open": "at rest every shard is open on one living host, which the directory names",
    "idle": "when a host is idle, every process on it has ended or waits",
    "ends": "every program ends, and every question is answered, once hosts and network are well again",
    "linearizable": "what askers saw of a cell is what they would have seen one after the other",
    "contained": "no error escapes into the event loop of a host",
}


class _Watch:
    """A wait or a monitor of a process abroad."""

    __slots__ = ("answers", "down", "form", "is_ended", "pid", "shard", "target", "target_shard")

    def __init__(self, shard: str, pid: str, target_shard: str, target: str, form: str) -> None:
        self.shard = shard
        self.pid = pid
        self.target_shard = target_shard
        self.target = target
        self.form = form
        self.answers = self.down = 0
        self.is_ended = False  # taken back, or its process ended


class Books:
    """See the module."""

    def __init__(self, shards: list[str]) -> None:
        self.ledgers = {shard: Ledger() for shard in shards}
        self.epochs = dict.fromkeys(shards, 0)
        self.posted: dict[tuple[str, str], list[tuple[str, dict[str, Any], str]]] = {}  # (from, to) → what, data, pid
        self.taken: dict[tuple[str, str], int] = {}
        self.acknowledged: dict[tuple[str, str], int] = {}
        self.delivered: dict[tuple[str, str], int] = {}  # (sender, receiver) → number of the last message
        self.received: set[tuple[str, str, int]] = set()  # sender, receiver, number
        self.spawned: dict[tuple[str, str], str] = {}  # (shard, pid) → who spawned it there
        self.refused: set[tuple[str, str]] = set()
        self.watches: dict[tuple[str, str, int], _Watch] = {}  # (shard, ref, how many of that ref before)
        self.watch_count: dict[tuple[str, str], int] = {}
        self.links: dict[tuple[str, str], str] = {}  # (from address, to address) → "linked" or "over"
        self.asked: dict[str, tuple[int, dict[str, Any]]] = {}  # question → moment and question
        self.answered: dict[str, tuple[int, Any]] = {}
        self.moment = 0  # rows that became durable anywhere: the one order of all

    def add(self, shard: str, epoch: int, records: list[Record]) -> Iterator[Violation]:
        """Note a batch that became durable."""
        if epoch < self.epochs[shard]:
            yield Violation("one_writer", f"{shard}: rows of epoch {epoch} after epoch {self.epochs[shard]}")
        self.epochs[shard] = max(epoch, self.epochs[shard])
        ledger = self.ledgers[shard]
        due: list[tuple[str, bytes]] = []  # messages that were taken and have to be delivered
        downs: list[tuple[str, str]] = []
        for record in records:
            self.moment += 1
            for violation in ledger.add(record):
                yield Violation(violation.name, f"{shard}: {violation.detail}")
            if record.kind.startswith("remote."):
                yield from self._remote(shard, record, due, downs)
            elif record.kind == "message.sent":
                yield from self._sent(shard, rows.DECODERS[record.kind].decode(record.data), due, downs)
            elif record.kind == "process.terminated":
                self._ended(shard, record.pid)
        yield from ledger.parts.ties.committed()
        for pid, _ in due:
            yield Violation("message_lost", f"{shard} took a message for {pid} and did not deliver it")
        for pid, ref in downs:
            yield Violation("answered_once", f"{shard} took the answer to {ref} and did not tell {pid}")

    def lives(self, shard: str, pid: str) -> bool:
        books = self.ledgers[shard].processes.get(pid)
        return books is not None and not books.ended

    # ------------------------------------------------------------------ rows

    def _remote(
        self, shard: str, record: Record, due: list[tuple[str, bytes]], downs: list[tuple[str, str]]
    ) -> Iterator[Violation]:
        data = codec.decode(record.data)
        kind = record.kind
        if kind == "remote.posted":
            posts = self.posted.setdefault((shard, data["to"]), [])
            posts.append((data["what"], data["data"], record.pid))
            if data["n"] != len(posts):
                yield Violation("posts_in_order", f"{shard} numbers a post for {data['to']} {data['n']}: {len(posts)}")
            self._posted(shard, data["to"], record.pid, data["what"], data["data"])
        elif kind == "remote.acknowledged":
            pair = (shard, data["to"])
            self.acknowledged[pair] = data["n"]
            if self.taken.get(pair, 0) < data["n"]:
                yield Violation(
                    "post_kept",
                    f"{shard} forgets posts up to {data['n']} for {data['to']}, which has {self.taken.get(pair, 0)}",
                )
        elif kind == "remote.taken":
            yield from self._taken(shard, data, due, downs)
        elif data["part"] == "spawns" and "refused" in data["data"]:
            self.refused.add((shard, record.pid))

    def _posted(self, shard: str, to: str, pid: str, what: str, data: dict[str, Any]) -> None:
        if what == "watch":
            count = self.watch_count[shard, data["ref"]] = self.watch_count.get((shard, data["ref"]), 0) + 1
            self.watches[shard, data["ref"], count] = _Watch(shard, pid, to, data["pid"], data["form"])
        elif what == "unwatch":
            for watch in self._watches_of(shard, data["ref"]):
                watch.is_ended = True
        elif what == "link":
            self.links[data["from"], f"{to}/{data['to']}"] = "linked"
        elif what in ("unlink", "exit"):
            for pair in ((data["from"], f"{to}/{data['to']}"), (f"{to}/{data['to']}", data["from"])):
                if pair in self.links:
                    self.links[pair] = "over"
        elif what == "spawn":
            self.spawned[to, data["pid"]] = data["by"]

    def _watches_of(self, shard: str, ref: str) -> list[_Watch]:
        count = self.watch_count.get((shard, ref), 0)
        return [self.watches[shard, ref, number] for number in range(1, count + 1)]

    def _taken(
        self, shard: str, data: dict[str, Any], due: list[tuple[str, bytes]], downs: list[tuple[str, str]]
    ) -> Iterator[Violation]:
        pair, number, what = (data["from"], shard), data["n"], data["what"]
        last = self.taken.get(pair, 0)
        if number != last + 1:
            yield Violation("posts_in_order", f"{shard} takes post {number} of {pair[0]} after {last}")
        self.taken[pair] = max(number, last)
        if data["from"].startswith("~"):
            return
        posts = self.posted.get(pair, [])
        if number > len(posts):
            yield Violation("posts_in_order", f"{shard} takes post {number} of {pair[0]}, which is not durable there")
            return
        sent_what, sent, _ = posts[number - 1]
        if sent_what != what:
            yield Violation("posts_in_order", f"{shard} takes {what} for post {number} of {pair[0]}: {sent_what}")
        elif what == "message" and self.lives(shard, sent["to"]):
            due.append((sent["to"], sent["message"]))
        elif what == "ended":
            for watch in self._watches_of(shard, sent["ref"])[-1:]:
                watch.answers += 1
                if watch.answers > 1:
                    yield Violation("answered_once", f"{sent['ref']} of {shard} is answered a second time")
                if watch.form == "down" and not watch.is_ended and self.lives(shard, watch.pid):
                    downs.append((watch.pid, sent["ref"]))

    def _sent(
        self, shard: str, row: rows.Sent, due: list[tuple[str, bytes]], downs: list[tuple[str, str]]
    ) -> Iterator[Violation]:
        raw = bytes(row.message)
        if (row.to, raw) in due:
            due.remove((row.to, raw))
        message = codec.decode(raw)
        if not isinstance(message, dict):
            return
        if row.form == "down":
            if (row.to, message["ref"]) in downs:
                downs.remove((row.to, message["ref"]))
        elif "for" in message and not row.dropped:
            sender, number, receiver = message["from"], message["n"], f"{shard}/{row.to}"
            last = self.delivered.get((sender, receiver))
            if last is not None and number != last + 1:
                yield Violation("message_once", f"{receiver} gets message {number} of {sender} after {last}")
            self.delivered[sender, receiver] = number
            self.received.add((sender, receiver, number))
        elif "reply" in message:
            self.asked.setdefault(message["question"], (self.moment, message))
        elif "was" in message:
            self.answered.setdefault(message["question"], (self.moment, message["was"]))

    def _ended(self, shard: str, pid: str) -> None:
        for watch in self.watches.values():
            if watch.shard == shard and watch.pid == pid:
                watch.is_ended = True

    # ------------------------------------------------------------------ at rest

    def at_rest(self) -> Iterator[Violation]:
        """Everything has ended: what was promised, and did not come?"""
        for (sender, receiver), posts in self.posted.items():
            if self.taken.get((sender, receiver), 0) != len(posts):
                yield Violation(
                    "post_arrives",
                    f"{receiver} has {self.taken.get((sender, receiver), 0)} of {len(posts)} posts of {sender}",
                )
            if self.acknowledged.get((sender, receiver), 0) != len(posts):
                yield Violation("post_arrives", f"{sender} does not know that {receiver} has all its posts")
        for shard, pid in self.spawned:
            if pid not in self.ledgers[shard].processes and (shard, pid) not in self.refused:
                yield Violation("spawn_once", f"{self.spawned[shard, pid]} spawned {shard}/{pid}, which never began")
        for (shard, ref, _), watch in self.watches.items():
            if not watch.is_ended and not watch.answers and not self.lives(watch.target_shard, watch.target):
                yield Violation("answered_once", f"{ref} of {shard}/{watch.pid} was never answered")
        for (left, right), state in self.links.items():
            ends = [self.lives(*address.split("/", 1)) for address in (left, right)]
            if state == "linked" and ends[0] != ends[1]:
                yield Violation("linked", f"{left} and {right} are linked, and only one of them has ended")
        for shard, ledger in self.ledgers.items():
            for violation in ledger.parts.at_rest():
                yield Violation(violation.name, f"{shard}: {violation.detail}")
