"""The definitions that other files use most come first, and those that a question or a change is about."""

from __future__ import annotations

from lyra.sage.project.repo_map.outline import outline_of
from lyra.sage.project.repo_map.worker import CachedOutline, rank

DAY_NS = 24 * 3600 * 10**9


def outlines(changed: str = "", **files: str) -> dict[str, CachedOutline]:
    """Outlines of files; one of them was changed long after the others."""
    rows = {}
    for name, text in files.items():
        path = name.replace("__", "/")
        time = 10 * DAY_NS if path == changed else DAY_NS
        rows[path] = CachedOutline.from_outline(time, len(text), outline_of(path, text.encode()))
    return rows


def names(files, **options) -> list[str]:
    return [symbol.name for file in rank(files, **options) for symbol in file.symbols]


USED = {
    "core.py": "def often_used(): pass\ndef seldom_used(): pass\ndef never_used(): pass\n",
    "a.py": "from core import often_used, seldom_used\noften_used()\n",
    "b.py": "from core import often_used\n",
    "c.py": "import core\ncore.often_used()\n",
}


def test_what_other_files_mention_comes_first():
    assert names(outlines(**USED), most=2) == ["often_used", "seldom_used"]
    assert names(outlines(**USED), most=1) == ["often_used"]


def test_a_mention_in_a_comment_or_text_does_not_count():
    files = {"core.py": "def alpha_one(): pass\ndef beta_two(): pass\n"}
    files |= {f"{name}.py": "import core\n# alpha_one\nx = 'alpha_one'\n" for name in "abc"}
    files["d.py"] = "from core import beta_two\n"
    assert names(outlines(**files), most=1) == ["beta_two"]


def test_a_name_counts_for_the_module_that_is_imported():
    """`read_text` of a path is no mention of another module's function of that name."""
    files = {"own.py": "def read_text(): pass\n", "other.py": "def used_here(): pass\n"}
    files |= {f"{name}.py": "from pathlib import Path\nPath('x').read_text()\n" for name in "abcde"}
    files["f.py"] = "from other import used_here\n"
    assert names(outlines(**files), most=1) == ["used_here"]


def test_a_name_that_many_files_define_says_little():
    files = {f"m{number}.py": "def run_main(): pass\n" for number in range(9)}
    files |= {"core.py": "def special_thing(): pass\n", "a.py": "from core import special_thing\n"}
    files |= {f"u{number}.py": "import m1\nm1.run_main()\n" for number in range(3)}
    assert names(outlines(**files), most=1) == ["special_thing"]


def test_a_member_is_shown_with_its_class_and_counts_no_more():
    files = {"core.py": "class Little:\n    def where(self): pass\n    def _own(self): pass\n"}
    files |= {f"{name}.py": "import core\nx.where()\n" for name in "abcdefgh"}
    files |= {"big.py": "def main_thing(): pass\n", "z.py": "from big import main_thing\n"}
    assert names(outlines(**files), most=1) == ["main_thing"]
    ranked = rank(outlines(**files), query="where in core.py", most=1)
    assert [(symbol.name, symbol.depth) for symbol in ranked[0].symbols] == [("Little", 0), ("where", 1)]


def test_what_the_question_names_comes_first():
    files = outlines(**USED, **{"deep__billing.py": "def charge(): pass\n", "x.py": "class InvoiceLine: pass\n"})
    assert names(files, query="how does charge in deep/billing.py work", most=1) == ["charge"]
    assert names(files, query="billing.py", most=1) == ["charge"]
    assert names(files, query="what about billing", most=3)[-1] == "charge"
    assert names(files, query="rename InvoiceLine please", most=1) == ["InvoiceLine"]
    assert names(files, query="the folder deep/", most=1) == ["often_used"]


def test_a_file_that_changed_last_comes_earlier():
    files = {f"old{number}.py": f"def old_thing_{number}(): pass\n" for number in range(12)}
    files["new.py"] = "def fresh_thing(): pass\n"
    assert names(outlines(**files), most=1) != ["fresh_thing"]
    assert names(outlines("new.py", **files), most=1) == ["fresh_thing"]


def test_after_a_checkout_no_file_is_recent():
    files = {f"old{number}.py": f"def old_thing_{number}(): pass\n" for number in range(12)}
    rows = outlines(**files)
    for row in rows.values():
        row.modified_ns = 10 * DAY_NS
    assert {file.score for file in rank(rows)} == {next(iter(rank(rows))).score}


def test_tests_count_for_less_unless_they_are_asked_for():
    body = "def helper_thing(): pass\n"
    files = {"tests__test_a.py": body, "src__a.py": body.replace("helper", "source")}
    files |= {"x.py": "from src.a import source_thing\nfrom tests.test_a import helper_thing\n"}
    assert names(outlines(**files), most=1) == ["source_thing"]
    assert names(outlines(**files), query="the tests", most=1) == ["helper_thing"]


def test_only_files_inside_the_folder_are_shown_but_all_mentions_count():
    files = {
        "core__a.py": "def used_often(): pass\ndef unused(): pass\n",
        "other__b.py": "from core.a import used_often\n",
    }
    files["other__c.py"] = "def elsewhere_used(): pass\n"
    files["other__d.py"] = "from other.c import elsewhere_used\nfrom core.a import used_often\n"
    assert names(outlines(**files), within="core/") == ["used_often", "unused"]
    assert names(outlines(**files), within="core/", most=1) == ["used_often"]
    assert names(outlines(**files), within="nothing/") == []


def test_one_file_with_many_definitions_does_not_fill_the_map():
    many = "".join(f"def many_things_{number}(): pass\n" for number in range(40))
    files = {"big.py": many, "small.py": "def little_thing(): pass\n"}
    uses = ", ".join(f"many_things_{number}" for number in range(40))
    files |= {f"u{number}.py": f"from big import {uses}\n" for number in range(3)}
    files["v.py"] = "from small import little_thing\n"
    assert "little_thing" in names(outlines(**files), most=20)


def test_the_same_files_give_the_same_map():
    files = outlines(**USED)
    again = dict(reversed(files.items()))
    assert sorted(rank(files)) == sorted(rank(again))
    assert rank({}) == []
