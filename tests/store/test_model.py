"""SqliteStore and MemoryStore do the same, whatever is done to them."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lyra.errors import StoreError
from lyra.store import Lease, Store
from lyra.store.memory import MemoryStore
from lyra.store.sqlite import SqliteStore
from tests.cases import cases

pids = st.sampled_from(["p-1", "p-2", "p-ü", ""])
kinds = st.sampled_from(["effect.started", "effect.finished", "note"])
times = st.floats(min_value=0.0, max_value=100.0)
data = st.binary(max_size=60)
off_by = st.sampled_from([0, 0, 0, 0, 1, -1, 3])


class TwoStores(RuleBasedStateMachine):
    """Each rule does one thing to both stores and wants the same answer, errors and their fields included."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="lyra-model-"))
        self.memory: Store = MemoryStore()
        self.sqlite: Store = SqliteStore(self.folder / "lyra.db")
        self.second: Store = SqliteStore(self.folder / "lyra.db")
        self.leases = [Lease("no owner", 0, 0.0)]
        self.now = 0.0

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.sqlite.close()
            self.second.close()
            shutil.rmtree(self.folder)

    def both(self, name: str, *args: Any, second: bool = False, **values: Any) -> Any:
        answers = []
        for store in (self.memory, self.second if second else self.sqlite):
            try:
                answer = getattr(store, name)(*args, **values)
                answers.append(list(answer) if name == "read" else answer)
            except StoreError as error:
                answers.append((type(error), error.message.replace(store.location, "…"), error.fields))
        assert answers[0] == answers[1]
        return answers[0]

    def epoch(self, slip: int) -> int:
        return self.leases[-1].epoch + slip

    @rule(
        rows=st.lists(st.tuples(times, pids, kinds, data), max_size=12),
        slip=off_by,
        epoch_slip=off_by,
        hole=st.booleans(),
        second=st.booleans(),
    )
    def append(self, rows: list[Any], slip: int, epoch_slip: int, hole: bool, second: bool) -> None:
        first = self.memory.last_seq() + 1 + slip
        batch = [(first + number, *row) for number, row in enumerate(rows)]
        if hole and slip and len(batch) > 2:
            del batch[1]
        self.both("append", batch, self.epoch(epoch_slip), second=second)

    @rule(
        after=st.integers(-2, 60),
        span=st.none() | st.integers(-3, 60),
        pid=st.none() | pids,
        kind=st.none() | kinds,
        second=st.booleans(),
    )
    def read(self, after: int, span: int | None, pid: str | None, kind: str | None, second: bool) -> None:
        upto = None if span is None else after + span
        self.both("read", after=after, upto=upto, pid=pid, kind=kind, second=second)

    @rule(
        back=st.integers(-2, 20),
        states=st.dictionaries(pids, st.none() | data),
        epoch_slip=off_by,
        second=st.booleans(),
    )
    def save(self, back: int, states: dict[str, bytes | None], epoch_slip: int, second: bool) -> None:
        self.both("save_snapshots", self.memory.last_seq() - back, states, self.epoch(epoch_slip), second=second)

    @rule(before=times, epoch_slip=off_by, second=st.booleans())
    def compact(self, before: float, epoch_slip: int, second: bool) -> None:
        self.both("compact", before=before, epoch=self.epoch(epoch_slip), second=second)

    @rule(value=data, second=st.booleans())
    def blob(self, value: bytes, second: bool) -> None:
        digest = self.both("put_blob", value, second=second)
        self.both("get_blob", digest)
        self.both("get_blob", digest[::-1])

    @rule(owner=st.sampled_from("ab"), step=times, ttl=st.floats(1.0, 50.0), second=st.booleans())
    def acquire(self, owner: str, step: float, ttl: float, second: bool) -> None:
        self.now += step
        answer = self.both("acquire", owner, now=self.now, ttl_s=ttl, second=second)
        if isinstance(answer, Lease):
            self.leases.append(answer)

    @rule(which=st.integers(0, 3), ttl=st.floats(1.0, 50.0), second=st.booleans())
    def renew(self, which: int, ttl: float, second: bool) -> None:
        self.both("renew", self.leases[-1 - which % len(self.leases)], now=self.now, ttl_s=ttl, second=second)

    @rule(which=st.integers(0, 3), second=st.booleans())
    def release(self, which: int, second: bool) -> None:
        self.both("release", self.leases[-1 - which % len(self.leases)], second=second)

    @rule()
    def reopen(self) -> None:
        self.sqlite.close()
        self.sqlite = SqliteStore(self.folder / "lyra.db")

    @invariant()
    def same(self) -> None:
        if hasattr(self, "folder"):
            for name in ("first_seq", "last_seq", "load_snapshots", "holder", "check"):
                self.both(name)
                self.both(name, second=True)


TestTwoStores = TwoStores.TestCase
TestTwoStores.settings = settings(max_examples=cases(40), stateful_step_count=30, deadline=None)
