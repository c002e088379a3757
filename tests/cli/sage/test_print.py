"""`sage -p`: what is printed in each format, what goes in, and how a run ends."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from benchmarks.first_token import server, usual

from tests import warm
from tests.cli.agent_runner import DONE, call
from tests.cli.sage.conftest import Sage
from tests.source import PYTHONPATH

KEY = "sk-ant-" + "a1b2c3d4" * 5
# What a first request does without, unless files or options of the user ask for it.
LATER = {
    "genai_prices",
    "lyra.core.commands.programs",
    "lyra.sandbox.sandbox",
    "lyra.tools.shell.command_line",
    "lyra.tools.yaml.folder",
    "pydantic",
    "tomllib",
}
PRICE = {"input_usd_per_mtok": 10, "output_usd_per_mtok": 10}


# ---------------------------------------------------------------- formats
def test_the_answer_alone_is_printed(sage: Sage) -> None:
    done = sage("-p", "hello there", "--model", "sim/echo")
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello there\n", "")


def test_words_without_a_terminal_are_a_task(sage: Sage) -> None:
    """`-p` may be left out where no terminal is there; so may quotes."""
    assert sage("--model", "sim/echo", "say", "hello").stdout == "say hello\n"


def test_one_json_document(sage: Sage) -> None:
    result = sage.ask("hello")
    assert (result["type"], result["status"], result["text"], result["turns"]) == ("result", "success", "hello", 1)
    assert result["session_id"] == sage.json("sessions", "list", "--json")[0]["id"]


def test_everything_as_lines(sage: Sage) -> None:
    """`--stream-json` is short for it; the output of tools is in the lines."""
    sage.write("a.txt", "some text\n")
    model = sage.script(call("Read", file_path="a.txt"), DONE)
    lines = sage.lines("-p", "go", "--model", model, "--stream-json")
    types = [line["type"] for line in lines]
    assert list(dict.fromkeys(types)) == ["system", "usage", "tool_start", "tool_end", "text_delta", "result"]
    assert "some text" in next(line for line in lines if line["type"] == "tool_end")["output"]
    longer = sage.lines("-p", "go", "--model", "sim/echo", "--output-format", "stream-json")
    assert longer[-1]["text"] == "go"


def test_text_as_it_comes_or_not_at_all(sage: Sage) -> None:
    """`--output-mode`: streaming and batch print the same in the end, silent nothing; answers between calls end a
    line."""
    sage.write("a.txt", "x\n")
    reads = {**call("Read", file_path="a.txt"), "text": "I look."}
    model = sage.script(reads, {"text": "All done."})
    streamed = sage("-p", "go", "--model", model, "--output-mode", "streaming")
    assert streamed.stdout == "I look.\nAll done.\n"
    assert sage("-p", "go", "--model", model, "--output-mode", "batch").stdout == "All done.\n"
    silent = sage("-p", "go", "--model", model, "--output-mode", "silent")
    assert (silent.returncode, silent.stdout) == (0, "")
    wrong = sage("-p", "go", "--model", model, "--output-mode", "silent", "--stream-json")
    assert (wrong.returncode, "--output-mode is for text" in wrong.stderr) == (2, True)


def test_tool_calls_are_told_on_stderr(sage: Sage) -> None:
    """`-v`: one line each, with what came of it; stdout is as without it."""
    sage.write("a.txt", "one\ntwo\n")
    model = sage.script(call("Read", file_path="a.txt"), call("Bash", command="rm -rf x"), DONE)
    done = sage("-p", "go", "--model", model, "-v")
    assert done.stdout == "All done.\n"
    assert done.stderr.splitlines()[0] == "  Read    a.txt  2 lines"
    assert "  Bash    rm -rf x  failed: Bash was not run" in done.stderr
    assert "rm -rf x" not in sage("-p", "go", "--model", model).stderr
    assert "  Read    a.txt" in sage("-p", "go", "--model", model, "--verbose", "--stream-json").stderr


def test_a_schema_shapes_the_answer(sage: Sage) -> None:
    schema = sage.write("schema.json", json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}}))
    model = sage.script({"text": '{"n": 3}'})
    assert sage.ask("count", "--model", model, "--json-schema", str(schema))["output"] == {"n": 3}


# ---------------------------------------------------------------- what goes in
def test_text_that_is_piped_in(sage: Sage) -> None:
    """It is the task where none is named, and material beside one."""
    assert sage("-p", "--model", "sim/echo", stdin="from the pipe").stdout == "from the pipe\n"
    assert sage("-p", "look:", "--model", "sim/echo", stdin="material").stdout == "look:\n\nmaterial\n"
    missing = sage("-p", "--model", "sim/echo")
    assert (missing.returncode, "the task is empty" in missing.stderr) == (2, True)


def test_another_folder(sage: Sage) -> None:
    """`--working-dir`: files, settings and sessions are those of that folder."""
    other = sage.folder.parent / "other"
    other.mkdir()
    (other / "lyra.toml").write_text('[sage]\nturn_budget_usd = "$0.000001"\n')
    (other / "here.txt").write_text("found me\n")
    model = sage.script(call("Read", file_path="here.txt"), {"text": "{result}"})
    done = sage("--working-dir", str(other), "-p", "go", "--model", model)
    assert "found me" in done.stdout
    assert sage.json("sessions", "list", "--json")[0]["folder"] == str(other)
    priced = sage.script(DONE, price=PRICE, name="priced.json")
    assert sage("-p", "go", "--model", priced, "--working-dir", str(other)).returncode == 4, "its lyra.toml counts"
    assert sage("-p", "go", "--model", priced).returncode == 0
    wrong = sage("-p", "go", "--working-dir", "/nowhere")
    assert (wrong.returncode, "No such file" in wrong.stderr) == (2, True)


# ---------------------------------------------------------------- ends
def test_no_key_names_the_variable(sage: Sage) -> None:
    done = sage("-p", "hello", "--model", "anthropic/claude-sonnet-4-5")
    assert (done.returncode, done.stdout) == (2, "")
    assert "ANTHROPIC_API_KEY" in done.stderr
    assert sage("-p", "hello").returncode == 2, "no model is named"


def test_a_limit_of_steps(sage: Sage) -> None:
    """`--max-steps` is another name of `--max-turns`."""
    model = sage.script(*(call("Glob", pattern=f"{name}*") for name in "abcd"))
    for flag in ("--max-steps", "--max-turns"):
        done = sage("-p", "go", "--model", model, flag, "2", "--output-format", "json")
        assert (done.returncode, json.loads(done.stdout)["status"]) == (4, "max_turns")


def test_the_money_of_a_run_a_turn_and_a_day(sage: Sage) -> None:
    """Exit 4 and the name of the limit; a day's limit refuses the next turn before anything is asked."""
    spends = {"text": "x", "usage": {"input_tokens": 40_000, "output_tokens": 10_000}}  # half a dollar
    model = sage.script(spends, price=PRICE)
    short = sage("-p", "go", "--model", model, "--max-budget-usd", "0.000001")
    assert (short.returncode, "--max-budget-usd" in short.stderr) == (4, True)
    assert sage("-p", "go", "--model", model, "--set", "sage.daily_budget_usd=0.40").returncode == 0
    refused = sage("-p", "go", "--model", model, "--stream-json", "--set", "sage.daily_budget_usd=0.40")
    assert refused.returncode == 4
    assert "today's sessions have spent $0.50, and sage.daily_budget_usd is $0.40" in refused.stderr
    assert json.loads(refused.stdout.splitlines()[-1])["status"] == "budget_exceeded"
    assert len(sage.json("sessions", "list", "--json")) == 2, "a session without a turn is not kept"


@pytest.mark.parametrize("variable", ["DAILY", "SESSION", "TURN"])
def test_limits_from_variables(sage: Sage, variable: str) -> None:
    """LYRA_SAGE_DAILY_BUDGET_USD, LYRA_SAGE_SESSION_BUDGET_USD and LYRA_SAGE_TURN_BUDGET_USD hold like the settings."""
    model = sage.script(DONE, price=PRICE)
    name = f"LYRA_SAGE_{variable}_BUDGET_USD"
    done = sage("-p", "go", "--model", model, **{name: "0.000001"})
    assert (done.returncode, f"sage.{variable.lower()}_budget_usd" in done.stderr) == (4, True)
    assert sage("-p", "go", "--model", model, **{name: "5"}).returncode == 0


def test_a_denied_call_does_not_end_the_run(sage: Sage) -> None:
    model = sage.script(call("Write", file_path="made", content="x"), {"text": "{result}"})
    done = sage("-p", "go", "--model", model)
    assert done.returncode == 0
    assert "no person is there to be asked" in done.stdout
    assert not (sage.folder / "made").exists()


@pytest.mark.parametrize("words", [("sesions",), ("doctr",)])
def test_a_mistyped_command_is_no_task(sage: Sage, words: tuple[str, ...]) -> None:
    done = sage(*words, "--model", "sim/echo") if len(words) > 1 else sage(*words)
    assert done.returncode == 2
    assert "did you mean" in done.stderr


def test_a_mistyped_flag(sage: Sage) -> None:
    done = sage("-p", "x", "--modle", "sim/echo")
    assert (done.returncode, "--model" in done.stderr) == (2, True)


# ---------------------------------------------------------------- what is imported
@pytest.mark.slow
def test_printing_imports_nothing_of_a_terminal(sage: Sage) -> None:
    program = (
        "import sys; from lyra.cli.main import sage\n"
        "code = sage(['-p', 'hello', '--model', 'sim/echo'])\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "print(code, sorted(loaded & {'prompt_toolkit', 'rich', 'pygments'}), "
        "any(name.startswith('lyra.sage.terminal') for name in sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=sage.folder,
        env={**sage.env, "PYTHONPATH": PYTHONPATH},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines() == ["hello", "0 [] False"], done.stderr


@pytest.mark.slow
def test_what_the_first_request_does_not_need_is_not_imported_before_it(sage: Sage) -> None:
    """Neither prices nor the sandbox, nor what reads command lines or YAML tools; no garbage collection of the start
    is due."""
    program = (
        "import gc, sys; from lyra.models.wire.http import Http; from lyra.cli.main import sage\n"
        "post = Http.post\n"
        "def noted(*args, **options):\n"
        f"    print(sorted({LATER!r} & set(sys.modules)), gc.isenabled(), gc.get_freeze_count() > 0, flush=True)\n"
        "    return post(*args, **options)\n"
        "Http.post = noted\n"
        "sys.exit(sage(['-p', 'hello', '--model', 'anthropic/claude-sonnet-4-20250514']))\n"
    )
    with server() as url:
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=sage.folder,
            env={**sage.env, **usual(url), "PYTHONPATH": PYTHONPATH},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.stdout.splitlines()[0] == "[] True True", done.stderr
    assert done.returncode == 0


# ---------------------------------------------------------------- over HTTP
@pytest.mark.slow
def test_a_real_provider_over_http(sage: Sage) -> None:
    """A server that speaks a provider's protocol: the text streams, and the key is shown nowhere."""
    script = sage.folder.parent / "mock.json"
    script.write_text(json.dumps({"sequence": [{"text": "Hello from the server."}]}))
    command = [*warm.fresh("lyra.cli.main:main"), "mock", "serve", "--script", str(script), "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=sage.env, cwd=sage.folder)
    try:
        assert server.stdout is not None
        document = "".join(iter(server.stdout.readline, "}\n")) + "}"
        env = {**json.loads(document)["env"], "ANTHROPIC_API_KEY": KEY}
        lines = sage.lines("-p", "hi", "--model", "anthropic/claude-sonnet-4-5", "--stream-json", **env)
    finally:
        server.terminate()
        server.wait(10)
        server.stdout.close()
    assert lines[-1]["text"] == "Hello from the server."
    assert len([line for line in lines if line["type"] == "text_delta"]) > 1
    stored = [path for path in (sage.home / ".local").rglob("*") if path.is_file()]
    assert stored
    assert all(KEY.encode() not in path.read_bytes() for path in stored)


def test_a_slash_command_is_run_and_a_path_is_a_task(sage: Any) -> None:
    """`sage -p /status` prints what the command gives; words that only begin with a slash go to the model."""
    done = sage("-p", "/status", "--model", "sim/echo")
    assert done.returncode == 0, done.stderr
    assert "sim/echo" in done.stdout
    assert sage("-p", "/etc/hosts?", "--model", "sim/echo").stdout.strip() == "/etc/hosts?"


@pytest.mark.slow
def test_an_undo_that_is_refused_has_failed(sage: Sage) -> None:
    """Exit 1, and the diff of what would be overwritten; a script does not take it for done. `--force` does it."""
    model = sage.script(call("Write", file_path="a.txt", content="agent\n"), DONE)
    sage.ask("go", "--model", model, "--permission-mode", "accept-edits")
    sage.write("a.txt", "mine\n")
    refused = sage("-c", "-p", "/undo")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "-mine" in refused.stderr or "+mine" in refused.stderr
    assert "error[conflict]" in refused.stderr
    assert (sage.folder / "a.txt").read_text() == "mine\n"
    told = json.loads(sage("-c", "-p", "/undo", "--output-format", "json").stdout)
    assert (told["status"], "--force" in told["text"], "```" in told["text"]) == ("conflict", True, False)
    assert sage("-c", "-p", "/undo --force").returncode == 0
    assert not (sage.folder / "a.txt").exists()


@pytest.mark.slow
def test_what_was_in_doubt_after_a_kill_is_told(sage: Sage) -> None:
    """On stderr where the answer is text, and in the first line of stream-json."""
    model = sage.script(call("Bash", command="touch began; sleep 600"))
    for form in ("text", "stream-json"):
        child = sage.start("-p", "go", "--model", model, "--allowed-tools", "Bash", "--output-format", "stream-json")
        assert child.stdout is not None
        assert any('"tool_start"' in line for line in child.stdout)
        child.kill()
        child.communicate()
        resumed = sage("-c", "-p", "go on", "--model", "sim/echo", "--output-format", form)
        assert resumed.returncode == 0, resumed.stderr
        if form == "text":
            assert (resumed.stdout, "warning: Bash" in resumed.stderr) == ("go on\n", True)
        else:
            assert "Bash" in json.loads(resumed.stdout.splitlines()[0])["doubts"][0]


def test_rules_of_an_untrusted_folder_are_told_to_be_passed_over(sage: Sage) -> None:
    """The model is not given them, and stderr says so; with `--trust-folder` nothing is passed over."""
    sage.write("AGENTS.md", "Amounts are whole cents.\n")
    assert "passed over: AGENTS.md (rules)" in sage("-p", "hi", "--model", "sim/echo").stderr
    assert sage("-p", "hi", "--model", "sim/echo", "--trust-folder").stderr == ""


def test_a_command_that_opens_another_session_is_refused(sage: Sage) -> None:
    """With the command that does it; `/resume` without a name lists the sessions."""
    first, second = sage.ask("one")["session_id"], sage.ask("two")["session_id"]
    assert first in sage("-c", "-p", "/resume", "--model", "sim/echo").stdout
    refused = sage("-c", "-p", f"/resume {first}", "--model", "sim/echo")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"hint: sage -r {first}\n" in refused.stderr
    forked = sage("-c", "-p", "/fork 1", "--model", "sim/echo")
    assert f"hint: sage -r {second} --fork-before 1\n" in forked.stderr


def test_denied_calls_are_told_on_stderr(sage: Sage) -> None:
    """A model may take no notice of a denial: the person who reads the answer is told all the same."""
    model = sage.script(call("Write", file_path="a.txt", content="x"), DONE)
    done = sage("-p", "go", "--model", model)
    assert (done.returncode, done.stdout) == (0, "All done.\n")
    assert done.stderr.startswith("note: calls were denied: Write;")
    assert sage("-p", "go", "--model", model, "--output-mode", "silent").stderr == ""
    assert sage("-p", "go", "--model", model, "--output-format", "json").stderr == ""
    assert sage("-p", "go", "--model", model, "--allowed-tools", "Write").stderr == ""


def test_words_of_a_hook_are_on_stderr(sage: Sage) -> None:
    """In every way to print text."""
    settings = sage.home / ".config" / "lyra"
    settings.mkdir(parents=True, exist_ok=True)
    hook = 'printf \'{"message": "mind the gap"}\''
    (settings / "lyra.toml").write_text(f"[[hooks.UserPromptSubmit]]\ncommand = {json.dumps(hook)}\n")
    for mode in ("batch", "streaming"):
        done = sage("-p", "hi", "--model", "sim/echo", "--output-mode", mode)
        assert done.stdout == "hi\n"
        assert "mind the gap" in done.stderr


@pytest.mark.parametrize("form", ["text", "json", "stream-json"])
def test_a_model_that_cannot_be_asked_leaves_no_session(sage: Sage, form: str) -> None:
    """The next run does not go on with it."""
    done = sage("-p", "hi", "--model", "nothing/x", "--output-format", form)
    assert (done.returncode, "there is no provider 'nothing'" in done.stderr) == (2, True)
    assert sage.json("sessions", "list", "--json") == []


def test_a_key_in_an_error_is_masked(sage: Sage) -> None:
    model = sage.script({"error": {"kind": "auth", "message": f"the key {KEY} is not known"}})
    for form in ("text", "json", "stream-json"):
        done = sage("-p", "hi", "--model", model, "--output-format", form)
        assert done.returncode == 1
        assert "is not known" in done.stderr
        assert KEY not in done.stderr + done.stdout


def test_a_file_that_the_task_names_is_attached(sage: Sage) -> None:
    """Its lines go with the task; how much it is stands on stderr."""
    sage.write("a.txt", "one\ntwo\nthree\n")
    done = sage("-p", "see @a.txt:2-2", "--model", "sim/echo")
    assert done.returncode == 0
    assert "2\ttwo" in done.stdout
    assert "three" not in done.stdout
    assert "attached a.txt:2-2, 1 line" in done.stderr
