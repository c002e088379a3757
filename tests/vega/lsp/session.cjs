// A session with the server by the library that VS Code speaks with: `node session.cjs MODULES FOLDER PYTHON`.
// Prints what was heard as JSON.
const { spawn } = require("node:child_process");
const path = require("node:path");
const { createRequire } = require("node:module");

const [modules, folder, python] = process.argv.slice(2);
const need = createRequire(path.join(modules, "package.json"));
const lsp = need("vscode-languageserver-protocol/node");

const code = "import sys; from lyra.cli.main import vega; sys.exit(vega())";
const server = spawn(python, ["-c", code, "lsp"], { cwd: folder, stdio: ["pipe", "pipe", "inherit"] });
const connection = lsp.createProtocolConnection(
  new lsp.StreamMessageReader(server.stdout),
  new lsp.StreamMessageWriter(server.stdin),
);
const uri = `file://${folder}/main.vega`;
const text = 'agent Coder { model "sim/echo" }\nlet coder = spawn Coder;\nprnt(coder <- "hi");\n';
const textDocument = { uri };

(async () => {
  connection.listen();
  const heard = {};
  const told = new Promise((resolve) => {
    connection.onNotification(lsp.PublishDiagnosticsNotification.type, resolve);
  });
  const capabilities = { textDocument: { rename: { prepareSupport: true } } };
  heard.initialize = await connection.sendRequest(lsp.InitializeRequest.type, {
    processId: process.pid,
    rootUri: `file://${folder}`,
    workspaceFolders: null,
    capabilities,
  });
  await connection.sendNotification(lsp.InitializedNotification.type, {});
  await connection.sendNotification(lsp.DidOpenTextDocumentNotification.type, {
    textDocument: { uri, languageId: "vega", version: 1, text },
  });
  heard.diagnostics = await told;
  const position = { line: 1, character: 20 };
  heard.hover = await connection.sendRequest(lsp.HoverRequest.type, { textDocument, position });
  heard.definition = await connection.sendRequest(lsp.DefinitionRequest.type, { textDocument, position });
  heard.rename = await connection.sendRequest(lsp.RenameRequest.type, { textDocument, position, newName: "Writer" });
  heard.tokens = await connection.sendRequest(lsp.SemanticTokensRequest.type, { textDocument });
  await connection.sendRequest(lsp.ShutdownRequest.type);
  const ended = new Promise((resolve) => server.on("exit", resolve));
  await connection.sendNotification(lsp.ExitNotification.type);
  heard.code = await ended;
  console.log(JSON.stringify(heard));
  process.exit(0);
})();
