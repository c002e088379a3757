"""Attempts by way of the process that makes files for commands beside protected paths (the Landlock tier).

It acts outside the confinement, so each attempt tries to make it act on something else: on a protected entry, in another
folder, on a path that changes while it is read. They run in every tier; the other one has to hold, too.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Final

from verify.attacks.obeyed.ground import PYTHON, Ground, Outcome, home

__all__ = ["ATTEMPTS", "run"]

SECRET: Final = "key-in-env"  # noqa: S105 - made up
_FILES: Final = {
    "project/.git/config": "ours",
    "project/.git/hooks/sample": "ours",
    "project/.git/HEAD": "ref: refs/heads/main\n",
    "project/.env": SECRET,
    "project/.npmrc": "ours",
    "project/pkg/.env": SECRET,
    "project/pkg/main.py": "x",
    "project/sub/.git/config": "ours",
    "project/open/file": "x",
    "project/lnk": "-> .git",
    "outside/keep": "ours",
    "outside/folder/": "",
}
_KEPT: Final = ("project/.git", "project/.env", "project/.npmrc", "project/pkg/.env", "project/sub/.git", "outside")
_PRELUDE: Final = """
import ctypes, os, stat, struct, sys, threading, time
L = ctypes.CDLL(None, use_errno=True)
ARM = os.uname().machine == 'aarch64'
OUT = {out!r}
def write(path, text='evil', flags=os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode=0o644):
    fd = os.open(path, flags, mode); os.write(fd, text.encode()); os.close(fd)
def attempt(function, *arguments, **more):
    try: return function(*arguments, **more)
    except OSError as error: print(error)
def call(x86, arm, *arguments): return L.syscall(arm if ARM else x86, *arguments)
def flip(buffer, *texts):
    def run():
        while True:
            for text in texts: ctypes.memmove(buffer, text + bytes(1), len(text) + 1)
    threading.Thread(target=run, daemon=True).start()
"""
ATTEMPTS: Final[dict[str, str]] = {
    "over settings of git": "write('.git/config')",
    "a new hook": "write('.git/hooks/pre-commit')",
    "a new hook that must not exist": "write('.git/hooks/new', flags=os.O_WRONLY | os.O_CREAT | os.O_EXCL)",
    "by a link": "write('lnk/hooks/new')",
    "by a new link": "os.symlink('.git', 'l2'); write('l2/hooks/new')",
    "by a link in place of a folder": "os.rename('open', 'o2'); os.symlink('.git/hooks', 'open'); write('open/new')",
    "by ..": "write('open/../.git/hooks/new')",
    "by /proc/self/cwd": "write('/proc/self/cwd/.git/hooks/new')",
    "by /proc/self/fd": "d = os.open('.git/hooks', os.O_PATH); write(f'/proc/self/fd/{{d}}/new')",
    "by a folder's descriptor": "d = os.open('.git/hooks', os.O_PATH); os.open('new', os.O_CREAT | os.O_WRONLY, dir_fd=d)",
    "by a descriptor of the outside": "d = os.open(OUT, os.O_PATH); os.open('new', os.O_CREAT | os.O_WRONLY, dir_fd=d)",
    "outside": "write(OUT + '/new')",
    "outside by ..": "write('../../outside/new')",
    "a folder outside": "os.mkdir(OUT + '/new')",
    "a link outside": "os.symlink('/', OUT + '/new')",
    "removing outside": "os.unlink(OUT + '/keep')",
    "removing a folder outside": "os.rmdir(OUT + '/folder')",
    "renaming outside": "os.rename(OUT + '/keep', OUT + '/other')",
    "moving in from outside": "os.rename(OUT + '/keep', 'stolen')",
    "moving out": "write('x'); os.rename('x', OUT + '/x')",
    "git renamed": "os.rename('.git', 'g')",
    "git replaced by a rename": "os.mkdir('g'); write('g/config'); os.rename('g', '.git')",
    "keys renamed": "os.rename('.env', 'e'); print(open('e').read())",
    "keys replaced": "write('e'); os.rename('e', '.env')",
    "keys removed": "os.unlink('.env')",
    "keys linked": "os.link('.env', 'e'); print(open('e').read())",
    "keys by a link": "os.symlink('.env', 'e'); print(open('e').read())",
    "keys opened for making": "print(os.read(os.open('.env', os.O_RDWR | os.O_CREAT), 99))",
    "keys of a folder below": "os.rename('pkg/.env', 'pkg/e'); print(open('pkg/e').read())",
    "the folder of keys renamed": "os.rename('pkg', 'p2'); print(open('p2/.env').read())",
    "the folder of a repository renamed": "os.rename('sub', 's2'); write('s2/.git/config')",
    "exchanged": "os.mkdir('x'); call(316, 276, -100, b'.git', -100, b'x', 2)",
    "keys exchanged": "write('x'); call(316, 276, -100, b'.env', -100, b'x', 2); print(open('x').read())",
    "a settings file removed": "os.unlink('.npmrc')",
    "a settings file replaced": "write('n'); os.rename('n', '.npmrc')",
    "a folder in git": "os.mkdir('.git/new')",
    "removing a folder in git": "os.unlink('.git/hooks/sample'); os.rmdir('.git/hooks')",
    "a name with a slash at its end": "attempt(os.mkdir, '.git/'); attempt(os.rmdir, '.git/'); os.rename('open', '.git/')",
    "an absolute path": "write(os.path.abspath('.git/hooks/new'))",
    "a very long path": "write('./' * 2000 + '.git/hooks/new')",
    "a set-user-id file": "os.close(os.open('suid', os.O_CREAT | os.O_WRONLY, 0o6777))",
    "a set-user-id folder": "os.mkdir('suid', 0o6777)",
    "an address that is nothing": "call(257, 56, -100, ctypes.c_void_p(8), 0x41, 0o644); write('.git/hooks/new')",
    "a descriptor that is none": "call(257, 56, 77, b'.git/hooks/new', 0x41, 0o644)",
    "from another folder": "os.chdir('.git/hooks'); write('new')",
    "from a folder of the outside": "os.chdir(OUT); write('new')",
    "the stock": (
        "import glob\\nfor f in glob.glob('.lyra-new-*/*'):\\n attempt(os.rename, f, '.git/hooks'); attempt(os.rename, f, OUT + '/s')"
    ),
    "the stock made a link": (
        "import glob\\nfor f in glob.glob('.lyra-new-*/*'):\\n attempt(os.rmdir, f); attempt(os.symlink, OUT, f)\\n"
        "attempt(os.mkdir, 'm'); attempt(write, 'm/new')"
    ),
    "more than the stock": (
        "for n in range(80): attempt(write, f'f{{n}}')\\nfor n in range(20): attempt(os.mkdir, f'd{{n}}')\\n"
        "attempt(os.rename, 'd0', '.git/d'); attempt(os.symlink, '../.git/hooks', 'd1/h'); attempt(write, 'd1/h/new')"
    ),
    "a path that changes": (
        "b = ctypes.create_string_buffer(b'new-file', 64); flip(b, b'new-file', b'.git/hooks/new', OUT.encode()[:50] + b'/n')\\n"
        "end = time.monotonic() + 1\\n"
        "while time.monotonic() < end:\\n"
        " fd = call(257, 56, -100, b, os.O_CREAT | os.O_WRONLY, 0o644)\\n"
        " if fd >= 0: os.close(fd)\\n"
        " attempt(os.unlink, 'new-file') if os.path.lexists('new-file') else None"
    ),
    "names that change": (
        "b = ctypes.create_string_buffer(b'open', 64); flip(b, b'open', b'.git', b'.env', b'free')\\n"
        "end = time.monotonic() + 1\\n"
        "while time.monotonic() < end:\\n call(316, 276, -100, b, -100, b'moved', 0); call(316, 276, -100, b'moved', -100, b, 0)"
    ),
    "a working folder that changes": (
        "os.makedirs('open/.x', exist_ok=True)\\n"
        "def turn():\\n while True:\\n  os.chdir(W); os.chdir(W + '/.git/hooks'); os.chdir(OUT)\\n"
        "W = os.getcwd(); threading.Thread(target=turn, daemon=True).start()\\n"
        "end = time.monotonic() + 1\\n"
        "while time.monotonic() < end:\\n attempt(write, 'fresh'); attempt(os.unlink, W + '/fresh')"
    ),
    "folders that are swapped": (
        "os.symlink('.git/hooks', 'swap'); os.mkdir('door')\\n"
        "def turn():\\n while True: call(316, 276, -100, b'door', -100, b'swap', 2); "
        "attempt(os.rename, 'door', 'd'); attempt(os.rename, 'swap', 'door'); attempt(os.rename, 'd', 'swap')\\n"
        "threading.Thread(target=turn, daemon=True).start()\\n"
        "end = time.monotonic() + 1\\n"
        "while time.monotonic() < end:\\n attempt(write, 'door/new'); attempt(os.mkdir, 'door/sub')"
    ),
    "many at once": (
        "ts = [threading.Thread(target=lambda n=n: [attempt(write, f'.git/hooks/n{{n}}'), attempt(write, f'n{{n}}')]) "
        "for n in range(50)]\\nfor t in ts: t.start()\\nfor t in ts: t.join()"
    ),
    "children that die in the call": (
        "for n in range(30):\\n pid = os.fork()\\n if pid == 0:\\n  while True: attempt(write, f'c{{n}}'); attempt(os.unlink, f'c{{n}}')\\n"
        " time.sleep(0.01); os.kill(pid, 9); os.waitpid(pid, 0)"
    ),
}


async def run(tier: str, every: int = 1) -> list[Outcome]:
    outcomes = []
    with home(tier) as ground:
        for name, code in list(ATTEMPTS.items())[::every]:
            outcomes.append(Outcome(f"closed folders, {name}", await _try(ground, code)))
    return outcomes


async def _try(ground: Ground, code: str) -> str:
    ground.clear()
    ground.make(_FILES)
    project = ground.home / "project"
    program = _PRELUDE.format(out=str(ground.home / "outside")) + code.replace("{{", "{").replace("}}", "}") + "\n"
    (project / "open/attempt.py").write_text(program.replace("\\n", "\n"))
    before = ground.state(*_KEPT)
    text = await ground.command(project, f"{PYTHON} -IS open/attempt.py")
    if "SyntaxError" in text or "NameError" in text:
        return f"the attempt is wrong: {text[-300:]}"
    if SECRET in text:
        return "a key was read"
    return ground.changed(before, *_KEPT) or _set_id(project)


def _set_id(project: Path) -> str:
    found = [path.name for path in project.rglob("*") if path.lstat().st_mode & (stat.S_ISUID | stat.S_ISGID)]
    return f"{found} set an id" if found else ""
