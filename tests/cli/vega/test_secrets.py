"""Keys that this machine knows reach neither a model nor the store of a run."""

from __future__ import annotations

import asyncio

from lyra.testing.mock import MockServer
from tests.cli.vega_runner import Vega, vega

__all__ = ["vega"]

KEY = "xyz-SECRETKEY-0123456789"
LEAK = """\
agent A { model "claude-sonnet-4-20250514" }
agent M { model "claude-sonnet-4-20250514" memory conversation }
let a = spawn A;
let m = spawn M;
let t = file::read("keyfile.txt");
print(a <- "key: " + t);
print(m <- "again: " + t);
for piece in a <~ "streamed: " + t { print(piece); }
print("read: " + t);
"""


def test_a_known_key_stays_where_it_is(vega: Vega):
    vega.write("keyfile.txt", f"token {KEY}")
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
    vega.write("keyfile.txt", f"token {KEY}")
    source = LEAK.replace("memory conversation", "").replace("claude-sonnet-4-20250514", "sim/echo", 1)
    vega.write("leak.vega", "\n".join(source.splitlines()[:6]))
    done = vega("run", "leak.vega", "--db", "run.db", "--run-id", "r")
    assert (done.returncode, done.stdout) == (0, "key: token ***\n"), done
