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
from lyra.kernel.remote.part import CLIENT
from lyra.store.protocol import Record
from verify.histories import Op, check, compared, once, register
from verify.simulation.cluster.shared import GROUP, Questions, Trees
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
    "linearizable": "what was seen of a cell and of a blackboard could have been seen one after the other",
    "spent_within_limit": "what a process and all that it spawns on any shard spend stays within its limit",
    "fired_once": "each due time of a schedule starts one process, on whichever host, and due times only grow",
    "within_rate": "no time has more calls than a rate limit over all shards allows",
    "rate_usable": "callers on several shards can use 99 % of a rate limit while nothing moves",
    "service_once": "a request to a service that is not to be repeated is handled once at most",
    "service_room": "a handler gets no more requests at a time than it takes, and none while it is unhealthy",
    "service_answer": "who asks a service gets the answer to that request",
    "service_found": "a service is found from every shard once all is well again",
    "broadcast_once": "what is broadcast is delivered to a member once, in the order of its sender",
    "broadcast_lost": "a broadcast that a shard takes is delivered to all members that live there",
    "group_agrees": "at rest every shard that reads a group has what its home has",
    "tree_order": "children on several shards begin in their order, and end in the reverse, one life at a time",
    "person_once": "a question to a person has one answer, which those who gave it and who asked are told",
    "contained": "no error escapes into the event loop of a host",
}


class _Batch:
    """What the rows of one batch made due, and what they did about it: both become durable together, or a crash between
    the two would lose it. Each is a tuple of what is due, and to whom."""

    def __init__(self) -> None:
        self.due: dict[tuple[Any, ...], tuple[str, str]] = {}  # what → promise and sentence
        self.done: set[tuple[Any, ...]] = set()

    def broken(self) -> Iterator[Violation]:
        for what, (promise, sentence) in self.due.items():
            if what not in self.done:
                yield Violation(promise, sentence)


class Books:
    """See the module."""

    def __init__(self, shards: list[str], *, has_room: bool = True) -> None:
        self.has_room = has_room  # no mailbox is ever full
        self.trees = Trees()
        self.questions = Questions()
        self.casts: dict[tuple[str, str], int] = {}  # (sender, member) → number of the last broadcast
        self.members: dict[str, set[str]] = {}  # shard → pids of its own in the group
        self.ledgers = {shard: Ledger() for shard in shards}
        self.epochs = dict.fromkeys(shards, 0)
        self.posted: dict[tuple[str, str], list[tuple[str, dict[str, Any]]]] = {}  # (from, to) → what and data
        self.taken: dict[tuple[str, str], int] = {}
        self.acknowledged: dict[tuple[str, str], int] = {}
        self.delivered: dict[tuple[str, str], int] = {}  # (sender, receiver) → number of the last message
        self.received: set[tuple[str, str, int]] = set()  # sender, receiver, number
        self.spawned: dict[tuple[str, str], str] = {}  # (shard, pid) → who spawned it there
        self.refused: set[tuple[str, str]] = set()
        self.asking: dict[tuple[str, str], tuple[str, str]] = {}  # (shard, ref) → pid and form, until answered
        self.watchers: dict[tuple[str, str], set[tuple[str, str]]] = {}  # (shard, pid) → who is to be told: shard, ref
        self.links: dict[tuple[str, str], set[str]] = {}  # (shard, pid) → addresses, as that shard knows them
        self.unlinking: dict[tuple[str, str, str], int] = {}  # shard, pid, address → not confirmed by that one yet
        self.names: dict[tuple[str, str], str] = {}  # (shard, name) → pid
        self.spent: dict[str, int] = {}  # address → what its own effects cost
        self.fired: list[Op] = []
        self.compared: list[Op] = []  # what hosts compared on a blackboard
        self.settled: dict[str, list[float]] = {}  # schedule → its due times, as its home settled them
        self.asked: dict[str, tuple[int, dict[str, Any]]] = {}  # question → moment and question
        self.answered: dict[str, tuple[int, Any]] = {}
        self.moment = 0  # rows that became durable anywhere: the one order of all

    def add(self, shard: str, epoch: int, records: list[Record]) -> Iterator[Violation]:
        """Note a batch that became durable."""
        if epoch < self.epochs[shard]:
            yield Violation("one_writer", f"{shard}: rows of epoch {epoch} after epoch {self.epochs[shard]}")
        self.epochs[shard] = max(epoch, self.epochs[shard])
        ledger, batch = self.ledgers[shard], _Batch()
        for record in records:
            self.moment += 1
            found = list(ledger.add(record))
            for violation in () if _is_of_other(record) else found:
                yield Violation(violation.name, f"{shard}: {violation.detail}")
            if record.kind.startswith("remote."):
                yield from self._remote(shard, record, batch)
            elif record.kind == "message.sent":
                yield from self._sent(rows.DECODERS[record.kind].decode(record.data), batch)
            elif record.kind == "process.created":
                batch.done.add(("begun", record.pid))
                if "@" in record.pid:  # one firing of a schedule
                    self.fired.append(Op(record.pid, "fire", (), True, self.moment, self.moment, shard))
                created = rows.DECODERS[record.kind].decode(record.data)
                self.names[shard, created.name] = record.pid
                yield from self.trees.begin(shard, record.pid, created)
            elif record.kind == "interrupt.resolved":
                ended = rows.DECODERS[record.kind].decode(record.data)
                yield from self.questions.answer(shard, record.pid, ended)
            elif record.kind in ("group.joined", "group.left") and "/" not in record.pid:
                self._note_member(shard, record)
            elif record.kind == "effect.finished":
                self._finished(shard, record.pid, rows.DECODERS[record.kind].decode(record.data))
            elif record.kind == "process.stopping":
                batch.done.add(("told", record.pid))
            elif record.kind == "process.terminated":
                self._ended(shard, record.pid, batch)
                how = rows.DECODERS[record.kind].decode(record.data)
                yield from self.trees.end(shard, record.pid, how)
                yield from self.questions.end(shard, record.pid, how)
        yield from ledger.parts.ties.committed()
        yield from batch.broken()

    def lives(self, shard: str, pid: str) -> bool:
        books = self.ledgers[shard].processes.get(pid)
        return books is not None and not books.ended

    def has_ended(self, address: str) -> bool:
        shard, _, pid = address.partition("/")
        return pid in self.ledgers[shard].processes and not self.lives(shard, pid)

    def _note_member(self, shard: str, record: Record) -> None:
        members = self.members.setdefault(shard, set())
        if codec.decode(record.data)["group"] == GROUP:
            (members.add if record.kind == "group.joined" else members.discard)(record.pid)

    def find(self, shard: str, word: str) -> str:
        """Return the pid that a pid or a name means."""
        return word if word in self.ledgers[shard].processes else self.names.get((shard, word), word)

    # ------------------------------------------------------------------ rows

    def _remote(self, shard: str, record: Record, batch: _Batch) -> Iterator[Violation]:
        data = codec.decode(record.data)
        kind = record.kind
        if kind == "remote.posted":
            posts = self.posted.setdefault((shard, data["to"]), [])
            posts.append((data["what"], data["data"]))
            if data["n"] != len(posts):
                yield Violation("posts_in_order", f"{shard} numbers a post for {data['to']} {data['n']}: {len(posts)}")
            self._posted(shard, data["to"], record.pid, data["what"], data["data"], batch)
        elif kind == "remote.acknowledged":
            pair = (shard, data["to"])
            self.acknowledged[pair] = data["n"]
            if self.taken.get(pair, 0) < data["n"]:
                yield Violation(
                    "post_kept",
                    f"{shard} forgets posts up to {data['n']} for {data['to']}, which has {self.taken.get(pair, 0)}",
                )
        elif kind == "remote.taken":
            yield from self._taken(shard, data, batch)
        elif data["part"] == "spawns" and "refused" in data["data"]:
            self.refused.add((shard, record.pid))
            batch.done.add(("begun", record.pid))
        elif data["part"] == "schedules" and "settled" in data["data"]:
            self.settled.setdefault(data["data"]["settled"], []).append(data["data"]["due"])

    def _posted(self, shard: str, to: str, pid: str, what: str, data: dict[str, Any], batch: _Batch) -> None:
        if what == "watch":
            self.asking[shard, data["ref"]] = (pid, data["form"])
        elif what == "unwatch":
            self.asking.pop((shard, data["ref"]), None)
        elif what == "ended":
            batch.done.add(("ended", to, data["ref"]))
            self.watchers.get((shard, data["pid"]), set()).discard((to, data["ref"]))
        elif what == "link":
            self.links.setdefault((shard, pid), set()).add(f"{to}/{data['to']}")
        elif what in ("unlink", "exit"):
            if what == "unlink":
                key = (shard, pid, f"{to}/{data['to']}")
                self.unlinking[key] = self.unlinking.get(key, 0) + 1
            self.links.get((shard, pid), set()).discard(f"{to}/{data['to']}")
            batch.done |= {("exit", pid, f"{to}/{data['to']}"), ("refused", f"{to}/{data['to']}", data["from"])}
        elif what == "spawn":
            self.spawned[to, data["pid"]] = data.get("by", "a schedule")

    def _taken(self, shard: str, data: dict[str, Any], batch: _Batch) -> Iterator[Violation]:
        sender, number, what = data["from"], data["n"], data["what"]
        pair = (sender, shard)
        last = self.taken.get(pair, 0)
        if number != last + 1:
            yield Violation("posts_in_order", f"{shard} takes post {number} of {sender} after {last}")
        self.taken[pair] = max(number, last)
        if sender.startswith(CLIENT):
            return
        due: tuple[Any, ...]
        posts = self.posted.get(pair, [])
        if number > len(posts):
            yield Violation("posts_in_order", f"{shard} takes post {number} of {sender}, which is not durable there")
            return
        sent_what, sent = posts[number - 1]
        if sent_what != what:
            yield Violation("posts_in_order", f"{shard} takes {what} for post {number} of {sender}: {sent_what}")
        elif what == "message":
            pid = self.find(shard, sent["to"])
            if self.lives(shard, pid):
                due = ("message", pid, sent["message"])
                batch.due[due] = ("message_lost", f"{shard} took a message for {pid} and did not deliver it")
        elif what == "spawn":
            if not self.lives(shard, sent["pid"]) and (shard, sent["pid"]) not in self.refused:
                due = ("begun", sent["pid"])
                batch.due[due] = ("spawn_once", f"{shard} took the spawn of {sent['pid']}, which did not begin")
        elif what == "ended":
            self._answered(shard, sent, batch)
        elif what == "group.message":
            for pid in self.members.get(shard, set()) if self.has_room else ():
                if self.lives(shard, pid) and f"{shard}/{pid}" not in sent["exclude"]:
                    due = ("message", pid, sent["message"])
                    batch.due[due] = ("broadcast_lost", f"{shard} took a broadcast and did not deliver it to {pid}")
        else:
            self._tied(shard, sender, what, sent, batch)

    def _answered(self, shard: str, sent: dict[str, Any], batch: _Batch) -> None:
        """Note the answer to a watch; an answer to one that was taken back does nothing."""
        pid, form = self.asking.pop((shard, sent["ref"]), ("", ""))
        if form == "down" and self.lives(shard, pid):
            due = ("down", pid, sent["ref"].rpartition("~")[0])  # the other shard knows the life of the pid besides
            batch.due[due] = (
                "answered_once",
                f"{shard} took the end that {sent['ref']} is about and did not tell {pid}",
            )

    def _tied(self, shard: str, sender: str, what: str, sent: dict[str, Any], batch: _Batch) -> None:
        """Note a watch or a link, or the end of one, at the shard that it is about."""
        if what == "watch":
            watcher, pid = (sender, sent["ref"]), self.find(shard, sent["pid"])
            if self.lives(shard, pid):
                self.watchers.setdefault((shard, pid), set()).add(watcher)
            else:
                due = ("ended", *watcher)
                batch.due[due] = ("answered_once", f"{sender} asks about {shard}/{pid}, which is not alive: no answer")
        elif what == "unwatch":
            self.watchers.get((shard, self.find(shard, sent["pid"])), set()).discard((sender, sent["ref"]))
        elif what == "link":
            pid = self.find(shard, sent["to"])
            if not self.lives(shard, pid):
                due = ("refused", sent["from"], f"{shard}/{sent['to']}")
                batch.due[due] = ("linked", f"{sent['from']} links to {shard}/{pid}, which is not alive: no exit")
            elif not self.unlinking.get((shard, pid, sent["from"]), 0):
                self.links.setdefault((shard, pid), set()).add(sent["from"])
        elif what == "unlinked":
            self.unlinking[shard, sent["to"], sent["from"]] -= 1
        elif what in ("unlink", "exit"):
            pid = self.find(shard, sent["to"])
            links = self.links.get((shard, pid), set())
            ledger = self.ledgers[shard]
            heeds = what == "exit" and (sent["reason"] != "normal" or pid in ledger.parts.ties.traps)
            if heeds and sent["from"] in links and self.lives(shard, pid) and not ledger.processes[pid].stopping:
                batch.due["told", pid] = ("linked", f"{shard} took the end of {sent['from']} and {pid} is not told")
            links.discard(sent["from"])

    def _sent(self, row: rows.Sent, batch: _Batch) -> Iterator[Violation]:
        raw = bytes(row.message)
        batch.done.add(("message", row.to, raw))
        message = codec.decode(raw)
        if not isinstance(message, dict):
            return
        if row.form == "down":
            batch.done.add(("down", row.to, message["ref"]))
        elif row.form == "exit":
            batch.done.add(("told", row.to))
        elif "cast" in message and not row.dropped:
            pair = message["from"], row.to
            if message["cast"] <= self.casts.get(pair, 0):
                yield Violation("broadcast_once", f"{row.to} gets {message} after {self.casts[pair]}")
            self.casts[pair] = message["cast"]
        elif "for" in message and not row.dropped:
            sender, number, receiver = message["from"], message["n"], message["for"]
            last = self.delivered.get((sender, receiver))
            if last is not None and number <= last:
                yield Violation("message_once", f"{receiver} gets message {number} of {sender} after {last}")
            self.delivered[sender, receiver] = number
            self.received.add((sender, receiver, number))
        elif "reply" in message:
            self.asked.setdefault(message["question"], (self.moment, message))
        elif "was" in message:
            self.answered.setdefault(message["question"], (self.moment, message["was"]))

    def _finished(self, shard: str, pid: str, row: rows.Finished) -> None:
        """Note what an effect cost; what others spent of a scope has a row there, too, but none began there."""
        books, cost = self.ledgers[shard].processes.get(pid), (row.usage or {}).get("usd", 0)
        if books is not None and row.key in books.started and cost:
            self.spent[f"{shard}/{pid}"] = self.spent.get(f"{shard}/{pid}", 0) + cost

    def _ended(self, shard: str, pid: str, batch: _Batch) -> None:
        for watcher in self.watchers.pop((shard, pid), set()):
            batch.due["ended", *watcher] = ("answered_once", f"{shard}/{pid} has ended, and {watcher} is not told")
        for address in self.links.pop((shard, pid), set()):
            batch.due["exit", pid, address] = ("linked", f"{shard}/{pid} has ended, and {address} is not told")
        batch.done.add(("told", pid))
        for key in [key for key, (asker, _) in self.asking.items() if key[0] == shard and asker == pid]:
            del self.asking[key]

    def spent_below(self, address: str) -> int:
        """Return what a process, and all that it spawned on any shard, spent by the rows."""
        shard, _, pid = address.partition("/")
        books = self.ledgers[shard].processes.get(pid)
        if books is None:
            return 0
        spent = self.spent.get(address, 0) + sum(self.spent_below(f"{shard}/{child}") for child in books.children)
        abroad = [f"{place}/{child}" for (place, child), by in self.spawned.items() if by == address]
        return spent + sum(self.spent_below(child) for child in abroad)

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
        for model, ops in ((register(), self.list_asked()), (compared(), self.compared), (once(), self.fired)):
            for fault in check(model, ops):
                yield Violation("fired_once" if ops is self.fired else "linearizable", str(fault))
        for name, dues in self.settled.items():
            if dues != sorted(set(dues)):
                yield Violation("fired_once", f"{name} settles its due times as {dues}")
        for shard, ledger in self.ledgers.items():
            for violation in ledger.parts.at_rest():
                yield Violation(violation.name, f"{shard}: {violation.detail}")

    def list_asked(self) -> list[Op]:
        """Return what askers asked of cells, and what they were told, in the order of the database."""
        ops = []
        for question, (began, asked) in self.asked.items():
            ended, was = self.answered.get(question, (None, None))
            args = {"read": (), "write": (asked["new"],), "swap": (asked["old"], asked["new"])}[asked["what"]]
            ops.append(Op("cell", asked["what"], args, was, began, ended, question))
        return ops


def _is_of_other(record: Record) -> bool:
    """Return whether a row is about a process of another shard: what a borrower spent, of which there are many for one
    loan, also after the end of the process that lent it; or a member of a group."""
    if record.kind in ("group.joined", "group.left"):
        return "/" in record.pid
    if record.kind != "effect.finished":
        return False
    return str(rows.DECODERS[record.kind].decode(record.data).key).startswith("aside:loan:")
