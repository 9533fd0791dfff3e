//! The usage log: what gateways noted of users. Source: RGWRados::read_usage and trim_usage in
//! src/rgw/rgw_rados.cc.

use bytes::Bytes;
use classes::client::usage::{READ, ReadArgs, ReadReply, TRIM, TrimArgs};
use rgw::RawObject;
use types::Errno;

use crate::plan::optional;
use crate::{Error, Plan, Request, Site};

/// Objects of the log. Source: rgw_usage_max_shards in src/common/options.cc.
const SHARDS: u32 = 32;
/// Of which one user has as many. Source: rgw_usage_max_user_shards.
const USER_SHARDS: u32 = 1;
/// Calls of one removal, each of a thousand entries at most.
const MAX_ROUNDS: u32 = 10_000;

impl Site {
    /// The log's objects that a user's entries are in; all of them for no user. Source: usage_log_hash in
    /// src/rgw/rgw_rados.cc.
    pub fn usage_shards(&self, user: &Bytes) -> Vec<RawObject> {
        let shard = |n: u32| RawObject::new(&self.zone.usage_log, format!("usage.{}", n % SHARDS));
        match user.is_empty() {
            true => (0..SHARDS).map(shard).collect(),
            false => {
                let hash = crush::str_hash_linux(user);
                (0..USER_SHARDS).map(|n| shard(hash.wrapping_add(n))).collect()
            }
        }
    }

    /// A page of entries; nothing where nothing was logged.
    pub fn usage(&self, shard: &RawObject, args: &ReadArgs) -> Plan<Option<ReadReply>> {
        optional(Plan::ask(Request::new(shard.clone()).call(&READ, args)))
            .try_map(|reply| reply.map(|reply| reply.answer(0, &READ)).transpose())
    }

    /// Removes entries. The class removes some at a time, and says with ENODATA that none is left.
    pub fn trim_usage(&self, shard: &RawObject, args: &TrimArgs) -> Plan<()> {
        self.trim_usage_on(shard, args, MAX_ROUNDS)
    }

    fn trim_usage_on(&self, shard: &RawObject, args: &TrimArgs, rounds: u32) -> Plan<()> {
        if rounds == 0 {
            // The class goes over the same thousand entries again and again where none of them is meant.
            return Plan::failed(Error::Raced);
        }
        let (site, again, args) = (self.clone(), shard.clone(), args.clone());
        let request = Request::new(shard.clone()).call(&TRIM, &args);
        optional(Plan::ask(request)).then(move |done| match done {
            Ok(Some(_)) => site.trim_usage_on(&again, &args, rounds - 1),
            Ok(None) | Err(Error::Rados(Errno::ENODATA)) => Plan::ok(()),
            Err(e) => Plan::failed(e),
        })
    }
}
