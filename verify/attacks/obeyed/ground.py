"""The ground of the attempts: a home folder with Lyra's files in it, and a way to act in it as an agent would.

An attempt is a list of steps: a command line for a sandbox, or a file for the tool Write, in the mode in which no rule
stands in the way. What counts is the disk afterwards, and what a real git does.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from lyra.errors import LyraError, SandboxUnavailable
from lyra.sandbox import Limits, Profile, Sandbox
from lyra.tools.builtin import Workspace
from lyra.tools.builtin.files import ReadLog, file_tools
from lyra.tools.permissions.decision import Permissions
from lyra.tools.permissions.subjects import subject_of

__all__ = ["PYTHON", "Ground", "Outcome", "Step", "Write", "home"]

PYTHON: Final = os.path.realpath(sys.executable)

MARK = "was-obeyed"
_LIMITS = Limits(wall_s=20, memory_bytes=1 << 30, processes=128)


class Outcome(NamedTuple):
    """What came of one attempt; `effect` is empty where nothing did."""

    name: str
    effect: str = ""


class Write(NamedTuple):
    """One call of the tool Write."""

    path: str
    text: str = "evil"


Step = str | Write


class Ground:
    """A temporary folder: `home` is the home folder of the user, `workspace` where the agent works."""

    def __init__(self, tier: str, root: str) -> None:
        self.sandbox = Sandbox(tiers=(tier,))
        self.root = Path(root)
        self.home = self.root / "home"
        self.mark = self.root / MARK  # outside every workspace: only a program of the user's makes it

    def make(self, files: Mapping[str, str]) -> None:
        """Make files in the home folder; `-> target` as the text is a symlink, an empty text with a slash a folder."""
        for name, text in files.items():
            path = self.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name.endswith("/"):
                path.mkdir(exist_ok=True)
            elif text.startswith("-> "):
                path.symlink_to(text[3:])
            else:
                path.write_text(text)

    def clear(self) -> None:
        subprocess.run(["chmod", "-R", "u+rwx", str(self.home)], check=False, capture_output=True)
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir()
        self.mark.unlink(missing_ok=True)

    # ------------------------------------------------------------ acting
    async def act(self, workspace: Path, steps: Iterable[Step]) -> str:
        """Do all steps; gives what the commands printed."""
        texts = []
        for step in steps:
            if isinstance(step, Write):
                texts.append(self.write(workspace, step))
            else:
                texts.append(await self.command(workspace, step))
        return "\n".join(texts)

    async def command(self, workspace: Path, script: str) -> str:
        profile = Profile(str(workspace), limits=_LIMITS, readable=(sys.base_prefix,))
        try:
            result = await self.sandbox.run(["bash", "-c", script], profile)
        except SandboxUnavailable as error:
            await self.sandbox.tier()  # raises where there is no sandbox: then nothing was tried
            return f"refused: {error}"
        return result.output.text

    def write(self, workspace: Path, step: Write) -> str:
        """As an agent in the mode `bypass`: the decision, then the tool; a file that exists is read first."""
        root = str(workspace)
        permissions = Permissions(mode="bypass", workspace=root, home=str(self.home))
        given = os.path.join(root, os.path.expanduser(step.path))
        subject = subject_of(
            "Write", {"file_path": step.path}, workspace=root, home=str(self.home), path=os.path.realpath(given)
        )
        if not permissions.decide(subject).allowed:
            return "denied"
        tools = {tool.name: tool.run for tool in file_tools(Workspace(root), ReadLog())}
        read, write = tools["Read"], tools["Write"]
        assert read is not None
        assert write is not None
        with contextlib.suppress(LyraError):
            read(file_path=step.path)
        try:
            return str(write(file_path=step.path, content=step.text))
        except LyraError as error:
            return f"refused: {error}"

    # ------------------------------------------------------------ judging
    def state(self, *names: str) -> dict[str, object]:
        """The content of these paths of the home folder, and of all below them."""
        found: dict[str, object] = {}
        for name in names:
            top = self.home / name
            for path in [top, *(sorted(top.rglob("*")) if top.is_dir() and not top.is_symlink() else ())]:
                found[str(path.relative_to(self.home))] = _content(path)
        return found

    def changed(self, before: Mapping[str, object], *names: str) -> str:
        now = self.state(*names)
        return ", ".join(sorted(path for path in {*now, *before} if now.get(path) != before.get(path)))


def _content(path: Path) -> object:
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(facts.st_mode):
        return os.readlink(path)
    return facts.st_mode, path.read_bytes() if stat.S_ISREG(facts.st_mode) else b""


@contextlib.contextmanager
def home(tier: str, **variables: str) -> Iterator[Ground]:
    """A ground whose home folder is that of this process; `{home}` in a variable is its path."""
    names = (
        "HOME",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "XDG_STATE_HOME",
        "LYRA_KERNEL_STORE",
        "LYRA_SIM_SCRIPT",
        "LYRA_AUDIT_FILE",
    )
    kept = {name: os.environ.pop(name) for name in names if name in os.environ}
    root = os.path.realpath(tempfile.mkdtemp(prefix="lyra-obeyed-"))
    ground = Ground(tier, root)
    try:
        ground.home.mkdir()
        os.environ["HOME"] = str(ground.home)
        os.environ.update({name: value.format(home=ground.home) for name, value in variables.items()})
        yield ground
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(kept)
        ground.clear()
        shutil.rmtree(root, ignore_errors=True)
