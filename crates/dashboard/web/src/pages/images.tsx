// Block images of all pools.

import { useMemo } from "preact/hooks";
import { useApi } from "../api";
import { bytes, day } from "../format";
import type { Image, ImageList } from "../types";
import { Card, Icon, Said, Shown, Table, type Column } from "../ui";

const place = (i: Image): string => [i.pool_name, i.namespace, i.name].filter(Boolean).join("/");
const made = (i: Image): number => Date.parse(i.timestamp) / 1000;

const COLUMNS: Column<Image>[] = [
  { key: "name", title: "Image", by: place },
  { key: "size", title: "Size", by: (i) => i.size, show: (i) => bytes(i.size), right: true },
  { key: "objects", title: "Objects", by: (i) => i.obj_size, show: (i) => `${i.num_objs} × ${bytes(i.obj_size)}`, right: true, minor: true },
  { key: "snapshots", title: "Snapshots", by: (i) => i.snapshots.length, right: true },
  { key: "parent", title: "Cloned from", by: (i) => (i.parent ? `${i.parent.pool_name}/${i.parent.image_name}@${i.parent.snap_name}` : "") },
  { key: "data", title: "Data in", by: (i) => i.data_pool ?? "", minor: true },
  { key: "features", title: "Features", by: (i) => i.features_name.join(", "), minor: true, extra: true },
  { key: "made", title: "Made", by: made, show: (i) => (Number.isFinite(made(i)) ? day(made(i)) : "–") },
];

export function Images() {
  const lists = useApi<ImageList[]>("/api/block/image", 15);
  const images = useMemo(() => lists.data?.flatMap((l) => l.value) ?? [], [lists.data]);
  return (
    <Card title="Images" wide bare>
      <Shown loaded={lists} what="The list of images">
        {(all) => (
          <>
            {all
              .filter((l) => l.status !== 0)
              .map((l) => (
                <p key={l.pool_name} class="notice warn">
                  <Icon level="warn" />
                  <span>
                    The images of pool <Said text={l.pool_name} /> could not all be read now; what is shown of it may be old.
                  </span>
                </p>
              ))}
            <Table caption="Images" columns={COLUMNS} rows={images} id={place} search={place} empty="There are no images. `rbd create POOL/NAME --size 10G` makes one." />
          </>
        )}
      </Shown>
    </Card>
  );
}
