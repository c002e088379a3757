// One line of the treegrid of processes: its elements, which are made once, and the row of the tree that they show.

const SHAPES = {
  new: ["waiting", "○", "new"], ready: ["running", "●", "ready"], running: ["running", "●", "running"],
  working: ["waiting", "◐", "working"], idle: ["running", "●", "idle"], waiting: ["waiting", "◐", "waiting"],
  blocked: ["needs-you", "▲", "needs you"], dormant: ["waiting", "◌", "dormant"],
  ended: ["done", "■", "ended"], failed: ["failed", "✕", "failed"],
};

// Shows a row in a line; `place` says where it stands in the tree and whether the keys act on it.
export function fillLine(line, row, place, page) {
  const { parts } = line;
  const { depth, index, count, isActive, isFolded } = place;
  const shown = `${depth} ${index} ${isActive} ${count} ${isFolded}`;
  if (line.place !== shown) {
    line.place = shown;
    line.setAttribute("aria-level", String(depth + 1));
    line.setAttribute("aria-rowindex", String(index + 2));
    line.setAttribute("aria-selected", String(isActive));
    if (count) line.setAttribute("aria-expanded", String(!isFolded));
    else line.removeAttribute("aria-expanded");
    parts.name.style.paddingLeft = `${8 + depth * 20}px`;
    write(parts.fold, isFolded ? "▸" : "▾");
    parts.fold.classList.toggle("none", count === 0);
  }
  if (line.row === row && line.count === count) return;
  line.row = row;
  line.count = count;
  line.dataset.key = row.pid;
  line.id = `row-${row.pid}`;
  parts.link.href = page + encodeURIComponent(row.pid);
  parts.link.title = `${row.pid} ${row.program}`;
  write(parts.link, row.name || row.pid);
  write(parts.note, ` ${row.strategy || row.program}${count ? ` (${count})` : ""}`);
  const [colour, shape, word] = SHAPES[row.state] ?? ["waiting", "○", row.state];
  if (parts.state.dataset.state !== colour) parts.state.dataset.state = colour;
  write(parts.shape, shape);
  write(parts.word, ` ${row.doing || word}`);
  write(parts.restarts, row.restarts ? String(row.restarts) : "");
  write(parts.cost, row.cost_micro_usd ? money(row.cost_micro_usd) : "");
}

export function emptyLine() {
  const make = (name, className) => Object.assign(document.createElement(name), { className });
  const line = document.createElement("tr");
  const parts = {
    name: make("td", ""), fold: make("button", "fold"), link: make("a", ""), note: make("span", "note"),
    state: make("span", "state"), shape: make("span", "shape"), word: make("span", "word"),
    restarts: make("td", "figure-cell"), cost: make("td", "figure-cell"),
  };
  parts.fold.type = "button";
  parts.fold.tabIndex = -1;
  parts.fold.setAttribute("aria-hidden", "true");
  parts.link.tabIndex = -1;
  parts.shape.setAttribute("aria-hidden", "true");
  parts.state.append(parts.shape, parts.word);
  parts.name.append(parts.fold, parts.link, parts.note);
  const state = document.createElement("td");
  state.append(parts.state);
  line.append(parts.name, state, parts.restarts, parts.cost);
  for (const cell of line.cells) cell.setAttribute("role", "gridcell");
  line.setAttribute("role", "row");
  line.parts = parts;
  return line;
}

// A text that is already there is not written again: the browser would lay the row out anew.
function write(element, text) {
  if (element.written === text) return;
  element.written = text;
  element.textContent = text;
}

function money(microUsd) {
  const usd = microUsd / 1_000_000;
  const decimals = Math.abs(microUsd) >= 10_000 ? 2 : Math.abs(microUsd) >= 100 ? 4 : 6; // as the server writes it
  return `$${usd.toFixed(decimals)}`;
}
