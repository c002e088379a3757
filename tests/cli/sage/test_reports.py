"""`sage usage`, `sage status`, `sage doctor` and `sage permissions test`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.agent_runner import DONE, call
from tests.cli.sage.conftest import Sage

PRICE = {"input_usd_per_mtok": 10, "output_usd_per_mtok": 10}
SPENDS = {"text": "x", "usage": {"input_tokens": 40_000, "output_tokens": 10_000, "cache_read_tokens": 10_000}}


# ---------------------------------------------------------------- usage
def test_usage_by_each_group(sage: Sage) -> None:
    """Tokens and dollars by day, session, model and agent; one that has no price has no cost."""
    assert "no session has asked" in sage("usage").stderr
    model = sage.script({**call("Task", description="a", prompt="b"), **SPENDS}, SPENDS, SPENDS, price=PRICE)
    session = sage.ask("go", "--model", model)["session_id"]
    by_day = sage.json("usage", "--json")
    (row,) = by_day["rows"]
    assert (row["calls"], row["input_tokens"], row["cache_share"]) == (3, 120_000, 0.25)
    assert by_day["cost_usd"] == by_day["today_usd"] == row["cost_usd"] > 0
    assert by_day["daily_budget_usd"] is None
    assert [row["group"] for row in sage.json("usage", "--json", "--by", "session")["rows"]] == [session]
    assert [row["group"] for row in sage.json("usage", "--json", "--by", "model")["rows"]] == [model]
    assert {row["group"]: row["calls"] for row in sage.json("usage", "--json", "--by", "agent")["rows"]}["sage"] == 2
    shown = sage("usage", "--by", "session", "--days", "1", "--set", "sage.daily_budget_usd=9")
    assert shown.stdout.splitlines()[1].split()[:4] == [session, "3", "120000", "30000"]
    assert "of $9.00" in shown.stderr
    sage.ask("go", "--model", sage.script(DONE, price="unknown", name="unpriced.json"))
    assert sage.json("usage", "--json")["cost_usd"] is None
    sage("sessions", "rm", session)
    assert sage.json("usage", "--json")["rows"][0]["calls"] == 4, "the money stays spent"


# ---------------------------------------------------------------- status
def test_the_status_of_a_folder(sage: Sage) -> None:
    status = sage.json("status", "--json")
    assert (status["session"], status["sessions"], status["model"], status["limits"]) == (None, 0, None, {})
    session = sage.ask("hello")["session_id"]
    sage.write("lyra.toml", '[sage]\nturn_budget_usd = "$2"\n')
    status = sage.json("status", "--json", LYRA_AGENT_MODEL="sim/echo")
    assert status["session"] == {"id": session, "label": "hello", "turns": 1}
    assert (status["model"], status["limits"]) == ("sim/echo", {"turn_budget_usd": 2.0})
    assert session in sage("status").stdout


# ---------------------------------------------------------------- doctor
@pytest.mark.slow
def test_the_doctor_checks_the_machine_and_sage(sage: Sage) -> None:
    """Its rows and those of `lyra doctor`; a model without its key is a problem, and no key is shown."""
    checks = {row["name"]: row for row in json.loads(sage("doctor", "--json").stdout)["checks"]}
    assert {"python", "sqlite", "sandbox", "model", "sessions", "index", "usage", "trust", "git", "terminal"} <= set(
        checks
    )
    assert checks["model"]["state"] == "missing"
    assert checks["terminal"]["detail"].startswith("plain lines, no colours, UTF-8")
    without = sage("doctor", "--model", "anthropic/claude-sonnet-4-5")
    assert (without.returncode, "ANTHROPIC_API_KEY is not set" in without.stdout) == (1, True)
    key = "sk-ant-" + "a1b2c3d4" * 5
    there = sage("doctor", "--model", "anthropic/claude-sonnet-4-5", ANTHROPIC_API_KEY=key)
    assert (there.returncode, "key from ANTHROPIC_API_KEY" in there.stdout) == (0, True)
    assert key not in there.stdout + there.stderr
    for text, told in (
        ("nonsense = = 1", "Invalid value"),
        ('[agent]\nmodle = "x"\n', "lyra.toml:2: there is no setting 'agent.modle'"),
    ):
        sage.write("lyra.toml", text)
        wrong = sage("doctor", "--model", "sim/echo")
        assert (wrong.returncode, told in wrong.stdout) == (1, True), "also in a folder that is not trusted"
        assert sage.ask("hello")["text"] == "hello"
    sage.write("lyra.toml", "")
    own = Path(sage.home, ".config", "lyra", "lyra.toml")
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text("nonsense = = 1")
    broken = sage("doctor")
    assert (broken.returncode, "config" in broken.stdout) == (1, True)


# ---------------------------------------------------------------- permissions
RULES = """
deny = [{ rule = "Bash(rm *)", match = ["rm -rf x"], not_match = ["ls"] }, "WebFetch"]
allow = [
  { rule = "Bash(git diff *)", match = "git diff HEAD", not_match = ["git push"] },
  { rule = "Edit(src/**)", match = ["src/a.py", "docs/b.md"] },
  { rule = "(", match = ["x"] },
]
"""


def test_rules_are_tried_on_their_own_examples(sage: Sage) -> None:
    """Every rule, also behind one that fails; exit 1 where one does. One without examples is said to have none."""
    assert "no permission file has a rule" in sage("permissions", "test").stderr
    sage.write(".lyra/permissions.toml", RULES)
    done = sage("permissions", "test", "--json")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert not report["ok"]
    tried = {rule["rule"]: (rule["effect"], rule["examples"], rule["problem"]) for rule in report["rules"]}
    assert tried["Bash(rm *)"] == ("deny", 2, "")
    assert tried["Bash(git diff *)"] == ("allow", 2, "")
    assert tried["WebFetch"] == ("deny", 0, "")
    assert "does not match its own example 'docs/b.md'" in tried["Edit(src/**)"][2]
    assert "is not a rule" in tried["("][2]
    assert all(".lyra/permissions.toml:" in rule["source"] for rule in report["rules"])
    shown = sage("permissions", "test")
    assert shown.stdout.count("\n") == 6
    assert "counts once the folder is trusted" in shown.stderr


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("lyra.toml", "nonsense = = 1", "Invalid value"),
        ("lyra.toml", "[permissions]\nalow = []", "alow"),
        (".lyra/permissions.toml", "nonsense = = 1", "not TOML"),
        (".lyra/permissions.toml", 'alow = ["Bash"]', "alow"),
        (".lyra/permissions.toml", 'mode = "everything"', "everything"),
    ],
)
def test_a_file_with_another_mistake_than_a_rule_fails_the_test(sage: Sage, file: str, text: str, told: str) -> None:
    sage.write(file, text)
    done = sage("permissions", "test")
    assert (done.returncode, told in done.stderr, "no permission file" in done.stderr) == (1, True, False)
    report = json.loads(sage("permissions", "test", "--json").stdout)
    assert (report["ok"], len(report["mistakes"])) == (False, 1)
    assert told in report["mistakes"][0]


def test_rules_of_the_user_and_of_lyra_toml(sage: Sage) -> None:
    own = Path(sage.home, ".config", "lyra")
    own.mkdir(parents=True)
    (own / "permissions.toml").write_text('ask = [{ rule = "Bash(git push *)", match = ["git push origin"] }]\n')
    sage.write("lyra.toml", '[permissions]\ndeny = [{ rule = "Read(.env)", match = [".env"] }]\n')
    done = sage("permissions", "test", "--json")
    assert done.returncode == 0
    assert {rule["rule"] for rule in json.loads(done.stdout)["rules"]} == {"Bash(git push *)", "Read(.env)"}
    explained = sage("permissions", "explain", "--json", "Bash", "git push origin main")
    assert json.loads(explained.stdout)["decision"] == "ask"
