//! Class `rgw`: what a gateway keeps about its buckets, and the queues of its background work.
//! Source: src/cls/rgw/cls_rgw.cc.
//!
//! A bucket's index is in the omaps of its shards, one object each: an entry for each object of the bucket
//! (`rgw::index`), keys that say what an entry is (`names`), and sums in the header (`header`).

use crate::registry::{Class, Method, MethodFlags, method};

pub(crate) mod bi;
pub(crate) mod change;
pub(crate) mod gc;
pub(crate) mod header;
pub(crate) mod lc;
pub(crate) mod list;
pub(crate) mod log;
mod lookup;
pub(crate) mod names;
pub(crate) mod object;
pub(crate) mod olh;
pub(crate) mod reshard;
pub(crate) mod resharding;
pub(crate) mod usage;
pub(crate) mod versions;

#[cfg(test)]
mod tests;

pub static CLASS: Class = Class {
    name: "rgw",
    methods: &[
        // The bucket index as a whole.
        method!(bucket_init_index RD_WR header::init_index),
        method!(bucket_set_tag_timeout RD_WR header::set_tag_timeout),
        method!(bucket_update_stats RD_WR header::update_stats),
        method!(bucket_check_index RD bi::check),
        method!(bucket_rebuild_index RD_WR bi::rebuild),
        method!(set_bucket_resharding RD_WR resharding::set),
        method!(clear_bucket_resharding RD_WR resharding::clear),
        Method::new("guard_bucket_resharding", MethodFlags::RD, resharding::guard),
        method!(get_bucket_resharding RD resharding::get),
        // Its entries.
        Method::new("bucket_list", MethodFlags::RD, list::bucket_list),
        method!(bucket_prepare_op RD_WR change::prepare),
        method!(bucket_complete_op RD_WR change::complete),
        method!(dir_suggest_changes RD_WR change::suggest),
        method!(bucket_link_olh RD_WR versions::link),
        method!(bucket_unlink_instance RD_WR versions::unlink),
        method!(bucket_read_olh_log RD olh::read_log),
        method!(bucket_trim_olh_log RD_WR olh::trim_log),
        method!(bucket_clear_olh RD_WR olh::clear),
        method!(bi_get RD bi::get),
        method!(bi_put RD_WR bi::put),
        method!(bi_list RD bi::list),
        // Its log.
        method!(bi_log_list RD log::list),
        method!(bi_log_trim RD_WR log::trim),
        method!(bi_log_resync RD_WR log::resync),
        method!(bi_log_stop RD_WR log::stop),
        // Objects.
        method!(obj_remove RD_WR object::remove),
        method!(obj_store_pg_ver WR object::store_pg_version),
        method!(obj_check_attrs_prefix RD object::check_attrs_prefix),
        method!(obj_check_mtime RD object::check_mtime),
        // The usage log.
        method!(user_usage_log_add RD_WR usage::add),
        method!(user_usage_log_read RD usage::read),
        Method::new("user_usage_log_trim", MethodFlags::RD_WR, usage::trim),
        method!(usage_log_clear WR usage::clear),
        // Garbage collection.
        method!(gc_set_entry RD_WR gc::set_entry),
        method!(gc_defer_entry RD_WR gc::defer_entry),
        method!(gc_list RD gc::list),
        method!(gc_remove RD_WR gc::remove),
        // Lifecycle.
        method!(lc_get_entry RD lc::get_entry),
        method!(lc_set_entry RD_WR lc::set_entry),
        method!(lc_rm_entry RD_WR lc::rm_entry),
        method!(lc_get_next_entry RD lc::get_next_entry),
        method!(lc_put_head RD_WR lc::put_head),
        method!(lc_get_head RD lc::get_head),
        method!(lc_list_entries RD lc::list_entries),
        // The queue of buckets to reshard.
        method!(reshard_add RD_WR reshard::add),
        method!(reshard_list RD reshard::list),
        method!(reshard_get RD reshard::get),
        method!(reshard_remove RD_WR reshard::remove),
    ],
};
