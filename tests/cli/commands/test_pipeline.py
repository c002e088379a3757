"""`lyra pipeline`: check, run, graph, schema."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from lyra.kernel.pipelines.schema import json_schema

ROOT = Path(__file__).parents[3]
EXAMPLE = str(ROOT / "examples" / "pipeline.toml")
AGENTS = str(ROOT / "examples" / "pipeline_review.py")
BROKEN = 'name = "p"\n[[agents]]\nname = "a"\ndefault_next = "c"\nerror_next = "d"\n'


def test_check_says_ok_or_every_mistake(lyra):
    """Exit code 0 or 2; each mistake with file, line and column, as text and as JSON."""
    assert lyra("pipeline", "check", EXAMPLE).stdout == f"{EXAMPLE}: ok\n"
    assert lyra.json("pipeline", "check", EXAMPLE) == {"file": EXAMPLE, "ok": True, "mistakes": [], "warnings": []}
    (lyra.folder / "p.toml").write_text(BROKEN)
    done = lyra("pipeline", "check", "p.toml")
    assert done.returncode == 2
    assert "error[check]: there is no stage 'c'\n  at p.toml:4:1\n" in done.stderr
    assert "at p.toml:5:1" in done.stderr
    done = lyra("pipeline", "check", "p.toml", "--json")
    assert done.returncode == 2
    assert [mistake["line"] for mistake in json.loads(done.stdout)["mistakes"]] == [4, 5]


def test_check_warns_of_a_loop_without_a_limit(lyra):
    """Exit code 0: it is allowed. The warning names the loop, its line and the bound that will stop it."""
    stages = '[[agents]]\nname = "a"\ndefault_next = "b"\n[[agents]]\nname = "b"\ndefault_next = "a"\n'
    (lyra.folder / "p.toml").write_text('name = "p"\n' + stages)
    done = lyra("pipeline", "check", "p.toml")
    assert (done.returncode, done.stdout) == (0, "p.toml: ok\n")
    assert "warning: the loop a → b → a has no limit of its own; max_iterations = 3 stops the pipeline" in done.stderr
    assert "at p.toml:5:1" in done.stderr
    assert "hint: give a stage of it max_visits, or say edge_limits from b to a" in done.stderr
    data = lyra.json("pipeline", "check", "p.toml")
    assert (data["ok"], [warning["code"] for warning in data["warnings"]]) == (True, ["advice"])
    (lyra.folder / "p.toml").write_text('name = "p"\n' + stages + "max_visits = 3\n")
    assert lyra("pipeline", "check", "p.toml").stderr == ""


def test_agents_may_import_what_lies_beside_them(lyra):
    """From wherever the command is called; the folder is importable while the file is loaded."""
    (lyra.folder / "p.json").write_text('{"name": "p", "agents": [{"name": "a"}]}')
    (lyra.folder / "team").mkdir()
    (lyra.folder / "team" / "wisdom.py").write_text("WORD = 'yes'\n")
    (lyra.folder / "team" / "agents.py").write_text(
        "from wisdom import WORD\n\nasync def a(envelope):\n    return {'word': WORD}\n"
    )
    data = lyra.json("pipeline", "run", "p.json", "--agents", "team/agents.py")
    assert data["envelope"]["outputs"]["a"] == {"word": "yes"}


def test_run_asks_each_branch_its_own_question(lyra):
    """Two questions at once, no user there: both are taken back, and the pipeline goes on."""
    stages = [
        {"name": "f", "node_kind": "fork", "branches": ["a", "b"], "default_next": "c"},
        {"name": "a"},
        {"name": "b"},
        {"name": "c"},
    ]
    (lyra.folder / "p.json").write_text(json.dumps({"name": "p", "agents": stages}))
    (lyra.folder / "agents.py").write_text(
        "from lyra.kernel import AgentResult\n"
        "async def a(envelope):\n    return AgentResult(interrupt={'question': 'A?'})\n"
        "async def b(envelope):\n    return AgentResult(interrupt={'question': 'B?'})\n"
        "async def c(envelope):\n    return {}\n"
    )
    done = lyra("pipeline", "run", "p.json", "--agents", "agents.py")
    assert done.returncode == 0, done.stderr
    assert "A? (there is no one here to answer)" in done.stderr
    assert "B? (there is no one here to answer)" in done.stderr


def test_run_with_agents_from_a_file(lyra):
    """Its functions are the agents; the result is printed, the way on stderr."""
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
    (lyra.folder / "plain.py").write_text("class draft:\n    run = None\n")
    (lyra.folder / "exit.py").write_text("import sys\nsys.exit(3)\n")
    for args, words in (
        (("p.toml",), "no stage 'c'"),
        ((EXAMPLE, "--agents", "no.py"), "no file no.py"),
        ((EXAMPLE, "--agents", "bad.py"), "ZeroDivisionError"),
        ((EXAMPLE, "--agents", "none.py"), "none.py has no function 'draft'\n  hint: write async def draft"),
        ((EXAMPLE, "--agents", "plain.py"), "plain.py has no function 'draft'\n  hint: write async def draft"),
        ((EXAMPLE, "--agents", "exit.py"), "exit.py cannot be run: SystemExit: 3"),
        ((EXAMPLE, "--agents", "."), "no file ."),
        ((EXAMPLE, "--input", "{"), "looks like JSON"),
        ((EXAMPLE, "--input", '{"raw_inpt": 1}', "--agents", AGENTS), "raw_inpt"),
    ):
        done = lyra("pipeline", "run", *args)
        assert done.returncode == 2, (args, done)
        assert words in done.stderr


@pytest.mark.parametrize("command", ["check", "run", "graph"])
@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("p.toml", None, "p.toml cannot be read: No such file or directory"),
        ("p.ini", b"", "its name ends in .toml"),
        ("p.yaml", b"\xff\x00", "error[parse]: the file is not UTF-8\n  at p.yaml:1:1"),
        ("p.toml", b'name = "p"\n[[agents]\n', "at p.toml:2:9"),
        ("p.yaml", b"name: p\nagents:\n  - name: a\n   b: [1\n", "at p.yaml:4:4"),
        ("p.json", b'{"name": "p", "agents": [}', "at p.json:1:26"),
        ("p.json", b"[" * 100_000, "nested too deeply"),
        ("p.yaml", b"", "a pipeline is a mapping"),
        ("p.yaml", b"a: &a [1]\nname: *a\n", "aliases are not read"),
        ("p.toml", b"# x\n" * 300_000, "more than 1048576 bytes"),
        ("p.yaml", "agents: [{name: prüfer, default_next: 日本}]\nname: ü".encode(), "there is no stage '日本'"),
        ("p.yaml", b"name: p\nagents: [{name: a, max_retries: lots}]", "max_retries is a whole number"),
    ],
)
def test_a_file_that_is_no_pipeline(lyra, command, name, content, words):
    """Exit code 2, the place, and never a traceback, whatever the file is."""
    if content is not None:
        (lyra.folder / name).write_bytes(content)
    done = lyra("pipeline", command, name)
    assert done.returncode == 2
    assert done.stdout == ""
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_not_a_file_is_not_waited_for(lyra):
    """A named pipe without a writer, a folder, a link to nowhere: told at once."""
    os.mkfifo(lyra.folder / "pipe.toml")
    (lyra.folder / "folder.yaml").mkdir()
    (lyra.folder / "link.json").symlink_to("nowhere.json")
    for name, words in (
        ("pipe.toml", "pipe.toml is not a file"),
        ("folder.yaml", "folder.yaml is not a file"),
        ("link.json", "link.json cannot be read"),
        ("-", "- is no pipeline file"),
    ):
        done = lyra("pipeline", "check", name)
        assert (done.returncode, words in done.stderr) == (2, True), done


def test_a_loop_without_a_limit_of_its_own_ends(lyra):
    """The pipeline's bounds stop it: exit code 4, and which bound it was."""
    loop = {"name": "p", "agents": [{"name": "a", "default_next": "b"}, {"name": "b", "default_next": "a"}]}
    (lyra.folder / "p.json").write_text(json.dumps(loop))
    assert lyra("pipeline", "check", "p.json").returncode == 0
    done = lyra("pipeline", "run", "p.json", "--json")
    assert done.returncode == 4
    assert json.loads(done.stdout)["reason"].startswith("max_")


def test_a_question_without_an_answer(lyra):
    """Without a terminal a clarification is taken back and the pipeline goes on; consent is not assumed."""
    (lyra.folder / "p.toml").write_text('name = "p"\n[[agents]]\nname = "a"\ndefault_next = "confirmation"\n')
    done = lyra.real("pipeline", "run", "p.toml")
    assert done.returncode == 1
    assert "there is no one here to answer" in done.stderr


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


def test_agents_may_be_plain_functions(lyra):
    """What register_agent takes, a file may have."""
    (lyra.folder / "p.toml").write_text('name = "p"\n[[agents]]\nname = "a"\n')
    (lyra.folder / "agents.py").write_text("def a(envelope):\n    return {'said': envelope.raw_input}\n")
    data = lyra.json("pipeline", "run", "p.toml", "--agents", "agents.py", "--input", "tea")
    assert data["envelope"]["outputs"] == {"a": {"said": "tea"}}


@pytest.mark.parametrize(("answers", "code"), [("y\n", 0), ("no\n", 1), ("", 1)])
def test_answers_may_be_piped_in(lyra, monkeypatch, answers, code):
    """A line for each question; no line is no consent."""
    declared = 'name = "p"\nconfirmation_resume_stage = "b"\n[[agents]]\nname = "a"\ndefault_next = "confirmation"\n'
    (lyra.folder / "p.toml").write_text(declared + '[[agents]]\nname = "b"\n')
    monkeypatch.setattr("sys.stdin", io.StringIO(answers))
    done = lyra("pipeline", "run", "p.toml", "--json")
    assert done.returncode == code
    assert ("b" in json.loads(done.stdout)["envelope"]["outputs"]) == (code == 0)


def test_the_graph_goes_into_the_file_that_is_named(lyra):
    shown = lyra("pipeline", "graph", EXAMPLE).stdout
    assert lyra("pipeline", "graph", EXAMPLE, "--output", "out.svg").stdout != shown
    assert (lyra.folder / "out.svg").read_text().strip() == shown.strip()
