"""Results of idempotent nodes in Redis: with a real server, and with servers that answer badly."""

from __future__ import annotations

import logging
import socketserver
import threading
import time

import pytest

from lyra import vesper
from lyra.errors import ConfigError
from lyra.vesper.runtime import results as redis_results
from lyra.vesper.runtime.results import RedisResults
from lyra.vesper.values.limits import RESULT_BYTES_MAX, RESULTS_TIME_S
from tests.vesper.runtime.test_results import NODE, Rates, runtime_for
from verify.redis_server import RedisServer, redis_missing


@pytest.fixture
def no_pause(monkeypatch):
    monkeypatch.setattr(redis_results, "REDIS_PAUSE_S", 0.0)


# ---------------------------------------------------------------- a real server
def test_processes_share_results_in_redis_and_inputs_are_not_sent(redis):
    first, second = Rates(), Rates()
    inputs = {"currency": "EUR", "pin": "secret-4711"}
    with runtime_for(first, results=redis.url) as runtime:
        runtime.execute(vesper.load(NODE), inputs)
    with runtime_for(second, results=redis.url) as runtime:
        assert str(runtime.execute(vesper.load(NODE), inputs).outputs["rate"]) == "1.0825"
    assert (len(first.calls), len(second.calls)) == (1, 0)
    (key,) = redis.ask("KEYS", "*").splitlines()
    assert "4711" not in key + redis.ask("GET", key)
    assert (RESULTS_TIME_S - 60) * 1000 < int(redis.ask("PTTL", key)) <= RESULTS_TIME_S * 1000


def test_a_database_of_its_own_is_used(redis):
    store, other = RedisResults(f"{redis.url}/2"), RedisResults(redis.url)
    store.put("a", b"\r\n$-1\r\n\0")
    assert (store.get("a"), store.get("b"), other.get("a")) == (b"\r\n$-1\r\n\0", None, None)
    assert redis.ask("-n", "2", "EXISTS", "a") == "1"
    for results in (store, other):
        results.close()


def test_the_largest_result_goes_there_and_back(redis):
    store = RedisResults(redis.url)
    for value in (b"", b"x" * RESULT_BYTES_MAX):
        store.put("large", value)
        assert store.get("large") == value
    redis.ask("APPEND", "large", "y")
    assert store.get("large") is None
    store.close()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{type: decimal, scale: 4}", "{type: decimal, scale: 4, sensitive: true}"),
        ("currency: string", "currency: {type: string, sensitive: true}"),
    ],
)
def test_a_sensitive_result_is_not_sent_to_redis(redis, old, new):
    """What is declared sensitive, and what comes of a sensitive input."""
    text = NODE.replace(old, new)
    with runtime_for(Rates(), results=redis.url) as runtime:
        runtime.execute(vesper.load(text), {"currency": "EUR"})
    assert redis.ask("DBSIZE") == "0"


@pytest.mark.parametrize(
    "damage",
    ["not json", '[{"rate": {"$decimal": "x"}}, "python", []]', '[{}, "python", []]', '[{"rate": 1, "x": 2}, "", []]'],
)
def test_what_is_no_result_of_the_node_is_not_used(redis, damage):
    rates, node = Rates(), vesper.load(NODE)
    for _ in range(2):
        with runtime_for(rates, results=redis.url) as runtime:
            assert str(runtime.execute(node, {"currency": "EUR"}).outputs["rate"]) == "1.0825"
        redis.ask("SET", redis.ask("KEYS", "*"), damage)
    assert len(rates.calls) == 2


def test_a_key_of_another_type_is_an_empty_one(redis, no_pause):
    redis.ask("LPUSH", "list", "x")
    store = RedisResults(redis.url)
    assert store.get("list") is None
    store.put("list", b"x")
    assert store.get("list") == b"x"
    store.close()


def test_threads_share_a_connection(redis):
    store = RedisResults(redis.url)
    wrong = []

    def work(number):
        for turn in range(50):
            value = f"{number}-{turn}".encode()
            store.put(f"key-{number}", value)
            if store.get(f"key-{number}") != value:
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    store.close()


def test_a_connection_that_redis_closed_is_made_anew(redis):
    store = RedisResults(redis.url)
    store.put("a", b"1")
    redis.ask("CLIENT", "KILL", "TYPE", "normal")
    assert store.get("a") == b"1"
    store.close()


def test_a_server_that_comes_back_is_used_again(no_pause):
    if missing := redis_missing():
        pytest.skip(missing)
    with RedisServer() as server:
        store = RedisResults(server.url)
        store.put("a", b"1")
        server.halt()
        assert store.get("a") is None
        server.resume()
        server.wait()
        store.put("a", b"2")
        assert store.get("a") == b"2"
        store.close()


@pytest.mark.parametrize("login", ["", ":wr0ngw0rd@", "visitor:wr0ngw0rd@"])
def test_a_wrong_password_is_told_once_and_not_shown(redis_servers, no_pause, caplog, login):
    rates = Rates()
    with caplog.at_level(logging.DEBUG):
        url = f"redis://{login}127.0.0.1:{redis_servers['locked'].port}"
        with runtime_for(rates, results=url) as runtime:
            for _ in range(2):
                assert runtime.execute(vesper.load(NODE), {"currency": "EUR"}).error is None
            assert "wr0ngw0rd" not in repr(vars(runtime))
    assert len(rates.calls) == 2
    (told,) = [record.getMessage() for record in caplog.records if record.name == "lyra.vesper"]
    assert told.endswith("GET was answered with NOAUTH" if not login else "AUTH was answered with WRONGPASS")
    assert "wr0ngw0rd" not in caplog.text


def test_a_user_of_redis_can_be_named(redis):
    redis.ask("ACL", "SETUSER", "ann", "on", ">pw", "~*", "+@all")
    store = RedisResults(f"redis://ann:pw@127.0.0.1:{redis.port}")
    store.put("a", b"1")
    assert store.get("a") == b"1"
    store.close()
    redis.ask("ACL", "DELUSER", "ann")


# ---------------------------------------------------------------- servers that answer badly
class HostileRedis(socketserver.ThreadingTCPServer):
    """Answers everything with the same bytes, one by one where it is slow, and then hangs up or waits."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, answer, *, pause_s=0.0, closes=False):
        super().__init__(("127.0.0.1", 0), _Talk)
        self.answer, self.pause_s, self.closes = answer, pause_s, closes
        self.connections = 0
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"redis://127.0.0.1:{self.server_address[1]}"

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class _Talk(socketserver.BaseRequestHandler):
    server: HostileRedis

    def handle(self):
        self.server.connections += 1
        try:
            while self.request.recv(65_536):
                pieces = [self.server.answer]
                if self.server.pause_s:
                    pieces = [bytes([byte]) for byte in self.server.answer]
                for piece in pieces:
                    self.request.sendall(piece)
                    time.sleep(self.server.pause_s)
                if self.server.closes:
                    return
        except OSError:
            pass  # the client hung up


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\r\n",
        b"-ERR broken\r\n",
        b"+OK\r\n",
        b":1\r\n",
        b"*1\r\n$1\r\nx\r\n",
        b"$ 1\r\nx\r\n",
        b"$-2\r\n",
        b"$5\r\nxx\r\n",
        b"$1\r\nxx\r\n",
        b"$1\r\nx\r\n+OK\r\n",
        b"$99999999999\r\n",
        b"$300000\r\n" + b"x" * 300_000 + b"\r\n",
        b"x" * 5_000,
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
def test_garbage_is_as_good_as_nothing(answer, monkeypatch):
    monkeypatch.setattr(redis_results, "REDIS_TIMEOUT_S", 0.3)
    with HostileRedis(answer, closes=True) as server:
        store = RedisResults(server.url)
        assert store.get("a") is None
        assert store.get("a") is None
        store.close()
        assert server.connections == 1  # then it is left alone for a while


@pytest.mark.parametrize("answer", [b"", b"$4096\r\n" + b"x" * 4096 + b"\r\n"])
def test_a_slow_answer_has_a_deadline_as_a_whole(answer, monkeypatch):
    monkeypatch.setattr(redis_results, "REDIS_TIMEOUT_S", 0.3)
    with HostileRedis(answer, pause_s=0.05) as server:
        store = RedisResults(server.url)
        started = time.monotonic()
        assert store.get("a") is None
        assert time.monotonic() - started < 2
        store.close()


def test_a_server_that_is_not_there_is_an_empty_one():
    rates = Rates()
    with runtime_for(rates, results=RedisResults("redis://127.0.0.1:1")) as runtime:
        for _ in range(2):
            assert runtime.execute(vesper.load(NODE), {"currency": "EUR"}).error is None
    assert len(rates.calls) == 2


@pytest.mark.parametrize(
    "address",
    [
        "http://host",
        "rediss://host",
        "redis://",
        "redis://host/name",
        "redis://host/²",
        "redis://host/1/2",
        "redis://:hunter2/x@host",
        "redis://hunter2@host",
        "redis://:hunter2@host:99999",
        "redis://:hunter2@[host",
        "redis://host?password=hunter2",
    ],
)
def test_a_wrong_address_is_refused_and_not_shown(address):
    with pytest.raises(ConfigError) as caught:
        vesper.Runtime(results=address)
    assert "hunter2" not in caught.value.render() + repr(caught.value)
    assert caught.value.__cause__ is None
