//! `ceph osd tree` and `osd tree-from`.

use types::Errno;

use crate::command::shape::{osdmap_of_epoch, streamed};
use crate::command::{Command, Ctx, Handler, Reply, flags};
use crate::osd_tree::{Tree, TreeFilter};

pub(super) const COMMANDS: &[Command] = &[
    Command {
        sig: "osd tree name=epoch,type=CephInt,range=0,req=false \
              name=states,type=CephChoices,strings=up|down|in|out|destroyed,n=N,req=false",
        help: "print OSD tree",
        module: "osd",
        perm: "r",
        flags: flags::NONE,
        handler: Handler::Read(tree),
    },
    Command {
        sig: "osd tree-from name=epoch,type=CephInt,range=0,req=false name=bucket,type=CephString \
              name=states,type=CephChoices,strings=up|down|in|out|destroyed,n=N,req=false",
        help: "print OSD tree in bucket",
        module: "osd",
        perm: "r",
        flags: flags::NONE,
        handler: Handler::Read(tree_from),
    },
];

fn tree(ctx: &Ctx<'_>) -> Reply {
    show(ctx, |_| Ok(None)).unwrap_or_else(|refusal| refusal)
}

fn tree_from(ctx: &Ctx<'_>) -> Reply {
    let root = |map: &maps::OsdMap| {
        let bucket = ctx.args.text_or_empty("bucket");
        match map.crush.item_id(bucket) {
            None => Err(Reply::error(Errno::ENOENT, format!("bucket '{bucket}' does not exist"))),
            Some(0..) => Err(Reply::error(Errno::EINVAL, format!("\"{bucket}\" is not a bucket"))),
            bucket => Ok(bucket),
        }
    };
    show(ctx, root).unwrap_or_else(|refusal| refusal)
}

fn show(ctx: &Ctx<'_>, root: impl Fn(&maps::OsdMap) -> Result<Option<i32>, Reply>) -> Result<Reply, Reply> {
    let map = osdmap_of_epoch(ctx)?;
    let tree = Tree::of_osds(&map, root(&map)?, filter(ctx)?);
    Ok(streamed(ctx.format, || tree.osd_text(&map), || tree.osd_json(&map)))
}

fn filter(ctx: &Ctx<'_>) -> Result<TreeFilter, Reply> {
    let states = ctx.args.list("states");
    let has = |name: &str| states.iter().any(|s| s == name);
    let f = TreeFilter {
        up: has("up"),
        down: has("down"),
        r#in: has("in"),
        out: has("out"),
        destroyed: has("destroyed"),
    };
    if f.r#in && f.out {
        return Err(Reply::error(Errno::EINVAL, "cannot specify both 'in' and 'out'"));
    }
    if [f.up, f.down, f.destroyed].into_iter().filter(|s| *s).count() > 1 {
        let text = "can specify only one of 'up', 'down' and 'destroyed'";
        return Err(Reply::error(Errno::EINVAL, text));
    }
    Ok(f)
}
