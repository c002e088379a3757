// Keeps relative times current: "12 s ago" becomes "13 s ago", in the words that the server uses.

const UNITS = [[86_400, "d"], [3_600, "h"], [60, "min"]];

export function span(seconds) {
  for (const [size, unit] of UNITS) {
    if (seconds >= size) return `${Math.round(seconds / size)} ${unit}`;
  }
  return `${seconds} s`;
}

export function relative(time, now = Date.now() / 1000) {
  const ago = now - time;
  if (Math.abs(ago) < 1) return "now";
  const text = span(Math.round(Math.abs(ago)));
  return ago > 0 ? `${text} ago` : `in ${text}`;
}

export function timeElement(time, text) {
  const element = document.createElement("time");
  const exact = new Date(time * 1000);
  element.dateTime = exact.toISOString();
  element.title = exact.toISOString().replace("T", " ").slice(0, 19) + " UTC";
  element.textContent = text ?? relative(time);
  return element;
}

function update() {
  if (document.visibilityState === "hidden") return;
  for (const element of document.querySelectorAll("time[datetime]:not([data-exact])")) {
    const text = relative(Date.parse(element.dateTime) / 1000);
    if (element.textContent !== text) element.textContent = text;
  }
}

setInterval(update, 1_000);
