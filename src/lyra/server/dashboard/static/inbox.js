// The inbox: questions are answered in place and by the keyboard.
//
//   j k   the next and the previous question        y n   the first and the second button, such as Approve and Deny
//   e     write an answer                           Escape, in a field: back to the question

import { act, announce } from "./acts.js";
import { addKeys } from "./keys.js";
import { onRefresh } from "./live.js";

let chosen = null; // the id of the question that the keys act on

const cards = () => [...document.querySelectorAll("article.question")];
const current = () => cards().find((card) => card.dataset.key === chosen);

function mark(card) {
  for (const other of cards()) other.toggleAttribute("data-chosen", other === card);
  chosen = card?.dataset.key ?? null;
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
function press(index) {
  const card = current();
  if (!card) return move(1);
  const button = card.querySelectorAll("form.answer button")[index];
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
  try {
    const all = cards();
    const next = all[all.findIndex((card) => card.dataset.key === id) + 1] ?? all.at(-2);
    await act(`api/interrupts/${encodeURIComponent(id)}/answer`, body);
    announce(`${button.textContent}: ${form.closest("article").querySelector("h2").textContent}`);
    if (chosen === id) chosen = next?.dataset.key ?? null;
  } catch (error) {
    announce(error.message);
  } finally {
    form.toggleAttribute("data-busy", false);
  }
}

document.addEventListener("submit", (event) => {
  const form = event.target.closest("form.answer");
  if (!form) return;
  event.preventDefault();
  const button = event.submitter ?? form.querySelector("button");
  if (!form.hasAttribute("data-busy")) answer(form, button);
});

document.addEventListener("focusin", (event) => {
  const card = event.target.closest?.("article.question");
  if (card && card.dataset.key !== chosen) mark(card);
});

document.addEventListener("keydown", (event) => {
  const card = event.target.closest?.("article.question");
  if (event.key === "Escape" && card && event.target !== card) choose(card);
});

onRefresh((region) => {
  if (region.id === "questions" && chosen !== null && !region.contains(document.activeElement)) {
    const card = current();
    if (card) choose(card);
  }
});

addKeys("Inbox", [
  ["j", "the next question", () => move(1)],
  ["k", "the previous question", () => move(-1)],
  ["y", "yes: the first button", () => press(0)],
  ["n", "no: the second button", () => press(1)],
  ["e", "write an answer", write],
]);
