//! The closed set of messages, and the dispatch between them and their wire forms.

use codec::DecodeError;

use crate::payload::Payload;
use crate::{WireMessage, auth, common, fs, log, mds, mgr, mon, osd, pool_stats};

macro_rules! messages {
    ($( $variant:ident($ty:ty) ),+ $(,)?) => {
        /// Any message. Each variant's struct says what it is; numbers and versions are its `Payload` constants.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Message {
            $( $variant($ty), )+
            /// A type that we do not know, whole; sending it on is possible.
            Unknown(WireMessage),
        }

        impl Message {
            /// Reads a message; an unknown type number is not an error.
            pub fn decode(wire: &WireMessage) -> Result<Self, DecodeError> {
                match wire.header.ty {
                    $( <$ty as Payload>::TYPE => <$ty as Payload>::from_wire(wire).map(Self::$variant), )+
                    _ => Ok(Self::Unknown(wire.clone())),
                }
            }

            /// The wire form; `tid` names the request it is or answers, 0 for none. The caller may still change
            /// `header.priority`, for instance to that of the request being answered.
            #[must_use]
            pub fn into_wire(self, tid: u64) -> WireMessage {
                match self {
                    $( Self::$variant(m) => m.to_wire(tid), )+
                    Self::Unknown(wire) => wire,
                }
            }

            /// The type number.
            pub fn ty(&self) -> u16 {
                match self {
                    $( Self::$variant(_) => <$ty as Payload>::TYPE, )+
                    Self::Unknown(wire) => wire.header.ty,
                }
            }

            /// The name that Ceph's logs use.
            pub fn name(&self) -> &'static str {
                match self {
                    $( Self::$variant(_) => <$ty as Payload>::NAME, )+
                    Self::Unknown(_) => "unknown",
                }
            }

            /// Type number, newest version and name of every message known here.
            pub const KNOWN: &'static [(u16, u16, &'static str)] =
                &[$( (<$ty as Payload>::TYPE, <$ty as Payload>::VERSION, <$ty as Payload>::NAME), )+];
        }

        $(
            impl From<$ty> for Message {
                fn from(m: $ty) -> Self {
                    Self::$variant(m)
                }
            }
        )+
    };
}

messages! {
    Ping(common::MPing),
    Command(common::MCommand),
    CommandReply(common::MCommandReply),
    MgrCommand(common::MMgrCommand),
    MgrCommandReply(common::MMgrCommandReply),
    Auth(auth::MAuth),
    AuthReply(auth::MAuthReply),
    MonMap(mon::MMonMap),
    MonGetMap(mon::MMonGetMap),
    MonSubscribe(mon::MMonSubscribe),
    MonSubscribeAck(mon::MMonSubscribeAck),
    MonGetVersion(mon::MMonGetVersion),
    MonGetVersionReply(mon::MMonGetVersionReply),
    MonCommand(mon::MMonCommand),
    MonCommandAck(mon::MMonCommandAck),
    Statfs(mon::MStatfs),
    StatfsReply(mon::MStatfsReply),
    PoolOp(mon::MPoolOp),
    PoolOpReply(mon::MPoolOpReply),
    OsdMap(mon::MOsdMap),
    MgrMap(mon::MMgrMap),
    Config(mon::MConfig),
    GetConfig(mon::MGetConfig),
    KvData(mon::MKvData),
    ServiceMap(mon::MServiceMap),
    FsMap(mon::MFsMap),
    FsMapUser(mon::MFsMapUser),
    MdsMap(mon::MMdsMap),
    MdsBeacon(Box<mds::MMdsBeacon>),
    MdsLoadTargets(mds::MMdsLoadTargets),
    ClientSession(fs::MClientSession),
    ClientRequest(Box<fs::MClientRequest>),
    ClientRequestForward(fs::MClientRequestForward),
    ClientReply(fs::MClientReply),
    ClientCaps(Box<fs::MClientCaps>),
    ClientCapRelease(fs::MClientCapRelease),
    ClientLease(fs::MClientLease),
    ClientReconnect(fs::MClientReconnect),
    ClientSnap(fs::MClientSnap),
    ClientQuota(fs::MClientQuota),
    ClientReclaim(fs::MClientReclaim),
    ClientReclaimReply(fs::MClientReclaimReply),
    ClientMetrics(fs::MClientMetrics),
    OsdOp(Box<osd::MOsdOp>),
    OsdOpReply(Box<osd::MOsdOpReply>),
    WatchNotify(osd::MWatchNotify),
    OsdBackoff(osd::MOsdBackoff),
    OsdPing(osd::MOsdPing),
    OsdBoot(Box<osd::MOsdBoot>),
    OsdAlive(osd::MOsdAlive),
    OsdFailure(osd::MOsdFailure),
    OsdMarkMeDown(osd::MOsdMarkMeDown),
    OsdMarkMeDead(osd::MOsdMarkMeDead),
    OsdBeacon(osd::MOsdBeacon),
    OsdPgTemp(osd::MOsdPgTemp),
    OsdPgCreate2(osd::MOsdPgCreate2),
    OsdPgCreated(osd::MOsdPgCreated),
    OsdPgReadyToMerge(osd::MOsdPgReadyToMerge),
    OsdFull(osd::MOsdFull),
    OsdScrub2(osd::MOsdScrub2),
    OsdForceRecovery(osd::MOsdForceRecovery),
    RemoveSnaps(osd::MRemoveSnaps),
    MonGetOsdMap(osd::MMonGetOsdMap),
    MonGetPurgedSnaps(osd::MMonGetPurgedSnaps),
    MonGetPurgedSnapsReply(osd::MMonGetPurgedSnapsReply),
    PgStats(Box<pool_stats::MPgStats>),
    PgStatsAck(pool_stats::MPgStatsAck),
    GetPoolStats(pool_stats::MGetPoolStats),
    GetPoolStatsReply(pool_stats::MGetPoolStatsReply),
    Log(log::MLog),
    LogAck(log::MLogAck),
    MonHealthChecks(mgr::MMonHealthChecks),
    MgrOpen(Box<mgr::MMgrOpen>),
    MgrClose(mgr::MMgrClose),
    MgrConfigure(mgr::MMgrConfigure),
    MgrReport(Box<mgr::MMgrReport>),
    MgrBeacon(Box<mgr::MMgrBeacon>),
    MgrDigest(mgr::MMgrDigest),
    MonMgrReport(mgr::MMonMgrReport),
    PgDigest(mgr::MPgDigest),
}

/// Long messages are boxed, for each is moved often on its way.
macro_rules! boxed {
    ($( $ty:ty ),+ $(,)?) => { $(
        impl From<$ty> for Message {
            fn from(m: $ty) -> Self {
                Box::new(m).into()
            }
        }
    )+ };
}

boxed! {
    pool_stats::MPgStats,
    osd::MOsdBoot,
    mgr::MMgrReport,
    mgr::MMgrBeacon,
    mds::MMdsBeacon,
    fs::MClientRequest,
    fs::MClientCaps,
    mgr::MMgrOpen,
    osd::MOsdOp,
    osd::MOsdOpReply,
}

// What is longer is to be boxed.
const _: () = assert!(size_of::<Message>() <= 176);
