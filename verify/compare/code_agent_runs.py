"""The agents that are compared, the model that is scripted for them, and one run of an agent, measured.

An agent is a command line, its environment, and how it does a step of a task with tools of its own. The model is Lyra's
mock server: it keeps every request and answers with the next turn of the task. A run is measured from outside: its
processes by `wait4` and `/proc`, its requests where they arrive, its words as they are printed.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from lyra.core.clock import SystemClock
from lyra.models.provider import Request
from lyra.models.script import Reply, ScriptedCall
from lyra.testing.mock.server import Exchange, HttpRequest, MockServer
from verify.compare.code_agent_tasks import Commit, Edit, Read, Run, Search, Step, Write

__all__ = [
    "AGAIN",
    "CLAUDE_MODEL",
    "OPENAI_MODEL",
    "RUN_S",
    "SAGE",
    "CodeAgent",
    "RunFigures",
    "ScriptedModel",
    "StartedAgent",
    "agents",
    "below",
    "command_line",
    "kill_all",
    "run_agent",
    "start",
]

_TOOLS: Final = Path(os.environ.get("LYRA_TEST_TOOLS") or Path.home() / ".cache" / "lyra-tests" / "tools")
SAGE: Final = [sys.executable, "-c", "import sys; from lyra.cli.main import sage; sys.exit(sage(sys.argv[1:]))"]
CLAUDE_MODEL: Final = "claude-sonnet-4-5"
OPENAI_MODEL: Final = "gpt-5.5"
RUN_S: Final = 120.0
_PATHS: Final = ("/v1/messages", "/v1/responses", "/v1/chat/completions")
_ANSWER: Final = "That is done."
AGAIN: Final = "go on"
_QUIET: Final = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
_CLOCK: Final = SystemClock()


# ---------------------------------------------------------------- the model
class Sent(NamedTuple):
    """One request that an agent sent: when, and the JSON of its body."""

    at_s: float
    path: str
    body: dict[str, Any]
    bytes: int

    @property
    def tools(self) -> list[Any]:
        return self.body.get("tools") or []

    def results(self) -> list[str]:
        """Return the results of tools in the conversation, as texts."""
        items = self.body.get("input") or []
        if isinstance(items, list) and items:
            return [_as_text(item.get("output")) for item in items if str(item.get("type", "")).endswith("_output")]
        messages = self.body.get("messages", [])
        if self.path.endswith("/chat/completions"):
            return [_as_text(message.get("content")) for message in messages if message.get("role") == "tool"]
        parts = [part for message in messages for part in _parts(message.get("content"))]
        return [_as_text(part.get("content")) for part in parts if part.get("type") == "tool_result"]

    def head_bytes(self) -> int:
        """Return the size of what is sent with every request: system prompt and tools."""
        head = [self.body[key] for key in ("system", "instructions", "tools") if key in self.body]
        roles = ("system", "developer")
        head += [
            item for key in ("messages", "input") for item in _parts(self.body.get(key)) if item.get("role") in roles
        ]
        return len(json.dumps(head, ensure_ascii=False).encode())


def _parts(content: Any) -> list[dict[str, Any]]:
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class ScriptedModel(MockServer):
    """Keeps what was sent, and answers with the turns of one task. `waits` is the turn that is never answered."""

    def __init__(self, agent: CodeAgent, turns: Sequence[tuple[Step, ...]], folder: Path) -> None:
        super().__init__(self._reply)
        self.sent: list[Sent] = []
        self.waits = -1
        self._agent = agent
        self._folder = folder
        self._turns = turns

    async def _answer(self, asked: HttpRequest, exchange: Exchange) -> None:
        with suppress(ValueError):
            body = json.loads(asked.body) if asked.body else {}
            self.sent.append(Sent(_CLOCK.monotonic(), asked.path, body, len(asked.body)))
        await super()._answer(asked, exchange)

    def _reply(self, request: Request) -> Reply:
        names = {tool.name for tool in request.tools}
        if not names:
            return Reply(text="ok")  # a title, a summary
        turn = sum(1 for message in request.messages if message.tool_calls)
        last = max((n for n, message in enumerate(request.messages) if message.role == "user"), default=0)
        if AGAIN in str(request.messages[last].text) or turn >= len(self._turns):
            return Reply(text=_ANSWER)
        calls = tuple(self._agent.calls(step, names, self._folder) for step in self._turns[turn])
        return Reply(tool_calls=calls, first_s=60.0 if turn == self.waits else None)

    def main_requests(self) -> list[Sent]:
        """Return the requests of the task itself, without titles and the like."""
        return [sent for sent in self.sent if sent.tools and sent.path in _PATHS]


# ---------------------------------------------------------------- the agents
class CodeAgent(NamedTuple):
    """`words` start a task of its prompt, `again` goes on with the newest session of the folder."""

    name: str
    program: str  # in the command lines of its processes
    words: Callable[[str, str], list[str]]
    again: Callable[[str, str], list[str]]
    env: Callable[[str], dict[str, str]]
    calls: Callable[[Step, set[str], Path], ScriptedCall]


def _claude_like(step: Step, offered: set[str], _folder: Path) -> ScriptedCall:
    """Return a step with the tools that Sage and claude have in common."""
    match step:
        case Read(path, first, lines):
            return ScriptedCall("Read", {"file_path": path, "offset": first, "limit": lines})
        case Search(pattern, path) if "Grep" in offered:
            return ScriptedCall("Grep", {"pattern": pattern, "path": path, "output_mode": "content"})
        case Search(pattern, path):
            return _bash(f"grep -rn '{pattern}' {path}")
        case Edit(path, old, new):
            return ScriptedCall("Edit", {"file_path": path, "old_string": old, "new_string": new})
        case Write(path, content):
            return ScriptedCall("Write", {"file_path": path, "content": content})
        case Commit(message) if "Git" in offered:
            return ScriptedCall("Git", {"command": f"commit -am '{message}'"})
        case Commit(message):
            return _bash(f"git commit -qam '{message}'")
        case Run(command):
            return _bash(command)


def _bash(command: str) -> ScriptedCall:
    return ScriptedCall("Bash", {"command": command, "description": "a step"})


def _codex_like(step: Step, _offered: set[str], folder: Path) -> ScriptedCall:
    """Return a step as a call of codex's shell, with its `apply_patch` for edits."""
    match step:
        case Read(path, first, lines):
            command = f"sed -n '{first},{first + lines - 1}p' {path}"
        case Search(pattern, path):
            command = f"grep -rn '{pattern}' {path}"
        case Edit(path, old, new):
            command = _patch(f"*** Update File: {path}", ["@@", *_whole_lines((folder / path).read_text(), old, new)])
        case Write(path, content):
            command = _patch(f"*** Add File: {path}", [f"+{line}" for line in content.rstrip("\n").split("\n")])
        case Commit(message):
            command = f"git commit -qam '{message}'"
        case Run(command):
            pass
    return ScriptedCall("exec_command", {"cmd": command, "yield_time_ms": 30_000})


def _whole_lines(text: str, old: str, new: str) -> list[str]:
    """Return an edit of a part of lines as lines of a patch."""
    begin = text.index(old)
    first = text.rfind("\n", 0, begin) + 1
    last = text.find("\n", begin + len(old))
    before, after = text[first:begin], text[begin + len(old) : last]
    removed, added = (f"{before}{part}{after}".split("\n") for part in (old, new))
    return [*(f"-{line}" for line in removed), *(f"+{line}" for line in added)]


def _patch(head: str, lines: list[str]) -> str:
    return "\n".join(["apply_patch <<'END_OF_PATCH'", "*** Begin Patch", head, *lines, "*** End Patch", "END_OF_PATCH"])


def _sage(model: str) -> CodeAgent:
    flags = ["--model", model, "--permission-mode", "bypass", "--output-format", "stream-json"]
    vendor = model.partition("/")[0]
    return CodeAgent(
        f"sage ({vendor})",
        "lyra.cli.main",
        lambda prompt, _url: [*SAGE, "-p", prompt, *flags],
        lambda prompt, _url: [*SAGE, "-c", "-p", prompt, *flags],
        lambda url: {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "mock",
            "OPENAI_API_KEY": "mock",
            "OPENAI_BASE_URL": f"{url}/v1",
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        _claude_like,
    )


def _claude_agent() -> CodeAgent:
    program = str(_TOOLS / "node_modules" / ".bin" / "claude")
    flags = ["--model", CLAUDE_MODEL, "--output-format", "stream-json", "--verbose", "--include-partial-messages"]
    flags += ["--allowedTools", "Bash Edit Write Read Grep Glob"]
    return CodeAgent(
        "claude",
        "claude",
        lambda prompt, _url: [program, "-p", prompt, *flags],
        lambda prompt, _url: [program, "-c", "-p", prompt, *flags],
        lambda url: {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "mock", **_QUIET},
        _claude_like,
    )


def _codex_agent() -> CodeAgent:
    program = str(_TOOLS / "node_modules" / ".bin" / "codex")

    def flags(url: str) -> list[str]:
        provider = f'{{name="mock", base_url="{url}/v1", env_key="OPENAI_API_KEY", wire_api="responses"}}'
        return [
            *("--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", OPENAI_MODEL),
            *("-c", 'model_provider="mock"', "-c", f"model_providers.mock={provider}"),
        ]

    return CodeAgent(
        "codex",
        "codex",
        lambda prompt, url: [program, "exec", *flags(url), prompt],
        lambda prompt, url: [program, "exec", "resume", "--last", *flags(url), prompt],
        lambda _url: {"OPENAI_API_KEY": "mock"},
        _codex_like,
    )


def agents(names: Sequence[str]) -> list[CodeAgent]:
    """Return the agents that are asked for and installed."""
    found = [_sage(f"anthropic/{CLAUDE_MODEL}"), _sage(f"openai/{OPENAI_MODEL}")] if "sage" in names else []
    installed = shutil.which("node") is not None and (_TOOLS / "installed").exists()
    found += [_claude_agent()] if installed and "claude" in names else []
    found += [_codex_agent()] if installed and "codex" in names else []
    return found


# ---------------------------------------------------------------- one run
class RunFigures(NamedTuple):
    """What one run of an agent came to."""

    code: int
    lines: list[dict[str, Any]]
    cpu_s: float
    memory_bytes: int
    wall_s: float
    request_s: float  # from the start to the first request
    words_s: float  # from the start to the first words of the answer on stdout


def _environment(agent: CodeAgent, home: Path, url: str) -> dict[str, str]:
    home.mkdir(exist_ok=True)
    codex = home / "codex"
    codex.mkdir(exist_ok=True)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "CODEX_HOME": str(codex),
        "LANG": "C.UTF-8",
        **agent.env(url),
    }


async def run_agent(agent: CodeAgent, words: list[str], folder: Path, home: Path, model: ScriptedModel) -> RunFigures:
    """Run an agent to its end and measure the tree of its processes."""
    began_s = _CLOCK.monotonic()
    sent_before = len(model.sent)
    started = await start(agent, words, folder, home, model.url)
    peak = MemoryPeak(started.pid)
    lines: list[dict[str, Any]] = []
    words_s = 0.0
    try:
        async with asyncio.timeout(RUN_S), asyncio.TaskGroup() as group:
            watching = group.create_task(peak.watch())
            async for raw in started.stdout:
                if not words_s and _ANSWER.split()[0] in raw.decode("utf-8", "replace"):
                    words_s = _CLOCK.monotonic() - began_s
                with suppress(ValueError):
                    lines.append(json.loads(raw))
            _, status, usage = await asyncio.to_thread(os.wait4, started.pid, 0)
            watching.cancel()
    except TimeoutError:
        kill_all(started.pid)
        raise
    wall_s = _CLOCK.monotonic() - began_s
    main = [sent for sent in model.sent[sent_before:] if sent.tools]
    request_s = main[0].at_s - began_s if main else 0.0
    code = os.waitstatus_to_exitcode(status)
    return RunFigures(code, lines, usage.ru_utime + usage.ru_stime, peak.bytes, wall_s, request_s, words_s)


class MemoryPeak:
    """The most memory that a process and those below it had of their own, looked at ten times a second."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._pid = pid

    async def watch(self) -> None:
        while True:
            self.bytes = max(self.bytes, sum(map(_proportional_bytes, below(self._pid))))
            await asyncio.sleep(0.1)


def _proportional_bytes(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def below(pid: int) -> Iterator[int]:
    """Yield a process and all those that it has started."""
    yield pid
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                yield from below(int(child))


def kill_all(pid: int) -> None:
    for child in list(below(pid)):
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


class StartedAgent(NamedTuple):
    pid: int
    stdin: int
    stdout: asyncio.StreamReader


async def start(
    agent: CodeAgent, words: list[str], folder: Path, home: Path, url: str, *, speaks: bool = False
) -> StartedAgent:
    """Start an agent in a folder. Its end is waited for by `os.wait4`, which tells what it used; with `speaks` its
    stdin is open."""
    out_read, out_write = os.pipe()
    in_read, in_write = os.pipe() if speaks else (os.open(os.devnull, os.O_RDONLY), -1)
    errors = os.open(folder.parent / "errors.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    actions = [(os.POSIX_SPAWN_DUP2, given, number) for number, given in enumerate((in_read, out_write, errors))]
    env = _environment(agent, home, url)
    pid = os.posix_spawnp(  # noqa: ASYNC221 - it does not wait
        "env", ["env", "-C", str(folder), *words], env, file_actions=actions, setpgroup=0
    )
    for descriptor in (out_write, errors, in_read):
        os.close(descriptor)
    reader = asyncio.StreamReader(limit=64 << 20)
    loop = asyncio.get_running_loop()
    pipe = os.fdopen(out_read, "rb", buffering=0)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return StartedAgent(pid, in_write, reader)


def command_line(pid: int) -> str:
    """Return the words of a process, with a NUL between them; "" once it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
    return ""
