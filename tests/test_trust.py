"""Trust of a folder: answers for a content, what files ask for, and that files without trust can only tighten."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lyra.config import Config
from lyra.config.asks import ASKS_MAX, SENTENCE_CHARS_MAX, FileAsks, folder_asks
from lyra.config.trust import FileAnswer, FolderTrust, TrustAnswers, digest_of, trust_for, using
from lyra.core.rights.capability import Grant
from lyra.errors import ConfigError
from lyra.kernel.kernel import Kernel
from lyra.mcp.servers import load_settings
from lyra.tools.builtin.workspace import Workspace
from lyra.tools.permissions.settings import describe_passed_over, load_layers, permissions_of
from lyra.tools.yaml import DynamicTools
from lyra.tools.yaml.places import sources_here
from tests import trusting


class Place:
    """A project's folder, and a person with a home."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self.work.mkdir()
        self.home = folder / "home"
        self.home.mkdir()
        self.env = {"HOME": str(self.home)}

    def write(self, name: str, text: str) -> Path:
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def asks(self) -> list[FileAsks]:
        return folder_asks(str(self.work), self.env)

    def sentences(self) -> list[str]:
        return [ask.sentence for file in self.asks() for ask in file.asks]

    def answer(self, *, trusted: bool = True) -> None:
        trusting.answer(self.work, self.env, trusted=trusted)

    def load(self, **options: Any) -> Config:
        return Config.load(self.work, self.env, **options)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    place = Place(tmp_path)
    monkeypatch.setenv("HOME", str(place.home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return place


# ---------------------------------------------------------------- the kept answers
def test_an_answer_is_for_a_folder_and_a_content(place):
    """Another content, another name and another folder have none."""
    answers = TrustAnswers.for_user(place.env)
    answers.keep(str(place.work), {"lyra.toml": FileAnswer(digest_of(b"x"), trusted=True)})
    trust = FolderTrust(TrustAnswers.for_user(place.env))
    assert trust.covers(str(place.work), "lyra.toml", b"x")
    assert not trust.covers(str(place.work), "lyra.toml", b"x ")
    assert not trust.covers(str(place.work), ".mcp.json", b"x")
    assert not trust.covers(str(place.home), "lyra.toml", b"x")


def test_a_no_is_kept_too(place):
    place.write("lyra.toml", "kernel.lease_s = 2\n")
    place.answer(trusted=False)
    (file,) = place.asks()
    trust = FolderTrust(TrustAnswers.for_user(place.env))
    assert file.state(trust) == "refused"
    assert not trust.covers(file.folder, file.name, b"kernel.lease_s = 2\n")


def test_the_file_of_answers_is_private_and_in_the_users_own_folder(place, tmp_path):
    """`$XDG_CONFIG_HOME/lyra`, else `~/.config/lyra`; the folder and the file are for their owner alone."""
    umask = os.umask(0)
    try:
        for env, folder in (
            (place.env, place.home / ".config" / "lyra"),
            ({**place.env, "XDG_CONFIG_HOME": str(tmp_path / "xdg")}, tmp_path / "xdg" / "lyra"),
            ({**place.env, "XDG_CONFIG_HOME": "relative"}, place.home / ".config" / "lyra"),
        ):
            TrustAnswers.for_user(env).keep(str(place.work), {"a": FileAnswer("0", trusted=True)})
            assert (folder / "trust.json").stat().st_mode & 0o777 == 0o600
            assert folder.stat().st_mode & 0o777 == 0o700
            assert list(folder.glob("*.new")) == []
    finally:
        os.umask(umask)


def test_without_a_folder_of_their_own_answers_live_as_long_as_the_object(place):
    answers = TrustAnswers.for_user({})
    answers.keep(str(place.work), {"a": FileAnswer("0", trusted=True)})
    assert answers.find_folder(str(place.work)) is not None
    assert TrustAnswers.for_user({}).folders() == {}


@pytest.mark.parametrize("damage", ["{", '{"folders": 3}', '{"folders": {"/": {"files": {}}}}', "\xff", "[]"])
def test_answers_that_cannot_be_read_are_an_error(place, damage):
    """A guess could trust what the person did not; nothing is trusted, and nothing is written over."""
    file = place.home / ".config" / "lyra" / "trust.json"
    file.parent.mkdir(parents=True)
    file.write_text(damage, encoding="latin-1")
    file.chmod(0o600)
    place.write("lyra.toml", "kernel.lease_s = 2\n")
    with pytest.raises(ConfigError, match="the folders that you trust cannot be read") as caught:
        place.load()
    assert caught.value.place == str(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        TrustAnswers.for_user(place.env).keep(str(place.work), {})
    assert file.read_bytes() == damage.encode("latin-1")


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_answers_that_another_user_can_write_are_an_error(place, mode):
    place.write("lyra.toml", "kernel.lease_s = 2\n")
    place.answer()
    (place.home / ".config" / "lyra" / "trust.json").chmod(mode)
    with pytest.raises(ConfigError, match="another user can write to it"):
        place.load()


def test_answers_are_read_only_where_a_file_asks(place):
    """A broken file of answers stops no command in a folder without a project."""
    file = place.home / ".config" / "lyra" / "trust.json"
    file.parent.mkdir(parents=True)
    file.write_text("{")
    assert place.load().kernel.lease_s == 3


_KEEP = """
import sys
from lyra.config.trust import FileAnswer, TrustAnswers
for number in range(20):
    TrustAnswers(sys.argv[1]).keep(f"/{sys.argv[2]}/{number}", {"a": FileAnswer("0", trusted=True)})
"""


def test_two_processes_keep_answers_at_the_same_time(tmp_path):
    """Neither loses one, and the file can be read at each moment."""
    work = [subprocess.Popen([sys.executable, "-c", _KEEP, str(tmp_path), name]) for name in ("x", "y")]
    while any(process.poll() is None for process in work):
        TrustAnswers(tmp_path).folders()
    assert [process.wait() for process in work] == [0, 0]
    assert len(TrustAnswers(tmp_path).folders()) == 40


def test_taking_an_answer_back(place):
    place.write("lyra.toml", "kernel.lease_s = 2\n")
    place.answer()
    assert place.load().kernel.lease_s == 2
    answers = TrustAnswers.for_user(place.env)
    assert answers.forget(str(place.work))
    assert not answers.forget(str(place.work))
    assert place.load().kernel.lease_s == 3


def test_a_folder_whose_name_is_no_text_is_never_kept(place):
    with pytest.raises(ConfigError, match="is not UTF-8"):
        TrustAnswers.for_user(place.env).keep(os.fsdecode(b"/tmp/\xff"), {})


# ---------------------------------------------------------------- what counts without trust
LOOSE = """
[kernel]
store = "x.db"
durability = "power"
lease_s = 9
processes_max = 7
mailbox_messages_max = 5
retention_s = 1
[budget]
usd = 3
[grant]
deny = ["net.http"]
[agent]
model = "openai/gpt-4o"
[audit]
file = "log"
level = "detailed"
[providers.here]
base_url = "http://localhost:1"
insecure_http = false
[limits."a/b"]
requests_per_minute = 5
"""


def test_without_trust_a_file_only_tightens(place):
    """What has an order counts where it is tighter; the rest waits, and is named."""
    place.write("lyra.toml", LOOSE)
    config = place.load()
    assert not config.project_trusted
    assert config.kernel.store.reveal() == str(place.work / ".lyra/lyra.db")
    assert (config.kernel.lease_s, config.kernel.retention_s) == (3, 604_800)
    assert (config.agent.model, config.audit.file) == (None, None)
    assert "base_url" not in config.providers.get("here", {})
    assert (config.kernel.durability, config.kernel.processes_max, config.kernel.mailbox_messages_max) == (
        "power",
        7,
        5,
    )
    assert (str(config.budget.usd), config.audit.level) == ("$3.00", "detailed")
    assert not config.grant.allows("net.http:a.b")
    assert config.limits["a/b"].requests_per_minute == 5
    assert config.passed_over == [
        "kernel.store",
        "kernel.lease_s",
        "kernel.retention_s",
        "agent.model",
        "audit.file",
        "providers.here.base_url",
    ]
    assert "passed over: kernel.store, kernel.lease_s" in config.describe_passed_over()


def test_with_trust_the_same_file_counts(place):
    place.write("lyra.toml", LOOSE)
    place.answer()
    for config in (place.load(), place.load(trust=True)):
        assert config.project_trusted
        assert config.kernel.store.reveal() == str(place.work / "x.db")
        assert (config.kernel.lease_s, config.kernel.retention_s) == (9, 1)
        assert (config.agent.model, config.audit.file) == ("openai/gpt-4o", str(place.work / "log"))
        assert config.providers["here"]["base_url"] == "http://localhost:1"
        assert (config.passed_over, config.describe_passed_over()) == ([], "")
    assert place.load(trust=False).kernel.lease_s == 3


def test_a_tighter_value_of_the_user_holds(place):
    """Without trust a project cannot take back what the user tightened."""
    own = place.home / ".config" / "lyra" / "lyra.toml"
    own.parent.mkdir(parents=True)
    own.write_text('kernel.durability = "power"\nkernel.processes_max = 3\n')
    place.write("lyra.toml", 'kernel.durability = "process"\nkernel.processes_max = 9\n')
    config = place.load()
    assert (config.kernel.durability, config.kernel.processes_max) == ("power", 3)
    assert config.passed_over == ["kernel.durability", "kernel.processes_max"]
    assert place.load(flags=["kernel.durability=process"]).kernel.durability == "process"


def test_a_file_that_asks_for_nothing_needs_no_answer(place):
    """Tightening, and what is the default anyway."""
    place.write(
        "lyra.toml",
        '[kernel]\nstore = ".lyra/lyra.db"\ndurability = "power"\nprocesses_max = 5\n[budget]\nusd = 1\n[grant]\n'
        'deny = ["net.http"]\n[permissions]\ndeny = ["Bash"]\nask = ["Read"]\nmode = "plan"\n'
        '[prices."a/b"]\ninput_usd_per_mtok = 1\noutput_usd_per_mtok = 1\n[limits."a/b"]\nburst = 3\n'
        "requests_per_minute = 3\n[audit]\nlevel = 'detailed'\n[providers.openai]\ninsecure_http = false\n"
        "[mcp.servers.x]\ncommand = 'x'\nenabled = false\n",
    )
    place.write(".lyra/permissions.toml", 'deny = ["Bash(rm *)"]\n')
    place.write(".mcp.json", '{"mcpServers": {"off": {"command": "x", "disabled": true}}}')
    assert place.asks() == []
    assert place.load().passed_over == []


def test_a_program_is_warned_of_what_was_passed_over(place, caplog):
    """The SDK prints nothing: it is a warning of the logger `lyra.config`. A command says it itself."""
    place.write("lyra.toml", "kernel.lease_s = 9\n")
    with caplog.at_level(logging.WARNING):
        place.load()
        (record,) = caplog.records
        assert record.name == "lyra.config"
        assert "lyra.toml is not trusted" in record.message
        assert "passed over: kernel.lease_s" in record.message
        assert "lyra trust add" in record.message
        place.load(trust=False)
        place.load(trust=True)
        with using(trust_for(str(place.work), env=place.env)):
            place.load()
        assert len(caplog.records) == 1


def test_a_word_for_a_call_is_for_its_folder_alone(place, tmp_path):
    """`trust=True` trusts the folder that is loaded, and the lyra.toml above it that counts there."""
    place.write("lyra.toml", "kernel.lease_s = 9\n")
    (place.work / "deep").mkdir()
    trust = trust_for(str(place.work / "deep"), given=True, env=place.env)
    assert Config.load(place.work / "deep", place.env, trust=trust).kernel.lease_s == 9
    other = tmp_path / "other"
    other.mkdir()
    (other / "lyra.toml").write_text("kernel.lease_s = 9\n")
    assert Config.load(other, place.env, trust=trust).kernel.lease_s == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_file_that_another_user_put_above_is_not_meant(place):
    """Neither by `--trust-folder` nor as the place of the journal; tightening it may."""
    deep = place.work / "deep"
    deep.mkdir()
    planted = place.write("lyra.toml", "kernel.lease_s = 9\nbudget.usd = 1\n")
    os.chown(planted, 12345, 12345)
    config = Config.load(deep, place.env, trust=True)
    assert config.kernel.lease_s == 3
    assert str(config.budget.usd) == "$1.00"
    assert config.store_target() == str(deep / ".lyra/lyra.db")
    os.chown(planted, 0, 0)
    config = Config.load(deep, place.env, trust=True)
    assert (config.kernel.lease_s, config.store_target()) == (9, str(place.work / ".lyra/lyra.db"))


# ---------------------------------------------------------------- the store
@pytest.mark.parametrize(
    "target", ["/etc/x", "../x", "~/x", "a/../../x", "sqlite:///etc/x", "sqlite://postgresql://h/db", "links/x", "link"]
)
def test_not_even_a_trusted_project_names_a_store_elsewhere(place, target):
    (place.work / "links").symlink_to(place.home)
    (place.work / "link").symlink_to(place.home / "x.db")
    place.write("lyra.toml", f'kernel.store = "{target}"\n')
    with pytest.raises(ConfigError, match=r"in its own folder alone|to a server"):
        place.load(trust=True)
    config = place.load(trust=False, lenient=True)
    assert config.origin("kernel.store").kind == "default"
    assert config.passed_over == ["kernel.store"]


MISTAKES = {
    "simulated": '[agent]\nmodel = "sim/echo"\n',
    "hook": '[[hooks.Stop]]\ncommand = "true"\nsandbox = false\n',
    "hook without a command": "[[hooks.Stop]]\nmatcher = 5\n",
    "no TOML": "[zzz\n",
    "no text": "\0",
    "unknown section": "[zzz]\nx = 1\n",
    "unknown setting": "[kernel]\nlease = 1\n",
    "wrong type": '[kernel]\nlease_s = "soon"\n',
    "wrong budget": '[budget]\nusd = "much"\n',
    "wrong grant": "[grant]\nallow = 5\n",
    "half a price": '[prices."a/b"]\ninput_usd_per_mtok = 1\n',
    "wrong limit": '[limits."a/b"]\nrequests_per_minute = -1\n',
    "half a limit": '[limits."a/b"]\nburst = 1\n',
    "server": "[mcp.servers.x]\nenv = {}\n",
    "provider": "[providers.x]\nregion = 'eu'\n",
    "section that is none": "kernel = 5\n",
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_in_a_file_without_trust_stops_nothing(place, what):
    """It is passed over, and what else the file tightens still counts; once it is trusted, it is an error."""
    tight = "[budget]\nseconds = 7\n" if "[budget]" not in MISTAKES[what] else "seconds = 7\n"
    place.write("lyra.toml", MISTAKES[what] + tight)
    config = place.load(trust=False, lenient=True)
    assert config.passed_over
    assert config.describe_passed_over()
    if what not in ("no TOML", "no text"):
        assert config.budget.seconds == 7
    with pytest.raises(ConfigError):
        place.load(trust=True)
    assert place.load(lenient=True).passed_over == config.passed_over, "without an answer"


@pytest.mark.parametrize("what", ["a folder", "a broken link"])
def test_a_file_without_trust_that_cannot_be_read_stops_nothing(place, what):
    path = place.work / "lyra.toml"
    if what == "a folder":
        path.mkdir()
    else:
        path.symlink_to("nowhere")
    assert place.load(trust=False, lenient=True).passed_over
    with pytest.raises(ConfigError):
        place.load(trust=True)


def test_a_lost_tightening_is_told(place):
    """A limit of a file without trust that cannot be read asks for nothing, so a note says that it does not count."""
    place.write("lyra.toml", MISTAKES["wrong budget"])
    (note,) = place.load(trust=False, lenient=True).notes
    assert note == "lyra.toml:2: budget.usd: 'much' is not an amount of money: it is passed over"


def test_a_mistake_of_the_user_stays_an_error_beside_one_of_a_stranger(place):
    place.write("lyra.toml", MISTAKES["simulated"])
    with pytest.raises(ConfigError, match="soon") as caught:
        place.load(trust=False, lenient=True, flags=["kernel.lease_s=soon"])
    assert "also" not in caught.value.fields


@pytest.mark.parametrize("link", [".lyra", ".lyra/lyra.db"])
def test_the_usual_store_does_not_follow_a_link_out_of_the_project(place, link, tmp_path):
    """A repository can bring a link; the journal is not written where it leads."""
    place.write("lyra.toml", "")
    outside = tmp_path / "outside"
    outside.mkdir()
    path = place.work / link
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(outside if link == ".lyra" else outside / "x.db")
    config = place.load()
    with pytest.raises(ConfigError, match="leads out of the project's folder"):
        config.store_target()
    with pytest.raises(ConfigError, match="leads out"):
        Kernel.from_config(config)
    Kernel.from_config(config, store="memory")
    asked = f"{outside}/y.db"  # a flag is the word of the person
    assert place.load(flags=[f"kernel.store={asked}"]).store_target() == asked
    assert list(outside.iterdir()) == []


def test_a_link_inside_the_project_is_followed(place):
    (place.work / "state").mkdir()
    (place.work / ".lyra").symlink_to("state")
    assert place.load().store_target() == str(place.work / ".lyra/lyra.db")


# ---------------------------------------------------------------- what files ask for
def test_what_a_folder_asks_for_in_plain_words(place):
    place.write(
        "lyra.toml",
        '[kernel]\nstore = "x.db"\n[agent]\nmodel = "a/b"\n[audit]\nfile = "log"\n'
        '[providers.anthropic]\nbase_url = "http://localhost:9"\n'
        '[providers.here]\nbase_url = "http://localhost:8"\napi_key = "env:TEAM_KEY"\n'
        '[providers.openai]\napi_key = "env:TEAM_KEY"\ntimeouts = {idle_s = 1}\n'
        '[permissions]\nallow = ["Bash", {rule = "Edit(src/**)"}]\nmode = "bypass"\n'
        '[mcp.servers.web]\nurl = "https://a.example"\nauth = {kind = "bearer", token_env = "TOKEN"}\n'
        '[diagnostics."*.py"]\ncommands = "ruff check {file}"\nlanguage_server = "pylsp"\nreadable = ["/opt"]\n'
        '[diagnostics."*.c"]\ncommands = ["a b", "c"]\n',
    )
    place.write(
        ".mcp.json",
        json.dumps(
            {
                "mcpServers": {
                    "files": {
                        "command": "node",
                        "args": ["s.js", "${HOME}"],
                        "cwd": "sub",
                        "env": {"A": "env:B", "C": "d e", "API_KEY": "sk-literal-123"},
                        "network": ["a.example"],
                        "readable": ["/opt"],
                        "writable": ["out"],
                    }
                }
            }
        ),
    )
    place.write(
        ".lyra/tools/a.json",
        json.dumps({"name": "greet", "implementation": {"type": "exec", "command": ["echo", "a b"]}}),
    )
    place.write(
        ".lyra/tools/b.toml",
        '[[tools]]\nname = "get"\nimplementation = {type = "http", url = "https://x.example/{{q}}"}\n'
        '[[tools]]\nname = "put"\nimplementation = {type = "file_write", path = "notes"}\n',
    )
    server = (
        "starts the MCP server files: node s.js '${HOME}'; with your variables HOME in that line; in the folder sub; "
        "with the variable A from your variable B; with the variable C=d e; with the variable API_KEY=***; "
        "it may reach a.example; it may read /opt; it may write in out"
    )
    asked = "asks the models of anthropic at http://localhost:9, and sends your key for anthropic (ANTHROPIC_API_KEY)"
    assert place.sentences() == [
        "keeps the journal of its runs in x.db",
        "has agents ask the model a/b",
        "writes an audit log to log",
        f"{asked} there",
        "asks the models of here at http://localhost:8, and sends TEAM_KEY there",
        "uses TEAM_KEY as the key for openai",
        "sets providers.openai.timeouts to {'idle_s': 1}",
        "lets Bash happen without a question",
        "lets Edit(src/**) happen without a question",
        "sets the permission mode to bypass",
        "connects to the MCP server web at https://a.example; with the token in your variable TOKEN",
        "runs ruff check {file} after an edit of files such as *.py",
        "starts the language server pylsp after an edit of files such as *.py",
        "lets these programs read /opt",
        "runs a b after an edit of files such as *.c",
        "runs c after an edit of files such as *.c",
        server,
        "brings the tool greet, which runs echo 'a b'",
        "brings the tool get, which sends GET https://x.example/{{q}}",
        "brings the tool put, which writes the file notes",
    ]


def test_what_a_tool_sends_and_writes_is_shown(place):
    """Also the user's variables in its headers: they are keys that would leave."""
    place.write(
        ".lyra/tools/x.yaml",
        "tools:\n"
        "- name: post\n"
        "  implementation:\n"
        "    type: http\n"
        "    method: POST\n"
        "    url: https://x.example/w\n"
        "    headers: {Authorization: 'Bearer env:GITHUB_TOKEN', X-Key: 'env:OTHER', X-Kind: plain}\n"
        "    query: {q: '{{q}}'}\n"
        "    body: {text: '{{text}}'}\n"
        "- name: run\n"
        "  implementation: {type: exec, command: [sort], stdin: '{{text}}'}\n"
        "- name: put\n"
        "  implementation: {type: file_write, path: notes, content: 'run {{x}}'}\n",
    )
    assert place.sentences() == [
        (
            "brings the tool post, which sends POST https://x.example/w; "
            "with the header Authorization: Bearer and your variable GITHUB_TOKEN; "
            "with the header X-Key: your variable OTHER; with the header X-Kind=plain; "
            "with the query {'q': '{{q}}'}; with the body {'text': '{{text}}'}"
        ),
        "brings the tool run, which runs sort, with {{text}} as its input",
        "brings the tool put, which writes the file notes: run {{x}}",
    ]


NASTY = "\x1b[2J\x07\r\nlets nothing happen\t\u202e\u200b\x9b31m"


def test_text_of_a_project_is_harmless(place):
    """No control character, escape sequence, direction mark or new line of a file reaches the screen."""
    place.write(".lyra/permissions.toml", f"allow = [{json.dumps(f'Read({NASTY})')}]\n")
    place.write(
        "lyra.toml", f"[providers.{json.dumps(NASTY)}]\nbase_url = {json.dumps(NASTY)}\nx = {json.dumps(NASTY)}\n"
    )
    place.write(
        ".mcp.json", json.dumps({"mcpServers": {NASTY: {"command": NASTY, "args": [NASTY], "env": {NASTY: NASTY}}}})
    )
    place.write(
        ".lyra/tools/a.json", json.dumps({"name": NASTY, "implementation": {"type": "exec", "command": [NASTY]}})
    )
    texts = [*place.sentences(), *(ask.name for file in place.asks() for ask in file.asks)]
    assert len(place.asks()) == 4
    for text in texts:
        assert text.isprintable(), text
        assert "⟨U+001B⟩" in text or text in ("allow",), text


def test_more_than_can_be_shown_cannot_be_agreed_to(place):
    """Nothing is cut: a rule at the end of a long list, or of a long line, would not be seen."""
    rules = [f"Read(a{number})" for number in range(ASKS_MAX + 1)]
    place.write(".lyra/permissions.toml", f"allow = {json.dumps(rules)}\n")
    place.write(".lyra/permissions.local.toml", f'allow = ["Read({"x" * SENTENCE_CHARS_MAX})"]\n')
    many, long = place.asks()
    assert f"the folder asks for {ASKS_MAX + 2} things" in many.problem
    assert "too long" in long.problem
    trust = FolderTrust(TrustAnswers.for_user(place.env))
    assert [file.state(trust) for file in (many, long)] == ["new", "new"]
    (place.work / ".lyra/permissions.local.toml").unlink()
    place.write(".lyra/permissions.toml", f"allow = {json.dumps(rules[1:])}\n")
    assert place.asks()[0].problem == ""
    place.write(".mcp.json", '{"mcpServers": {"x": {"command": "true"}}}')  # one more, in another file
    assert all("more than can be shown" in file.problem for file in place.asks())
    place.write(
        ".lyra/permissions.toml", f"allow = {json.dumps(['Read(' + str(n) + 'x' * 900 + ')' for n in range(25)])}\n"
    )
    assert all("more than can be shown" in file.problem for file in place.asks())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lyra.toml", "providers = 3\n"),
        ("lyra.toml", "[[providers]]\n"),
        ("lyra.toml", "x ="),
        ("lyra.toml", "[permissions]\nallow = 3\n"),
        (".mcp.json", "[]"),
        (".mcp.json", '{"mcpServers": {"x": 3}}'),
        (".mcp.json", '{"mcpServers": {"x": {"command": "x", "args": 3}}}'),
        (".mcp.json", "{"),
        (".lyra/permissions.toml", "allow = [3]\nmode = [4]"),
        (".lyra/tools/x.json", "3"),
        (".lyra/tools/x.json", '{"tools": [3]}'),
        (".lyra/tools/x.yaml", "a: &a [*a]\n"),
    ],
)
def test_a_file_that_makes_no_sense_is_no_traceback(place, name, text):
    """It is told that it cannot be read, and no answer can be kept for it; or what it asks for is shown."""
    place.write(name, text)
    for file in place.asks():
        assert file.problem.startswith("it cannot be read") or file.asks


def test_a_server_is_not_hidden_by_a_second_word(place):
    """`disabled` counts before `enabled` when servers are read, and so in the question."""
    entries = {"on": {"disabled": False, "enabled": False}, "off": {"disabled": True, "enabled": True}}
    servers = {name: {"command": "true", **words} for name, words in entries.items()}
    place.write(".mcp.json", json.dumps({"mcpServers": servers}))
    assert [ask.server for file in place.asks() for ask in file.asks] == ["on"]
    loaded = {server.name: server.enabled for server in load_settings(place.load(), str(place.work))}
    assert loaded == {"on": True, "off": False}


def test_the_hosts_of_a_tool_are_shown(place):
    tool = {"name": "x", "needs": ["net.http:evil.example"], "implementation": {"type": "exec", "command": "curl"}}
    place.write(".lyra/tools/x.json", json.dumps(tool))
    assert place.sentences() == ["brings the tool x, which runs curl; it needs net.http:evil.example"]


@pytest.mark.parametrize("name", ["vertex", "bedrock", "azure", "gemini"])
def test_that_a_key_is_sent_is_said_of_every_provider_with_one(place, name):
    place.write("lyra.toml", f'[providers.{name}]\nbase_url = "http://localhost:9"\n')
    assert f"and sends your key for {name}" in place.sentences()[0]


def test_names_of_files_are_harmless_too(place):
    """A line end in a name makes no line of the question; a name that is no text cannot be answered for."""
    place.write(".lyra/tools/a\n  lyra.toml\x1b[2J.json", _tool("first"))
    with open(os.fsencode(place.work) + b"/.lyra/tools/\xff.json", "wb") as file:
        file.write(_tool("second").encode())
    first, second = place.asks()
    assert first.shown_name == ".lyra/tools/a⏎  lyra.toml⟨U+001B⟩[2J.json"
    assert second.shown_name.isprintable()
    assert (first.problem, second.problem) == ("", "its name is not UTF-8")


def test_an_answer_that_cannot_be_written_counts_for_the_run(place, monkeypatch):
    place.write("lyra.toml", "kernel.lease_s = 9\n")
    trust = trust_for(str(place.work), env=place.env)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lyra.config.trust.write_private", full)
    (file,) = place.asks()
    with pytest.raises(OSError, match="No space"):
        trust.keep(file.folder, {file.name: FileAnswer(file.sha256, trusted=True)})
    assert place.load(trust=trust).kernel.lease_s == 9
    assert place.load(trust=trust_for(str(place.work), env=place.env)).kernel.lease_s == 3


def test_files_that_cannot_be_opened(place):
    os.mkfifo(place.work / ".mcp.json")
    (place.work / "lyra.toml").symlink_to("nowhere")
    assert [file.problem.startswith("it cannot be read: it is ") for file in place.asks()] == [True, True]


def test_the_states_of_a_file(place):
    path = place.write("lyra.toml", "kernel.lease_s = 9\n")

    def state() -> str:
        (file,) = place.asks()
        return str(file.state(trust_for(str(place.work), env=place.env)))

    assert state() == "new"
    place.answer(trusted=False)
    assert state() == "refused"
    place.answer()
    assert state() == "trusted"
    path.write_text("kernel.lease_s = 8\n")
    assert state() == "changed"
    (file,) = place.asks()
    assert file.state(trust_for(str(place.work), given=True, env=place.env)) == "trusted"


def test_a_folder_that_is_named_by_a_link_is_the_folder_itself(place, tmp_path):
    """One answer for both names; behind a link that leads elsewhere by then there is none."""
    place.write("lyra.toml", "kernel.lease_s = 9\n")
    link = tmp_path / "link"
    link.symlink_to(place.work)
    trusting.answer(link, place.env)
    assert Config.load(place.work, place.env).kernel.lease_s == 9
    assert Config.load(link, place.env).kernel.lease_s == 9
    other = tmp_path / "other"
    other.mkdir()
    (other / "lyra.toml").write_text("kernel.lease_s = 8\n")
    link.unlink()
    link.symlink_to(other)
    assert Config.load(link, place.env).kernel.lease_s == 3


def test_a_change_between_the_question_and_the_use_is_seen(place):
    """The content that is used is the content that is judged: a trust of before does not cover it."""
    path = place.write("lyra.toml", '[permissions]\nallow = ["Read(x)"]\n')
    place.answer()
    trust = trust_for(str(place.work), env=place.env)
    assert [file.state(trust) for file in place.asks()] == ["trusted"]
    path.write_text('[permissions]\nallow = ["Bash"]\n')
    (layer,) = [layer for layer in load_layers(str(place.work), home=str(place.home), trusted=trust) if layer.file]
    assert not layer.trusted
    assert not permissions_of([layer]).rules_of("allow", "Bash")


# ---------------------------------------------------------------- rules
def test_a_project_without_trust_does_not_replace_a_tight_mode(place):
    """`deny-unasked` allows by rules what `plan` denies: the user's own mode holds."""
    own = place.home / ".config" / "lyra" / "permissions.toml"
    own.parent.mkdir(parents=True)
    place.write(".lyra/permissions.toml", 'mode = "deny-unasked"\n')

    def mode(*, trusted: bool = False) -> str:
        layers = load_layers(str(place.work), home=str(place.home), trusted=trusted)
        return str(permissions_of(layers).mode)

    own.write_text('mode = "plan"\n')
    assert mode() == "plan"
    assert mode(trusted=True) == "deny-unasked"
    own.write_text('mode = "accept-edits"\n')
    assert mode() == "deny-unasked"
    place.write(".lyra/permissions.toml", 'mode = "plan"\n')
    own.write_text('mode = "deny-unasked"\n')
    assert mode() == "deny-unasked"


def test_rules_count_by_the_content_of_their_file(place):
    place.write(".lyra/permissions.toml", 'allow = ["Bash(a *)"]\n')
    place.write(".lyra/permissions.local.toml", 'allow = ["Bash(b *)"]\n')
    place.answer()
    place.write(".lyra/permissions.local.toml", 'allow = ["Bash"]\n')
    layers = load_layers(str(place.work), home=str(place.home), trusted=None)
    assert [rule.text for rule in permissions_of(layers).rules_of("allow", "Bash")] == ["Bash(a *)"]
    (remark,) = describe_passed_over(layers)
    assert remark.endswith("permissions.local.toml: allow counts once the folder is trusted")


# ---------------------------------------------------------------- tools
def _tool(name: str) -> str:
    return json.dumps({"name": name, "description": "x", "implementation": {"type": "file_read", "path": "x"}})


def test_tools_count_by_the_content_of_their_file(place):
    """One that changes during a run is left out, also its earlier version; a new one waits for an answer."""
    pytest.importorskip("yaml")
    place.write(".lyra/tools/a.json", _tool("first"))
    place.write(".lyra/tools/b.json", _tool("second"))
    assert sources_here(Workspace(str(place.work))) == []
    place.answer()
    (source,) = sources_here(Workspace(str(place.work)))
    assert [tool.name for tool in source] == ["first", "second"]
    place.write(".lyra/tools/a.json", _tool("evil"))
    place.write(".lyra/tools/c.json", _tool("third"))
    assert [tool.name for tool in source] == ["second"]
    assert [problem.partition(": ")[0].rpartition("/")[2] for problem in source.problems] == ["a.json:1", "c.json:1"]
    assert all("it is not trusted as it is now" in problem for problem in source.problems)
    place.write(".lyra/tools/a.json", _tool("first"))
    assert [tool.name for tool in source] == ["first", "second"]
    (whole,) = sources_here(Workspace(str(place.work)), trusted=True)
    assert [tool.name for tool in whole] == ["first", "second", "third"]


def test_a_source_of_tools_accepts_contents(place):
    path = place.write("a.json", _tool("first"))
    asked: list[tuple[str, bytes]] = []

    def accept(name: str, data: bytes) -> bool:
        asked.append((name, data))
        return b"first" in data

    source = DynamicTools(path, accept=accept)
    assert (source.accepted, [tool.name for tool in source]) == (True, ["first"])
    assert asked == [(str(path), _tool("first").encode())]
    path.write_text(_tool("other"))
    assert [tool.name for tool in source] == []
    assert not source.accepted


def test_the_whole_of_a_grant_is_never_a_projects(place):
    """Trust opens no Grant: a project's grant narrows, trusted or not."""
    place.write("lyra.toml", 'grant.allow = ["fs.read"]\n')
    assert place.load(trust=True).grant == place.load().grant == Grant(allow=["fs.read"])
