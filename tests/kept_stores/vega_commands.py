"""Runs commands of `vega` in a process of its own whose wall clock begins at another time.

    python vega_commands.py NOW '[["resume", "ahead", "--db", "kept.db", "--trace"], …]'

One command is run as it is. Of several, the exit code, the output and what went to stderr are printed as one JSON list.
The clock is moved before Lyra is imported, so that no time of Lyra's is another one.
"""

from __future__ import annotations

import io
import json
import socket
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import entry_points

real_time = time.time
offset_s = float(sys.argv[1]) - real_time()
time.time = lambda: real_time() + offset_s
socket.gethostname = lambda: "kept"  # the owner of a store is named after its machine

(entry,) = entry_points(group="console_scripts", name="vega")
vega = entry.load()
commands = json.loads(sys.argv[2])
if len(commands) == 1:
    sys.exit(vega(commands[0]))
results = []
for words in commands:
    with redirect_stdout(io.StringIO()) as output, redirect_stderr(io.StringIO()) as errors:
        code = vega(words)
    results.append([code, output.getvalue(), errors.getvalue()])
print(json.dumps(results))
