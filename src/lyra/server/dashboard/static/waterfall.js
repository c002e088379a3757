// The rows of a waterfall: a click or Enter shows the call in place, the arrow keys go from row to row.
//
// Without this script a row is a link to the page that shows its call, so nothing is lost.

import { refresh } from "./live.js";

const place = document.getElementById("call");

function rowLinks() {
  return [...document.querySelectorAll(".waterfall .span-link")];
}

function show(link) {
  for (const other of rowLinks()) other.removeAttribute("aria-current");
  link.setAttribute("aria-current", "true");
  history.replaceState(null, "", link.href);
  if (place) refresh(place);
}

document.addEventListener("click", (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0 || !place) return;
  const row = event.target.closest(".waterfall tbody tr");
  const link = event.target.closest(".span-link") ?? (row && !event.target.closest("a, button") ? row.querySelector(".span-link") : null);
  if (!link) return;
  event.preventDefault();
  show(link);
  if (event.detail > 0) place.scrollIntoView({ block: "nearest", behavior: "auto" });
});

document.addEventListener("keydown", (event) => {
  if (!event.target.classList?.contains("span-link") || event.ctrlKey || event.metaKey || event.altKey) return;
  const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
  if (!step) return;
  const links = rowLinks();
  const next = links[links.indexOf(event.target) + step];
  if (!next) return;
  event.preventDefault();
  next.focus();
});
