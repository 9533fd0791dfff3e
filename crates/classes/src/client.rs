//! Calls of methods as a gateway makes them: where they go, what goes in and what comes out, typed.
//!
//! The methods themselves read and write these structures; a client has them the other way round.

use std::marker::PhantomData;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode};

pub use crate::registry::{Done, Nothing};
pub use crate::wire::EmptyEnvelope;

/// A method that takes an `A` and answers an `R`.
pub struct Procedure<A, R> {
    pub class: &'static str,
    pub method: &'static str,
    types: PhantomData<fn(&A) -> R>,
}

impl<A: Encode, R: Decode> Procedure<A, R> {
    const fn new(class: &'static str, method: &'static str) -> Self {
        Self { class, method, types: PhantomData }
    }

    pub fn input(&self, args: &A) -> Bytes {
        args.to_bytes()
    }

    pub fn output(&self, bytes: Bytes) -> Result<R, DecodeError> {
        R::from_bytes(bytes)
    }
}

/// What a test holds a procedure against: its class and method, and what reads and writes again its input and
/// its output.
#[cfg(test)]
type Shown = (&'static str, &'static str, Again, Again);
#[cfg(test)]
type Again = fn(&Bytes) -> Result<Bytes, DecodeError>;

#[cfg(test)]
fn again<T: Decode + Encode>(bytes: &Bytes) -> Result<Bytes, DecodeError> {
    T::from_bytes(bytes.clone()).map(|value| value.to_bytes())
}

/// `NAME = method(Input) -> Output;` for each procedure of a class.
macro_rules! procedures {
    ($class:literal: $($name:ident = $method:ident($input:ty) -> $output:ty;)+) => {
        $(
            pub const $name: super::Procedure<$input, $output> =
                super::Procedure::new($class, stringify!($method));
        )+
        #[cfg(test)]
        pub(super) const SHOWN: &[super::Shown] =
            &[$(($class, stringify!($method), super::again::<$input>, super::again::<$output>)),+];
    };
}

/// Bucket indexes: class `rgw` on their shards.
pub mod index {
    use super::{Done, EmptyEnvelope, Nothing};
    pub use crate::rgw::bi::{
        CheckReply, GetArgs as GetEntryArgs, ListArgs as ListEntriesArgs, ListReply as ListEntriesReply,
    };
    pub use crate::rgw::bi::{OneEntry, RawEntry};
    pub use crate::rgw::change::{CompleteArgs, Keys, PrepareArgs, Suggestion, Suggestions};
    pub use crate::rgw::header::{TagTimeoutArgs, UpdateStatsArgs};
    pub use crate::rgw::list::{ListArgs, ListReply};
    pub use crate::rgw::log::{ListArgs as ListLogArgs, ListReply as ListLogReply, TrimArgs as TrimLogArgs};
    pub use crate::rgw::names::{
        delete_marker as delete_marker_at, entry as entry_at, instance as instance_at, listed as listed_at,
    };
    pub use crate::rgw::olh::{ClearArgs, LogArgs, ReadLogReply};
    pub use crate::rgw::resharding::{GetReply as ReshardingReply, GuardArgs, SetArgs as SetReshardingArgs};
    pub use crate::rgw::versions::{LinkArgs, UnlinkArgs};

    procedures! { "rgw":
        INIT = bucket_init_index(Nothing) -> Done;
        SET_TAG_TIMEOUT = bucket_set_tag_timeout(TagTimeoutArgs) -> Done;
        UPDATE_STATS = bucket_update_stats(UpdateStatsArgs) -> Done;
        CHECK = bucket_check_index(Nothing) -> CheckReply;
        REBUILD = bucket_rebuild_index(Nothing) -> Done;
        SET_RESHARDING = set_bucket_resharding(SetReshardingArgs) -> Done;
        CLEAR_RESHARDING = clear_bucket_resharding(EmptyEnvelope) -> Done;
        GUARD_RESHARDING = guard_bucket_resharding(GuardArgs) -> Done;
        GET_RESHARDING = get_bucket_resharding(EmptyEnvelope) -> ReshardingReply;
        LIST = bucket_list(ListArgs) -> ListReply;
        PREPARE = bucket_prepare_op(PrepareArgs) -> Done;
        COMPLETE = bucket_complete_op(CompleteArgs) -> Done;
        SUGGEST = dir_suggest_changes(Suggestions) -> Done;
        LINK = bucket_link_olh(LinkArgs) -> Done;
        UNLINK = bucket_unlink_instance(UnlinkArgs) -> Done;
        READ_HEAD_LOG = bucket_read_olh_log(LogArgs) -> ReadLogReply;
        TRIM_HEAD_LOG = bucket_trim_olh_log(LogArgs) -> Done;
        CLEAR_HEAD = bucket_clear_olh(ClearArgs) -> Done;
        GET_ENTRY = bi_get(GetEntryArgs) -> OneEntry;
        PUT_ENTRY = bi_put(OneEntry) -> Done;
        LIST_ENTRIES = bi_list(ListEntriesArgs) -> ListEntriesReply;
        LIST_LOG = bi_log_list(ListLogArgs) -> ListLogReply;
        TRIM_LOG = bi_log_trim(TrimLogArgs) -> Done;
        RESYNC_LOG = bi_log_resync(Nothing) -> Done;
        STOP_LOG = bi_log_stop(Nothing) -> Done;
    }
}

/// Objects of buckets: class `rgw` on their heads.
pub mod object {
    use super::Done;
    pub use crate::rgw::object::{CheckMtimeArgs, CheckPrefixArgs, RemoveArgs, StoreVersionArgs};

    procedures! { "rgw":
        REMOVE = obj_remove(RemoveArgs) -> Done;
        STORE_VERSION = obj_store_pg_ver(StoreVersionArgs) -> Done;
        CHECK_ATTRS_PREFIX = obj_check_attrs_prefix(CheckPrefixArgs) -> Done;
        CHECK_MTIME = obj_check_mtime(CheckMtimeArgs) -> Done;
    }
}

/// The usage log.
pub mod usage {
    use super::{Done, Nothing};
    pub use crate::rgw::usage::{AddArgs, Info, ReadArgs, ReadReply, TrimArgs, UserBucket};

    procedures! { "rgw":
        ADD = user_usage_log_add(AddArgs) -> Done;
        READ = user_usage_log_read(ReadArgs) -> ReadReply;
        TRIM = user_usage_log_trim(TrimArgs) -> Done;
        CLEAR = usage_log_clear(Nothing) -> Done;
    }
}

/// Garbage in omaps, as it was kept before there were queues.
pub mod gc {
    use super::Done;
    pub use crate::rgw::gc::{DeferArgs, ListArgs, ListReply, RemoveArgs, SetArgs};

    procedures! { "rgw":
        SET = gc_set_entry(SetArgs) -> Done;
        DEFER = gc_defer_entry(DeferArgs) -> Done;
        LIST = gc_list(ListArgs) -> ListReply;
        REMOVE = gc_remove(RemoveArgs) -> Done;
    }
}

/// Garbage in queues.
pub mod gc_queue {
    use super::Done;
    pub use crate::rgw::gc::{DeferArgs, ListArgs, ListReply, SetArgs};
    pub use crate::rgw_gc::{InitArgs, RemoveArgs};

    procedures! { "rgw_gc":
        INIT = rgw_gc_queue_init(InitArgs) -> Done;
        ENQUEUE = rgw_gc_queue_enqueue(SetArgs) -> Done;
        LIST = rgw_gc_queue_list_entries(ListArgs) -> ListReply;
        REMOVE = rgw_gc_queue_remove_entries(RemoveArgs) -> Done;
        DEFER = rgw_gc_queue_update_entry(SetArgs) -> Done;
    }
}

/// Buckets whose objects expire.
pub mod lifecycle {
    use super::{Done, Nothing};
    pub use crate::rgw::lc::{EntryArgs, GetReply, HeadArgs, ListArgs, ListReply, MarkerArgs, NextReply};

    procedures! { "rgw":
        GET = lc_get_entry(MarkerArgs) -> GetReply;
        SET = lc_set_entry(EntryArgs) -> Done;
        REMOVE = lc_rm_entry(EntryArgs) -> Done;
        NEXT = lc_get_next_entry(MarkerArgs) -> NextReply;
        PUT_HEAD = lc_put_head(HeadArgs) -> Done;
        GET_HEAD = lc_get_head(Nothing) -> HeadArgs;
        LIST = lc_list_entries(ListArgs) -> ListReply;
    }
}

/// The queue of buckets to reshard.
pub mod reshard {
    use super::Done;
    pub use crate::rgw::reshard::{EntryArgs, ListArgs, ListReply, RemoveArgs};

    procedures! { "rgw":
        ADD = reshard_add(EntryArgs) -> Done;
        LIST = reshard_list(ListArgs) -> ListReply;
        GET = reshard_get(EntryArgs) -> EntryArgs;
        REMOVE = reshard_remove(RemoveArgs) -> Done;
    }
}

/// A user's list of buckets.
pub mod user {
    use super::{Done, EmptyEnvelope};
    pub use crate::user::{
        Header, HeaderReply, ListArgs, ListReply, RemoveArgs, ResetArgs, ResetReply, SetArgs,
    };
    pub use crate::user::{Stats, TimeArgs};

    procedures! { "user":
        SET = set_buckets_info(SetArgs) -> Done;
        SYNCED = complete_stats_sync(TimeArgs) -> Done;
        REMOVE = remove_bucket(RemoveArgs) -> Done;
        LIST = list_buckets(ListArgs) -> ListReply;
        HEADER = get_header(EmptyEnvelope) -> HeaderReply;
        RESET = reset_user_stats(TimeArgs) -> Done;
        RESET_PAGE = reset_user_stats2(ResetArgs) -> ResetReply;
    }
}

/// Advisory locks.
pub mod lock {
    use super::{Done, Nothing};
    pub use crate::lock::{AssertArgs, BreakArgs, InfoArgs, ListReply, LockArgs, LockInfo, Locker, LockerId};
    pub use crate::lock::{SetCookieArgs, UnlockArgs};

    procedures! { "lock":
        LOCK = lock(LockArgs) -> Done;
        UNLOCK = unlock(UnlockArgs) -> Done;
        BREAK = break_lock(BreakArgs) -> Done;
        INFO = get_info(InfoArgs) -> LockInfo;
        LIST = list_locks(Nothing) -> ListReply;
        ASSERT = assert_locked(AssertArgs) -> Done;
        SET_COOKIE = set_cookie(SetCookieArgs) -> Done;
    }
}

/// References by tag.
pub mod refcount {
    use super::Done;
    pub use crate::refcount::{ReadArgs, SetArgs, TagArgs};

    procedures! { "refcount":
        GET = get(TagArgs) -> Done;
        PUT = put(TagArgs) -> Done;
        SET = set(SetArgs) -> Done;
        READ = read(ReadArgs) -> SetArgs;
    }
}

/// Versions of objects, and conditions on them.
pub mod version {
    use super::{Done, Nothing};
    pub use crate::version::{CondArgs, Condition, VersionArgs};

    procedures! { "version":
        SET = set(VersionArgs) -> Done;
        INC = inc(CondArgs) -> Done;
        INC_IF = inc_conds(CondArgs) -> Done;
        READ = read(Nothing) -> VersionArgs;
        CHECK = check_conds(CondArgs) -> Done;
    }
}

/// Omaps ordered by time.
pub mod timeindex {
    use super::Done;
    pub use crate::timeindex::{AddArgs, Entry, ListArgs, ListReply, TrimArgs};

    procedures! { "timeindex":
        ADD = add(AddArgs) -> Done;
        LIST = list(ListArgs) -> ListReply;
        TRIM = trim(TrimArgs) -> Done;
    }
}

/// Logs, such as that of changes to metadata.
pub mod log {
    use super::{Done, EmptyEnvelope};
    pub use crate::log::{AddArgs, Entry, Header, InfoReply, ListArgs, ListReply, TrimArgs};

    procedures! { "log":
        ADD = add(AddArgs) -> Done;
        LIST = list(ListArgs) -> ListReply;
        TRIM = trim(TrimArgs) -> Done;
        INFO = info(EmptyEnvelope) -> InfoReply;
    }
}

/// One-time passwords.
pub mod otp {
    use super::{Done, EmptyEnvelope};
    pub use crate::otp::{
        Check, CheckArgs, CheckReply, Device, GetArgs, GetReply, RemoveArgs, SetArgs, TimeReply,
    };

    procedures! { "otp":
        SET = otp_set(SetArgs) -> Done;
        GET = otp_get(GetArgs) -> GetReply;
        CHECK = otp_check(CheckArgs) -> Done;
        RESULT = otp_get_result(CheckArgs) -> CheckReply;
        REMOVE = otp_remove(RemoveArgs) -> Done;
        TIME = get_current_time(EmptyEnvelope) -> TimeReply;
    }
}

#[cfg(test)]
mod tests;
