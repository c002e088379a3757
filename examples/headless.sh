#!/bin/sh
# An agent as a step of a shell script: it corrects a file, and another program reads what it did.
#
#     sh examples/headless.sh --sim     # offline, with a script in the model's place
#     sh examples/headless.sh           # with a model: set LYRA_AGENT_MODEL and its provider's key
#
# What it may do is said here and nowhere else: edit in this folder, and run nothing.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
printf 'def add(a, b):\n    return a - b\n' > sums.py

if [ "${1:-}" = "--sim" ]; then
    LYRA_AGENT_MODEL="sim/script:$folder/replies.json"
    export LYRA_AGENT_MODEL
    cat > replies.json <<'REPLIES'
{"sequence": [
  {"tool_calls": [{"name": "Read", "arguments": {"file_path": "sums.py"}}]},
  {"tool_calls": [{"name": "Edit", "arguments": {"file_path": "sums.py", "old_string": "a - b", "new_string": "a + b"}}]},
  {"tool_calls": [{"name": "Bash", "arguments": {"command": "python sums.py"}}]},
  {"text": "add() subtracted; it adds now. I could not run it."}
]}
REPLIES
fi

lyra agent -p "add() in sums.py is wrong: correct it" \
    --permission-mode accept-edits --max-turns 20 --output-format stream-json > run.jsonl < /dev/null

echo "used: $(grep -o '"type": "tool_start", "id": "[^"]*", "name": "[^"]*"' run.jsonl | sed 's/.*"name": //' | tr -d '"' | tr '\n' ' ')"
echo "denied: $(grep -c '"permission_denied"' run.jsonl)"
tail -n 1 run.jsonl | sed 's/.*"status": "\([^"]*\)", "text": "\([^"]*\)".*/\1: \2/'
cat sums.py
