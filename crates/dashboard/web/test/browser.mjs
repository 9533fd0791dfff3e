// Drives the built page in Chromium against the mock server: every page in both schemes and at phone width, axe, the keyboard
// alone, hostile names, a lost connection and a session that ends.
//
//   node test/browser.mjs [--shots DIR]     CHROMIUM names the browser; its default is Debian's.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import puppeteer from "puppeteer-core";
import { Cluster } from "../mock/cluster.mjs";
import { serve } from "../mock/server.mjs";
import { figuresUnlike, unlike } from "./schema.mjs";

const AXE = readFileSync(new URL("../node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const PAGES = ["overview", "osds", "pools", "pgs", "images", "hosts", "tasks", "log"];
const at = process.argv.indexOf("--shots");
const shots = at > 0 ? process.argv[at + 1] : null;
if (shots) mkdirSync(shots, { recursive: true });

const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });

/** A page of its own, signed in unless told otherwise. What the browser complains of fails the test. */
async function open(server, { width = 1360, height = 900, scheme = "light", signedIn = true, user = "admin" } = {}) {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  page.complaints = [];
  page.on("pageerror", (error) => page.complaints.push(String(error)));
  page.on("console", (m) => m.type() === "error" && !/Failed to load resource/.test(m.text()) && page.complaints.push(m.text()));
  await page.setViewport({ width, height });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await page.goto(`http://127.0.0.1:${server.port}/`);
  await page.waitForSelector("#name");
  if (signedIn) {
    await page.type("#name", user);
    await page.type("#password", "mock");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelector("nav") || /has to be changed first/.test(document.body.textContent));
  }
  return page;
}

async function visit(page, path) {
  await page.evaluate((p) => void (location.hash = `#/${p}`), path);
  await page.waitForFunction((p) => document.querySelector("nav [aria-current]")?.getAttribute("href") === `#/${p}` && !document.querySelector("main .empty[role=status]"), {}, path);
}

async function axe(page, where) {
  // Through the debugger, which the page's content security policy does not stop.
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  const told = violations.map((v) => `${v.id} (${v.impact}): ${v.nodes.map((n) => n.target.join(" ") + " " + n.failureSummary).join("; ")}`);
  assert.deepEqual(told, [], `${where}: axe`);
}

async function shot(page, name) {
  if (shots) await page.screenshot({ path: `${shots}/${name}.png`, fullPage: true });
}

const tests = {
  async "the mock server answers as openapi.json says"() {
    for (const cluster of [new Cluster(false), new Cluster(true)]) {
      const answers = { osds: cluster.tree(), pgs: cluster.pgs(), services: cluster.services(), tasks: cluster.tasks() };
      for (const [name, value] of Object.entries(answers)) assert.deepEqual(unlike("get", `/api/view/${name}`, 200, value), []);
      assert.deepEqual(unlike("get", "/api/pool", 200, cluster.pools()), []);
      assert.deepEqual(unlike("get", "/api/block/image", 200, cluster.images()), []);
      assert.deepEqual(unlike("get", "/api/logs/all", 200, cluster.log()), []);
      assert.deepEqual(figuresUnlike(cluster.figures()), []);
    }
  },

  async "every page, light, dark and at phone width, without a finding of axe"(server) {
    for (const [name, how] of Object.entries({ light: {}, dark: { scheme: "dark" }, phone: { width: 390, height: 800 } })) {
      const page = await open(server, how);
      for (const path of PAGES) {
        await visit(page, path);
        if (path === "overview") await page.evaluate(() => document.querySelectorAll("details").forEach((d, i) => (d.open = i < 2)));
        await new Promise((r) => setTimeout(r, 300));
        await axe(page, `${name} ${path}`);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        assert.equal(wide, 0, `${name} ${path}: wider than the window`);
        await shot(page, `${name}-${path}`);
      }
      assert.deepEqual(page.complaints, [], name);
      await page.browserContext().close();
    }
  },

  async "signing in is refused in words, with a growing pause, and has no finding of axe"(server) {
    for (const scheme of ["light", "dark"]) {
      const page = await open(server, { signedIn: false, scheme });
      await axe(page, `sign-in ${scheme}`);
      await shot(page, `${scheme}-sign-in`);
      await page.browserContext().close();
    }
    const page = await open(server, { signedIn: false });
    for (let i = 0; i < 3; i++) {
      await page.waitForFunction(() => !document.querySelector("button.primary").disabled);
      await page.$eval("#name", (field) => field.select());
      await page.type("#name", "admin");
      await page.type("#password", "guess");
      await page.keyboard.press("Enter");
      await page.waitForSelector("[role=alert]");
      await page.waitForFunction(() => document.querySelector("#password").value === "");
    }
    await page.waitForFunction(() => /Try again in/.test(document.querySelector("[role=alert]")?.textContent ?? ""));
    await axe(page, "sign-in refused");
    await page.browserContext().close();
  },

  async "names of the cluster are shown as text"(server) {
    const page = await open(server);
    for (const path of PAGES) await visit(page, path);
    await visit(page, "pools");
    const names = await page.$$eval("tbody th", (cells) => cells.map((c) => c.textContent));
    assert(names.some((n) => n.startsWith("<img src=x")), "the name stands there as it is");
    assert(names.includes("rev‹U+202E›gnp.exe"), "no mark turns text around unseen");
    assert.equal(await page.$("img[src=x]"), null);
    assert.match(await page.title(), /Loligo/);
    await page.browserContext().close();
  },

  async "the keyboard alone signs in and reaches every page and every control"(server) {
    const page = await open(server, { signedIn: false });
    await page.keyboard.type("admin");
    await page.keyboard.press("Tab");
    await page.keyboard.type("mock");
    await page.keyboard.press("Enter");
    await page.waitForSelector("nav");
    for (const [i, path] of PAGES.entries()) {
      if (i > 0) {
        await page.focus("nav li:first-child a");
        for (let n = 0; n < i; n++) await page.keyboard.press("Tab");
        await page.keyboard.press("Enter");
      }
      await page.waitForFunction((p) => location.hash.endsWith(p) || p === "overview", {}, path);
      await page.waitForFunction(() => !document.querySelector("main .empty[role=status]"));
      assert.deepEqual(await unreached(page), [], `${path}: out of reach`);
    }
    // The map's squares are walked over with the arrow keys.
    await visit(page, "pgs");
    await page.focus("[role=application]");
    await page.keyboard.press("ArrowRight");
    await page.waitForFunction(() => /^\d+\.[0-9a-f]+ /.test(document.querySelector(".said").textContent));
    await visit(page, "osds");
    await page.focus(".fold");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
    await page.browserContext().close();
  },

  async "a lost connection is told at once with the figures' age, and found again"(server) {
    const page = await open(server);
    await page.waitForSelector(".age:not(.old)");
    server.cut();
    await page.waitForSelector(".lost");
    const said = await page.$eval(".lost", (e) => e.textContent);
    assert.match(said, /connection to the manager is lost.*figures are those of \d\d:\d\d:\d\d, \d+ s old/);
    await page.waitForSelector(".age.old");
    await axe(page, "lost");
    await shot(page, "light-lost");
    server.mend();
    await page.waitForFunction(() => !document.querySelector(".lost"));
    await page.waitForSelector(".age:not(.old)");
    await page.browserContext().close();
  },

  async "what a user may not read is not there, and a password that has to be changed first is asked for"(server) {
    const page = await open(server, { user: "watcher" });
    await page.waitForSelector(".numbers");
    assert.deepEqual(await page.$$eval(".numbers dt", (all) => all.map((e) => e.textContent)), ["OSDs", "PGs clean", "Objects", "Degraded"]);
    assert.equal(await page.$(".charts"), null);
    for (const path of ["osds", "pgs", "tasks"]) await visit(page, path);
    await axe(page, "watcher");
    assert.deepEqual(page.complaints, []);
    await page.browserContext().close();
    const first = await open(server, { user: "newcomer" });
    assert.equal(await first.$("nav"), null);
    await axe(first, "newcomer");
    await first.click("button.primary");
    await first.waitForSelector("#name");
    await first.browserContext().close();
  },

  async "a session that ends leads to the sign-in"(server) {
    const page = await open(server);
    server.signOut();
    await page.waitForSelector("#name");
    await page.browserContext().close();
  },
};

/** Controls that Tab does not come by, starting from the top. */
async function unreached(page) {
  await page.evaluate(() => {
    document.activeElement?.blur();
    window.scrollTo(0, 0);
    window.met = new Set();
    window.wanted = [...document.querySelectorAll("a[href], button:not([disabled]), input, summary, [tabindex='0']")].filter((e) => e.checkVisibility());
  });
  const most = await page.evaluate(() => window.wanted.length + 20);
  for (let i = 0; i < most; i++) {
    await page.keyboard.press("Tab");
    await page.evaluate(() => window.met.add(document.activeElement));
  }
  return page.evaluate(() => {
    // Of a group of radio buttons Tab comes by one; the arrow keys go on from there.
    const group = (e) => e.type === "radio" && [...window.met].some((m) => m.name === e.name);
    return window.wanted.filter((e) => e.isConnected && !window.met.has(e) && !group(e)).map((e) => e.outerHTML.slice(0, 120));
  });
}

let failed = 0;
for (const [name, test] of Object.entries(tests)) {
  const server = await serve(0);
  try {
    await test(server);
    console.log(`ok      ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  ${name}\n${error.stack ?? error}`);
  }
  server.close();
}
await browser.close();
process.exit(failed ? 1 : 0);
