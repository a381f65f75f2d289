// ---- elements and texts

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "style")
      Object.assign(node.style, value);
    else if (name.startsWith("on"))
      node.addEventListener(name.slice(2), value);
    else
      node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

function digits(number) {
  const size = Math.abs(number);
  return size >= 100 ? number.toFixed(0) : size >= 10 ? number.toFixed(1) : number.toFixed(2);
}
function bytes(number) {
  for (const [unit, size] of [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]])
    if (Math.abs(number) >= size) return digits(number / size) + " " + unit;
  return number + " B";
}
function seconds(number) {
  if (number === null || number === undefined) return "\u2013";
  if (number >= 1) return digits(number) + " s";
  if (number >= 1e-3) return digits(number * 1e3) + " ms";
  return digits(number * 1e6) + " \u00b5s";
}
// Two points of time in one unit, with as many digits as tell them apart.
function between(begin, end) {
  const [unit, factor] = end >= 1 ? ["s", 1] : end >= 1e-3 ? ["ms", 1e3] : ["\u00b5s", 1e6];
  const places = Math.min(9, Math.max(0, 2 - Math.floor(Math.log10((end - begin) * factor || 1))));
  return `${(begin * factor).toFixed(places)} to ${(end * factor).toFixed(places)} ${unit}`;
}
const percent = (share) => (100 * share).toFixed(1) + " %";
const count = (number) => number.toLocaleString("en").replaceAll(",", "\u2009");
function byteUnit(most) {
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]])
    if (most >= size) return [unit, size];
  return ["B", 1];
}
function timeUnit(most) {
  return most >= 1 ? ["seconds", 1] : most >= 1e-3 ? ["milliseconds", 1e3] : ["microseconds", 1e6];
}
const several = page.runs.length > 1;
const rankWord = (ranks, number) => (number > 1 ? `ranks ${short(ranks)} (${number})` : `rank ${ranks}`);
const short = (text) => (text.length > 26 ? text.slice(0, 24) + "\u2026" : text);
const narrow = window.innerWidth < 640;
const last = (list) => list[list.length - 1];

function keyOf(color, text, click) {
  const key =
      el(click ? "button" : "span", {class: click ? "key" : "key plain"}, el("i", {style: {background: color}}), text);
  if (click) {
    key.setAttribute("aria-pressed", "true");
    key.addEventListener("click", () => {
      const shown = click();
      key.classList.toggle("off", !shown);
      key.setAttribute("aria-pressed", String(shown));
    });
  }
  return key;
}
function section(id, title, text) {
  const node =
      el("section", {id, "aria-labelledby": id + "-title"}, el("h2", {id: id + "-title"}, title), el("p", {}, text));
  document.getElementById("page").append(node);
  document.querySelector("nav").append(el("a", {href: "#" + id}, title));
  return node;
}
// On a narrow screen each row becomes a card, in which every cell has its column's title before it.
function table(head, rows) {
  return el(
      "div", {class: "scroll"},
      el("table", {}, el("thead", {}, el("tr", {}, head.map((text) => el("th", {scope: "col"}, text)))),
         el("tbody", {},
            rows.map((row) => el("tr", {}, row.map((cell, c) => el("td", {"data-title": head[c]}, cell)))))));
}
function title(into, run) {
  if (several) into.append(el("h3", {}, run.name));
}
