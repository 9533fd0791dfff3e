// The cluster's log, newest first.

import { useMemo, useState } from "preact/hooks";
import { useApi } from "../api";
import { moment, stamp } from "../format";
import type { Log, LogLine } from "../types";
import { Card, Choice, Icon, Said, Shown, type Level } from "../ui";

type Which = "clog" | "audit_log";
type From = "all" | "warn" | "err";

const LEVELS: Record<string, Level> = { "[ERR]": "err", "[SEC]": "err", "[WRN]": "warn", "[INF]": "ok", "[DBG]": "off" };
const levelOf = (line: LogLine): Level => LEVELS[line.priority] ?? "off";

export function Logs() {
  const log = useApi<Log>("/api/logs/all", 5);
  const [which, setWhich] = useState<Which>("clog");
  const [from, setFrom] = useState<From>("all");
  const [wanted, setWanted] = useState("");
  return (
    <Card title="Log" wide bare>
      <div class="tools">
        <Choice
          label="Which log"
          value={which}
          set={setWhich}
          of={[
            { value: "clog", text: "cluster" },
            { value: "audit_log", text: "audit" },
          ]}
        />
        <Choice
          label="How grave"
          value={from}
          set={setFrom}
          of={[
            { value: "all", text: "all" },
            { value: "warn", text: "warnings" },
            { value: "err", text: "errors" },
          ]}
        />
        <input type="search" placeholder="Find" aria-label="Find in the log" value={wanted} onInput={(e) => setWanted(e.currentTarget.value)} />
      </div>
      <Shown loaded={log} what="The log">
        {(all) => <Lines lines={all[which]} from={from} word={wanted.trim().toLowerCase()} />}
      </Shown>
    </Card>
  );
}

function Lines({ lines, from, word }: { lines: LogLine[]; from: From; word: string }) {
  const shown = useMemo(() => {
    const grave = (line: LogLine): boolean => from === "all" || levelOf(line) === "err" || (from === "warn" && levelOf(line) === "warn");
    const found = (line: LogLine): boolean => !word || `${line.name} ${line.message}`.toLowerCase().includes(word);
    return lines.filter((line) => grave(line) && found(line)).sort((a, b) => stamp(b.stamp) - stamp(a.stamp));
  }, [lines, from, word]);
  if (shown.length === 0) return <p class="empty">{lines.length ? "Nothing is found." : "The log is empty."}</p>;
  return (
    <ol class="log">
      {shown.slice(0, 500).map((line, i) => (
        <li key={`${line.stamp}${i}`} class={levelOf(line)}>
          <time dateTime={line.stamp}>{moment(stamp(line.stamp))}</time>
          <Icon level={levelOf(line)} />
          <span class="hidden">{line.priority}</span>
          <span class="who">
            <Said text={line.name} />
          </span>
          <span class="text">
            <Said text={line.message} />
          </span>
        </li>
      ))}
    </ol>
  );
}
