// Keeps relative times current: "12 s ago" becomes "13 s ago", in the words that the server uses.

// How far the clock of this device is behind the server's, by which all times are told. The page was answered at the
// server's `data-now`; a second or two is the way of the answer, not the clock.
const NEAR_S = 2;
const answeredAt = (performance.timeOrigin + (performance.getEntriesByType("navigation")[0]?.responseStart ?? 0)) / 1000;
const behind = Number(document.body.dataset.now ?? answeredAt) - answeredAt;
const skew = Math.abs(behind) > NEAR_S ? behind : 0;

const UNITS = [[86_400, "d"], [3_600, "h"], [60, "min"]];

function span(seconds) {
  for (const [size, unit] of UNITS) {
    if (seconds >= size) return `${Math.round(seconds / size)} ${unit}`;
  }
  return `${seconds} s`;
}

function relative(time, now = Date.now() / 1000 + skew) {
  const ago = now - time;
  if (Math.abs(ago) < 1) return "now";
  const text = span(Math.round(Math.abs(ago)));
  return ago > 0 ? `${text} ago` : `in ${text}`;
}

function update() {
  if (document.visibilityState === "hidden") return;
  for (const element of document.querySelectorAll("time[datetime]:not([data-exact])")) {
    const text = relative(Date.parse(element.dateTime) / 1000);
    if (element.textContent !== text) element.textContent = text;
  }
}

setInterval(update, 1_000);
