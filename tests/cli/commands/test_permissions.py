"""`lyra permissions explain`: the decision, the rule and the reason."""

from __future__ import annotations

import json

import pytest


def explain(lyra, *args: str):
    answer = lyra.json("permissions", "explain", *args)
    assert set(answer) == {"decision", "rule", "reason"}
    return answer["decision"], answer["rule"]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("Bash", "make"), ("ask", None)),
        (("Bash", "ls -la | head"), ("allow", None)),
        (("--untrusted", "--headless", "Bash", "git log"), ("allow", None)),
        (("--mode", "sandboxed", "Bash", "make"), ("allow", None)),
        (("--mode", "sandboxed", "Git", "commit -m x"), ("ask", None)),
        (("--allow", "Git(commit *)", "Git", "commit -m x"), ("allow", "Git(commit *)")),
        (("--allow", "Bash(git *)", "Git", "commit -m x"), ("ask", None)),
        (("--deny", "Bash(git push *)", "--allow", "Git", "Git", "push origin"), ("deny", "Bash(git push *)")),
        (("--allow", "Bash(git *)", "Bash", "git status"), ("allow", "Bash(git *)")),
        (("--allow", "Bash(git *)", "Bash", "git status; rm -rf /"), ("ask", None)),
        (("--allow", "Bash", "Bash", "git status; rm -rf /"), ("allow", "Bash")),
        (("--allow", "Bash", "--deny", "Bash(rm *)", "Bash", "ls $(rm x)"), ("deny", "Bash(rm *)")),
        (("--allow", "Bash(git *)", "--ask", "Bash(git push *)", "Bash", "git push"), ("ask", "Bash(git push *)")),
        (("--mode", "deny-unasked", "Bash", "make"), ("deny", None)),
        (("--mode", "plan", "--allow", "Bash", "Bash", "ls"), ("deny", None)),
        (("--mode", "bypass", "Bash", "ls"), ("allow", None)),
        (("--headless", "Bash", "make"), ("deny", None)),
        (("--untrusted", "--allow", "Bash(git *)", "Bash", "git push"), ("ask", "Bash(git *)")),
        (("Read", "a.txt"), ("allow", None)),
        (("Read", "/etc/hostname"), ("ask", None)),
        (("TodoWrite",), ("allow", None)),
    ],
)
def test_decisions(lyra, args, expected):
    assert explain(lyra, *args) == expected


def test_links_are_followed_before_deciding(lyra):
    """A link out of the workspace is outside."""
    (lyra.folder / "out").symlink_to("/etc/hostname")
    assert explain(lyra, "Read", "out") == ("ask", None)


def test_the_text_form_names_the_rule_and_its_file(lyra):
    (lyra.folder / ".lyra").mkdir()
    (lyra.folder / ".lyra" / "permissions.toml").write_text('allow = ["Bash(make *)"]\ndeny = ["Bash(rm *)"]\n')
    done = lyra("permissions", "explain", "Bash", "rm x")
    assert done.returncode == 0
    assert done.stdout.startswith("deny: ")
    assert "permissions.toml:2" in done.stdout
    assert lyra("permissions", "explain", "--exit-code", "Bash", "rm x").returncode == 3
    assert explain(lyra, "Bash", "make") == ("ask", None)
    assert explain(lyra, "--trust-project", "Bash", "make") == ("allow", "Bash(make *)")


def test_a_wrong_rule_is_exit_2(lyra):
    done = lyra("permissions", "explain", "--deny", "Bash(", "Bash", "ls")
    assert done.returncode == 2
    assert "is not a rule" in done.stderr
    assert lyra("permissions", "explain", "--mode", "yolo", "Bash", "ls").returncode == 2


def test_as_a_real_command(lyra):
    done = lyra.real("permissions", "explain", "--allow", "Bash(git *)", "--json", "Bash", "git log")
    assert json.loads(done.stdout)["decision"] == "allow"


def test_a_rule_in_the_place_of_a_tool_is_a_mistake(lyra):
    done = lyra("permissions", "explain", "Bash(git status)")
    assert done.returncode == 2
    assert "explain Bash 'git status'" in done.stderr


def test_a_tool_that_is_not_built_in_is_told(lyra):
    done = lyra("permissions", "explain", "Bsh", "git status")
    assert done.stdout.startswith("ask: ")
    assert "did you mean Bash?" in done.stderr
    assert lyra("permissions", "explain", "Bash", "ls").stderr == ""


def test_what_an_untrusted_project_allows_is_told_to_be_passed_over(lyra):
    (lyra.folder / ".lyra").mkdir()
    (lyra.folder / ".lyra" / "permissions.toml").write_text('mode = "bypass"\nallow = ["*"]\n')
    done = lyra("permissions", "explain", "Bash", "make")
    assert done.stdout.startswith("ask: ")
    assert "allow and mode counts once the folder is trusted" in done.stderr
    assert lyra("permissions", "explain", "--trust-project", "Bash", "make").stderr == ""


def test_what_no_rule_can_allow_is_said(lyra):
    """The guard against inside addresses and the workspace stand behind the rules."""
    for tool, value, warning in (
        ("WebFetch", "http://169.254.169.254/", "it is refused whatever the rules say: "),
        ("Read", "/etc/passwd", "outside the workspace: `lyra agent` reaches it with --add-dir alone"),
        ("WebFetch", "https://example.com/", ""),
        ("Read", "here.txt", ""),
    ):
        done = lyra("permissions", "explain", "--allow", tool, tool, value)
        assert done.stdout.startswith("allow: ")
        assert (warning in done.stderr) if warning else (done.stderr == "")
