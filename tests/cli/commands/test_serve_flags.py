"""Each flag of `lyra serve` and `lyra worker` is seen in the server and the worker that the command makes."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from lyra.server.client.worker import Worker
from lyra.server.serve import Server
from tests.server.certificates import issue

TOKEN = "operator-token-0123456789"
ADA = "ada-token-0123456789abcdef"
LOOPBACK = "127.0.0.1:0"


@pytest.fixture(autouse=True)
def files(lyra: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that flags name."""
    monkeypatch.setenv("LYRA_TOKEN", TOKEN)
    folder = Path(lyra.folder)
    (folder / "tokens").write_text(f"{ADA} ada\n")
    (folder / "tokens").chmod(0o600)
    (folder / "setup.py").write_text("def setup(target):\n    target.register_agent('brew', print)\n")
    authority = issue("authority")
    (folder / "ca.pem").write_bytes(authority.cert)
    for name in ("server", "client"):
        pair = issue(name, authority)
        (folder / f"{name}.pem").write_bytes(pair.cert)
        (folder / f"{name}.key").write_bytes(pair.key)


# ---------------------------------------------------------------- lyra serve
def served(lyra: Any, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[Server, dict[str, str]]:
    """A `lyra serve` that is told to stop as soon as it is ready: the server, and its line."""
    servers: list[Server] = []
    ready_line = Server.ready_line

    def stop_at_once(server: Server) -> dict[str, str]:
        if not servers:  # one with a gateway says where it is more than once
            servers.append(server)
            signal.raise_signal(signal.SIGTERM)
        return ready_line(server)

    with monkeypatch.context() as patch:
        patch.setattr(Server, "ready_line", stop_at_once)
        done = lyra("serve", *words)
    assert done.returncode == 0, done.stderr
    return servers[0], json.loads(done.stdout)


def test_addresses_and_the_store_of_a_server(lyra: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--grpc`, `--http` and `--db`."""
    server, line = served(lyra, monkeypatch, "--grpc", LOOPBACK, "--http", LOOPBACK, "--db", "k.db")
    assert line == {"grpc": str(server.grpc), "http": f"http://{server.http}"}
    assert (lyra.folder / "k.db").exists()
    assert served(lyra, monkeypatch, "--grpc", "none", "--http", LOOPBACK, "--db", "memory")[1].keys() == {"http"}
    assert served(lyra, monkeypatch, "--grpc", LOOPBACK, "--http", "none", "--db", "memory")[1].keys() == {"grpc"}


def test_tokens_and_agents_of_a_server(lyra: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--token-file` and `--load`."""
    words = ("--grpc", LOOPBACK, "--http", "none", "--db", "memory")
    server, _ = served(lyra, monkeypatch, *words, "--token-file", "tokens", "--load", "setup.py")
    assert server.settings.tokens.caller(ADA).user_id == "ada"
    assert server.kernel.orchestrator.agents.find("brew") is not None


def test_tls_of_a_server(lyra: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--tls-cert`, `--tls-key` and `--tls-client-ca`."""
    words = ("--grpc", "none", "--http", LOOPBACK, "--db", "memory")
    tls = ("--tls-cert", "server.pem", "--tls-key", "server.key", "--tls-client-ca", "ca.pem")
    server, line = served(lyra, monkeypatch, *words, *tls)
    assert line["http"].startswith("https://")
    assert server.settings.tls is not None
    assert (server.settings.tls.cert, server.settings.tls.key) == ("server.pem", "server.key")
    assert server.settings.tls.client_ca == "ca.pem"


def test_flags_of_a_server_are_settings_in_force(lyra: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page of settings lists is what the server was started with: `--gateway`, `--token-file` and the files of
    TLS too, with the flag as their origin."""
    tls = {"tls_cert": "server.pem", "tls_key": "server.key", "tls_client_ca": "ca.pem"}
    flags = [word for name, path in tls.items() for word in (f"--{name.replace('_', '-')}", path)]
    words = ("--grpc", "none", "--http", LOOPBACK, "--db", "memory", "--gateway", "--token-file", "tokens")
    server, _ = served(lyra, monkeypatch, *words, *flags)
    assert server.settings.gateway
    assert server.kernel.config is not None
    rows = {row.name: (row.value, row.origin.kind) for row in server.kernel.config.rows()}
    origin = rows["server.http"][1]
    given = {"gateway": True, "token_file": "tokens", **tls}
    assert {name: rows[f"server.{name}"] for name in given} == {name: (value, origin) for name, value in given.items()}


def test_a_folder_that_a_server_trusts(lyra: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--trust-folder`: the settings of the folder's own file count."""
    (lyra.folder / "lyra.toml").write_text('[kernel]\nstore = "trusted.db"\n')
    words = ("--grpc", LOOPBACK, "--http", "none")
    served(lyra, monkeypatch, *words)
    assert not (lyra.folder / "trusted.db").exists()
    served(lyra, monkeypatch, *words, "--trust-folder")
    assert (lyra.folder / "trusted.db").exists()


# ---------------------------------------------------------------- lyra worker
def worker_of(lyra: Any, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[Worker, str]:
    """A `lyra worker` that is ready and leaves: the worker, and its line."""
    workers: list[Worker] = []

    async def leave_at_once(worker: Worker, ready: Any) -> None:
        workers.append(worker)
        ready()

    monkeypatch.setattr(Worker, "run", leave_at_once)
    done = lyra("worker", "--load", "setup.py", *words)
    assert done.returncode == 0, done.stderr
    return workers[0], done.stdout


def test_what_a_worker_serves_and_how(lyra: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--server`, `--load`, `--name`, `--concurrency` and `--lease`; with `--json` its line is JSON."""
    words = ("--server", "127.0.0.1:7", "--name", "w1", "--concurrency", "3", "--lease", "9", "--json")
    worker, line = worker_of(lyra, monkeypatch, *words)
    assert json.loads(line) == {"worker": "w1", "server": "127.0.0.1:7", "agents": ["brew"], "services": []}
    assert (worker._concurrency, worker._lease_s) == (3, 9.0)


def test_for_whom_a_worker_works(lyra: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--token-file` and `--user`; without the file the variable LYRA_TOKEN has the token."""
    worker, _ = worker_of(lyra, monkeypatch, "--server", "127.0.0.1:7", "--token-file", "tokens", "--user", "ada")
    assert (worker._connection.settings.token, worker._connection.settings.user_id) == (ADA, "ada")
    worker, _ = worker_of(lyra, monkeypatch, "--server", "127.0.0.1:7")
    assert worker._connection.settings.token == TOKEN


def test_how_a_worker_reaches_its_server(lyra: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--tls`, `--tls-ca` with a certificate of its own, or `--plaintext`, for a server on another machine."""
    away = ("--server", "192.0.2.1:7")
    worker, _ = worker_of(lyra, monkeypatch, *away, "--tls")
    assert worker._connection.settings.tls is True
    own = ("--tls-ca", "ca.pem", "--tls-cert", "client.pem", "--tls-key", "client.key")
    worker, _ = worker_of(lyra, monkeypatch, *away, *own)
    assert worker._connection.settings.tls == {"ca": "ca.pem", "cert": "client.pem", "key": "client.key"}
    worker, _ = worker_of(lyra, monkeypatch, *away, "--plaintext")
    assert not worker._connection.settings.tls


def test_a_folder_that_a_worker_trusts(lyra: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--trust-folder`: the settings of the folder's own file count."""
    (lyra.folder / "lyra.toml").write_text('[server]\ngrpc = "127.0.0.1:7"\n')
    worker, _ = worker_of(lyra, monkeypatch)
    assert worker.address != "127.0.0.1:7"
    worker, _ = worker_of(lyra, monkeypatch, "--trust-folder")
    assert worker.address == "127.0.0.1:7"


@pytest.mark.parametrize(
    ("flags", "missing", "sentence"),
    [
        (["--http", "127.0.0.1:0", "--grpc", "none"], ["uvicorn"], "serving over HTTP needs the server extra"),
        (["--http", "127.0.0.1:0"], ["grpc", "uvicorn"], "serving over gRPC and HTTP needs the server extra"),
        (["--grpc", "127.0.0.1:0"], ["grpc"], "serving over gRPC needs the server extra"),
    ],
)
def test_a_missing_extra_is_told_by_what_was_asked_for(
    lyra: Any, monkeypatch: pytest.MonkeyPatch, flags: list[str], missing: list[str], sentence: str
) -> None:
    """One sentence with the pip command, before the store is made."""
    for module in missing:
        monkeypatch.setitem(sys.modules, module, None)
    done = lyra("serve", "--db", "k.db", *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert "pip install 'lyra-agents[server]'" in done.stderr
    assert not (lyra.folder / "k.db").exists()


def test_a_host_of_a_cluster_tells_what_is_missing(lyra: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """First the cluster, then the extra: an installation without it ends in a sentence, too."""
    for module in [name for name in sys.modules if name.startswith("lyra.server.cluster")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "grpc", None)
    done = lyra("serve", "--cluster")
    assert (done.returncode, "no cluster is named" in done.stderr) == (2, True), done.stderr
    done = lyra("serve", "--cluster", "--store", "postgresql://127.0.0.1:1/none")
    assert done.returncode == 2
    assert "needs the cluster extra" in done.stderr
    assert "pip install 'lyra-agents[cluster]'" in done.stderr
