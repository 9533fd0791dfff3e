//! Message type numbers.
//!
//! Source: src/include/ceph_fs.h (CEPH_MSG_*), src/msg/Message.h (MSG_*).

/// What our own monitors say to each other; Ceph has no message of this number.
pub const LOLIGO_MON_PEER: u16 = 0x4c01;
pub const PING: u16 = 2;
pub const MON_MAP: u16 = 4;
pub const MON_GET_MAP: u16 = 5;
pub const MON_GET_OSDMAP: u16 = 6;
pub const STATFS: u16 = 13;
pub const STATFS_REPLY: u16 = 14;
pub const MON_SUBSCRIBE: u16 = 15;
pub const MON_SUBSCRIBE_ACK: u16 = 16;
pub const AUTH: u16 = 17;
pub const AUTH_REPLY: u16 = 18;
pub const MON_GET_VERSION: u16 = 19;
pub const MON_GET_VERSION_REPLY: u16 = 20;
pub const MDS_MAP: u16 = 21;
pub const OSD_MAP: u16 = 41;
pub const OSD_OP: u16 = 42;
pub const OSD_OP_REPLY: u16 = 43;
pub const WATCH_NOTIFY: u16 = 44;
pub const FS_MAP: u16 = 45;
pub const POOL_OP_REPLY: u16 = 48;
pub const POOL_OP: u16 = 49;
pub const MON_COMMAND: u16 = 50;
pub const MON_COMMAND_ACK: u16 = 51;
pub const LOG: u16 = 52;
pub const LOG_ACK: u16 = 53;
pub const KV_DATA: u16 = 54;
pub const GET_POOL_STATS: u16 = 58;
pub const GET_POOL_STATS_REPLY: u16 = 59;
pub const OSD_BACKOFF: u16 = 61;
pub const CONFIG: u16 = 62;
pub const GET_CONFIG: u16 = 63;
pub const OSD_PING: u16 = 70;
pub const OSD_BOOT: u16 = 71;
pub const OSD_FAILURE: u16 = 72;
pub const OSD_ALIVE: u16 = 73;
pub const OSD_MARK_ME_DOWN: u16 = 74;
pub const OSD_FULL: u16 = 75;
pub const MON_GET_PURGED_SNAPS: u16 = 76;
pub const MON_GET_PURGED_SNAPS_REPLY: u16 = 77;
pub const OSD_PG_TEMP: u16 = 78;
pub const OSD_BEACON: u16 = 79;
pub const PG_STATS: u16 = 87;
pub const PG_STATS_ACK: u16 = 88;
pub const REMOVE_SNAPS: u16 = 90;
pub const COMMAND: u16 = 97;
pub const COMMAND_REPLY: u16 = 98;
pub const MDS_BEACON: u16 = 100;
pub const FS_MAP_USER: u16 = 103;
pub const OSD_PG_CREATED: u16 = 116;
pub const OSD_PG_CREATE2: u16 = 120;
pub const OSD_SCRUB2: u16 = 121;
pub const OSD_PG_READY_TO_MERGE: u16 = 122;
pub const OSD_MARK_ME_DEAD: u16 = 123;
pub const OSD_FORCE_RECOVERY: u16 = 151;
pub const MDS_LOAD_TARGETS: u16 = 0x20a;
pub const MON_HEALTH_CHECKS: u16 = 0x608;
pub const MGR_OPEN: u16 = 0x700;
pub const MGR_CONFIGURE: u16 = 0x701;
pub const MGR_REPORT: u16 = 0x702;
pub const MGR_BEACON: u16 = 0x703;
pub const MGR_MAP: u16 = 0x704;
pub const MGR_DIGEST: u16 = 0x705;
pub const MON_MGR_REPORT: u16 = 0x706;
pub const SERVICE_MAP: u16 = 0x707;
pub const MGR_CLOSE: u16 = 0x708;
pub const MGR_COMMAND: u16 = 0x709;
pub const MGR_COMMAND_REPLY: u16 = 0x70a;

/// The first of our own numbers: messages between our daemons only, which no Ceph release has a number for.
pub const OURS: u16 = 0x7100;
pub const PG_DIGEST: u16 = OURS + 9;
