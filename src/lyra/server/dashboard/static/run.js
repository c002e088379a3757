// The page of a run: the handle moves through its steps without loading the page again.
//
// Keys: the arrows of the handle itself; anywhere else `[` and `]` go a step back and on, `{` and `}` to the ends. A page
// at the end follows the run: its address has no place.
import { addKeys } from "./keys.js";
import { refresh } from "./live.js";

const scrub = () => document.getElementById("scrub");
const MARK_PX = 24;
let wanted = null;
let timer = 0;

const place = () => Number(scrub().value);

function show(number) {
  const handle = scrub();
  const last = Number(handle.max);
  number = Math.max(0, Math.min(last, number));
  handle.value = String(number);
  tell(number, last);
  left.clear();
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
  if (wanted === Number(scrub().max)) address.searchParams.delete("at");
  else address.searchParams.set("at", String(wanted));
  history.replaceState(null, "", address);
  for (const name of ["steps", "moment", "fork"]) {
    const region = document.getElementById(name);
    if (region) refresh(region);
  }
}

// The parts that show another step than the last one, on a page that follows the run.
function readBehind(last) {
  for (const name of ["moment", "fork"]) {
    const region = document.getElementById(name);
    if (region && region.dataset.at !== last) refresh(region);
  }
}

document.addEventListener("input", (event) => {
  if (event.target.id === "scrub") show(Number(event.target.value));
});

document.addEventListener("submit", (event) => {
  if (event.target.classList.contains("scrubber")) event.preventDefault();
});

document.addEventListener("click", (event) => {
  const step = event.target.closest?.("a[data-step], a[data-by]");
  if (!step || event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  const { by } = step.dataset; // of the buttons beside the handle: from where it stands now
  show(by ? place() + Number(by) : Number(step.dataset.step));
});

addKeys("Run", [
  ["[", "a step back", () => show(place() - 1)],
  ["]", "a step on", () => show(place() + 1)],
  ["{", "before the first step", () => show(0)],
  ["}", "the last step, and follow the run", () => show(Number(scrub().max))],
]);

// A run that grows: the handle's end moves with it, and a page that follows the run stays at its end.
document.addEventListener("refreshed", (event) => {
  if (event.target.id !== "steps") return;
  const handle = scrub();
  const count = Number(event.target.dataset.count);
  const isAtEnd = new URL(location.href).searchParams.get("at") === null;
  handle.max = String(count);
  if (isAtEnd) handle.value = String(count);
  tell(Number(handle.value), count);
  if (isAtEnd) readBehind(String(count));
});

// The list of the steps and the lanes show the one at the place; the page itself does not move. Where the person has
// scrolled one of them it stays, until the person chooses a step.
const left = new Set(); // ".steps", ".lanes-box"
for (const kind of ["wheel", "touchmove", "pointerdown", "keydown"]) {
  document.addEventListener(kind, (event) => {
    for (const box of [".steps", ".lanes-box"]) if (event.target.closest?.(box)) left.add(box);
  }, { passive: true });
}

function showStep() {
  const list = document.querySelector(".steps");
  const step = list?.querySelector("[aria-current]");
  if (step && !left.has(".steps")) list.scrollTop = step.parentElement.offsetTop - list.clientHeight / 2;
}

function showMark() {
  const lanes = document.querySelector(".lanes-box");
  const mark = lanes?.querySelector(".mark.here");
  if (!mark || left.has(".lanes-box")) return;
  const { x } = mark.getBBox();
  const isSeen = x > lanes.scrollLeft && x < lanes.scrollLeft + lanes.clientWidth - MARK_PX;
  if (!isSeen) lanes.scrollLeft = x - lanes.clientWidth / 2;
}

document.addEventListener("refreshed", (event) => {
  if (event.target.id === "moment") showStep();
  if (event.target.id === "steps") showMark();
});

showStep();
showMark();
