// Starts `vega lsp` and `vesper lsp` and lets VS Code speak with them. What the languages are, the servers know.
"use strict";

const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

const LANGUAGES = [
  { id: "vega", title: "Vega", files: "**/*.{vega,vsp}" }, // a program that imports a node depends on its file
  { id: "vesper", title: "Vesper", files: "**/*.vsp" },
];
const clients = new Map();

function options(language) {
  const command = vscode.workspace.getConfiguration(language.id).get("command") || language.id;
  const watcher = vscode.workspace.createFileSystemWatcher(language.files);
  return {
    // No transport is named: the server speaks on stdio without flags.
    server: { command, args: ["lsp"] },
    client: {
      documentSelector: [
        { scheme: "file", language: language.id },
        { scheme: "untitled", language: language.id },
      ],
      synchronize: { fileEvents: watcher },
    },
    command,
    watcher,
  };
}

async function start(context, language) {
  const { server, client: settings, command, watcher } = options(language);
  context.subscriptions.push(watcher);
  const client = new LanguageClient(language.id, language.title, server, settings);
  clients.set(language.id, client);
  try {
    await client.start();
  } catch (error) {
    const how = `Is it installed? pip install 'lyra-agents[lsp]', or set "${language.id}.command".`;
    vscode.window.showErrorMessage(`\`${command} lsp\` does not start: ${error.message}. ${how}`);
  }
}

async function stop(language) {
  const running = clients.get(language.id);
  clients.delete(language.id);
  if (running !== undefined && running.needsStop()) {
    await running.stop();
  }
}

async function activate(context) {
  const restarts = LANGUAGES.map((language) => async () => {
    await stop(language);
    await start(context, language);
  });
  LANGUAGES.forEach((language, index) => {
    context.subscriptions.push(vscode.commands.registerCommand(`${language.id}.restart`, restarts[index]));
  });
  context.subscriptions.push(
    vscode.workspace.onDidChangeConfiguration(async (event) => {
      for (const [index, language] of LANGUAGES.entries()) {
        if (event.affectsConfiguration(`${language.id}.command`)) {
          await restarts[index]();
        }
      }
    }),
  );
  for (const language of LANGUAGES) {
    await start(context, language);
  }
}

async function deactivate() {
  for (const language of LANGUAGES) {
    await stop(language);
  }
}

module.exports = { activate, deactivate };
