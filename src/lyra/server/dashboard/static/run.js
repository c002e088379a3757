// The page of a run: the handle moves through its steps without loading the page again.
//
// Keys: the arrows of the handle itself; anywhere else `[` and `]` go a step back and on, `{` and `}` to the ends.
import { refresh } from "./live.js";

const scrub = () => document.getElementById("scrub");
let wanted = null;
let timer = 0;

const place = () => Number(scrub().value);

function show(number) {
  const handle = scrub();
  const last = Number(handle.max);
  number = Math.max(0, Math.min(last, number));
  handle.value = String(number);
  tell(number, last);
  wanted = number;
  clearTimeout(timer);
  timer = setTimeout(load, 60);
}

function tell(number, last) {
  const handle = scrub();
  handle.setAttribute("aria-valuetext", `step ${number} of ${last}`);
  const output = handle.form.querySelector("output");
  if (output) output.textContent = `${number} of ${last}`;
}

function load() {
  const address = new URL(location.href);
  address.searchParams.set("at", String(wanted));
  history.replaceState(null, "", address);
  for (const name of ["steps", "moment", "fork"]) {
    const region = document.getElementById(name);
    if (region) refresh(region);
  }
}

document.addEventListener("input", (event) => {
  if (event.target.id === "scrub") show(Number(event.target.value));
});

document.addEventListener("submit", (event) => {
  if (event.target.classList.contains("scrubber")) event.preventDefault();
});

document.addEventListener("click", (event) => {
  const step = event.target.closest?.("a[data-step]");
  if (!step || event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  show(Number(step.dataset.step));
});

const KEYS = new Map([
  ["[", () => show(place() - 1)],
  ["]", () => show(place() + 1)],
  ["{", () => show(0)],
  ["}", () => show(Number(scrub().max))],
]);

document.addEventListener("keydown", (event) => {
  if (event.target.closest?.("input, textarea, select") || event.metaKey || event.ctrlKey || event.altKey) return;
  const act = KEYS.get(event.key);
  if (!act) return;
  event.preventDefault();
  act();
});

// A run that grows: the handle's end moves with it, and a page that follows the run stays at its end.
document.addEventListener("refreshed", (event) => {
  if (event.target.id !== "steps") return;
  const handle = scrub();
  const count = Number(event.target.dataset.count);
  const isAtEnd = new URL(location.href).searchParams.get("at") === null;
  handle.max = String(count);
  if (isAtEnd) handle.value = String(count);
  tell(Number(handle.value), count);
});

document.addEventListener("refreshed", (event) => {
  if (event.target.id === "moment") showStep();
});

// The list of the steps shows the one at the place; the page itself does not move.
function showStep() {
  const list = document.querySelector(".steps");
  const step = list?.querySelector("[aria-current]");
  if (step) list.scrollTop = step.parentElement.offsetTop - list.clientHeight / 2;
}

showStep();
const lanes = document.querySelector(".lanes-box");
const mark = document.querySelector(".mark.here");
if (lanes && mark) lanes.scrollLeft = mark.getBBox().x - lanes.clientWidth / 2;
