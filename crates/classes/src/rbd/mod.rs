//! Class `rbd`: images, their snapshots, clones, groups and mirrors. Source: src/cls/rbd/cls_rbd.cc.
//!
//! What methods store is what librbd and Ceph's own OSDs store, byte for byte: an image's objects can be copied from a
//! cluster of theirs to one of ours and back. Names, ids and descriptions are bytes, since nothing keeps clients to text.

use crate::ObjectView;
use crate::registry::{Class, methods};

mod bits;
mod children;
mod data;
mod directory;
mod features;
mod group;
mod header;
mod metadata;
mod migration;
mod mirror;
mod namespace;
mod object_map;
mod old;
mod parent;
mod snapshot;
mod trash;
mod types;

pub static CLASS: Class = Class {
    name: "rbd",
    methods: methods![
        create RD_WR header::create,
        get_features RD features::get_features,
        set_features RD_WR features::set_features,
        get_size RD header::get_size,
        set_size RD_WR header::set_size,
        get_snapcontext RD snapshot::get_snapcontext,
        get_object_prefix RD header::get_object_prefix,
        get_data_pool RD header::get_data_pool,
        get_snapshot_name RD snapshot::get_snapshot_name,
        get_snapshot_timestamp RD snapshot::get_snapshot_timestamp,
        snapshot_get RD snapshot::snapshot_get,
        snapshot_add RD_WR snapshot::snapshot_add,
        snapshot_remove RD_WR snapshot::snapshot_remove,
        snapshot_rename RD_WR snapshot::snapshot_rename,
        snapshot_trash_add RD_WR snapshot::snapshot_trash_add,
        get_all_features RD features::get_all_features,
        get_parent RD parent::get_parent,
        set_parent RD_WR parent::set_parent,
        remove_parent RD_WR parent::remove_parent,
        parent_get RD parent::parent_get,
        parent_overlap_get RD parent::parent_overlap_get,
        parent_attach RD_WR parent::parent_attach,
        parent_detach RD_WR parent::parent_detach,
        set_protection_status RD_WR snapshot::set_protection_status,
        get_protection_status RD snapshot::get_protection_status,
        get_stripe_unit_count RD header::get_stripe_unit_count,
        set_stripe_unit_count RD_WR header::set_stripe_unit_count,
        get_create_timestamp RD header::get_create_timestamp,
        get_access_timestamp RD header::get_access_timestamp,
        get_modify_timestamp RD header::get_modify_timestamp,
        get_flags RD features::get_flags,
        set_flags RD_WR features::set_flags,
        op_features_get RD features::op_features_get,
        op_features_set RD_WR features::op_features_set,
        metadata_list RD metadata::metadata_list,
        metadata_set RD_WR metadata::metadata_set,
        metadata_remove RD_WR metadata::metadata_remove,
        metadata_get RD metadata::metadata_get,
        snapshot_get_limit RD snapshot::snapshot_get_limit,
        snapshot_set_limit RD_WR snapshot::snapshot_set_limit,
        child_attach RD_WR children::child_attach,
        child_detach RD_WR children::child_detach,
        children_list RD children::children_list,
        migration_set RD_WR migration::migration_set,
        migration_set_state RD_WR migration::migration_set_state,
        migration_get RD migration::migration_get,
        migration_remove RD_WR migration::migration_remove,
        set_modify_timestamp RD_WR header::set_modify_timestamp,
        set_access_timestamp RD_WR header::set_access_timestamp,
        add_child RD_WR children::add_child,
        remove_child RD_WR children::remove_child,
        get_children RD children::get_children,
        get_id RD header::get_id,
        set_id RD_WR header::set_id,
        dir_get_id RD directory::dir_get_id,
        dir_get_name RD directory::dir_get_name,
        dir_list RD directory::dir_list,
        dir_add_image RD_WR directory::dir_add_image,
        dir_remove_image RD_WR directory::dir_remove_image,
        dir_rename_image RD_WR directory::dir_rename_image,
        dir_state_assert RD directory::dir_state_assert,
        dir_state_set RD_WR directory::dir_state_set,
        object_map_load RD object_map::object_map_load,
        object_map_save RD_WR object_map::object_map_save,
        object_map_resize RD_WR object_map::object_map_resize,
        object_map_update RD_WR object_map::object_map_update,
        object_map_snap_add RD_WR object_map::object_map_snap_add,
        object_map_snap_remove RD_WR object_map::object_map_snap_remove,
        snap_list RD old::snap_list,
        snap_add RD_WR old::snap_add,
        snap_remove RD_WR old::snap_remove,
        snap_rename RD_WR old::snap_rename,
        mirror_uuid_get RD mirror::pool::mirror_uuid_get,
        mirror_uuid_set RD_WR mirror::pool::mirror_uuid_set,
        mirror_mode_get RD mirror::pool::mirror_mode_get,
        mirror_mode_set RD_WR mirror::pool::mirror_mode_set,
        mirror_peer_ping RD_WR mirror::peer::mirror_peer_ping,
        mirror_peer_list RD mirror::peer::mirror_peer_list,
        mirror_peer_add RD_WR mirror::peer::mirror_peer_add,
        mirror_peer_remove RD_WR mirror::peer::mirror_peer_remove,
        mirror_peer_set_client RD_WR mirror::peer::mirror_peer_set_client,
        mirror_peer_set_cluster RD_WR mirror::peer::mirror_peer_set_cluster,
        mirror_peer_set_direction RD_WR mirror::peer::mirror_peer_set_direction,
        mirror_image_list RD mirror::image::mirror_image_list,
        mirror_image_get_image_id RD mirror::image::mirror_image_get_image_id,
        mirror_image_get RD mirror::image::mirror_image_get,
        mirror_image_set RD_WR mirror::image::mirror_image_set,
        mirror_image_remove RD_WR mirror::image::mirror_image_remove,
        mirror_image_status_set RD_WR mirror::status::mirror_image_status_set,
        mirror_image_status_remove RD_WR mirror::status::mirror_image_status_remove,
        mirror_image_status_get RD mirror::status::mirror_image_status_get,
        mirror_image_status_list RD mirror::status::mirror_image_status_list,
        mirror_image_status_get_summary RD mirror::status::mirror_image_status_get_summary,
        mirror_image_status_remove_down RD_WR mirror::status::mirror_image_status_remove_down,
        mirror_image_instance_get RD mirror::instance::mirror_image_instance_get,
        mirror_image_instance_list RD mirror::instance::mirror_image_instance_list,
        mirror_instances_list RD mirror::instance::mirror_instances_list,
        mirror_instances_add RD_WR mirror::instance::mirror_instances_add,
        mirror_instances_remove RD_WR mirror::instance::mirror_instances_remove,
        mirror_image_map_list RD mirror::instance::mirror_image_map_list,
        mirror_image_map_update WR mirror::instance::mirror_image_map_update,
        mirror_image_map_remove WR mirror::instance::mirror_image_map_remove,
        mirror_image_snapshot_unlink_peer RD_WR mirror::snapshot::mirror_image_snapshot_unlink_peer,
        mirror_image_snapshot_set_copy_progress RD_WR mirror::snapshot::mirror_image_snapshot_set_copy_progress,
        group_dir_list RD directory::dir_list,
        group_dir_add RD_WR directory::dir_add_image,
        group_dir_remove RD_WR directory::dir_remove_image,
        group_dir_rename RD_WR directory::dir_rename_image,
        group_image_remove RD_WR group::group_image_remove,
        group_image_list RD group::group_image_list,
        group_image_set RD_WR group::group_image_set,
        image_group_add RD_WR group::image_group_add,
        image_group_remove RD_WR group::image_group_remove,
        image_group_get RD group::image_group_get,
        group_snap_set RD_WR group::group_snap_set,
        group_snap_remove RD_WR group::group_snap_remove,
        group_snap_get_by_id RD group::group_snap_get_by_id,
        group_snap_list RD group::group_snap_list,
        trash_add RD_WR trash::trash_add,
        trash_remove RD_WR trash::trash_remove,
        trash_list RD trash::trash_list,
        trash_get RD trash::trash_get,
        trash_state_set RD_WR trash::trash_state_set,
        namespace_add RD_WR namespace::namespace_add,
        namespace_remove RD_WR namespace::namespace_remove,
        namespace_list RD namespace::namespace_list,
        copyup RD_WR data::copyup,
        sparse_copyup RD_WR data::sparse_copyup,
        assert_snapc_seq RD_WR data::assert_snapc_seq,
        sparsify RD_WR data::sparsify,
    ],
};

/// A random UUID, as text.
fn random_uuid(v: &dyn ObjectView) -> String {
    let bits = u128::from_be_bytes(v.unique());
    // Version 4, variant of RFC 4122.
    let bits = (bits & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    let part = |range: std::ops::Range<usize>| hex.get(range).unwrap_or_default();
    [part(0..8), part(8..12), part(12..16), part(16..20), part(20..32)].join("-")
}

#[cfg(test)]
mod tests;
