"""`sage -p` where a run would stop or be silent: waits for a provider are told, failures say all that programs need,
nothing is asked, a model and its effort are chosen. On real models."""

from __future__ import annotations

import json
import os
import pty
import re
import time
from typing import Any

import pytest

from tests import warm
from tests.cli.agent_runner import Runner
from tests.cli.sage.conftest import TARGET, Sage
from tests.real_models import VENDORS, Answer, Call, FakeVendor, Vendor, write_settings
from tests.silent_server import silent_server

__all__ = ["silent_server"]

QUICK = ("--set", "retry.initial_s=0.05", "--set", "retry.max_s=0.1")


class Printed:
    """`sage -p Go` on the vendor's server."""

    def __init__(self, sage: Sage, vendor: Vendor, provider: FakeVendor) -> None:
        self.sage = sage
        self.env = vendor.variables(provider.url)
        self.model = vendor.model
        write_settings(vendor, sage.home)

    def __call__(self, form: str, *words: str, model: str | None = None) -> Any:
        named = ("--model", self.model) if model is None else ("--model", model) if model else ()
        return self.sage(*QUICK, "-p", "Go", *named, "--output-format", form, *words, **self.env)


@pytest.fixture
def printed(sage: Sage, vendor: Vendor, provider: FakeVendor) -> Printed:
    return Printed(sage, vendor, provider)


# ---------------------------------------------------------------- patience


def test_waits_are_lines_of_the_stream_and_told_on_stderr(printed: Printed, provider: FakeVendor) -> None:
    provider.say(Answer("slow down", status=429), Answer("no room", status=529), Answer("Done."))
    lines = [json.loads(line) for line in printed("stream-json").stdout.splitlines()]
    retries = [line for line in lines if line["type"] == "retry"]
    assert [(line["attempt"], line["of"], line["reason"]) for line in retries] == [
        (2, 10, "rate limited"),
        (3, 10, "overloaded"),
    ]
    assert all(set(line) == {"type", "attempt", "of", "wait_s", "reason"} for line in retries)
    assert (lines[-1]["status"], lines[-1]["retries"]) == ("success", 2)
    provider.say(Answer("slow down", status=429), Answer("Done."))
    text = printed("text")
    assert (text.returncode, text.stdout, text.stderr) == (0, "Done.\n", "rate limited, again in 1 s (2 of 10)\n")


def test_a_failure_says_all_that_programs_need(printed: Printed, vendor: Vendor, provider: FakeVendor) -> None:
    """Its code and message, the calls that were denied, and how often the model was asked again."""
    provider.say(Answer(calls=(Call("Bash", {"command": "curl x"}),)), Answer("no room", status=529))
    done = printed("json", "--set", "retry.max_attempts=3")
    result = json.loads(done.stdout)
    assert done.returncode == 1
    assert result["error"]["code"] == result["status"] != "success"
    name = vendor.model.partition("/")[0]
    assert result["error"]["message"] == f"no room ({name}, status 529, after 3 tries)"
    assert result["retries"] == 2
    (denied,) = result["denied"]
    assert (denied["tool"], denied["arguments"]) == ("Bash", {"command": "curl x"})
    assert denied["reason"]


def test_a_failure_before_the_run_has_an_error_too(sage: Sage) -> None:
    done = sage("-p", "Go", "--model", "anthropic/claude-sonnet-5-5", "--output-format", "json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["error"]["code"]) == (2, result["status"])
    assert "ANTHROPIC_API_KEY" in result["error"]["message"]
    assert (result["denied"], result["retries"]) == ([], 0)


def test_a_success_has_no_error(printed: Printed, provider: FakeVendor) -> None:
    result = json.loads(printed("json").stdout)
    assert not {"error", "retries"} & set(result)


# ---------------------------------------------------------------- polling, long answers

one_vendor = pytest.mark.parametrize("vendor", VENDORS[:1], ids=["anthropic"])


@one_vendor
def test_polling_does_not_end_the_run(printed: Printed, provider: FakeVendor) -> None:
    poll = Answer("It is still running.", calls=(Call("BashOutput", {"bash_id": "bash_7"}),))
    provider.say(*[poll] * 8, Answer("It is done."))
    result = json.loads(printed("json").stdout)
    assert (result["status"], result["text"]) == ("success", "It is done.")


@one_vendor
def test_a_cut_call_is_told_to_the_model_and_the_run_goes_on(printed: Printed, provider: FakeVendor) -> None:
    cut = Answer(calls=(Call("Write", {}),), raw='{"file_path": "a.txt", "content": "aaa', is_cut=True)
    whole = Answer(calls=(Call("Write", {"file_path": "a.txt", "content": "a\n"}),))
    provider.say(cut, whole, Answer("In pieces."))
    assert printed("text", "--allowed-tools", "Write").stdout == "In pieces.\n"
    assert (printed.sage.folder / "a.txt").read_text() == "a\n"
    assert "reached its limit of" in provider.requests[1].results[0]


@one_vendor
def test_automatic_compaction_is_one_line(sage: Sage, vendor: Vendor, provider: FakeVendor) -> None:
    """On stderr; the answers on stdout are those of the turns."""
    full = Answer("Two.", input_tokens=vendor.window * 95 // 100)
    provider.say(Answer("One."), full, Answer("They said one and two."), Answer("Three."))
    requests = "".join(json.dumps({"type": "user", "text": text}) + "\n" for text in "abc")
    words = ("--input-format", "stream-json", "--output-format", "stream-json", "--model", vendor.model)
    done = sage(*words, stdin=requests, **vendor.variables(provider.url))
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["text"] for line in lines if line["type"] == "result"] == ["One.", "Two.", "Three."]
    assert re.fullmatch(r"the conversation was shortened: about \d+ tokens are now \d+\n", done.stderr)


# ---------------------------------------------------------------- the developer's tools


@one_vendor
def test_the_developers_tools_are_there(printed: Printed, provider: FakeVendor) -> None:
    """By their names, and in the environment that is active; a folder that an option adds is worked in."""
    home, more = printed.sage.home, printed.sage.folder.parent / "more"
    more.mkdir()
    tool = home / ".local/bin/mytool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho my tool in $VIRTUAL_ENV\n")
    tool.chmod(0o755)
    (home / "env").mkdir()
    (home / "env/pyvenv.cfg").write_text("home = /usr/bin\n")
    printed.env |= {"VIRTUAL_ENV": str(home / "env"), "PATH": f"{tool.parent}:{os.environ['PATH']}"}
    run = Call("Bash", {"command": f"mytool > made && cp made {more}/made"})
    provider.say(Answer(calls=(run,)), Answer("Done."))
    assert printed("text", "--allowed-tools", "Bash", "--add-dir", str(more)).stdout == "Done.\n"
    assert (more / "made").read_text() == f"my tool in {home}/env\n"


# ---------------------------------------------------------------- both ways


def test_a_program_talks_both_ways(sage: Sage, vendor: Vendor, provider: FakeVendor) -> None:
    """Two messages in one session, lines for each, a result for each, over stdin and stdout."""
    write_settings(vendor, sage.home)
    provider.say(Answer("One."), Answer("no room", status=529), Answer("Two."))
    requests = "".join(json.dumps({"type": "user", "text": text}) + "\n" for text in ("first", "second"))
    words = ("--input-format", "stream-json", "--output-format", "stream-json", "--model", vendor.model)
    done = sage(*QUICK, *words, stdin=requests, **vendor.variables(provider.url))
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    results = [line for line in lines if line["type"] == "result"]
    assert [(line["status"], line["text"]) for line in results] == [("success", "One."), ("success", "Two.")]
    assert [line["type"] for line in lines].count("retry") == 1
    assert provider.requests[-1].said == ["One."]


# ---------------------------------------------------------------- effort


def test_effort_is_an_option(printed: Printed, vendor: Vendor, provider: FakeVendor) -> None:
    assert printed("text", "--effort", "high").stderr == ""
    assert provider.requests[-1].asks_to_think
    early = {"anthropic": "claude-3-5-haiku-20241022", "google": "gemini-2.0-flash"}.get(vendor.name, "gpt-4o")
    model = f"{vendor.model.partition('/')[0]}/{early}"
    done = printed("text", "--effort", "high", model=model)
    assert (done.returncode, done.stderr) == (0, f"{model} cannot think: it is asked without effort\n")
    assert not provider.requests[-1].asks_to_think


LIMITS = {"anthropic": "max_tokens", "openai": "max_completion_tokens", "openai-responses": "max_output_tokens"}


def limit_sent(vendor: Vendor, provider: FakeVendor) -> Any:
    body = provider.requests[-1].body
    return body.get("generationConfig", {}).get("maxOutputTokens") or body.get(LIMITS.get(vendor.name, ""))


def test_options_of_the_answer(sage: Sage, run: Runner, vendor: Vendor, provider: FakeVendor) -> None:
    """How long it may be, and how much is thought before it, for both commands."""
    write_settings(vendor, sage.home)
    env = vendor.variables(provider.url)
    for done in (
        sage("start", "-p", "Go", "--model", vendor.model, "--max-tokens", "700", "--effort", "low", **env),
        run("--model", vendor.model, "--max-tokens", "700", "--effort", "low", **env),
    ):
        assert done.returncode == 0, done.stderr
        assert limit_sent(vendor, provider) == 700
        assert provider.requests[-1].asks_to_think


def test_variables_of_the_answer(sage: Sage, vendor: Vendor, provider: FakeVendor) -> None:
    write_settings(vendor, sage.home)
    env = {
        **vendor.variables(provider.url),
        "LYRA_AGENT_MAX_TOKENS": "800",
        "LYRA_SAGE_EFFORT": "high",
        "LYRA_RETRY_MAX_ATTEMPTS": "3",
        "LYRA_RETRY_INITIAL_S": "0.2",
        "LYRA_RETRY_MAX_S": "0.25",
    }
    provider.say(Answer("no room", status=529))
    done = sage("-p", "Go", "--model", vendor.model, "--output-format", "stream-json", **env)
    waits = [line["wait_s"] for line in map(json.loads, done.stdout.splitlines()) if line["type"] == "retry"]
    assert len(waits) == 2
    assert waits[0] == pytest.approx(0.2, rel=0.21)
    assert waits[1] <= 0.25
    assert len(provider.requests) == 3
    assert limit_sent(vendor, provider) == 800
    assert provider.requests[-1].asks_to_think


# ---------------------------------------------------------------- a model


def test_a_key_alone_chooses_a_good_model_of_its_vendor(printed: Printed, vendor: Vendor, provider: FakeVendor) -> None:
    """And says so."""
    done = printed("text", model="")
    chosen = provider.requests[-1].model
    assert done.returncode == 0, done.stderr
    assert chosen in ("claude-sonnet-5-5", "gpt-6.1-sol", "gemini-3.8-flash")
    name = vendor.model.partition("/")[0]
    assert f"no model is named, so {name}/{chosen} is asked, with the key of " in done.stderr
    assert json.loads(printed("json", model="").stdout)["cost_usd"] > 0


# ---------------------------------------------------------------- nothing is asked


def test_trust_is_not_asked_for_at_a_terminal(sage: Sage) -> None:
    """Files of the folder that wait for it are named, and the run goes on."""
    sage.write(".lyra/permissions.toml", 'allow = ["Bash(echo *)"]\n')
    pid, fd = pty.fork()
    if not pid:
        os.chdir(sage.folder)
        command = [*warm.fresh(TARGET), "-p", "go", "--model", "sim/echo"]
        os.execvpe(command[0], command, sage.env)
    shown, end_s = b"", time.monotonic() + 60
    while time.monotonic() < end_s:
        try:
            data = os.read(fd, 4096)
        except OSError:  # the program has ended
            break
        shown += data
    os.close(fd)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    text = shown.decode()
    assert text.rstrip().endswith("go")
    assert "[y/N]" not in text
    assert "permissions.toml" in text


# ---------------------------------------------------------------- a silent MCP server


@one_vendor
def test_a_silent_server_does_not_hold_up_the_answer(
    vendor: Vendor, provider: FakeVendor, printed: Printed, silent_server: str
) -> None:
    """The run goes on without it after a few seconds, and says so."""
    settings = printed.sage.home / ".config" / "lyra" / "lyra.toml"
    settings.write_text(f'[mcp.servers.slow]\nurl = "{silent_server}"\ntransport = "http"\n')
    began_s = time.monotonic()
    done = printed("stream-json", "--allowed-tools", "mcp__slow__find")
    assert time.monotonic() - began_s < 25, "the limit for one server is 30 s"
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[-1]["status"] == "success"
    assert lines[0]["mcp_servers"][0]["state"] == "connecting"
    assert done.stderr.startswith("warning: MCP servers that do not answer yet: slow;")
    assert "no tool is meant" not in done.stderr
    assert "McpStatus" in provider.requests[-1].tools
