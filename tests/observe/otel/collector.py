"""A collector that records what arrives: OTLP over gRPC and over HTTP, on real sockets with free ports."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

_PATHS: dict[str, Any] = {
    "/v1/traces": trace_service_pb2.ExportTraceServiceRequest,
    "/v1/metrics": metrics_service_pb2.ExportMetricsServiceRequest,
    "/v1/logs": logs_service_pb2.ExportLogsServiceRequest,
}


class Collector:
    """What arrived, as the messages of OTLP."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[Any] = []
        self.paths: list[str] = []
        self._lock = threading.Lock()

    def take(self, path: str, request: Any) -> None:
        with self._lock:
            self.paths.append(path)
            self.requests.append(request)

    @property
    def spans(self) -> list[Any]:
        return [
            span
            for request in self.requests
            for part in getattr(request, "resource_spans", ())
            for scope in part.scope_spans
            for span in scope.spans
        ]

    def span(self, name: str) -> Any:
        (span,) = [span for span in self.spans if span.name == name]
        return span

    @property
    def metrics(self) -> dict[str, Any]:
        return {
            metric.name: metric
            for request in self.requests
            for part in getattr(request, "resource_metrics", ())
            for scope in part.scope_metrics
            for metric in scope.metrics
        }

    @property
    def logs(self) -> list[Any]:
        return [
            record
            for request in self.requests
            for part in getattr(request, "resource_logs", ())
            for scope in part.scope_logs
            for record in scope.log_records
        ]

    @property
    def resources(self) -> list[dict[str, Any]]:
        kinds = ("resource_spans", "resource_metrics", "resource_logs")
        return [
            attributes(part.resource)
            for request in self.requests
            for kind in kinds
            for part in getattr(request, kind, ())
        ]


def attributes(owner: Any) -> dict[str, Any]:
    """Attributes as plain data."""
    return {pair.key: _plain(pair.value) for pair in owner.attributes}


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    inner = getattr(value, kind)
    return [_plain(item) for item in inner.values] if kind == "array_value" else inner


@contextmanager
def grpc_collector() -> Iterator[Collector]:
    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    port = server.add_insecure_port("127.0.0.1:0")
    collector = Collector(f"http://127.0.0.1:{port}")

    class Servicer:
        def __init__(self, path: str, response: Any) -> None:
            self._path, self._response = path, response

        def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
            collector.take(self._path, request)
            return self._response()

    traces: Any = Servicer("traces", trace_service_pb2.ExportTraceServiceResponse)
    metrics: Any = Servicer("metrics", metrics_service_pb2.ExportMetricsServiceResponse)
    logs: Any = Servicer("logs", logs_service_pb2.ExportLogsServiceResponse)
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(traces, server)
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(metrics, server)
    logs_service_pb2_grpc.add_LogsServiceServicer_to_server(logs, server)
    server.start()
    try:
        yield collector
    finally:
        server.stop(None)


@contextmanager
def http_collector() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            request = _PATHS[self.path]()
            request.ParseFromString(body)
            collector.take(self.path, request)
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
