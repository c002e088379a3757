// A conversation: what the person says is sent without loading the page again, and the answer is drawn as it comes.
//
// The answer is a stream of events that the server keeps for a while. A browser that loses the connection asks for what
// follows the last event that it has (Last-Event-ID). When the answer is over the conversation is fetched as the server
// renders it. Every text is set as text.

import { act, announce, UNREACHED } from "./acts.js";
import { onEvents, refresh } from "./live.js";

const root = document.body.dataset.root ?? "./";
const talk = document.getElementById("talk");
const say = document.getElementById("say");
const stop = document.getElementById("stop");
const NEAR_PX = 80;

let stream = null;
let isRead = false; // the stream of the turn that is under way was read to its end, or cannot be: it is not read again
let isStopWanted = false; // Stop was pressed before the session of a new conversation was known
let answer = null; // the article of the answer that is on its way
let tools = new Map(); // <details> by the id of the call
let spent = { usd: 0, taken: 0, given: 0, known: true };

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

const log = () => talk.querySelector(".log");
const isAtEnd = () => log().scrollHeight - log().scrollTop - log().clientHeight < NEAR_PX;
const toEnd = () => (log().scrollTop = log().scrollHeight);

// ---------------------------------------------------------------- drawing
function addSaid(who, name, text) {
  const article = element("article", `said ${who}`);
  article.append(element("h3", "", name));
  if (text !== undefined) article.append(element("p", "text", text));
  log().querySelector(".empty")?.remove();
  log().append(article);
  toEnd();
  return article;
}

function beginAnswer() {
  tools = new Map();
  spent = { usd: 0, taken: 0, given: 0, known: true };
  answer = addSaid("agent", talk.dataset.agent);
  answer.append(element("p", "note cost pending", "◐ thinks"));
}

function draw(change) {
  const follows = isAtEnd();
  change();
  if (follows) toEnd();
}

// The place for text: behind everything else, before the line with the figures.
function textPlace(className) {
  const line = answer.querySelector(".cost");
  const last = line.previousElementSibling;
  if (last?.matches(`p.${className}`)) return last;
  const place = element("p", className);
  line.before(place);
  return place;
}

function toolState(details, colour, shape, word) {
  const mark = details.querySelector(".state");
  mark.dataset.state = colour;
  mark.replaceChildren(element("span", "shape", shape), ` ${word}`);
  mark.firstChild.setAttribute("aria-hidden", "true");
}

const plain = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

const DRAW = {
  text_delta: ({ delta }) => textPlace("text").append(delta),
  thinking_delta: ({ delta }) => textPlace("thinking").append(delta),
  tool_start({ id, name, arguments: given }) {
    const details = element("details", "tool");
    const summary = element("summary");
    const short = plain(given).replace(/\s+/g, " ");
    const shown = short.length > 80 ? `${short.slice(0, 79)}…` : short;
    summary.append(element("code", "", name), " ", element("code", "note", shown), " ", element("span", "state"));
    const body = element("pre");
    body.append(element("code", "", plain(given)));
    details.append(summary, element("h4", "", "Arguments"), body);
    tools.set(id, details);
    toolState(details, "running", "●", "runs");
    answer.querySelector(".cost").before(details);
  },
  tool_progress({ id, text }) {
    const details = tools.get(id);
    if (details) toolState(details, "running", "●", text);
  },
  tool_end({ id, output, is_error: failed }) {
    const details = tools.get(id);
    if (!details) return;
    toolState(details, failed ? "failed" : "done", failed ? "✕" : "✓", failed ? "failed" : "done");
    const body = element("pre");
    body.append(element("code", "", plain(output)));
    details.append(element("h4", "", "Result"), body);
  },
  usage({ input_tokens: taken, output_tokens: given, cost_usd: usd }) {
    spent.taken += taken;
    spent.given += given;
    spent.known &&= usd !== null;
    spent.usd += usd ?? 0;
    showSpent("◐ answers");
  },
  notice: ({ text }) => answer.querySelector(".cost").before(element("p", "note", text)),
  error: ({ message }) => answer.querySelector(".cost").before(element("p", "problem", message)),
  interrupt: ({ question }) => showSpent(`▲ waits for you: ${question}`),
  restart({ text }) {
    for (const part of answer.querySelectorAll("p.text, p.thinking, details")) part.remove();
    if (text) textPlace("text").append(text);
  },
};

function showSpent(doing) {
  const usd = spent.known ? `$${spent.usd.toFixed(6).replace(/0+$/, "").replace(/\.$/, ".00")}` : "cost not known";
  const figures = spent.taken ? `${usd} · ${spent.taken.toLocaleString("en")} tokens in, ${spent.given.toLocaleString("en")} out` : "";
  answer.querySelector(".cost").textContent = [doing, figures].filter(Boolean).join(" · ");
}

// ---------------------------------------------------------------- the stream
function setRunning(isRunning) {
  talk.dataset.running = isRunning ? "yes" : "no";
  if (isRunning) delete talk.dataset.region; // the answer is drawn here; reading the region again would remove it
  else talk.dataset.region = "";
  offer(isRunning);
}

function offer(isRunning) {
  stop.hidden = !isRunning;
  say.querySelector("button").disabled = isRunning;
}

// A turn that is under way and was not begun here: by another page, on the page of the process, or before a restart.
function takeUp() {
  setRunning(true);
  beginAnswer();
  follow();
}

// The region was read again: the forms follow what it says.
function conform() {
  if (stream) return;
  const isRunning = talk.dataset.running === "yes";
  if (!isRunning) isRead = false;
  if (isRunning && !isRead) takeUp();
  else offer(isRunning);
}

function follow() {
  stream?.close();
  const name = encodeURIComponent(talk.dataset.agent);
  const session = encodeURIComponent(talk.dataset.session);
  stream = new EventSource(`${root}api/agents/${name}/chat/stream?session_id=${session}`);
  for (const [kind, change] of Object.entries(DRAW)) {
    stream.addEventListener(kind, (event) => event.data && draw(() => change(JSON.parse(event.data))));
  }
  stream.addEventListener("text_delta", () => !spent.taken && showSpent("◐ answers"));
  stream.addEventListener("result", (event) => end(JSON.parse(event.data)));
  stream.onerror = () => {
    if (stream?.readyState === EventSource.CLOSED) end({ status: "lost" });
  };
}

function end({ status }) {
  stream?.close();
  stream = null;
  isRead = true;
  setRunning(false);
  const line = answer.querySelector(".cost");
  line.classList.remove("pending");
  if (status === "cancelled") {
    showSpent("■ stopped by you");
  } else {
    showSpent(status === "success" ? "" : `✕ ${status}`);
    if (status === "success" || status === "lost") refresh(talk);
  }
  const focused = document.activeElement;
  if (focused === null || focused === document.body || stop.contains(focused)) say.elements.message.focus();
}

// ---------------------------------------------------------------- the forms
async function send(form) {
  const field = form.elements.message;
  const text = field.value.trim();
  if (!text) return;
  const fields = new URLSearchParams(new FormData(form));
  const written = field.value;
  field.value = "";
  isRead = isStopWanted = false;
  setRunning(true);
  try {
    const reply = await fetch(form.action, {
      method: "POST",
      credentials: "same-origin",
      headers: { accept: "application/json", "x-lyra-form": document.body.dataset.form ?? "" },
      body: fields,
    });
    if (!reply.ok) throw new Error((await reply.json().catch(() => null))?.error?.message ?? `the server answered ${reply.status}`);
    const { session_id: session } = await reply.json();
    adopt(session);
    addSaid("you", "You", text);
    beginAnswer();
    follow();
    if (isStopWanted) stopAnswer();
  } catch (error) {
    field.value = [written, field.value].filter(Boolean).join("\n"); // with what was written meanwhile
    setRunning(false);
    announce(error instanceof TypeError ? UNREACHED : error.message);
  }
}

async function stopAnswer() {
  isStopWanted = talk.dataset.session === "";
  if (isStopWanted) return;
  try {
    const { cancelled } = await act(`api/sessions/${encodeURIComponent(talk.dataset.session)}/cancel`);
    if (!cancelled && stream) announce("This answer was not asked for here. To stop it, stop its process on its own page.");
  } catch (error) {
    announce(error.message);
  }
}

// The page is about this session from now on, also when it is loaded again.
function adopt(session) {
  if (talk.dataset.session === session) return;
  talk.dataset.session = session;
  for (const form of [say, stop]) form.elements.session_id.value = session;
  const address = new URL(location.href);
  address.searchParams.set("session_id", session);
  history.replaceState(null, "", address);
}

if (talk && say && stop) {
  say.addEventListener("submit", (event) => {
    event.preventDefault();
    if (talk.dataset.running !== "yes") send(say);
  });
  stop.addEventListener("submit", (event) => {
    event.preventDefault();
    stopAnswer();
  });
  say.elements.message.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    say.requestSubmit();
  });
  toEnd();
  if (talk.dataset.running === "yes") takeUp();
  talk.addEventListener("refreshed", conform);
  // Turns that were begun elsewhere. The end of one that was drawn here is no news.
  onEvents(["message.received", "agent.answered"], ({ pid, kind }) => {
    if (pid !== talk.dataset.pid || !("region" in talk.dataset)) return;
    if (kind === "message.received") isRead = false;
    if (!isRead || talk.dataset.running === "yes") refresh(talk);
  });
}
