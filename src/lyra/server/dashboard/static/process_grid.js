// The tree of processes as a treegrid that draws only the rows that are seen, so that ten thousand scroll smoothly.
// All rows are fetched once; after an event only those that changed are.
import { onEvents } from "./live.js";
import { addKeys } from "./keys.js";

const ROW_PX = 32;
const AROUND = 12; // rows drawn above and below the ones that are seen
const REFRESH_MS = 150;
const SHAPES = {
  new: ["waiting", "○", "new"], ready: ["running", "●", "ready"], running: ["running", "●", "running"],
  working: ["waiting", "◐", "working"], idle: ["running", "●", "idle"], waiting: ["waiting", "◐", "waiting"],
  blocked: ["needs-you", "▲", "needs you"], dormant: ["waiting", "◌", "dormant"],
  ended: ["done", "■", "ended"], failed: ["failed", "✕", "failed"],
};
const EVENTS = [
  "process.created", "process.terminated", "process.stopping", "process.dormant", "child.restarting",
  "supervisor.gave_up", "effect.started", "effect.finished", "agent.began", "agent.answered", "interrupt.created",
  "interrupt.resolved", "interrupt.expired", "interrupt.cancelled", "pcb.submitted", "pcb.moved", "pcb.forgotten",
];

class ProcessGrid {
  constructor(box) {
    this.box = box;
    this.table = box.querySelector("table");
    this.body = this.table.tBodies[0];
    this.source = this.table.dataset.source;
    this.page = this.table.dataset.page;
    this.filter = document.getElementById("q");
    this.states = document.getElementById("state");
    this.count = document.getElementById("grid-count");
    this.rows = new Map(); // pid → row
    this.below = new Map(); // pid → pids of its children, in order
    this.folded = new Set();
    this.visible = []; // [row, depth] in the order of the tree
    this.active = ""; // pid of the row that the keys act on
    this.mark = "";
    this.timer = 0;
    this.last = -Infinity;
    this.busy = false;
  }

  async start() {
    await this.fetchRows();
    if (!this.mark) return; // the server's rows stay
    this.box.closest("[data-region]")?.removeAttribute("data-region"); // from here on the rows are the script's
    this.table.setAttribute("role", "treegrid");
    this.table.setAttribute("aria-label", "Processes");
    this.table.tabIndex = 0;
    this.box.removeAttribute("tabindex");
    document.querySelectorAll(".script-hidden").forEach((element) => (element.hidden = true));
    this.box.addEventListener("scroll", () => requestAnimationFrame(() => this.draw()), { passive: true });
    this.body.addEventListener("click", (event) => this.clicked(event));
    this.table.addEventListener("keydown", (event) => this.pressed(event));
    this.filter.addEventListener("input", () => this.filtered());
    this.states.addEventListener("change", () => this.statesChanged());
    this.filter.form.addEventListener("submit", (event) => event.preventDefault());
    new ResizeObserver(() => this.draw()).observe(this.box);
    this.arrange();
    onEvents(EVENTS, () => this.changed());
    document.addEventListener("refresh-all", () => this.changed());
    addKeys("Processes", [["j", "the next process", () => this.move(1)], ["k", "the one before", () => this.move(-1)]]);
  }

  // ---- rows
  async fetchRows() {
    const ended = this.wantsEnded();
    const query = ended ? "?ended=true" : this.mark ? `?since=${encodeURIComponent(this.mark)}` : "";
    const answer = await fetch(this.source + query, { credentials: "same-origin" });
    if (answer.status === 401) location.reload();
    if (!answer.ok) return;
    const { mark, whole, columns, rows, gone } = await answer.json();
    if (whole) {
      this.rows.clear();
      this.below.clear();
    }
    for (const values of rows) this.put(Object.fromEntries(columns.map((name, index) => [name, values[index]])));
    for (const pid of gone) this.remove(pid);
    this.mark = mark;
  }

  put(row) {
    row.text = `${row.name} ${row.pid} ${row.program}`.toLowerCase();
    const known = this.rows.get(row.pid);
    this.rows.set(row.pid, row);
    if (known?.parent === row.parent) return;
    if (known) this.detach(known);
    const siblings = this.below.get(row.parent);
    if (siblings) siblings.add(row.pid);
    else this.below.set(row.parent, new Set([row.pid]));
  }

  remove(pid) {
    const row = this.rows.get(pid);
    if (!row) return;
    this.detach(row);
    this.rows.delete(pid);
  }

  detach(row) {
    this.below.get(row.parent)?.delete(row.pid);
  }

  wantsEnded() {
    return this.states.value === "ended" || this.states.value === "failed";
  }

  changed() {
    if (this.busy || this.timer) {
      this.again = true;
      return;
    }
    const wait = Math.max(0, this.last + REFRESH_MS - performance.now());
    this.timer = setTimeout(() => this.refresh(), wait);
  }

  async refresh() {
    this.timer = 0;
    this.busy = true;
    this.again = false;
    this.last = performance.now();
    try {
      await this.fetchRows();
      this.arrange();
    } catch {
      // The server is not reached; the next event fetches again.
    }
    this.busy = false;
    if (this.again) this.changed();
  }

  // ---- the order of the tree
  arrange() {
    const needle = this.filter.value.trim().toLowerCase();
    const state = this.states.value;
    const wanted = needle || state ? this.matching(needle, state) : null;
    const visible = [];
    const walk = (pid, depth) => {
      for (const child of this.below.get(pid) ?? []) {
        const row = this.rows.get(child);
        if (!row || (wanted && !wanted.has(child))) continue;
        visible.push([row, depth]);
        if (wanted || !this.folded.has(child)) walk(child, depth + 1);
      }
    };
    for (const parent of this.below.keys()) {
      if (!this.rows.has(parent)) walk(parent, 0);
    }
    this.visible = visible;
    const total = this.rows.size;
    const text = visible.length === total ? `${total} processes` : `${visible.length} of ${total} processes`;
    if (this.count.textContent !== text) this.count.textContent = text;
    this.table.setAttribute("aria-rowcount", String(visible.length + 1));
    this.drawn = "";
    this.draw();
  }

  matching(needle, state) {
    const wanted = new Set();
    for (const row of this.rows.values()) {
      if ((needle && !row.text.includes(needle)) || (state && row.state !== state)) continue;
      for (let pid = row.pid; pid && !wanted.has(pid); pid = this.rows.get(pid)?.parent) wanted.add(pid);
    }
    return wanted;
  }

  // ---- drawing
  draw() {
    const height = this.box.clientHeight;
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW_PX) - AROUND);
    const last = Math.min(this.visible.length, Math.ceil((this.box.scrollTop + height) / ROW_PX) + AROUND);
    const window = `${first}-${last}-${this.active}`;
    if (window === this.drawn) return;
    this.drawn = window;
    const before = new Map([...this.body.rows].filter((row) => row.dataset.key).map((row) => [row.dataset.key, row]));
    const wanted = this.visible.slice(first, last);
    const kept = new Set(wanted.map(([row]) => row.pid));
    const spare = [...before.values()].filter((line) => line.drawnRow && !kept.has(line.dataset.key));
    const lines = [this.spacer("top", first)];
    wanted.forEach(([row, depth], index) => {
      lines.push(this.line(row, depth, first + index, before.get(row.pid) ?? this.reused(spare.pop(), row)));
    });
    lines.push(this.spacer("bottom", this.visible.length - last));
    this.body.replaceChildren(...lines);
    this.table.removeAttribute("aria-activedescendant");
    if (this.active && document.getElementById(`row-${this.active}`)) {
      this.table.setAttribute("aria-activedescendant", `row-${this.active}`);
    }
  }

  spacer(name, rows) {
    this.spacers ??= {};
    if (!this.spacers[name]) {
      const line = document.createElement("tr");
      line.className = "spacer";
      line.setAttribute("aria-hidden", "true");
      const cell = document.createElement("td");
      cell.colSpan = 4;
      line.append(cell);
      this.spacers[name] = line;
    }
    const line = this.spacers[name];
    line.style.height = `${rows * ROW_PX}px`;
    line.hidden = rows === 0;
    return line;
  }

  line(row, depth, index, known) {
    const line = known?.drawnRow === undefined ? this.emptyLine(row) : known;
    line.setAttribute("aria-level", String(depth + 1));
    line.setAttribute("aria-rowindex", String(index + 2));
    line.setAttribute("aria-selected", String(row.pid === this.active));
    const hasChildren = (this.below.get(row.pid)?.size ?? 0) > 0;
    if (hasChildren) line.setAttribute("aria-expanded", String(!this.folded.has(row.pid)));
    else line.removeAttribute("aria-expanded");
    const [name, state, restarts, cost] = line.cells;
    name.style.paddingLeft = `${8 + depth * 20}px`;
    const folds = name.querySelector(".fold");
    folds.textContent = hasChildren ? (this.folded.has(row.pid) ? "▸" : "▾") : "";
    folds.hidden = !hasChildren;
    name.querySelector(".no-fold").hidden = hasChildren;
    if (line.drawnRow !== row) {
      line.drawnRow = row;
      name.querySelector("a").textContent = row.name || row.pid;
      const count = this.below.get(row.pid)?.size ?? 0;
      name.querySelector(".note").textContent = ` ${row.strategy || row.program}${count ? ` (${count})` : ""}`;
      const [colour, shape, word] = SHAPES[row.state] ?? ["waiting", "○", row.state];
      state.firstChild.dataset.state = colour;
      state.querySelector(".shape").textContent = shape;
      state.querySelector(".word").textContent = ` ${row.doing || word}`;
      restarts.textContent = row.restarts ? String(row.restarts) : "";
      cost.textContent = row.cost_micro_usd ? money(row.cost_micro_usd) : "";
    }
    return line;
  }

  // A line that left the window, for another row: cheaper than a new one.
  reused(line, row) {
    if (!line) return undefined;
    line.drawnRow = null;
    this.name(line, row);
    return line;
  }

  name(line, row) {
    line.dataset.key = row.pid;
    line.id = `row-${row.pid}`;
    const link = line.querySelector("a");
    link.href = this.page + encodeURIComponent(row.pid);
    link.title = `${row.pid} ${row.program}`;
  }

  emptyLine(row) {
    const line = document.createElement("tr");
    const name = document.createElement("td");
    const folds = document.createElement("button");
    folds.type = "button";
    folds.className = "fold";
    folds.tabIndex = -1;
    folds.setAttribute("aria-hidden", "true");
    const indent = document.createElement("span");
    indent.className = "no-fold fold";
    const link = document.createElement("a");
    link.tabIndex = -1;
    const note = document.createElement("span");
    note.className = "note";
    name.append(folds, indent, link, note);
    const state = document.createElement("td");
    const words = document.createElement("span");
    words.className = "state";
    const shape = document.createElement("span");
    shape.className = "shape";
    shape.setAttribute("aria-hidden", "true");
    const word = document.createElement("span");
    word.className = "word";
    words.append(shape, word);
    state.append(words);
    const restarts = document.createElement("td");
    const cost = document.createElement("td");
    restarts.className = cost.className = "figure-cell";
    line.append(name, state, restarts, cost);
    for (const cell of line.cells) cell.setAttribute("role", "gridcell");
    line.setAttribute("role", "row");
    this.name(line, row);
    return line;
  }

  // ---- what a person does
  filtered() {
    this.box.scrollTop = 0;
    this.arrange();
  }

  async statesChanged() {
    this.mark = "";
    await this.fetchRows();
    this.filtered();
  }

  clicked(event) {
    const line = event.target.closest("tr[data-key]");
    if (!line || event.target.closest("a")) return;
    this.active = line.dataset.key;
    if (event.target.closest(".fold")) this.fold(this.active);
    else this.draw();
  }

  fold(pid, folded = !this.folded.has(pid)) {
    if (folded) this.folded.add(pid);
    else this.folded.delete(pid);
    this.arrange();
  }

  index() {
    return this.visible.findIndex(([row]) => row.pid === this.active);
  }

  move(step, to = null) {
    if (!this.visible.length) return;
    const next = to ?? Math.min(this.visible.length - 1, Math.max(0, this.index() + step));
    this.active = this.visible[next][0].pid;
    const top = next * ROW_PX;
    const room = this.box.clientHeight - 2 * ROW_PX;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (top > this.box.scrollTop + room) this.box.scrollTop = top - room;
    this.draw();
  }

  pressed(event) {
    const pageRows = Math.max(1, Math.floor(this.box.clientHeight / ROW_PX) - 2);
    const has = (this.below.get(this.active)?.size ?? 0) > 0;
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: pageRows, PageUp: -pageRows };
    if (event.key in steps) this.move(steps[event.key]);
    else if (event.key === "Home") this.move(0, 0);
    else if (event.key === "End") this.move(0, this.visible.length - 1);
    else if (event.key === "ArrowRight" && has && this.folded.has(this.active)) this.fold(this.active, false);
    else if (event.key === "ArrowRight" && has) this.move(1);
    else if (event.key === "ArrowLeft" && has && !this.folded.has(this.active)) this.fold(this.active, true);
    else if (event.key === "ArrowLeft") this.moveToParent();
    else if (event.key === "Enter" && this.active) location.assign(this.page + encodeURIComponent(this.active));
    else return;
    event.preventDefault();
  }

  moveToParent() {
    const parent = this.rows.get(this.active)?.parent;
    const index = this.visible.findIndex(([row]) => row.pid === parent);
    if (index >= 0) this.move(0, index);
  }
}

function money(microUsd) {
  const usd = microUsd / 1_000_000;
  return Math.abs(microUsd) >= 10_000 ? `$${usd.toFixed(2)}` : `$${usd.toFixed(6).replace(/0+$/, "")}`;
}

const box = document.querySelector(".grid-box");
if (box) new ProcessGrid(box).start();
