// Requests that change something, with the form token of the login; and short messages to the person.
//
//   await act("api/processes/p-1/terminate", { reason: "…" })   gives the answer; throws Error with the server's words
//   announce("Stopped")

const root = document.body.dataset.root ?? "./";
const MESSAGE_MS = 5_000;
export const UNREACHED = "The server is not reached. Nothing was changed, as far as this page knows.";

// Screen readers say what comes into a place that was there before.
const place = document.createElement("div");
place.id = "announce";
place.setAttribute("role", "status");
document.body.append(place);

export async function act(path, body = {}, method = "POST") {
  const answer = await fetch(root + path, {
    method,
    credentials: "same-origin",
    headers: { "content-type": "application/json", "x-lyra-form": document.body.dataset.form ?? "" },
    body: method === "DELETE" ? undefined : JSON.stringify(body),
  }).catch(() => {
    throw new Error(UNREACHED);
  });
  const text = await answer.text();
  let value = null;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    value = null;
  }
  if (!answer.ok) throw new Error(value?.error?.message ?? `the server answered ${answer.status}`);
  return value;
}

export function announce(text) {
  const line = document.createElement("p");
  line.textContent = text;
  place.append(line);
  setTimeout(() => line.remove(), MESSAGE_MS);
}

// A form that loads another page is sent once, however often its button is pressed before that page is there. Heard at
// the window, after the listeners of the page's own scripts.
addEventListener("submit", (event) => {
  const form = event.target;
  if (event.defaultPrevented || form.method !== "post") return;
  if (form.hasAttribute("data-busy")) event.preventDefault();
  else form.setAttribute("data-busy", "");
});
addEventListener("pageshow", ({ persisted }) => {
  if (persisted) document.querySelectorAll("form[data-busy]").forEach((form) => form.removeAttribute("data-busy"));
});
