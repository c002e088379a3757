// What is drawn in a plot: stacked bars, lines with labels at their ends, bands between a low and a high series.
//
// A series has a colour and, so that colour is never alone, a pattern (bars) or a dash and a label (lines).

import { LABEL_GAP_PX, labelLines, svgElement } from "./plot_scales.js";

const SERIES = 8; // with a colour and pattern of their own
const HATCHES = [
  [], ["M0 8 L8 0"], ["M0 0 L8 8"], ["M0 4 H8"], ["M4 0 V8"], ["M0 8 L8 0", "M0 0 L8 8"], ["M0 4 H8", "M4 0 V8"], ["M2 2 h2 v2 h-2 z"],
];
const LINE_PX = 13; // of a label
const DASHES = ["", "6 3", "2 3", "8 3 2 3", "1 3", "10 4", "4 2 1 2", "3 6"];

export function patternsOf(data, name) {
  const defs = svgElement("defs");
  data.series.slice(0, SERIES).forEach((_, number) => {
    const pattern = svgElement("pattern", {
      id: `${name}-fill-${number}`, class: `s${number}`, width: 8, height: 8, patternUnits: "userSpaceOnUse",
    });
    pattern.append(svgElement("rect", { width: 8, height: 8, fill: "currentColor" }));
    for (const path of HATCHES[number]) pattern.append(svgElement("path", { d: path, class: "plot-hatch" }));
    defs.append(pattern);
  });
  return defs;
}

export function drawSwatches(figure, data, name) {
  figure.querySelectorAll(".plot-legend .swatch").forEach((swatch, number) => {
    const roles = data.series[number]?.roles ?? [];
    const mark = data.kind === "stacked"
      ? svgElement("rect", { width: 20, height: 12, fill: `url(#${name}-fill-${number % SERIES})` })
      : svgElement("path", { d: "M0 6 H20", class: "plot-line", "stroke-dasharray": roles.includes("line") ? DASHES[number % SERIES] : "1 1" });
    swatch.replaceChildren(mark);
  });
}

export function drawMarks(data, frame, name) {
  const group = svgElement("g", { class: "plot-marks" });
  if (data.kind === "stacked") drawBars(group, data, frame, name);
  else {
    drawBand(group, data, frame);
    drawLines(group, data, frame);
  }
  return group;
}

function drawBars(group, data, frame, name) {
  const width = Math.max(1, Math.min(48, frame.step * 0.72));
  data.steps.forEach((step, index) => {
    let sum = 0;
    data.series.forEach((series, number) => {
      const value = series.cells[index].value || 0;
      if (value <= 0) return;
      const y = frame.y(sum + value);
      const bar = svgElement("rect", {
        x: (frame.x(index) - width / 2).toFixed(1), y: y.toFixed(1), width: width.toFixed(1),
        height: Math.max(0.5, frame.y(sum) - y).toFixed(1), fill: `url(#${name}-fill-${number % SERIES})`, class: "plot-bar",
      });
      bar.append(svgElement("title", {}, `${step.label}, ${series.name}: ${series.cells[index].text}`));
      group.append(bar);
      sum += value;
    });
  });
}

function pathOf(cells, frame) {
  let path = "";
  let isOpen = false;
  cells.forEach((cell, index) => {
    if (cell.value === null) {
      isOpen = false;
      return;
    }
    path += `${isOpen ? "L" : "M"}${frame.x(index).toFixed(1)} ${frame.y(cell.value).toFixed(1)}`;
    isOpen = true;
  });
  return path;
}

function drawBand(group, data, frame) {
  const low = data.series.find((series) => series.roles.includes("low"));
  const high = data.series.find((series) => series.roles.includes("high"));
  if (!low || !high) return;
  let run = [];
  const close = () => {
    if (run.length) {
      const there = run.map((index) => `${frame.x(index).toFixed(1)} ${frame.y(high.cells[index].value).toFixed(1)}`);
      const back = run.map((index) => `${frame.x(index).toFixed(1)} ${frame.y(low.cells[index].value).toFixed(1)}`).reverse();
      group.append(svgElement("path", { d: `M${[...there, ...back].join("L")}Z`, class: "plot-band s0" }));
    }
    run = [];
  };
  data.steps.forEach((_, index) => {
    if (low.cells[index].value === null || high.cells[index].value === null) close();
    else run.push(index);
  });
  close();
}

function drawLines(group, data, frame) {
  const ends = [];
  data.series.forEach((series, number) => {
    if (!series.roles.includes("line")) return;
    const kind = `s${number % SERIES}`;
    group.append(svgElement("path", {
      d: pathOf(series.cells, frame), class: `plot-line ${kind}`, "stroke-dasharray": DASHES[number % SERIES],
    }));
    series.cells.forEach((cell, index) => {
      const isAlone = series.cells[index - 1]?.value == null && series.cells[index + 1]?.value == null;
      if (cell.value === null || (data.steps.length > 40 && !isAlone)) return;
      const dot = svgElement("circle", { cx: frame.x(index).toFixed(1), cy: frame.y(cell.value).toFixed(1), r: 2.5, class: `plot-dot ${kind}` });
      dot.append(svgElement("title", {}, `${data.steps[index].label}, ${series.name}: ${cell.text}`));
      group.append(dot);
    });
    const last = series.cells.findLastIndex((cell) => cell.value !== null);
    if (last >= 0) ends.push({ name: series.name, kind, y: frame.y(series.cells[last].value) });
  });
  drawLabels(group, ends, frame);
}

// Beside the ends of their lines, none over another, all above the bottom of the picture.
function drawLabels(group, ends, frame) {
  ends.sort((one, other) => one.y - other.y);
  let above = -Infinity;
  for (const end of ends) {
    end.lines = labelLines(end.name, frame.labels);
    end.top = Math.max(end.y + 4 - (end.lines.length - 1) * LINE_PX * 0.5, above + LINE_PX);
    above = end.top + (end.lines.length - 1) * LINE_PX;
  }
  const lift = Math.max(0, above - frame.bottom - LINE_PX);
  for (const end of ends) {
    const label = svgElement("text", { class: `plot-label ${end.kind}` });
    end.lines.forEach((line, index) => {
      const y = (end.top - lift + index * LINE_PX).toFixed(1);
      label.append(svgElement("tspan", { x: frame.right + LABEL_GAP_PX, y }, line));
    });
    label.append(svgElement("title", {}, end.name));
    group.append(label);
  }
}
