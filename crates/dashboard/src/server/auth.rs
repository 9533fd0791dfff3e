//! Signing in and out, and whose request it is.
//!
//! Source: src/pybind/mgr/dashboard/controllers/auth.py, services/auth.py: paths, answers, and the cookie's
//! name.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::header::{AUTHORIZATION, COOKIE, HeaderMap};
use manager::users::{AccessDb, User};
use runtime::OsEntropy;
use serde_json::{Value, json};
use types::Entropy as _;

use super::{Shared, lock};
use crate::sessions::Session;

const COOKIE_NAME: &str = "token";
/// Whoever signs in with a code does so under this name; no password lets anybody in under it.
const ONCE: &str = "once";
/// Bytes of a name, of a password (bcrypt takes no more into account), and of a token.
const NAME_BYTES: usize = 256;
const PASSWORD_BYTES: usize = 128;
const TOKEN_BYTES: usize = 64;

/// What somebody may do, by scope.
pub type Permissions = BTreeMap<String, BTreeSet<String>>;

/// Who asks, and what that user may do.
pub struct Who {
    pub username: String,
    pub permissions: Permissions,
    pub update_required: bool,
    pub token: String,
}

impl Who {
    /// Nothing may be read while the password has to be changed first. Source: User.authorize.
    pub fn may_read(&self, scope: &str) -> bool {
        !self.update_required && self.permissions.get(scope).is_some_and(|p| p.contains("read"))
    }
}

/// How an attempt to sign in came out.
pub enum SignedIn {
    Yes {
        token: String,
        answer: Value,
    },
    No,
    /// Not before so long.
    Wait(Duration),
}

/// Random text that nobody guesses.
pub fn random_token() -> String {
    let mut bytes = [0; 32];
    OsEntropy.fill(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The token that came with a request, and whether it came by itself, as browsers send cookies.
pub fn token(headers: &HeaderMap) -> Option<(String, bool)> {
    let in_cookie = headers.get_all(COOKIE).iter().filter_map(|v| v.to_str().ok()).find_map(|v| {
        v.split(';')
            .find_map(|c| c.trim().strip_prefix(COOKIE_NAME)?.strip_prefix('=').map(ToOwned::to_owned))
    });
    let bearer = || {
        let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
    };
    let found = bearer().map(|t| (t, false)).or_else(|| in_cookie.map(|t| (t, true)));
    found.filter(|(token, _)| !token.is_empty() && token.len() <= TOKEN_BYTES)
}

/// Whose token it is, and what that user may do now.
pub fn who(shared: &Shared, token: &str) -> Option<Who> {
    let manager = &shared.site.manager;
    // While another manager is in charge nobody is signed in here.
    let looked = manager.with(|m, now| {
        let session = lock(&shared.sessions).find(now.mono, token)?;
        let wall = i64::from(now.wall.sec);
        permissions(&session, wall, |name| m.user(name)).map(|of| (session, of))
    });
    let (session, (permissions, update_required)) = looked??;
    Some(Who { username: session.username, permissions, update_required, token: token.to_owned() })
}

/// What a session's user may do; `None` where the user is gone, disabled, or has changed since it began.
fn permissions(
    session: &Session,
    wall: i64,
    user: impl Fn(&str) -> Option<(User, Permissions)>,
) -> Option<(Permissions, bool)> {
    if session.by_code {
        return Some((everything(), false));
    }
    let (user, permissions) = user(&session.username)?;
    let good = user.enabled && user.last_update <= session.began_at && !user.is_expired(wall);
    good.then_some((permissions, user.pwd_update_required))
}

fn everything() -> Permissions {
    let admin = User { roles: ["administrator".to_owned()].into(), ..User::new(ONCE, 0) };
    AccessDb::default().permissions(&admin)
}

/// Tries to sign somebody in.
pub async fn sign_in(shared: &Arc<Shared>, from: IpAddr, body: &Value) -> SignedIn {
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (username, password) = (text("username"), text("password"));
    if username.is_empty() || username.len() > NAME_BYTES || password.len() > PASSWORD_BYTES {
        return SignedIn::No;
    }
    let Some(now) = shared.site.manager.with(|_, now| now) else { return SignedIn::No };
    if let Some(wait) = lock(&shared.attempts).begin(now.mono, &username, from) {
        tracing::info!("the dashboard does not listen to {from} yet, who tries to sign in");
        return SignedIn::Wait(wait);
    }
    let found = match username.as_str() {
        ONCE => with_code(shared, &password),
        _ => with_password(shared, &username, password).await,
    };
    let Some(user) = found else {
        let shown = types::printable(&username).into_owned();
        tracing::warn!("somebody at {from} could not sign in to the dashboard as {shown}");
        return SignedIn::No;
    };
    lock(&shared.attempts).succeeded(&username, from);
    tracing::info!("{} signed in to the dashboard from {from}", types::printable(&username));
    let token = random_token();
    let at = i64::from(now.wall.sec);
    lock(&shared.sessions).begin(now.mono, at, &username, username == ONCE, &token);
    let (user, permissions) = user;
    let answer = json!({
        "token": token,
        "username": username,
        "permissions": permissions,
        "pwdExpirationDate": user.pwd_expiration_date,
        "sso": false,
        "pwdUpdateRequired": user.pwd_update_required,
    });
    SignedIn::Yes { token, answer }
}

fn with_code(shared: &Shared, code: &str) -> Option<(User, Permissions)> {
    let good = shared.site.manager.with(|m, now| m.take_once(now, code))?;
    good.then(|| (User::new(ONCE, 0), everything()))
}

/// Takes as long where there is no such user.
async fn with_password(
    shared: &Arc<Shared>,
    username: &str,
    password: String,
) -> Option<(User, Permissions)> {
    let (found, wall) = shared.site.manager.with(|m, now| (m.user(username), i64::from(now.wall.sec)))?;
    let hash = found.as_ref().and_then(|(user, _)| user.password.clone());
    let hash = hash.unwrap_or_else(|| shared.decoy.clone());
    let _turn = shared.hashes.acquire().await.ok()?;
    let fits = tokio::task::spawn_blocking(move || bcrypt::verify(password, &hash).unwrap_or(false)).await;
    let (user, permissions) = found.filter(|_| fits.is_ok_and(|fits| fits))?;
    (user.enabled && user.password.is_some() && !user.is_expired(wall)).then_some((user, permissions))
}

/// What `check` answers of somebody who is signed in.
pub fn session_of(who: &Who) -> Value {
    json!({
        "username": who.username,
        "permissions": who.permissions,
        "sso": false,
        "pwdUpdateRequired": who.update_required,
    })
}

/// The cookie that carries a token; no script reads it, and no other site sends it. An empty one takes it
/// away.
pub fn cookie(shared: &Shared, token: &str) -> String {
    let secure = if shared.at.tls { "; Secure" } else { "" };
    let ends = if token.is_empty() { "; Max-Age=0" } else { "" };
    format!("{COOKIE_NAME}={token}; Path=/; HttpOnly; SameSite=Strict{secure}{ends}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_with_its_user() {
        let mut sessions = crate::sessions::Sessions::default();
        sessions.begin(Duration::ZERO, 100, "ann", false, "t");
        let session = sessions.find(Duration::ZERO, "t").expect("begun");
        let may = |user: Option<User>| {
            permissions(&session, 200, |_| user.clone().map(|u| (u, Permissions::new()))).is_some()
        };
        let ann = User::new("ann", 100);
        assert!(may(Some(ann.clone())));
        assert!(!may(None), "deleted");
        assert!(!may(Some(User { last_update: 101, ..ann.clone() })), "her password or roles changed");
        assert!(!may(Some(User { enabled: false, ..ann.clone() })));
        assert!(!may(Some(User { pwd_expiration_date: Some(150), ..ann })));
    }

    #[test]
    fn tokens_come_in_the_cookie_or_as_bearer() {
        let headers = |pairs: &[(&'static str, &'static str)]| {
            let mut all = HeaderMap::new();
            for (name, value) in pairs {
                all.append(*name, value.parse().expect("a header"));
            }
            token(&all)
        };
        assert_eq!(headers(&[("cookie", "a=b; token=xyz")]), Some(("xyz".to_owned(), true)));
        assert_eq!(headers(&[("authorization", "Bearer xyz")]), Some(("xyz".to_owned(), false)));
        assert_eq!(headers(&[("authorization", "Basic xyz")]), None);
        assert_eq!(headers(&[("cookie", "token=")]), None);
        assert_eq!(headers(&[("cookie", "nottoken=1; tokens=2")]), None);
        assert_ne!(random_token(), random_token());
        assert!(random_token().len() >= 43);
    }
}
