//! Roles that users may take on, and the policies of users.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_plain};

use crate::names::join;

/// Seconds. Source: SESSION_DURATION_MIN in src/rgw/rgw_role.h.
const SESSION_S: u64 = 3600;

/// The data of `roles.<id>` in the pool of roles. Source: RGWRole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    pub id: Bytes,
    pub name: Bytes,
    /// Begins and ends with a slash.
    pub path: Bytes,
    pub arn: Bytes,
    /// As text: `2020-01-01T00:00:00.000Z`.
    pub created: Bytes,
    /// Who may take it on, in JSON.
    pub trust: Bytes,
    /// What it may, in JSON, by the policies' names.
    pub policies: BTreeMap<Bytes, Bytes>,
    pub tenant: Bytes,
    /// How long one may have it, in seconds.
    pub session_s: u64,
}

impl Role {
    /// Where it stands.
    pub fn oid(&self) -> Bytes {
        join(&[b"roles.", &self.id])
    }

    /// Where its name leads to its id.
    pub fn name_oid(&self) -> Bytes {
        join(&[&self.tenant, b"role_names.", &self.name])
    }

    /// An empty object, by whose name it is found under its path.
    pub fn path_oid(&self) -> Bytes {
        join(&[&self.tenant, b"role_paths.", &self.path, b"roles.", &self.id])
    }
}

impl Encode for Role {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 1, |w| {
            for text in [&self.id, &self.name, &self.path, &self.arn, &self.created, &self.trust] {
                text.encode(w);
            }
            self.policies.encode(w);
            self.tenant.encode(w);
            self.session_s.encode(w);
        });
    }
}
impl Decode for Role {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        // Ceph's own reader knows two versions, and reads the third all the same.
        r.envelope("role", 3, |r, env| {
            let (id, name, path) = (r.blob()?, r.blob()?, r.blob()?);
            let (arn, created, trust) = (r.blob()?, r.blob()?, r.blob()?);
            let policies = Decode::decode(r)?;
            let tenant = if env.version >= 2 { r.blob()? } else { Bytes::new() };
            let session_s = if env.version >= 3 { r.u64()? } else { SESSION_S };
            Ok(Self { id, name, path, arn, created, trust, policies, tenant, session_s })
        })
    }
}

/// The attribute `user.rgw.user-policy` of a user's object: policies in JSON by their names.
/// Source: RGW_ATTR_USER_POLICY in src/rgw/rgw_rest_user_policy.cc.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserPolicies {
    pub policies: BTreeMap<Bytes, Bytes>,
}
wire_plain!(UserPolicies { policies });
