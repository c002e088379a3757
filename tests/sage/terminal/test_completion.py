"""`@` completes files of the workspace, `/` completes commands."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from lyra.core.clock import SystemClock
from lyra.sage.terminal.completion import CommandName, FileIndex, FileNames, PromptCompleter
from lyra.testing import SimClock


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("ignored.py\n")
    for name in ("src/cli/export.py", "src/cli/imports.py", "ignored.py", "two words.py", "bad\x1b[31m.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    return tmp_path


async def completions(folder: Path, text: str) -> list[str]:
    commands = [CommandName("cost", "what was spent"), CommandName("context"), CommandName("help")]
    completer = PromptCompleter(FileNames(str(folder), SystemClock()), lambda: commands)
    return [item.text async for item in completer.get_completions_async(Document(text), CompleteEvent())]


async def test_files_are_completed_by_any_part_of_their_name(folder: Path) -> None:
    """The start of the path, the start of the file name, letters in order; ignored files are left out."""
    assert await completions(folder, "see @src/cli/e") == ["@src/cli/export.py"]
    assert (await completions(folder, "@export"))[0] == "@src/cli/export.py"
    assert "@src/cli/export.py" in await completions(folder, "@scexp")
    assert await completions(folder, "@ignored") == []
    assert await completions(folder, "@two") == ['@"two words.py"']
    assert await completions(folder, "mail@src") == []


async def test_names_that_could_act_on_the_terminal_are_left_out(folder: Path) -> None:
    assert not [text for text in await completions(folder, "@") if "bad" in text]


async def test_without_ripgrep_the_folder_is_walked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _name: None)
    assert await completions(folder, "@imports") == ["@src/cli/imports.py"]


async def test_commands_are_completed_at_the_start_only(folder: Path) -> None:
    assert await completions(folder, "/co") == ["/cost", "/context"]
    assert await completions(folder, "a /co") == []


def test_names_are_found_by_their_letters_best_first() -> None:
    """The start of the path, the start of the last part, a part, then letters in order where they stand closest."""
    names = FileIndex(["sage/tool.py", "lib/sage.py", "a/message.py", "s/a/g/e.py", "store/agent.py"])
    assert names.matching("sage", 50) == [
        *("sage/", "sage/tool.py", "lib/sage.py", "a/message.py", "s/a/g/e.py", "store/agent.py"),
    ]
    assert names.matching("SAGETO", 50) == ["sage/tool.py"]
    assert names.matching("sagex", 50) == []


@pytest.mark.timed
def test_a_name_among_30_000_is_found_within_30_ms() -> None:
    """CPU time of one search, the best of three, for prefixes, parts, letters in order and what is not there."""
    words = ["core", "kernel", "store", "sage", "terminal", "agents", "models", "tools", "vega", "server", "http"]
    names = FileIndex(
        f"{words[number % 11]}/{words[number // 11 % 11]}/{words[number // 121 % 11]}_{number}.py"
        for number in range(30_000)
    )
    for typed in ("", "s", "store/", "mod_29", "kerste12", "zzz", "storeagentsx"):
        seconds = []
        for _ in range(3):
            began = time.process_time()
            names.matching(typed, 50)
            seconds.append(time.process_time() - began)
        assert min(seconds) <= 0.030, (typed, seconds)


async def test_an_old_list_is_used_while_a_new_one_is_made(folder: Path) -> None:
    """The prompt does not wait for a folder to be read again."""
    clock = SimClock()
    files = FileNames(str(folder), clock)
    assert await files.matching("export") == ["src/cli/export.py"]
    (folder / "export2.py").write_text("")
    clock.advance(60)
    assert await files.matching("export2") == []
    reading = files.refresh()
    assert reading is not None
    await reading
    assert await files.matching("export2") == ["export2.py"]
    await files.close()
