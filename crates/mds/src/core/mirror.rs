//! Which cluster a file system is a mirror of: one attribute of its root, kept as two.
//!
//! Source: Server::mirror_info_xattr_validate, mirror_info_setxattr_handler in src/mds/Server.cc.

use bytes::Bytes;
use messages::fs::{FileName, RequestArgs};
use types::{Errno, Ino};

use super::access::WRITE;
use super::attr::check_flags;
use super::hold::{Mode, Part};
use super::request::{Done, Request, Run, Stop};
use super::server::Server;

pub(crate) const MIRROR_INFO: &[u8] = b"ceph.mirror.info";
const KEPT: [&str; 2] = ["ceph.mirror.info.cluster_id", "ceph.mirror.info.fs_id"];
/// Hexadecimal digits between the hyphens of a cluster's name.
const CLUSTER_ID: [usize; 5] = [8, 4, 4, 4, 12];

/// `cluster_id=UUID fs_id=NUMBER`.
fn parse(value: &[u8]) -> Option<[&str; 2]> {
    let (cluster, fs) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    let (cluster, fs) = (cluster.strip_prefix("cluster_id=")?, fs.strip_prefix("fs_id=")?);
    let is_hex = |part: &str| part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let lengths: Vec<usize> = cluster.split('-').map(str::len).collect();
    let is_uuid = lengths == CLUSTER_ID && cluster.split('-').all(is_hex);
    let is_number = !fs.is_empty() && fs.bytes().all(|b| b.is_ascii_digit());
    (is_uuid && is_number).then_some([cluster, fs])
}

impl Server {
    /// Sets it, or removes it without a value.
    pub(crate) fn change_mirror_info(
        &mut self,
        request: &mut Request,
        ino: Ino,
        value: Option<Bytes>,
    ) -> Run<Done> {
        self.check(request, ino, WRITE)?;
        self.need(request, &[(ino, Part::Xattr, Mode::Write)])?;
        if ino != Ino::ROOT {
            return Err(Errno::EINVAL.into());
        }
        let flags = match request.msg.args {
            RequestArgs::SetXattr { flags, .. } => flags,
            _ => RequestArgs::XATTR_REPLACE,
        };
        let xattrs = &self.cache.get(ino).ok_or(Stop::Fail(Errno::ESTALE))?.store.xattrs;
        let has = KEPT.map(|name| xattrs.contains_key(name.as_bytes()));
        if has == [true, false] || has == [false, true] {
            return Err(Errno::EINVAL.into());
        }
        check_flags(flags, has == [true, true])?;
        let (what, values) = match &value {
            Some(value) => ("setxattr", parse(value).ok_or(Stop::Fail(Errno::EINVAL))?.map(Some)),
            None => ("removexattr", [None, None]),
        };
        let kept = values.map(|v| v.map(|v| Bytes::copy_from_slice(v.as_bytes())));
        let names = KEPT.map(|name| FileName::from_static(name.as_bytes()));
        let changes: Vec<(FileName, Option<Bytes>)> = names.into_iter().zip(kept).collect();
        self.change_xattrs(request, ino, what, changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_names_a_cluster_and_a_file_system_is_taken() {
        let id = "52b1d3c4-0a1b-4c2d-8e3f-0123456789ab";
        let good = format!("cluster_id={id} fs_id=10");
        assert_eq!(parse(good.as_bytes()), Some([id, "10"]));
        for bad in [
            String::new(),
            format!("cluster_id={id}"),
            format!("cluster_id={id} fs_id="),
            format!("cluster_id={id} fs_id=1x"),
            format!("fs_id=1 cluster_id={id}"),
            format!("cluster_id={} fs_id=1", id.to_uppercase()),
            format!("cluster_id={} fs_id=1", &id[1..]),
        ] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
