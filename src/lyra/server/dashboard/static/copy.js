// Buttons that copy an id: <button data-copy="…">.
import { announce } from "./acts.js";

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("button[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    announce(`Copied ${button.dataset.copy}`);
  } catch {
    announce("The browser does not allow copying here");
  }
});
