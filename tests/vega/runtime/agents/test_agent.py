"""Agents of Vega programs: what reaches the model, what crashes, what overlaps, what is traced."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra import Kernel, vega
from lyra.models.client import LLMClient
from lyra.models.provider import Request
from lyra.models.script import Reply
from lyra.models.sim import SimProvider
from lyra.testing.clock import SimClock
from lyra.testing.loop import run as run_in_virtual_time
from lyra.vega import VegaError
from tests.vega.support import FAILING, Seen, play

BOT = 'agent Bot { model "sim/script" retry { max_attempts 1 } }\n'


def test_settings_reach_the_request():
    seen = Seen()
    source = """
        agent Bot { model "sim/script" system "Be brief." temperature 0.25 max_tokens 77 }
        let b = spawn Bot;
        b <- "hello";
    """
    play(source, seen)
    request = seen.requests[0]
    assert (request.system, request.temperature, request.max_tokens) == ("Be brief.", 0.25, 77)
    assert [message.text for message in request.messages] == ["hello"]


def test_memory_none_carries_one_user_message():
    seen = Seen()
    play(BOT + 'let b = spawn Bot; b <- "a"; b <- "b";', seen)
    assert [len(request.messages) for request in seen.requests] == [1, 1]


def test_memory_conversation_carries_the_history():
    seen = Seen()
    source = 'agent Bot { model "sim/script" memory conversation } let b = spawn Bot; b <- "a"; b <- "b"; b <- "c";'
    play(source, seen)
    assert [message.text for message in seen.requests[2].messages] == ["a", "a", "b", "b", "c"]


def test_memory_window_carries_the_last_messages():
    seen = Seen()
    source = 'agent Bot { model "sim/script" memory window(3) } let b = spawn Bot; for m in ["a", "b", "c"] { b <- m; }'
    play(source, seen)
    assert [message.text for message in seen.requests[2].messages] == ["b", "b", "c"]


def test_a_tools_schema_reaches_the_model():
    seen = Seen()
    source = """
        agent Bot {
            model "sim/script"
            tool find(name: str, most: int = 3, exact: bool = false) -> list
                description "Find things."
            { return []; }
        }
        let b = spawn Bot;
        b <- "x";
    """
    play(source, seen)
    tool = seen.requests[0].tools[0]
    assert (tool.name, tool.description) == ("find", "Find things.")
    assert tool.schema["required"] == ["name"]
    assert tool.schema["properties"]["most"] == {"type": "integer"}


def test_used_up_restarts_never_reach_the_model():
    seen = Seen(lambda _: FAILING)
    source = (
        BOT
        + """
        let b = spawn Bot supervised by { strategy restart max_restarts 1 window 60s };
        for i in list::range(0, 5) { try { b <- "x"; } catch AgentFailed { print(i); } }
    """
    )
    assert play(source, seen) == ["0", "1", "2", "3", "4"]
    assert len(seen.requests) == 2


def test_the_message_is_not_sent_again_after_a_restart():
    seen = Seen(lambda request: FAILING if request.messages[-1].text == "bad" else "ok")
    play(BOT + 'let b = spawn Bot; try { b <- "bad"; } catch AgentFailed { } print(b <- "good");', seen)
    assert [request.messages[-1].text for request in seen.requests] == ["bad", "good"]


def test_strategy_stop_is_one_call():
    seen = Seen(lambda _: FAILING)
    source = (
        BOT
        + """
        let b = spawn Bot supervised by { strategy stop };
        for i in list::range(0, 3) { try { b <- "x"; } catch AgentFailed { } }
    """
    )
    play(source, seen)
    assert len(seen.requests) == 1


def test_circuit_open_never_reaches_the_model():
    seen = Seen(lambda _: FAILING)
    source = """
        agent Bot { model "sim/script" retry { max_attempts 1 } circuit_breaker { threshold 2 reset_after 30s } }
        let b = spawn Bot;
        for i in list::range(0, 9) { try { b <- "x"; } catch CircuitOpen { print("open"); } catch AgentFailed { } }
    """
    model = Reply.from_data({"error": {"kind": "overloaded"}})
    seen = Seen(lambda _: model)
    assert play(source, seen) == ["open"] * 7
    assert len(seen.requests) == 2


def test_processes_of_one_declaration_share_their_breaker():
    seen = Seen(lambda _: Reply.from_data({"error": {"kind": "overloaded"}}))
    source = """
        agent Bot { model "sim/script" retry { max_attempts 1 } circuit_breaker { threshold 1 reset_after 30s } }
        let a = spawn Bot;
        let b = spawn Bot;
        try { a <- "x"; } catch AgentFailed { print("failed"); }
        try { b <- "x"; } catch CircuitOpen { print("open"); }
    """
    assert play(source, seen) == ["failed", "open"]


def test_restarts_are_told_as_events():
    events: list[Any] = []
    source = BOT + 'let b = spawn Bot; try { b <- "x"; } catch AgentFailed { } process::sleep(1s);'
    play(source, Seen(lambda _: FAILING), events=events)
    assert [event.data["reason"] for event in events if event.kind == "child.restarting"] == ["error"]


def test_call_records_have_the_eleven_fields_and_nest():
    events: list[Any] = []
    source = """
        agent Bot { model "sim/script" }
        let b = spawn Bot;
        let outer = trace::span("outer");
        trace::set_attribute("step", 1);
        let inner = trace::span("inner");
        b <- "x";
        trace::event("asked");
        inner.end();
        outer.end();
        b <- "y";
    """
    play(source, events=events)
    calls = [event.data for event in events if event.kind == "model.called"]
    turns = [event.data for event in events if event.kind == "agent.answered"]
    spans = {event.data["name"]: event.data for event in events if event.kind == "trace.span"}
    notes = [event.data for event in events if event.kind == "trace.event"]
    assert list(calls[0]) == [
        *("trace_id", "span_id", "agent", "model", "input_tokens", "output_tokens", "cost_usd"),
        *("latency_ms", "status", "retries", "parent_span"),
    ]
    assert calls[0]["agent"] == "Bot"
    assert calls[0]["parent_span"] == turns[0]["span_id"]
    assert turns[0]["parent_span"] == spans["inner"]["span_id"]
    assert spans["inner"]["parent_span"] == spans["outer"]["span_id"]
    assert spans["outer"]["attributes"] == {"step": 1}
    assert notes == [{"text": "asked", "span_id": spans["inner"]["span_id"]}]
    assert turns[1]["parent_span"] is None


def test_a_loop_that_breaks_cancels_the_answer():
    events: list[Any] = []
    source = """
        agent Bot { model "sim/script" }
        let b = spawn Bot;
        for chunk in b <~ "go" { print(chunk); break; }
        process::sleep(1m);
    """
    slow = Reply.from_data({"text": "one two three", "chunk_s": 5})
    assert play(source, Seen(lambda _: slow), events=events) == ["one "]
    assert [event.data["status"] for event in events if event.kind == "model.called"] == ["cancelled"]


def test_cancelled_calls_of_a_parallel_block_leave_no_process():
    async def main() -> list[str]:
        lines: list[str] = []
        async with Kernel(clock=clock) as kernel:
            client = LLMClient()
            client.register("sim", SimProvider(script=Seen(answer)))
            kernel.parts["models"] = client
            await vega.run(source, kernel=kernel, stdout=lines.append, host={"live": lambda: kernel.live})
        return lines

    def answer(request: Request) -> Any:
        return FAILING if request.messages[-1].text == "bad" else Reply.from_data({"text": "x", "first_s": 60})

    source = (
        BOT
        + """
        let b = spawn Bot;
        process::sleep(1s);
        let before = live();
        try { parallel { let y = b <- "bad"; let x = b <- "slow"; } } catch AgentFailed { print("failed"); }
        process::sleep(1s);
        print(live() - before);
    """
    )
    clock = SimClock()
    assert run_in_virtual_time(main(), clock=clock) == ["failed", "0"]


def test_priority_of_an_agent():
    events: list[Any] = []
    levels: list[int] = []

    def answer(_: Request) -> str:
        process: Any = asyncio.current_task()
        levels.append(getattr(process, "priority", -1))
        return "x"

    play('agent Bot { model "sim/script" priority high } let b = spawn Bot; b <- "x";', Seen(answer), events=events)
    assert levels == [1]


def test_the_budget_is_kept_before_money_is_spent():
    seen = Seen(lambda _: "x")
    source = """
        agent Bot { model "sim/script" max_tokens 1000 }
        let b = spawn Bot;
        session budget $0.000001 { b <- "x"; }
    """

    class Dear(SimProvider):
        def price(self, model: str) -> Any:
            from lyra.models.script import Script

            data = {"replies": [], "price": {"input_usd_per_mtok": 10, "output_usd_per_mtok": 10}}
            return Script.from_data(data).price

    async def main() -> None:
        async with Kernel() as kernel:
            client = LLMClient()
            client.register("sim", Dear(script=seen))
            kernel.parts["models"] = client
            await vega.run(source, kernel=kernel)

    with pytest.raises(VegaError) as raised:
        asyncio.run(main())
    assert raised.value.name == "BudgetExceeded"
    assert seen.requests == []


def test_a_program_runs_on_a_durable_kernel(tmp_path):
    """The same program with a journal: every act is a row."""
    source = """
        agent A { model "sim/echo" }
        agent M { model "sim/echo" memory conversation }
        fn w(main, xs) { receive { [n, f] => { main <- [n + xs[0], f(2)]; } } }
        let a = spawn A;
        let m = spawn M;
        print((a <- "hi") + (m <- "there"));
        let k = 10;
        let p = spawn fn w(process::self(), [5]);
        p <- [1, |x| x * k];
        receive { r => { print(r); } }
        parallel { let x = a <- "x"; let y = m <- "y"; }
        print(x + y);
        for c in a <~ "one two" { print(c); }
        receive { z => {} after 10ms => { print("late"); } }
        fn main() { return {"k": $0.50}; }
    """

    async def main() -> tuple[list[str], Any]:
        lines: list[str] = []
        async with Kernel(tmp_path / "run.db") as kernel:
            return lines, await vega.run(source, kernel=kernel, stdout=lines.append)

    lines, value = asyncio.run(asyncio.wait_for(main(), 60))
    assert lines == ["hithere", "[6, 20]", "xy", "one ", "two", "late"]
    assert value == {"k": 500_000}


def test_a_mock_answers_sends_and_streams_without_a_model():
    program = vega.compile(
        """
        agent Modelless { system "has no model" }
        test "mocked" {
            mock Modelless { on "hello( there)?" reply "hi you" on "." reply "what?" }
            let n = spawn Modelless;
            print(n <- "hello there");
            print(n <- "x");
            for c in n <~ "hello" { print("[" + c + "]"); }
            parallel { let a = n <- "x"; let b = n <- "hello"; }
            print(a + b);
        }
        """
    )
    from lyra.vega.plain import test_program as program_of_test

    lines: list[str] = []
    vega.run(program_of_test(program, program.tests[0]), stdout=lines.append)
    assert lines == ["hi you", "what?", "[hi ]", "[you]", "what?hi you"]


@pytest.mark.parametrize(("most", "lines"), [(1, ["open", "again"]), (2, ["again", "again"])])
def test_a_breaker_lets_so_many_calls_see_whether_the_model_works_again(most, lines):
    """`half_open_max`, at a time: the others are refused."""

    def answer(request: Request) -> Reply:
        if request.messages[-1].text == "fail":
            return Reply.from_data({"error": {"kind": "overloaded"}})
        return Reply.from_data({"text": "again", "first_s": 1})

    source = f"""
        agent Bot {{
            model "sim/script" retry {{ max_attempts 1 }}
            circuit_breaker {{ threshold 1 reset_after 5s half_open_max {most} }}
        }}
        let a = spawn Bot;
        let b = spawn Bot;
        try {{ a <- "fail"; }} catch AgentFailed {{ }}
        process::sleep(6s);
        fn asks(bot) {{ try {{ print(bot <- "x"); }} catch CircuitOpen {{ print("open"); }} }}
        spawn fn asks(a);
        spawn fn asks(b);
        process::sleep(9s);
    """
    assert play(source, Seen(answer)) == lines
