// The frame: sign-in, the list of pages, health and the state of the connection above all of them.

import type { JSX } from "preact";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { onSignedOut, Refused, session, signIn, signOut } from "./api";
import { clock, span } from "./format";
import { retry, start, stop, useLive, type Live } from "./live";
import { Hosts } from "./pages/hosts";
import { Images } from "./pages/images";
import { Logs } from "./pages/log";
import { Osds } from "./pages/osds";
import { Overview } from "./pages/overview";
import { Pgs } from "./pages/pgs";
import { Pools } from "./pages/pools";
import { Tasks } from "./pages/tasks";
import { choose, useTheme, type Chosen } from "./theme";
import type { Session } from "./types";
import { Icon, Said, Tag, useNow, type Level } from "./ui";

interface Page {
  path: string;
  title: string;
  /** What a user must be allowed to read; any one of them. */
  scopes: string[];
  show: () => JSX.Element;
}

const PAGES: Page[] = [
  { path: "overview", title: "Overview", scopes: [], show: Overview },
  { path: "osds", title: "OSDs", scopes: ["osd"], show: Osds },
  { path: "pools", title: "Pools", scopes: ["pool"], show: Pools },
  { path: "pgs", title: "Placement groups", scopes: ["osd"], show: Pgs },
  { path: "images", title: "Images", scopes: ["rbd-image"], show: Images },
  { path: "hosts", title: "Hosts and services", scopes: ["hosts"], show: Hosts },
  { path: "tasks", title: "Tasks", scopes: [], show: Tasks },
  { path: "log", title: "Log", scopes: ["log"], show: Logs },
];

export function App() {
  const [who, setWho] = useState<Session | null | "unknown" | { down: string }>("unknown");
  const look = useCallback(() => {
    session().then(setWho, (error: Error) => setWho({ down: error.message }));
  }, []);
  useEffect(look, [look]);
  useEffect(() => {
    const out = (): void => setWho(null);
    window.addEventListener("signed-out", out);
    const forget = onSignedOut(out);
    return () => {
      window.removeEventListener("signed-out", out);
      forget();
    };
  }, []);
  if (who === "unknown") return <p class="empty" role="status">Loading…</p>;
  if (who === null) return <SignIn done={setWho} />;
  if ("down" in who) return <Unreachable why={who.down} again={look} />;
  if (who.pwdUpdateRequired) return <ChangeFirst who={who} leave={() => setWho(null)} />;
  return <Frame who={who} leave={() => setWho(null)} />;
}

function Unreachable({ why, again }: { why: string; again: () => void }) {
  useEffect(() => {
    const timer = setInterval(again, 5_000);
    return () => clearInterval(timer);
  }, [again]);
  return (
    <main class="sign-in">
      <h1>Loligo</h1>
      <div class="notice err" role="alert">
        <Icon level="err" />
        <span>{why} It is tried again every five seconds.</span>
      </div>
    </main>
  );
}

/** Nothing may be read before. */
function ChangeFirst({ who, leave }: { who: Session; leave: () => void }) {
  return (
    <main class="sign-in">
      <h1>Loligo</h1>
      <div class="notice err" role="alert">
        <Icon level="err" />
        <span>
          The password of <Said text={who.username} /> has to be changed first: <code>ceph dashboard ac-user-set-password NAME -i FILE</code>.
        </span>
      </div>
      <button type="button" class="primary" onClick={() => void signOut().then(leave, leave)}>
        Sign out
      </button>
    </main>
  );
}

function SignIn({ done }: { done: (who: Session) => void }) {
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [said, setSaid] = useState<string | null>(null);
  const [until, setUntil] = useState(0);
  const [busy, setBusy] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  const now = useNow(500);
  const wait = Math.ceil((until - now) / 1000);
  useEffect(() => {
    document.title = "Sign in – Loligo";
    field.current?.focus();
  }, []);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (busy || wait > 0) return;
    setBusy(true);
    setSaid(null);
    try {
      done(await signIn(name, password));
    } catch (error) {
      const refused = error as Refused;
      setPassword("");
      setSaid(refused.message);
      if (refused.wait_s) setUntil(Date.now() + refused.wait_s * 1000);
    } finally {
      setBusy(false);
    }
  };
  return (
    <main class="sign-in">
      <h1>
        <img src="icon.svg" alt="" width="36" height="36" />
        Loligo
      </h1>
      <form onSubmit={(e) => void submit(e)} aria-describedby={said ? "said" : undefined}>
        <label for="name">User</label>
        <input ref={field} id="name" autocomplete="username" autocapitalize="none" spellcheck={false} required maxLength={256} value={name} onInput={(e) => setName(e.currentTarget.value)} />
        <label for="password">Password</label>
        <input id="password" type="password" autocomplete="current-password" required maxLength={72} value={password} onInput={(e) => setPassword(e.currentTarget.value)} />
        {said && (
          <div id="said" class="notice err" role="alert">
            <Icon level="err" />
            <span>
              {said}
              {wait > 0 && ` Try again in ${span(wait)}.`}
            </span>
          </div>
        )}
        <button type="submit" class="primary" disabled={busy || wait > 0}>
          {busy ? "Signing in…" : "Sign in"}
        </button>
      </form>
      <p class="dim">
        A first user is made with <code>ceph dashboard ac-user-create NAME -i FILE administrator</code>.
      </p>
    </main>
  );
}

const ASK_EVERY_MS = 300_000;

function Frame({ who, leave }: { who: Session; leave: () => void }) {
  const at = usePath();
  const may = (page: Page): boolean => page.scopes.length === 0 || page.scopes.some((s) => who.permissions[s]?.includes("read"));
  const pages = PAGES.filter(may);
  const page = pages.find((p) => p.path === at);
  const heading = useRef<HTMLHeadingElement>(null);
  const first = useRef(true);
  useEffect(() => {
    start();
    // A session ends that nothing is asked in; the live figures are no question. A page that is looked at asks.
    const timer = setInterval(() => {
      if (!document.hidden) void session().catch(() => undefined);
    }, ASK_EVERY_MS);
    return () => {
      clearInterval(timer);
      stop();
    };
  }, []);
  useEffect(() => {
    document.title = `${page?.title ?? "Not found"} – Loligo`;
    // The keyboard goes on from the new page's heading, not from the link that led here.
    if (!first.current) heading.current?.focus();
    first.current = false;
    window.scrollTo(0, 0);
  }, [page?.path]);
  const out = (): void => void signOut().then(leave, leave);
  return (
    <div class="frame">
      <a class="skip" href="#main" onClick={(e) => (e.preventDefault(), heading.current?.focus())}>
        Skip to content
      </a>
      <Top who={who.username} out={out} />
      <nav aria-label="Pages">
        <ul>
          {pages.map((p) => (
            <li key={p.path}>
              <a href={`#/${p.path}`} aria-current={p === page ? "page" : undefined}>
                {p.title}
              </a>
            </li>
          ))}
        </ul>
      </nav>
      <main id="main">
        <Connection />
        <h1 ref={heading} tabIndex={-1}>
          {page?.title ?? "There is no such page"}
        </h1>
        {page ? <page.show /> : <p>Choose one from the list.</p>}
      </main>
    </div>
  );
}

function usePath(): string {
  const read = (): string => window.location.hash.replace(/^#\/?/, "") || "overview";
  const [path, setPath] = useState(read());
  useEffect(() => {
    const change = (): void => setPath(read());
    window.addEventListener("hashchange", change);
    return () => window.removeEventListener("hashchange", change);
  }, []);
  return path;
}

const HEALTH: Record<string, { level: Level; text: string }> = {
  HEALTH_OK: { level: "ok", text: "Healthy" },
  HEALTH_WARN: { level: "warn", text: "Warning" },
  HEALTH_ERR: { level: "err", text: "Error" },
};

function Top({ who, out }: { who: string; out: () => void }) {
  const { figures, state } = useLive();
  const { chosen } = useTheme();
  const health = figures && HEALTH[figures.health.status];
  const next: Record<Chosen, Chosen> = { auto: "light", light: "dark", dark: "auto" };
  return (
    <header class="top">
      <span class="brand">
        <img src="icon.svg" alt="" width="22" height="22" /> Loligo
      </span>
      <span class="fsid" title="The cluster's id">
        {figures?.fsid.slice(0, 8)}
      </span>
      <span class="health" role="status" aria-label="Health of the cluster">
        {health && <Tag level={state === "lost" ? "off" : health.level}>{health.text}{state === "lost" && " (old)"}</Tag>}
      </span>
      <span class="push" />
      <Age />
      <button type="button" class="quiet" onClick={() => choose(next[chosen])}>
        <span class="wide-only">Colours: </span>
        {chosen}
      </button>
      <button type="button" class="quiet" onClick={out}>
        Sign out<span class="wide-only">
          {" "}
          <Said text={who} />
        </span>
      </button>
    </header>
  );
}

/** How old what is shown is, always to be seen. */
function Age() {
  const live = useLive();
  const now = useNow(1_000);
  if (live.heard === null || !live.figures) return null;
  const age = (now - live.heard) / 1000;
  const fresh = live.state === "open" && age < 5;
  return (
    <span class={`age ${fresh ? "" : "old"}`}>
      <i class={`dot ${fresh ? "live" : "still"}`} aria-hidden="true" />
      {fresh ? `live ${clock(live.figures.at)}` : `${span(age)} old`}
    </span>
  );
}

function Connection() {
  const live = useLive();
  const now = useNow(500);
  // The countdown is not spoken: what matters is said once.
  return (
    <div role="alert">
      {live.state === "lost" && (
        <div class="notice err lost">
          <Icon level="err" />
          <span>
            <b>The connection to the manager is lost.</b> <Oldness live={live} now={now} />
          </span>
          <button type="button" onClick={retry}>
            Try now
          </button>
        </div>
      )}
    </div>
  );
}

function Oldness({ live, now }: { live: Live; now: number }) {
  const wait = live.retry === null ? 0 : Math.max(0, Math.ceil((live.retry - now) / 1000));
  return (
    <span aria-live="off">
      {live.heard !== null && live.figures
        ? `The figures are those of ${clock(live.figures.at)}, ${span((now - live.heard) / 1000)} old. `
        : "No figures have come yet. "}
      {wait > 0 ? `Next try in ${wait} s.` : "Trying…"}
    </span>
  );
}
