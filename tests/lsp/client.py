"""A client of the language server: JSON-RPC over the pipes of a real process, and nothing that pygls has a part in."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import lyra
from tests import warm

WAIT_S = 30.0


class Client:
    def __init__(self, folder: Path, *, encodings: list[str] | None = None, language: str = "vega") -> None:
        assert lyra.__file__ is not None
        env = {**os.environ, "PYTHONPATH": str(Path(lyra.__file__).parent.parent)}
        self.folder = folder
        self.language = language
        self.process = subprocess.Popen(
            [*warm.command(f"lyra.cli.main:{language}"), "lsp"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=env,
        )
        self._ids = 0
        self._encodings = encodings
        self._heard: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.notes: list[dict[str, Any]] = []  # notifications that no test asked for yet
        self.errors = b""
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._listen_errors, daemon=True).start()
        self.versions: dict[str, int] = {}

    # ---------------------------------------------------------------- the wire

    def _listen(self) -> None:
        out = self.process.stdout
        while True:
            length = 0
            while (line := out.readline()) not in (b"", b"\r\n"):
                name, _, value = line.partition(b":")
                assert name in (b"Content-Length", b"Content-Type"), f"not the protocol: {line!r}"
                if name == b"Content-Length":
                    length = int(value)
            if not line:
                self._heard.put(None)
                return
            self._heard.put(json.loads(out.read(length)))

    def _listen_errors(self) -> None:
        for line in self.process.stderr:
            self.errors += line

    def send_bytes(self, body: bytes) -> None:
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def send(self, message: dict[str, Any]) -> None:
        self.send_bytes(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def hear(self, timeout_s: float = WAIT_S) -> dict[str, Any]:
        message = self._heard.get(timeout=timeout_s)
        assert message is not None, f"the server is gone: {self.errors.decode()}"
        return message

    def ask(self, method: str, params: Any = None) -> dict[str, Any]:
        """The whole response."""
        self._ids += 1
        self.send({"id": self._ids, "method": method, **({} if params is None else {"params": params})})
        while True:
            message = self.hear()
            if message.get("id") == self._ids and "method" not in message:
                return message
            self.notes.append(message)

    def get(self, method: str, params: Any = None) -> Any:
        """The result of a request that goes well."""
        answer = self.ask(method, params)
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def tell(self, method: str, params: Any = None) -> None:
        self.send({"method": method, **({} if params is None else {"params": params})})

    # ---------------------------------------------------------------- a session

    def start(self, **more: Any) -> dict[str, Any]:
        general = {"general": {"positionEncodings": self._encodings}} if self._encodings else {}
        completion = {"completion": {"completionItem": {"snippetSupport": True}}}
        params = {
            "processId": os.getpid(),
            "rootUri": self.folder.as_uri(),
            "workspaceFolders": [{"uri": self.folder.as_uri(), "name": "here"}],
            "capabilities": {**general, "textDocument": completion},
            **more,
        }
        result: dict[str, Any] = self.get("initialize", params)
        self.tell("initialized", {})
        return result

    def stop(self) -> int:
        self.get("shutdown")
        self.tell("exit")
        return self.process.wait(WAIT_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(WAIT_S)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            pipe.close()

    def uri(self, name: str) -> str:
        return (self.folder / name).as_uri()

    def open(self, name: str, text: str) -> list[dict[str, Any]]:
        """Open a file; gives its diagnostics."""
        self.versions[name] = 1
        item = {"uri": self.uri(name), "languageId": self.language, "version": 1, "text": text}
        self.tell("textDocument/didOpen", {"textDocument": item})
        return self.diagnostics(name)

    def change(self, name: str, *changes: dict[str, Any]) -> None:
        self.versions[name] += 1
        document = {"uri": self.uri(name), "version": self.versions[name]}
        self.tell("textDocument/didChange", {"textDocument": document, "contentChanges": list(changes)})

    def edit(self, name: str, start: tuple[int, int], end: tuple[int, int], text: str) -> list[dict[str, Any]]:
        self.change(name, {"range": span(start, end), "text": text})
        return self.diagnostics(name)

    def diagnostics(self, name: str, *, version: int | None = None) -> list[dict[str, Any]]:
        """The next ones that are told about a file (of its present version)."""
        uri, version = self.uri(name), version or self.versions.get(name)
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            for index, note in enumerate(self.notes):
                told = note.get("params", {})
                if note.get("method") != "textDocument/publishDiagnostics" or told["uri"] != uri:
                    continue
                if version is None or told.get("version") in (None, version):
                    del self.notes[: index + 1]
                    diagnostics: list[dict[str, Any]] = told["diagnostics"]
                    return diagnostics
            self.notes.append(self.hear())
        raise AssertionError(f"nothing was said about {name}")

    def place_in(self, name: str, line: int, character: int, **more: Any) -> dict[str, Any]:
        position = {"line": line, "character": character}
        return {"textDocument": {"uri": self.uri(name)}, "position": position, **more}


def span(start: tuple[int, int], end: tuple[int, int]) -> dict[str, Any]:
    return {
        "start": {"line": start[0], "character": start[1]},
        "end": {"line": end[0], "character": end[1]},
    }
