// The data of a plot: the table of its figure. Each row is a step, each column after the first a series.
//
// `th[data-role]` says how a series is drawn (words of: line, low, high, bar), `td[data-value]` has the number, and the
// text of the cell how it is written. A cell without a number is a gap. `data-at` of a row is its time, in seconds, where
// the steps are not equal.

export function readTable(figure) {
  const table = figure.querySelector("table");
  const heads = table ? [...table.querySelectorAll("thead th")].slice(1) : [];
  const rows = table ? [...table.querySelectorAll("tbody tr")] : [];
  const steps = rows.map((row) => {
    const head = row.cells[0];
    const label = head.textContent.trim();
    return { label, short: head.dataset.short || label, at: Number(head.dataset.at ?? Number.NaN) };
  });
  const series = heads.map((head, column) => ({
    name: head.textContent.trim(),
    roles: (head.dataset.role || "line").split(" "),
    href: head.dataset.href || "",
    cells: rows.map((row) => {
      const cell = row.cells[column + 1];
      const value = cell && cell.dataset.value !== undefined ? Number(cell.dataset.value) : Number.NaN;
      return { value: Number.isFinite(value) ? value : null, text: cell ? cell.textContent.trim() : "" };
    }),
  }));
  return {
    kind: figure.dataset.plot || "lines",
    unit: figure.dataset.unit || "",
    low: figure.dataset.low === undefined ? null : Number(figure.dataset.low),
    title: figure.querySelector("figcaption .plot-title")?.textContent.trim() || "",
    about: figure.querySelector("figcaption .plot-about")?.textContent.trim() || "",
    steps,
    series,
  };
}

export function csvOf(table) {
  const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  // A cell that a spreadsheet would read as a formula is made text.
  const safe = (text) => quoted(/^\s*[=+\-@\uff1d\uff0b\uff0d\uff20]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text);
  const lines = [...table.rows].map((row) =>
    [...row.cells].map((cell) => safe(cell.dataset.value ?? cell.textContent.trim())).join(","));
  return `${lines.join("\r\n")}\r\n`;
}
