// What every page loads.
import { onRefresh, refreshAll, watchRegions } from "./live.js";
import "./acts.js";
import "./copy.js";
import "./keys.js";
import "./times.js";

// The number beside "Inbox" follows the figure of the header.
onRefresh((region) => {
  if (region.id !== "figures") return;
  const count = document.querySelector('nav a[href$="inbox"] .count');
  const waiting = region.querySelector('[data-figure="waiting"] .value')?.textContent ?? "0";
  const text = waiting === "0" ? "" : waiting;
  if (count && count.textContent !== text) count.textContent = text;
});

// Shards of a cluster that answer again are shown.
let isMissing = document.querySelector("#missing > *") !== null;
onRefresh((region) => {
  if (region.id !== "missing") return;
  const was = isMissing;
  isMissing = region.childElementCount > 0;
  if (was && !isMissing) refreshAll();
});

// On a narrow screen the navigation scrolls: the page that is shown is in sight.
const here = document.querySelector('nav a[aria-current="page"]');
if (here) here.parentElement.scrollLeft = here.offsetLeft + here.offsetWidth / 2 - here.parentElement.clientWidth / 2 - here.parentElement.offsetLeft;

watchRegions();
