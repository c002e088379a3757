"""A changed program that a run cannot go on with is refused in the words of the program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lyra import vega
from lyra.errors import ConfigError
from lyra.vega.durable.runs import Runs
from lyra.vega.migrate.migration import plan_migration
from lyra.vega.migrate.rehearsal import describe_effect
from tests.vega.recorded import FILE, Recorded
from tests.vega.support import Never

PROGRAM = """\
agent A {{ model "sim/script" }}
agent M {{ model "sim/script" memory conversation }}
fn work(x) {{ receive {{ y => {{ print(y); }} }} }}
let a = spawn A; let m = spawn M;
fn report() {{
    {}
}}
report();
let end = a <- "never";
"""
EDITS = {
    "another agent": ('print(a <- "1");', 'print(m <- "1");', "comes to something else than the run did, which asks A"),
    "another question": ('return m <- "1";', 'return m <- "2";', "asks M, but not as the run did"),
    "no stream": ('return await (m <~ "1");', 'return m <- "1";', "which reads a stream of M"),
    "no pause": ("process::sleep(1ms);", 'return a <- "1";', "which sleeps"),
    "another process": (
        "spawn fn work(1);",
        "spawn A;",
        "where the run starts a function",
    ),
    "another text": ('file::write("x", "1");', 'file::write("x", "2");', "calls file::write, but not as the run did"),
    "another reading": ("math::random();", "time::now();", "reads the clock where the run draws a random number"),
}
INTERNAL = re.compile(r"lyra\.|vega\.(?!$|:)\w+:|\bspawn (agent|lyra)|\bdo vega|journal|[0-9a-f]{16}")


@pytest.mark.parametrize("edit", EDITS)
def test_a_refusal_says_what_changed_where_and_what_can_be_done(tmp_path: Path, edit: str):
    old, new, words = EDITS[edit]
    recorded, source = Recorded(tmp_path), PROGRAM.format(new)
    recorded.run(PROGRAM.format(old), model=Never(), stop_after_s=0.5)
    with Runs(recorded.path) as runs, pytest.raises(ConfigError) as refused:
        plan_migration(runs["run"], vega.compile(source, FILE), {FILE: source})
    message, hint = refused.value.message, str(refused.value.hint)
    reasons = message.partition("\n---")[0]
    assert f"fn report was changed ({FILE}:5)" in reasons
    assert re.search(rf"process main.* {re.escape(words)}.* \({FILE}:[68]\)", reasons), reasons  # in it, or its call
    assert not INTERNAL.search(reasons), reasons
    assert f"-    {old}\n+    {new}" in message
    assert all(word in hint for word in ("vega resume run", "vega replay run", f"vega run {FILE}"))


def test_what_has_no_words_is_called_by_its_name():
    assert describe_effect("passage", "turn") == "passage turn"
    assert describe_effect("read", "front") == "reads front"
    assert describe_effect("spawn", "agent:Critic~2") == "asks Critic"
