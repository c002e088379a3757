"""Ten tasks in ten projects, as steps that any code agent can do with tools of its own.

The sources are the projects' own releases on PyPI, checked by their SHA-256 and kept in a cache. A step says what is
done (`Read`, `Search`, `Edit`, `Write`, `Run`, `Commit`), not with which tool: `code_agent_runs` turns it into a call
of the agent that is compared. `check` is run after the task, outside of the agent, and tells whether the work is there.
"""

from __future__ import annotations

import hashlib
import html
import os
import re
import subprocess  # noqa: TID251 - it lays out projects, as the harness
import tarfile
import urllib.request
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urljoin

__all__ = ["TASKS", "CodeTask", "Commit", "Edit", "Read", "Run", "Search", "Step", "Write", "lay_out"]

CACHE: Final = Path(os.environ.get("LYRA_TEST_SOURCES") or Path.home() / ".cache" / "lyra-tests" / "sources")
_INDEX: Final = os.environ.get("LYRA_TEST_INDEX", "https://pypi.org/simple")


class Read(NamedTuple):
    """`first` and `lines` are a part of a long file, which no agent reads whole."""

    path: str
    first: int = 1
    lines: int = 800


class Search(NamedTuple):
    pattern: str
    path: str = "."


class Edit(NamedTuple):
    path: str
    old: str
    new: str


class Write(NamedTuple):
    path: str
    content: str


class Run(NamedTuple):
    command: str


class Commit(NamedTuple):
    message: str


Step = Read | Search | Edit | Write | Run | Commit


class CodeTask(NamedTuple):
    """`setup` is run in the project before the agent begins; `turns` are the steps of each turn of the model."""

    name: str
    source: str  # name-version, as the release is called
    sha256: str
    prompt: str
    turns: tuple[tuple[Step, ...], ...]
    check: str
    setup: str = ""


_GIT: Final = (
    "git init -q . && git config user.email a@b.example && git config user.name A && git add -A && git commit -qm first"
)
_LONG_TEST: Final = "import unittest\n\nimport inflection\n\n\nclass TestMany(unittest.TestCase):\n" + "".join(
    f"    def test_ordinal_{number}(self):\n        self.assertEqual(inflection.ordinalize({number}), "
    f"{str(number)!r} + inflection.ordinal({number}))\n\n"
    for number in range(120)
)

TASKS: Final = (
    CodeTask(
        "add a function",
        "xmltodict-0.13.0",
        "341595a488e3e01a85a9d8911d8912fd922ede5fecc4dce437eb4b6c8d037e56",
        "Add parse_file(path, **kwargs) to xmltodict and run the tests.",
        (
            (Search(r"^def parse"),),
            (Read("xmltodict.py"),),
            (
                Edit(
                    "xmltodict.py",
                    "def unparse(input_dict,",
                    'def parse_file(path, **kwargs):\n    """Parse the file at a path."""\n'
                    '    with open(path, "rb") as file:\n        return parse(file, **kwargs)\n\n\n'
                    "def unparse(input_dict,",
                ),
            ),
            (Run("cd tests && PYTHONPATH=.. python3 -m unittest -q test_xmltodict test_dicttoxml"),),
        ),
        "printf '<a>1</a>' > /tmp/lyra-compared.xml && python3 -c \"import xmltodict; "
        "assert xmltodict.parse_file('/tmp/lyra-compared.xml') == {'a': '1'}\"",
    ),
    CodeTask(
        "find and mend a bug",
        "itsdangerous-2.2.0",
        "e0050c0b7da1eea53ffaf149c0cfbb5c6e2e2b69c4bef22c81fa6eb73e5f6173",
        "base64_decode fails for some texts. Find out why and mend it.",
        (
            (Run("PYTHONPATH=src python3 -c \"from itsdangerous import base64_decode as d; print(d('YQ'))\""),),
            (Search("def base64_decode", "src"),),
            (Read("src/itsdangerous/encoding.py"),),
            (Edit("src/itsdangerous/encoding.py", "-len(string) % 3", "-len(string) % 4"),),
            (Run("PYTHONPATH=src python3 -c \"from itsdangerous import base64_decode as d; print(d('YQ'))\""),),
        ),
        "PYTHONPATH=src python3 -c \"from itsdangerous import base64_decode as d; assert d('YQ') == b'a'\"",
        setup="sed -i 's/-len(string) % 4/-len(string) % 3/' src/itsdangerous/encoding.py",
    ),
    CodeTask(
        "change a message and its test",
        "more-itertools-10.5.0",
        "5482bfef7849c25dc3c6dd53a6173ae4795da2a41a80faea6700d9f5846c5da6",
        "Let chunked(strict=True) say how long the last chunk is; change the test, too.",
        (
            (Search("not divisible by n"),),
            (Read("more_itertools/more.py", 160, 60), Read("tests/test_more.py", 40, 80)),
            (
                Edit(
                    "more_itertools/more.py",
                    "raise ValueError('iterable is not divisible by n.')",
                    "raise ValueError(f'iterable is not divisible by n: {len(chunk)}')",
                ),
                Edit("tests/test_more.py", '"iterable is not divisible by n", f', '"not divisible by n: 2", f'),
            ),
            (Run("python3 -m unittest -q tests.test_more.ChunkedTests"),),
        ),
        "python3 -m unittest -q tests.test_more.ChunkedTests && grep -q 'by n: {len' more_itertools/more.py",
    ),
    CodeTask(
        "extend a module and its exports",
        "toolz-0.12.1",
        "ecca342664893f177a13dac0e6b41cbd8ac25a358e5f215316d43e2100224f4d",
        "Add renamekeys(names, d) to dicttoolz, exported, with a doctest.",
        (
            (Read("toolz/dicttoolz.py"),),
            (Edit("toolz/dicttoolz.py", "'update_in', 'get_in')", "'update_in', 'get_in', 'renamekeys')"),),
            (
                Edit(
                    "toolz/dicttoolz.py",
                    "def itemmap(",
                    'def renamekeys(names, d, factory=dict):\n    """ Rename keys of dictionary\n\n'
                    "    >>> renamekeys({'a': 'b'}, {'a': 1})\n    {'b': 1}\n    \"\"\"\n"
                    "    return keymap(lambda key: names.get(key, key), d, factory)\n\n\ndef itemmap(",
                ),
            ),
            (Run("python3 -m doctest toolz/dicttoolz.py"),),
        ),
        "python3 -c \"from toolz.dicttoolz import renamekeys as r; assert r({'a': 'b'}, {'a': 1}) == {'b': 1}\"",
    ),
    CodeTask(
        "rename a function in all its places",
        "tabulate-0.9.0",
        "0095b12bf5966de529c0feb1fa08671671b3368eec77d7ef7ab114be2c068b3c",
        "Rename _isbool to _is_bool everywhere.",
        (
            (Search("_isbool"),),
            (Read("tabulate/__init__.py", 780, 160),),
            (Run("sed -i 's/_isbool/_is_bool/g' tabulate/__init__.py"),),
            (Run("grep -rc _isbool tabulate test || true"),),
            (Run("python3 -m doctest tabulate/__init__.py | tail -3; git -c core.pager=cat diff --stat"),),
        ),
        "! grep -rq _isbool tabulate && grep -q _is_bool tabulate/__init__.py",
        setup=_GIT,
    ),
    CodeTask(
        "write a long file",
        "inflection-0.5.1",
        "1a29730d366e996aaacffb2f1f1cb9593dc38e2ddd30c91250c6dde09ea9b417",
        "Write tests for ordinalize of every number below 120.",
        (
            (Read("inflection/__init__.py"),),
            (Write("test_many.py", _LONG_TEST),),
            (Run("python3 -m unittest -q test_many"),),
        ),
        "python3 -m unittest -q test_many && test $(wc -l < test_many.py) -gt 300",
    ),
    CodeTask(
        "answer a question",
        "pyflakes-3.2.0",
        "1c61603ff154621fb2a9172037d84dca3500def8c8b630657d1701f026f8af3f",
        "Where is it decided that an import is unused? Change nothing.",
        (
            (Search("class UnusedImport"), Search("UnusedImport", "pyflakes/checker.py")),
            (Read("pyflakes/messages.py"), Read("pyflakes/checker.py", 1, 300)),
            (Run("git log --oneline | head -3; git status --short"),),
        ),
        'test -z "$(git status --short)"',
        setup=_GIT,
    ),
    CodeTask(
        "look at the state, change, commit",
        "colorama-0.4.6",
        "08695f5cb7ed6e0531a20572697297273c47b8cae5a63ffc6d6ed5c201be6e44",
        "Add show_cursor() and hide_cursor() to ansi.py and commit it.",
        (
            (Run("git status --short; git log --oneline | head -3"),),
            (Read("colorama/ansi.py"),),
            (
                Edit(
                    "colorama/ansi.py",
                    "def clear_screen(mode=2):",
                    "def show_cursor():\n    return CSI + '?25h'\n\ndef hide_cursor():\n    return CSI + '?25l'\n\n"
                    "def clear_screen(mode=2):",
                ),
            ),
            (Run("python3 -m unittest -q colorama.tests.ansi_test"),),
            (Commit("Add show_cursor and hide_cursor"),),
        ),
        "git log -1 --format=%s | grep -q 'Add show_cursor' && test -z \"$(git status --short -uno)\"",
        setup=_GIT,
    ),
    CodeTask(
        "several commands in a row",
        "humanize-4.11.0",
        "e66f36020a2d5a974c504bd2555cf770621dbdbb6d82f94a6857c0b1ea2608be",
        "How large is this project? Count files and lines, and write it into SIZE.md.",
        (
            (Run("find src tests -name '*.py' | wc -l"), Run("cat src/humanize/*.py | wc -l")),
            (Run("git ls-files | head -5; ls -la"),),
            (Run("python3 -c \"import ast, pathlib; print(len(list(pathlib.Path('src').rglob('*.py'))))\""),),
            (Write("SIZE.md", "# Size\n\nAbout a dozen files.\n"),),
            (Run("cat SIZE.md"),),
        ),
        "grep -q '# Size' SIZE.md",
        setup=_GIT,
    ),
    CodeTask(
        "a command that fails, and one that takes its time",
        "parse-1.20.2",
        "b41d604d16503c79d81af5165155c0b20f6c8d6c559efa66b4b695c3e5a0a0ce",
        "Let int_convert show its base, and try it.",
        (
            (Run('python3 -c "import parse; print(parse.int_convert(8))"; exit 3'),),
            (Search("class int_convert", "parse.py"), Read("parse.py")),
            (
                Edit(
                    "parse.py",
                    "    def __init__(self, base=None):\n        self.base = base\n",
                    "    def __init__(self, base=None):\n        self.base = base\n\n"
                    '    def __repr__(self):\n        return f"int_convert({self.base})"\n',
                ),
            ),
            (Run('sleep 2; python3 -c "import parse; print(parse.int_convert(8))"'),),
        ),
        "python3 -c \"import parse; assert repr(parse.int_convert(8)) == 'int_convert(8)'\"",
    ),
)


# ---------------------------------------------------------------- sources
def lay_out(task: CodeTask, folder: Path) -> Path:
    """Return the project's folder with its sources, as they are before the task."""
    archive = _fetch(task)
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    project = folder / task.source
    if task.setup:
        subprocess.run(["/bin/sh", "-c", task.setup], cwd=project, check=True, capture_output=True)  # noqa: S603
    return project


def _fetch(task: CodeTask) -> Path:
    path = CACHE / f"{task.source}.tar.gz"
    if not path.exists():
        name = task.source.rpartition("-")[0]
        page_url = f"{_INDEX}/{name}/"
        with urllib.request.urlopen(page_url, timeout=60) as answer:  # noqa: S310 - the index of PyPI
            page = answer.read().decode()
        links = (html.unescape(link) for link in re.findall(r'href="([^"]+)"', page))
        url = next(link for link in links if link.partition("#")[0].endswith(f"/{path.name}"))
        with urllib.request.urlopen(urljoin(page_url, url.partition("#")[0]), timeout=60) as answer:  # noqa: S310
            data = answer.read()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    if hashlib.sha256(path.read_bytes()).hexdigest() != task.sha256:
        path.unlink()
        raise RuntimeError(f"{path.name} is not the release that the tasks were written for")
    return path
