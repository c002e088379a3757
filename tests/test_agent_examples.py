"""The agents' examples run offline, and print what their docstrings promise."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests import warm

EXAMPLES = Path(__file__).parents[1] / "examples"

# What each prints, in this order, as regular expressions.
EXPECTED: dict[str, list[str]] = {
    "hello.py": ["^Hello Ada, nice to meet you.$"],
    "parallel_reviews.py": ["^Add a docstring, then merge.$", r"^four calls in 1\.[0-7] s$"],
    "tools.py": ["^Oslo: snow", "^Rome: sun", "^ValueError: no forecast for Atlantis$"],
    "streaming.py": [
        "^An old silent pond$",
        "^tool_start .*count_words",
        "^tool_end .*'3'",
        "^thinking_delta",
        "^done",
    ],
    "budget.py": [r"^1: 490 characters for \$0\.00", "^stopped: the budget has", r"^spent \$0\.00\d+ of \$0\.005 here"],
    "fallback.py": ["try 1 failed: too busy", "overloaded after 1 retries", "ok after 0", "^I am the spare one.$"],
    "supervised_agent.py": [
        "restarting after: error",
        "KeyError: 'language'",
        "^All is well.$",
        "^clerk is alive: True$",
    ],
    "team.py": ["^In 1889.$", "^Of iron.$", "^Too short.$", "^Of iron.$", "^turn lead ok", "^    turn historian ok"],
    "sage_sdk.py": [
        "^price_list is done$",
        r"^\+    return max\(0, sum\(prices\) - discount\)$",
        "^Bash was denied$",
        "^The total is never below zero now.$",
        r"^changed: \['cart.py'\]$",
        "^undone: True$",
    ],
    "structured_output.py": ["^Oat bread takes 60 minutes$", "^- 250 g oats$"],
    "human_approval.py": [r"^Send 'See you at nine.' to ann@example.com\?$", "^I tried: sent"],
}


def start(name: str, *arguments: str, cwd: Path) -> warm.Started:
    """Start an example; each warning is an error in it."""
    keys = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY")  # no provider that costs money may be called
    environment = {key: value for key, value in os.environ.items() if key not in keys}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    environment["PYTHONWARNINGS"] = "error"
    return warm.Started(str(EXAMPLES / name), arguments, cwd=cwd, env=environment)


def output(name: str, *arguments: str, cwd: Path) -> str:
    process = start(name, *arguments, cwd=cwd)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert not err
    return out


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_runs_offline(name, tmp_path):
    """With `--sim`, without a key; what it prints comes in the expected order."""
    out = output(name, "--sim", cwd=tmp_path)
    offset = 0
    for pattern in EXPECTED[name]:
        match = re.compile(pattern, re.MULTILINE).search(out, offset)
        assert match, (pattern, out)
        offset = match.end()


def test_the_breaker_of_the_fallback_example_opens(tmp_path):
    """By the third question the model that is down is not asked any more."""
    out = output("fallback.py", "--sim", cwd=tmp_path)
    assert out.count("I am the spare one.") == 3
    assert out.count("overloaded after 1 retries") < 3


def test_a_refused_approval_sends_nothing(tmp_path):
    """`--no`: the tool tells the model, and no mail is sent."""
    assert "I tried: the user refused" in output("human_approval.py", "--sim", "--no", cwd=tmp_path)


@pytest.mark.parametrize("name", [*EXPECTED, "durable_resume.py"])
def test_without_a_key_the_error_says_so(name, tmp_path):
    """Without `--sim` and without a key: what is missing and what to do, and no traceback to read first."""
    process = start(name, cwd=tmp_path)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "ANTHROPIC_API_KEY" in err
    assert "hint: " in err
    assert len(err.splitlines()) <= 3


def test_durable_resume_runs_any_number_of_times(tmp_path):
    """On one store: the well is dug once, and it can be asked for it again and again, also without `--sim`."""
    first, *later = [output("durable_resume.py", "run.db", "--sim", cwd=tmp_path) for _ in range(4)]
    assert first.count("dug metre") == 6
    assert set(later) == {"going on\nIt is: six metres, and there is water.\n"}
    process = start("durable_resume.py", "run.db", cwd=tmp_path)  # another model, which lacks its key
    _, err = process.communicate(timeout=60)
    assert "ANTHROPIC_API_KEY" in err
    assert output("durable_resume.py", "run.db", "--sim", cwd=tmp_path) == later[0]


def test_the_counter_takes_no_option_for_a_file(tmp_path):
    """An option it does not have is refused, and no file is named after it."""
    process = start("durable_counter.py", "--sim", cwd=tmp_path)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.splitlines()) == (1, ["usage: python examples/durable_counter.py [STORE]"])
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_durable_resume_survives_sigkill(tmp_path):
    """Killed after two metres, it goes on with the next; no metre is dug twice but the one in work."""
    first = start("durable_resume.py", "run.db", "--sim", cwd=tmp_path)
    dug = [first.stdout.readline().strip() for _ in range(2)]
    first.send_signal(signal.SIGKILL)
    dug += first.communicate(timeout=30)[0].splitlines()
    lines = output("durable_resume.py", "run.db", "--sim", cwd=tmp_path).splitlines()
    assert lines[0] == "going on"
    assert lines[-1] == "It is: six metres, and there is water."
    dug += [line for line in lines if line.startswith("dug")]
    assert {f"dug metre {metre}" for metre in range(1, 7)} == set(dug)
    assert len(dug) <= 7


def test_the_readme_counts_the_examples():
    """The number it gives is that of the programs in the folder."""
    readme = (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")
    words = {15: "fifteen", 16: "sixteen", 17: "seventeen", 18: "eighteen", 19: "nineteen", 20: "twenty"}
    assert f"{words[len(list(EXAMPLES.glob('*.py')))]} small programs" in readme
