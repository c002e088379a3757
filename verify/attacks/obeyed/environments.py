"""Attempts to read something else by a Python environment: its links and settings name what a sandbox shows.

A project may write `.venv`, so an attempt plants one that leads to keys, to other folders, or to an installation with
private files beside it. The interpreter itself has to start; `tests/sandbox/test_interpreters.py` shows that it does.
"""

from __future__ import annotations

from typing import Final

from verify.attacks.obeyed.ground import Ground, Outcome, home

__all__ = ["run"]

SECRET: Final = "secret-beside"  # noqa: S105 - made up
_FILES: Final = {
    "private/notes": SECRET,
    "private/bin/notes": SECRET,
    "private/python3/notes": SECRET,
    ".ssh/id_rsa": SECRET,
    "keys/python3": SECRET,
    "keys/bin/python3": SECRET,
    "keys/lib/notes": SECRET,
    # An installation with private files beside it.
    "py/bin/python3.11": "#!/bin/sh\n",
    "py/bin/notes": SECRET,
    "py/lib/python3.11/os.py": "",
    "py/etc/notes": SECRET,
    "py/notes": SECRET,
    # One that was installed into the home folder itself.
    "bin/python3.11": "#!/bin/sh\n",
    "bin/notes": SECRET,
    "lib/python3.11/os.py": "",
    "lib/private/notes": SECRET,
    "project/plain": "x",
}
_LINK: Final = "mkdir -p .venv/bin; ln -sfn {target} .venv/bin/python"
_CONFIG: Final = "mkdir -p .venv; echo 'home = {target}' > .venv/pyvenv.cfg"
_TARGETS: Final = (
    *("{home}/private/notes", "{home}/private", "{home}/private/bin/python3", "{home}/.ssh/id_rsa", "{home}/.ssh"),
    *("{home}/keys/python3", "{home}/keys/bin/python3", "{home}", "/", "/etc/shadow", "{home}/py", "{home}/py/bin"),
    *("{home}/py/bin/python3.11", "{home}/bin/python3.11", "{home}/bin", "../../../py/bin/python3.11"),
    *("/proc/self/root{home}/private/bin/python3", "/proc/self/root{home}/py/bin/python3.11", "/proc/1/root{home}"),
    *("{home}/py/bin/../../private/bin/python3", "{home}/project/.venv/bin/python", "/dev/stdin", "relative"),
)
_OTHERS: Final = {
    "a link to the home folder": "ln -s .. .venv",
    "a fake installation with links": (
        "mkdir -p fake/bin fake/lib/python3.11 .venv/bin; : > fake/lib/python3.11/os.py; ln -s {home}/private fake/lib/x; "
        "ln -s {home}/keys/python3 fake/bin/python3; ln -s $PWD/fake/bin/python3 .venv/bin/python"
    ),
    "a fake installation that is a link": (
        "ln -s {home}/private fake; mkdir -p .venv/bin; ln -s $PWD/fake/bin/python3 .venv/bin/python"
    ),
    "a pipe as settings": "mkdir .venv; mkfifo .venv/pyvenv.cfg",
    "a link as settings": "mkdir .venv; ln -s {home}/private/notes .venv/pyvenv.cfg",
    "a loop": "mkdir -p .venv/bin; ln -s python .venv/bin/python",
    "in a folder below": "mkdir -p a/b/.venv/bin; ln -s {home}/private/bin/python3 a/b/.venv/bin/python",
    "by the other name": "mkdir -p venv/bin; ln -s {home}/py/bin/python3.11 venv/bin/python",
}


async def run(tier: str, every: int = 1) -> list[Outcome]:
    outcomes = []
    with home(tier) as ground:
        ways = {f"a link to {target}": _LINK.replace("{target}", target) for target in _TARGETS}
        ways |= {f"settings that name {target}": _CONFIG.replace("{target}", target) for target in _TARGETS}
        for name, script in list((ways | _OTHERS).items())[::every]:
            outcomes.append(Outcome(f"environments, {name}", await _try(ground, script)))
    return outcomes


async def _try(ground: Ground, script: str) -> str:
    ground.clear()
    ground.make(_FILES)
    project, path = ground.home / "project", str(ground.home)
    for name in ("py/bin/python3.11", "bin/python3.11"):
        (ground.home / name).chmod(0o755)
    before = ground.state("py", "bin", "lib", "private")
    files = " ".join(f"{path}/{name}" for name in _FILES)
    write = f"echo evil > {path}/py/lib/python3.11/evil.py; echo evil > {path}/lib/python3.11/os.py; echo x > {path}/bin/new"
    text = await ground.act(project, [script.replace("{home}", path), f"cat {files} /etc/shadow; {write}; echo done"])
    if "done" not in text:
        return f"no command runs any more: {text[-200:]}"
    if SECRET in text or "root:" in text:
        return "a secret was read"
    return ground.changed(before, "py", "bin", "lib", "private")
