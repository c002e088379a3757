// A front end with the client of the protocol's npm package: one conversation with an agent, told as JSON on stdout.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [url, token] = process.argv.slice(2);
const resolve = createRequire(process.env.LYRA_TEST_NODE + "/package.json").resolve;
const { HttpAgent } = await import(pathToFileURL(resolve("@ag-ui/client")).href);

const agent = new HttpAgent({ url, threadId: "thread-1", headers: { Authorization: `Bearer ${token}` } });
agent.setState({ wall: "white" });
const kinds = [];
const outcomes = [];
const patches = [];
const subscriber = {
  onEvent: ({ event }) => {
    kinds.push(event.type);
    if (event.type === "RUN_FINISHED") outcomes.push(event.outcome);
    if (event.type === "STATE_DELTA") patches.push(...event.delta);
  },
};
const tools = [
  { name: "pick_colour", description: "Let the user pick", parameters: { type: "object", properties: {} } },
];

// A tool of the agent that a person has to allow.
agent.addMessage({ id: "u1", role: "user", content: "paint the wall" });
await agent.runAgent({ tools }, subscriber);
const interrupts = [...agent.pendingInterrupts];
await agent.runAgent(
  { tools, resume: interrupts.map((one) => ({ interruptId: one.id, status: "resolved", payload: { approved: true } })) },
  subscriber,
);
// A tool of the front end.
agent.addMessage({ id: "u2", role: "user", content: "ask me" });
await agent.runAgent({ tools }, subscriber);
const pending = outcomes.at(-1).pendingToolCallIds;
agent.addMessage({ id: "result", role: "tool", toolCallId: pending[0], content: "teal" });
await agent.runAgent({ tools }, subscriber);

const messages = agent.messages.map(({ id, role, content, toolCalls }) => ({ id, role, content, toolCalls }));
console.log(JSON.stringify({ kinds, outcomes, patches, interrupts, messages, state: agent.state }));
