// Starts `vega lsp` and lets VS Code speak with it. What the language is, the server knows.
"use strict";

const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

function options() {
  const command = vscode.workspace.getConfiguration("vega").get("command") || "vega";
  const watcher = vscode.workspace.createFileSystemWatcher("**/*.vega");
  return {
    // No transport is named: the server speaks on stdio without flags.
    server: { command, args: ["lsp"] },
    client: {
      documentSelector: [
        { scheme: "file", language: "vega" },
        { scheme: "untitled", language: "vega" },
      ],
      synchronize: { fileEvents: watcher },
    },
    command,
    watcher,
  };
}

async function start(context) {
  const { server, client: settings, command, watcher } = options();
  context.subscriptions.push(watcher);
  client = new LanguageClient("vega", "Vega", server, settings);
  try {
    await client.start();
  } catch (error) {
    const how = `Is it installed? pip install 'lyra-agents[lsp]', or set "vega.command".`;
    vscode.window.showErrorMessage(`\`${command} lsp\` does not start: ${error.message}. ${how}`);
  }
}

async function stop() {
  const running = client;
  client = undefined;
  if (running !== undefined && running.needsStop()) {
    await running.stop();
  }
}

async function activate(context) {
  const restart = async () => {
    await stop();
    await start(context);
  };
  context.subscriptions.push(vscode.commands.registerCommand("vega.restart", restart));
  context.subscriptions.push(
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration("vega.command")) {
        return restart();
      }
    }),
  );
  await start(context);
}

module.exports = { activate, deactivate: stop };
