// A server for development: the built page, and the API with the answers of a made-up cluster. User `admin`, password `mock`; `watcher` may
// read OSDs alone, `newcomer` has to change the password first.
//
//   node mock/server.mjs [PORT] [--well]

import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { Cluster } from "./cluster.mjs";

const DIST = new URL("../dist/", import.meta.url);
const FILES = { "/": ["index.html", "text/html; charset=utf-8"], "/app.js": ["app.js", "text/javascript; charset=utf-8"], "/app.css": ["app.css", "text/css; charset=utf-8"], "/icon.svg": ["icon.svg", "image/svg+xml"] };
const HEADERS = {
  "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
  "X-Content-Type-Options": "nosniff",
  "Referrer-Policy": "no-referrer",
  "Cache-Control": "no-store",
};
const SCOPES = ["cephfs", "config-opt", "hosts", "log", "manager", "monitor", "osd", "pool", "prometheus", "rbd-image", "rgw"];
const USERS = { admin: SCOPES, watcher: ["osd"], newcomer: SCOPES };
const sessionOf = (username) => ({ username, permissions: Object.fromEntries(USERS[username].map((s) => [s, ["read"]])), sso: false, pwdUpdateRequired: username === "newcomer", pwdExpirationDate: null });
/** As the manager leaves parts out of the live figures. */
const PARTS = { usage: "pool", client: "pool", recovery: "pool", pools: "pool", pgs: "osd", objects: "osd", osds: "osd", mons: "monitor", mgrs: "manager" };
const seen = (figures, username) => Object.fromEntries(Object.entries(figures).filter(([name]) => !PARTS[name] || USERS[username].includes(PARTS[name])));

/** Starts it; `cut` ends all streams and refuses everything until `mend`. */
export function serve(port, { well = false } = {}) {
  const cluster = new Cluster(well);
  const streams = new Set();
  const sessions = new Map();
  let down = false;
  let failures = 0;
  const gets = {
    "/api/view/osds": () => cluster.tree(),
    "/api/view/pgs": () => cluster.pgs(),
    "/api/view/services": () => cluster.services(),
    "/api/view/tasks": () => cluster.tasks(),
    "/api/pool": () => cluster.pools(),
    "/api/block/image": () => cluster.images(),
    "/api/logs/all": () => cluster.log(),
  };
  const server = createServer(async (req, res) => {
    if (down) return res.destroy();
    const path = new URL(req.url, "http://x").pathname;
    const token = /(?:^|;\s*)token-\d+=([^;]+)/.exec(req.headers.cookie ?? "")?.[1];
    const is = sessions.get(token);
    const say = (status, body, more = {}) => {
      res.writeHead(status, { ...HEADERS, "Content-Type": "application/json", ...more });
      res.end(JSON.stringify(body));
    };
    let body = "";
    for await (const chunk of req) body += chunk;
    if (FILES[path]) {
      res.writeHead(200, { ...HEADERS, "Content-Type": FILES[path][1] });
      return res.end(readFileSync(new URL(FILES[path][0], DIST)));
    }
    if (path === "/api/auth" && req.method === "POST") {
      const { username, password } = JSON.parse(body);
      if (!Object.hasOwn(USERS, username) || password !== "mock") {
        failures += 1;
        return say(400, { detail: "Invalid credentials", code: "invalid_credentials", component: "auth" }, failures > 2 ? { "Retry-After": String(2 ** (failures - 2)) } : {});
      }
      failures = 0;
      const made = crypto.randomUUID();
      sessions.set(made, username);
      return say(201, { ...sessionOf(username), token: made }, { "Set-Cookie": `token-${req.socket.localPort}=${made}; HttpOnly; SameSite=Strict; Path=/` });
    }
    if (path === "/api/auth/check") return say(200, is ? sessionOf(is) : { login_url: "#/login" });
    if (path === "/api/auth/logout") {
      sessions.delete(token);
      return say(200, { redirect_url: "#/login" });
    }
    if (!is) return say(401, { detail: "You are not authorized to access that resource" });
    if (is === "newcomer") return say(403, { detail: "You don't have permissions to access that resource" });
    if (path === "/api/live") {
      res.writeHead(200, { ...HEADERS, "Content-Type": "text/event-stream" });
      const tell = (event, data) => res.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
      const figures = () => tell("figures", seen(cluster.figures(), is));
      tell("history", { points: USERS[is].includes("pool") ? cluster.points : [] });
      figures();
      const timer = setInterval(figures, 2_000);
      streams.add(res);
      res.on("close", () => (clearInterval(timer), streams.delete(res)));
      return;
    }
    return gets[path] ? say(200, gets[path]()) : say(404, { detail: "There is no such path" });
  });
  return new Promise((ready) => {
    server.listen(port, "127.0.0.1", () =>
      ready({
        port: server.address().port,
        cut: () => {
          down = true;
          streams.forEach((s) => s.destroy());
          server.closeAllConnections();
        },
        mend: () => void (down = false),
        signOut: () => (sessions.clear(), streams.forEach((s) => s.destroy())),
        close: () => (server.closeAllConnections(), server.close()),
      }),
    );
  });
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const { port } = await serve(Number(process.argv[2] ?? 8080), { well: process.argv.includes("--well") });
  console.log(`http://127.0.0.1:${port}/  user admin, password mock`);
}
