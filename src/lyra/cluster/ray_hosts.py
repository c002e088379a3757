"""Hosts that Ray starts: one actor on each node of a Ray cluster, which is a host like any other.

    started = lyra.cluster.ray_hosts.start("postgresql://…", "10.0.0.1:6379", load=["jobs.py"])

Ray starts the processes, knows what each node has (CPUs, graphics cards, resources of your own) and carries the calls
between them. It decides nothing: a shard is taken over when its lease in PostgreSQL is over, whether Ray has noticed
the end of a node or not. An actor that Ray starts again joins as a fresh host under its old name, once the row of its
earlier life is over. Actors are detached: they outlive the process that started them, until `stop`.

A host counts on nothing of Ray's but its actor. It asks Ray for no CPUs, so that Ray's own tasks may run beside it, and
sees all graphics cards of its node. When Ray's head is lost, Ray ends its nodes after a minute or so, and the hosts on
them with these; hosts that were started by hand take over.

Such a host has two ways in, and an address that names both: `ray:NAME@HOST:PORT`, its actor in a namespace of the
cluster's own and its gRPC port. `RayCarrier` chooses by the address: other Ray hosts by their actors, hosts that were
started by hand over gRPC. A process that is not connected to Ray calls the gRPC port with `GrpcCarrier`. An actor that
Ray calls dead, or does not find, is unreachable and nothing more: its leases decide about its shards. A call that is
given up may still be made when a frozen host wakes up; it finds the shards fenced.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import runpy
import sys
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from lyra.cluster.directory import PostgresDirectory
from lyra.cluster.host import Host
from lyra.cluster.peers import TLS, GrpcCarrier, GrpcListener, PeerTls, answer_encoded, read_answer
from lyra.config import Config
from lyra.core import codec
from lyra.core.address import Address
from lyra.core.secrets.secret import Secret
from lyra.errors import (
    ConfigError,
    Conflict,
    DeadlineExceeded,
    LyraError,
    StoreError,
    Unreachable,
    error_from_data,
    error_to_data,
)
from lyra.kernel.base.tasks import Tasks
from lyra.kernel.kernel import Kernel
from lyra.kernel.seams import Seams

_log: Final = logging.getLogger("lyra.cluster")
JOIN_S: Final = 60.0  # that a node gets to start the process of its host, and that host to join
_LEAVE_S: Final = 60.0
_CALLS_AT_ONCE: Final = 10_000  # each call that waits for the end of a process counts
_RETRY_S: Final = 0.5
_NOT_OF_NODES: Final = ("node:", "object_store_memory")  # what Ray counts as resources and a program does not ask for
SETUP_MODULE: Final = "lyra_server_setup"  # the module of programs in files of --load, with every command that has it
_OWN_NAMES: Final = {"CPU": "cpu", "GPU": "gpu"}
SCHEME: Final = "ray:"
_INLINE_BYTES_MAX: Final = 64 * 1024  # larger ones would go through Ray's object store, which takes longer than gRPC


class CodeFile(msgspec.Struct, frozen=True):
    """A Python file with `setup(kernel)`: its text travels to the nodes."""

    file: str
    text: str


class Orders(msgspec.Struct, frozen=True):
    """All that the actor of a host is given, at its first start and at each one after."""

    url: str
    name: str
    ip: str
    code: tuple[CodeFile, ...]
    resources: Mapping[str, float]
    settings: tuple[str, ...]  # NAME=VALUE, before those of the node's own files and environment


class RayHost(NamedTuple):
    """A host on a node of Ray's, or why there is none."""

    name: str
    node: str  # Ray's id of it
    address: str
    problem: str = ""


class HostActor:
    """The process on a node. Its constructor does not wait: joining may have to wait for the end of an earlier life."""

    def __init__(self, orders: bytes) -> None:
        with suppress(OSError):  # Ray has its workers yield to everything else, and a lease has to be renewed in time
            os.setpriority(os.PRIO_PROCESS, 0, 0)
        self._orders = msgspec.json.decode(orders, type=Orders)
        self._tasks = Tasks()
        self._host: Host | None = None
        self._carrier: RayCarrier | None = None
        self._joining = self._tasks.start(self._join(), name="lyra-ray-host")

    async def _join(self) -> str:
        orders = self._orders
        logging.getLogger("lyra").setLevel(logging.INFO)
        setup = load_code(orders.code)
        config = Config.load(flags=list(orders.settings))
        tls = PeerTls.from_config(config)

        def make_kernel(_shard: str, store: Any, seams: Seams) -> Kernel:
            lease_s = directory.lease_s
            return Kernel.from_config(config, store=store, seams=seams, lease_s=lease_s, lease_wait_s=lease_s + 1.0)

        while True:
            listener = GrpcListener(str(Address(orders.ip, 0)), tls=tls)
            try:
                directory = await asyncio.to_thread(PostgresDirectory, orders.url)
                carrier = RayCarrier(directory.secret, tls)
                await listener.start(lambda method, data: self._require_host().answer(method, data), directory.secret)
                address = ray_address(orders.name, listener.address)
                host = Host(
                    directory,
                    carrier,
                    name=orders.name,
                    address=address,
                    setup=setup,
                    make_kernel=make_kernel,
                    resources=orders.resources,
                )
                await host.start()
            except StoreError as error:  # its earlier life is still in the directory, or PostgreSQL is away
                _log.warning("host %s does not join yet: %s", orders.name, error)
                await listener.close()
                await asyncio.sleep(_RETRY_S)
                continue
            self._host, self._carrier = host, carrier
            self._listener = listener
            return address

    def _require_host(self) -> Host:
        if self._host is None:
            raise Conflict(f"host {self._orders.name} has not joined yet", elsewhere=True)
        return self._host

    async def answer(self, request: bytes) -> bytes:
        """Answer a call of another host, or of a client that is connected to Ray."""
        return await answer_encoded(lambda method, data: self._require_host().answer(method, data), request)

    async def wait_joined(self) -> dict[str, Any]:
        """Return the address once the host has joined, or why it cannot."""
        try:
            return {"address": await asyncio.shield(self._joining)}
        except LyraError as error:
            return {"error": error_to_data(error)}

    async def count_calls(self) -> dict[str, int]:
        """Return how many calls this host has made, by the way they went."""
        return dict(self._carrier.carried) if self._carrier is not None else {}

    async def leave(self) -> None:
        """Give the shards away and leave the cluster."""
        await self._tasks.close()
        host, self._host = self._host, None
        if host is not None:
            await host.close()
            await self._listener.close()


# ---------------------------------------------------------------- what hosts run


def read_code(load: Iterable[str]) -> tuple[CodeFile, ...]:
    """Read the Python files that hosts are to run."""
    code = []
    for entry in load:
        file = Path(entry)
        try:
            code.append(CodeFile(file.name, file.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{entry} cannot be read: {error}", key="--load") from None
    return tuple(code)


def load_code(code: Sequence[CodeFile]) -> Callable[[Kernel], Any]:
    """Run the files that a host was given; returns the one `setup(kernel)` that calls those of all of them.

    They lie side by side in a folder of their own, so that they can import one another, and their programs have the
    names that `lyra cluster start --load` gives them."""
    folder = tempfile.mkdtemp(prefix="lyra-code-") if code else ""
    for piece in code:
        Path(folder, piece.file).write_text(piece.text, encoding="utf-8")
    if code:
        sys.path.insert(0, folder)
    setups = []
    for piece in code:
        try:
            setup = runpy.run_path(str(Path(folder, piece.file)), run_name=SETUP_MODULE).get("setup")
        except (Exception, SystemExit) as error:
            raise ConfigError(f"{piece.file} cannot be run: {type(error).__name__}: {error}", key="--load") from error
        if not callable(setup):
            hint = "write def setup(kernel): …"
            raise ConfigError(f"{piece.file} has no function setup(kernel)", hint=hint, key="--load")
        setups.append(setup)

    async def run(kernel: Kernel) -> None:
        for setup in setups:
            began = setup(kernel)
            if began is not None:
                await began

    return run


# ---------------------------------------------------------------- starting and stopping


def start(
    url: str,
    address: str | None = None,
    *,
    load: Iterable[str] = (),
    hosts: int | None = None,
    settings: Iterable[str] = (),
    shards: int | None = None,
    lease_s: float | None = None,
) -> list[RayHost]:
    """Start a host on each node of a Ray cluster that has none; returns when they have joined. Blocks.

    `address` is that of Ray's head; by default the one of RAY_ADDRESS, else the one on this machine. `hosts` is how
    many nodes get a host at most, `load` files with `setup(kernel)`. `settings` are NAME=VALUE as in lyra.toml.
    `shards` and `lease_s` are those of a new cluster. Nodes that came since are covered by calling it again. A node
    that gives no host, as one that is dead while Ray has not noticed, is told in its `problem`.
    """
    code = read_code(load)
    directory = PostgresDirectory(url, shards=shards, lease_s=lease_s)
    secret = directory.secret
    directory.close()
    with _connect(address) as ray:
        nodes = sorted((node for node in ray.nodes() if node["Alive"]), key=lambda node: str(node["NodeID"]))
        if not nodes:
            raise ConfigError("the Ray cluster has no living node", hint="ray status lists them")
        actors = []
        for node in nodes[:hosts]:
            name, ip = host_name(node["NodeID"]), node["NodeManagerAddress"]
            orders = Orders(url, name, ip, code, resources_of(node), tuple(settings))
            actors.append((name, str(node["NodeID"]), _start_actor(ray, namespace_of(secret), node["NodeID"], orders)))
        started = _wait_joined(ray, actors)
    if all(host.problem for host in started):
        raise StoreError(started[0].problem)
    return started


def stop(url: str, address: str | None = None) -> list[str]:
    """Have the hosts on a Ray cluster leave in order, and end their actors; returns their names. Blocks."""
    directory = PostgresDirectory(url, make=False)
    namespace = namespace_of(directory.secret)
    directory.close()
    with _connect(address) as ray:
        named = ray.util.list_named_actors(all_namespaces=True)
        names = sorted(actor["name"] for actor in named if actor["namespace"] == namespace)
        actors = [ray.get_actor(name, namespace=namespace) for name in names]
        leaving = [actor.leave.remote() for actor in actors]
        if leaving:
            ray.wait(leaving, num_returns=len(leaving), timeout=_LEAVE_S)
        for actor in actors:
            ray.kill(actor, no_restart=True)
    return names


def host_name(node_id: str) -> str:
    """Return the name of the host on a node: another start of Ray there is another node."""
    return f"ray-{node_id[:12]}"


def resources_of(node: Mapping[str, Any]) -> dict[str, float]:
    """Return what Ray says that a node has, as `lyra cluster status` shows it: `cpu`, `gpu` and those of its own."""
    kept = {
        _OWN_NAMES.get(name, name): float(amount)
        for name, amount in node["Resources"].items()
        if not name.startswith(_NOT_OF_NODES)
    }
    return {"cpu": 0.0, "gpu": 0.0, **kept}


@contextmanager
def _connect(address: str | None) -> Iterator[Any]:
    """Connect this process to a Ray cluster for a while, or use the connection that it has."""
    ray = load_ray()
    if ray.is_initialized():
        yield ray
        return
    try:
        with redirect_stdout(sys.stderr):
            ray.init(address=address or "auto", log_to_driver=False, logging_level=logging.WARNING)
    except (ConnectionError, ValueError, ray.exceptions.RayError, RuntimeError) as error:
        where = f"Ray at {address}" if address else "Ray on this machine"
        told = str(error).strip().splitlines()[:1]
        raise ConfigError(
            f"{where} cannot be reached: {' '.join(told)}", hint="ray start --head starts one; --ray names its address"
        ) from None
    try:
        with redirect_stdout(sys.stderr):  # Ray prints what its nodes log
            yield ray
    finally:
        ray.shutdown()


def _start_actor(ray: Any, namespace: str, node_id: str, orders: Orders) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    options = {
        "name": orders.name,
        "namespace": namespace,
        "get_if_exists": True,
        "lifetime": "detached",
        "num_cpus": 0,
        "max_concurrency": _CALLS_AT_ONCE,
        "max_restarts": -1,
        "max_task_retries": 0,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False),
        # Older versions of Ray show no graphics card to an actor that asks for none.
        "runtime_env": {"env_vars": {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}},
    }
    return ray.remote(HostActor).options(**options).remote(msgspec.json.encode(orders))


def _wait_joined(ray: Any, actors: Sequence[tuple[str, str, Any]]) -> list[RayHost]:
    """Wait until each host has joined; raises the error of one that cannot, such as a file that cannot be run."""
    joining = [actor.wait_joined.remote() for _, _, actor in actors]
    ray.wait(joining, num_returns=len(joining), timeout=JOIN_S)
    started = []
    for (name, node, actor), joined in zip(actors, joining, strict=True):
        try:
            told = ray.get(joined, timeout=0)
        except ray.exceptions.GetTimeoutError:
            started.append(RayHost(name, node, "", f"host {name} has not joined within {JOIN_S:g} s"))
            continue
        except ray.exceptions.RayError as error:
            started.append(RayHost(name, node, "", f"Ray cannot start host {name}: {error}"))
            continue
        if "error" in told:
            ray.kill(actor, no_restart=True)
            raise error_from_data(told["error"])
        started.append(RayHost(name, node, str(told["address"])))
    return started


def ray_address(name: str, grpc_address: str) -> str:
    return f"{SCHEME}{name}@{grpc_address.removeprefix(TLS)}"


def actor_name(address: str) -> str:
    """Return the name of a host's actor; "" where Ray did not start it."""
    return address.removeprefix(SCHEME).rpartition("@")[0] if address.startswith(SCHEME) else ""


def namespace_of(secret: Secret) -> str:
    """Return the namespace that the actors of one cluster have to themselves."""
    return f"lyra-{hashlib.sha256(b'namespace ' + secret.reveal().encode()).hexdigest()[:16]}"


def load_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ConfigError("hosts on Ray need the ray extra", hint="pip install 'lyra-agents[ray]'") from error
    return ray


class RayCarrier:
    """See the module. The process has to be connected to Ray."""

    def __init__(self, secret: Secret, tls: PeerTls | None = None) -> None:
        self._ray = load_ray()
        self._grpc = GrpcCarrier(secret, tls)
        self._namespace = namespace_of(secret)
        self._actors: dict[str, Any] = {}  # by address
        self.carried = {"ray": 0, "grpc": 0}  # calls that were answered, by the way they went

    async def call(self, address: str, method: str, data: Any, *, timeout_s: float) -> Any:
        name = actor_name(address)
        request = codec.encode([method, data]) if name else b""
        actor = None
        if name and len(request) <= _INLINE_BYTES_MAX:
            actor = self._actors.get(address) or await self._find(address)
        if actor is None:
            answer = await self._grpc.call(address, method, data, timeout_s=timeout_s)
            self.carried["grpc"] += 1
            return answer
        try:
            told = await asyncio.wait_for(actor.answer.remote(request), timeout_s)
        except TimeoutError:
            raise DeadlineExceeded(f"host {address} did not answer within {timeout_s:g} s") from None
        except self._ray.exceptions.RayError as lost:
            self._actors.pop(address, None)
            raise Unreachable(f"host {address} cannot be reached: {type(lost).__name__}") from None
        self.carried["ray"] += 1
        return read_answer(told)

    async def _find(self, address: str) -> Any:
        """Look a host's actor up; None where Ray knows none, or does not answer."""
        try:
            actor = await asyncio.to_thread(self._ray.get_actor, actor_name(address), namespace=self._namespace)
        except (ValueError, self._ray.exceptions.RayError):
            return None
        self._actors[address] = actor
        return actor

    def forget(self, alive: Container[str]) -> None:
        """Drop the channels and the actors of all hosts but those that are alive."""
        self._grpc.forget(alive)
        self._actors = {address: kept for address, kept in self._actors.items() if address in alive}

    async def close(self) -> None:
        self._actors.clear()
        await self._grpc.close()
