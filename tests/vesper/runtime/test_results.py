"""Results of nodes that declare themselves idempotent are kept: in memory, or in Redis."""

from __future__ import annotations

import socketserver
import threading
from decimal import Decimal

import pytest

from lyra import vesper
from lyra.errors import ConfigError
from lyra.vesper.evidence.modes import ORDER
from lyra.vesper.runtime import results as results_module
from lyra.vesper.runtime.results import MemoryResults, RedisResults
from lyra.vesper.values.limits import RESULTS_TIME_S

NODE = """\
node_id: rate_v1
type: function
intent: ask for a rate
idempotent: true
inputs:
  currency: string
  pin: {type: string, sensitive: true, required: false}
outputs:
  success: {rate: {type: decimal, scale: 4}}
  error: {error_code: string, message: string}
flow:
  - {step: ask, operation: custom.rates.ask, currency: "{currency}", output: rate}
security: {capabilities_required: [custom.rates.ask]}
"""


class Rates:
    def __init__(self, *errors):
        self.errors = list(errors)
        self.calls = []

    def __call__(self, currency):
        self.calls.append(currency)
        if self.errors:
            raise self.errors.pop(0)
        return Decimal("1.0825")


def runtime_for(rates, **more):
    return vesper.Runtime(custom={"rates.ask": rates}, grant=["custom.rates.ask"], **more)


@pytest.mark.parametrize("mode", ORDER)
def test_equal_inputs_are_executed_once(mode):
    rates = Rates()
    node = vesper.load(NODE)
    with runtime_for(rates) as runtime:
        outcomes = [runtime.execute(node, {"currency": word}, mode) for word in ("EUR", "EUR", "USD", "EUR")]
        assert runtime.evidence(node).divergences == 0
    assert rates.calls == ["EUR", "USD"]
    assert [str(outcome.outputs["rate"]) for outcome in outcomes] == ["1.0825"] * 4
    assert len({outcome.trace_id for outcome in outcomes}) == 4


def test_a_node_that_does_not_say_so_is_executed_each_time():
    rates = Rates()
    with runtime_for(rates) as runtime:
        for _ in range(2):
            runtime.execute(vesper.load(NODE.replace("idempotent: true\n", "")), {"currency": "EUR"})
    assert len(rates.calls) == 2


def test_errors_are_not_kept_and_a_changed_node_starts_again():
    rates = Rates(ValueError("no"))
    with runtime_for(rates) as runtime:
        assert runtime.execute(vesper.load(NODE), {"currency": "EUR"}).error is not None
        assert runtime.execute(vesper.load(NODE), {"currency": "EUR"}).error is None
        changed = vesper.load(NODE.replace("step: ask", "step: ask_again"))
        assert runtime.execute(changed, {"currency": "EUR"}).error is None
    assert len(rates.calls) == 3


def test_a_kept_result_needs_the_rights_of_its_node():
    rates, store = Rates(), MemoryResults()
    with runtime_for(rates, results=store) as runtime:
        runtime.execute(vesper.load(NODE), {"currency": "EUR"})
    with vesper.Runtime(results=store) as runtime:
        assert runtime.execute(vesper.load(NODE), {"currency": "EUR"}).error.code == "capability_denied"


def test_ambient_objects_are_part_of_the_question():
    text = NODE.replace('currency: "{currency}"', 'currency: "{user.name}"')
    rates = Rates()
    with runtime_for(rates) as runtime:
        for name in ("ann", "bob", "ann"):
            runtime.execute(vesper.load(text), {"currency": "EUR"}, ambient={"user": {"name": name}})
    assert rates.calls == ["ann", "bob"]


def test_the_number_the_size_and_the_time_of_results_have_limits(monkeypatch):
    now = [0.0]
    store = MemoryResults(lambda: now[0])
    monkeypatch.setattr(results_module, "RESULTS_MAX", 3)
    for key in "abcd":
        store.put(key, b"x")
    assert (len(store), store.get("a"), store.get("d")) == (3, None, b"x")
    monkeypatch.setattr(results_module, "RESULTS_BYTES_MAX", 10)
    store.put("e", b"x" * 9)
    assert (len(store), store.get("d")) == (2, b"x")
    now[0] = RESULTS_TIME_S + 1
    assert store.get("d") is None
    monkeypatch.setattr(results_module, "RESULT_BYTES_MAX", 4)
    rates = Rates()
    with runtime_for(rates) as runtime:
        for _ in range(2):
            runtime.execute(vesper.load(NODE), {"currency": "EUR"})
    assert len(rates.calls) == 2  # too large to be kept


# ---------------------------------------------------------------- redis
class FakeRedis(socketserver.ThreadingTCPServer):
    """Speaks enough of Redis's protocol; remembers all that it was sent."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Talk)
        self.values, self.commands, self.damaged = {}, [], False
        threading.Thread(target=self.serve_forever, daemon=True).start()
        self.url = f"redis://:pass%20word@127.0.0.1:{self.server_address[1]}/2"


class _Talk(socketserver.StreamRequestHandler):
    server: FakeRedis

    def handle(self):
        while line := self.rfile.readline():
            words = []
            for _ in range(int(line[1:])):
                length = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(length + 2)[:-2])
            self.server.commands.append(words)
            self.wfile.write(self.answer(words))

    def answer(self, words):
        if self.server.damaged:
            return b"-ERR broken\r\n"
        if words[0] == b"SET":
            self.server.values[words[1]] = words[2]
        if words[0] != b"GET":
            return b"+OK\r\n"
        value = self.server.values.get(words[1])
        return b"$-1\r\n" if value is None else b"$%d\r\n%s\r\n" % (len(value), value)


@pytest.fixture
def redis():
    server = FakeRedis()
    yield server
    server.shutdown()
    server.server_close()


def test_processes_share_results_in_redis_and_inputs_are_not_sent(redis):
    first, second = Rates(), Rates()
    inputs = {"currency": "EUR", "pin": "secret-4711"}
    with runtime_for(first, results=redis.url) as runtime:
        runtime.execute(vesper.load(NODE), inputs)
    with runtime_for(second, results=redis.url) as runtime:
        assert str(runtime.execute(vesper.load(NODE), inputs).outputs["rate"]) == "1.0825"
    assert (len(first.calls), len(second.calls)) == (1, 0)
    assert redis.commands[:2] == [[b"AUTH", b"pass word"], [b"SELECT", b"2"]]
    assert b"4711" not in b"".join(word for words in redis.commands for word in words)
    kept = next(words for words in redis.commands if words[0] == b"SET")
    assert kept[3:] == [b"PX", str(int(RESULTS_TIME_S * 1000)).encode()]


def test_a_sensitive_result_is_not_sent_to_redis(redis):
    text = NODE.replace("{type: decimal, scale: 4}", "{type: decimal, scale: 4, sensitive: true}")
    with runtime_for(Rates(), results=redis.url) as runtime:
        runtime.execute(vesper.load(text), {"currency": "EUR"})
    assert redis.values == {}


@pytest.mark.parametrize("trouble", ["gone", "damaged", "garbage"])
def test_a_redis_in_trouble_is_an_empty_one(redis, trouble):
    rates = Rates()
    node = vesper.load(NODE)
    with runtime_for(rates, results=redis.url) as runtime:
        runtime.execute(node, {"currency": "EUR"})
        if trouble == "garbage":
            redis.values = dict.fromkeys(redis.values, b'[{"rate": {"$decimal": "x"}}, "python", []]')
        redis.damaged = trouble == "damaged"
        store = RedisResults("redis://127.0.0.1:1") if trouble == "gone" else redis.url
    with runtime_for(rates, results=store) as runtime:
        assert runtime.execute(node, {"currency": "EUR"}).error is None
    assert len(rates.calls) == 2


def test_a_wrong_address_is_refused():
    for address in ("http://host", "redis://", "redis://host/name"):
        with pytest.raises(ConfigError):
            vesper.Runtime(results=address)
