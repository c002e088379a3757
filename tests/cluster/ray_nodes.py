"""A Ray cluster as a process of its own: `python -m tests.cluster.ray_nodes FOLDER`, JSON lines in and out.

Ray starts threads, handles signals and prints; the process of the tests stays free of that. Each command is an object
with one key, a function below, and its arguments. At the end of stdin all of Ray is stopped.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any, Final

import ray
from ray.cluster_utils import Cluster

from lyra.cluster import ray_hosts
from lyra.cluster.directory import PostgresDirectory
from lyra.cluster.ray_hosts import RayCarrier, namespace_of

_STORE_BYTES: Final = 80 * 2**20


class Nodes:
    def __init__(self) -> None:
        self._cluster: Any = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 1, "object_store_memory": _STORE_BYTES, "include_dashboard": False},
        )
        ray.init(address=self._cluster.address, log_to_driver=False)

    def add(self, **resources: Any) -> dict[str, Any]:
        node = self._cluster.add_node(num_cpus=1, object_store_memory=_STORE_BYTES, **resources)
        return {"name": ray_hosts.host_name(node.node_id), "raylet": self._raylet_of(node)}

    def head(self) -> dict[str, Any]:
        node = self._cluster.head_node
        return {"name": ray_hosts.host_name(node.node_id), "raylet": self._raylet_of(node)}

    @staticmethod
    def _raylet_of(node: Any) -> int:
        return int(node.all_processes["raylet"][0].process.pid)

    def address(self) -> str:
        return str(self._cluster.address)

    def alive(self) -> list[str]:
        """Return the hosts whose nodes Ray believes to be alive."""
        return [ray_hosts.host_name(node["NodeID"]) for node in ray.nodes() if node["Alive"]]

    def start(self, url: str, **options: Any) -> list[str]:
        started = ray_hosts.start(url, self._cluster.address, **options)
        return [host.name for host in started if not host.problem]

    def carried(self, url: str, name: str) -> dict[str, int]:
        directory = PostgresDirectory(url, make=False)
        actor = ray.get_actor(name, namespace=namespace_of(directory.secret))
        return dict(ray.get(actor.count_calls.remote(), timeout=30))

    def call(self, url: str, name: str, method: str, data: dict[str, Any]) -> Any:
        """Call a host by its actor, as another one of Ray's does."""

        async def ask() -> Any:
            directory = PostgresDirectory(url, make=False)
            carrier = RayCarrier(directory.secret)
            answer = await carrier.call(directory.view().hosts[name].address, method, data, timeout_s=30.0)
            assert carrier.carried == {"ray": 1, "grpc": 0}
            await carrier.close()
            return answer

        return asyncio.run(ask())

    def close(self) -> None:
        ray.shutdown()
        self._cluster.shutdown()


def main(folder: str) -> None:
    os.environ["RAY_TMPDIR"] = folder
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # Ray prints what its nodes log
    nodes = Nodes()
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        ((command, options),) = json.loads(line).items()
        try:
            answer = {"answer": getattr(nodes, command)(**options)}
        except Exception as error:  # the test is told
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
    nodes.close()


if __name__ == "__main__":
    main(sys.argv[1])
