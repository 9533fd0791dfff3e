//! Class `rgw`: what a gateway keeps about its buckets, and the queues of its background work.
//! Source: src/cls/rgw/cls_rgw.cc.

use crate::registry::{Class, Method, MethodFlags, method};

mod header;
mod resharding;

pub static CLASS: Class = Class {
    name: "rgw",
    methods: &[
        // The bucket index as a whole.
        method!(bucket_init_index RD_WR header::init_index),
        method!(bucket_set_tag_timeout RD_WR header::set_tag_timeout),
        method!(bucket_update_stats RD_WR header::update_stats),
        method!(set_bucket_resharding RD_WR resharding::set),
        method!(clear_bucket_resharding RD_WR resharding::clear),
        Method::new("guard_bucket_resharding", MethodFlags::RD, resharding::guard),
        method!(get_bucket_resharding RD resharding::get),
        // The usage log.
        // Garbage collection.
        // Lifecycle.
        // The queue of buckets to reshard.
    ],
};
