"""The order of decisions: deny, plan, protected, answers, ask, bypass, allow, the quiet cases, and ask."""

from __future__ import annotations

import os

import pytest

from lyra.errors import ApprovalRefused, ConfigError
from lyra.tools.permissions import (
    MODES,
    Layer,
    PermissionDecision,
    Permissions,
    Rule,
    load_layers,
    permissions_of,
    subject_of,
)
from lyra.tools.permissions.decision import ANSWERS
from tests.cases import each

NAMES = {"Bash": "command", "WebFetch": "url", "Grep": "path", "Glob": "path"}


def permissions_with(mode: str | None = None, **rules: list[str]) -> Permissions:
    return permissions_of([Layer("flags", rules)], workspace="/work", home="/home/ann", mode=mode)


def ask(permissions: Permissions, tool: str, value: object = None, **how: bool) -> PermissionDecision:
    arguments = {} if value is None else {NAMES.get(tool, "file_path"): value}
    return permissions.decide(subject_of(tool, arguments, workspace="/work", home="/home/ann"), **how)


@each(
    [
        ("default", "Bash", "ls", "ask"),
        ("default", "Read", "a.py", "allow"),
        ("default", "Grep", None, "allow"),
        ("default", "Glob", "src", "allow"),
        ("default", "Read", "/etc/passwd", "ask"),
        ("default", "Read", "../x", "ask"),
        ("default", "Read", ".env", "ask"),
        ("default", "Read", ".env.example", "allow"),
        ("default", "Read", "keys/id_rsa", "ask"),
        ("default", "Read", "a.pem", "ask"),
        ("default", "Read", ".git/config", "allow"),
        ("default", "Write", "a.py", "ask"),
        ("default", "WebFetch", "https://x.org", "ask"),
        ("default", "TodoWrite", None, "allow"),
        ("default", "AskUser", None, "allow"),
        ("default", "mcp__a__b", "x", "ask"),
        ("accept-edits", "Write", "a.py", "allow"),
        ("accept-edits", "MultiEdit", "src/a.py", "allow"),
        ("accept-edits", "Write", "/tmp/a.py", "ask"),
        ("accept-edits", "Write", ".git/hooks/pre-commit", "deny"),
        ("accept-edits", "Bash", "ls", "ask"),
        ("plan", "Read", "a.py", "allow"),
        ("plan", "Write", "a.py", "deny"),
        ("plan", "Bash", "ls", "deny"),
        ("plan", "WebFetch", "https://x.org", "deny"),
        ("plan", "mcp__a__b", "x", "deny"),
        ("bypass", "Bash", "rm -rf x", "allow"),
        ("bypass", "Write", "a.py", "allow"),
        ("bypass", "Write", ".git/config", "deny"),
        ("bypass", "Write", "sub/.GIT/config", "deny"),
        ("bypass", "Edit", ".env", "deny"),
        ("bypass", "Edit", ".env.local", "deny"),
        ("bypass", "Edit", ".ssh/authorized_keys", "deny"),
        ("bypass", "Edit", "lyra.toml", "deny"),
        ("bypass", "Write", ".claude/settings.json", "deny"),
        ("bypass", "Write", "sub/.cargo/config.toml", "deny"),
        ("bypass", "Write", "x.code-workspace", "deny"),
        ("bypass", "Write", "~/.config/lyra/tools/x.yaml", "deny"),
        ("bypass", "Write", "/etc/lyra/permissions.toml", "deny"),
        ("bypass", "Write", "Makefile", "allow"),
        ("bypass", "Write", "package.json", "allow"),
        ("bypass", "Write", ".github/workflows/ci.yml", "allow"),
        ("default", "Read", "~/.config/lyra/permissions.toml", "ask"),
        ("deny-unasked", "Bash", "ls", "deny"),
        ("deny-unasked", "Read", "a.py", "allow"),
        ("deny-unasked", "Read", ".env", "deny"),
    ]
)
def test_with_no_rules_at_all(mode: str, tool: str, value: object, expected: str):
    """No rule: ask. Reading in the workspace needs none; protected paths stay so in every mode."""
    assert ask(permissions_with(mode), tool, value).decision == expected


def test_lyras_own_files_in_the_workspace(tmp_path, monkeypatch):
    """They are not written in any mode, by whatever way; reading one asks, and searches pass over them."""
    home = tmp_path / "home"
    (home / "dotfiles/lyra").mkdir(parents=True)
    (home / ".config").mkdir()
    (home / ".config/lyra").symlink_to("../dotfiles/lyra")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    permissions = Permissions(mode="bypass", workspace=str(home), home=str(home))

    def decide(tool: str, path: str) -> str:
        return permissions.decide(subject_of(tool, {"file_path": path}, workspace=str(home), home=str(home))).decision

    for path in (
        "~/.config/lyra/x",
        "dotfiles/lyra/permissions.toml",
        "dotfiles/lyra",
        ".config/other",
        ".local/bin/x",
    ):
        assert decide("Write", path) == "deny", path
    assert decide("Write", "dotfiles/vimrc") == "allow"
    assert permissions.is_hidden(f"{home}/dotfiles/lyra/journal.key")
    assert not permissions.is_hidden(f"{home}/dotfiles/vimrc")
    permissions = Permissions(workspace=str(home), home=str(home))
    assert decide("Read", "dotfiles/lyra/journal.key") == "ask"
    assert decide("Read", "dotfiles/vimrc") == "allow"


def test_a_workspace_with_a_protected_name(tmp_path):
    """Who works in `.claude/worktrees/x` can write there, and not in a `.claude` inside it."""
    root = "/h/.claude/worktrees/x"
    permissions = Permissions(mode="bypass", workspace=root, extra_folders=["/h/.config/app"])
    written = {
        path: permissions.decide(subject_of("Write", {"file_path": path}, workspace=root)).decision
        for path in (f"{root}/src/a.py", f"{root}/.claude/x", "/h/.config/app/y", "/h/.claude/settings.json")
    }
    assert list(written.values()) == ["allow", "deny", "allow", "deny"]


def test_a_file_that_completes_a_repository(tmp_path):
    """It is denied before a person is asked."""
    for name in ("docs/objects", "docs/refs"):
        (tmp_path / name).mkdir(parents=True)
    permissions = Permissions(workspace=str(tmp_path))
    head = permissions.decide(subject_of("Write", {"file_path": "docs/HEAD"}, workspace=str(tmp_path)))
    assert (head.decision, head.source) == ("deny", "protected")
    assert "git repository" in head.reason
    assert permissions.decide(subject_of("Write", {"file_path": "docs/x"}, workspace=str(tmp_path))).decision == "ask"


def test_deny_beats_ask_beats_allow():
    """Whatever the order and the mode."""
    rules = {"allow": ["Bash"], "ask": ["Bash(git push *)"], "deny": ["Bash(rm *)"]}
    for mode in ("default", "bypass", "accept-edits"):
        permissions = permissions_with(mode, **rules)
        assert ask(permissions, "Bash", "ls; rm x") == (
            "deny",
            "Bash(rm *)",
            "the deny rule Bash(rm *) (flags) denies this",
            "flags",
        )
        assert ask(permissions, "Bash", "ls && git push").decision == "ask"
        assert ask(permissions, "Bash", "ls && make").decision == "allow"


def test_the_reason_says_what_could_not_be_read():
    decision = ask(permissions_with(deny=["Bash(rm *)"]), "Bash", "$X y")
    assert decision.decision == "deny"
    assert "known only to the shell" in decision.reason


def test_the_reason_says_why_an_allow_was_not_enough():
    permissions = permissions_with(allow=["Bash(git *)"])
    assert "one simple command" in ask(permissions, "Bash", "git log; ls").reason
    assert "one simple command" not in ask(permissions, "Bash", "ls").reason


def test_without_a_person_an_ask_is_a_deny():
    """`attended=False` turns every question into a denial, and nothing else."""
    permissions = permissions_with(ask=["Bash(ls *)"], allow=["Bash(git *)"])
    assert ask(permissions, "Bash", "ls", attended=False).decision == "deny"
    assert "no person" in ask(permissions, "Bash", "make", attended=False).reason
    assert ask(permissions, "Bash", "git log", attended=False).decision == "allow"
    with pytest.raises(ApprovalRefused):
        ask(permissions, "Bash", "make", attended=False).require()
    ask(permissions, "Bash", "git log").require()


def test_after_untrusted_text_a_pattern_is_no_answer():
    """A bare rule, or one for exactly this, is; reading and writing in the workspace go on."""
    permissions = permissions_with(allow=["Bash(git *)", "Bash(make test)", "WebFetch(*.org)", "Edit(/tmp/**)", "Edit"])
    assert ask(permissions, "Bash", "git push", tainted=True).decision == "ask"
    assert ask(permissions, "Bash", "git push").decision == "allow"
    assert ask(permissions, "Bash", "make test", tainted=True).decision == "allow"
    assert ask(permissions, "WebFetch", "https://x.org", tainted=True).decision == "ask"
    assert ask(permissions, "Write", "a.py", tainted=True).decision == "allow"
    assert ask(permissions_with(allow=["Edit(**)"]), "Write", "a.py", tainted=True).decision == "allow"
    assert ask(permissions_with(allow=["Edit(/tmp/**)"]), "Write", "/tmp/a", tainted=True).decision == "ask"
    assert ask(permissions_with(allow=["Bash"]), "Bash", "curl x; ls", tainted=True).decision == "allow"
    assert ask(permissions, "Read", "a.py", tainted=True).decision == "allow"


@pytest.mark.parametrize("stars", ["*", "**", "* *"])
def test_a_pattern_of_stars_is_no_rule_for_the_whole_tool(stars):
    """For files it covers the workspace and its further folders, before untrusted text as after it; what a command, a
    URL or another tool gets is covered until then."""
    for tool, rule in (("Read", "Read"), ("Grep", "Read"), ("Write", "Write"), ("Write", "Edit"), ("Edit", "Edit")):
        permissions = permissions_with(allow=[f"{rule}({stars})"])
        for tainted in (False, True):
            for path in ("/etc/passwd", "/home/ann/.ssh/id_rsa", "/out/x", "../x"):
                assert not ask(permissions, tool, path, tainted=tainted).allowed, (rule, tool, path)
            assert ask(permissions, tool, "src/a.py", tainted=tainted).decision == "allow"
        beside = subject_of(tool, {NAMES.get(tool, "file_path"): "/more/a"}, extra_folders=["/more"], workspace="/work")
        assert permissions.decide(beside, tainted=True).decision == "allow"
    secrets = permissions_with(allow=[f"Read({stars})"])
    assert ask(secrets, "Read", ".env").decision == "allow"
    assert ask(secrets, "Read", ".env", tainted=True).decision == "ask"
    for tool, value in (("Bash", "ls; rm x"), ("WebFetch", "https://x.org/a"), ("pay", "bob")):
        permissions = permissions_with(allow=[f"{tool}({stars})"])
        assert ask(permissions, tool, value).decision == "allow"
        assert ask(permissions, tool, value, tainted=True).decision == "ask"
        assert ask(permissions_with(deny=[f"{tool}({stars})"]), tool, value).decision == "deny"
    assert ask(permissions_with(deny=[f"Read({stars})"]), "Read", "/etc/passwd").decision == "deny"
    assert ask(permissions_with(allow=[f"WebFetch({stars})"]), "WebFetch", "https://x\\@y/").decision == "ask"


@pytest.mark.parametrize("rule", ["mcp__s__*", "mcp__*", "m*", "mcp__s__file*"])
def test_a_rule_for_many_tools_is_no_answer_after_untrusted_text(rule):
    """The name of the tool is; and a rule for many is where their program can send nothing anywhere."""
    call = subject_of("mcp__s__file_issue", {"text": "x"}, workspace="/work")
    permissions = permissions_with(allow=[rule])
    assert permissions.decide(call).decision == "allow"
    assert permissions.decide(call, tainted=True).decision == "ask"
    assert permissions.decide(call._replace(confined=True), tainted=True).decision == "allow"
    for named in ("mcp__s__file_issue", "*"):
        assert permissions_with(allow=[named]).decide(call, tainted=True).decision == "allow"
    assert (
        permissions_with(allow=["Ba*"])
        .decide(subject_of("Bash", {"command": "ls"}, workspace="/work"), tainted=True)
        .decision
        == "ask"
    )


def test_a_model_cannot_answer():
    """Arguments that claim an answer change nothing."""
    subject = subject_of("Bash", {"command": "rm x", "user_confirmed": True, "approved": "always"}, workspace="/work")
    assert permissions_with().decide(subject).decision == "ask"


def test_answers_become_rules():
    """`always` and `never` hold for exactly this; once holds for nothing."""
    permissions = permissions_with(ask=["Bash(rm *)"])
    line = subject_of("Bash", {"command": "rm *.tmp; ls"}, workspace="/work")
    other = subject_of("Bash", {"command": "rm a.tmp; ls"}, workspace="/work")
    assert permissions.answer(line, "allow") is None
    assert permissions.answer(line, "deny") is None
    assert permissions.decide(line).decision == "ask"
    kept = permissions.answer(line, "always")
    assert permissions.decide(line).decision == "allow"
    assert permissions.decide(line).source == "answers"
    assert permissions.decide(other).decision == "ask"
    permissions.answer(other, "never")
    assert permissions.decide(other).decision == "deny"
    assert [rule.effect for rule in permissions.answers] == ["allow", "deny"]
    assert permissions.answers[0] is kept
    for tool, value in (("Write", "/work/a.py"), ("WebFetch", "https://x.org/a"), ("mcp__a__b", "x")):
        subject = subject_of(tool, {NAMES.get(tool, "file_path"): value}, workspace="/work")
        permissions.answer(subject, "always")
        assert permissions.decide(subject).decision == "allow"
    with pytest.raises(ConfigError):
        permissions.answer(line, "maybe")
    assert set(ANSWERS) == {"allow", "always", "deny", "never"}


@pytest.mark.parametrize(("layer", "stays"), [("managed", True), ("user", False)])
def test_an_answer_does_not_beat_the_managed_policy(layer, stays):
    """What a managed policy asks about is asked each time, by these rules and by those around a narrower set."""
    layers = [Layer(layer, {"ask": ["Bash(git push *)"]}), Layer("user", {"allow": ["Bash"]})]
    permissions = permissions_of(layers, workspace="/work")
    subject = subject_of("Bash", {"command": "git push"}, workspace="/work")
    asked = permissions.asks(subject)
    assert asked is not None
    assert asked.decision == "ask"
    permissions.answer(subject, "always")
    assert permissions.decide(subject).decision == ("ask" if stays else "allow")
    assert (permissions.asks(subject) is not None) is stays


def test_a_managed_policy_only_tightens():
    """It denies, asks, protects and forbids modes; an allow in it is an error."""
    policy = Layer("managed", {"deny": ["WebFetch"], "protected": ["infra"], "forbid_modes": ["bypass"]})
    permissions = permissions_of([Layer("flags", {"allow": ["*"]}), policy], workspace="/work")
    assert ask(permissions, "WebFetch", "https://x.org").source == "managed"
    assert ask(permissions, "Write", "infra/a.tf").decision == "deny"
    assert ask(permissions, "Write", "a.tf").decision == "allow"
    with pytest.raises(ConfigError, match="forbids"):
        permissions_of([policy], mode="bypass")
    with pytest.raises(ConfigError, match="only tighten"):
        permissions_of([Layer("managed", {"allow": ["Bash"]})])


def test_layers_from_files(tmp_path):
    """Each file with its line; a project's own files loosen only when it is trusted."""
    home, work = tmp_path / "home", tmp_path / "work"
    (home / ".config" / "lyra").mkdir(parents=True)
    (work / ".lyra").mkdir(parents=True)
    (home / ".config" / "lyra" / "permissions.toml").write_text('mode = "accept-edits"\nallow = ["Bash(make *)"]\n')
    (work / ".lyra" / "permissions.toml").write_text(
        '# ours\nallow = ["Bash"]\ndeny = ["Bash(rm *)"]\nmode = "bypass"\n'
    )
    (work / ".lyra" / "permissions.local.toml").write_text('ask = ["WebFetch"]\n')

    def decide(line: str, *, trusted: bool) -> PermissionDecision:
        layers = load_layers(str(work), home=str(home), managed=str(tmp_path / "none"), trusted=trusted)
        permissions_ = permissions_of(layers, workspace=str(work))
        assert permissions_.mode == ("bypass" if trusted else "accept-edits")
        return permissions_.decide(subject_of("Bash", {"command": line}, workspace=str(work)))

    assert decide("make x", trusted=False).decision == "allow"
    assert decide("rm x", trusted=False).source == f"project: {work}/.lyra/permissions.toml:3"
    assert decide("ls", trusted=False).decision == "ask"
    assert decide("ls", trusted=True).decision == "allow"
    (work / ".lyra" / "permissions.toml").write_text('mode = "plan"\n')
    layers = load_layers(str(work), home=str(home), managed=str(tmp_path / "none"))
    assert permissions_of(layers).mode == "plan"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("allow = [", "not TOML"),
        ("alow = []", "did you mean 'allow'"),
        ('allow = "Bash"', "list of rules"),
        ('mode = "bypas"', "mode is one of"),
        ("protected = [3]", "list of names"),
        ('protected = [""]', "is not the name of a file to protect"),
        ('protected = ["/"]', "is not the name of a file to protect"),
        (f'protected = ["{"x" * 256}"]', "is not the name of a file to protect"),
        ('protected = ["a*b*c*d*e"]', "is not the name of a file to protect"),
        ('\n\ndeny = ["Bash("]', "permissions.toml:3"),
        ('deny = [{rule = "Bash(rm *)", match = ["ls"]}]', "its own example"),
        ("\xff", "not TOML"),
    ],
)
def test_a_wrong_file_is_an_error_with_its_place(tmp_path, text: str, says: str):
    """Once it is trusted; before, every call is asked about. It is never passed over."""
    (tmp_path / ".lyra").mkdir()
    (tmp_path / ".lyra" / "permissions.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError) as caught:
        permissions_of(load_layers(str(tmp_path), managed=str(tmp_path / "none"), trusted=True))
    assert says in caught.value.render()
    strict = permissions_of(load_layers(str(tmp_path), managed=str(tmp_path / "none")), mode="bypass")
    assert strict.decide(subject_of("Bash", {"command": "ls"})).decision == "ask"


def test_what_a_search_passes_over():
    """Secrets and what a deny rule for reading names."""
    permissions = permissions_with(deny=["Read(private/**)"])
    assert permissions.is_hidden("/work/.env")
    assert permissions.is_hidden("/work/private/a")
    assert not permissions.is_hidden("/work/src/a.py")
    assert len(MODES) == 6


def test_a_name_alone_is_said_to_be_a_pattern():
    """`Read(.env)` is for every folder, so that it is no answer after untrusted text; how to name one file is told."""
    for text, ending in (
        ("Read(.env)", "Read(./.env) only here"),
        ("Read(**/.env)", "a pattern is no answer"),
        ("Read(*.env)", "a pattern is no answer"),
    ):
        permissions = Permissions([Rule(text, "allow", workspace="/w")], workspace="/w")
        subject = subject_of("Read", {"file_path": ".env"}, workspace="/w")
        decision = permissions.decide(subject, tainted=True)
        assert decision.decision == "ask"
        assert decision.reason.endswith(ending)
    exact = Permissions([Rule("Read(./.env)", "allow", workspace="/w")], workspace="/w")
    assert exact.decide(subject, tainted=True).allowed


def test_a_link_is_judged_by_its_own_name_too():
    """Where it leads is not the whole of it: a protected name stays protected, wherever its file lies."""
    permissions = permissions_with(allow=["Write", "Edit"])

    def decided(tool: str, name: str) -> str:
        subject = subject_of(tool, {"file_path": name}, workspace="/work", path="/work/real/file")
        return permissions.decide(subject, attended=False).decision

    assert decided("Read", ".env") == decided("Read", "/work/sub/.env") == "deny"
    assert decided("Write", "lyra.toml") == decided("Edit", ".git/config") == decided("Write", ".env") == "deny"
    assert (decided("Read", "plain"), decided("Write", "plain")) == ("allow", "allow")


# Each is covered by the rule before text from outside was read, and carries something that a model could have chosen.
CARRIERS = (
    ("WebFetch(docs.example.com)", "https://docs.example.com/?d=secret"),
    ("WebFetch(docs.example.com)", "https://docs.example.com/secret"),
    ("WebFetch(docs.example.com)", "https://docs.example.com/"),
    ("WebFetch(domain:docs.example.com)", "https://docs.example.com/a/b"),
    ("WebFetch(https://docs.example.com/*)", "https://docs.example.com/a?secret"),
    ("WebFetch(https://docs.example.com/api/*)", "https://docs.example.com/api/secret"),
    ("WebFetch(https://docs.example.com/)", "https://docs.example.com/secret"),
    ("WebFetch(*.example.com)", "https://secret.example.com/"),
    ("WebFetch(https://docs.example.com/a)", "https://docs.example.com/%61"),
    ("WebFetch(https://docs.example.com/a)", "https://docs.example.com/./a"),
    ("WebFetch(https://docs.example.com/a)", "https://docs.example.com//a"),
    ("WebFetch(https://docs.example.com/a)", "https://DOCS.example.com/a"),
    ("WebFetch(https://docs.example.com/a)", "https://docs.example.com./a"),
    ("WebFetch(https://docs.example.com/a)", "https://docs.example.com:443/a"),
    ("WebFetch(https://docs.example.com/a?)", "https://docs.example.com/ab"),
)


@pytest.mark.parametrize(("rule", "url"), CARRIERS)
def test_after_text_from_outside_a_host_is_no_answer_for_a_url(rule: str, url: str):
    """A path, a query, a name and the way they are written carry data; a rule for that very URL carries none."""
    permissions = permissions_with(allow=[rule])
    assert ask(permissions, "WebFetch", url).decision == "allow"
    assert ask(permissions, "WebFetch", url, tainted=True)[::3] == ("ask", "taint")
    assert ask(permissions, "WebFetch", url, tainted=True, attended=False).decision == "deny"
    for exact in (f"WebFetch({url})", "WebFetch"):
        assert ask(permissions_with(allow=[exact]), "WebFetch", url, tainted=True).decision == "allow", exact


def test_a_url_is_the_same_with_and_without_what_is_not_sent():
    """The part after `#` stays here; a rule may leave out the scheme."""
    for rule in ("WebFetch(https://x.org/a?b=1)", "WebFetch(x.org/a?b=1)"):
        for url in ("https://x.org/a?b=1", "https://x.org/a?b=1#c"):
            assert ask(permissions_with(allow=[rule]), "WebFetch", url, tainted=True).decision == "allow"


def test_an_always_is_for_one_url_and_a_never_for_its_host():
    """Also after text from outside, and also an `always` for a host that an earlier version kept."""
    permissions = permissions_with()
    asked = subject_of("WebFetch", {"url": "https://x.org/a%20b?c=1#d"})
    kept = permissions.answer(asked, "always")
    assert kept is not None
    assert kept.text == "WebFetch(https://x.org/a%20b?c=1)"
    assert permissions.decide(asked, tainted=True).decision == "allow"
    for url in ("https://x.org/a%20b?c=2", "https://x.org/", "https://x.org/a b?c=1"):
        assert ask(permissions, "WebFetch", url).decision == "ask", url
    assert permissions.rule_for(subject_of("WebFetch", {"url": "https://x.org/*"})) is None
    refused = permissions.answer(asked, "never")
    assert refused is not None
    assert refused.text == "WebFetch(https://x.org/*)"
    assert ask(permissions, "WebFetch", "https://x.org/other").decision == "deny"
    before = Permissions(answers=[Rule("WebFetch(https://y.org/*)", "allow")], rules=[Rule("WebFetch", "ask")])
    other = subject_of("WebFetch", {"url": "https://y.org/?d=secret"})
    assert before.decide(other).decision == "allow"
    assert before.decide(other, tainted=True).decision == "ask"
    assert before.asks(other) is None
    assert before.asks(other, tainted=True) is not None


OBEYED = ["AGENTS.md", "CLAUDE.md", "src/AGENTS.md", ".flake8", "mypy.ini", "eslint.config.js", ".rubocop.yml"]


@pytest.mark.parametrize("name", OBEYED)
def test_a_file_that_other_programs_obey_is_written_when_a_person_says_so(tmp_path, name):
    """Neither the mode accept-edits nor a rule with a pattern is that; a rule that names the file or the tool is, and
    the mode bypass. An ordinary file beside it needs no question, and reading none at all."""
    root = os.path.realpath(tmp_path)

    def decided(path: str, *rules: str, mode: str = "default", tool: str = "Edit") -> str:
        permissions = Permissions([Rule(rule, "allow", workspace=root) for rule in rules], mode=mode, workspace=root)
        return permissions.decide(subject_of(tool, {"file_path": f"{root}/{path}"}, workspace=root)).decision

    assert decided(name, mode="accept-edits") == "ask"
    assert decided(name, "Edit(**)") == "ask"
    assert decided(name, "Edit(./**)", mode="accept-edits") == "ask"
    assert decided(name, f"Edit({root}/{name})") == "allow"
    assert decided(name, "Edit") == "allow"
    assert decided(name, mode="bypass") == "allow"
    assert decided(name, tool="Read") == "allow"
    assert decided("src/x.py", mode="accept-edits") == "allow"
    assert decided("pyproject.toml", mode="accept-edits") == "allow"


def test_a_link_of_such_a_name_asks_for_what_it_leads_to(tmp_path):
    """`CLAUDE.md -> docs/rules.md`: an edit of that file changes what an agent obeys."""
    root = os.path.realpath(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/rules.md").write_text("x")
    (tmp_path / "docs/other.md").write_text("x")
    (tmp_path / "CLAUDE.md").symlink_to("docs/rules.md")
    permissions = Permissions(mode="accept-edits", workspace=root)
    for name, decision in (("docs/rules.md", "ask"), ("CLAUDE.md", "ask"), ("docs/other.md", "allow")):
        subject = subject_of("Edit", {"file_path": f"{root}/{name}"}, workspace=root)
        assert permissions.decide(subject).decision == decision, name


def test_an_always_with_a_pattern_is_no_answer_for_what_other_programs_obey(tmp_path):
    """An answer of an earlier run for all files leaves the question open; an `always` for the file itself ends it."""
    root = os.path.realpath(tmp_path)
    kept = Rule("Edit(**)", "allow", source="answers", workspace=root)
    asks = [Rule("Edit(**)", "ask", workspace=root)]
    permissions = Permissions(asks, workspace=root, answers=[kept])
    rules = subject_of("Edit", {"file_path": f"{root}/AGENTS.md"}, workspace=root)
    assert permissions.decide(subject_of("Edit", {"file_path": f"{root}/x.py"}, workspace=root)).decision == "allow"
    assert permissions.decide(rules).decision == "ask"
    permissions.answer(rules, "always")
    assert permissions.decide(rules).decision == "allow"
