// Drives a cluster's own dashboard: every path against openapi.json, every page in Chromium, requests that are to be refused.
//
//   loligo up --dashboard ...   then   node test/cluster.mjs URL CODE [--shots DIR]

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { request } from "node:http";
import puppeteer from "puppeteer-core";
import { figuresUnlike, GETS, unlike } from "./schema.mjs";

const [url, code] = process.argv.slice(2);
const at = process.argv.indexOf("--shots");
const shots = at > 0 ? process.argv[at + 1] : null;
if (shots) mkdirSync(shots, { recursive: true });
const base = new URL(url);

/** A request with whatever headers; no browser's rules apply. */
function ask(method, path, { headers = {}, body } = {}) {
  return new Promise((done, failed) => {
    const req = request({ host: base.hostname, port: base.port, method, path, headers }, (res) => {
      let text = "";
      res.setEncoding("utf8").on("data", (d) => (text += d)).on("end", () => done({ status: res.statusCode, headers: res.headers, text, json: () => JSON.parse(text) }));
    });
    req.on("error", failed);
    req.end(body);
  });
}
const JSON_KIND = { "Content-Type": "application/json" };
const signIn = (username, password, headers = {}) => ask("POST", "/api/auth", { headers: { ...JSON_KIND, ...headers }, body: JSON.stringify({ username, password }) });

const signed = await signIn("once", code);
assert.equal(signed.status, 201, signed.text);
assert.deepEqual(unlike("post", "/api/auth", 201, signed.json()), []);
const { token } = signed.json();
assert.match(signed.headers["set-cookie"][0], new RegExp(`^token-${base.port}=.*HttpOnly; SameSite=Strict`));
assert.equal((await signIn("once", code)).status, 400, "a code is good once");
const bearer = { Authorization: `Bearer ${token}` };

for (const path of [...GETS, "/api/pool?stats=true"]) {
  const begun = performance.now();
  const answer = await ask("GET", path, { headers: bearer });
  assert.equal(answer.status, 200, `${path}: ${answer.text.slice(0, 200)}`);
  assert.deepEqual(unlike("get", path, 200, answer.json()), []);
  console.log(`ok      ${path} (${Math.round(performance.now() - begun)} ms, ${answer.text.length} bytes)`);
}

const cookie = { Cookie: `token-${base.port}=${token}` };
const refused = [
  ["without a session", "GET", "/api/osd", {}, 401],
  ["with a made-up one", "GET", "/api/osd", { headers: { Authorization: "Bearer nonsense" } }, 401],
  ["the stream without one", "GET", "/api/live", {}, 401],
  ["from another site, with the cookie", "GET", "/api/osd", { headers: { ...cookie, "Sec-Fetch-Site": "cross-site" } }, 403],
  ["from another origin", "POST", "/api/auth/logout", { headers: { ...JSON_KIND, ...cookie, Origin: "http://evil.example" }, body: "{}" }, 403],
  ["as a form", "POST", "/api/auth/logout", { headers: { "Content-Type": "application/x-www-form-urlencoded", ...cookie }, body: "a=b" }, 415],
  ["for another host", "GET", "/", { headers: { Host: "evil.example" } }, 421],
  ["what is no JSON", "POST", "/api/auth", { headers: JSON_KIND, body: "{" }, 400],
  ["too much", "POST", "/api/auth", { headers: JSON_KIND, body: JSON.stringify({ username: "x".repeat(9000) }) }, 413],
  ["another method", "DELETE", "/api/pool", { headers: bearer }, 405],
  ["no such path", "GET", "/api/nothing", { headers: bearer }, 404],
  ["a path upwards", "GET", "/../../etc/passwd", {}, 404],
];
for (const [what, method, path, how, status] of refused) {
  const answer = await ask(method, path, how);
  assert.equal(answer.status, status, `${what}: ${answer.text}`);
  assert.match(answer.headers["content-security-policy"], /default-src 'none'/);
  assert.doesNotMatch(answer.headers["content-security-policy"], /unsafe-inline/);
}
console.log(`ok      ${refused.length} requests are refused`);

const statuses = [];
for (let i = 0; i < 6; i++) statuses.push((await signIn("nobody", `guess${i}`)).status);
assert.deepEqual(statuses.slice(0, 4), [400, 400, 400, 400]);
assert(statuses.includes(429), `guesses have pauses: ${statuses}`);
console.log("ok      guesses have pauses");

const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
const page = await browser.newPage();
const complaints = [];
page.on("pageerror", (e) => complaints.push(String(e)));
page.on("console", (m) => m.type() === "error" && complaints.push(m.text()));
await page.setViewport({ width: 1360, height: 900 });
await page.setCookie({ name: `token-${base.port}`, value: token, url, httpOnly: true, sameSite: "Strict" });
await page.goto(url);
await page.waitForSelector(".numbers");
const first = await page.evaluate(
  () => new Promise((done) => {
    const source = new EventSource("/api/live");
    source.addEventListener("figures", (e) => (source.close(), done(e.data)));
  }),
);
assert.deepEqual(figuresUnlike(JSON.parse(first)), []);
for (const path of ["overview", "osds", "pools", "pgs", "images", "hosts", "tasks", "log"]) {
  await page.evaluate((p) => void (location.hash = `#/${p}`), path);
  await page.waitForFunction((p) => document.querySelector("nav [aria-current]")?.getAttribute("href") === `#/${p}` && !document.querySelector("main .empty[role=status]"), {}, path);
  assert.equal(await page.$("main .notice.err"), null, `${path} shows an error`);
  await new Promise((r) => setTimeout(r, 300));
  if (shots) await page.screenshot({ path: `${shots}/${path}.png`, fullPage: true });
  console.log(`ok      page ${path}`);
}
assert.deepEqual(complaints, []);
await page.evaluate(() => [...document.querySelectorAll("button")].find((b) => b.textContent.startsWith("Sign out")).click());
await page.waitForSelector("#name");
assert.equal((await ask("GET", "/api/osd", { headers: bearer })).status, 401, "the session is over");
console.log("ok      signing out");
await browser.close();
