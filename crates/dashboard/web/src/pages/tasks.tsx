// What is under way, how far it is, and what has come to an end.

import { useApi } from "../api";
import { moment, percent, span } from "../format";
import { useLive } from "../live";
import type { DoneTask, Task } from "../types";
import { Card, Progress, Said, Shown, Table, Tag, type Column } from "../ui";

const DONE: Column<DoneTask>[] = [
  { key: "message", title: "Task", by: (t) => t.message },
  { key: "finished", title: "Ended", by: (t) => t.finished_at, show: (t) => moment(t.finished_at) },
  { key: "took", title: "Took", by: (t) => t.finished_at - t.started_at, show: (t) => span(t.finished_at - t.started_at), right: true },
  {
    key: "how",
    title: "How",
    by: (t) => (t.failed === null ? 0 : 1),
    show: (t) => (t.failed === null ? <Tag level="ok">done</Tag> : <Tag level="err"><Said text={t.failed} /></Tag>),
  },
];

export function Tasks() {
  const { figures } = useLive();
  const done = useApi<{ finished: DoneTask[] }>("/api/view/tasks", 10);
  return (
    <div class="grid">
      <Card title="Under way" wide>
        {!figures && <p class="empty">Waiting for the first figures…</p>}
        {figures?.tasks.length === 0 && <p class="empty">Nothing is under way.</p>}
        {figures?.tasks.map((task) => (
          <TaskRow key={task.id} task={task} />
        ))}
      </Card>
      <Card title="Ended" wide>
        <Shown loaded={done} what="The list of tasks">
          {(d) => <Table caption="Tasks that have ended" columns={DONE} rows={d.finished} id={(t) => t.id} search={(t) => t.message} sort="finished" descending empty="No task has ended yet." />}
        </Shown>
      </Card>
    </div>
  );
}

export function TaskRow({ task }: { task: Task }) {
  const now = useLive().figures?.at ?? task.started_at;
  return (
    <div class="task">
      <span class="name">
        <Said text={task.message} />
      </span>
      <span class="far">
        {percent(task.progress)} <span class="dim">{left(task, now)}</span>
      </span>
      <Progress part={task.progress} label={task.message} />
    </div>
  );
}

function left(task: Task, now: number): string {
  const since = span(now - task.started_at);
  if (task.left_s === null) return `for ${since}; how long it takes cannot be said yet`;
  return `for ${since}, about ${span(task.left_s)} left`;
}
