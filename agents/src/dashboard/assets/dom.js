// Elements of pages. All text becomes text nodes, and invisible characters become escapes.

const HANDLERS = ["click", "input", "change", "toggle"];

/**
 * Makes an element of `tag.class.class`. If the second value is a plain object, it has the
 * attributes. All other values are children.
 */
export function h(name, ...rest) {
  const [tag, ...classes] = name.split(".");
  return fill(document.createElement(tag), classes, rest);
}

/** Makes an SVG element in the same way. */
export function svg(name, ...rest) {
  const [tag, ...classes] = name.split(".");
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), classes, rest);
}

function fill(element, classes, rest) {
  const attributes = rest[0]?.constructor === Object ? rest.shift() : {};
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (HANDLERS.includes(key)) element.addEventListener(key, value);
    else if (key === "class") classes.push(...[value].flat().filter(Boolean));
    else if (key === "title" || key === "aria-label") element.setAttribute(key, plain(String(value)));
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  if (classes.length > 0) element.setAttribute("class", classes.join(" "));
  put(element, rest);
  return element;
}

function put(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    if (child instanceof Node) element.append(child);
    else element.append(...visible(String(child)));
  }
}

/** Replaces all children. The focus moves from a control or a link to its successor. */
export function replace(element, ...children) {
  const active = element.contains(document.activeElement) && named(document.activeElement);
  element.replaceChildren();
  put(element, children);
  if (active) {
    const same = [...element.querySelectorAll(CONTROLS)].find((one) => named(one) === active);
    same?.focus({ preventScroll: true });
  }
  return element;
}

const CONTROLS = "a, button, summary, input[type=checkbox]";

const named = (one) => `${one.tagName} ${
  one.getAttribute("href") ?? one.getAttribute("aria-label") ?? one.textContent}`;

// Control characters, and characters that hide or reorder text.
export const UNSEEN = new RegExp(
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u180e\\u200b-\\u200f" +
    "\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb]|[\\u{e0000}-\\u{e007f}]", "gu");

const escaped = (character) => "\\u" + character.codePointAt(0).toString(16).padStart(4, "0");

/** Returns nodes for `append`, in which invisible characters are escapes. */
function visible(text) {
  const nodes = [];
  let from = 0;
  for (const found of text.matchAll(UNSEEN)) {
    if (found.index > from) nodes.push(text.slice(from, found.index));
    nodes.push(h("span.esc", { title: "a character that cannot be seen" }, escaped(found[0])));
    from = found.index + found[0].length;
  }
  if (from < text.length) nodes.push(text.slice(from));
  return nodes;
}

/** Returns text for titles and attributes, in which invisible characters are escapes. */
export const plain = (text) => text.replace(UNSEEN, escaped);
