// Looks at pages in headless Chromium: each must render without a console error and without asking
// for anything else, show its map, and have no violation that axe-core finds, in light and dark,
// wide and narrow.
//
//   node look.mjs [--shots DIR] PAGE.html|URL...
//
// It speaks the browser's own protocol over a pipe, so that it needs no library for it.

import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const pages = process.argv.slice(2);
let shots = null;
if (pages[0] === "--shots") {
  [, shots] = pages.splice(0, 2);
  mkdirSync(shots, { recursive: true });
}
const axe = readFileSync(new URL("./node_modules/axe-core/axe.min.js", import.meta.url), "utf8");

class Browser {
  constructor() {
    this.home = mkdtempSync(join(tmpdir(), "tidegate-browser-"));
    const flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
      "--disable-extensions", "--disable-background-networking", "--remote-debugging-pipe", `--user-data-dir=${this.home}`];
    this.child = spawn(process.env.CHROMIUM ?? "chromium", flags, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    this.next = 0;
    this.waiting = new Map();
    this.heard = [];
    let rest = "";
    this.child.stdio[4].on("data", (data) => {
      const parts = (rest + data).split("\0");
      rest = parts.pop();
      for (const part of parts) this.hear(JSON.parse(part));
    });
    this.child.on("error", (e) => { console.error(`the browser cannot be started: ${e.message}`); process.exit(1); });
  }
  hear(message) {
    const asked = this.waiting.get(message.id);
    if (!asked) return void this.heard.push(message);
    this.waiting.delete(message.id);
    message.error ? asked.fail(new Error(JSON.stringify(message.error))) : asked.done(message.result);
  }
  ask(method, params = {}, sessionId) {
    const id = ++this.next;
    this.child.stdio[3].write(JSON.stringify({ id, method, params, sessionId }) + "\0");
    return new Promise((done, fail) => this.waiting.set(id, { done, fail }));
  }
  async close() {
    await this.ask("Browser.close").catch(() => {});
    await new Promise((done) => (this.child.exitCode === null ? this.child.on("exit", done) : done()));
    rmSync(this.home, { recursive: true, force: true, maxRetries: 5 });
  }
}

const views = [
  { name: "light", scheme: "light", width: 1280 },
  { name: "dark", scheme: "dark", width: 1280 },
  { name: "narrow", scheme: "light", width: 390 },
  { name: "narrow-dark", scheme: "dark", width: 390 },
];

// `serve` for the front page of a server, otherwise the end of the path.
const nameOf = (page) => (page.startsWith("http") ? new URL(page).pathname.slice(1) || "serve" : basename(page, ".html"));

async function look(browser, page, view) {
  const faults = [];
  const url = page.startsWith("http") ? page : pathToFileURL(resolve(page)).href;
  const { targetId } = await browser.ask("Target.createTarget", { url: "about:blank" });
  const { sessionId } = await browser.ask("Target.attachToTarget", { targetId, flatten: true });
  const ask = (method, params) => browser.ask(method, params, sessionId);
  await Promise.all(["Page", "Runtime", "Log", "Network"].map((domain) => ask(`${domain}.enable`)));
  await ask("Emulation.setDeviceMetricsOverride", { width: view.width, height: 900, deviceScaleFactor: 1, mobile: view.width < 600 });
  await ask("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: view.scheme }] });
  browser.heard.length = 0;
  await ask("Page.navigate", { url });
  const value = async (expression) => {
    const { result, exceptionDetails } = await ask("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  };
  while ((await value("document.readyState + location.href")) !== `complete${url}`) await new Promise((done) => setTimeout(done, 20));
  // What a frame needs is there when the next one is drawn.
  await value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");
  for (const { method, params } of browser.heard) {
    if (method === "Log.entryAdded" && params.entry.level === "error") faults.push(`console: ${params.entry.text}`);
    if (method === "Runtime.consoleAPICalled" && params.type === "error") faults.push(`console: ${params.args[0]?.value}`);
    if (method === "Runtime.exceptionThrown") faults.push(`exception: ${params.exceptionDetails.text}`);
    if (method === "Network.requestWillBeSent" && params.request.url !== url && !params.request.url.startsWith("data:")) faults.push(`asks for ${params.request.url}`);
  }
  // A letter shows the picture of its raster when it is selected.
  await value("[...document.querySelectorAll('#dots circle')].some((e) => (e.dispatchEvent(new MouseEvent('click')), document.images.length))");
  await value("Promise.all([...document.images].map((e) => e.decode().catch(() => {})))");
  const seen = await value(`(() => {
    const size = (e) => { const r = e.getBoundingClientRect(); return r.width > 100 && r.height > 20; };
    const map = document.querySelector("svg.map");
    const marks = map ? [...map.querySelectorAll(".dot, .ring-at, .cross")] : [];
    const view = map?.viewBox.baseVal;
    return {
      title: document.title,
      styled: getComputedStyle(document.body).maxWidth !== "none" || getComputedStyle(document.body).display === "grid",
      dots: document.getElementById("dots") && [...document.querySelectorAll("#dots circle")].filter((e) => e.getBoundingClientRect().width > 1).length,
      plots: [...document.querySelectorAll("figure > svg")].filter((e) => !size(e)).length,
      overflow: document.documentElement.scrollWidth - innerWidth,
      pictures: [...document.images].filter((e) => !e.naturalWidth || e.getBoundingClientRect().width < 20).length,
      map: map ? size(map) : null,
      marks: marks.map((e) => e.getTotalLength() >= 0 && (e.getAttribute("d").match(/M/g) ?? []).length),
      inside: marks.every((e) => { const b = e.getBBox(); return b.x >= view.x - 1 && b.y >= view.y - 1 && b.x + b.width <= view.x + view.width + 1; }),
    };
  })()`);
  if (!seen.title) faults.push("it has no title");
  if (!seen.styled) faults.push("its style is not applied");
  if (seen.plots) faults.push(`${seen.plots} plots have no size`);
  if (seen.overflow > 0) faults.push(`it is ${seen.overflow} pixels wider than the window`);
  if (seen.pictures) faults.push(`${seen.pictures} pictures are not shown`);
  if (seen.map === false) faults.push("the map has no size");
  if (seen.map && !(seen.marks.length && seen.marks.every((n) => n > 0))) faults.push("the map shows no points");
  if (seen.dots === 0) faults.push("the map of dead letters shows no points");
  if (seen.map && !seen.inside) faults.push("points lie outside the map");
  await value(`${axe}; undefined`);
  for (const violation of await value(`axe.run().then((r) => r.violations.map((v) => v.id + ": " + v.help + " " + v.nodes.map((n) => n.target.join(" ")).slice(0, 3).join("; ")))`)) {
    faults.push(`axe: ${violation}`);
  }
  if (shots) {
    const { data } = await ask("Page.captureScreenshot", { captureBeyondViewport: true, format: "png" });
    writeFileSync(join(shots, `${nameOf(page)}-${view.name}.png`), Buffer.from(data, "base64"));
  }
  await browser.ask("Target.closeTarget", { targetId });
  return { faults, seen };
}

const browser = new Browser();
let bad = 0;
for (const page of pages) {
  for (const view of views) {
    const { faults, seen } = await look(browser, page, view);
    const marks = seen.dots === null ? seen.marks : [seen.dots];
    const points = marks.length ? `, ${marks.join(" + ")} points` : "";
    console.log(`${faults.length ? "✗" : "✓"} ${nameOf(page)} (${view.name}${points})`);
    for (const fault of faults) console.log(`    ${fault}`);
    bad += faults.length;
  }
}
await browser.close();
process.exit(bad ? 1 : 0);
