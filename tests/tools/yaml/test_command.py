"""YAML tools that run a program: in the sandbox, one place one argument, and no shell anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lyra.core.rights.capability import Grant
from lyra.tools.registry import ToolRegistry
from tests.tools.yaml.support import call, called, environment, mistakes_of, tool_of

SHOW = "import sys; print(*sys.argv[1:], sep='|')"


def tool_text(command: str, params: str = "[{name: word, type: string}]", more: str = "") -> str:
    return f"""
        name: act
        description: Act.
        params: {params}
        implementation: {{type: exec, command: {command}{more}}}
    """


def show(words: str, **options: Any) -> str:
    """A tool that prints its arguments, between bars."""
    return tool_text(f'[python3, -c, "{SHOW}", {words}]', **options)


@pytest.mark.parametrize(
    "value",
    [
        "; rm -rf *",
        "$(touch made)",
        "`touch made`",
        "a b  c",
        "a' \"b",
        "&& touch made",
        "| touch made",
        "> made",
        "a\nb",
        "*",
        "~",
        "$HOME",
        "{{word}}",
        "{{.other}}",
        "",
    ],
)
def test_one_place_is_one_argument(tmp_path: Path, value: str):
    """Whatever is in the value."""
    (tmp_path / "kept").write_text("x")
    result = called(tool_of(show("first, '{{word}}', last"), environment(tmp_path)), word=value)
    assert (result.output, result.is_error) == (f"first|{value}|last\n", False)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.mark.parametrize("value", ["-rf", "--option", "-", "-1", "--output=/etc/x"])
def test_a_value_is_no_option(tmp_path: Path, value: str):
    """Unless the word has a beginning of its own, or stands after `--`."""
    result = called(tool_of(show("'{{word}}'"), environment(tmp_path)), word=value)
    assert result.error_code == "invalid_arguments"
    assert "option" in result.output
    assert called(tool_of(show("'--title={{word}}'"), environment(tmp_path)), word=value).output == f"--title={value}\n"
    assert called(tool_of(show("--, '{{word}}'"), environment(tmp_path)), word=value).output == f"--|{value}\n"


def test_a_value_that_says_the_dashes_opens_nothing(tmp_path: Path):
    """`--` counts where the file says it."""
    params = "[{name: a, type: string}, {name: b, type: string}]"
    text = tool_text(f"[python3, -c, \"{SHOW}\", 'x{{{{a}}}}', '{{{{b}}}}']", params)
    assert called(tool_of(text, environment(tmp_path)), a="--", b="-rf").error_code == "invalid_arguments"
    assert called(tool_of(show("'{{word}}'"), environment(tmp_path)), word="--").error_code == "invalid_arguments"


def test_a_missing_value_leaves_its_word_out_and_numbers_are_words(tmp_path: Path):
    params = "[{name: n, type: integer, required: false}, {name: ok, type: boolean, default: true}]"
    text = tool_text(f"[python3, -c, \"{SHOW}\", '--n={{{{n}}}}', '{{{{ok}}}}']", params)
    assert called(tool_of(text, environment(tmp_path))).output == "true\n"
    assert called(tool_of(text, environment(tmp_path)), n=3, ok=False).output == "--n=3|false\n"


def test_a_command_written_as_text_is_split_when_it_is_read(tmp_path: Path):
    """As the older form of these files has it: quotes count in the file, and nothing in a value does."""
    text = tool_text(f'"python3 -c \\"{SHOW}\\" \'a b\' {{{{ .word }}}}"')
    assert called(tool_of(text, environment(tmp_path)), word="c d; e").output == "a b|c d; e\n"


def test_a_program_that_fails_is_an_error_with_its_words(tmp_path: Path):
    result = called(
        tool_of(tool_text("[python3, -c, \"import sys; sys.exit('broken')\"]", "[]"), environment(tmp_path))
    )
    assert (result.error_code, result.output) == ("exec_failed", "exit code 1\nbroken")
    missing = called(tool_of(tool_text("[no-such-program-here]", "[]"), environment(tmp_path)))
    assert missing.error_code == "exec_failed"


def test_a_program_that_takes_too_long_is_killed(tmp_path: Path):
    text = tool_text('[python3, -c, "import time; time.sleep(60)"]', "[]", ", timeout: 300ms")
    assert called(tool_of(text, environment(tmp_path))).error_code == "timeout"


def test_stdin_is_one_value(tmp_path: Path):
    text = tool_text('[python3, -c, "import sys; print(sys.stdin.read()[::-1])"]', more=", stdin: '{{word}}'")
    assert called(tool_of(text, environment(tmp_path)), word="-abc").output == "cba-\n"
    assert "one value" in str(mistakes_of(text.replace("'{{word}}'", "'select {{word}}'"), tmp_path)[0])


# ---------------------------------------------------------------- the sandbox

WRITE = "[python3, -c, \"open('made', 'w').write('x')\"]"
CONNECT = "[python3, -c, \"import socket; socket.create_connection(('1.1.1.1', 80), 2)\"]"


def test_the_workspace_is_written_only_where_the_file_says_so(tmp_path: Path):
    assert called(tool_of(tool_text(WRITE, "[]"), environment(tmp_path))).error_code == "exec_failed"
    assert not (tmp_path / "made").exists()
    assert not called(tool_of(tool_text(WRITE, "[]", ", writes: true"), environment(tmp_path))).is_error
    assert (tmp_path / "made").read_text() == "x"


def test_there_is_no_network_and_nothing_of_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_TOKEN", "correct-horse-battery")
    assert called(tool_of(tool_text(CONNECT, "[]"), environment(tmp_path))).error_code == "exec_failed"
    listed = called(tool_of(tool_text('[python3, -c, "import os; print(os.environ)"]', "[]"), environment(tmp_path)))
    assert "horse" not in listed.output
    outside = tmp_path / "outside"
    inside = tmp_path / "inside"
    inside.mkdir()
    outside.write_text("secret")
    reading = tool_text(f"[python3, -c, \"print(open('{outside}').read())\"]", "[]")
    assert "secret" not in called(tool_of(reading, environment(inside))).output


@pytest.mark.anyio
async def test_the_callers_rights_hold(tmp_path: Path):
    """The command must be in the Grant, and so must writing."""
    tool = tool_of(tool_text(WRITE, "[]", ", writes: true"), environment(tmp_path))
    registry = ToolRegistry([tool])
    root = environment(tmp_path).workspace.root
    denied = await registry.call("act", grant=Grant(["process.exec:git *", f"fs.read:{root}/**"]))
    assert denied.error_code == "permission_denied"
    reads_only = await registry.call("act", grant=Grant(["process.exec", f"fs.read:{root}/**"]))
    assert reads_only.error_code == "exec_failed"
    assert not (tmp_path / "made").exists()
    both = Grant(["process.exec", f"fs.read:{root}/**", f"fs.write:{root}/**"])
    assert not (await registry.call("act", grant=both)).is_error


@pytest.mark.anyio
async def test_declared_commands_are_kept_to(tmp_path: Path):
    text = show("'{{word}}'").rstrip() + "\n        needs: ['process.exec:git *']\n"
    assert (await call(tool_of(text, environment(tmp_path)), word="x")).error_code == "permission_denied"
    plain = tool_text("[ls, -l]", "[]").rstrip() + "\n        needs: ['process.exec:git *']\n"
    assert "do not cover process.exec:ls -l" in mistakes_of(plain, tmp_path)[0].message
    assert not mistakes_of(plain.replace("git *", "ls *"), tmp_path)
    assert (
        "uses process.exec and net.http"
        in mistakes_of(plain.replace("process.exec:git *", "fs.write"), tmp_path)[0].message
    )


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("['{{word}}', x]", "written out"),
        ("[sh, -c, 'grep {{word}} file']", "middle of a text"),
        ("[sh, -c, '{{word}}']", "script of sh"),
        ("[/bin/bash, -lc, '{{word}}']", "script of bash"),
        ("[bash, -c, -e, '{{word}}']", "script of bash"),
        ("[bash, -o, errexit, '{{word}}']", "script of bash"),
        ("[bash, '{{word}}']", "script of bash"),
        ("[bash, -s, '{{word}}']", "script of bash"),
        ("[env, X=1, '{{word}}']", "runs what its arguments name"),
        ("[xargs, '{{word}}']", "runs what its arguments name"),
        ("[sudo, ls, '{{word}}']", "runs what its arguments name"),
        ("[sqlite3, a.db, \"select * from t where x = '{{word}}'\"]", "middle of a text"),
        ("[awk, '{print ${{word}}}', f]", "middle of a text"),
        ("[jq, '.a[{{word}}]', f]", "middle of a text"),
        ("[python3, -c, 'print(\"{{word}}\")']", "middle of a text"),
        ("'sh -c \"echo {{word}}\"'", "middle of a text"),
        ('"echo \'unclosed"', "split into words"),
        ("[]", "list of 1 to"),
        ("{a: 1}", "list of 1 to"),
        ("[ls, [a]]", "is a text"),
    ],
)
def test_a_command_that_a_value_could_bend_is_a_mistake(tmp_path: Path, command: str, message: str):
    mistakes = mistakes_of(tool_text(command), tmp_path)
    assert any(message in mistake.message for mistake in mistakes)
    assert {mistake.line for mistake in mistakes} == {5}


@pytest.mark.parametrize(
    "command",
    [
        "[sed, -n, '{{word}}', f]",
        "[sed, -e, '{{word}}', f]",
        "[sed, '--expression={{word}}', f]",
        "[sed, -f, '{{word}}', f]",
        "[sed, -e, '{{word}}', --sandbox, f]",
        "[sed, -n, --, '{{word}}', f]",
        "[sed, '1,{{word}}', f]",
        "[/usr/bin/sed, '{{word}}p', f]",
        "[awk, '{{word}}', f]",
        "[gawk, -F, ':', '{{word}}', f]",
        "[awk, -f, '{{word}}', f]",
        "[sqlite3, db, '{{word}}']",
        "[sqlite3, -readonly, db, '{{word}}']",
        "[sqlite3, -cmd, '{{word}}', db]",
        "[git, -c, 'alias.q={{word}}', q]",
        "[git, -c, 'core.pager={{word}}', log]",
        "[git, grep, '--open-files-in-pager={{word}}', x]",
        "[tar, -cf, /dev/null, '--checkpoint-action={{word}}', f]",
        "[tar, -I, '{{word}}', -cf, x, f]",
        "[tar, '{{word}}', x, f]",
        "[rsync, -e, '{{word}}', a, b]",
        "[python3, -c, '{{word}}']",
        "[python3.11, -Ic, '{{word}}']",
        "[python3, -m, '{{word}}']",
        "[python3, '{{word}}']",
        "[python3, -m, timeit, '{{word}}']",
        "[perl, -e, '{{word}}']",
        "[perl, -ne, '{{word}}', f]",
        "[perl, '{{word}}']",
        "[perl, -MJSON, '{{word}}']",
        "[node, -e, '{{word}}']",
        "[node, '--eval={{word}}']",
        "[node, -r, './{{word}}', a.js]",
        "[ruby, -e, '{{word}}']",
        "[php, -r, '{{word}}']",
        "[lua, '{{word}}']",
        "[psql, -c, '{{word}}']",
        "[find, ., -exec, '{{word}}', ';']",
        "[make, '--eval={{word}}']",
        "[vim, -c, '{{word}}', f]",
        "[docker, exec, c, sh, -c, '{{word}}']",
        "[flock, lock, '{{word}}']",
        "[poetry, run, python, -c, '{{word}}']",
        "[poetry, run, '{{word}}']",
        "[uv, run, python, '{{word}}']",
        "[npm, exec, '{{word}}']",
    ],
)
def test_a_value_is_no_code(tmp_path: Path, command: str):
    """Neither a script of a program with a language of its own, nor what one of its options runs."""
    assert mistakes_of(tool_text(command), tmp_path)


@pytest.mark.parametrize(
    "command",
    ["[bash]", "[sh, -s]", "[python3]", "[python3, '-']", "[perl]", "[node]", "[sqlite3, db]", "[xargs, rm]", "[gdb]"],
)
def test_the_input_is_no_code_either(tmp_path: Path, command: str):
    assert mistakes_of(tool_text(command, more=", stdin: '{{word}}'"), tmp_path)


@pytest.mark.parametrize(
    "command",
    [
        "[sed, -n, 1p, '{{word}}']",
        "[sed, --sandbox, -n, '{{word}}', f]",
        "[awk, '{print $1}', '{{word}}']",
        "[sqlite3, '{{word}}', 'select 1']",
        "[sqlite3, -safe, -readonly, db, '{{word}}']",
        "[git, log, '{{word}}']",
        "[git, log, '--grep={{word}}']",
        "[git, commit, -m, '{{word}}']",
        "[git, clone, '{{word}}']",
        "[git, show, 'HEAD:{{word}}']",
        "[tar, -czf, x.tgz, '{{word}}']",
        "[python3, tool.py, '{{word}}']",
        "[python3, -c, 'import sys; print(sys.argv)', '{{word}}']",
        "[python3, -m, pytest, '{{word}}']",
        "[perl, -ne, 'print if /x/', '{{word}}']",
        "[node, a.js, '{{word}}']",
        "[make, '{{word}}']",
        "[make, -C, '{{word}}']",
        "[convert, '{{word}}', out.png]",
        "[grep, -rn, -e, '{{word}}', .]",
        "[rg, '{{word}}']",
        "[jq, '{{word}}', f.json]",
        "[find, ., -name, '{{word}}']",
        "[poetry, run, pytest, '{{word}}']",
        "[uv, run, pytest, '{{word}}']",
        "[npm, run, build, --, '{{word}}']",
        "[cargo, test, '{{word}}']",
        "[go, test, '{{word}}']",
        "[curl, -s, 'https://x.org/{{word}}']",
        "[docker, logs, '{{word}}']",
    ],
)
def test_what_is_data_may_be_a_value(tmp_path: Path, command: str):
    assert not mistakes_of(tool_text(command), tmp_path)


@pytest.mark.parametrize("type_of", ["type: integer", "type: boolean", "type: string, enum: [1p, 2p]"])
def test_what_is_no_free_text_may_be_part_of_a_script(tmp_path: Path, type_of: str):
    assert not mistakes_of(tool_text("[sed, -n, '{{word}}p', f]", f"[{{name: word, {type_of}}}]"), tmp_path)


@pytest.mark.parametrize("command", ["[python3, tool.py]", "[cat]", "[sh, -c, 'wc -l']", "[sed, -n, 1p]", "[jq, .a]"])
def test_data_may_be_the_input(tmp_path: Path, command: str):
    assert not mistakes_of(tool_text(command, more=", stdin: '{{word}}'"), tmp_path)


@pytest.mark.parametrize(
    ("command", "value"),
    [
        ("[make, '{{word}}']", "SHELL=./evil"),
        ("[make, '{{word}}']", "X=$(shell touch made)"),
        ("[convert, '{{word}}', out.png]", "|touch made"),
        ("[perl, -ne, 'print', '{{word}}']", "touch made|"),
        ("[git, clone, '{{word}}']", "ext::touch made"),
    ],
)
def test_a_value_that_becomes_an_order_is_refused(tmp_path: Path, command: str, value: str):
    """Where it is data but for its form."""
    result = called(tool_of(tool_text(command, more=", writes: true"), environment(tmp_path)), word=value)
    assert (result.error_code, "interpret the value as a command" in result.output) == ("invalid_arguments", True)
    assert not (tmp_path / "made").exists()


def test_a_script_of_the_file_may_have_arguments(tmp_path: Path):
    text = tool_text("[sh, -c, 'printf %s \"$1\"', sh, '{{word}}']")
    assert called(tool_of(text, environment(tmp_path)), word="$(id); x").output == "$(id); x"


def test_lists_are_no_arguments(tmp_path: Path):
    text = tool_text("[ls, '{{word}}']", "[{name: word, type: array}]")
    assert "one placeholder is one argument" in mistakes_of(text, tmp_path)[0].message
