//! OSD capabilities: parser and checker. Source: src/osd/OSDCap.cc.

use std::collections::BTreeMap;

use types::EntityAddr;

use super::CapError;
use super::rule::{Network, applies};
use super::scan::{SPACE_ASCII, Scan};
use crate::entity_auth::CapsInfo;

const R: u8 = 1 << 1;
const W: u8 = 1 << 2;
const CLASS_R: u8 = 1 << 3;
const CLASS_W: u8 = 1 << 4;
const X: u8 = CLASS_R | CLASS_W;
const ANY: u8 = 0xff;

/// A pool's applications: application, then key to value.
pub type AppMetadata = BTreeMap<String, BTreeMap<String, String>>;

/// A parsed OSD capability. The default allows nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OsdCap {
    grants: Vec<Grant>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Grant {
    rule: Rule,
    network: Option<Network>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Rule {
    One {
        on: Match,
        spec: Spec,
    },
    /// A profile by name, and what it stands for: one of these must allow the whole operation.
    Profile {
        name: String,
        rules: Vec<(Match, Spec)>,
    },
}

/// Where a grant applies; whatever is not set applies everywhere.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Match {
    pool: Option<String>,
    /// The whole namespace, or with `*` at the end a prefix of it; the empty one is the default namespace.
    namespace: Option<String>,
    tag: Option<Tag>,
    object_prefix: Option<String>,
}

/// An application tag of the pool; `*` stands for any key or value.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tag {
    application: String,
    key: String,
    value: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Spec {
    Bits(u8),
    /// One object class, or one method of it.
    Class {
        class: String,
        method: Option<String>,
    },
}

/// What an operation does at an OSD.
#[derive(Debug, Clone, Copy)]
pub struct OsdRequest<'a> {
    pub pool: &'a str,
    pub namespace: &'a str,
    pub app_metadata: &'a AppMetadata,
    pub object: &'a str,
    pub read: bool,
    pub write: bool,
    /// The class methods that it calls.
    pub classes: &'a [ClassUse],
    pub addr: &'a EntityAddr,
}

/// A class method that an operation calls. Source: OpInfo::ClassInfo in src/osd/osd_op_util.h.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClassUse {
    pub class: String,
    pub method: String,
    pub read: bool,
    pub write: bool,
    /// The class is among those that `x`, `class-read` and `class-write` open (osd_class_default_list).
    pub allowed: bool,
}

impl OsdCap {
    pub fn parse(text: &str) -> Result<Self, CapError> {
        let mut s = Scan::new(text, SPACE_ASCII);
        s.skip(SPACE_ASCII);
        let grants = s.grants(&[], grant);
        s.skip(SPACE_ASCII);
        match grants {
            Some(grants) if s.rest().is_empty() => Ok(Self { grants }),
            _ => Err(CapError::Syntax {
                service: "osd",
                stopped_at: s.rest().to_owned(),
                text: text.to_owned(),
            }),
        }
    }

    pub fn allow_all() -> Self {
        let rule = Rule::One { on: Match::default(), spec: Spec::Bits(ANY) };
        Self { grants: vec![Grant { rule, network: None }] }
    }

    /// The caps of a ticket; a ticket without any allows nothing. Source: OSD::ms_handle_authentication.
    pub fn from_info(info: &CapsInfo) -> Result<Self, CapError> {
        if info.allow_all {
            return Ok(Self::allow_all());
        }
        let text = info.text().map_err(|_| CapError::NotText("osd"))?;
        if text.is_empty() { Ok(Self::default()) } else { Self::parse(&text) }
    }

    /// Whether a grant allows everything without any limit. Unlike in OSDCap::allow_all, a grant that is
    /// limited to a network does not count: the caller checks nothing else after this.
    pub fn is_allow_all(&self) -> bool {
        let all = |on: &Match, spec: &Spec| *on == Match::default() && spec.is_any();
        self.grants.iter().filter(|g| g.network.is_none()).any(|g| match &g.rule {
            Rule::One { on, spec } => all(on, spec),
            Rule::Profile { rules, .. } => rules.iter().any(|(on, spec)| all(on, spec)),
        })
    }

    /// Whether there is nothing but profiles whose names begin with `prefix`.
    pub(super) fn is_only_profiles(&self, prefix: &str) -> bool {
        let is_one = |g: &Grant| matches!(&g.rule, Rule::Profile { name, .. } if name.starts_with(prefix));
        !self.grants.is_empty() && self.grants.iter().all(is_one)
    }

    /// Whether one grant allows all of the operation; the classes it calls may each be allowed by another
    /// grant.
    ///
    /// Source: OSDCap::is_capable.
    pub fn is_capable(&self, want: &OsdRequest<'_>) -> bool {
        let mut class_allowed = vec![false; want.classes.len()];
        self.grants.iter().filter(|g| applies(g.network.as_ref(), want.addr)).any(|g| match &g.rule {
            Rule::One { on, spec } => allows(on, spec, want, &mut class_allowed),
            Rule::Profile { rules, .. } => {
                rules.iter().any(|(on, spec)| allows(on, spec, want, &mut class_allowed))
            }
        })
    }
}

/// Source: OSDCapGrant::is_capable.
fn allows(on: &Match, spec: &Spec, want: &OsdRequest<'_>, class_allowed: &mut [bool]) -> bool {
    if !on.matches(want) {
        return false;
    }
    let bits = match spec {
        Spec::Bits(bits) => *bits,
        Spec::Class { .. } => 0,
    };
    if (want.read && bits & R == 0) || (want.write && bits & W == 0) {
        return false;
    }
    if spec.is_any() {
        return true;
    }
    for (used, allowed) in want.classes.iter().zip(class_allowed.iter_mut()) {
        let by_name = matches!(spec, Spec::Class { class, method }
            if *class == used.class && method.as_ref().is_none_or(|m| *m == used.method));
        let by_bits =
            used.allowed && (!used.read || bits & CLASS_R != 0) && (!used.write || bits & CLASS_W != 0);
        *allowed |= by_name || by_bits;
    }
    class_allowed.iter().all(|a| *a)
}

impl Spec {
    fn is_any(&self) -> bool {
        *self == Self::Bits(ANY)
    }
}

impl Match {
    fn matches(&self, want: &OsdRequest<'_>) -> bool {
        self.pool.as_ref().is_none_or(|p| p == want.pool)
            && self.namespace.as_ref().is_none_or(|ns| namespace_matches(ns, want.namespace))
            && self.tag.as_ref().is_none_or(|t| t.matches(want.app_metadata))
            && self.object_prefix.as_ref().is_none_or(|p| want.object.starts_with(p.as_str()))
    }
}

fn namespace_matches(pattern: &str, namespace: &str) -> bool {
    pattern.strip_suffix('*').is_some_and(|prefix| namespace.starts_with(prefix)) || pattern == namespace
}

impl Tag {
    /// Source: OSDCapPoolTag::is_match.
    fn matches(&self, apps: &AppMetadata) -> bool {
        let Some(pairs) = apps.get(&self.application) else { return false };
        match (self.key.as_str(), self.value.as_str()) {
            ("*", "*") => true,
            ("*", value) => pairs.values().any(|v| v == value),
            (key, "*") => pairs.contains_key(key),
            (key, value) => pairs.get(key).is_some_and(|v| v == value),
        }
    }
}

/// What a profile stands for; an unknown one grants nothing. Source: OSDCapGrant::expand_profile.
fn profile_rules(name: &str, pool: Option<String>, namespace: Option<String>) -> Vec<(Match, Spec)> {
    let place = Match { pool: pool.clone(), namespace, ..Match::default() };
    let object = |prefix: &str, on: &Match| Match { object_prefix: Some(prefix.to_owned()), ..on.clone() };
    let rbd_method = |method: &str| Spec::Class { class: "rbd".to_owned(), method: Some(method.to_owned()) };
    let anywhere = Match::default();
    match name {
        "read-only" => vec![(place, Spec::Bits(R))],
        "read-write" => vec![(place, Spec::Bits(R | W))],
        "rbd" => vec![
            (object("rbd_info", &anywhere), Spec::Bits(R)),
            (object("rbd_children", &anywhere), Spec::Bits(CLASS_R)),
            (object("rbd_mirroring", &anywhere), Spec::Bits(CLASS_R)),
            // In Ceph's code the argument could be read as a pool's name or as an object prefix; it is the
            // pool's name.
            (Match { pool, ..Match::default() }, rbd_method("metadata_list")),
            (place, Spec::Bits(R | W | X)),
        ],
        "rbd-read-only" => {
            let header = object("rbd_header.", &place);
            vec![
                (place, Spec::Bits(R | CLASS_R)),
                (header.clone(), rbd_method("child_attach")),
                (header, rbd_method("child_detach")),
            ]
        }
        _ => Vec::new(),
    }
}

const BLANK: &[char] = &[' ', '\t'];

fn grant(s: &mut Scan<'_>) -> Option<Grant> {
    s.skip(BLANK);
    let rule = s.attempt(spec_first).or_else(|| s.attempt(match_first)).or_else(|| s.attempt(profile))?;
    let network = s.network();
    s.skip(BLANK);
    Some(Grant { rule, network })
}

fn spec_first(s: &mut Scan<'_>) -> Option<Rule> {
    s.lit("allow")?;
    let spec = spec(s)?;
    Some(Rule::One { on: place(s), spec })
}

fn match_first(s: &mut Scan<'_>) -> Option<Rule> {
    s.lit("allow")?;
    let on = place(s);
    Some(Rule::One { on, spec: spec(s)? })
}

fn profile(s: &mut Scan<'_>) -> Option<Rule> {
    s.lit("profile")?;
    s.equals_or_spaces()?;
    let name = s.string()?;
    let pool = pool(s);
    let namespace = namespace(s);
    let rules = profile_rules(&name, pool, namespace);
    Some(Rule::Profile { name, rules })
}

fn spec(s: &mut Scan<'_>) -> Option<Spec> {
    bits(s).map(Spec::Bits).or_else(|| {
        s.attempt(|s| {
            s.word("class")?;
            s.spaces()?;
            let class = s.string()?;
            let method = s.attempt(|s| {
                s.spaces()?;
                s.string()
            });
            Some(Spec::Class { class, method })
        })
    })
}

/// `*`, or `rwx` and the class bits, at least one of them.
fn bits(s: &mut Scan<'_>) -> Option<u8> {
    let plain = s.attempt(|s| {
        s.spaces()?;
        s.rwx(ANY, [R, W, X])
    });
    if plain == Some(ANY) {
        return plain;
    }
    let class_read = s.word("class-read").map(|()| CLASS_R);
    let class_write = s.word("class-write").map(|()| CLASS_W);
    let all = [plain, class_read, class_write];
    all.iter().any(Option::is_some).then(|| all.iter().flatten().fold(0, |acc, b| acc | b))
}

fn place(s: &mut Scan<'_>) -> Match {
    if let Some(tag) = tag(s) {
        return Match { tag: Some(tag), ..Match::default() };
    }
    let tagged = s.attempt(|s| {
        let namespace = namespace(s)?;
        Some(Match { namespace: Some(namespace), tag: Some(tag(s)?), ..Match::default() })
    });
    tagged.unwrap_or_else(|| {
        let pool = pool(s);
        let namespace = namespace(s);
        let object_prefix = s.attempt(|s| {
            s.word("object_prefix")?;
            s.spaces()?;
            s.string()
        });
        Match { pool, namespace, tag: None, object_prefix }
    })
}

fn pool(s: &mut Scan<'_>) -> Option<String> {
    s.attempt(|s| {
        s.word("pool")?;
        s.equals_or_spaces()?;
        s.string()
    })
}

fn namespace(s: &mut Scan<'_>) -> Option<String> {
    s.attempt(|s| {
        s.word("namespace")?;
        s.equals_or_spaces()?;
        let mut name = s.string_or_empty()?;
        if s.lit("*").is_some() {
            name.push('*');
        }
        Some(name)
    })
}

fn tag(s: &mut Scan<'_>) -> Option<Tag> {
    s.attempt(|s| {
        s.word("tag")?;
        s.spaces()?;
        let application = s.string()?;
        s.spaces()?;
        let key = wildcard_or_string(s)?;
        s.spaces();
        s.lit("=")?;
        s.spaces();
        Some(Tag { application, key, value: wildcard_or_string(s)? })
    })
}

fn wildcard_or_string(s: &mut Scan<'_>) -> Option<String> {
    match s.lit("*").or_else(|| s.lit("all")) {
        Some(()) => Some("*".to_owned()),
        None => s.string(),
    }
}
