// The tree of processes as a treegrid that draws only the rows that are seen, so that ten thousand scroll smoothly.
// All rows are fetched once; after an event only those that changed are.
import { loggedOut, onEvents } from "./live.js";
import { addKeys } from "./keys.js";
import { emptyLine, fillLine } from "./process_line.js";

const ROW_PX = 32;
const AROUND = 8; // rows drawn above and below the ones that are seen
const REFRESH_MS = 150;
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
    this.place = 0; // where the keys were last
    this.mark = "";
    this.timer = 0;
    this.last = -Infinity;
    this.busy = false;
    this.lines = []; // of the window, in order
    this.first = 0; // the index of the first of them
  }

  async start() {
    await this.fetchRows().catch(() => {});
    if (!this.mark) return false; // the server's rows stay
    this.box.closest("[data-region]")?.removeAttribute("data-region"); // from here on the rows are the script's
    this.table.setAttribute("role", "treegrid");
    for (const group of [this.table.tHead, this.body]) group.setAttribute("role", "rowgroup"); // they are no table boxes
    this.table.tHead.rows[0].setAttribute("role", "row");
    for (const head of this.table.tHead.rows[0].cells) head.setAttribute("role", "columnheader");
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
    return true;
  }

  // ---- rows
  async fetchRows() {
    const ended = this.wantsEnded();
    const query = ended ? "?ended=true" : this.mark ? `?since=${encodeURIComponent(this.mark)}` : "";
    const answer = await fetch(this.source + query, { credentials: "same-origin" });
    if (answer.status === 401) loggedOut();
    if (!answer.ok) return;
    const { mark, whole, columns, rows, gone } = await answer.json();
    if (ended !== this.wantsEnded()) return; // another choice was made meanwhile, and its rows are on their way
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
    const all = total === 1 ? "1 process" : `${total} processes`;
    const text = visible.length === total ? all : `${visible.length} of ${all}`;
    if (this.count.textContent !== text) this.count.textContent = text;
    this.table.setAttribute("aria-rowcount", String(visible.length + 1));
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
  // The lines of the window are kept: a small step moves the few that left it to the other end, a large one fills all
  // of them with other rows. Nothing is made or removed while a person scrolls.
  draw() {
    const height = this.box.clientHeight;
    const top = Math.min(Math.floor(this.box.scrollTop / ROW_PX), this.visible.length); // there may be fewer than before
    const first = Math.max(0, top - AROUND);
    const last = Math.min(this.visible.length, Math.ceil((this.box.scrollTop + height) / ROW_PX) + AROUND);
    if (!this.top) {
      this.top = this.spacer();
      this.bottom = this.spacer();
      this.body.replaceChildren(this.top, this.bottom);
    }
    if (first >= this.first + this.lines.length || last <= this.first) this.first = first; // no line stays: fill them
    this.fit(first, last);
    this.lines.forEach((line, index) => this.fill(line, ...this.visible[first + index], first + index));
    this.stretch(this.top, first);
    this.stretch(this.bottom, this.visible.length - last);
    const active = this.active && document.getElementById(`row-${this.active}`);
    if (active) this.table.setAttribute("aria-activedescendant", active.id);
    else this.table.removeAttribute("aria-activedescendant");
  }

  fit(first, last) {
    const spare = [];
    while (this.lines.length && this.first < first) {
      spare.push(this.lines.shift());
      this.first += 1;
    }
    while (this.lines.length && this.first + this.lines.length > last) spare.push(this.lines.pop());
    if (!this.lines.length) this.first = first;
    while (this.first > first) {
      const line = spare.pop() ?? emptyLine();
      (this.lines[0] ?? this.bottom).before(line);
      this.lines.unshift(line);
      this.first -= 1;
    }
    while (this.first + this.lines.length < last) {
      const line = spare.pop() ?? emptyLine();
      this.bottom.before(line);
      this.lines.push(line);
    }
    for (const line of spare) line.remove();
  }

  spacer() {
    const line = document.createElement("tr");
    line.className = "spacer";
    line.setAttribute("aria-hidden", "true");
    const cell = document.createElement("td");
    cell.colSpan = 4;
    line.append(cell);
    return line;
  }

  stretch(line, rows) {
    if (line.rows === rows) return;
    line.rows = rows;
    line.style.height = `${rows * ROW_PX}px`;
    line.hidden = rows === 0;
  }

  fill(line, row, depth, index) {
    const count = this.below.get(row.pid)?.size ?? 0;
    const place = { depth, index, count, isActive: row.pid === this.active, isFolded: this.folded.has(row.pid) };
    fillLine(line, row, place, this.page);
  }

  // ---- what a person does
  filtered() {
    this.box.scrollTop = 0;
    this.remember();
    this.arrange();
  }

  statesChanged() {
    this.mark = ""; // all rows are fetched
    this.box.scrollTop = 0;
    this.remember();
    this.changed();
  }

  // What is looked for stands in the address: it is there again for a person who comes back to the page.
  remember() {
    const address = new URL(location.href);
    address.search = new URLSearchParams([["q", this.filter.value], ["state", this.states.value]].filter(([, value]) => value));
    history.replaceState(null, "", address);
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
    const index = this.index();
    const here = index >= 0 ? index : this.place - (step > 0 ? 1 : 0); // one that has ended left its place to the next
    const next = to ?? Math.min(this.visible.length - 1, Math.max(0, here + step));
    this.active = this.visible[next][0].pid;
    this.place = next;
    const top = next * ROW_PX;
    const room = this.box.clientHeight - 2 * ROW_PX;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (top > this.box.scrollTop + room) this.box.scrollTop = top - room;
    this.draw();
  }

  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return; // of the browser, such as the way back
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

// The page of a server without processes has no grid yet; it comes with the first of them.
let isStarting = false;
async function startGrid() {
  const box = document.querySelector(".grid-box");
  if (isStarting || !box) return;
  isStarting = true;
  isStarting = await new ProcessGrid(box).start();
}

startGrid();
document.addEventListener("refreshed", (event) => event.target.id === "processes" && startGrid());
document.addEventListener("refresh-all", startGrid);
