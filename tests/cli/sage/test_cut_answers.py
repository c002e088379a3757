"""`sage -p` and `lyra agent -p` whose answer the provider cuts off: it goes on by itself, and where it is cut again and
again that is told by the status, the exit code and on stderr."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.cli.agent_runner import Runner
from tests.cli.sage.conftest import Sage
from tests.real_models import Answer, FakeVendor, Vendor, write_settings


class Cut:
    """A command on the vendor's server, which cuts its answer off."""

    def __init__(self, command: Any, words: tuple[str, ...], vendor: Vendor, provider: FakeVendor) -> None:
        self._command, self._words, self._env = (
            command,
            (*words, "--model", vendor.model, "--max-tokens", "700"),
            vendor.variables(provider.url),
        )

    def __call__(self, form: str) -> subprocess.CompletedProcess[str]:
        done: subprocess.CompletedProcess[str] = self._command(*self._words, "--output-format", form, **self._env)
        return done


@pytest.fixture(params=["sage", "lyra agent"])
def cut(request: pytest.FixtureRequest, sage: Sage, run: Runner, vendor: Vendor, provider: FakeVendor) -> Cut:
    provider.say(Answer("Once upon", is_cut=True))
    write_settings(vendor, sage.home)
    return Cut(sage, ("-p", "A story"), vendor, provider) if request.param == "sage" else Cut(run, (), vendor, provider)


def test_a_cut_answer_is_printed_and_told(cut: Cut) -> None:
    """The answer is on stdout, what cut it on stderr; the exit code is that of a limit, in every format."""
    all_of_it = "Once upon" * 9
    text = cut("text")
    assert (text.returncode, text.stdout) == (4, f"{all_of_it}\n")
    assert "the answer was cut off at its longest of 700 tokens" in text.stderr
    document = cut("json")
    result = json.loads(document.stdout)
    assert (document.returncode, result["status"], result["text"]) == (4, "max_tokens", all_of_it)
    assert result["error"]["code"] == "max_tokens"
    lines = cut("stream-json")
    error, last = [json.loads(line) for line in lines.stdout.splitlines()][-2:]
    assert (lines.returncode, error["type"], error["code"]) == (4, "error", "max_tokens")
    assert (last["status"], last["text"]) == ("max_tokens", all_of_it)


def test_a_cut_answer_goes_on(cut: Cut, provider: FakeVendor) -> None:
    """What is printed is one answer, as if it had not been cut."""
    provider.say(Answer("Once upon", is_cut=True), Answer(" a time."))
    text = cut("text")
    assert (text.returncode, text.stdout, text.stderr) == (0, "Once upon a time.\n", "")
    assert provider.requests[-1].said == ["Once upon"]
