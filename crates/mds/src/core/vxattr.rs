//! Attributes that the server keeps under names that begin with `ceph.`: layouts, quotas, pins, subvolumes.
//!
//! Source: Server::handle_set_vxattr, handle_remove_vxattr, parse_layout_vxattr, parse_quota_vxattr,
//! handle_client_getvxattr.

use std::fmt::Write;

use bytes::Bytes;
use messages::fs::{FileLayout, FileName, MClientQuota, Quota, RequestArgs, SnapOp};
use types::{Errno, GlobalId, Ino, PoolId};

use super::access::{SET_VXATTR, WRITE};
use super::realm::View;
use super::request::{Done, Request, Run, Stop, Wait};
use super::server::Server;
use crate::format::SnapRealm;

/// Random pins are for few folders. Source: mds_export_ephemeral_random_max.
const MAX_RANDOM_PIN: f64 = 0.01;

fn number<T: std::str::FromStr>(text: &str) -> Result<T, Errno> {
    text.parse().map_err(|_| Errno::EINVAL)
}

fn flag(text: &str) -> Result<bool, Errno> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(Errno::EINVAL),
    }
}

/// `a=1 b=2`, as whole layouts and quotas are set.
fn pairs(text: &str) -> Result<Vec<(&str, &str)>, Errno> {
    text.split(' ').filter(|p| !p.is_empty()).map(|p| p.split_once('=').ok_or(Errno::EINVAL)).collect()
}

impl Server {
    pub(crate) fn set_vxattr(&mut self, request: &mut Request, ino: Ino, name: &FileName) -> Run<Done> {
        let name = std::str::from_utf8(name).map_err(|_| Stop::Fail(Errno::EINVAL))?.to_owned();
        let value = request.msg.data.clone();
        let value = std::str::from_utf8(&value).map_err(|_| Stop::Fail(Errno::EINVAL))?;
        self.check(request, ino, WRITE | SET_VXATTR)?;
        let inode = self.cache.get(ino).ok_or(Stop::Fail(Errno::ESTALE))?;
        let (is_dir, is_file) = (inode.is_dir(), inode.is_file());
        if let Some(rest) = name.strip_prefix("ceph.dir.layout") {
            if !is_dir {
                return Err(Errno::EINVAL.into());
            }
            let layout = self.parse_layout(request, self.layout_in(ino), rest, value)?;
            return self.set_dir_layout(request, ino, layout, "set vxattr layout");
        }
        if let Some(rest) = name.strip_prefix("ceph.file.layout") {
            if !is_file {
                return Err(Errno::EINVAL.into());
            }
            let old = self.cache.get(ino).map(|i| i.store.inode.layout.clone()).unwrap_or_default();
            let layout = self.parse_layout(request, old, rest, value)?;
            return self.set_file_layout(request, ino, layout, "set vxattr layout");
        }
        if !is_dir {
            return Err(Errno::EINVAL.into());
        }
        if let Some(rest) = name.strip_prefix("ceph.quota") {
            return self.set_quota(request, ino, rest, value);
        }
        if name == "ceph.dir.subvolume" {
            return self.set_subvolume(request, ino, flag(value)?);
        }
        self.set_pin(request, ino, &name, value)
    }

    fn set_pin(&mut self, request: &mut Request, ino: Ino, name: &str, value: &str) -> Run<Done> {
        if ino == Ino::ROOT {
            return Err(Errno::EINVAL.into());
        }
        match name {
            "ceph.dir.pin" => {
                let rank: i32 = number(value)?;
                self.change_policy(request, ino, "set vxattr pin", |i| {
                    i.store.inode.export_pin = rank.max(-1)
                })
            }
            "ceph.dir.pin.random" => {
                let share: f64 = number(value)?;
                if !(0.0..=1.0).contains(&share) {
                    return Err(Errno::EDOM.into());
                }
                if share > MAX_RANDOM_PIN {
                    return Err(Errno::EINVAL.into());
                }
                self.change_policy(request, ino, "set vxattr pin", |i| i.store.inode.random_pin = share)
            }
            "ceph.dir.pin.distributed" => {
                let is_on = flag(value)?;
                self.change_policy(request, ino, "set vxattr pin", |i| i.store.inode.distributed_pin = is_on)
            }
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// A layout with one of its fields changed, or several.
    fn parse_layout(
        &mut self,
        request: &Request,
        mut layout: FileLayout,
        field: &str,
        value: &str,
    ) -> Run<FileLayout> {
        let fields = match field {
            "" => pairs(value)?,
            _ => vec![(field.strip_prefix('.').ok_or(Stop::Fail(Errno::EINVAL))?, value)],
        };
        for (field, value) in fields {
            match field {
                "object_size" => layout.object_size = number(value)?,
                "stripe_unit" => layout.stripe_unit = number(value)?,
                "stripe_count" => layout.stripe_count = number(value)?,
                "pool" => layout.pool = self.pool_of(request, value)?,
                "pool_id" => layout.pool = PoolId(number(value)?),
                "pool_name" => layout.pool = self.pool_named(request, value)?,
                "pool_namespace" => layout.pool_ns = value.to_owned(),
                _ => return Err(Errno::EINVAL.into()),
            }
        }
        Ok(layout)
    }

    fn pool_of(&mut self, request: &Request, value: &str) -> Run<PoolId> {
        match value.parse::<u32>() {
            Ok(id) => Ok(PoolId(id.into())),
            Err(_) => self.pool_named(request, value),
        }
    }

    /// The client may know a newer map than we do.
    fn pool_named(&mut self, request: &Request, name: &str) -> Run<PoolId> {
        if let Some(pool) = self.osd.pools.get(name) {
            return Ok(*pool);
        }
        let asked = match request.msg.args {
            RequestArgs::SetXattr { osdmap_epoch, .. } => types::Epoch(osdmap_epoch),
            _ => types::Epoch(0),
        };
        if asked > self.osd.epoch {
            self.out.push(super::io::Effect::NeedOsdMap(asked));
            return Err(Stop::Wait(Wait::OsdMap));
        }
        Err(Errno::EINVAL.into())
    }

    fn set_quota(&mut self, request: &mut Request, ino: Ino, field: &str, value: &str) -> Run<Done> {
        let mut quota = self.cache.get(ino).map(|i| i.store.inode.quota).unwrap_or_default();
        let fields = match field {
            "" => pairs(value)?,
            _ => vec![(field.strip_prefix('.').ok_or(Stop::Fail(Errno::EINVAL))?, value)],
        };
        for (field, value) in fields {
            let bound: i64 = number(value)?;
            if bound < 0 {
                return Err(Errno::EINVAL.into());
            }
            match field {
                "max_bytes" => quota.max_bytes = bound,
                "max_files" => quota.max_files = bound,
                _ => return Err(Errno::EINVAL.into()),
            }
        }
        if self.cache.get(ino).is_some_and(|i| i.store.inode.quota == quota) {
            return Ok(Done::default());
        }
        // Clients find the quota that is for a file by its realm.
        let splits = quota.is_enabled() && self.cache.get(ino).is_some_and(|i| i.store.realm.is_none());
        let realm = splits.then(|| self.new_realm(ino));
        let done = self.change_policy(request, ino, "set vxattr quota", |inode| {
            inode.store.inode.quota = quota;
            if realm.is_some() && inode.store.realm.is_none() {
                inode.store.realm = realm;
            }
        })?;
        if splits {
            self.tell_realm(ino, SnapOp::SPLIT);
        }
        self.tell_quota(ino, Some(request.client));
        Ok(done)
    }

    fn set_subvolume(&mut self, request: &mut Request, ino: Ino, is_on: bool) -> Run<Done> {
        let mut above = self.cache.ancestors(ino).into_iter().skip(1);
        let is_subvolume = |i: &super::cache::Inode| {
            i.store.realm.as_ref().is_some_and(|r| r.flags & SnapRealm::SUBVOLUME != 0)
        };
        let is_nested = above.any(|at| self.cache.get(at).is_some_and(is_subvolume));
        if is_on && is_nested {
            return Err(Errno::EINVAL.into());
        }
        let is_already = self.cache.get(ino).is_some_and(is_subvolume);
        if is_already == is_on {
            return Ok(Done::default());
        }
        let splits = self.cache.get(ino).is_some_and(|i| i.store.realm.is_none());
        let new_realm = self.new_realm(ino);
        let done = self.change_policy(request, ino, "set vxattr subvolume", |inode| {
            let realm = inode.store.realm.get_or_insert(new_realm);
            realm.flags = realm.flags & !SnapRealm::SUBVOLUME | if is_on { SnapRealm::SUBVOLUME } else { 0 };
        })?;
        self.tell_realm(ino, if splits { SnapOp::SPLIT } else { SnapOp::UPDATE });
        Ok(done)
    }

    /// The realm that a folder begins without a snapshot. Source: Server::handle_set_vxattr.
    fn new_realm(&self, ino: Ino) -> SnapRealm {
        let seq = self.snaps_of(ino, View::Now).seq;
        SnapRealm { created: seq, seq, ..self.realm_or_new(ino, seq) }
    }

    /// Clients hear of a folder's quota, and how much of it is used. Source:
    /// MDCache::broadcast_quota_to_client.
    pub(crate) fn tell_quota(&mut self, ino: Ino, but: Option<GlobalId>) {
        let Some(inode) = self.cache.get(ino).filter(|i| i.is_dir()) else { return };
        let i = &inode.store.inode;
        let m = MClientQuota {
            ino,
            rctime: i.rstat.rctime,
            rbytes: i.rstat.rbytes,
            rfiles: i.rstat.rfiles,
            rsubdirs: i.rstat.rsubdirs,
            quota: Quota { max_bytes: i.quota.max_bytes, max_files: i.quota.max_files },
        };
        let clients: Vec<GlobalId> = inode.caps.keys().copied().filter(|c| Some(*c) != but).collect();
        for client in clients {
            if !self.is_stale(client) {
                self.push(client, 0, m.clone().into());
            }
        }
    }

    pub(crate) fn remove_vxattr(&mut self, request: &mut Request, ino: Ino, name: &FileName) -> Run<Done> {
        let inode = self.cache.get(ino).ok_or(Stop::Fail(Errno::ESTALE))?;
        match name.as_ref() {
            b"ceph.dir.layout" => {
                if !inode.is_dir() || inode.store.inode.layout.pool.0 < 0 {
                    return Err(Errno::ENODATA.into());
                }
                if ino == Ino::ROOT {
                    return Err(Errno::EINVAL.into());
                }
                self.check(request, ino, WRITE | SET_VXATTR)?;
                self.change_policy(request, ino, "remove dir layout vxattr", |i| {
                    i.store.inode.layout = FileLayout::default();
                })
            }
            b"ceph.dir.layout.pool_namespace" | b"ceph.file.layout.pool_namespace" => {
                request.msg.data = Bytes::new();
                self.set_vxattr(request, ino, name)
            }
            _ => Err(Errno::ENODATA.into()),
        }
    }

    /// The value of an attribute that clients do not know by themselves.
    pub(crate) fn vxattr(&self, ino: Ino, name: &FileName) -> Run<Bytes> {
        let name = std::str::from_utf8(name).map_err(|_| Stop::Fail(Errno::EINVAL))?;
        let inode = self.cache.get(ino).ok_or(Stop::Fail(Errno::ESTALE))?;
        let i = &inode.store.inode;
        let text = if let Some(field) = name.strip_prefix("ceph.dir.layout") {
            if !inode.is_dir() {
                return Err(Errno::EINVAL.into());
            }
            self.layout_text(&self.layout_in(ino), i.layout.pool.0 >= 0, field)?
        } else if let Some(field) = name.strip_prefix("ceph.file.layout") {
            if !inode.is_file() {
                return Err(Errno::EINVAL.into());
            }
            self.layout_text(&i.layout, true, field)?
        } else {
            match name {
                "ceph.dir.pin" => i.export_pin.to_string(),
                "ceph.dir.pin.random" => i.random_pin.to_string(),
                "ceph.dir.pin.distributed" => u8::from(i.distributed_pin).to_string(),
                _ => return Err(Errno::EINVAL.into()),
            }
        };
        Ok(Bytes::from(text.into_bytes()))
    }

    fn layout_text(&self, layout: &FileLayout, is_own: bool, field: &str) -> Run<String> {
        let found = self.osd.pools.iter().find(|(_, id)| **id == layout.pool);
        let pool = found.map_or_else(|| layout.pool.to_string(), |(name, _)| name.clone());
        let FileLayout { stripe_unit, stripe_count, object_size, pool: id, pool_ns } = layout;
        Ok(match field {
            "" => {
                let mut text = format!(
                    "stripe_unit={stripe_unit} stripe_count={stripe_count} object_size={object_size} pool={pool}"
                );
                if !pool_ns.is_empty() {
                    let _ = write!(text, " pool_namespace={pool_ns}");
                }
                text
            }
            ".json" => {
                let inheritance = if is_own { "@set" } else { "@inherited" };
                format!(
                    "{{\"stripe_unit\":{stripe_unit},\"stripe_count\":{stripe_count},\"object_size\":{object_size},\
                     \"pool_name\":\"{pool}\",\"pool_id\":{id},\"pool_namespace\":\"{pool_ns}\",\
                     \"inheritance\":\"{inheritance}\"}}"
                )
            }
            ".pool" | ".pool_name" => pool,
            ".pool_id" => id.to_string(),
            ".stripe_unit" => stripe_unit.to_string(),
            ".stripe_count" => stripe_count.to_string(),
            ".object_size" => object_size.to_string(),
            ".pool_namespace" => pool_ns.clone(),
            _ => return Err(Errno::ENODATA.into()),
        })
    }
}
