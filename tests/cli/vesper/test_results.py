"""Commands keep the results of idempotent nodes where `vesper.results` says."""

from __future__ import annotations

import pytest

from tests.vesper.runtime.conftest import redis, redis_servers  # noqa: F401 - fixtures
from verify.redis_server import RedisServer

NODE = """\
node_id: double_v1
type: function
intent: double a number
idempotent: true
inputs: {n: integer}
outputs:
  success: {twice: integer}
flow:
  - {step: double, operation: arithmetic, expression: "n * 2", output: twice}
"""


@pytest.mark.parametrize("source", ["variable", "flag", "file"])
def test_vesper_run_keeps_results_in_redis(lyra, redis: RedisServer, source):  # noqa: F811 - the fixture
    (lyra.folder / "double.vsp").write_text(NODE, encoding="utf-8")
    options: tuple[str, ...] = ()
    env = {}
    if source == "variable":
        env = {"LYRA_VESPER_RESULTS": redis.url}
    elif source == "flag":
        options = ("--set", f"vesper.results={redis.url}")
    else:
        settings = lyra.folder.parent / "home" / ".config" / "lyra" / "lyra.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text('vesper.results = "env:RESULTS"')
        env = {"RESULTS": redis.url}
    done = lyra("vesper", "run", "double.vsp", "--input-json", '{"n": 21}', *options, **env)
    assert done.returncode == 0, done.stderr
    assert "42" in done.stdout
    (key,) = redis.ask("KEYS", "*").splitlines()
    redis.ask("SET", key, '[{"twice": 43}, "python", []]')
    again = lyra("vesper", "run", "double.vsp", "--input-json", '{"n": 21}', *options, **env)
    assert "43" in again.stdout


def test_a_wrong_address_ends_a_command(lyra):
    (lyra.folder / "double.vsp").write_text(NODE, encoding="utf-8")
    address = "redis://:hunter2@host/name"
    done = lyra("vesper", "run", "double.vsp", "--input-json", '{"n": 21}', LYRA_VESPER_RESULTS=address)
    assert done.returncode == 2
    assert "no address of Redis" in done.stderr
    assert "hunter2" not in done.stdout + done.stderr
