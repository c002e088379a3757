// What every page loads.
import { onRefresh, watchRegions } from "./live.js";
import "./acts.js";
import "./copy.js";
import "./keys.js";
import "./times.js";

// The number beside "Inbox" follows the figure of the header.
onRefresh((region) => {
  if (region.id !== "figures") return;
  const inbox = document.querySelector('nav a[href$="inbox"]');
  const waiting = region.querySelector('[data-figure="waiting"] .value')?.textContent ?? "0";
  if (!inbox) return;
  const shown = inbox.querySelector(".count");
  if ((shown?.textContent ?? "0") === waiting) return;
  const count = document.createElement("span");
  count.className = "count";
  count.textContent = waiting;
  inbox.replaceChildren("Inbox", ...(waiting === "0" ? [] : [" ", count]));
});

// On a narrow screen the navigation scrolls: the page that is shown is in sight.
const here = document.querySelector('nav a[aria-current="page"]');
if (here) here.parentElement.scrollLeft = here.offsetLeft + here.offsetWidth / 2 - here.parentElement.clientWidth / 2 - here.parentElement.offsetLeft;

watchRegions();
