// Axes and numbers of plots: where a step and a value lie, which values the axis names, and how they are written.

const SVG = "http://www.w3.org/2000/svg";

export const LABEL_GAP_PX = 6; // between a line and its label
const LABEL_CHAR_PX = 7;

export function svgElement(name, attributes = {}, text = "") {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text) element.textContent = text;
  return element;
}

function niceTicks(low, high, count) {
  const span = high - low || 1;
  const rough = span / count;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * size).find((candidate) => candidate >= rough);
  const ticks = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) ticks.push(Number(value.toPrecision(12)));
  return ticks;
}

function short(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return `${Number((value / 1e9).toPrecision(3))}G`;
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`;
  return String(Number(value.toPrecision(4)));
}

// The values that the axis names, with texts that differ: as many decimals as the distance between two needs.
export function axisTicks(low, high, unit) {
  const values = niceTicks(low, high, 4);
  const step = values.length > 1 ? values[1] - values[0] : values[0] || 1;
  return values.map((value) => ({ value, text: tickText(value, unit, step) }));
}

function tickText(value, unit, step) {
  if (unit === "usd") return value > 0 && step < 1 ? `$${value.toFixed(Math.max(2, Math.ceil(-Math.log10(step) - 1e-9)))}` : `$${short(value)}`;
  if (unit === "ms") return value >= 1000 ? `${short(value / 1000)} s` : `${short(value)} ms`;
  if (unit === "share") return `${Number((value * 100).toPrecision(6))} %`;
  return short(value);
}

function range(data) {
  const values = data.kind === "stacked"
    ? data.steps.map((_, index) => data.series.reduce((sum, row) => sum + (row.cells[index].value || 0), 0))
    : data.series.flatMap((row) => row.cells.map((cell) => cell.value).filter((value) => value !== null));
  const high = Math.max(0, ...values);
  const low = data.low === null ? 0 : Math.min(data.low, ...values);
  return { low, high: data.unit === "share" ? 1 : high || 1 };
}

// The labels of lines stand at their right ends: as much room as the longest needs, up to a part of the plot.
function labelsWidth(data, width) {
  const names = data.series.filter((series) => series.roles.includes("line")).map((series) => series.name);
  return Math.min(LABEL_GAP_PX + Math.max(...names.map((name) => name.length), 4) * LABEL_CHAR_PX, width * 0.32);
}

// A label in lines that fit; a word that is longer than a line is cut.
export function labelLines(name, labels) {
  const chars = Math.max(3, Math.floor((labels - LABEL_GAP_PX) / LABEL_CHAR_PX));
  const lines = [];
  for (const word of name.split(" ")) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + 1 + word.length <= chars) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word.length <= chars ? word : `${word.slice(0, chars - 1)}…`);
  }
  return lines;
}

// Where steps lie that say when they were: an hour is as long everywhere. Null where they are equal steps.
function timeScale(data, left, right) {
  const times = data.steps.map((step) => step.at);
  const length = times.at(-1) - times[0];
  if (data.kind === "stacked" || !(length > 0) || !times.every(Number.isFinite)) return null;
  return (index) => left + ((right - left) * (times[index] - times[0])) / length;
}

export function frameOf(data, width, height) {
  const { low, high: peak } = range(data);
  const ticks = niceTicks(low, peak, 4);
  const high = data.unit === "share" ? peak : Math.max(peak, ticks.at(-1) ?? peak);
  const labels = data.kind === "stacked" ? 0 : labelsWidth(data, width);
  const widest = Math.max(...axisTicks(low, high, data.unit).map((tick) => tick.text.length), 2);
  const left = 14 + widest * 7;
  const right = width - 12 - labels;
  const top = 12;
  const bottom = height - 26;
  const count = data.steps.length;
  const step = (right - left) / Math.max(1, data.kind === "stacked" ? count : count - 1);
  const shift = data.kind === "stacked" ? step / 2 : 0;
  const evenly = (index) => (count === 1 && !shift ? (left + right) / 2 : left + shift + step * index);
  const x = timeScale(data, left, right) ?? evenly;
  return {
    left, right, top, bottom, low, high, step, labels, x,
    y: (value) => bottom - ((value - low) / (high - low)) * (bottom - top),
    indexAt: (px) => data.steps.reduce((best, _, index) => (Math.abs(x(index) - px) < Math.abs(x(best) - px) ? index : best), 0),
    valueAt: (y) => low + ((bottom - y) / (bottom - top)) * (high - low),
  };
}
