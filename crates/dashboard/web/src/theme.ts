// Dark or light: as the system has it, or as chosen here. The choice is kept in this browser.

import { useEffect, useState } from "preact/hooks";

export type Chosen = "auto" | "light" | "dark";

const KEY = "loligo-theme";
const system = window.matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();

function stored(): Chosen {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : "auto";
  } catch {
    return "auto";
  }
}

let chosen = stored();

function apply(): void {
  document.documentElement.dataset["theme"] = isDark() ? "dark" : "light";
  listeners.forEach((tell) => tell());
}

const isDark = (): boolean => (chosen === "auto" ? system.matches : chosen === "dark");

export function choose(next: Chosen): void {
  chosen = next;
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // The choice lasts as long as the page then.
  }
  apply();
}

export function useTheme(): { chosen: Chosen; dark: boolean } {
  const [, setTurn] = useState(0);
  useEffect(() => {
    const tell = (): void => setTurn((turn) => turn + 1);
    listeners.add(tell);
    return () => void listeners.delete(tell);
  }, []);
  return { chosen, dark: isDark() };
}

system.addEventListener("change", apply);
apply();
