"""The state machine of lent work, without a kernel."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyra.errors import NameTaken, Overloaded
from lyra.server.work.desk import WorkQueue
from lyra.server.work.names import PieceOfWork, ServedName, WorkLease

WRITE = ServedName("agent", "write")
CHECK = ServedName("agent", "check")


def queue_with(*pieces: PieceOfWork, **bounds: float) -> WorkQueue:
    queue = WorkQueue(**bounds)  # type: ignore[arg-type]
    for piece in pieces:
        queue.offer(piece)
    return queue


def claimed(queue: WorkQueue, worker_id: str, now: float = 0.0, **options: object) -> WorkLease | None:
    queue.arrive(worker_id, [WRITE, CHECK], now=now, **options)  # type: ignore[arg-type]
    return queue.claim(worker_id, 10.0, now)


def lent(queue: WorkQueue, worker_id: str, now: float = 0.0, **options: object) -> WorkLease:
    lease = claimed(queue, worker_id, now, **options)
    assert lease is not None
    return lease


def test_a_worker_gets_the_oldest_work_of_a_name_that_it_serves() -> None:
    """A piece of work goes to a worker that serves its name, once, in the order in which it came."""
    queue = queue_with(PieceOfWork("a", WRITE), PieceOfWork("b", WRITE))
    queue.arrive("elsewhere", [CHECK], now=0.0)
    assert queue.claim("elsewhere", 10.0, 0.0) is None
    assert [lent(queue, "w1").piece.id, lent(queue, "w2").piece.id] == ["a", "b"]
    assert claimed(queue, "w3") is None


def test_names_take_turns() -> None:
    """A name with much work does not starve another."""
    pieces = [PieceOfWork(f"w{number}", WRITE) for number in range(5)]
    queue = queue_with(*pieces, PieceOfWork("c0", CHECK), PieceOfWork("c1", CHECK))
    order = [lent(queue, f"worker{number}").piece.served.name for number in range(4)]
    assert sorted(order[:2]) == sorted(order[2:]) == ["check", "write"]


def test_a_result_is_taken_once() -> None:
    """The same result reported again is acknowledged and changes nothing; another worker's is refused."""
    queue = queue_with(PieceOfWork("a", WRITE))
    lease = lent(queue, "w1")
    assert queue.complete(lease.work_id, "w2", 1.0) == (False, None)
    assert queue.complete(lease.work_id, "w1", 1.0) == (True, lease.piece)
    assert queue.complete(lease.work_id, "w1", 2.0) == (True, None)
    assert queue.complete(lease.work_id, "w2", 2.0) == (False, None)
    assert queue.complete("never", "w1", 2.0) == (False, None)
    assert not queue.pieces


def test_a_renewed_lease_does_not_run_out() -> None:
    """A lease runs out unless it is renewed; only the holder can renew it."""
    queue = queue_with(PieceOfWork("a", WRITE))
    lease = lent(queue, "w1")
    assert queue.next_deadline() == 10.0
    assert queue.renew(lease.work_id, "w1", 0.0, 8.0) == (True, False)
    assert queue.renew(lease.work_id, "w2", 0.0, 8.0) == (False, False)
    assert queue.expire(17.9) == []
    assert [end.state for end in queue.expire(18.0)] == ["doubtful"]
    assert queue.renew(lease.work_id, "w1", 0.0, 18.0) == (False, False)


def test_idempotent_work_of_a_lost_worker_goes_to_another() -> None:
    """What may be repeated is lent again as the next attempt; a late result of the first is then not wanted."""
    queue = queue_with(PieceOfWork("a", WRITE))
    first = lent(queue, "w1", idempotent=["write"])
    assert [(end.worker_id, end.state) for end in queue.expire(10.0)] == [("w1", "waiting")]
    second = lent(queue, "w2", 11.0)
    assert (second.piece.attempt, second.work_id != first.work_id) == (2, True)
    assert queue.complete(first.work_id, "w1", 12.0) == (False, None)
    assert queue.complete(second.work_id, "w2", 12.0) == (True, second.piece)


def test_a_stage_that_may_be_repeated_is_whatever_its_worker_says() -> None:
    """A piece that is marked as repeatable is lent again although its worker did not declare the agent idempotent."""
    queue = queue_with(PieceOfWork("a", WRITE, may_repeat=True))
    lent(queue, "w1")
    assert [end.state for end in queue.expire(10.0)] == ["waiting"]


@pytest.mark.parametrize("idempotent", [["write"], []])
def test_a_late_result_is_taken_while_no_other_attempt_runs(idempotent: list[str]) -> None:
    """After its lease a worker may still deliver, as long as the piece was given to no other worker."""
    queue = queue_with(PieceOfWork("a", WRITE))
    lease = lent(queue, "w1", idempotent=idempotent)
    queue.expire(10.0)
    assert queue.complete(lease.work_id, "w2", 12.0) == (False, None)
    assert queue.complete(lease.work_id, "w1", 12.0) == (True, lease.piece)
    assert claimed(queue, "w2", 13.0) is None


def test_work_that_loses_every_worker_is_given_up() -> None:
    """A piece that ends each worker that takes it does not end all of them."""
    queue = queue_with(PieceOfWork("a", WRITE, may_repeat=True), attempts_max=3)
    states = []
    for number in range(3):
        lent(queue, f"w{number}", number * 100.0)
        states += [end.state for end in queue.expire(number * 100.0 + 50.0)]
    assert states == ["waiting", "waiting", "lost"]
    assert not queue.pieces


def test_cancelled_work_is_told_at_renewal() -> None:
    """A worker learns that its result is not wanted when it renews; the result is then refused."""
    queue = queue_with(PieceOfWork("a", WRITE), PieceOfWork("b", WRITE))
    lease = lent(queue, "w1")
    queue.cancel("a")
    queue.cancel("b")
    queue.cancel("unknown")
    assert queue.renew(lease.work_id, "w1", 0.0, 1.0) == (True, True)
    assert queue.complete(lease.work_id, "w1", 2.0) == (False, None)
    assert claimed(queue, "w2") is None
    assert not queue.pieces


def test_a_cancelled_lease_that_runs_out_is_forgotten() -> None:
    """A worker that dies with cancelled work leaves nothing in doubt."""
    queue = queue_with(PieceOfWork("a", WRITE))
    lent(queue, "w1")
    queue.cancel("a")
    assert queue.expire(10.0) == []
    assert not queue.pieces


def test_a_broken_connection_shortens_the_leases_of_its_worker() -> None:
    """A worker whose waiting claim broke off keeps half a lease: time to renew if it lives."""
    queue = queue_with(PieceOfWork("a", WRITE), PieceOfWork("b", WRITE))
    first, second = lent(queue, "w1"), lent(queue, "w1")
    queue.connection_broken("w1", 1.0)
    queue.renew(first.work_id, "w1", 0.0, 4.0)
    assert [end.piece.id for end in queue.expire(6.0)] == [second.piece.id]


def test_a_worker_serves_until_it_is_silent_for_long() -> None:
    """The names of a worker are served while it claims or holds something, and for a while after."""
    queue = queue_with(PieceOfWork("a", WRITE), presence_s=30.0)
    lease = lent(queue, "w1", idempotent=["write"])
    queue.expire(9.0)
    assert queue.list_served() == {WRITE, CHECK}
    queue.complete(lease.work_id, "w1", 9.0)
    assert queue.next_deadline() == 39.0
    queue.expire(38.9)
    assert queue.list_served() == {WRITE, CHECK}
    queue.expire(39.0)
    assert queue.list_served() == set()


def test_a_worker_of_one_user_gets_work_of_that_user_alone() -> None:
    """Work of other users is neither given to a user's worker nor can it be completed for them."""
    queue = queue_with(PieceOfWork("a", WRITE, user_id="ada"), PieceOfWork("b", WRITE, user_id="bob"))
    lease = lent(queue, "w1", user_id="bob")
    assert lease.piece.id == "b"
    assert claimed(queue, "w1", user_id="bob") is None
    assert not queue.is_foreign(lease.work_id, "w1", "bob")
    assert not queue.is_foreign(lease.work_id, "unknown", "")
    for worker_id, user_id in (("w1", "ada"), ("unknown", "ada"), ("w1", "")):
        assert queue.is_foreign(lease.work_id, worker_id, user_id)
    with pytest.raises(NameTaken):
        queue.arrive("w1", [WRITE], user_id="ada", now=0.0)
    assert lent(queue, "operator").piece.id == "a"


def test_after_a_restart_the_worker_that_had_the_work_has_it_again() -> None:
    """A worker that renews or completes what it got before a restart is taken at its word, if no other has it."""
    queue = WorkQueue()
    for piece_id in ("a", "b", "c"):
        queue.wait_for_holder(PieceOfWork(piece_id, WRITE), until=20.0)
    assert claimed(queue, "w1") is None
    assert queue.renew("a.3", "w1", 0.0, 1.0) == (True, False)
    assert queue.complete("b.1", "w1", 1.0)[0]
    assert queue.renew("a.3", "w2", 0.0, 2.0) == (False, False)
    for wrong in ("a.2", "c.x", "c.0", "c", "d.1", "c.99999999999"):
        assert queue.renew(wrong, "w1", 0.0, 2.0) == (False, False)
        assert queue.complete(wrong, "w1", 2.0) == (False, None)
    assert queue.renew("c.1", "stranger", 0.0, 2.0) == (False, False)
    assert [(end.piece.id, end.state) for end in queue.expire(16.1)] == [("a", "doubtful")]
    assert [(end.piece.id, end.state) for end in queue.expire(20.0)] == [("c", "doubtful")]


def test_a_worker_of_another_user_cannot_say_that_work_is_its_own() -> None:
    """Work that was lent before a restart goes back only to a worker that may have it."""
    queue = WorkQueue()
    queue.wait_for_holder(PieceOfWork("a", WRITE, user_id="ada"), until=20.0)
    claimed(queue, "w1", user_id="bob")
    assert queue.complete("a.1", "w1", 1.0) == (False, None)


def test_a_claim_that_was_not_told_is_undone() -> None:
    """A piece whose worker was not told of it waits again, and no attempt is counted."""
    queue = queue_with(PieceOfWork("a", WRITE))
    queue.give_back(lent(queue, "w1"))
    assert lent(queue, "w2").piece.attempt == 1


def test_the_queue_is_bounded() -> None:
    """A full line refuses new work, a full table new workers."""
    queue = queue_with(PieceOfWork("a", WRITE), waiting_per_name_max=1, waiting_max=2, workers_max=1)
    with pytest.raises(Overloaded):
        queue.offer(PieceOfWork("b", WRITE))
    queue.offer(PieceOfWork("c", CHECK))
    with pytest.raises(Overloaded):
        queue.offer(PieceOfWork("d", ServedName("service", "mail")))
    queue.arrive("w1", [WRITE], now=0.0)
    with pytest.raises(Overloaded):
        queue.arrive("w2", [WRITE], now=0.0)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["offer", "claim", "claim", "renew", "complete", "cancel", "expire", "broken", "late"]),
        st.integers(0, 3),
        st.integers(0, 7),
    ),
    max_size=120,
)


class Model:
    """What must hold after any schedule: workers, results and pieces as an outside observer sees them."""

    def __init__(self) -> None:
        self.queue = WorkQueue(presence_s=20.0, attempts_max=4)
        self.now = 0.0
        self.offered: list[str] = []
        self.ended: dict[str, str] = {}  # piece → how it ended
        self.attempts: list[WorkLease] = []

    def step(self, word: str, worker: int, choice: int) -> None:
        self.now += choice
        worker_id = f"w{worker}"
        if word == "offer":
            piece = PieceOfWork(f"p{len(self.offered)}", (WRITE, CHECK)[choice % 2], may_repeat=worker % 2 == 0)
            self.offered.append(piece.id)
            self.queue.offer(piece)
        elif word == "claim":
            lease = claimed(self.queue, worker_id, self.now)
            if lease is not None:
                self.attempts.append(lease)
        elif word == "renew" and self.attempts:
            lease = self.attempts[choice % len(self.attempts)]
            self.queue.renew(lease.work_id, lease.worker_id, 0.0, self.now)
        elif word in ("complete", "late") and self.attempts:
            lease = self.attempts[-1 - choice % len(self.attempts)]
            accepted, ended = self.queue.complete(lease.work_id, lease.worker_id, self.now)
            assert accepted or ended is None
            if ended is not None:
                self.end(ended.id, "done")
        elif word == "cancel" and self.offered:
            piece_id = self.offered[choice % len(self.offered)]
            if piece_id in self.queue.pieces and piece_id not in self.ended:
                self.end(piece_id, "cancelled")
            self.queue.cancel(piece_id)
        elif word == "broken":
            self.queue.connection_broken(worker_id, self.now)
        elif word == "expire":
            for end in self.queue.expire(self.now):
                assert end.piece.id not in self.ended
                if end.state == "lost":
                    self.end(end.piece.id, "lost")

    def end(self, piece_id: str, how: str) -> None:
        assert piece_id not in self.ended, f"{piece_id} ended twice"
        self.ended[piece_id] = how

    def check(self) -> None:
        holders = [lease.piece.id for lease in self.attempts if lease.piece.lease is lease]
        assert len(holders) == len(set(holders)), "two attempts hold one piece"
        for piece_id in self.offered:
            assert piece_id in self.ended or piece_id in self.queue.pieces, f"{piece_id} is lost"
        for piece_id, piece in self.queue.pieces.items():
            assert (piece.state == "lent") == (piece.lease is not None)
            assert piece_id not in self.ended or piece.is_cancelled


@given(STEPS)
def test_no_work_is_lost_or_done_twice_at_once(steps: list[tuple[str, int, int]]) -> None:
    """Under any schedule each piece has at most one holder, ends at most once, and never disappears before its end."""
    model = Model()
    for word, worker, choice in steps:
        model.step(word, worker, choice)
        model.check()
    for _ in range(200):  # what is left is finished by a worker that does its work
        model.now += 30.0
        model.step("expire", 0, 0)
        lease = claimed(model.queue, "last", model.now)
        if lease is None:
            break
        _, piece = model.queue.complete(lease.work_id, "last", model.now)
        assert piece is not None
        model.end(piece.id, "done")
    doubtful = [piece for piece in model.queue.pieces.values() if piece.state == "doubtful"]
    assert len(model.queue.pieces) == len(doubtful)
    assert model.queue.waiting == 0


def test_repeatable_work_from_before_a_restart_is_lent_again_under_another_id() -> None:
    """While its holder may come back nobody else gets it; then it is the next attempt, with an id of its own, and the
    first holder's result is not wanted any more once another worker has it."""
    queue = WorkQueue()
    queue.life = 2
    queue.wait_for_holder(PieceOfWork("a", WRITE, may_repeat=True), until=20.0)
    assert claimed(queue, "w2") is None
    assert [(end.piece.id, end.state) for end in queue.expire(20.0)] == [("a", "waiting")]
    again = lent(queue, "w2", now=20.0)
    assert (again.work_id, again.piece.attempt) == ("a.2-2", 2)
    assert queue.renew("a.1-1", "w1", 0.0, 21.0) == (False, False)
    assert queue.complete("a.1-1", "w1", 21.0) == (False, None)
