// Keeps the page current: one stream of events, and the regions of the page that are fetched again when one happens.
//
//   onEvents(["process.created"], (event, kind) => …)   event is {seq, time, pid, kind, data}
//   refresh(region)                                      fetch a region again, now or as soon as its pace allows
//   refreshAll()
//   loggedOut()                                          the server does not know the login any more
//
// A region is <section id data-region data-events="kind,kind" data-source? data-every?>. The server answers a request
// with the header x-region with that region alone. A page that is hidden holds no stream: browsers open only six
// connections to one server, and every open page would keep one.

import { morph } from "./morph.js";

const root = document.body.dataset.root ?? "./";
const HIDDEN_MS = 5_000;
const ANSWER_MS = 30_000; // a region that takes longer is given up
const HOLD_MS = 2_000; // a list stays as it is for so long after the pointer moved over it
const RETRY_MS = [500, 1_000, 2_000, 5_000, 10_000];

const callbacks = new Map(); // by kind
const paces = new WeakMap(); // of regions
const afterRefresh = [];
let source = null;
let failures = 0;
let retryTimer = 0;
let hiddenTimer = 0;
let planned = false;

// ---------------------------------------------------------------- events
export function onEvents(kinds, callback) {
  for (const kind of kinds) {
    if (!callbacks.has(kind)) callbacks.set(kind, new Set());
    callbacks.get(kind).add(callback);
    source?.addEventListener(kind, heard);
  }
  plan();
  return () => kinds.forEach((kind) => callbacks.get(kind)?.delete(callback));
}

export function onRefresh(callback) {
  afterRefresh.push(callback);
}

function heard(message) {
  const event = JSON.parse(message.data);
  for (const callback of callbacks.get(message.type) ?? []) callback(event, message.type);
}

function plan() {
  if (planned) return;
  planned = true;
  queueMicrotask(() => {
    planned = false;
    connect();
  });
}

function connect() {
  clearTimeout(retryTimer);
  source?.close();
  source = null;
  if (callbacks.size === 0 || document.visibilityState === "hidden") return;
  const kinds = [...callbacks.keys()].sort().join(",");
  source = new EventSource(`${root}api/events?kinds=${encodeURIComponent(kinds)}`);
  source.addEventListener("open", opened);
  source.addEventListener("error", failed);
  source.addEventListener("missed", refreshAll);
  for (const kind of callbacks.keys()) source.addEventListener(kind, heard);
}

function opened() {
  failures = 0;
  show("open", "● live");
  refreshAll(); // what happened since the page was rendered, or while the stream was lost, was not told
}

function failed() {
  show("lost", "○ reconnecting");
  if (source?.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
  source = null;
  clearTimeout(retryTimer);
  retryTimer = setTimeout(connect, RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)]);
  const figures = document.getElementById("figures");
  if (figures) refresh(figures); // a login that has ended is noticed there
}

// A stream can look open for long after its connection has died. A region that is not answered tells it: the stream is
// opened anew, which says whether the server is there.
function doubt() {
  if (source?.readyState !== EventSource.OPEN) return;
  show("lost", "○ reconnecting");
  connect();
}

function show(state, text) {
  const dot = document.getElementById("live");
  if (!dot || dot.dataset.live === state) return;
  dot.dataset.live = state;
  dot.textContent = text;
}

// ---------------------------------------------------------------- regions
export function refreshAll() {
  document.dispatchEvent(new CustomEvent("refresh-all")); // for scripts that keep rows of their own
  for (const region of document.querySelectorAll("[data-region]")) refresh(region);
}

export function refresh(region) {
  const pace = paces.get(region) ?? { last: -Infinity, timer: 0, busy: false, again: false };
  paces.set(region, pace);
  if (pace.busy) {
    pace.again = true;
    return;
  }
  if (pace.timer) return;
  const wait = Math.max(pace.last + Number(region.dataset.every ?? 150), heldUntil(region)) - performance.now();
  pace.timer = setTimeout(() => fetchRegion(region, pace), Math.max(0, wait));
}

// A list with new rows at its top, `data-hold`, waits while a person points at its rows: the row under the pointer is
// still the one that was aimed at when it is pressed.
const pointed = { region: null, time: -Infinity };
for (const kind of ["pointermove", "pointerdown", "touchmove", "wheel"]) {
  const note = (event) => {
    pointed.region = event.target.closest?.("[data-hold]") ?? null;
    pointed.time = performance.now();
  };
  document.addEventListener(kind, note, { passive: true });
}

function heldUntil(region) {
  return "hold" in region.dataset && pointed.region === region ? pointed.time + HOLD_MS : -Infinity;
}

async function fetchRegion(region, pace) {
  pace.timer = 0;
  if (heldUntil(region) > performance.now()) {
    refresh(region);
    return;
  }
  pace.busy = true;
  pace.last = performance.now();
  let wait = 0;
  try {
    const url = region.dataset.source ?? location.href;
    const signal = AbortSignal.timeout(ANSWER_MS);
    const answer = await fetch(url, { headers: { "x-region": region.id }, credentials: "same-origin", signal });
    if (answer.status === 401) loggedOut();
    else if (answer.status === 429) wait = 1_000 * Number(answer.headers.get("retry-after") ?? 1);
    else if (answer.ok) {
      const text = await answer.text();
      if (heldUntil(region) > performance.now()) pace.again = true;
      else replace(region, text);
    }
  } catch {
    doubt(); // the server is not reached; all regions are read again when it is back
  }
  pace.busy = false;
  if (wait > 0) pace.last = performance.now() + wait;
  if (pace.again || wait > 0) {
    pace.again = false;
    refresh(region);
  }
}

function replace(region, text) {
  if (!("region" in region.dataset)) return; // a script has taken it over meanwhile
  const parsed = new DOMParser().parseFromString(text, "text/html");
  const fresh = parsed.getElementById(region.id);
  if (fresh === null) return;
  if (region.dataset.source) fresh.dataset.source = region.dataset.source; // relative to this page, not to its own
  morph(region, fresh);
  for (const callback of afterRefresh) callback(region);
  region.dispatchEvent(new CustomEvent("refreshed", { bubbles: true }));
}

// The form to log in takes the place of the page, unless that would lose what a person has written there.
export function loggedOut() {
  if (document.getElementById("logged-out")) return;
  const isWriting = [...document.querySelectorAll("main :is(input:not([type=hidden], [type=range]), textarea)")]
    .some((field) => field.value !== field.defaultValue);
  if (!isWriting) {
    location.reload();
    return;
  }
  const note = document.createElement("p");
  note.id = "logged-out";
  note.className = "problem";
  note.setAttribute("role", "alert");
  const link = document.createElement("a");
  link.href = location.href;
  link.target = "_blank";
  link.textContent = "Log in again in another tab";
  note.append("Your login has ended. ", link, ", then load this page again. What you have written here is not sent yet: copy it first.");
  document.querySelector("main")?.prepend(note);
}

export function watchRegions(within = document) {
  for (const region of within.querySelectorAll("[data-region]")) {
    const kinds = (region.dataset.events ?? "").split(",").filter(Boolean);
    if (kinds.length) onEvents(kinds, () => refresh(region));
    const every = Number(region.dataset.refresh ?? 0); // for what also changes without an event
    const isDue = () => region.dataset.refresh && document.visibilityState === "visible"; // a run may come to its end
    if (every) setInterval(() => isDue() && refresh(region), every);
  }
}

// ---------------------------------------------------------------- hidden pages
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiddenTimer);
  if (document.visibilityState === "hidden") {
    hiddenTimer = setTimeout(() => {
      source?.close();
      source = null;
    }, HIDDEN_MS);
  } else if (source === null) {
    connect();
  }
});
addEventListener("pagehide", () => source?.close());
addEventListener("pageshow", (event) => {
  if (event.persisted) connect();
});
