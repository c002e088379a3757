"""Files, network and commands of a program: through the door, below its folder, by its Grant."""

from __future__ import annotations

import asyncio
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from lyra import Kernel, vega
from lyra.core import codec
from lyra.core.budgets.money import Money
from lyra.errors import ConfigError, SandboxUnavailable
from lyra.tools import http_guard
from lyra.vega.runtime.convert import from_python, to_python
from lyra.vega.values.values import Closure, Duration, Err, Fault, Ok, Process, equal
from tests.vega.recorded import Recorded


def printed(source: str, folder: Path, **options: Any) -> list[str]:
    lines: list[str] = []
    vega.run(source, stdout=lines.append, stderr=lambda _: None, folder=str(folder), **options)
    return lines


def denied(action: str, folder: Path, **options: Any) -> str:
    lines = printed(
        f'try {{ {action}; print("allowed"); }} catch CapabilityDenied(r) {{ print("denied " + r); }}',
        folder,
        **options,
    )
    return lines[0]


def test_files_below_the_folder(tmp_path):
    (tmp_path / "sub").mkdir()
    source = """
        file::write("sub/a.txt", "one\\n");
        file::append("sub/a.txt", "two");
        print(file::read("sub/a.txt"));
        print(file::exists("sub/a.txt")); print(file::exists("nothing"));
        print(file::list("sub")); print(file::list("."));
        file::remove("sub/a.txt");
        print(file::exists("sub/a.txt"));
    """
    assert printed(source, tmp_path) == ["one\ntwo", "true", "false", "[a.txt]", "[sub]", "false"]


def test_files_that_are_made_leave_no_descriptor_open(tmp_path):
    seen = []

    def count(_: str) -> None:
        seen.append(len(os.listdir("/proc/self/fd")))

    source = 'for i in list::range(0, 20) { file::write("a${i}.txt", "x"); print(i); }'
    vega.run(source, stdout=count, stderr=lambda _: None, folder=str(tmp_path))
    assert len(seen) == 20
    assert seen[-1] == seen[0]


def test_a_file_that_is_not_there(tmp_path):
    assert printed(
        'try { file::read("x"); } catch EffectFailed(r) { print(str::contains(r, "No such file")); }', tmp_path
    ) == ["true"]


@pytest.mark.parametrize("path", ["/etc/hostname", "../secret", "sub/../../secret"])
def test_paths_outside_are_denied(tmp_path, path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret").write_text("s")
    assert denied(f'file::read("{path}")', inside).startswith("denied")
    assert denied(f'file::write("{path}", "x")', inside).startswith("denied")
    assert (tmp_path / "secret").read_text() == "s"


def test_a_link_does_not_lead_out(tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret").write_text("s")
    (inside / "link").symlink_to(tmp_path / "secret")
    assert denied('file::read("link")', inside).startswith("denied")


@pytest.mark.parametrize("path", ["lyra.toml", ".lyra/permissions.toml", ".mcp.json", "link/x", "conf/lyra/answers"])
def test_lyras_own_files_are_not_written(tmp_path, monkeypatch, path):
    """Neither a project's nor the user's; reading them is up to the Grant."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "conf"))
    for folder in (".lyra", "conf/lyra"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "link").symlink_to(".lyra")
    for act in (f'file::write("{path}", "x")', f'file::append("{path}", "x")'):
        assert denied(act, tmp_path).startswith("denied")
    (tmp_path / path).write_text("ours")
    assert denied(f'file::remove("{path}")', tmp_path).startswith("denied")
    assert printed(f'print(file::read("{path}"));', tmp_path) == ["ours"]


def test_the_host_may_narrow_the_grant(tmp_path):
    (tmp_path / "a").write_text("x")
    grant = {"allow": [f"fs.read:{tmp_path}/**"]}
    assert printed('print(file::read("a"));', tmp_path, grant=grant) == ["x"]
    assert denied('file::write("a", "y")', tmp_path, grant=grant).startswith("denied")


def test_network_and_commands_need_a_tool_that_declares_them(tmp_path):
    assert denied('http::get("https://example.com/")', tmp_path).startswith("denied")
    assert denied('http::post("https://example.com/", "x")', tmp_path).startswith("denied")
    assert denied('exec("ls")', tmp_path).startswith("denied")


class _Inside(BaseHTTPRequestHandler):
    """A server that would answer everything."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"inside")

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("call", ['http::get("{}/")', 'http::post("{}/", "x")'])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_inside_addresses_are_refused_even_where_declared(tmp_path, host, call):
    """A server listens there and would answer: it is not asked."""
    tool = 'tool t() -> str capabilities [net::http] { return ""; } agent A { model "sim/echo" tools [t] }\n'
    with ThreadingHTTPServer(("127.0.0.1", 0), _Inside) as server:
        server.asked = asked = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        action = call.format(f"http://{host}:{server.server_port}")
        lines = printed(tool + f"try {{ print({action}.body); }} catch Error(r) {{ print(r); }}", tmp_path)
        server.shutdown()
    assert (len(lines), asked) == (1, [])
    assert "is refused: " in lines[0]


def test_a_declared_command_runs_in_the_sandbox(tmp_path):
    tool = 'tool t() -> str capabilities [process::exec] allowed_commands ["echo hi"] { return exec("echo hi"); }\n'
    try:
        lines = printed(
            tool + 'print(str::trim(t())); try { exec("echo no"); } catch CapabilityDenied { print("no"); }', tmp_path
        )
    except vega.VegaError as error:
        if error.name == "SandboxUnavailable":
            pytest.skip(f"no sandbox here: {SandboxUnavailable.__name__}")
        raise
    assert lines == ["hi", "no"]


def test_acts_are_effects_of_the_process(tmp_path):
    async def main() -> list[str]:
        names: list[str] = []
        async with Kernel() as kernel:
            kernel.on_event(lambda event: names.append(event.data["name"]), ["effect.started"])
            source = 'file::write("a", "x"); print(file::read("a")); twice(1);'
            await vega.run(
                source, kernel=kernel, folder=str(tmp_path), stdout=lambda _: None, host={"twice": lambda n: n}
            )
        return names

    assert asyncio.run(main()) == ["vega.file.write", "vega.file.read", "vega.host.twice"]


def test_time_and_chance(tmp_path):
    source = """
        print(time::now() > 1000000.0); print(str::len(time::iso()));
        let r = math::random(); print(r >= 0.0 && r < 1.0);
        let n = math::random_int(3, 5); print(n == 3 || n == 4);
    """
    assert printed(source, tmp_path) == ["true", "20", "true", "true"]


def test_values_there_and_back():
    value = [None, True, 1, 2.5, "x", Money(500_000), {"k": [1]}, {1: "int key"}]
    assert equal(from_python(to_python(value)), value)
    assert to_python([Duration(1_500_000_000), Ok(1), Err("e"), Process("p1")]) == [1.5, {"ok": 1}, {"err": "e"}, "p1"]
    with pytest.raises(Fault):
        to_python(Closure(0))


@pytest.mark.parametrize("path", [".envrc", ".git/hooks/pre-commit", ".git/config", "tools/watch", "scripts/env.sh"])
def test_files_that_other_programs_obey_are_not_written(tmp_path, path):
    """By their names, because git's settings name them, and as targets of links."""
    for name in (".git/hooks", ".git/objects", ".git/refs", "tools", "scripts"):
        (tmp_path / name).mkdir(parents=True)
    texts = {
        ".git/HEAD": "x",
        ".git/config": "[core]\nfsmonitor = tools/watch\n",
        "tools/watch": "",
        "scripts/env.sh": "",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / ".direnvrc").symlink_to("scripts/env.sh")
    for action in (f'file::write("{path}", "x")', f'file::append("{path}", "x")', f'file::remove("{path}")'):
        assert denied(action, tmp_path).startswith("denied")
    assert {name: (tmp_path / name).read_text() for name in texts} == texts
    assert denied('file::write("scripts/other.sh", "x")', tmp_path) == "allowed"


def test_a_request_in_doubt_is_named_with_its_address_and_place(tmp_path, monkeypatch):
    """A person reads what was sent where, and no key."""

    begun = asyncio.Event()

    async def fetch(*_: object, **__: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(http_guard, "fetch", fetch)
    recorded = Recorded(tmp_path)
    source = """
        tool pay() -> str capabilities [net::http] {
            return http::post("https://example.com/pay?api_key=sk-ant-abcdefghijklmnop12345", "{}").body;
        }
        print(pay());
    """
    recorded.run(source, stop_when=begun)
    while not (raised := [row for row in recorded.rows() if row.kind == "interrupt.created"]):
        recorded.resume(stop_after_s=0.3)
    assert codec.decode(raised[0].data)["question"] == (
        "Was POST https://example.com/pay?api_key=*** with 2 characters (prog.vega:3) performed? retry, skip or fail"
    )


def test_a_folder_that_is_away_ends_an_execution_and_not_the_run(tmp_path):
    """The next execution, which finds it again, writes the file."""
    recorded = Recorded(tmp_path)
    recorded.folder = work = tmp_path / "work"
    work.mkdir()
    recorded.run('process::sleep(500ms); file::write("a", "x"); print("written");', stop_after_s=0.2)
    work.rename(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=f"the folder {work} is not there"):
        recorded.resume()
    (tmp_path / "elsewhere").rename(work)
    assert recorded.resume() == ["written"]
    assert (work / "a").read_text() == "x"
