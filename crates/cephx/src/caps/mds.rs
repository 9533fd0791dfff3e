//! Metadata server capabilities: which paths of which file systems a client may use, and how.
//!
//! Source: src/mds/MDSAuthCaps.cc.

use super::CapError;
use types::EntityAddr;

use super::rule::{Network, applies};
use super::scan::{SPACE_ASCII, SPACE_PLAIN, Scan, is_word};
use crate::entity_auth::CapsInfo;

/// A parsed metadata server capability. The default allows nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MdsCap {
    text: String,
    pub grants: Vec<MdsGrant>,
}

/// One grant; whatever is not set is not limited.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MdsGrant {
    pub perms: MdsPerms,
    /// Without the leading `/`; empty is the root.
    pub path: String,
    pub fs_name: Option<String>,
    pub uid: Option<u32>,
    pub gids: Vec<u32>,
    pub root_squash: bool,
    network: Option<Network>,
}

/// What a grant allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MdsPerms {
    /// `*`: everything, and administration.
    pub all: bool,
    pub read: bool,
    pub write: bool,
    /// `f`: all operations, quiescing included.
    pub full: bool,
    /// `p`: layouts and quotas.
    pub set_vxattr: bool,
    /// `s`: snapshots.
    pub snapshot: bool,
}

impl MdsPerms {
    fn of(letters: &str) -> Self {
        let all = matches!(letters, "*" | "all");
        let has = |c: char| all || letters.contains(c);
        let (read, write, full) = (has('r'), has('w'), has('f'));
        Self { all, read, write, full, set_vxattr: has('p'), snapshot: has('s') }
    }
}

/// In the order that Ceph tries them.
const SPECS: [&str; 11] = ["*", "all", "rwfps", "rwps", "rwfp", "rwfs", "rwp", "rws", "rwf", "rw", "r"];

impl MdsCap {
    pub fn parse(text: &str) -> Result<Self, CapError> {
        if text == "allow" {
            // An old form of everything but administration.
            let grant = MdsGrant { perms: MdsPerms::of("rwps"), ..MdsGrant::default() };
            return Ok(Self { text: text.to_owned(), grants: vec![grant] });
        }
        let mut s = Scan::new(text, SPACE_PLAIN);
        s.skip(SPACE_ASCII);
        let grants = s.grants(&[' '], grant);
        s.skip(SPACE_ASCII);
        match grants {
            Some(grants) if s.rest().is_empty() => Ok(Self { text: text.to_owned(), grants }),
            _ => Err(CapError::Syntax {
                service: "mds",
                stopped_at: s.rest().to_owned(),
                text: text.to_owned(),
            }),
        }
    }

    pub fn allow_all() -> Self {
        let grant = MdsGrant { perms: MdsPerms::of("*"), ..MdsGrant::default() };
        Self { text: "allow *".to_owned(), grants: vec![grant] }
    }

    /// The caps of a ticket; a ticket without any allows nothing.
    pub fn from_info(info: &CapsInfo) -> Result<Self, CapError> {
        if info.allow_all {
            return Ok(Self::allow_all());
        }
        let text = info.text().map_err(|_| CapError::NotText("mds"))?;
        if text.is_empty() { Ok(Self::default()) } else { Self::parse(&text) }
    }

    /// The text it was parsed from.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn is_allow_all(&self) -> bool {
        let bare = |g: &MdsGrant| MdsGrant { perms: MdsPerms::default(), network: None, ..g.clone() };
        self.grants.iter().any(|g| g.perms.all && bare(g) == MdsGrant::default())
    }
}

impl MdsGrant {
    /// Whether it is for clients at this address.
    pub fn is_for(&self, addr: &EntityAddr) -> bool {
        applies(self.network.as_ref(), addr)
    }

    /// Whether `path` (without a leading `/`) lies at or below the grant's. Source: MDSCapMatch::match_path.
    pub fn covers(&self, path: &str) -> bool {
        match path.strip_prefix(self.path.as_str()) {
            Some(below) => {
                below.is_empty() || below.starts_with('/') || self.path.is_empty() || self.path.ends_with('/')
            }
            None => false,
        }
    }
}

fn grant(s: &mut Scan<'_>) -> Option<MdsGrant> {
    s.lit("allow")?;
    s.spaces()?;
    let spec = SPECS.into_iter().find(|spec| s.lit(spec).is_some())?;
    let mut grant = place(s);
    grant.perms = MdsPerms::of(spec);
    grant.network = s.network();
    Some(grant)
}

/// The alternatives in Ceph's order; which combinations exist follows from them.
fn place(s: &mut Scan<'_>) -> MdsGrant {
    let with = |fs_name: Option<String>, path: Option<String>, root_squash: bool| MdsGrant {
        fs_name,
        path: path.unwrap_or_default(),
        root_squash,
        ..MdsGrant::default()
    };
    let squashed = s.attempt(|s| {
        let (fs, path) = (fs_name(s), path(s)?);
        root_squash(s).map(|()| with(fs, Some(path), true))
    });
    let by_user = |s: &mut Scan<'_>| s.attempt(|s| owner(s, with(None, None, false)));
    squashed
        .or_else(|| by_user(s))
        .or_else(|| {
            s.attempt(|s| {
                let path = path(s)?;
                owner(s, with(None, Some(path), false))
            })
        })
        .or_else(|| s.attempt(|s| Some(with(fs_name(s), Some(path(s)?), false))))
        .or_else(|| {
            s.attempt(|s| {
                let fs = fs_name(s);
                root_squash(s).map(|()| with(fs, None, true))
            })
        })
        .unwrap_or_else(|| with(fs_name(s), None, false))
}

fn fs_name(s: &mut Scan<'_>) -> Option<String> {
    s.attempt(|s| {
        s.word("fsname")?;
        s.lit("=")?;
        s.take(is_word)
    })
}

fn path(s: &mut Scan<'_>) -> Option<String> {
    s.attempt(|s| {
        s.word("path")?;
        s.lit("=")?;
        s.string_or_empty()
    })
    .map(|path| path.trim_start_matches('/').to_owned())
}

fn root_squash(s: &mut Scan<'_>) -> Option<()> {
    s.word("root_squash")
}

fn owner(s: &mut Scan<'_>, grant: MdsGrant) -> Option<MdsGrant> {
    s.word("uid")?;
    s.lit("=")?;
    let uid = number(s)?;
    let gids = s.attempt(|s| {
        s.word("gids")?;
        s.lit("=")?;
        let mut gids = vec![number(s)?];
        while let Some(gid) = s.attempt(|s| {
            s.lit(",")?;
            number(s)
        }) {
            gids.push(gid);
        }
        Some(gids)
    });
    let mut gids = gids.unwrap_or_default();
    gids.sort_unstable();
    Some(MdsGrant { uid: Some(uid), gids, ..grant })
}

fn number(s: &mut Scan<'_>) -> Option<u32> {
    s.take(|c| c.is_ascii_digit())?.parse().ok()
}
