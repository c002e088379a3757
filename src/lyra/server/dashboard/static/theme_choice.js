// The choice of the theme, kept by this browser. `theme.js` sets it on every page before the first paint.
const box = document.getElementById("theme");

function chosen() {
  try {
    return localStorage.getItem("lyra-theme") ?? "";
  } catch {
    return "";
  }
}

function choose(theme) {
  try {
    if (theme) localStorage.setItem("lyra-theme", theme);
    else localStorage.removeItem("lyra-theme");
  } catch {
    // Storage is switched off: the choice holds for this page.
  }
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

if (box) {
  const current = box.querySelector(`input[value="${chosen() === "light" || chosen() === "dark" ? chosen() : ""}"]`);
  if (current) current.checked = true;
  box.addEventListener("change", (event) => choose(event.target.value));
}
