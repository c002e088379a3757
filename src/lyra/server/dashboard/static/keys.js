// The keyboard: `g` and a letter opens a page, `/` goes to the filter, `?` shows all keys. A page adds its own:
//
//   addKeys("Inbox", [["j", "the next question", () => …]])

const groups = [];
let waitsForPage = false;

export function addKeys(title, rows) {
  groups.push({ title, rows });
}

function isTyping(target) {
  return target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName);
}

function pageLinks() {
  return [...document.querySelectorAll("nav a[data-key]")];
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || isTyping(event.target)) return;
  if (document.querySelector("dialog[open]")) return; // its own keys hold there
  if (waitsForPage) {
    waitsForPage = false;
    const link = pageLinks().find((candidate) => candidate.dataset.key === event.key);
    if (link) {
      event.preventDefault();
      location.assign(link.href);
    }
    return;
  }
  if (event.key === "g") {
    waitsForPage = true;
    setTimeout(() => (waitsForPage = false), 1_500);
  } else if (event.key === "?") {
    event.preventDefault();
    showKeys();
  } else if (event.key === "/") {
    const filter = document.querySelector("main input[type=search]");
    if (filter) {
      event.preventDefault();
      filter.focus();
    }
  } else {
    const row = groups.flatMap((group) => group.rows).find(([key]) => key === event.key);
    if (row) {
      event.preventDefault();
      row[2](event);
    }
  }
});

function keyLine(keys, text) {
  const row = document.createElement("tr");
  const head = document.createElement("th");
  head.scope = "row";
  for (const key of keys) {
    const mark = document.createElement("kbd");
    mark.textContent = key;
    head.append(mark, " ");
  }
  const cell = document.createElement("td");
  cell.textContent = text;
  row.append(head, cell);
  return row;
}

function keyTable(title, lines) {
  const heading = document.createElement("h3");
  heading.textContent = title;
  const table = document.createElement("table");
  table.append(...lines);
  return [heading, table];
}

export function showKeys() {
  document.getElementById("keys")?.remove();
  const dialog = document.createElement("dialog");
  dialog.id = "keys";
  dialog.setAttribute("aria-labelledby", "keys-title");
  const title = document.createElement("h2");
  title.id = "keys-title";
  title.textContent = "Keys";
  dialog.append(title);
  const pages = pageLinks().map((link) => keyLine(["g", link.dataset.key], link.firstChild.textContent.trim()));
  dialog.append(...keyTable("Everywhere", [keyLine(["?"], "all keys"), keyLine(["/"], "the filter"), ...pages]));
  for (const { title: name, rows } of groups) {
    dialog.append(...keyTable(name, rows.map(([key, text]) => keyLine([key], text))));
  }
  const form = document.createElement("form");
  form.method = "dialog";
  const close = document.createElement("button");
  close.textContent = "Close";
  form.append(close);
  dialog.append(form);
  document.body.append(dialog);
  dialog.showModal();
}
