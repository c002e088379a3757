"""Evidence and modes of nodes that all shards of a cluster have in common.

    home        of a node, by its id: has its evidence, puts its rows in order, and alone changes its mode
    elsewhere   a copy, made of what the home tells; what happens here is posted to the home

An input that several shards have compared counts once, since the home knows all keys of inputs; copies have only how
many there are. A promotion is decided by the home on all that it has. A divergence is posted to every shard at once
(`node.doubt`): each takes the direct path out of use when that arrives, until the home tells what became of it, so a
rollback needs one message and no home that lives.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final

from lyra.errors import ConfigError, DeadlineExceeded, LyraError, ProcessError
from lyra.kernel.base.waiting import in_time
from lyra.kernel.journal.rows import error_from_row, error_to_row
from lyra.kernel.remote.part import RemotePart, drop_item, read_tables
from lyra.vesper.evidence.modes import RELYING_ON_DIRECT, check_mode, find_promotion
from lyra.vesper.evidence.state import EvidenceState, NodeEvidence, slow_alert

if TYPE_CHECKING:
    from lyra.kernel import Kernel
    from lyra.kernel.assembly import KernelParts
    from lyra.kernel.remote.posts import Remote

PART: Final = "nodes"  # in the parts of a shard
_LOWEST: Final = "shadow_direct"  # after a divergence
_ANSWER_S: Final = 30.0  # that a home is waited for which decides
_TABLES: Final = ("doubts", "settled", "own")


class SharedEvidence(RemotePart):
    """See the module. `key` seals sensitive inputs, the same on every shard."""

    NAME: ClassVar[str] = PART
    SENDS: ClassVar[frozenset[str]] = frozenset({"node.row", "node.told", "node.doubt", "node.ask", "node.answer"})
    KEEPS: ClassVar[frozenset[str]] = frozenset({"node.row", "node.told", "node.doubt"})

    def __init__(self, parts: KernelParts, remote: Remote, key: bytes) -> None:
        self.core = parts.core
        self.key = key
        self._remote = remote
        self.state = EvidenceState()
        # Key of evidence → shard → number of its last divergence that the home has not told, and that it has told.
        self.doubts: dict[str, dict[str, int]] = {}
        self.settled: dict[str, dict[str, int]] = {}
        self.own: dict[str, int] = {}  # key of evidence → number of the last divergence that this shard posted
        self._answers: dict[str, asyncio.Future[Any]] = {}  # ref → what a home answers; of this life of the kernel
        self._refs = 0
        self.core.subsystems.stop.append(self._stop)
        self.core.after_abort.append(lambda _: self._stop())

    # ------------------------------------------------------------------ what it remembers

    def apply_posted(self, pid: str, shard: str, what: str, data: dict[str, Any]) -> None:  # noqa: ARG002
        if what == "node.row" and "n" in data:
            digest = data["row"]["digest"]
            self.own[digest] = data["n"]
            self.doubts.setdefault(digest, {})[self._remote.shard] = data["n"]

    def apply_taken(self, shard: str, what: str, data: dict[str, Any]) -> None:
        if what == "node.doubt":
            if self.settled.get(data["digest"], {}).get(shard, 0) < data["n"]:
                self.doubts.setdefault(data["digest"], {})[shard] = data["n"]
            return
        self.state.apply(data["kind"], "", data["at"], data["row"])
        if data.get("of"):
            digest, (origin, number) = data["row"]["digest"], data["of"]
            self.settled.setdefault(digest, {})[origin] = number
            if self.doubts.get(digest, {}).get(origin, 0) <= number:
                drop_item(self.doubts, digest, origin)

    def apply_noted(self, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002
        self.state.apply(data["kind"], "", data["at"], data["row"])

    def dump(self) -> Any:
        return {"state": self.state.dump(), **{name: getattr(self, name) for name in _TABLES}}

    def load(self, data: Any) -> None:
        tables = read_tables(data, _TABLES)
        self.doubts, self.settled, self.own = tables["doubts"], tables["settled"], tables["own"]
        self.state = EvidenceState()
        self.state.load(data["state"])

    # ------------------------------------------------------------------ what a runtime of this shard asks

    def mode(self, digest: str) -> str:
        """Return the mode in which a node is executed here now."""
        evidence = self.state.by_digest.get(digest)
        if evidence is None:
            return "python_only"
        return _LOWEST if digest in self.doubts and evidence.mode in RELYING_ON_DIRECT else evidence.mode

    def write(self, kind: str, row: dict[str, Any]) -> None:
        """Add a row to the evidence of a node, at its home."""
        self._raise_if_closed()
        remote, home = self._remote, self._home(row["node"])
        if home == remote.shard:
            self._write_here(kind, row)
            return
        data: dict[str, Any] = {"kind": kind, "row": row, "at": self.core.now()}
        if kind == "vesper.diverged":
            data["n"] = self.own.get(row["digest"], 0) + 1
            for shard in sorted(remote.shards):
                if shard not in (home, remote.shard):
                    doubt = {"digest": row["digest"], "n": data["n"]}
                    remote.post(shard, "node.doubt", doubt, refusable=False)
        remote.post(home, "node.row", data, refusable=False)

    async def ask(self, do: str, node_id: str, digest: str, **more: Any) -> str:
        """Have the home `set` a mode, `promote` a node, or only `read` what this shard has posted so far; gives the
        mode once that is durable, and this shard has been told all that the home had then."""
        self._raise_if_closed()
        data = {"do": do, "node": node_id, "digest": digest, **more}
        home = self._home(node_id)
        if home == self._remote.shard:
            mode = self._decide(data)
            assert self.core.journal is not None
            await self.core.journal.wait_until_durable(self.core.journal.seq)
            return mode
        self._refs += 1
        assert self.core.journal is not None
        ref = f"{self.core.journal.epoch}.{self._refs}"
        future = self._answers[ref] = self.core.loop.create_future()
        try:
            self._remote.post(home, "node.ask", {**data, "ref": ref})
            late = DeadlineExceeded(
                f"shard {home}, the home of node {node_id}, did not answer within {_ANSWER_S:g} s",
                hint="is it open? lyra cluster status says; what was asked is done when it is",
            )
            answer = await in_time(self.core.clock, future, _ANSWER_S, late)
        finally:
            self._answers.pop(ref, None)
        if "error" in answer:
            raise error_from_row(answer["error"])
        return str(answer["mode"])

    def _home(self, node_id: str) -> str:
        return self._remote.home_of(f"node {node_id}")

    def _raise_if_closed(self) -> None:
        self.core.raise_if_closed()
        if self.core.journal is None or self.core.journal.frozen:
            raise ProcessError("the shard of these nodes is closed")

    def _stop(self) -> None:
        answers, self._answers = self._answers, {}
        closed = error_to_row(ProcessError("the kernel closed before the home of the node answered"))
        for future in answers.values():
            if not future.done():
                future.set_result({"error": closed})

    # ------------------------------------------------------------------ at the home of a node

    def _write_here(self, kind: str, row: dict[str, Any]) -> None:
        slow, moment = self.state.slow_paths(row["node"]), self.core.now()
        self._remote.note(self, {"kind": kind, "row": row, "at": moment})
        self._go_on(kind, row, moment, slow)

    def _go_on(
        self, kind: str, row: dict[str, Any], moment: float, slow: set[str], of: list[Any] | None = None
    ) -> None:
        """Tell a row that was added, and do what follows from it; `of` are shard and number of a divergence."""
        evidence = self.state.by_digest[row["digest"]]
        demotes = kind == "vesper.diverged" and evidence.mode in RELYING_ON_DIRECT
        self._tell(kind, row, moment, None if demotes else of)
        if demotes:
            change: dict[str, Any] = {"node": evidence.node_id, "digest": evidence.digest, "to": _LOWEST}
            change |= {"why": "a divergence", "forced": False}
            moment = self.core.now()
            self._remote.note(self, {"kind": "vesper.mode", "row": change, "at": moment})
            self._tell("vesper.mode", change, moment, of)  # settles the doubt together with the mode
        for path in sorted(self.state.slow_paths(row["node"]) - slow):
            speed = self.state.speeds[row["node"]][path]
            self._write_here("vesper.alert", slow_alert(row["node"], row["digest"], path, speed))

    def _tell(self, kind: str, row: dict[str, Any], moment: float, of: list[Any] | None) -> None:
        self.core.publish("", kind, row)
        if row.get("seen"):
            evidence = self.state.by_digest[row["digest"]]
            totals = [evidence.distinct, evidence.accepted, evidence.successes, evidence.clean]
            row = {**row, "seen": b"", "totals": totals}
        data = {"kind": kind, "row": row, "at": moment, **({"of": of} if of else {})}
        for shard in sorted(self._remote.shards):
            if shard != self._remote.shard:
                self._remote.post(shard, "node.told", data, refusable=False)

    def _decide(self, data: dict[str, Any]) -> str:
        """Change the mode of a node as asked, if its evidence allows that; returns the mode that it has then."""
        digest = data["digest"]
        evidence = self.state.by_digest.get(digest) or NodeEvidence(data["node"], digest)
        change: dict[str, Any] = {"node": data["node"], "digest": digest}
        if data["do"] == "set":
            forced = check_mode(evidence, data["mode"], data["least"], force=data["force"])
            self._write_here("vesper.mode", {**change, "to": data["mode"], "why": "set by hand", "forced": forced})
        elif data["do"] == "promote" and evidence.mode == data["mode"]:  # as the one who asks has seen it
            higher = find_promotion(evidence, data["least"])
            if higher is not None:
                self._write_here("vesper.mode", {**change, "to": higher, "why": "the evidence", "forced": False})
        return self.mode(digest)

    # ------------------------------------------------------------------ what arrives

    def before_take(self, sender: str, what: str, data: dict[str, Any]) -> Any:  # noqa: ARG002
        return self.state.slow_paths(data["row"]["node"]) if what == "node.row" else None

    def take(self, sender: str, what: str, data: dict[str, Any], before: Any) -> None:
        if what == "node.row":
            of = [sender, data["n"]] if "n" in data else None
            self._go_on(data["kind"], data["row"], data["at"], before, of)
        elif what == "node.told":
            self.core.publish("", data["kind"], data["row"])
        elif what == "node.ask":
            try:
                answer: dict[str, Any] = {"mode": self._decide(data)}
            except LyraError as refusal:
                answer = {"error": error_to_row(refusal)}
            self._remote.post(sender, "node.answer", {"ref": data["ref"], **answer}, refusable=False)
        elif what == "node.answer":
            future = self._answers.get(data["ref"])
            if future is not None and not future.done():
                future.set_result(data)


class SharedLog:
    """The evidence of a shard for a runtime, whose calls come from any thread."""

    def __init__(self, kernel: Kernel) -> None:
        remote = kernel.core.remote
        part = None if remote is None else remote.state.parts.get(PART)
        if part is None:
            hint = "give the kernel that setup(kernel) gets on a host of a cluster"
            raise ConfigError("this kernel is no shard of a cluster", hint=hint, key="cluster")
        self.part: SharedEvidence = part
        self._kernel = kernel
        self._loop = kernel.core.loop

    @property
    def _is_own_thread(self) -> bool:
        return self._kernel.core.thread == threading.get_ident()

    def write(self, kind: str, row: dict[str, Any]) -> None:
        """Add a row and wait until it is durable on this shard; on the shard's own thread, without waiting."""
        if self._is_own_thread:
            self.part.write(kind, row)
            return

        async def write() -> None:
            self.part.write(kind, row)
            await self._kernel.durable()

        self._call(write())

    def post(self, kind: str, row: dict[str, Any]) -> None:
        """Add a row without waiting; one that comes when the shard has closed is lost."""

        def write() -> None:
            with suppress(LyraError):
                self.part.write(kind, row)

        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(write)

    def ask(self, do: str, node_id: str, digest: str, **more: Any) -> str:
        """Have the home of a node do something; gives the mode that the node has then."""
        if self._is_own_thread:
            raise ProcessError("the mode of a node cannot be changed by a plain call on the shard's own thread")
        mode: str = self._call(self.part.ask(do, node_id, digest, **more))
        return mode

    def read(self, node_id: str, digest: str) -> None:
        """Wait until the copy here is as new as the home, where the home answers."""
        if not self._is_own_thread:
            with suppress(DeadlineExceeded):
                self.ask("read", node_id, digest)

    def on_event(self, listener: Callable[[Any], Any], kinds: Any) -> None:
        self._loop.call_soon_threadsafe(self._kernel.on_event, listener, kinds)

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except RuntimeError:
            work.close()
            raise ProcessError("the shard of these nodes is closed") from None
