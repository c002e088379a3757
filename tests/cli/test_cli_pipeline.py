"""`lyra pipeline`: check, run, graph, schema."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

from lyra.kernel.pipeline import json_schema

ROOT = Path(__file__).parents[2]
EXAMPLE = str(ROOT / "examples" / "pipeline.toml")
AGENTS = str(ROOT / "examples" / "pipeline_review.py")
BROKEN = 'name = "p"\n[[agents]]\nname = "a"\ndefault_next = "c"\nerror_next = "d"\n'


def test_check_says_ok_or_every_mistake(lyra):
    """Exit code 0 or 2; each mistake with file, line and column, as text and as JSON."""
    assert lyra("pipeline", "check", EXAMPLE).stdout == f"{EXAMPLE}: ok\n"
    assert lyra.json("pipeline", "check", EXAMPLE) == {"file": EXAMPLE, "ok": True, "mistakes": []}
    (lyra.folder / "p.toml").write_text(BROKEN)
    done = lyra("pipeline", "check", "p.toml")
    assert done.returncode == 2
    assert "error[check]: there is no stage 'c'\n  at p.toml:4:1\n" in done.stderr
    assert "at p.toml:5:1" in done.stderr
    done = lyra("pipeline", "check", "p.toml", "--json")
    assert done.returncode == 2
    assert [each["line"] for each in json.loads(done.stdout)["mistakes"]] == [4, 5]


def test_run_with_agents_from_a_file(lyra):
    """Its async functions are the agents; the result is printed, the way on stderr."""
    done = lyra("pipeline", "run", EXAMPLE, "--input", "budgets", "--agents", AGENTS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("review: completed\n")
    assert '"published": "budgets, draft 2"' in done.stdout
    assert "verdict publish (rule 1)" in done.stderr
    data = lyra.json("pipeline", "run", EXAMPLE, "--input", '{"raw_input": "x"}', "--agents", AGENTS)
    assert data["reason"] == "completed"
    assert data["envelope"]["outputs"]["publish"] == {"published": "x, draft 2"}


def test_run_without_agents_echoes(lyra):
    """Enough to see the way; a bound is exit code 4, a failure 1."""
    (lyra.folder / "p.json").write_text('{"name": "p", "agents": [{"name": "a"}]}')
    assert lyra.json("pipeline", "run", "p.json", "--input", "hi")["envelope"]["outputs"]["a"]["input"] == "hi"
    assert lyra("pipeline", "run", EXAMPLE).returncode == 4
    (lyra.folder / "agents.py").write_text("async def a(envelope):\n    raise ValueError('boom')\n")
    done = lyra("pipeline", "run", "p.json", "--agents", "agents.py")
    assert (done.returncode, "boom" in done.stderr) == (1, True)


def test_run_refuses_what_it_cannot_use(lyra):
    """A broken file, missing agents, bad input: exit code 2 and one sentence."""
    (lyra.folder / "p.toml").write_text(BROKEN)
    (lyra.folder / "bad.py").write_text("1 / 0\n")
    (lyra.folder / "none.py").write_text("")
    for args, words in (
        (("p.toml",), "no stage 'c'"),
        ((EXAMPLE, "--agents", "no.py"), "no file no.py"),
        ((EXAMPLE, "--agents", "bad.py"), "ZeroDivisionError"),
        ((EXAMPLE, "--agents", "none.py"), "no agent is registered"),
        ((EXAMPLE, "--input", "{"), "looks like JSON"),
        ((EXAMPLE, "--input", '{"raw_inpt": 1}', "--agents", AGENTS), "raw_inpt"),
    ):
        done = lyra("pipeline", "run", *args)
        assert done.returncode == 2, (args, done)
        assert words in done.stderr


def test_a_question_nobody_answers(lyra):
    """Without a terminal a clarification is taken back and the pipeline goes on; consent is not assumed."""
    (lyra.folder / "p.toml").write_text('name = "p"\n[[agents]]\nname = "a"\ndefault_next = "confirmation"\n')
    done = lyra.real("pipeline", "run", "p.toml")
    assert done.returncode == 1
    assert "nobody is here to answer" in done.stderr


def test_graph_is_svg(lyra):
    """On stdout, or in a file."""
    done = lyra("pipeline", "graph", EXAMPLE)
    assert ET.fromstring(done.stdout).tag.endswith("svg")
    assert lyra("pipeline", "graph", EXAMPLE, "-o", "out.svg").returncode == 0
    assert (lyra.folder / "out.svg").read_text() == done.stdout
    assert lyra("pipeline", "graph", EXAMPLE, "-o", "no/out.svg").returncode == 2


def test_the_published_schema_is_the_one_in_force(lyra):
    """`lyra pipeline schema` and docs/reference/pipeline.schema.json."""
    printed = json.loads(lyra("pipeline", "schema").stdout)
    assert printed == json_schema()
    kept = ROOT / "docs" / "reference" / "pipeline.schema.json"
    assert json.loads(kept.read_text()) == printed, f"lyra pipeline schema > {kept.name}"
