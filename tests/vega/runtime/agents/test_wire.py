"""Programs against a provider that is a real HTTP server: what stands in the requests, and when it is hung up on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from lyra import vega
from lyra.vega import VegaError
from tests.models.server import Reply, Server, run, sse

MODEL = 'model "claude-sonnet-4-20250514"'


def message(*texts: str) -> list[dict[str, Any]]:
    """The events of one answer, as Anthropic sends them."""
    usage = {"input_tokens": 10, "output_tokens": 1}
    return [
        {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}} for text in texts),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]


FINE = Reply(sse(*message("fine")))
HANGING = Reply(sse(*message("one ", "two ")[:3]), hang=True)  # a piece of an answer, and nothing behind it


def refused(status: int, kind: str) -> Reply:
    return Reply.json({"type": "error", "error": {"type": kind, "message": f"no: {kind}"}}, status=status)


class Talk:
    """What came of a run: its lines, its warnings, and the server's side of it."""

    def __init__(self, source: str, *replies: Reply) -> None:
        self.lines: list[str] = []
        self.warned: list[str] = []
        self.error: VegaError | None = None
        self._source = source
        self._replies = replies

    async def play(self, monkeypatch: pytest.MonkeyPatch) -> Talk:
        async with Server(*self._replies) as server:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
            monkeypatch.setenv("ANTHROPIC_API_KEY", "a key")
            try:
                await vega.run(self._source, stdout=self.lines.append, stderr=self.warned.append)
            except VegaError as error:
                self.error = error
            if any(reply.hang for reply in self._replies):
                await asyncio.wait_for(server.hung_up.wait(), 5)
            self.requests = [asked.data for asked in server.requests]
            self.hung_up = server.hung_up.is_set()
        return self


@pytest.fixture
def talk(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    return lambda source, *replies: run(Talk(source, *replies).play(monkeypatch))


def agent(settings: str = "") -> str:
    return f"agent A {{ {MODEL} {settings} }} let a = spawn A;\n"


def test_the_settings_stand_in_the_request(talk):
    """A temperature that is set is sent; one that is not is left to the provider."""
    done = talk(agent('system "Be brief." temperature 0.3 max_tokens 77') + 'print(a <- "hello");', FINE)
    (request,) = done.requests
    assert done.lines == ["fine"]
    assert (request["temperature"], request["max_tokens"]) == (0.3, 77)
    assert request["model"] == "claude-sonnet-4-20250514"
    assert request["system"][0]["text"] == "Be brief."
    assert request["messages"] == [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
    assert "temperature" not in talk(agent() + 'a <- "x";', FINE).requests[0]


def test_a_busy_provider_is_asked_again(talk):
    source = agent("retry { max_attempts 3 backoff exponential(10ms, 2.0, 50ms) }") + 'print(a <- "x");'
    done = talk(source, refused(429, "rate_limit_error"), refused(529, "overloaded_error"), FINE)
    assert (done.lines, len(done.requests)) == (["fine"], 3)


def test_only_what_is_listed_is_tried_again(talk):
    source = agent("retry { max_attempts 5 backoff constant(1ms) on [rate_limit] }") + 'a <- "x";'
    done = talk(source, refused(529, "overloaded_error"))
    assert done.error is not None
    assert (done.error.name, len(done.requests)) == ("AgentFailed", 1)


def test_models_are_fallen_back_along(talk):
    """When the first has failed with all its tries, the next is asked."""
    source = """
        agent A { model ["claude-sonnet-4-20250514", "claude-3-5-haiku-20241022"]
                  retry { max_attempts 2 backoff constant(1ms) } }
        let a = spawn A;
        print(a <- "x");
    """
    done = talk(source, refused(529, "overloaded_error"), refused(529, "overloaded_error"), FINE)
    asked = [request["model"] for request in done.requests]
    assert asked == ["claude-sonnet-4-20250514"] * 2 + ["claude-3-5-haiku-20241022"]


def test_leaving_the_loop_hangs_up(talk):
    """The provider sees it, while the program goes on."""
    done = talk(agent() + 'for c in a <~ "x" { print(c); break; } process::sleep(200ms); print("on");', HANGING)
    assert (done.lines, done.hung_up) == (["one ", "on"], True)


def test_a_call_out_of_time_hangs_up(talk):
    source = (
        agent() + 'try { a <- "x" timeout 100ms; } catch DeadlineExceeded { print("late"); } process::sleep(200ms);'
    )
    done = talk(source, HANGING)
    assert (done.lines, done.hung_up) == (["late"], True)


def test_a_cancelled_call_of_a_parallel_block_hangs_up(talk):
    source = agent("retry { max_attempts 1 }") + (
        'try { parallel { let x = a <- "bad"; let y = a <- "slow"; } } catch AgentFailed(r) { print(r); }'
        "process::sleep(200ms);"
    )
    done = talk(source, replace(refused(400, "invalid_request_error"), to="bad"), replace(HANGING, to="slow"))
    assert (done.lines, done.hung_up) == (["no: invalid_request_error (anthropic, status 400)"], True)


def test_the_end_of_the_run_hangs_up_quietly(talk, caplog):
    """What other processes were doing is no failure of theirs: nothing is warned of, nothing goes to a log."""
    source = agent() + 'fn w(a) { a <- "x"; } spawn fn w(a); process::sleep(200ms); print("end");'
    done = talk(source, HANGING)
    assert (done.lines, done.warned, done.hung_up) == (["end"], [], True)
    assert caplog.records == []


def test_money_is_counted_by_the_prices_of_the_model(talk):
    source = agent("max_tokens 100") + (
        'session budget $1.00 { a <- "x"; print(budget::used()); print(budget::remaining()); }'
        'try { a <- "x" budget $0.0001; } catch BudgetExceeded { print("too dear"); }'
    )
    done = talk(source, FINE)
    assert done.lines == ["0.000105", "0.999895", "too dear"]
    assert len(done.requests) == 1


def test_the_timeout_of_an_agent_bounds_the_call_with_its_tries(talk):
    """It is no failure that would be tried again."""
    source = agent("timeout 300ms") + 'try { a <- "x"; } catch DeadlineExceeded(reason) { print(reason); }'
    done = talk(source, HANGING)
    assert (done.lines, len(done.requests)) == (["A did not answer within 0.3 s"], 1)


def test_retry_on_timeout_makes_it_the_time_of_a_try(talk):
    """A try that hangs is given up and tried again; where none answers in time, it is late and no crash."""
    retry = "timeout 300ms retry { max_attempts 2 backoff constant(1ms) on [timeout] }"
    asked = 'try { print(a <- "x"); } catch DeadlineExceeded(reason) { print(reason); }'
    done = talk(agent(retry) + asked, HANGING, FINE)
    assert (done.lines, len(done.requests)) == (["fine"], 2)
    done = talk(agent(retry) + asked + asked, HANGING)
    assert (done.lines, len(done.requests)) == (["A did not answer within 0.3 s"] * 2, 4)
