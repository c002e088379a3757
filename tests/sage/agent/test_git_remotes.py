"""The tool Git and real remotes: push, fetch and pull by a question, to a folder and over HTTP; `gh` of the user."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.sage.agent.test_git_tool import DONE, git, repository, say
from tests.sage.agent.test_questions_asked import Person, results
from tests.sage.open_session import Project

__all__ = ["repository"]

ATTENDED = {"attended": True}
BACKEND = "/usr/lib/git-core/git-http-backend"
USER = base64.b64encode(b"me:hunter2").decode()


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    folder = tmp_path / "remote.git"
    git(tmp_path, "init", "-q", "--bare", "-b", "main", str(folder))
    return folder


class _Backend(BaseHTTPRequestHandler):
    """git http-backend as a server, for a user with a password."""

    root = ""

    def log_message(self, *_: object) -> None:
        return

    def do_GET(self) -> None:
        if self.headers.get("Authorization") != f"Basic {USER}":
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        env = {"GIT_PROJECT_ROOT": self.root, "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path, "QUERY_STRING": query}
        env |= {"REQUEST_METHOD": self.command, "CONTENT_TYPE": self.headers.get("Content-Type", "")}
        env |= {"REMOTE_USER": "me", "CONTENT_LENGTH": str(len(body)), "PATH": os.environ["PATH"]}
        env |= {"HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", "")}
        answer = subprocess.run([BACKEND], input=body, env=env, capture_output=True, check=True).stdout
        head, _, content = answer.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET  # noqa: N815 - the name that the server calls


@pytest.fixture
def server(remote: Path) -> Iterator[str]:
    if not os.path.exists(BACKEND):
        pytest.skip("git has no http-backend here")
    handler = type("Handler", (_Backend,), {"root": str(remote.parent)})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}/{remote.name}"
        running.shutdown()


def log(folder: Path, branch: str = "main") -> str:
    return git(folder, "log", "--format=%s", branch)


async def talk(repository: Project, person: Person, *commands: str) -> list[str]:
    script = [*map(say, commands), DONE]
    async with repository.open(*script, options=ATTENDED) as session:
        return results(await person.talk(session, "go"))


@pytest.mark.parametrize("form", ["file://{}", pytest.param("{}", marks=pytest.mark.long)])
async def test_a_push_to_a_folder(repository: Project, remote: Path, form: str) -> None:
    """By a question; what a "no" was said to is not sent. Fetch and pull bring what others have pushed."""
    git(repository.folder, "remote", "add", "origin", form.format(remote))
    no = Person("deny")
    await talk(repository, no, "push origin main")
    assert no.asked == ["push origin main"]
    assert git(remote, "for-each-ref") == ""
    yes = Person("allow")
    await talk(repository, yes, "commit --allow-empty -m second", "push origin main")
    assert yes.asked == ["commit --allow-empty -m second", "push origin main"]
    assert log(remote) == "second\nfirst"
    other = remote.parent / "other"
    git(remote.parent, "clone", "-q", str(remote), str(other))
    git(other, "-c", "user.name=O", "-c", "user.email=o@example.com", "commit", "-q", "--allow-empty", "-m", "theirs")
    git(other, "push", "-q", "origin", "main")
    assert "exit code 0" in (await talk(repository, Person("allow"), "pull origin main"))[-1]
    assert log(repository.folder) == "theirs\nsecond\nfirst"


async def test_a_push_over_http(repository: Project, remote: Path, server: str) -> None:
    """With the user's own way to say who they are; nothing of it is shown to the model."""
    git(repository.folder, "remote", "add", "origin", server)
    refused = await talk(repository, Person("allow"), "push origin main")
    assert "exit code 128" in refused[0]
    (repository.home / ".git-credentials").write_text(server.replace("http://", "http://me:hunter2@") + "\n")
    settings = repository.home / ".gitconfig"
    settings.write_text(f"{settings.read_text()}[credential]\n\thelper = store\n")
    done = await talk(repository, Person("allow"), "push origin main", "fetch origin")
    assert ["exit code 0" in text for text in done] == [True, True], done
    assert "hunter2" not in str(done)
    assert log(remote) == "first"


async def test_a_folder_whose_hooks_would_run_is_no_remote(repository: Project, remote: Path, tmp_path: Path) -> None:
    """One in the workspace, which a command may have made, or one with hooks of its own."""
    inside = repository.folder / "evil.git"
    git(tmp_path, "init", "-q", "--bare", str(inside))
    hook = remote / "hooks/post-receive"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    for number, folder in enumerate((inside, remote)):
        git(repository.folder, "remote", "add", f"r{number}", str(folder))
    done = await talk(repository, Person("allow"), "push r0 main", "push r1 main")
    assert all("transport 'file' not allowed" in text for text in done), done
    assert not (tmp_path / "ran").exists()


async def test_gh_is_that_of_the_users_path(
    repository: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a question, with the user's token, and never one that lies in the workspace, also by a relative name."""
    told = tmp_path / "told"
    for folder in (repository.folder / "bin", tmp_path / "bin"):
        folder.mkdir()
        (folder / "gh").write_text(f'#!/bin/sh\necho "$0 $* $GH_TOKEN $GH_PROMPT_DISABLED" >> {told}\necho pull/7\n')
        (folder / "gh").chmod(0o755)
    monkeypatch.setattr("lyra.tools.git.repository.PATH", "/usr/bin")
    monkeypatch.setenv("PATH", f"{repository.folder}/bin:bin:{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)  # from here `bin` is another one than in the workspace, where it would be run
    monkeypatch.setenv("GH_TOKEN", "token-of-mine")
    command = "gh pr create --title 'Add b' --body 'As asked.'"
    no = Person("deny")
    await talk(repository, no, command)
    assert no.asked == [command]
    assert not told.exists()
    (output,) = await talk(repository, Person("allow"), command)
    assert "pull/7" in output
    assert told.read_text() == f"{tmp_path}/bin/gh pr create --title Add b --body As asked. token-of-mine 1\n"
