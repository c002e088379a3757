"""`vega run` at its edges: what never goes on, what is interrupted, what is traced, tools of lyra.toml."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import Any

import pytest

from lyra.agents.session.records import CALL_FIELDS
from tests.cli.vega_runner import COMMAND, Vega, vega
from tests.mcp.support import HERE, PYTHON, SEEN

__all__ = ["vega"]  # the fixture


def test_a_program_that_can_never_go_on_ends_with_an_error(vega: Vega):
    vega.write("a.vega", 'print("before");\nreceive { x => {} }\n')
    for flags in ([], ["--trace"]):
        done = vega("run", "a.vega", *flags)
        assert (done.returncode, done.stdout) == (1, "before\n")
        assert "error[Deadlock]" in done.stderr
    assert "a.vega:2:1" in done.stderr


def test_ctrl_c_ends_it_cleanly(vega: Vega):
    """Exit 130, what was printed stands, one word on stderr."""
    vega.write("a.vega", 'fn w() { process::sleep(1h); }\nspawn fn w();\nprint("ready");\nreceive { x => {} }\n')
    started = subprocess.Popen(
        [*COMMAND, "run", "a.vega"],
        cwd=vega.folder,
        env={**vega.env, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=30)
    assert (started.returncode, out, err) == (130, "", "interrupted\n")


TRACED = """
agent A { model "sim/echo" }
agent M { model "sim/echo" memory conversation }
let a = spawn A;
let m = spawn M;
m <- "zero";
let outer = trace::span("outer");
a <- "one";
m <- "two";
for c in m <~ "three" { }
parallel { let x = a <- "four"; let y = m <- "five"; }
outer.end();
m <- "six";
"""


def test_all_calls_of_a_run_are_one_trace_and_nest_in_its_spans(vega: Vega):
    """Exactly the eleven fields; also calls with memory belong to the span around them."""
    vega.write("a.vega", TRACED)
    lines = [json.loads(line) for line in vega("run", "a.vega", "--trace").stderr.splitlines()]
    records = [line for line in lines if "kind" not in line]  # those of a kind are of the program's own spans
    assert {tuple(record) for record in records} == {CALL_FIELDS}
    assert len({record["trace_id"] for record in records}) == 1
    assert len({record["span_id"] for record in records}) == 7
    parents = [record["parent_span"] for record in records]
    assert parents[0] is None
    assert len(set(parents[1:6])) == 1
    assert parents[1] is not None
    assert parents[6] is None


IN_A_TOOL = """
agent B { model "sim/echo" }
agent A { model "sim/script:script.yaml" tool ask(q: str) -> str { let b = spawn B; return b <- q; } }
let a = spawn A;
print(a <- "go");
"""


@pytest.mark.parametrize("flags", [[], ["--db", "runs.db"]])
def test_what_a_tool_asks_belongs_to_the_call_that_used_the_tool(vega: Vega, flags: list[str]):
    vega.write("a.vega", IN_A_TOOL)
    replies = "  - user: go\n    tool_calls: [{name: ask, arguments: {q: why}}]\n  - text: done\n"
    vega.write("script.yaml", f"replies:\n{replies}")
    done = vega("run", "a.vega", "--trace", *flags)
    calls = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    inner, outer = calls
    assert (inner["agent"], outer["agent"], done.stdout) == ("B", "A", "done\n")
    assert (inner["parent_span"], outer["parent_span"]) == (outer["span_id"], None)
    assert inner["trace_id"] == outer["trace_id"]


def test_records_name_models_as_the_program_does(vega: Vega):
    """Also of a call that was refused before a model was asked."""
    source = """
        agent A { model "claude-sonnet-4-20250514" max_tokens 100 }
        let a = spawn A;
        try { a <- "x" budget $0.000001; } catch BudgetExceeded { print("too dear"); }
    """
    vega.write("a.vega", source)
    done = vega("run", "a.vega", "--trace", ANTHROPIC_API_KEY="a key")
    (record,) = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.stdout == "too dear\n"
    assert (record["model"], record["status"]) == ("claude-sonnet-4-20250514", "budget_exceeded")


def test_tools_of_the_servers_that_lyra_toml_names(vega: Vega):
    settings: dict[str, Any] = {
        "command": PYTHON,
        "args": ["-IS", str(HERE / "tiny_server.py")],
        "readable": list(SEEN),
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    config = vega.folder.parent / "home" / ".config" / "lyra"
    config.mkdir(parents=True)
    (config / "lyra.toml").write_text("\n".join(["[mcp.servers.tiny]", *lines]) + "\n")
    vega.write(
        "script.yaml",
        "replies:\n"
        "  - user: go\n    tool_calls: [{name: mcp__tiny__add, arguments: {a: 2, b: 3}}]\n"
        "  - tool: mcp__tiny__add\n    text: 'the sum is {result}'\n",
    )
    source = 'import tools from mcp "tiny"; agent A { model "sim/script:script.yaml" tools [add] }\n'
    vega.write("a.vega", source + 'let a = spawn A; print(a <- "go");')
    done = vega("run", "a.vega")
    assert (done.returncode, done.stdout) == (0, "the sum is 5\n"), done.stderr
    vega.write("b.vega", source.replace('"tiny"', '"tony"'))
    wrong = vega("run", "b.vega")
    assert wrong.returncode == 2
    assert "there is no MCP server 'tony'" in wrong.stderr
    assert "tiny" in wrong.stderr
