// An editor with the client of the protocol's npm package: one conversation with `sage acp`, told as JSON on stdout.
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [folder, program, ...words] = process.argv.slice(2);
const resolve = createRequire(process.env.LYRA_TEST_NODE + "/package.json").resolve;
const acp = await import(pathToFileURL(resolve("@agentclientprotocol/sdk")).href);

const agent = spawn(program, words, { cwd: folder, stdio: ["pipe", "pipe", "inherit"] });
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
const updates = [];
const asked = [];

const app = acp
  .client({ name: "test" })
  .onNotification(acp.methods.client.session.update, (message) => {
    updates.push(message.params.update);
  })
  .onRequest(acp.methods.client.session.requestPermission, (message) => {
    asked.push(message.params);
    return { outcome: { outcome: "selected", optionId: asked.length === 1 ? "allow" : "deny" } };
  });

await app.connectWith(stream, async (ctx) => {
  const begun = await ctx.request(acp.methods.agent.initialize, {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientCapabilities: {},
  });
  const session = await ctx.request(acp.methods.agent.session.new, { cwd: folder, mcpServers: [] });
  const prompt = (text) =>
    ctx.request(acp.methods.agent.session.prompt, {
      sessionId: session.sessionId,
      prompt: [{ type: "text", text }],
    });
  const first = await prompt("write it");
  const second = await prompt("write it again");
  await ctx.request(acp.methods.agent.session.setMode, { sessionId: session.sessionId, modeId: "plan" });
  const third = await prompt("/status");
  console.log(
    JSON.stringify({ begun, session, reasons: [first, second, third].map((done) => done.stopReason), updates, asked }),
  );
});
agent.kill();
process.exit(0);
