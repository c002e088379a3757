"""A killed run goes on with a changed program where that is safe, and is refused with the reason where it is not.

Real kills, real stores: what each case begins is killed with SIGKILL at a known place, its program is edited, and the
run goes on by the command line.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pytest

from lyra.vega.durable.runs import Runs
from tests.cases import first
from tests.cli.vega.test_durable import begin, kill
from tests.cli.vega_runner import Vega, vega
from verify.crash.vega.provider import Asked, Provider

__all__ = ["vega"]

CALLS = """\
agent A { model "sim/echo" system "be brief" }
fn early(x) { return "early ${x}"; }
fn late(x) { return "late ${x}"; }
fn main() {
  let a = spawn A;
  print(early("1"));
  print(a <- "one");
  process::sleep(1500ms);
  print(late("2"));
  print(a <- "two");
}
"""
OUTPUT = ["early 1", "one", "late 2", "two"]


def killed(vega: Vega, source: str, until: str = "one", **options: Any) -> None:
    vega.write("a.vega", source)
    kill(begin(vega, "run", "a.vega", "--db", "run.db", "--run-id", "r", until=until, **options))


def gone_on(vega: Vega, source: str) -> tuple[list[str], str]:
    """The whole output with an edited program, and what was said about it."""
    vega.write("a.vega", source)
    done = vega("resume", "r", "--program", "a.vega", "--db", "run.db")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


def refused(vega: Vega, source: str, *reasons: str, output: list[str]) -> None:
    """An edited program is refused with reasons, nothing is lost, and the run ends with the program that it has."""
    kept = vega.write("a.vega", source)
    before = vega("runs", "--db", "run.db", "--json").stdout
    for words in (["resume", "r", "--program", kept], ["run", kept, "--run-id", "r"]):
        done = vega(*words, "--db", "run.db")
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert "the program changed since run r began" in done.stderr
        assert "has: vega resume r --db run.db; see what it did: vega replay r --db run.db;" in done.stderr
        for reason in reasons:
            assert reason in done.stderr, done.stderr
    assert vega("runs", "--db", "run.db", "--json").stdout == before
    done = vega("resume", "r", "--db", "run.db")
    assert (done.returncode, done.stdout.splitlines()) == (0, output), done.stderr
    assert "a.vega was changed since; the run goes on with the program that it has" in done.stderr
    assert "with the changed one: vega resume r --db run.db --program a.vega" in done.stderr


# ---------------------------------------------------------------- safe


def test_functions_that_no_process_has_come_to_may_change(vega: Vega):
    """Also where new ones shift the numbers of the others; the past is not run with the new code."""
    killed(vega, CALLS)
    edited = CALLS.replace("fn early", 'fn other(x) { return |y| x + y; }\nconst MARK = "!";\nfn early')
    edited = edited.replace('"late ${x}"', '"later ${x}" + MARK')
    output, notes = gone_on(vega, edited)
    assert output == ["early 1", "one", "later 2!", "two"]
    assert "migrated: fn late was changed (a.vega:5): no process comes to it again before it goes on\n" in notes
    assert "migrated: fn other was added (a.vega:2): nothing has come to it yet\n" in notes
    assert "migrated: const MARK was added (a.vega:3)" in notes
    assert vega("resume", "r", "--db", "run.db").stdout.splitlines() == output


def test_the_rest_of_a_function_that_is_running_may_change(vega: Vega):
    """What main did so far it would have done the same way; what it has not come to is another matter."""
    killed(vega, CALLS)
    edited = CALLS.replace('print(late("2"));', 'print("new");\n  print(late("3"));')
    output, notes = gone_on(vega, edited)
    assert output == ["early 1", "one", "new", "late 3", "two"]
    assert "migrated: fn main was changed (a.vega:4): what the run did with it stays as it was\n" in notes


def test_later_lives_go_on_with_the_migrated_program(vega: Vega):
    """It is a row of the journal: after another kill it need not be said again, and it may be migrated once more."""
    more = CALLS.replace('print(a <- "two");', 'print(a <- "two");\n  process::sleep(1500ms);\n  print(late("3"));')
    killed(vega, more)
    second = more.replace('"late ${x}"', '"later ${x}"')
    vega.write("a.vega", second)
    kill(begin(vega, "resume", "r", "--program", "a.vega", "--db", "run.db", until="two"))
    assert vega.json("runs", "--db", "run.db")[0]["migrations"] == 1
    with Runs(str(vega.folder / "run.db")) as runs:
        run = runs["r"]
        assert len(run.versions) == 2
        assert run.sources()["a.vega"] == second
        assert run.sources(0)["a.vega"] == more
    output, _ = gone_on(vega, "fn first() {}\n" + second + "fn last() {}\n")
    assert output == ["early 1", "one", "later 2", "two", "later 3"]
    facts = vega.json("runs", "--db", "run.db")[0]
    assert (facts["state"], facts["migrations"]) == ("finished", 2)


def test_a_migrated_run_that_is_killed_goes_on_by_itself(vega: Vega):
    more = CALLS.replace('print(a <- "two");', 'print(a <- "two");\n  process::sleep(1500ms);\n  print(late("3"));')
    killed(vega, more)
    vega.write("a.vega", "fn shift() {}\n" + more.replace('"late ${x}"', '"later ${x}"'))
    kill(begin(vega, "resume", "r", "--program", "a.vega", "--db", "run.db", until="two"))
    (vega.folder / "a.vega").unlink()
    output = vega("resume", "r", "--db", "run.db").stdout.splitlines()
    assert output == ["early 1", "one", "later 2", "two", "later 3"]


# ---------------------------------------------------------------- not safe


def test_a_call_that_was_made_cannot_be_another_one(vega: Vega):
    killed(vega, CALLS)
    edited = CALLS.replace('a <- "one"', 'a <- "uno"')
    refused(vega, edited, "fn main was changed (a.vega:4): process main runs it again", "a.vega:7", output=OUTPUT)


def test_the_lines_that_differ_are_shown_also_of_a_file_with_another_name(vega):
    killed(vega, CALLS)
    vega.write("b.vega", CALLS.replace('a <- "one"', 'a <- "uno"'))
    done = vega("resume", "r", "--program", "b.vega", "--db", "run.db")
    assert done.returncode == 2
    assert "--- b.vega of the run\n+++ b.vega\n@@" in done.stderr
    assert '\n-  print(a <- "one");\n+  print(a <- "uno");\n' in done.stderr
    assert "top level" not in done.stderr


def test_a_line_that_was_printed_cannot_be_another_one(vega: Vega):
    killed(vega, CALLS)
    edited = CALLS.replace("early ${x}", "first ${x}")
    reason = "printed 'early 1' where it would print 'first 1'"
    refused(vega, edited, "fn early was changed (a.vega:2): process main runs it", reason, output=OUTPUT)


def test_a_call_that_was_made_cannot_be_left_out(vega: Vega):
    killed(vega, CALLS)
    edited = CALLS.replace('  print(a <- "one");\n  process::sleep(1500ms);\n', "")
    refused(vega, edited, "fn main was changed (a.vega:4)", "process main", output=OUTPUT)


def test_a_run_that_is_over_has_nothing_left_to_do(vega: Vega):
    vega.write("a.vega", CALLS.replace("1500ms", "1ms"))
    vega("run", "a.vega", "--db", "run.db", "--run-id", "r")
    vega.write("a.vega", CALLS)
    done = vega("resume", "r", "--program", "a.vega", "--db", "run.db")
    assert done.returncode == 2
    assert "the run is over" in done.stderr


# ---------------------------------------------------------------- saved processes

LONG = """\
const SIZE = 300;
fn step(i) { return "step ${i}"; }
fn helper(x) { return "helper ${x}"; }
fn main() {
  for i in list::range(0, SIZE) { print(step(i)); }
  print("one");
  process::sleep(1500ms);
  print(step(1000));
  print(helper("2"));
}
"""


def checkpoints(vega: Vega) -> int:
    with Runs(str(vega.folder / "run.db")) as runs:
        return sum(record.kind == "program.checkpoint" for record in runs["r"].rows())


def test_a_call_since_the_last_checkpoint_keeps_a_function_as_it_was(vega: Vega):
    """`step` was called hundreds of times; all but the last ones lie before a checkpoint, and those are not the same
    any more."""
    lines = [f"step {i}" for i in range(300)]
    killed(vega, LONG)
    assert checkpoints(vega) == 1
    edited = LONG.replace('"step ${i}"', '"stepped ${i}"')
    reason = "printed 'step 255' where it would print 'stepped 255'"
    refused(vega, edited, "fn step was changed (a.vega:2)", reason, output=[*lines, "one", "step 1000", "helper 2"])


def test_a_function_whose_calls_all_lie_before_the_checkpoints_may_change(vega: Vega):
    source = LONG.replace('  print("one");', '  for i in list::range(0, 260) { print("${i}"); }\n  print("one");')
    killed(vega, source)
    assert checkpoints(vega) == 2
    shifted = source.replace("fn step", "fn before_it() { return helper(1); }\nfn step")
    output, notes = gone_on(vega, shifted.replace('"step ${i}"', '"stepped ${i}"').replace("helper ${x}", "help ${x}"))
    assert output[299] == "step 299"
    assert output[-3:] == ["one", "stepped 1000", "help 2"]
    assert "fn step was changed (a.vega:3): no process comes to it again before it goes on" in notes


def test_a_function_that_a_process_was_saved_in_cannot_change(vega: Vega):
    killed(vega, LONG)
    edited = LONG.replace('print(helper("2"));', 'print(helper("3"));')
    reason = "fn main was changed (a.vega:4): process main was saved in the middle of `main`"
    refused(vega, edited, reason, output=[*[f"step {i}" for i in range(300)], "one", "step 1000", "helper 2"])


def test_a_value_with_captured_variables_keeps_its_code(vega: Vega):
    """A function that a saved process holds as a value: with what it captured it is code that is in use."""
    source = LONG.replace("fn main() {", "fn adder(n) {\n  return |x| x + n;\n}\nfn main() {\n  let add = adder(2);")
    source = source.replace('print(helper("2"));', 'print(helper("${add(1)}"));')
    killed(vega, source)
    reason = "fn adder was changed (a.vega:4): process main holds `lambda` as a value"
    output = [*[f"step {i}" for i in range(300)], "one", "step 1000", "helper 3"]
    refused(vega, source.replace("|x| x + n", "|x| x - n"), reason, output=output)


def test_a_variable_that_would_have_been_set_already_cannot_be_needed(vega: Vega):
    """A computed constant is set by the top level, which a saved process is past; a literal one is part of the code."""
    killed(vega, LONG)
    added = 'const MARK = "!" + "?";\n' + LONG.replace('"helper ${x}"', '"helper ${x}" + MARK')
    reason = "process main is past the top level, which would have set `MARK`"
    output = [*[f"step {i}" for i in range(300)], "one", "step 1000"]
    refused(vega, added, reason, output=[*output, "helper 2"])


def test_a_literal_constant_may_be_added_behind_a_checkpoint(vega: Vega):
    killed(vega, LONG)
    output, _ = gone_on(vega, 'const MARK = "!";\n' + LONG.replace('"helper ${x}"', '"helper ${x}" + MARK'))
    assert output[-1] == "helper 2!"


# ---------------------------------------------------------------- other processes

WORKERS = """\
agent A { model "sim/echo" }
fn say(x) { return "say ${x}"; }
fn tell(x) { return "tell ${x}"; }
fn worker(main) {
  main <- say("started");
  receive { text => { main <- tell(text); } }
}
fn main() {
  let w = spawn fn worker(process::self());
  receive { text => { print(text); } }
  print("one");
  process::sleep(1500ms);
  w <- "hello";
  receive { text => { print(text); } }
}
"""


def test_other_processes_are_looked_at_too(vega: Vega):
    killed(vega, WORKERS)
    output = ["say started", "one", "tell hello"]
    reason = "fn say was changed (a.vega:2): process p"
    refused(vega, WORKERS.replace('"say ${x}"', '"speak ${x}"'), reason, output=output)


def test_what_another_process_has_not_come_to_may_change(vega: Vega):
    """Also with a computed constant, which shifts variables and what processes are started with."""
    killed(vega, WORKERS)
    edited = WORKERS.replace("fn say", 'fn none() { return "none"; }\nfn say').replace('"tell ${x}"', '"told ${x}"')
    output, _ = gone_on(vega, edited)
    assert output == ["say started", "one", "told hello"]


def test_a_variable_of_the_top_level_may_be_added_where_only_main_needs_it(vega: Vega):
    killed(vega, WORKERS)
    edited = 'const MARK = "<" + ">";\n' + WORKERS.replace("  w <- ", "  print(MARK);\n  w <- ")
    output, _ = gone_on(vega, edited)
    assert output == ["say started", "one", "<>", "tell hello"]


def test_a_process_that_was_started_before_does_not_have_a_new_variable(vega: Vega):
    killed(vega, WORKERS)
    edited = 'const MARK = "<" + ">";\n' + WORKERS.replace('"tell ${x}"', '"tell ${x}" + MARK')
    refused(vega, edited, "is past the top level", "`MARK`", output=["say started", "one", "tell hello"])


def test_a_program_may_not_be_allowed_more_than_the_run_was(vega: Vega):
    killed(vega, WORKERS)
    tool = "agent B {\n  tool fetch(url: str) -> str\n    capabilities [net::http]\n  { return url; }\n}\n"
    refused(
        vega,
        WORKERS + tool,
        "it wants to do more than the run was allowed",
        output=["say started", "one", "tell hello"],
    )


# ---------------------------------------------------------------- in spite of all

BLIND = """import lyra.vega.durable.durable_run as r, lyra.vega.migrate.migration as m
m._Case.is_safe = lambda _: True
r._PATIENCE_S = 1.0
"""
RUN = "import sys; from lyra.cli.main import vega; sys.exit(vega())"


def test_a_program_that_diverges_in_spite_of_all_loses_nothing(vega: Vega):
    """It was not checked: its first other request stops it, nothing is done, and the program before goes on."""
    killed(vega, CALLS)
    vega.write("b.vega", CALLS.replace('a <- "one"', 'a <- "uno"'))
    blind = [sys.executable, "-c", BLIND + RUN]
    done = vega("resume", "r", "--program", "b.vega", "--db", "run.db", command=blind)
    assert done.returncode == 1
    assert "where its journal has" in done.stderr
    assert vega.json("runs", "--db", "run.db")[0]["state"] == "stopped"
    output, _ = gone_on(vega, CALLS)
    assert output == OUTPUT


# ---------------------------------------------------------------- looking at it


def test_a_replay_goes_through_it_with_the_program_of_each_part(vega: Vega):
    """Forwards and backwards over the place where the other program took over, with the lines that were in force."""
    source = LONG.replace('  print("one");', '  for i in list::range(0, 260) { print("${i}"); }\n  print("one");')
    killed(vega, source)
    gone_on(vega, "fn first() {}\n" + source.replace('"step ${i}"', '"stepped ${i}"'))
    told = "goto 5\nwhere\ngoto 565\nwhere\noutput 3\nback\ngoto 2\nwhere\nprint step(7)\ngoto 565\nprint step(7)\n"
    done = vega("replay", "r", "--plain", "--db", "run.db", given=told)
    assert done.returncode == 0, done.stderr
    assert "note:" not in done.stderr
    assert 'fn step(i) { return "step ${i}"; }' in done.stdout
    assert '"step 7"' in done.stdout
    assert '"stepped 7"' in done.stdout


# ---------------------------------------------------------------- agents

SETTINGS = """\
agent A {
  model "sim/echo"
  system "be brief"
  temperature 0.5
}
fn main() {
  let a = spawn A;
  print(a <- "one");
  let b = spawn A;
  print("go");
  print(a <- "two");
  process::sleep(300ms);
  print(b <- "three");
  print("end");
}
"""
CONVERSATION = """\
agent A { model "sim/echo" system "be brief" memory conversation }
fn main() {
  let a = spawn A;
  print(a <- "one");
  process::sleep(1500ms);
  print(a <- "two");
}
"""


def test_settings_of_an_agent_hold_for_calls_to_come(vega: Vega):
    """What was answered stays; a call that was in flight is made again as it was, under its key; the rest is asked the
    new way, also of processes that were spawned before, in this life and in later ones."""
    source = SETTINGS.replace("sim/echo", "claude-sonnet-4-20250514")
    with Provider() as provider:
        first = held(vega, provider, source, "two", asked=2)
        edited = source.replace("be brief", "be kind").replace("temperature 0.5", "temperature 0.1 timeout 60s")
        vega.write("a.vega", edited)
        child = begin(vega, "resume", "r", "--program", "a.vega", "--db", "run.db", until="[two] (1)")
        notes = kill(child)
        second = provider.take()
        done = vega("resume", "r", "--db", "run.db")
        third = provider.take()
    assert done.stdout.splitlines() == ["[one] (1)", "go", "[two] (1)", "[three] (1)", "end"], done.stderr
    assert "agent A was changed (a.vega:1): calls to come have the new system and temperature and timeout" in notes
    told = {request.question: "be kind" in request.question for request in [*first, *second, *third]}
    assert sum(told.values()) == 1
    assert next(question for question, is_new in told.items() if is_new).count("three") == 1
    keys: dict[str, str] = {}
    for request in [*first, *second, *third]:
        assert keys.setdefault(request.key, request.question) == request.question
    assert len(keys) == 3


def held(vega: Vega, provider: Provider, source: str, text: str, *, asked: int) -> list[Asked]:
    """A run that is killed while its provider has not answered a question, the last of so many."""
    vega.env |= {"ANTHROPIC_BASE_URL": provider.url, "ANTHROPIC_API_KEY": "a key for tests"}
    vega.write("a.vega", source)
    provider.held = text
    child = begin(vega, "run", "a.vega", "--db", "run.db", "--run-id", "r", until="go")
    requests: list[Asked] = []
    while len(requests) < asked:
        requests += provider.take()
        time.sleep(0.01)
    time.sleep(0.2)
    kill(child)
    provider.held = ""
    return requests


STREAMS = """\
agent A { model "claude-sonnet-4-20250514" system "be brief" timeout 30s }
fn main() {
  let a = spawn A;
  print("go");
  print(await (a <~ "one"));
  print(await (a <~ "two"));
}
"""


def test_a_stream_that_was_open_goes_on_as_it_was(vega: Vega):
    with Provider() as provider:
        first = held(vega, provider, STREAMS, "one", asked=1)
        output, _ = gone_on(vega, STREAMS.replace("be brief", "be kind").replace(" timeout 30s", ""))
        later = provider.take()
    assert output == ["go", "[one] (1)", "[two] (1)"]
    assert later[0][:2] == first[0][:2]
    assert ["be kind" in request.question for request in later] == [False, True]


TOOLS = """\
agent T {
  model "claude-sonnet-4-20250514"
  tool double(n: int) -> str { return "double ${n}"; }
  tool note(text: str) -> str { return "note ${text}"; }
}
fn main() {
  let t = spawn T;
  print("go");
  print(t <- "use double 4");
  print(t <- "use note tea");
}
"""


def test_a_tool_that_a_call_under_way_has_run_cannot_change(vega: Vega):
    """Its call would run it again and come to something else; a tool that was not used may change."""
    with Provider() as provider:
        held(vega, provider, TOOLS, "result", asked=2)
        vega.write("a.vega", TOOLS.replace('"double ${n}"', '"twice ${n}"'))
        done = vega("resume", "r", "--program", "a.vega", "--db", "run.db")
        assert done.returncode == 2
        assert "a call under way, has run it as a tool" in done.stderr
        vega.write("a.vega", TOOLS.replace("double(n: int)", "double(n: int, m: int = 2)"))
        done = vega("resume", "r", "--program", "a.vega", "--db", "run.db")
        assert done.returncode == 2
        assert "agent T was changed (a.vega:1): process p" in done.stderr
        output, _ = gone_on(vega, TOOLS.replace('"note ${text}"', '"noted ${text}"'))
    assert output == ["go", "[result double 4] (3)", "[result noted tea] (3)"]


def test_a_fork_from_before_a_migration_has_the_program_of_its_place(vega: Vega):
    killed(vega, CALLS)
    gone_on(vega, CALLS.replace('"late ${x}"', '"later ${x}"'))
    effects = json.loads(vega("replay", "r", "--db", "run.db", "--json", given="effects\n").stdout)["data"]
    number = next(step["number"] for step in effects if step["agent"] == "A")
    told = f'fork reply {number} "uno"\n'
    done = vega("replay", "r", "--db", "run.db", "--live", "--plain", given=told)
    assert done.returncode == 0, done.stderr
    assert vega("resume", "r-fork-1", "--db", "run.db").stdout.splitlines() == ["early 1", "uno", "late 2", "two"]


@pytest.mark.parametrize(
    ("was", "becomes", "key"),
    first(
        [
            ("temperature 0.5", "temperature 0.5 concurrency 1", "`concurrency`"),
            ("temperature 0.5", "temperature 0.5 tool look(q: str) -> str { return q; }", "`tool_settings`"),
            ("temperature 0.5", "temperature 0.5 output list[str]", "`output`"),
            ("temperature 0.5", "temperature 0.5 memory conversation", "`memory`"),
        ],
        1,
    ),
)
def test_settings_that_say_what_an_agent_is_do_not_change(vega: Vega, was: str, becomes: str, key: str):
    waits = SETTINGS.replace('print("go");', 'print("go");\n  process::sleep(1000ms);')
    killed(vega, waits, until="go")
    reason = f"agent A was changed (a.vega:1): {key} cannot change while process"
    refused(vega, waits.replace(was, becomes), reason, output=["one", "go", "two", "three", "end"])


def test_a_conversation_keeps_the_settings_that_it_was_begun_with(vega: Vega):
    killed(vega, CONVERSATION)
    reason = "agent A was changed (a.vega:1): process p"
    refused(vega, CONVERSATION.replace("brief", "kind"), reason, "has a conversation with it", output=["one", "two"])
