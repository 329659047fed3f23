// Elements from text. Nothing here, or on the page, parses a text as HTML: tenants write some of it.

const SVG = "http://www.w3.org/2000/svg";
const ALLOWED = new Set([
  "class", "id", "href", "type", "value", "placeholder", "role", "scope", "colspan", "title", "hidden", "for", "tabindex",
  "selected", "checked", "autocomplete", "maxlength", "name", "list",
  "viewBox", "width", "height", "x", "y", "x1", "x2", "y1", "y2", "d", "text-anchor",
]);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === false || value === null || value === undefined) continue;
    else if (name === "href" && !String(value).startsWith("#/")) throw new Error("links stay on the page");
    else if (ALLOWED.has(name) || name.startsWith("aria-")) element.setAttribute(name, value === true ? "" : String(value));
    else throw new Error(`no such attribute here: ${name}`);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

export const link = (text, ...path) => h("a", { href: route(...path) }, text);
export const route = (...path) => "#/" + path.map(encodeURIComponent).join("/");

/** A table: heads are texts, or [text, class]. A `name` is not broken while there is room for it. */
export function table(caption, heads, rows, empty) {
  if (!rows.length) return h("p", { class: "quiet" }, empty);
  const classes = heads.map((head) => (Array.isArray(head) ? head[1] : ""));
  return h("table", {},
    h("caption", {}, caption),
    h("thead", {}, h("tr", {}, heads.map((head, i) => h("th", { scope: "col", class: classes[i] }, Array.isArray(head) ? head[0] : head)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, i) => h("td", { class: classes[i] }, classes[i] === "name" ? h("span", {}, cell) : cell))))));
}

export function facts(...pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts" }, known.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}
