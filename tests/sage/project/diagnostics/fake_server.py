"""A language server for tests: reports every line with BAD in it. What it does is said by words on its command line.

`pull` answers requests for diagnostics, else they are published; `twice` publishes an empty list first; `versions` says
for which version; `stale` first publishes something for the version before; `log FILE` writes the methods that it gets;
`mute` never publishes; `crash` ends at the first file; `slow` greets after a minute; `garbage` says what is no message;
`asks` asks the client something first; `odd` writes addresses in another way.
"""

import json
import sys
import time


def send(message):
    data = json.dumps({"jsonrpc": "2.0", **message}).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\nX-Other: 1\r\n\r\n" % len(data) + data)
    sys.stdout.buffer.flush()


def receive():
    length = 0
    while True:
        line = sys.stdin.buffer.readline()
        if not line:
            raise SystemExit(0)
        if not line.strip():
            return json.loads(sys.stdin.buffer.read(length))
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])


def problems(text):
    place = lambda number: {"start": {"line": number, "character": 0}, "end": {"line": number, "character": 3}}  # noqa: E731
    rows = [
        {"range": place(number), "severity": 1, "code": "E1", "message": line.strip()}
        for number, line in enumerate(text.split("\n"))
        if "BAD" in line
    ]
    return [*rows, {"range": place(0), "severity": 4, "message": "only a hint"}, "no diagnostic", {"message": 3}]


def main():
    words = sys.argv[1:]
    if "slow" in words:
        time.sleep(60)
    if "garbage" in words:
        print("hello, I am no server", flush=True)
    texts = {}
    while True:
        message = receive()
        method, params = message.get("method", ""), message.get("params") or {}
        if "log" in words:
            with open(words[words.index("log") + 1], "a") as file:
                file.write(f"{method}\n")
        if method == "initialize":
            if "asks" in words:
                send({"id": "q1", "method": "workspace/configuration", "params": {"items": [{}, {}]}})
                assert receive()["result"] == [None, None]
                send({"id": "q2", "method": "unheard/of", "params": None})
                assert "error" in receive()
            abilities = {"diagnosticProvider": {}} if "pull" in words else {}
            send({"id": message["id"], "result": {"capabilities": abilities}})
        elif method in ("textDocument/didOpen", "textDocument/didChange"):
            if "crash" in words:
                raise SystemExit(3)
            document = params["textDocument"]
            texts[document["uri"]] = document["text"] if "text" in document else params["contentChanges"][0]["text"]
            if "pull" in words or "mute" in words:
                continue
            version = {"version": document["version"]} if "versions" in words else {}
            uri = document["uri"].replace("file:///", "file://localhost/") if "odd" in words else document["uri"]
            if "stale" in words and document["version"] > 1:
                old = {"uri": uri, "diagnostics": [], "version": document["version"] - 1}
                send({"method": "textDocument/publishDiagnostics", "params": old})
                time.sleep(0.4)
            for text in ("", texts[document["uri"]]) if "twice" in words else (texts[document["uri"]],):
                report = {"uri": uri, "diagnostics": problems(text), **version}
                send({"method": "textDocument/publishDiagnostics", "params": report})
        elif method == "textDocument/diagnostic":
            send(
                {
                    "id": message["id"],
                    "result": {"kind": "full", "items": problems(texts[params["textDocument"]["uri"]])},
                }
            )


main()
