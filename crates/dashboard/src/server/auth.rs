//! Signing in and out, and whose request it is.
//!
//! Source: src/pybind/mgr/dashboard/controllers/auth.py, services/auth.py: paths, answers, and how the
//! cookie's name begins.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::header::{AUTHORIZATION, COOKIE, HeaderMap};
use manager::users::{AccessDb, ONCE, User};
use runtime::OsEntropy;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use types::Entropy as _;

use super::{Shared, lock};
use crate::sessions::{By, Session, Sessions};

/// Ceph's, and after it the port: browsers give a host's cookies to all its ports, and several clusters may
/// have their dashboards there.
const COOKIE_NAME: &str = "token";
/// Bytes of a name, of a password, and of a token. bcrypt takes 72 bytes of a password into account; those of
/// users that Ceph's module made may have more.
const NAME_BYTES: usize = 256;
const PASSWORD_BYTES: usize = 128;
/// Hashes that cost more are not computed: each step above takes twice as long, and this one takes a second.
const MOST_COST: u32 = 14;
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
    pub fn may_read_at_all(&self) -> bool {
        !self.update_required
    }

    /// The same, and what a scope lets be read.
    pub fn may_read(&self, scope: &str) -> bool {
        self.may_read_at_all() && self.permissions.get(scope).is_some_and(|p| p.contains("read"))
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
pub fn token(headers: &HeaderMap, port: u16) -> Option<(String, bool)> {
    let name = cookie_name(port);
    let in_cookie = headers.get_all(COOKIE).iter().filter_map(|v| v.to_str().ok()).find_map(|v| {
        v.split(';')
            .find_map(|c| c.trim().strip_prefix(name.as_str())?.strip_prefix('=').map(ToOwned::to_owned))
    });
    let bearer = || {
        let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
    };
    let found = bearer().map(|t| (t, false)).or_else(|| in_cookie.map(|t| (t, true)));
    found.filter(|(token, _)| !token.is_empty() && token.len() <= TOKEN_BYTES)
}

/// Whose token it is, and what that user may do now; that is a use of the session.
pub fn who(shared: &Shared, token: &str) -> Option<Who> {
    who_by(shared, token, Sessions::find)
}

/// The same while a stream is open, which is no use of the session.
pub fn still(shared: &Shared, token: &str) -> Option<Who> {
    who_by(shared, token, Sessions::look)
}

fn who_by(
    shared: &Shared,
    token: &str,
    find: impl FnOnce(&mut Sessions, Duration, &str) -> Option<Session>,
) -> Option<Who> {
    let manager = &shared.site.manager;
    // While another manager is in charge nobody is signed in here.
    let looked = manager.with(|m, now| {
        let session = find(&mut lock(&shared.sessions), now.mono, token)?;
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
    let By::Password { last_update } = session.by else { return Some((everything(), false)) };
    let (user, permissions) = user(&session.username)?;
    let good = user.enabled && user.last_update == last_update && !user.is_expired(wall);
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
    let (user, permissions) = user;
    let by = match username.as_str() {
        ONCE => By::Code,
        // Of the user whose password was looked at, who may have changed since.
        _ => By::Password { last_update: user.last_update },
    };
    lock(&shared.sessions).begin(now.mono, &username, by, &token);
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
    let own = found.as_ref().and_then(|(user, _)| user.password.clone()).filter(|hash| is_payable(hash));
    let has_own = own.is_some();
    let hash = own.unwrap_or_else(|| shared.decoy.clone());
    let look = move || bcrypt::verify(password, &hash).unwrap_or(false);
    let fits = in_turn(&shared.hashes, look).await.unwrap_or(false);
    let (user, permissions) = found.filter(|_| fits && has_own)?;
    (user.enabled && !user.is_expired(wall)).then_some((user, permissions))
}

/// Whether a hash in bcrypt's form, `$2b$12$...`, costs no more than is paid for looking at it.
fn is_payable(hash: &str) -> bool {
    let cost = hash.strip_prefix("$2").and_then(|rest| rest.split('$').nth(1)?.parse::<u32>().ok());
    let good = cost.is_some_and(|cost| cost <= MOST_COST);
    if !good {
        tracing::warn!("a user of the dashboard has a password that costs more than {MOST_COST} to look at");
    }
    good
}

/// Computes something when it is its turn. The turn lasts as long as the work: whoever asked for it may have
/// gone before.
async fn in_turn<T: Send + 'static>(
    turns: &Arc<Semaphore>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let turn = Arc::clone(turns).acquire_owned().await.ok()?;
    let done = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        work()
    });
    done.await.ok()
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

fn cookie_name(port: u16) -> String {
    format!("{COOKIE_NAME}-{port}")
}

/// The cookie that carries a token; no script reads it, and no other site sends it. An empty one takes it
/// away.
pub fn cookie(shared: &Shared, token: &str) -> String {
    let secure = if shared.at.tls { "; Secure" } else { "" };
    let ends = if token.is_empty() { "; Max-Age=0" } else { "" };
    let name = cookie_name(shared.at.addr.port());
    format!("{name}={token}; Path=/; HttpOnly; SameSite=Strict{secure}{ends}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_with_its_user() {
        let mut sessions = crate::sessions::Sessions::default();
        sessions.begin(Duration::ZERO, "ann", By::Password { last_update: 100 }, "t");
        let session = sessions.find(Duration::ZERO, "t").expect("begun");
        let may = |user: Option<User>| {
            permissions(&session, 200, |_| user.clone().map(|u| (u, Permissions::new()))).is_some()
        };
        let ann = User::new("ann", 100);
        assert!(may(Some(ann.clone())));
        assert!(!may(None), "deleted");
        assert!(!may(Some(User { last_update: 101, ..ann.clone() })), "her password or roles changed");
        assert!(!may(Some(User { last_update: 99, ..ann.clone() })), "also where clocks differ");
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
            token(&all, 8080)
        };
        assert_eq!(
            headers(&[("cookie", "a=b; token-8443=other; token-8080=xyz")]),
            Some(("xyz".to_owned(), true))
        );
        assert_eq!(headers(&[("authorization", "Bearer xyz")]), Some(("xyz".to_owned(), false)));
        assert_eq!(headers(&[("authorization", "Basic xyz")]), None);
        assert_eq!(headers(&[("cookie", "token-8080=")]), None);
        assert_eq!(headers(&[("cookie", "not-token-8080=1; token-80800=2; token-8443=3; token=4")]), None);
        assert_ne!(random_token(), random_token());
        assert!(random_token().len() >= 43);
    }

    #[test]
    fn hashes_that_cost_too_much_are_not_looked_at() {
        let of = |cost: &str| format!("$2b${cost}$sd0Az7mm3FaJl8kN3b/xwOuztaN0sWUwC1SJqjM4wcDw/s5cmGbLK");
        assert!(is_payable(&of("04")) && is_payable(&of("12")) && is_payable(&of("14")));
        for hash in
            [of("15"), of("31"), of("x"), of("-1"), String::new(), "$2b".to_owned(), "plain".to_owned()]
        {
            assert!(!is_payable(&hash), "{hash}");
        }
    }

    #[tokio::test]
    async fn a_turn_lasts_as_long_as_the_work_also_where_nobody_waits_for_it() {
        let turns = Arc::new(Semaphore::new(1));
        let (begun, begins) = tokio::sync::oneshot::channel();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let of = Arc::clone(&turns);
        let asked = tokio::spawn(async move {
            let work = move || {
                let _ = begun.send(());
                let _ = ends.recv();
            };
            in_turn(&of, work).await
        });
        begins.await.expect("it begins");
        asked.abort();
        assert!(asked.await.is_err_and(|e| e.is_cancelled()), "whoever asked has gone");
        assert_eq!(turns.available_permits(), 0, "the work goes on");
        drop(end);
        assert_eq!(in_turn(&turns, || 7).await, Some(7));
    }
}
