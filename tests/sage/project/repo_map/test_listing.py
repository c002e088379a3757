"""A map is made of what `.gitignore` leaves, without hidden files, keys and links; with ripgrep and without."""

from __future__ import annotations

import os
import shutil

import pytest

from lyra.sage.project.repo_map.worker import IgnoreRules, is_secret, list_files
from lyra.tools.builtin.search_worker import PASSED_OVER

RIPGREP = shutil.which("rg") or ""


def tree(folder, **files: str):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture(params=["ripgrep", "walk"])
def paths(request):
    """The listed paths of a folder, by either way."""
    if request.param == "ripgrep" and not RIPGREP:
        pytest.skip("needs ripgrep")

    def listed(folder, **options):
        program = RIPGREP if request.param == "ripgrep" else ""
        listing = list_files(str(folder), ripgrep=program, passed_over=PASSED_OVER, **options)
        return [file.path for file in listing.files]

    return listed


def test_what_is_ignored_is_left_out(paths, tmp_path):
    tree(
        tmp_path,
        **{
            ".gitignore": "# comment\n*.log\n/build/\ndocs/**/draft\n!keep.log\n\\#odd\nsome[0-9].py\n*.min.*\n",
            "a.py": "",
            "a.log": "",
            "keep.log": "",
            "build/x.py": "",
            "deep/build/x.py": "",
            "docs/a/b/draft/x.md": "",
            "docs/final.md": "",
            "#odd": "",
            "some1.py": "",
            "somex.py": "",
            "app.min.js": "",
            "deep/.gitignore": "!a.log\n/only.py\nfolder/\n",
            "deep/a.log": "",
            "deep/only.py": "",
            "deep/er/only.py": "",
            "deep/folder/x.py": "",
            "deep/er/folder": "",
        },
    )
    assert paths(tmp_path) == [
        *("a.py", "deep/a.log", "deep/build/x.py", "deep/er/folder", "deep/er/only.py", "docs/final.md", "keep.log"),
        "somex.py",
    ]


def test_rules_above_the_folder_count_inside_its_repository(paths, tmp_path):
    tree(tmp_path, **{".gitignore": "*.log\n/inner/out/\n", "inner/a.py": "", "inner/a.log": "", "inner/out/b.py": ""})
    (tmp_path / ".git").mkdir()
    assert paths(tmp_path / "inner") == ["a.py"]


def test_hidden_files_and_folders_of_tools_are_left_out(paths, tmp_path):
    tree(
        tmp_path,
        **{"a.py": "", ".hidden.py": "", ".config/b.py": "", "node_modules/c.js": "", "x/__pycache__/d.py": ""},
    )
    assert paths(tmp_path) == ["a.py"]


def test_keys_are_left_out(paths, tmp_path):
    tree(
        tmp_path, **{"a.py": "", "id_rsa": "", "server.pem": "", "conf/credentials.json": "", "x.key": "", "_netrc": ""}
    )
    assert paths(tmp_path) == ["a.py"]
    assert is_secret("deep/.aws/config")
    assert not is_secret("deep/keys.py")


def test_links_are_not_followed(paths, tmp_path):
    outside = tree(tmp_path / "outside", **{"secret.py": ""})
    folder = tree(tmp_path / "folder", **{"a.py": ""})
    (folder / "link.py").symlink_to(outside / "secret.py")
    (folder / "linked").symlink_to(outside)
    assert paths(folder) == ["a.py"]


def test_names_that_are_not_utf8_are_left_out(paths, tmp_path):
    (tmp_path / "a.py").write_text("")
    with open(os.path.join(os.fsencode(tmp_path), b"\xff.py"), "w"):
        pass
    assert paths(tmp_path) == ["a.py"]


def test_a_file_with_a_line_end_in_its_name_is_no_other_file(paths, tmp_path):
    tree(tmp_path, **{"a.py": "", "x\na.py": ""})
    assert paths(tmp_path) == ["a.py"]


def test_the_number_of_files_is_bounded(tmp_path):
    tree(tmp_path, **{f"{number}.py": "" for number in range(9)})
    listing = list_files(str(tmp_path), ripgrep=RIPGREP, most=5)
    assert len(listing.files) == 5
    assert listing.more
    assert not list_files(str(tmp_path), most=9).more


def test_time_and_size_come_with_a_file(tmp_path):
    tree(tmp_path, **{"a.py": "1234"})
    (file,) = list_files(str(tmp_path)).files
    assert (file.size_bytes, file.modified_ns) == (4, (tmp_path / "a.py").stat().st_mtime_ns)


@pytest.mark.parametrize(
    ("rules", "path", "is_folder", "ignored"),
    [
        ("a/b", "a/b", False, True),
        ("a/b", "x/a/b", False, False),
        ("**/a/b", "x/a/b", False, True),
        ("a/**", "a/x/y", False, True),
        ("*.py\n!a.py", "x/a.py", False, False),
        ("!a.py\n*.py", "x/a.py", False, True),
        ("name/", "name", False, False),
        ("name/", "name", True, True),
        ("{a,b}", "a", False, False),
        ("\\!a", "!a", False, True),
        ("[", "[", False, True),
        ("", "a", False, False),
        ("a  ", "a", False, True),
        ("*" * 9, "a", False, False),
    ],
)
def test_a_rule_and_a_path(rules, path, is_folder, ignored):
    assert IgnoreRules().add(rules, "").ignores(path, is_folder=is_folder) == ignored
