"""Beside a protected path a command makes, renames and removes files as anywhere else, in each tier.

Under Landlock another process does it for the command, so these tests are about that one above all.
"""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys

import pytest

from lyra.sandbox import Limits, Profile
from lyra.sandbox.creator import CALLS, Creator, Folder, decode, encode
from lyra.sandbox.landlock_tier import ClosedFolders
from lyra.sandbox.sandbox import Landlock, Sandbox

PYTHON = f"{os.path.realpath(sys.executable)} -IS"


@pytest.fixture
def do(sandbox, tmp_path):
    """Runs commands in a repository with keys in it."""
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    (tmp_path / ".env").write_text("KEY=hunter2")
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/.env").write_text("KEY=hunter2")
    (tmp_path / "src").mkdir()
    (tmp_path / "package.json").write_text("{}")
    profile = Profile(str(tmp_path), readable=(sys.base_prefix,), limits=Limits(wall_s=30))
    return lambda script: asyncio.run(sandbox.run(["bash", "-c", script], profile))


@pytest.mark.parametrize("folder", [".", "pkg"])
def test_files_are_made_in_the_root_of_a_repository(do, tmp_path, folder):
    """And read, added to, executed, renamed and removed again, within the same command."""
    result = do(
        f"cd {folder}; set -e; echo one > new; echo two >> new; cat new; echo three > new; cat new; "
        "printf '#!/bin/sh\\necho four' > run; chmod +x run 2>/dev/null || true; sh run; "
        "mv new newer; cat newer; rm newer; ln -s run link; readlink link; rm link; echo five > sixth; test ! -e new"
    )
    assert result.exit_code == 0, result.output.text
    assert result.output.text.split() == ["one", "two", "three", "four", "three", "run"]
    assert (tmp_path / folder / "sixth").read_text() == "five\n"


def test_folders_are_made(do, tmp_path):
    """With everything below them; the next command finds them, too."""
    result = do(
        "set -e; mkdir -p build/a/b; echo x > build/a/b/c; mkdir d; rmdir d; mv build out; cat out/a/b/c; mkdir pkg/n"
    )
    assert (result.exit_code, result.output.text) == (0, "x\n")
    assert do("echo y > out/a/new; cat out/a/b/c out/a/new; rm -r out; ls").output.text.split()[:2] == ["x", "y"]
    assert sorted(os.listdir(tmp_path)) == [".env", ".git", "package.json", "pkg", "src"]
    assert sorted(os.listdir(tmp_path / "pkg")) == [".env", "n"]


def test_a_file_is_replaced_by_another(do, tmp_path):
    """As editors and package managers write: a new file, then a rename over the old one."""
    result = do(
        "set -e; sed -i 's/{}/[]/' package.json; cat package.json; "
        "printf new > t; mv -f t package.json; cat package.json"
    )
    assert result.output.text == "[]new"
    assert (tmp_path / "package.json").read_text() == "new"


def test_files_are_moved_between_folders(do, tmp_path):
    """Into one that is open and back again."""
    result = do("set -e; echo a > x; mv x src/; cat src/x; mv src/x y; cat y; mv y pkg/; cat pkg/y")
    assert result.output.text.split() == ["a", "a", "a"], result.output.text
    assert (tmp_path / "pkg/y").read_text() == "a\n"


def test_more_files_than_there_are_in_stock(do, tmp_path):
    """They are written all the same."""
    assert do("for n in $(seq 200); do echo $n > f$n; done; for n in $(seq 40); do mkdir d$n; echo $n > d$n/x; done").ok
    assert (tmp_path / "f200").read_text() == "200\n"
    assert (tmp_path / "d40/x").read_text() == "40\n"
    assert do("cat f1 f200 d1/x d40/x; rm -r f* d*").output.text.split() == ["1", "200", "1", "40"]


@pytest.mark.parametrize("umask", ["022", "077", "002"])
def test_modes_are_as_asked_for(do, tmp_path, umask):
    do(f"umask {umask}; echo > file; mkdir folder; touch src/file; mkdir src/folder")
    for name in ("file", "folder"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == stat.S_IMODE((tmp_path / "src" / name).stat().st_mode)


_CALLS = """
import os, errno
def fails(number, function, *arguments):
    try: function(*arguments)
    except OSError as error: assert error.errno == number, (error, errno.errorcode[error.errno]); return
    raise AssertionError(function, arguments)
fd = os.open('new', os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o640)
os.write(fd, b'abc'); os.lseek(fd, 0, 0); assert os.read(fd, 9) == b'abc'
assert not os.get_inheritable(fd); os.close(fd)
fails(errno.EEXIST, os.open, 'new', os.O_CREAT | os.O_EXCL)
fails(errno.EEXIST, os.mkdir, 'new')
fails(errno.EEXIST, os.symlink, 'x', 'new')
fails(errno.ENOENT, os.unlink, 'missing')
fails(errno.ENOENT, os.rmdir, 'missing')
fails(errno.ENOENT, os.rename, 'missing', 'other')
fails(errno.ENOENT, os.open, 'no/where', os.O_CREAT)
fails(errno.ENOTDIR, os.rmdir, 'new')
fails(errno.ENOTDIR, os.mkdir, 'new/x')
fails(errno.EISDIR, os.open, 'src', os.O_CREAT | os.O_WRONLY)
os.mkdir('full'); open('full/x', 'w').close()
fails(errno.ENOTEMPTY, os.rmdir, 'full')
d = os.open('.', os.O_RDONLY)
os.close(os.open('by-descriptor', os.O_CREAT | os.O_WRONLY, dir_fd=d)); os.mkdir('sub', dir_fd=d)
os.rename('by-descriptor', 'renamed', src_dir_fd=d, dst_dir_fd=d); os.unlink('renamed', dir_fd=d)
os.close(os.open(os.path.abspath('absolute'), os.O_CREAT)); assert os.path.exists('absolute')
os.mkdir('slash/'); os.rmdir('slash/'); os.chdir('src'); open('../up', 'w').close(); os.unlink('../up')
print('all')
"""


def test_calls_answer_as_the_kernel_does(do, tmp_path):
    """By descriptor, by absolute path, with a slash at the end; and with the same errors."""
    (tmp_path / "src/calls.py").write_text(_CALLS)
    result = do(f"{PYTHON} src/calls.py")
    assert result.output.text == "all\n"


def test_protected_entries_stay(do, tmp_path):
    before = sorted(os.listdir(tmp_path / ".git"))
    result = do(
        "echo x > .git/new; mkdir .git/d; mv .git g; rm -rf .git; echo x > .env; rm .env; mv .env e; "
        "mv package.json .env; ln -s .git l; echo x > l/hooks/new; mv pkg p; cat .env e pkg/.env"
    )
    assert "hunter2" not in result.output.text
    assert (tmp_path / ".env").read_text() == (tmp_path / "pkg/.env").read_text() == "KEY=hunter2"
    assert sorted(os.listdir(tmp_path / ".git")) == before


def test_nothing_of_the_stock_is_left(do, tmp_path):
    do("echo x > new; mkdir d; ls -a")
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".lyra")]


def test_new_files_that_programs_obey_are_set_aside(do, tmp_path):
    result = do("echo evil > .envrc; mkdir .vscode2 .idea; echo x > .idea/x; echo x > lyra.toml")
    assert {name.partition(".held-")[0] for name in result.set_aside} == {".envrc", ".idea", "lyra.toml"}
    assert not (tmp_path / ".envrc").exists()


def test_a_process_that_cannot_be_looked_into_works_elsewhere(do, tmp_path):
    """Its calls are passed on to the kernel: in open folders it makes files as ever."""
    script = "import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); open('src/x', 'w').write('y'); print('made')"
    assert do(f'{PYTHON} -c "{script}"').output.text.strip() == "made"
    assert (tmp_path / "src/x").read_text() == "y"


def test_many_processes_at_once(do, tmp_path):
    result = do("for n in $(seq 30); do (echo $n > p$n; mkdir q$n; mv p$n r$n; cat r$n) & done; wait")
    assert sorted(map(int, result.output.text.split())) == list(range(1, 31)), result.output.text
    assert len([name for name in os.listdir(tmp_path) if name.startswith("r")]) == 30


def test_where_the_kernel_passes_no_calls_on(tmp_path, monkeypatch):
    """Then nothing new is made beside a protected path, and the result says so."""
    tier = Landlock()
    if tier.missing():
        pytest.skip(str(tier.missing()))
    tier.creates = False
    (tmp_path / ".git").mkdir()
    box = Sandbox(tiers=("landlock",))
    monkeypatch.setattr(box, "_tier", tier)
    result = asyncio.run(box.run(["sh", "-c", "echo x > new"], Profile(str(tmp_path))))
    assert os.listdir(tmp_path) == [".git"]
    assert any("new files cannot be made beside a protected path" in hole for hole in result.holes)
    tier.creates = True
    result = asyncio.run(box.run(["sh", "-c", "echo x > new"], Profile(str(tmp_path))))
    assert (tmp_path / "new").exists()
    assert not any("beside" in hole for hole in result.holes)


def test_settings_are_read_as_they_were_written():
    folders = [Folder(3, frozenset({b".git", b"with\nline", b"\xff"})), Folder(4)]
    assert decode(encode(folders, [5, 6], 7, 16)) == (folders, [5, 6], 7, 16)
    assert decode(encode([], [], -1, 0)) == ([], [], -1, 0)


def test_each_call_has_a_method():
    assert all(callable(getattr(Creator, f"_{name}")) for name in CALLS)


def test_only_so_many_folders_are_closed(tmp_path):
    closed = ClosedFolders()
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        for _ in range(500):
            closed.add(fd, ["x"])
        assert len(closed.folders) < 500
    finally:
        closed.close()
        os.close(fd)
    assert closed.folders == []
