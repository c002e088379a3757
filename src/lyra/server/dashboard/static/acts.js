// Requests that change something, with the form token of the login; and short messages to the person.
//
//   await act("api/processes/p-1/terminate", { reason: "…" })   gives the answer; throws Error with the server's words
//   announce("Stopped")

const root = document.body.dataset.root ?? "./";
const MESSAGE_MS = 5_000;

export async function act(path, body = {}, method = "POST") {
  const answer = await fetch(root + path, {
    method,
    credentials: "same-origin",
    headers: { "content-type": "application/json", "x-lyra-form": document.body.dataset.form ?? "" },
    body: method === "DELETE" ? undefined : JSON.stringify(body),
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
  let place = document.getElementById("announce");
  if (!place) {
    place = document.createElement("div");
    place.id = "announce";
    place.setAttribute("role", "status");
    document.body.append(place);
  }
  const line = document.createElement("p");
  line.textContent = text;
  place.append(line);
  setTimeout(() => line.remove(), MESSAGE_MS);
}
