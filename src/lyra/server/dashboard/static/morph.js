// Changes a part of the page into another version of itself and keeps what the person is doing there: focus, selection,
// scroll positions, open <details>, text in fields, and the marks `data-chosen` and `data-busy`, which scripts set and the
// server never does. Children are matched by `id` or `data-key`, else by their order.

const FIELDS = new Set(["INPUT", "TEXTAREA", "SELECT"]);
const MARKS = new Set(["data-chosen", "data-busy"]);

export function morph(from, to) {
  if (from.nodeType === Node.TEXT_NODE || from.nodeType === Node.COMMENT_NODE) {
    if (from.data !== to.data) from.data = to.data;
    return;
  }
  if (from.hasAttribute("data-keep")) return;
  morphAttributes(from, to);
  if (isBeingEdited(from)) return;
  morphChildren(from, to);
}

function morphAttributes(from, to) {
  for (const { name, value } of [...to.attributes]) {
    if (name === "open" && from.tagName === "DETAILS") continue;
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  for (const { name } of [...from.attributes]) {
    if (!to.hasAttribute(name) && !isOfThePerson(from, name)) from.removeAttribute(name);
  }
}

function isOfThePerson(element, name) {
  return MARKS.has(name) || (name === "open" && (element.tagName === "DETAILS" || element.tagName === "DIALOG")) ||
    (name === "aria-expanded" && element.hasAttribute("data-folds"));
}

function isBeingEdited(element) {
  if (!FIELDS.has(element.tagName)) return false;
  if (element === document.activeElement) return true;
  if (element.tagName === "SELECT") return [...element.options].some((option) => option.selected !== option.defaultSelected);
  return element.value !== element.defaultValue || element.checked !== element.defaultChecked;
}

function keyOf(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return null;
  return node.dataset?.key !== undefined ? `key:${node.dataset.key}` : node.id ? `id:${node.id}` : null;
}

function morphChildren(from, to) {
  const wantedKeys = new Set([...to.childNodes].map(keyOf));
  const byKey = new Map();
  for (const child of [...from.childNodes]) {
    const key = keyOf(child);
    if (key === null) continue;
    if (!wantedKeys.has(key)) child.remove(); // before the others are matched, so that none of them has to move
    else if (!byKey.has(key)) byKey.set(key, child);
  }
  let place = from.firstChild;
  for (const wanted of [...to.childNodes]) {
    const key = keyOf(wanted);
    let match = null;
    if (key !== null) {
      match = byKey.get(key) ?? null;
      byKey.delete(key);
      if (match !== null && match.nodeName !== wanted.nodeName) match = null;
    } else if (place !== null && keyOf(place) === null && place.nodeName === wanted.nodeName) {
      match = place;
    }
    if (match === null) {
      from.insertBefore(document.importNode(wanted, true), place);
      continue;
    }
    if (match !== place) place = bring(match, place);
    if (match === place) place = place.nextSibling;
    morph(match, wanted);
  }
  while (place !== null) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

// Puts a child before the place and gives the place from there on. An element that moves loses the focus: the one that
// has it stays, and those before it are put behind it.
function bring(child, place) {
  if (!child.contains(document.activeElement)) {
    child.parentNode.insertBefore(child, place);
    return place;
  }
  const behind = child.nextSibling;
  while (place !== child) {
    const next = place.nextSibling;
    child.parentNode.insertBefore(place, behind);
    place = next;
  }
  return child;
}
