"""Diffs have line numbers, signs, and stronger words where a line changed in part."""

from __future__ import annotations

from lyra.sage.terminal.text.diff_view import count_changes, diff_lines, diff_of
from lyra.sage.terminal.text.styled_lines import MARKS, strip_style

BEFORE = "import os\n\n@click.command()\ndef export(path):\n    pass\n"
AFTER = "import os\n\n@click.command()\n@json_option\ndef export(path, as_json):\n    pass\n"


def test_a_diff_reads_as_numbered_lines_with_signs() -> None:
    """Removed lines have the old number, added and unchanged ones the new."""
    lines = diff_lines(diff_of(BEFORE, AFTER), 80, marks=MARKS, indent=2)
    assert [strip_style(line).rstrip() for line in lines] == [
        "  1   import os",
        "  2",
        "  3   @click.command()",
        "  4 − def export(path):",
        "  4 + @json_option",
        "  5 + def export(path, as_json):",
        "  6       pass",
    ]
    assert count_changes(diff_of(BEFORE, AFTER)) == (2, 1)


def test_changed_words_are_stronger_than_their_line() -> None:
    """Of two lines that are alike only the words that differ are marked."""
    lines = diff_lines(diff_of("a = export(path)\n", "a = export(path, 1)\n"), 80, marks=MARKS)
    assert [text for line in lines for style, text in line if style == "added-word"] == [", 1"]
    assert not [text for line in lines for style, text in line if style == "removed-word"]


def test_lines_that_share_little_are_not_compared_word_by_word() -> None:
    """Marks in every second word would say nothing."""
    lines = diff_lines(diff_of("one two three four\n", "(): {}; !\n"), 80, marks=MARKS)
    assert not [style for line in lines for style, _ in line if style.endswith("-word")]


def test_invisible_characters_of_a_diff_are_seen() -> None:
    """A direction mark in an edit is shown before the edit is allowed."""
    lines = diff_lines(diff_of("a\n", "a\u202eb\x1b[0m\n"), 80, marks=MARKS)
    assert "a⟨U+202E⟩b⟨U+001B⟩[0m" in strip_style(lines[-1])


def test_distant_hunks_are_set_apart() -> None:
    """Between two hunks a mark says that lines were left out."""
    before = "".join(f"{number}\n" for number in range(40))
    after = before.replace("3\n", "x\n", 1).replace("35\n", "y\n")
    texts = [strip_style(line).strip() for line in diff_lines(diff_of(before, after), 80, marks=MARKS)]
    assert "…" in texts


def test_a_new_file_is_all_added_and_long_lines_are_wrapped() -> None:
    """Nothing of an edit is cut off."""
    lines = diff_lines(diff_of("", "x" * 100 + "\n"), 40, marks=MARKS, indent=2)
    assert sum(strip_style(line).count("x") for line in lines) == 100
    assert max(len(strip_style(line)) for line in lines) <= 40


FILES = """diff --git a/a.sql b/a.sql
index 1..2 100644
--- a/a.sql
+++ b/a.sql
@@ -1,3 +1,2 @@
 one
--- a comment
-++ b
+two
--- /dev/null
+++ b/new one.txt\t
@@ -0,0 +1 @@
+text
\\ No newline at end of file
--- a/old.txt
+++ /dev/null
@@ -1 +0,0 @@
-gone
pic.png: binary files differ
"""


def show(diff: str, **more: bool) -> list[str]:
    return [strip_style(line).rstrip() for line in diff_lines(diff, 80, marks=MARKS, indent=2, **more)]


def test_each_of_several_files_has_its_name() -> None:
    """A removed line that looks like the head of a file is one of the hunk; what is said of a file is a line."""
    lines = ["  a.sql", "  1   one", "  2 − -- a comment", "  3 − ++ b", "  2 + two", "", "  new one.txt (new)"]
    lines += ["  1 + text", "", "  old.txt (deleted)", "  1 − gone", "", "  pic.png: binary files differ"]
    assert show(FILES) == show(FILES, names=True) == lines
    assert count_changes(FILES) == (2, 3)


def test_a_single_file_has_its_name_where_it_is_wanted() -> None:
    """A tool's line has said it already, and `/diff` has not."""
    diff = diff_of("a\n", "b\n", "x.py")
    assert show(diff) == ["  1 − a", "  1 + b"]
    assert show(diff, names=True) == ["  x.py", "  1 − a", "  1 + b"]


def test_carriage_returns_are_shown_where_they_differ() -> None:
    """Line ends that every line has are no change; a line that loses its own shows it."""
    assert show("--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n one\r\n-two\r\n+2\r\n") == ["  1   one", "  2 − two", "  2 + 2"]
    assert show("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-one⟨U+000D⟩\n+one\n") == ["  1 − one⟨U+000D⟩", "  1 + one"]
