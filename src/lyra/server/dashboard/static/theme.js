// Sets the theme that was chosen on this device before the first paint; without a choice the system's theme holds.
"use strict";
try {
  const theme = localStorage.getItem("lyra-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage is switched off: the system's theme holds.
}
