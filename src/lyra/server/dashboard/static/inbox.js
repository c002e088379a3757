// The inbox: questions are answered in place and by the keyboard.
//
//   j k   the next and the previous question        y n   the first and the second button, such as Approve and Deny
//   e     write an answer                           Escape, in a field: back to the question
//
// A key answers the question that is marked. After an answer the mark goes to the next one, which no key answers before
// the mark could be seen: a key that is held down, or pressed once too often, answers no second question.

import { act, announce } from "./acts.js";
import { addKeys } from "./keys.js";
import { onRefresh, refresh } from "./live.js";

const SEEN_MS = 600; // for how long the next question is marked before a key answers it

let chosen = null; // the id of the question that the keys act on
let answerableAt = 0; // on the clock of the page
let following = null; // the id of the question to choose when the one that was answered here has gone

const cards = () => [...document.querySelectorAll("article.question")];
const current = () => cards().find((card) => card.dataset.key === chosen);

function mark(card) {
  for (const other of cards()) other.toggleAttribute("data-chosen", other === card);
  chosen = card?.dataset.key ?? null;
  answerableAt = 0;
}

function choose(card) {
  mark(card);
  if (!card) return;
  card.focus({ preventScroll: true });
  card.scrollIntoView({ block: "nearest" });
}

function move(step) {
  const all = cards();
  if (all.length === 0) return;
  const place = all.indexOf(current());
  choose(all[place < 0 ? 0 : Math.min(all.length - 1, Math.max(0, place + step))]);
}

// The first press of a key shows which question is meant; only the next one answers it.
function press(index, event) {
  const card = current();
  if (event.repeat) return;
  if (!card) return move(1);
  if (performance.now() < answerableAt) return;
  const button = card.querySelectorAll("form.answer button[name=choice]")[index];
  if (button && !button.matches(":disabled")) button.click();
}

function write() {
  if (!current()) move(1);
  current()?.querySelector("form.answer input[name=text]")?.focus();
}

async function answer(form, button) {
  const id = form.dataset.question;
  const text = form.elements.text.value;
  const body = { ...JSON.parse(button.dataset.answer), text };
  if (button.value === "skip") body.data = text;
  form.toggleAttribute("data-busy", true);
  const all = cards();
  const next = all[all.findIndex((card) => card.dataset.key === id) + 1] ?? all.at(-2);
  try {
    await act(`api/interrupts/${encodeURIComponent(id)}/answer`, body);
    announce(`${button.textContent}: ${form.closest("article").querySelector("h2").textContent}`);
    if (chosen === id) following = next?.dataset.key ?? null;
  } catch (error) {
    announce(error.message);
    form.toggleAttribute("data-busy", false);
  }
  const region = form.closest("[data-region]");
  if (region) refresh(region); // also where the stream of events is lost
}

document.addEventListener("submit", (event) => {
  const form = event.target.closest("form.answer");
  if (!form) return;
  event.preventDefault();
  const choices = form.querySelectorAll("button[name=choice]");
  const button = event.submitter ?? (choices.length === 1 ? choices[0] : null); // without one nothing is decided
  if (button && !form.hasAttribute("data-busy")) answer(form, button);
});

document.addEventListener("focusin", (event) => {
  const card = event.target.closest?.("article.question");
  if (card && card.dataset.key !== chosen) mark(card);
});

document.addEventListener("keydown", (event) => {
  const card = event.target.closest?.("article.question");
  if (event.key === "Escape" && card && event.target !== card) choose(card);
});

// The question after the one that was answered here is chosen, unless the person has gone elsewhere meanwhile.
onRefresh((region) => {
  if (!["questions", "asked"].includes(region.id) || chosen === null || current()) return;
  const next = cards().find((card) => card.dataset.key === following);
  following = null;
  const isElsewhere = document.activeElement !== null && document.activeElement !== document.body;
  if (next && !isElsewhere) choose(next);
  else mark(null);
  answerableAt = performance.now() + SEEN_MS;
});

addKeys("Inbox", [
  ["j", "the next question", () => move(1)],
  ["k", "the previous question", () => move(-1)],
  ["y", "yes: the first button", (event) => press(0, event)],
  ["n", "no: the second button", (event) => press(1, event)],
  ["e", "write an answer", write],
]);
