// Downloads of a plot: the picture as SVG or PNG with the colours that are on screen, the table as CSV.

import { svgElement } from "./plot_scales.js";
import { csvOf } from "./plot_table.js";

const STYLED = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "fill-opacity", "color", "font-size", "font-family", "text-anchor"];
const PNG_SCALE = 2;

function standalone(svg) {
  const copy = svg.cloneNode(true);
  const sources = [svg, ...svg.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((element, index) => {
    const style = getComputedStyle(sources[index]);
    for (const name of STYLED) {
      const value = style.getPropertyValue(name);
      const isPaintServer = (element.getAttribute(name) || "").startsWith("url(");
      if (value && !isPaintServer) element.setAttribute(name, value);
    }
    element.removeAttribute("class");
  });
  const back = svgElement("rect", { width: "100%", height: "100%", fill: getComputedStyle(document.body).backgroundColor });
  copy.prepend(back);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  return new XMLSerializer().serializeToString(copy);
}

function save(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

async function savePng(svg, name) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(standalone(svg))}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = svg.clientWidth * PNG_SCALE;
  canvas.height = svg.clientHeight * PNG_SCALE;
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => blob && save(`${name}.png`, blob), "image/png");
}

export function addDownloads(figure, svgOf, dataOf) {
  const place = figure.querySelector(".plot-downloads");
  if (!place) return;
  const name = (figure.id || "plot").replaceAll(/[^\w-]/g, "-");
  const acts = {
    SVG: () => save(`${name}.svg`, new Blob([standalone(svgOf())], { type: "image/svg+xml" })),
    PNG: () => savePng(svgOf(), name),
    CSV: () => save(`${name}.csv`, new Blob([csvOf(figure.querySelector("table"))], { type: "text/csv" })),
  };
  place.replaceChildren(...Object.entries(acts).map(([word, act]) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = word;
    button.setAttribute("aria-label", `Download ${dataOf()?.title || figure.querySelector(".plot-title")?.textContent} as ${word}`);
    button.addEventListener("click", act);
    return button;
  }));
}
