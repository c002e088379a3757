"""Transactions of nodes on SQLite and on a real PostgreSQL server: all of their steps are done, or none."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from lyra import vesper
from lyra.errors import CheckError
from lyra.vesper.check.judge import program_of
from lyra.vesper.direct import run as direct
from lyra.vesper.direct import steps as direct_steps
from lyra.vesper.effects.database import open_database
from lyra.vesper.effects.request import EffectRequest, transact
from lyra.vesper.evidence import differential
from lyra.vesper.evidence.modes import ORDER
from lyra.vesper.ir import ValidateStep
from lyra.vesper.python.running import NodeRun
from lyra.vesper.reference.run import run as reference
from lyra.vesper.runtime.recording import trace_data
from tests import warm
from tests.vesper.effects import shop
from tests.vesper.effects.shop import GRANT, NODE, make_tables, rows, runtime

THREADS, STOCK = 40, 20


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database with an empty stock."""
    if request.param == "sqlite":
        address = f"sqlite:///{tmp_path}/shop.db"
    else:
        address = request.getfixturevalue("postgres_server").url
    make_tables(address, 0)
    return address


def state(url: str) -> tuple[int, int]:
    """How many are left, and how many orders there are."""
    ((left,),) = rows(url, "SELECT quantity FROM stock")
    ((orders,),) = rows(url, "SELECT count(*) FROM orders")
    return left, orders


@pytest.mark.parametrize("runtimes", [1, 4])
def test_forty_threads_take_the_twenty_that_are_there(url: str, runtimes: int) -> None:
    """Each reads the stock, computes and writes; no unit is sold twice, and a refused order leaves no row."""
    make_tables(url, STOCK)
    node = vesper.load(NODE)
    with ExitStack() as stack:
        opened = [stack.enter_context(runtime(url)) for _ in range(runtimes)]

        def take(number: int) -> Any:
            inputs = {"item": "apple", "idempotency_key": f"key-{number}"}
            return opened[number % runtimes].execute(node, inputs, "dual_verify")

        with ThreadPoolExecutor(THREADS) as pool:
            outcomes = list(pool.map(take, range(THREADS)))
        endings = Counter(outcome.error.code if outcome.error else "success" for outcome in outcomes)
        assert endings == {"success": STOCK, "out_of_stock": THREADS - STOCK}
        assert sorted(outcome.outputs["left"] for outcome in outcomes if not outcome.error) == list(range(STOCK))
        assert state(url) == (0, STOCK)
        assert [one.evidence(node).divergences for one in opened] == [0] * runtimes


class BreakingPath:
    """Breaks inside the transaction, behind its first write."""

    run = staticmethod(direct.run)

    async def start(self, program: Any, inputs: Any, execution: Any, effects: Any) -> Any:
        return await direct.start(program, inputs, execution, _BreakingEffects(effects))


class _BreakingEffects:
    def __init__(self, effects: Any) -> None:
        self._effects = effects

    async def perform(self, request: EffectRequest) -> Any:
        if request.step == "keep":
            raise RuntimeError("planted")
        return await self._effects.perform(request)

    async def transact(self, request: EffectRequest, body: Any) -> Any:
        return await transact(self._effects, request, lambda effects: body(_BreakingEffects(effects)))


@pytest.mark.parametrize("is_private", [False, True])
def test_a_transaction_in_which_the_live_path_breaks_is_rolled_back(url: str, is_private: bool) -> None:
    """Python goes on with the transaction as if it had not begun: one unit is taken, and one order is there."""
    make_tables(url, 5)
    text = NODE.replace("{capabilities", "{sensitive_data: [item], capabilities") if is_private else NODE
    node, inputs = vesper.load(text), {"item": "apple", "idempotency_key": "k1"}
    with runtime(url, direct=BreakingPath()) as opened:
        opened.set_mode(node, "direct_only", force=True)
        assert opened.execute(node, inputs).outputs == {"left": 4}
        assert state(url) == (4, 1)
        evidence = opened.evidence(node)
        assert (evidence.divergences, evidence.mode) == (1, "shadow_direct")
        assert opened.execute(node, inputs).outputs == {"left": 4}
    assert state(url) == (4, 1)
    assert rows(url, "SELECT count(*) FROM lyra_effects") == [(1,)]


def break_step(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """Have the step `enough`, which stands behind the first write, raise what no path may raise."""

    def crash(*_: Any) -> Any:
        raise AttributeError("planted")

    if path == "direct":
        monkeypatch.setitem(direct_steps._COMPILERS, ValidateStep, lambda *_: crash)  # type: ignore[misc]
    else:
        monkeypatch.setattr(NodeRun, "ask_host", crash)


def node_of(text: str, name: object) -> Any:
    """Return a node that no earlier test compiled."""
    return vesper.load(text.replace("take one", f"take one, {name}"))


@pytest.mark.parametrize("mode", ORDER)
def test_a_step_that_raises_on_the_direct_path_takes_nothing_back_or_twice(
    url: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers are those of Python in every mode, each unit is taken once, and the crash is a divergence."""
    make_tables(url, 5)
    break_step(monkeypatch, "direct")
    node = node_of(NODE, f"direct {mode} {url[:6]}")
    with runtime(url) as opened:
        opened.set_mode(node, mode, force=True)
        outcomes = [opened.execute(node, {"item": "apple", "idempotency_key": f"k{number}"}) for number in range(2)]
        assert [outcome.outputs for outcome in outcomes] == [{"left": 4}, {"left": 3}]
        assert state(url) == (3, 2)
        evidence = opened.evidence(node)
        assert evidence.mode == ("python_only" if mode == "python_only" else "shadow_direct")
        assert evidence.divergences == (0 if mode == "python_only" else 2)
        assert all("AttributeError: planted" in str(kept.direct) for kept in evidence.found)


@pytest.mark.parametrize("path", ["python", "direct and python"])
@pytest.mark.parametrize("mode", ["python_only", "dual_verify", "direct_only"])
def test_a_step_that_raises_where_no_path_is_left_leaves_nothing_behind(
    url: str, mode: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller is told what was raised, and the next execution works."""
    make_tables(url, 5)
    node = node_of(NODE, f"{path} {mode} {url[:6]}")
    inputs = {"item": "apple", "idempotency_key": "k1"}
    with runtime(url) as opened:
        opened.set_mode(node, mode, force=True)
        with monkeypatch.context() as broken:
            for name in path.split(" and "):
                break_step(broken, name)
            if mode == "direct_only" and path == "python":
                assert opened.execute(node, inputs).outputs == {"left": 4}
                return
            with pytest.raises(Exception, match="AttributeError: planted"):
                opened.execute(node, inputs)
        assert state(url) == (5, 0)
    with runtime(url) as opened:
        assert opened.execute(node_of(NODE, f"whole {path} {mode} {url[:6]}"), inputs).outputs == {"left": 4}
    assert state(url) == (4, 1)


@pytest.mark.parametrize("error", [KeyError, RecursionError, SystemExit, KeyboardInterrupt])
def test_whatever_ends_the_steps_the_database_is_free_again(url: str, error: type[BaseException]) -> None:
    make_tables(url, 5)
    database = open_database(url)

    def attempt(opened: Any) -> str:
        opened.perform("db.write", {"table": "orders", "data": {"item": "apple", "owner": "ada"}})
        raise error("planted")

    with closing(database):
        with pytest.raises(error):
            database.transact("k1", attempt, threading.Event())
        rows(url, "UPDATE stock SET quantity = 7")  # by another connection
        assert state(url) == (7, 0)
        assert database.transact("k2", lambda _: "done", threading.Event()) == "done"


FEW = """\
node_id: few_v1
type: function
intent: take one with few steps
inputs: {item: string}
outputs: {success: {left: integer, note: {type: any, required: false}}}
security: {capabilities_required: [database.read.stock, database.write.stock, database.write.orders]}
flow:
  - {step: begin, operation: arithmetic, expression: "5", output: left}
  - step: take
    operation: transaction
    steps: STEPS
  - step: answer
    operation: return
    return_success: {left: "{left}"}
"""
_WRITE = '{step: note, operation: database_write, table: orders, data: {item: "{item}", owner: ada}}'
_READ = '{step: look, operation: database_query, query: "SELECT quantity FROM stock WHERE item = {item}"}'


@pytest.mark.parametrize(
    ("steps", "left", "after"),
    [
        (f"[{_WRITE}]", 5, (5, 1)),
        (_WRITE, 5, (5, 1)),  # a single step is a list of one
        (f"[{_READ}]", 5, (5, 0)),
        (f"[{_READ}, {{operation: arithmetic, expression: query_result.quantity * 2, output: left}}]", 10, (5, 0)),
        (f"[{_WRITE}, {{operation: return, return_success: {{left: 1}}}}]", 1, (5, 1)),
        (f"[{{operation: for_each, input: '[1, 2]', as: n, steps: {_WRITE}}}]", 5, (5, 2)),
        (f"[{{operation: for_each, input: '[]', as: n, steps: {_WRITE}}}]", 5, (5, 0)),
        (f"[{{operation: conditional, condition: left > 9, then: [{_WRITE}]}}]", 5, (5, 0)),
    ],
)
def test_transactions_of_few_steps(tmp_path: Path, steps: str, left: int, after: tuple[int, int]) -> None:
    """One step, one that is run twice or never, one that answers: the same on both paths, and done once."""
    url = f"sqlite:///{tmp_path}/shop.db"
    node = vesper.load(FEW.replace("STEPS", steps))
    for mode in ("python_only", "direct_only", "dual_verify"):
        make_tables(url, 5)
        with runtime(url) as opened:
            assert opened.execute(node, {"item": "apple"}, mode).outputs == {"left": left}
            assert opened.evidence(node).divergences == 0
        assert state(url) == after
    report = differential.test(program_of(node), 50, seed=5, first=reference)
    assert report.divergences == 0, report.kept


@pytest.mark.parametrize("steps", ["[]", "[{operation: arithmetic, expression: left + 1, output: left}]"])
def test_a_transaction_without_a_step_over_the_database_is_refused(steps: str) -> None:
    with pytest.raises(CheckError, match="the transaction has no step over the database"):
        vesper.load(FEW.replace("STEPS", steps))


def test_a_predicate_that_raises_in_a_transaction_is_one_answer(url: str) -> None:
    """The same code and sentence whichever path runs; what stood before it is rolled back."""
    make_tables(url, 5)

    def crash(left: int) -> bool:
        raise KeyError(left)

    node = vesper.load(NODE)
    for mode in ("python_only", "direct_only", "dual_verify"):
        with runtime(url, predicates={"may_go_on": crash}) as opened:
            failure = opened.execute(node, {"item": "apple", "idempotency_key": mode}, mode).error
            assert (failure.code, failure.message) == ("type_error", "the predicate may_go_on failed: KeyError")
            assert opened.evidence(node).divergences == 0
    assert state(url) == (5, 0)


@pytest.mark.parametrize("mode", ORDER)
def test_a_transaction_is_one_act(url: str, mode: str) -> None:
    """The journal has one act, with all statements in its answer; an act of its key is not performed again."""
    make_tables(url, 5)
    with runtime(url) as opened:
        outcome = opened.execute(vesper.load(NODE), {"item": "apple", "idempotency_key": "k1"}, mode)
        assert outcome.outputs == {"left": 4}
        (trace,) = opened.traces().values()
        (effect,) = trace_data(trace, opened.privacy)[2]
        assert (effect.step, effect.response["committed"]) == ("take", True)
        assert [row["step"] for row in effect.response["statements"]] == ["note", "look", "keep"]
    assert state(url) == (4, 1)
    assert rows(url, "SELECT key FROM lyra_effects") == [("k1/take/0",)]


def test_an_error_of_a_statement_rolls_back(url: str) -> None:
    """What the statements before it did is not there either; the error is that of the statement."""
    make_tables(url, 5)
    text = NODE.replace('data: {item: "{item}", owner', 'data: {item: "{item}", owner_of')
    text = text.replace(
        "      - {step: note",
        "      - {step: first, operation: database_update, table: stock,"
        ' where: {item: "{item}"}, set: {quantity: 99}}\n      - {step: note',
    )
    node = vesper.load(text)
    with runtime(url) as opened:
        for number, mode in enumerate(("python_only", "direct_only", "dual_verify")):
            outcome = opened.execute(node, {"item": "apple", "idempotency_key": f"k{number}"}, mode)
            assert outcome.error is not None
            assert outcome.error.code == "effect_failed"
        assert opened.evidence(node).divergences == 0
    assert state(url) == (5, 0)


def test_a_transaction_that_is_always_in_anothers_way_is_a_conflict(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again for a while; then rules about `conflict` say what the node answers."""
    make_tables(url, 5)
    monkeypatch.setattr("lyra.vesper.effects.database._BUSY_S", 0.2)
    node, tries = vesper.load(NODE), []

    def may_go_on(left: Any) -> bool:
        tries.append(left)
        if not url.startswith("sqlite"):
            rows(url, "UPDATE stock SET quantity = quantity + 1")
        return True

    with ExitStack() as stack:
        if url.startswith("sqlite"):
            other = open_database(url)
            stack.callback(other.close)
            connection = stack.enter_context(other._transaction())
            connection.execute("BEGIN IMMEDIATE")
        opened = stack.enter_context(runtime(url, predicates={"may_go_on": may_go_on}))
        outcome = opened.execute(node, {"item": "apple", "idempotency_key": "k1"}, "dual_verify")
        assert outcome.error is not None
        assert (outcome.error.code, outcome.error.message) == ("busy", "try again")
        assert opened.evidence(node).divergences == 0
    assert rows(url, "SELECT count(*) FROM orders") == [(0,)]
    assert url.startswith("sqlite") or len(tries) > 1


def test_a_right_that_is_missing_stops_it_before_it_begins(url: str) -> None:
    """Also a right of its last step."""
    make_tables(url, 5)
    with vesper.Runtime(database=url, grant=GRANT[:2], predicates={"may_go_on": lambda left: True}) as opened:
        outcome = opened.execute(vesper.load(NODE), {"item": "apple", "idempotency_key": "k1"})
        assert outcome.error is not None
        assert outcome.error.code == "capability_denied"
    assert state(url) == (5, 0)


def test_sensitive_values_are_sealed_in_the_record(url: str, tmp_path: Path) -> None:
    """The journal and the record in the database tell nothing of them; the execution goes on from the record."""
    make_tables(url, 5)
    node = vesper.load(NODE.replace("  item: string", "  item: {type: string, sensitive: true}"))
    store = tmp_path / "lyra.db"
    rows(url, "UPDATE stock SET item = 'secret-fruit'")
    with runtime(url, str(store)) as opened:
        outcome = opened.execute(node, {"item": "secret-fruit", "idempotency_key": "k1"}, "dual_verify")
        assert outcome.outputs == {"left": 4}
    ((record,),) = rows(url, "SELECT response FROM lyra_effects")
    assert "statements" not in record
    assert b"secret-fruit" not in b"".join(path.read_bytes() for path in tmp_path.glob("lyra.db*"))


# ---------------------------------------------------------------- kills


def start(folder: Path, url: str, mode: str, when: str) -> Any:
    words = [str(folder), url, mode, when]
    return warm.start(shop.__file__, words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("mode", ["dual_verify"])
@pytest.mark.parametrize("when", ["inside", "after"])
def test_a_killed_transaction_is_done_once_or_not_at_all(url: str, tmp_path: Path, when: str, mode: str) -> None:
    """Killed inside, nothing of it is there; killed after its commit, it is not done again. Then the execution goes
    on, and has the same end."""
    make_tables(url, 5)
    first = start(tmp_path, url, mode, when)
    deadline = time.monotonic() + 30
    while not (tmp_path / "stopped").exists():
        assert time.monotonic() < deadline
        assert first.poll() is None, first.communicate()
        time.sleep(0.005)
    first.kill()
    first.communicate()
    assert state(url) == ((5, 0) if when == "inside" else (4, 1))
    second = start(tmp_path, url, mode, "never")
    output, errors = second.communicate()
    assert json.loads(output or "{}") == {"status": "success", "outputs": {"left": 4}, "code": ""}, errors
    assert state(url) == (4, 1)


def test_generated_inputs_get_through_a_transaction() -> None:
    """The simulated database answers with numbers where the steps compute with them, so that both ends are compared."""
    path = Path(__file__).parents[2] / "language" / "vesper" / "transaction" / "take_if_enough.vsp"
    report = differential.test(program_of(vesper.load(path)), 400, seed=3)
    assert report.divergences == 0
    assert report.counts.successes > 5
