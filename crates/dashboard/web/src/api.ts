// Requests to the manager. The session is a cookie that scripts cannot read; the page keeps no secret.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import type { Session } from "./types";

export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
    /** Seconds after which the server listens to another try. */
    readonly wait_s: number | null = null,
  ) {
    super(message);
  }
}

/** Longer than this no answer is waited for. */
const PATIENCE_MS = 15_000;

const lostSession = new Set<() => void>();

/** Calls `then` when the server says that there is no session any more. */
export function onSignedOut(then: () => void): () => void {
  lostSession.add(then);
  return () => void lostSession.delete(then);
}

export async function request<T>(path: string, body?: unknown): Promise<T> {
  const init: RequestInit = {
    method: body === undefined ? "GET" : "POST",
    headers: { Accept: "application/json" },
    credentials: "same-origin",
    signal: AbortSignal.timeout(PATIENCE_MS),
  };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { Accept: "application/json", "Content-Type": "application/json" };
  }
  let answer: Response;
  try {
    answer = await fetch(path, init);
  } catch (error) {
    const late = error instanceof DOMException && error.name === "TimeoutError";
    throw new Refused(0, late ? "The manager does not answer." : "The manager cannot be reached.");
  }
  if (answer.ok) return (await answer.json()) as T;
  if (answer.status === 401 && path !== "/api/auth") lostSession.forEach((then) => then());
  const said = (await answer.json().catch(() => ({}))) as { detail?: string };
  const wait = Number(answer.headers.get("Retry-After"));
  throw new Refused(answer.status, said.detail ?? `The manager answers ${answer.status}.`, wait > 0 ? wait : null);
}

export const signIn = (username: string, password: string): Promise<Session> =>
  request<Session>("/api/auth", { username, password });

export const signOut = (): Promise<unknown> => request("/api/auth/logout", {});

/** Who is signed in, if anybody. */
export async function session(): Promise<Session | null> {
  const said = await request<Partial<Session>>("/api/auth/check", {});
  const { username, permissions = {}, pwdUpdateRequired = false } = said;
  return username ? { username, permissions, pwdUpdateRequired } : null;
}

export interface Loaded<T> {
  data: T | null;
  /** Why the last request failed; the data are those of the last one that did not. */
  error: string | null;
  /** When (page's clock, seconds) the data came. */
  at: number | null;
  again: () => void;
}

/** What a path answers, asked again every `every_s` seconds while the page is looked at. */
export function useApi<T>(path: string, every_s: number): Loaded<T> {
  const [state, setState] = useState<Omit<Loaded<T>, "again">>({ data: null, error: null, at: null });
  const current = useRef(0);
  const load = useCallback(async () => {
    const mine = ++current.current;
    try {
      const data = await request<T>(path);
      if (mine === current.current) setState({ data, error: null, at: Date.now() / 1000 });
    } catch (error) {
      if (mine === current.current) setState((old) => ({ ...old, error: (error as Error).message }));
    }
  }, [path]);
  useEffect(() => {
    const look = (): void => {
      if (!document.hidden) void load();
    };
    void load();
    const timer = setInterval(look, every_s * 1000);
    document.addEventListener("visibilitychange", look);
    return () => {
      current.current += 1;
      clearInterval(timer);
      document.removeEventListener("visibilitychange", look);
    };
  }, [load, every_s]);
  return { ...state, again: () => void load() };
}
