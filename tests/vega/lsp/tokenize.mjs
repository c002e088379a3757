// The tokens that VS Code's own engine finds in texts: `node tokenize.mjs MODULES GRAMMAR`, a JSON list of texts on stdin,
// for each a list of [line, start, end, scopes] on stdout.
import { createRequire } from "node:module";
import fs from "node:fs";
import path from "node:path";

const [modules, file] = process.argv.slice(2);
const require = createRequire(path.join(modules, "package.json"));
const textmate = require("vscode-textmate");
const oniguruma = require("vscode-oniguruma");

const wasm = fs.readFileSync(path.join(modules, "vscode-oniguruma", "release", "onig.wasm"));
await oniguruma.loadWASM(wasm.buffer.slice(wasm.byteOffset, wasm.byteOffset + wasm.byteLength));
const registry = new textmate.Registry({
  onigLib: Promise.resolve({
    createOnigScanner: (patterns) => new oniguruma.OnigScanner(patterns),
    createOnigString: (text) => new oniguruma.OnigString(text),
  }),
  loadGrammar: async () => textmate.parseRawGrammar(fs.readFileSync(file, "utf8"), file),
});
const grammar = await registry.loadGrammar("source.vega");

function tokens(text) {
  const found = [];
  let stack = textmate.INITIAL;
  text.split("\n").forEach((line, number) => {
    const told = grammar.tokenizeLine(line, stack);
    stack = told.ruleStack;
    for (const token of told.tokens) {
      found.push([number, token.startIndex, token.endIndex, token.scopes]);
    }
  });
  return found;
}

console.log(JSON.stringify(JSON.parse(fs.readFileSync(0, "utf8")).map(tokens)));
