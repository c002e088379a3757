// Plots: every `figure.plot` of a page drawn in SVG from the table beside it.
//
// The table is the data: the page is complete without this script. A plot is drawn into a box of fixed height, so nothing
// moves; it is drawn again when its region was fetched again or the box gets another width. The keyboard reaches it as a slider: the
// arrow keys go from step to step, and each step's values are said. Start here; `plot_table.js` reads the table,
// `plot_scales.js` has axes and numbers, `plot_marks.js` bars, lines and bands, `plot_export.js` the downloads.

import { addDownloads } from "./plot_export.js";
import { drawMarks, drawSwatches, patternsOf } from "./plot_marks.js";
import { axisTicks, frameOf, svgElement } from "./plot_scales.js";
import { readTable } from "./plot_table.js";

const X_LABEL_PX = 72; // from one label of the axis of steps to the next
const drawn = new WeakMap(); // figure → its PlotPicture

class PlotPicture {
  constructor(figure) {
    this.figure = figure;
    this.box = figure.querySelector(".plot-box");
    this.index = -1;
    this.cursor = document.createElement("div");
    this.cursor.className = "plot-cursor";
    this.cursor.tabIndex = 0;
    this.cursor.setAttribute("role", "slider");
    this.tip = document.createElement("div");
    this.tip.className = "plot-tip";
    this.tip.hidden = true;
    this.box.replaceChildren(this.cursor, this.tip);
    this.cursor.addEventListener("pointermove", (event) => this.point(this.indexAt(event)));
    this.cursor.addEventListener("pointerleave", () => this.leave());
    this.cursor.addEventListener("click", (event) => this.follow(event));
    this.cursor.addEventListener("keydown", (event) => this.key(event));
    this.cursor.addEventListener("focus", () => this.point(this.index < 0 ? this.data.steps.length - 1 : this.index));
    this.cursor.addEventListener("blur", () => this.leave());
    addDownloads(figure, () => this.svg, () => this.data);
    new ResizeObserver(() => this.draw()).observe(this.box);
  }

  draw() {
    const width = Math.floor(this.box.clientWidth);
    const height = Math.floor(this.box.clientHeight);
    this.data = readTable(this.figure);
    if (width < 40 || height < 40) return;
    const { data } = this;
    const shown = JSON.stringify([width, height, data]);
    if (shown === this.shown) return; // nothing changed: the picture stays as it is
    this.shown = shown;
    this.frame = frameOf(data, width, height);
    const name = this.figure.id || "plot";
    const svg = svgElement("svg", {
      viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-labelledby": `${name}-title ${name}-about`,
    });
    svg.append(
      svgElement("title", { id: `${name}-title` }, data.title),
      svgElement("desc", { id: `${name}-about` }, data.about),
      patternsOf(data, name),
      this.axes(),
      drawMarks(data, this.frame, name),
    );
    this.line = svgElement("line", { class: "plot-step", y1: this.frame.top, y2: this.frame.bottom, visibility: "hidden" });
    svg.append(this.line);
    if (this.svg) this.svg.replaceWith(svg);
    else this.box.prepend(svg);
    this.svg = svg;
    drawSwatches(this.figure, data, name);
    this.cursor.setAttribute("aria-label", `Steps of ${data.title}`);
    this.cursor.setAttribute("aria-valuemin", "0");
    this.cursor.setAttribute("aria-valuemax", String(Math.max(0, data.steps.length - 1)));
    this.tell(Math.max(0, this.index));
  }

  axes() {
    const { frame, data } = this;
    const group = svgElement("g", { class: "plot-axes", "aria-hidden": "true" });
    for (const { value, text } of axisTicks(frame.low, frame.high, data.unit)) {
      const y = frame.y(value);
      group.append(
        svgElement("line", { x1: frame.left, x2: frame.right, y1: y, y2: y }),
        svgElement("text", { x: frame.left - 6, y: y + 4, class: "plot-y" }, text),
      );
    }
    let free = -Infinity; // where the next label has room
    let last = ""; // the same text twice would name two places alike
    data.steps.forEach((step, index) => {
      if (frame.x(index) < free || step.short === last) return;
      free = frame.x(index) + X_LABEL_PX;
      last = step.short;
      group.append(svgElement("text", { x: frame.x(index), y: frame.bottom + 16, class: "plot-x" }, step.short));
    });
    return group;
  }

  indexAt(event) {
    const x = event.clientX - this.box.getBoundingClientRect().left;
    return this.frame.indexAt(x);
  }

  tell(index) {
    const step = this.data.steps[index];
    const values = this.data.series.map((series) => `${series.name} ${series.cells[index]?.text || "–"}`);
    this.cursor.setAttribute("aria-valuenow", String(index));
    this.cursor.setAttribute("aria-valuetext", step ? `${step.label}: ${values.join(", ")}` : "no data");
  }

  point(index) {
    const step = this.data.steps[index];
    if (!step || !this.frame) return;
    this.index = index;
    this.tell(index);
    const x = this.frame.x(index);
    this.line.setAttribute("x1", x);
    this.line.setAttribute("x2", x);
    this.line.setAttribute("visibility", "visible");
    const head = document.createElement("strong");
    head.textContent = step.label;
    const rows = this.data.series.map((series, number) => [series, number])
      .filter(([series]) => series.cells[index]?.value)
      .map(([series, number]) => {
        const row = document.createElement("span");
        row.className = `s${number % 8}`;
        row.textContent = `${series.name}  ${series.cells[index].text}`;
        return row;
      });
    if (!rows.length) {
      const none = document.createElement("span");
      none.textContent = "nothing";
      rows.push(none);
    }
    this.tip.replaceChildren(head, ...rows);
    this.tip.hidden = false;
    this.tip.style.left = `${Math.max(4, Math.min(x + 12, this.box.clientWidth - this.tip.offsetWidth - 4))}px`;
  }

  leave() {
    this.tip.hidden = true;
    this.line?.setAttribute("visibility", "hidden");
  }

  follow(event) {
    const { data, frame } = this;
    if (data.kind !== "stacked") return;
    const box = this.box.getBoundingClientRect();
    const value = frame.valueAt(event.clientY - box.top);
    const index = frame.indexAt(event.clientX - box.left);
    let sum = 0;
    for (const series of data.series) {
      sum += series.cells[index]?.value || 0;
      if (value <= sum && value >= 0) {
        if (series.href) window.location.assign(series.href);
        return;
      }
    }
  }

  key(event) {
    const last = this.data.steps.length - 1;
    const moves = {
      ArrowLeft: this.index - 1, ArrowDown: this.index - 1, ArrowRight: this.index + 1, ArrowUp: this.index + 1,
      Home: 0, End: last, PageUp: this.index - 7, PageDown: this.index + 7,
    };
    if (event.key === "Escape") this.leave();
    if (!(event.key in moves) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.point(Math.max(0, Math.min(last, moves[event.key])));
  }
}

function drawAll() {
  for (const figure of document.querySelectorAll("figure.plot")) {
    if (!figure.querySelector(".plot-box")) continue;
    const picture = drawn.get(figure);
    if (picture && picture.box.isConnected && picture.box.contains(picture.cursor)) picture.draw();
    else {
      const fresh = new PlotPicture(figure);
      drawn.set(figure, fresh);
      fresh.draw();
    }
  }
}

document.addEventListener("refreshed", drawAll);
drawAll();
