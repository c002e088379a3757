"""How a run of `lyra agent` ends: limits, mistakes, a reader that leaves, Ctrl-C; and what it costs to start."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.cases import first
from tests.cli.agent_runner import DONE, call
from tests.limits import best_within
from tests.mcp.support import HERE, PYTHON, SEEN

SLACK = float(os.environ.get("LYRA_STARTUP_SLACK", "2"))
PRICE = {"input_usd_per_mtok": 100, "output_usd_per_mtok": 100}


# ---------------------------------------------------------------- limits
def test_the_turns_run_out(run):
    """Exit 4, and the result says which limit."""
    files = [call("Read", file_path=f"{name}.txt") for name in "abcd"]
    done = run("--model", run.script(*files), "--max-turns", "3", "--output-format", "json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["status"], result["turns"]) == (4, "max_turns", 3)
    assert "error[limit]: the task was not done within 3 turns" in done.stderr
    assert "hint: raise --max-turns" in done.stderr


def test_the_money_runs_out(run):
    """The call that would pass the limit is not made."""
    model = run.script(call("Glob", pattern="*"), DONE, price=PRICE)
    lines = run.lines("--model", model, "--max-budget-usd", "3")
    assert lines[-1]["status"] == "success"
    spent = lines[-1]["cost_usd"]
    assert spent > 0
    done = run("--model", model, "--max-budget-usd", f"{spent / 2:.6f}", "--output-format", "json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["status"]) == (4, "budget_exceeded")
    assert result["cost_usd"] <= spent / 2


def test_a_budget_needs_a_price(run):
    model = run.script(DONE, price="unknown")
    assert run("--model", model).returncode == 0
    done = run("--model", model, "--max-budget-usd", "1")
    assert done.returncode == 2
    assert "error[config]: the price of" in done.stderr
    assert "[prices]" in done.stderr


def test_a_model_that_fails(run):
    """The stream says it as an error, stderr too; a failed run has no answer."""
    model = run.script({"error": {"kind": "auth", "message": "no such key"}})
    lines = run.lines("--model", model)
    assert [line["type"] for line in lines] == ["system", "error", "result"]
    assert (lines[1]["code"], lines[1]["kind"]) == ("model_error", "auth")
    assert lines[2]["status"] == "model_error"
    done = run("--model", model)
    assert (done.returncode, done.stdout) == (1, "")
    assert "error[model_error]: " in done.stderr


# ---------------------------------------------------------------- mistakes
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--permission-mode", "yolo"), ["error[usage]", "'yolo' is not one of", "accept-edits"]),
        (("--output-format", "xml"), ["error[usage]", "stream-json"]),
        (("--max-turns", "0"), ["error[usage]", "--max-turns"]),
        (("--max-budget-usd", "lots"), ["error[config]", "--max-budget-usd", "hint: write dollars"]),
        (("--add-dir", "nowhere"), ["error[config]: --add-dir nowhere does not exist"]),
        (("--add-dir", "file.txt"), ["error[config]: --add-dir file.txt is not a folder"]),
        (("--system", "nowhere.md"), ["error[config]: --system nowhere.md cannot be read"]),
        (("--system", "."), ["error[config]: --system . cannot be read"]),
        (("--system", "binary"), ["error[config]: --system binary is not a text"]),
        (("--json-schema", "file.txt"), ["error[config]: --json-schema file.txt is not JSON", "one JSON object"]),
        (("--json-schema", '{"type": object}'), ["error[config]: --json-schema is not JSON", "in single quotes"]),
        (
            ("--json-schema", "missing.json"),
            ["error[config]: --json-schema missing.json cannot be read", "name a file"],
        ),
        (
            ("--allowed-tools", "Bash("),
            ["error[config]: 'Bash(' is not a rule", "at flags: --allowed-tools", "hint: write Tool, Tool(pattern)"],
        ),
        (("--disallowed-tools", "Read()"), ["error[config]", "empty pattern", "at flags: --disallowed-tools"]),
        (("--model", "absent/x"), ["error[config]: there is no provider 'absent'"]),
        (("--model", "antropic/claude-sonnet-4-5"), ["did you mean anthropic/claude-sonnet-4-5?"]),
        (("--model", "sim/script:nowhere.yaml"), ["error[config]", "nowhere.yaml"]),
        (("--allowed-tool", "Bash"), ["error[usage]", "did you mean --allowed-tools"]),
    ],
)
def test_a_mistake_is_exit_2_with_what_to_try(lyra, args, words):
    """One error on stderr, nothing on stdout, no traceback."""
    (lyra.folder / "file.txt").write_text("text")
    (lyra.folder / "binary").write_bytes(b"\xff\xfe\x00")
    done = lyra("agent", "-p", "go", "--model", "sim/echo", *args)
    assert (done.returncode, done.stdout) == (2, "")
    for word in words:
        assert word in done.stderr
    assert done.stderr.count("error[") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("task", [("-p", ""), ("-p", " \n"), ()])
def test_there_is_a_task(lyra, task):
    done = lyra("agent", *task, "--model", "sim/echo")
    assert done.returncode == 2
    assert "error[usage]" in done.stderr


def test_an_empty_task_from_stdin(run):
    done = run("--model", "sim/echo", task="-", stdin=" \n")
    assert (done.returncode, done.stdout) == (2, "")
    assert "the task is empty" in done.stderr


def test_a_mistake_has_a_result_too_where_one_is_read(lyra):
    """Who reads JSON gets JSON, whatever happened."""
    done = lyra("agent", "-p", "go", "--model", "sim/echo", "--add-dir", "nowhere", "--output-format", "stream-json")
    assert (done.returncode, json.loads(done.stdout)["status"]) == (2, "config")
    assert "error[config]" in done.stderr


def test_a_rule_for_no_tool_is_a_warning(lyra):
    done = lyra("agent", "-p", "go", "--model", "sim/echo", "--allowed-tools", "Bsah", "--allowed-tools", "mcp__x__*")
    assert (done.returncode, done.stdout) == (0, "go\n")
    assert "'Bsah'; did you mean 'Bash'?" in done.stderr


def test_a_rule_for_text_that_a_server_asks_for_is_no_mistake(lyra):
    """Also where the server is not there; another server's is one."""
    (lyra.folder / ".mcp.json").write_text('{"mcpServers": {"notes": {"command": "x"}}}')
    rules = ("--allowed-tools", "mcp_sampling__notes", "--allowed-tools", "mcp_sampling__nots")
    done = lyra("agent", "-p", "go", "--model", "sim/echo", *rules)
    assert (done.returncode, done.stdout) == (0, "go\n")
    assert "'mcp_sampling__nots'; did you mean 'mcp_sampling__notes'?" in done.stderr
    assert "rule 'mcp_sampling__notes'" not in done.stderr


def test_no_key_names_the_variable(run):
    done = run("--model", "anthropic/claude-sonnet-4-5", "--output-format", "json")
    assert (done.returncode, json.loads(done.stdout)["status"]) == (2, "config")
    assert "ANTHROPIC_API_KEY" in done.stderr


def test_the_model_of_the_configuration(lyra):
    """A flag, else a variable, else a file; none: how to say one."""
    done = lyra("agent", "-p", "go")
    assert done.returncode == 2
    for word in ("--model", "LYRA_AGENT_MODEL", "[agent]"):
        assert word in done.stderr
    assert lyra("agent", "-p", "go", LYRA_AGENT_MODEL="sim/echo").stdout == "go\n"
    mine = Path(lyra.env["HOME"], ".config", "lyra", "lyra.toml")
    mine.parent.mkdir(parents=True)
    mine.write_text('[agent]\nmodel = "sim/echo"\n')
    assert lyra("agent", "-p", "go").stdout == "go\n"
    assert lyra("agent", "-p", "go", "--model", "sim/none").returncode == 2


# ---------------------------------------------------------------- over HTTP
@pytest.mark.parametrize("model", first(["anthropic/claude-sonnet-4-5", "openai/gpt-4o"], 1))
def test_models_over_http(run, model):
    """The same run against a server that speaks the provider's format; the key is nowhere in what it prints."""
    run.write("a.txt", "needle\n")
    script = run.folder.parent / "mock.json"
    replies = [
        {"user": "find", **call("Grep", pattern="needle", output_mode="content")},
        {"tool": "Grep", **call("Bash", command="touch made")},
        {"tool": "Bash", "text": "Found it; the rest was denied."},
    ]
    script.write_text(json.dumps({"replies": replies}))
    server = subprocess.Popen(
        [*run.lyra.command, "mock", "serve", "--script", str(script), "--json"],
        env=run.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert server.stdout is not None
        env = _document(server.stdout)["env"]
        keys = {name: value for name, value in env.items() if name.endswith("_KEY")}
        lines = run.lines("--model", model, "--max-budget-usd", "1", task="find the needle", **env)
    finally:
        server.terminate()
        server.wait(10)
        server.stdout.close()
    grep, bash = [line for line in lines if line["type"] == "tool_end"]
    assert grep["output"] == "a.txt:1:needle"
    assert bash["error_code"] == "permission_denied"
    assert lines[-1]["text"] == "Found it; the rest was denied."
    assert lines[-1]["cost_usd"] > 0
    assert not any(value in json.dumps(lines) for value in keys.values())


def _document(stream: Any) -> Any:
    text = ""
    for line in stream:
        text += line
        if line.startswith("}"):
            break
    return json.loads(text)


# ---------------------------------------------------------------- being ended
def _start(run: Any, *args: str, **pipes: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        run.command(*args),
        cwd=run.folder,
        env=run.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509 - ignored in jobs
        **pipes,
    )


def test_a_reader_that_leaves_ends_the_run_quietly(run):
    model = run.script({"text": "word " * 500, "chunk_s": 0.02})
    process = _start(run, "--model", model, "--output-format", "stream-json")
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(8) == 141  # well before the ten seconds that the answer takes
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("number", "code"), first([(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], 1)
)
def test_a_signal_stops_the_run_and_its_jobs(run, number, code):
    """Also commands in the background; the last line says that it was interrupted."""
    mark = f"31{os.getpid()}{int(number)}"
    model = run.script(call("Bash", command=f"sleep {mark}", run_in_background=True), {"text": "late", "first_s": 60})
    process = _start(run, "--model", model, "--allowed-tools", "Bash", "--output-format", "stream-json")
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if '"tool_end"' in line:
                break
        _until(lambda: _running(mark))
        process.send_signal(number)
        out, err = process.communicate(timeout=15)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == code
    assert json.loads(out.splitlines()[-1])["status"] == "interrupted"
    assert "Traceback" not in err
    _until(lambda: not _running(mark))


@pytest.mark.parametrize(("number", "code"), first([(signal.SIGTERM, 143), (signal.SIGINT, 130)], 1))
def test_a_reader_that_sleeps_holds_up_no_signal(run, number, code):
    """The pipe is full, and no program reads it: the run and its jobs end all the same."""
    mark = f"32{os.getpid()}{int(number)}"
    full = run.folder / "full"
    model = run.script(
        call("Bash", command=f"sleep {mark}", run_in_background=True),
        *[call("Bash", command=f"head -c 2500{number} /dev/zero | tr '\\0' x") for number in range(6)],
        call("Bash", command="touch full"),
        {"text": "late", "first_s": 60},
    )
    process = _start(run, "--model", model, "--allowed-tools", "Bash", "--output-format", "stream-json")
    try:
        _until(lambda: _running(mark) and full.exists(), 20)  # the run goes on while its output is not read
        process.send_signal(number)
        assert process.wait(8) == code
    finally:
        process.kill()
        process.communicate()
    _until(lambda: not _running(mark))


def test_a_server_that_asks_without_end_holds_up_no_run(run):
    """It is given up, and the answer comes."""
    mine = Path(run.env["HOME"], ".config", "lyra", "lyra.toml")
    mine.parent.mkdir(parents=True)
    settings = {"command": PYTHON, "args": ["-IS", str(HERE / "tiny_server.py")], "readable": list(SEEN)}
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    mine.write_text("\n".join(["[mcp.servers.s]", *lines, 'env = { TINY = "asks" }']))
    began = time.monotonic()
    done = run("--model", "sim/echo", task="hi")
    assert (done.returncode, done.stdout) == (0, "hi\n")
    assert time.monotonic() - began < 20


def test_a_stdout_that_is_closed_is_said(run):
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "lyra", "agent", "-p", "hi", "--model", "sim/echo"],
        cwd=run.folder,
        env=run.env,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "error[output]: stdout is closed\n")


def _running(mark: str) -> bool:
    """Whether a process with this among its arguments lives."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False


def _until(condition: Any, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


# ---------------------------------------------------------------- no room
def test_nothing_is_done_that_the_audit_log_has_no_room_for(run):
    """One record a command; the run ends with the first that cannot be written."""
    model = run.script(
        *[call("Bash", command=f"echo {number} >> done.txt # {'x' * 7_000}") for number in range(40)], DONE
    )
    # Room enough for bubblewrap's own files, and for some thirty records as long as they get.
    done = subprocess.run(
        run.command("--model", model, "--allowed-tools", "Bash", "--max-turns", "60", "--audit", "audit.jsonl"),
        cwd=run.folder,
        env={**run.env, "PYTHONDONTWRITEBYTECODE": "1"},  # half of it would be kept
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000)),
    )
    records = [json.loads(line) for line in (run.folder / "audit.jsonl").read_text().splitlines()]
    decided = [record for record in records if record["kind"] == "tool.decided"]
    assert 0 < len(decided) < 40
    assert len((run.folder / "done.txt").read_text().split()) == len(decided)
    assert done.returncode == 1
    assert "error[store_full]: there is no room for the audit log" in done.stderr
    assert "Traceback" not in done.stderr


# ---------------------------------------------------------------- starting
PROBE = """
import atexit, json, sys
atexit.register(lambda: sys.stderr.write(json.dumps(sorted(sys.modules))))
from lyra.cli.main import main
sys.exit(main())
"""


def test_no_ui_is_imported(run):
    """Nor a provider's client, a server or a database that the run does not use."""
    model = run.script(call("Glob", pattern="*"), call("Bash", command="true"), DONE)
    command = [sys.executable, "-c", PROBE, "agent", "-p", "go", "--model", model, "--allowed-tools", "Bash"]
    done = subprocess.run(
        command, cwd=run.folder, env=run.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    modules = {name.partition(".")[0] for name in json.loads(done.stderr.splitlines()[-1])}
    assert not modules & {"rich", "textual", "prompt_toolkit", "mcp", "httpx", "pydantic", "psycopg", "sqlite3"}


@pytest.mark.timed
def test_the_first_token_comes_soon(run, monkeypatch):
    """From the shell to the end of a one-word answer with all tools on: 0.6 s of CPU, the best of three."""
    monkeypatch.setenv(warm.FRESH, "1")

    def measure() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run("--model", "sim/echo", task="go").stdout == "go\n"
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        assert used_s > 0
        return used_s

    best_within(measure, 0.6 * SLACK, tries=3, told="seconds of CPU")


def test_what_a_project_allows_itself_is_told_to_be_passed_over(lyra):
    """Until it is trusted; then nothing is said."""
    (lyra.folder / ".lyra").mkdir()
    (lyra.folder / ".lyra" / "permissions.toml").write_text('allow = ["Bash"]\n')
    command = ("agent", "-p", "go", "--model", "sim/echo")
    (line,) = lyra(*command).stderr.splitlines()
    assert line.startswith("note: this folder is not trusted, so its files can only tighten; passed over: ")
    assert ".lyra/permissions.toml (allow)" in line
    assert "--trust-folder" in line
    assert lyra(*command, "--trust-folder").stderr == ""
    assert lyra(*command, "--trust-project").stderr == ""  # the earlier name of the flag
