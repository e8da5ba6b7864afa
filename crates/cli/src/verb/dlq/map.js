"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const svg = document.querySelector("svg"), dots = document.getElementById("dots"), extents = document.getElementById("extents");
const list = document.getElementById("groups"), story = document.getElementById("story");
const by = document.getElementById("by"), text = document.getElementById("text"), shown = document.getElementById("shown");
const unplaced = document.getElementById("unplaced");
const COLORS = ["#c8102e", "#0072b2", "#e69f00", "#009e73", "#8e44ad", "#56b4e9", "#d55e00", "#7f8c2d", "#cc79a7", "#555555"];
const NS = "http://www.w3.org/2000/svg";
let off = new Set(), view = data.view.slice(), marks = [];
const el = (name, content, cls) => { const e = document.createElement(name); if (content !== undefined) e.textContent = content; if (cls) e.className = cls; return e; };
const key = l => String(l[by.value] ?? "");
function groups() {
  const all = new Map();
  for (const l of data.letters) { const g = all.get(key(l)) ?? { n: 0, like: l }; g.n++; all.set(key(l), g); }
  return [...all].sort((a, b) => b[1].n - a[1].n || (a[0] < b[0] ? -1 : 1));
}
function draw() {
  const all = groups(), color = new Map(all.map(([k], i) => [k, COLORS[Math.min(i, COLORS.length - 1)]]));
  list.replaceChildren(...all.map(([k, g]) => {
    const row = el("label", undefined, "group"), box = el("input"), mark = el("i");
    box.type = "checkbox"; box.checked = !off.has(k);
    box.addEventListener("change", () => { box.checked ? off.delete(k) : off.add(k); place(); });
    mark.style.background = color.get(k);
    row.append(box, mark, el("span", by.value === "fingerprint" ? g.like.code : k || "none"), el("b", g.n.toLocaleString("en")));
    if (by.value === "fingerprint") row.append(el("small", g.like.normal));
    return row;
  }));
  marks = data.letters.filter(l => l.lon !== null).map(l => {
    const c = document.createElementNS(NS, "circle");
    c.setAttribute("class", "dot"); c.setAttribute("fill", color.get(key(l))); c.setAttribute("tabindex", "0");
    c.setAttribute("cx", (l.lon + 180) * 10); c.setAttribute("cy", (90 - l.lat) * 10);
    const t = document.createElementNS(NS, "title"); t.textContent = l.code + ": " + l.message + (l.times > 1 ? " (in " + l.times.toLocaleString("en") + " runs)" : ""); c.append(t);
    c.addEventListener("click", () => tell(l));
    c.addEventListener("keydown", e => { if (e.key === "Enter") tell(l); });
    return { l, c, b: extent(l, color.get(key(l))) };
  });
  dots.replaceChildren(...marks.map(m => m.c));
  extents.replaceChildren(...marks.map(m => m.b).filter(Boolean));
  place();
}
// Where the raster of a letter lies, if it is about one.
function extent(l, color) {
  if (!l.extent) return null;
  const [w, s, e, n] = l.extent, r = document.createElementNS(NS, "rect");
  r.setAttribute("class", "extent"); r.setAttribute("stroke", color); r.setAttribute("fill", color);
  r.setAttribute("x", (w + 180) * 10); r.setAttribute("y", (90 - n) * 10);
  r.setAttribute("width", (e - w) * 10); r.setAttribute("height", (n - s) * 10);
  return r;
}
let words = [];
const fits = l => !off.has(key(l)) && words.every(w => (l.message + " " + l.code + " " + l.pipeline + " " + l.record + " " + l.id).toLowerCase().includes(w));
const counted = n => n.toLocaleString("en") + (n === 1 ? " letter" : " letters");
// A point shows one letter. Those below it, and those without a point, are opened by name.
const ROWS = 100;
function rows(letters) {
  const all = letters.slice(0, ROWS).map(l => {
    const b = el("button", l.code + " " + (l.record || l.id.slice(24)) + (l.times > 1 ? " ×" + l.times.toLocaleString("en") : ""), "row");
    b.addEventListener("click", () => tell(l));
    return b;
  });
  if (letters.length > ROWS) all.push(el("p", "and " + (letters.length - ROWS).toLocaleString("en") + " more; filter by text"));
  return all;
}
function place() {
  words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
  let here = 0;
  for (const m of marks) { const on = fits(m.l); for (const e of [m.c, m.b]) if (e) e.style.display = on ? "" : "none"; if (on) here++; }
  const all = data.letters.filter(fits), rest = all.filter(l => l.lon === null);
  shown.textContent = counted(all.length) + ", " + here.toLocaleString("en") + " on the map";
  unplaced.hidden = rest.length === 0;
  unplaced.replaceChildren(el("summary", counted(rest.length) + " without a location"), ...rows(rest));
  zoom(view);
}
function zoom(v) {
  view = v; svg.setAttribute("viewBox", v.join(" "));
  const r = v[2] / svg.clientWidth * 5.5;
  for (const m of marks) m.c.setAttribute("r", r);
}
function tell(l) {
  for (const m of marks) for (const e of [m.c, m.b]) if (e) e.classList.toggle("on", m.l === l);
  const dl = el("dl");
  for (const [k, v] of [["letter", l.id], ["code", l.code], ["class", l.class], ["state", l.state], ["message", l.message],
    ["pipeline", l.pipeline], ["stage", l.stage], ["service", l.service], ["record", l.record], ["failed in runs", l.times], ["first seen", l.first], ["last seen", l.last], ["failed replays", l.generation],
    ["crs", l.crs], ["raster", l.raster], ["extent", l.extent ? (data.exact ? "" : "about ") + l.extent.join(", ") : ""], ["thumbnail", l.no_picture ? "none: " + l.no_picture : ""], ["defect", l.defect], ["source", l.source], ["location", l.lon === null ? "" : (data.exact ? "" : "about ") + l.lon + ", " + l.lat]])
    if (v !== "" && v !== null && v !== undefined) dl.append(el("dt", k), el("dd", String(v)));
  story.replaceChildren(el("h2", "Letter"), dl, el("code", "tidegate dlq show " + l.id.slice(24) + l.store));
  if (l.picture) { const i = el("img"); i.src = l.picture; i.alt = "Thumbnail of the raster"; story.append(i); }
  const others = l.lon === null ? [] : data.letters.filter(o => o !== l && o.lon === l.lon && o.lat === l.lat && fits(o));
  if (others.length) story.append(el("h2", counted(others.length) + " more at this point"), ...rows(others));
  story.scrollIntoView({ block: "nearest" });
}
by.addEventListener("change", () => { off = new Set(); draw(); });
text.addEventListener("input", place);
const scale = (f, x, y) => zoom([x - (x - view[0]) * f, y - (y - view[1]) * f, view[2] * f, view[3] * f]);
const middle = f => scale(f, view[0] + view[2] / 2, view[1] + view[3] / 2);
document.getElementById("in").addEventListener("click", () => middle(0.5));
document.getElementById("out").addEventListener("click", () => middle(2));
document.getElementById("all").addEventListener("click", () => zoom(data.view.slice()));
svg.addEventListener("wheel", e => {
  e.preventDefault();
  const p = new DOMPoint(e.clientX, e.clientY).matrixTransform(svg.getScreenCTM().inverse());
  scale(e.deltaY > 0 ? 1.25 : 0.8, p.x, p.y);
}, { passive: false });
let drag = null;
svg.addEventListener("pointerdown", e => { drag = [e.clientX, e.clientY, view[0], view[1]]; });
window.addEventListener("pointermove", e => {
  if (!drag) return;
  const f = view[2] / svg.clientWidth;
  zoom([drag[2] - (e.clientX - drag[0]) * f, drag[3] - (e.clientY - drag[1]) * f, view[2], view[3]]);
});
window.addEventListener("pointerup", () => { drag = null; });
draw();
