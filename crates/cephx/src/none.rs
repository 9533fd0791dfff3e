//! Method none: a peer has the name that it states, and may do everything. For closed networks and tests
//! only.

use bytes::Bytes;
use codec::{Decode, Encode, Reader, Writer};
use types::{AuthName, GlobalId, Utime};

use crate::authorizer::Accepted;
use crate::entity_auth::CapsInfo;
use crate::error::AuthError;
use crate::key::CryptoKey;
use crate::server::{Granted, LoginRequest};

/// The authorizer of method none, for a connection to any service. Source: src/auth/none/AuthNoneProtocol.h.
pub fn none_authorizer(name: &AuthName, global_id: GlobalId) -> Bytes {
    let mut w = Writer::new();
    w.u8(1);
    name.encode(&mut w);
    global_id.encode(&mut w);
    w.into_bytes()
}

/// Takes an authorizer of method none; the reply is empty.
/// Source: AuthNoneAuthorizeHandler::verify_authorizer.
pub fn accept_none(payload: &Bytes) -> Result<Accepted, AuthError> {
    let mut r = Reader::new(payload.clone());
    match r.u8()? {
        1..=9 => {}
        mode => return Err(AuthError::UnsupportedMode(mode)),
    }
    Ok(Accepted {
        name: AuthName::decode(&mut r)?,
        global_id: GlobalId::decode(&mut r)?,
        caps: CapsInfo::all(),
        expires: Utime::new(u32::MAX, 0),
        session_key: CryptoKey::EMPTY,
        connection_secret: Bytes::new(),
        reply: Bytes::new(),
    })
}

/// A login of method none at the monitor: AUTH_DONE follows at once, with an empty payload.
///
/// Source: src/auth/none/AuthNoneServiceHandler.h.
pub fn login_none(request: LoginRequest, fresh_id: GlobalId) -> Granted {
    let global_id = if request.global_id == GlobalId(0) { fresh_id } else { request.global_id };
    let (caps, session_key) = (CapsInfo::all(), CryptoKey::EMPTY);
    Granted { name: request.name, global_id, caps, session_key, connection_secret: Bytes::new() }
}

/// A client's login request of method none; the answer is AUTH_DONE with the global id.
pub fn none_login_request(name: &AuthName, global_id: GlobalId) -> Bytes {
    LoginRequest { name: name.clone(), global_id }.encode()
}

/// The authentication methods' numbers. Source: CEPH_AUTH_* in src/include/ceph_fs.h.
pub const METHOD_NONE: u32 = 1;
/// Method cephx.
pub const METHOD_CEPHX: u32 = 2;
