// The extension in a VS Code made of stubs: prints what it started, what it said and what it ended.
// `node activate.cjs EXTENSION COMMAND [fails]`
const Module = require("node:module");

const [extension, command, fails] = process.argv.slice(2);
const log = [];
let changed;
const vscode = {
  workspace: {
    getConfiguration: () => ({ get: () => command || undefined }),
    createFileSystemWatcher: (pattern) => ({ pattern, dispose() {} }),
    onDidChangeConfiguration: (heard) => ((changed = heard), { dispose() {} }),
  },
  commands: { registerCommand: (name) => (log.push(["command", name]), { dispose() {} }) },
  window: { showErrorMessage: (text) => log.push(["error", text]) },
};
class LanguageClient {
  constructor(id, name, server, client) {
    log.push(["client", id, server, client.documentSelector]);
  }
  async start() {
    if (fails) throw new Error("spawn ENOENT");
    this.running = true;
    log.push(["start"]);
  }
  needsStop() {
    return this.running === true;
  }
  async stop() {
    this.running = false;
    log.push(["stop"]);
  }
}
const load = Module._load;
Module._load = (name, ...rest) =>
  name === "vscode" ? vscode : name === "vscode-languageclient/node" ? { LanguageClient } : load(name, ...rest);

(async () => {
  const { activate, deactivate } = require(extension);
  await activate({ subscriptions: [] });
  await changed({ affectsConfiguration: (key) => key === "vega.command" });
  await deactivate();
  console.log(JSON.stringify(log));
})();
