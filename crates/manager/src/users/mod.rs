//! Who may sign in to the dashboard: users and roles, in the form in which Ceph's module keeps them.
//!
//! Invariants:
//! 1. What is here is what the monitors have said that they hold; a new manager in charge starts over from
//!    that.
//! 2. One change is under way at a time: the next one is made of what the last one left. What the monitors
//!    say meanwhile may be older than it, and does not count: they are asked again when it is over.
//! 3. No password is here: only bcrypt hashes, which the shell makes, for that takes long.
//! 4. Before it is known what the monitors hold nothing is changed, and nobody signs in.
//!
//! Source: src/pybind/mgr/dashboard/services/access_control.py (16.2).

mod change;
mod once;
mod roles;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use types::Errno;

pub(crate) use change::WithHash;
pub(crate) use once::{LONGEST, Once, SHORTEST};
pub use roles::{Role, SCOPES, system_names, system_role};

/// Where Ceph's module keeps them, in the config-key store.
pub const KEY: &str = "mgr/dashboard/accessdb_v2";
/// Of bcrypt, as Ceph's module has it.
pub const HASH_COST: u32 = 12;
/// Whoever signs in with a code does so under this name; no user can be made that has it.
pub const ONCE: &str = "once";
const VERSION: u64 = 2;
/// The monitors take no more for a key. Source: mon_config_key_max_entry_size.
const MOST_BYTES: usize = 64 << 10;
/// After which the monitors are asked again that did not give users out.
const AGAIN: Duration = Duration::from_secs(1);

/// Somebody who may sign in.
#[derive(Debug, Clone, PartialEq)]
pub struct User {
    pub username: String,
    /// A bcrypt hash; without one there is no way in.
    pub password: Option<String>,
    pub roles: BTreeSet<String>,
    pub name: Option<String>,
    pub email: Option<String>,
    /// In seconds since 1970, later with each change. Sessions that began with another one end.
    pub last_update: i64,
    pub enabled: bool,
    /// In seconds since 1970.
    pub pwd_expiration_date: Option<i64>,
    pub pwd_update_required: bool,
}

/// All of them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AccessDb {
    pub users: BTreeMap<String, User>,
    /// Those that somebody made; [`system_role`] has the others.
    pub roles: BTreeMap<String, Role>,
}

/// What the manager knows of them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Users {
    db: Option<AccessDb>,
    /// The number of the change that is under way.
    changing: Option<u64>,
    /// The last change's number.
    last: u64,
    /// When the monitors are to be asked again what they hold.
    again_at: Option<Duration>,
}

/// Users and roles as they are after a change, which counts when the monitors keep it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Changed {
    number: u64,
    pub db: AccessDb,
}

/// Why nothing is changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(pub Errno, pub String);

impl Users {
    /// Takes what the monitors answered to `config-key get`. What cannot be read stays there as it is, and
    /// nobody signs in; the reason is for the log.
    pub(crate) fn load(&mut self, now: Duration, result: i32, stored: &[u8]) -> Result<(), String> {
        if self.changing.is_some() {
            self.again_at = Some(now);
            return Ok(());
        }
        if result != 0 && result != Errno::ENOENT.neg() {
            self.again_at = Some(now + AGAIN);
            return Err(format!("the monitors do not give {KEY} out ({result}): they are asked again"));
        }
        self.again_at = None;
        self.db = match result {
            0 => AccessDb::parse(stored),
            _ => Some(AccessDb::default()),
        };
        match self.db {
            Some(_) => Ok(()),
            None => Err(format!("{KEY} cannot be read: nobody signs in")),
        }
    }

    /// Whether the monitors are to be asked again; says so once.
    pub(crate) fn ask_again(&mut self, now: Duration) -> bool {
        let due = self.changing.is_none() && self.again_at.is_some_and(|at| now >= at);
        due.then(|| self.again_at = None).is_some()
    }

    /// Another manager is in charge: what it changes is not known here.
    pub(crate) fn forget(&mut self) {
        // The number of a change that is still under way is not given to another one.
        *self = Self { last: self.last, ..Self::default() };
    }

    /// `None` before it is known what the monitors hold.
    pub fn db(&self) -> Option<&AccessDb> {
        self.db.as_ref()
    }

    /// Begins a change, made of a copy.
    pub(crate) fn change(
        &mut self,
        how: impl FnOnce(&mut AccessDb) -> Result<(), Refusal>,
    ) -> Result<Changed, Refusal> {
        let Some(db) = &self.db else {
            return Err(Refusal(Errno::EAGAIN, "it is not known yet which users there are".to_owned()));
        };
        if self.changing.is_some() {
            return Err(Refusal(Errno::EBUSY, "another change of users is under way".to_owned()));
        }
        let mut db = db.clone();
        how(&mut db)?;
        if db.to_text().len() > MOST_BYTES {
            let why = format!("all users and roles together take at most {MOST_BYTES} bytes");
            return Err(Refusal(Errno::E2BIG, why));
        }
        self.last += 1;
        self.changing = Some(self.last);
        Ok(Changed { number: self.last, db })
    }

    /// The monitors have answered to a change: they keep it, or refused it.
    pub(crate) fn kept(&mut self, now: Duration, changed: Changed, is_kept: bool) {
        if self.changing != Some(changed.number) {
            // Of before another manager was in charge: what was asked for since may be older than it.
            self.again_at = Some(now);
            return;
        }
        self.changing = None;
        if is_kept {
            self.db = Some(changed.db);
        }
    }

    /// The change that is under way could not be sent.
    pub(crate) fn unsent(&mut self) {
        self.changing = None;
    }
}

impl AccessDb {
    /// `None` when it is not in the form of 16.2, or names a role that there is not. A value of another type
    /// than it should have is not taken for none: a user whose end cannot be read would have no end.
    pub fn parse(stored: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(stored).ok()?;
        if value.get("version")?.as_u64()? != VERSION {
            return None;
        }
        let of = |name: &str| value.get(name).map_or(Some(Map::new()), |v| v.as_object().cloned());
        let roles = of("roles")?.into_iter().map(|(name, v)| {
            let role = Role::parse(&v).filter(|role| role.name == name)?;
            Some((name, role))
        });
        let users = of("users")?.into_iter().map(|(name, v)| {
            let user = User::parse(&v).filter(|user| user.username == name)?;
            Some((name, user))
        });
        let db = Self { roles: roles.collect::<Option<_>>()?, users: users.collect::<Option<_>>()? };
        let known = |role: &String| db.role(role).is_some();
        db.users.values().all(|u| u.roles.iter().all(known)).then_some(db)
    }

    /// As it is kept.
    pub fn to_text(&self) -> String {
        let users: Map<String, Value> = self.users.iter().map(|(n, u)| (n.clone(), u.value())).collect();
        let roles: Map<String, Value> = self.roles.iter().map(|(n, r)| (n.clone(), r.value())).collect();
        python(&json!({ "users": users, "roles": roles, "version": VERSION }))
    }

    pub fn to_bytes(&self) -> Bytes {
        self.to_text().into()
    }

    /// A role by name, whether it is one of the system's or somebody made it.
    pub fn role(&self, name: &str) -> Option<Role> {
        self.roles.get(name).cloned().or_else(|| system_role(name))
    }

    /// What a user's roles allow, by scope.
    pub fn permissions(&self, user: &User) -> BTreeMap<String, BTreeSet<String>> {
        let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for role in user.roles.iter().filter_map(|name| self.role(name)) {
            for (scope, permissions) in role.scopes {
                all.entry(scope).or_default().extend(permissions);
            }
        }
        all
    }

    pub(crate) fn user(&mut self, name: &str) -> Result<&mut User, Refusal> {
        let none = || Refusal(Errno::ENOENT, format!("User '{name}' does not exist"));
        self.users.get_mut(name).ok_or_else(none)
    }
}

impl User {
    pub fn new(username: &str, now: i64) -> Self {
        Self {
            username: username.to_owned(),
            password: None,
            roles: BTreeSet::new(),
            name: None,
            email: None,
            last_update: now,
            enabled: true,
            pwd_expiration_date: None,
            pwd_update_required: false,
        }
    }

    fn parse(value: &Value) -> Option<Self> {
        let text = |name: &str| text_or_null(value.get(name)?);
        let roles = value.get("roles")?.as_array()?.iter();
        Some(Self {
            username: value.get("username")?.as_str()?.to_owned(),
            password: text("password")?,
            roles: roles.map(|r| r.as_str().map(ToOwned::to_owned)).collect::<Option<_>>()?,
            name: text("name")?,
            email: text("email")?,
            last_update: value.get("lastUpdate")?.as_i64()?,
            enabled: value.get("enabled")?.as_bool()?,
            pwd_expiration_date: match value.get("pwdExpirationDate")? {
                Value::Null => None,
                date => Some(date.as_i64()?),
            },
            pwd_update_required: value.get("pwdUpdateRequired")?.as_bool()?,
        })
    }

    pub fn value(&self) -> Value {
        json!({
            "username": self.username,
            "password": self.password,
            "roles": self.roles,
            "name": self.name,
            "email": self.email,
            "lastUpdate": self.last_update,
            "enabled": self.enabled,
            "pwdExpirationDate": self.pwd_expiration_date,
            "pwdUpdateRequired": self.pwd_update_required,
        })
    }

    pub fn is_expired(&self, now: i64) -> bool {
        self.pwd_expiration_date.is_some_and(|at| at != 0 && at < now)
    }

    pub(crate) fn set_password(&mut self, hash: String, now: i64) {
        self.password = Some(hash);
        self.pwd_update_required = false;
        // Ceph's setting for how long passwords last is 0 unless somebody sets it: for ever.
        self.pwd_expiration_date = None;
        self.touch(now);
    }

    /// Something of the user has changed. Of two changes in one second each has a time of its own.
    pub(crate) fn touch(&mut self, now: i64) {
        self.last_update = now.max(self.last_update.saturating_add(1));
    }
}

/// A text, or `Some(None)` for null; `None` for anything else.
fn text_or_null(value: &Value) -> Option<Option<String>> {
    match value {
        Value::Null => Some(None),
        Value::String(text) => Some(Some(text.clone())),
        _ => None,
    }
}

/// What a new password has to be like when nobody has set anything else. Source: PasswordPolicy, settings.py.
pub fn check_password(password: &str) -> Result<(), Refusal> {
    const SHORTEST: usize = 8;
    match password.chars().count() < SHORTEST {
        true => Err(Refusal(Errno::EINVAL, "Password is too weak.".to_owned())),
        false => Ok(()),
    }
}

/// As Python's `json.dumps` writes it.
pub fn python(value: &Value) -> String {
    let mut out = String::new();
    write_python(value, &mut out);
    out
}

fn write_python(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                write_python(item, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push('{');
            for (i, (name, item)) in fields.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                write_python(&Value::from(name.as_str()), out);
                out.push_str(": ");
                write_python(item, out);
            }
            out.push('}');
        }
        Value::String(_) => {
            for c in value.to_string().chars() {
                match c.is_ascii() {
                    true => out.push(c),
                    false => {
                        let mut units = [0; 2];
                        out.extend(c.encode_utf16(&mut units).iter().map(|u| format!("\\u{u:04x}")));
                    }
                }
            }
        }
        other => out.push_str(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the module of 16.2 writes it.
    const KEPT: &str = r#"{"users": {"admin": {"username": "admin", "password": "$2b$12$sd0Az7mm3FaJl8kN3b/xwOuztaN0sWUwC1SJqjM4wcDw/s5cmGbLK", "roles": ["administrator"], "name": "\u00c5sa", "email": null, "lastUpdate": 1543492950, "enabled": true, "pwdExpirationDate": null, "pwdUpdateRequired": false}}, "roles": {"watcher": {"name": "watcher", "description": null, "scopes_permissions": {"osd": ["read"]}}}, "version": 2}"#;

    #[test]
    fn what_cephs_module_keeps_is_read_and_written_alike() {
        let db = AccessDb::parse(KEPT.as_bytes()).expect("parses");
        assert_eq!(db.to_text(), KEPT);
        let admin = db.users.get("admin").expect("is there");
        assert_eq!(admin.name.as_deref(), Some("Åsa"));
        let all = db.permissions(admin);
        assert_eq!(all.len(), SCOPES.len());
        let of_osds = all.get("osd").into_iter().flatten().collect::<Vec<_>>();
        assert_eq!(of_osds, ["create", "delete", "read", "update"]);
    }

    #[test]
    fn what_is_not_of_that_form_is_left_alone_and_lets_nobody_in() {
        let with = |from: &str, to: &str| {
            assert!(KEPT.contains(from), "{from}");
            KEPT.replace(from, to)
        };
        let cut = KEPT.strip_suffix('}').expect("an object").to_owned();
        for stored in [
            String::new(),
            "[]".to_owned(),
            "{}".to_owned(),
            cut,
            with("\"version\": 2", "\"version\": 3"),
            with("administrator", "nobody-knows-it"),
            // Of a wrong type, none of these is none.
            with("\"pwdExpirationDate\": null", "\"pwdExpirationDate\": \"1543492950\""),
            with("\"pwdExpirationDate\": null", "\"pwdExpirationDate\": 1543492950.5"),
            with("\"email\": null", "\"email\": 7"),
            with(
                "\"password\": \"$2b$12$sd0Az7mm3FaJl8kN3b/xwOuztaN0sWUwC1SJqjM4wcDw/s5cmGbLK\"",
                "\"password\": []",
            ),
            with("\"description\": null", "\"description\": {}"),
            with("\"username\": \"admin\"", "\"username\": \"other\""),
            with("\"name\": \"watcher\"", "\"name\": \"other\""),
        ] {
            let mut users = Users::default();
            assert!(users.load(Duration::ZERO, 0, stored.as_bytes()).is_err(), "{stored}");
            assert_eq!(users.db(), None);
            assert!(users.change(|_| Ok(())).is_err());
            assert!(!users.ask_again(Duration::MAX), "the monitors would say the same again");
        }
    }

    fn add(name: &'static str) -> impl FnOnce(&mut AccessDb) -> Result<(), Refusal> {
        move |db| {
            db.users.insert(name.to_owned(), User::new(name, 7));
            Ok(())
        }
    }

    fn names(users: &Users) -> Vec<&str> {
        users.db().into_iter().flat_map(|db| db.users.keys().map(String::as_str)).collect()
    }

    const NOW: Duration = Duration::from_secs(100);

    #[test]
    fn one_change_is_under_way_at_a_time_and_counts_when_it_is_kept() {
        let mut users = Users::default();
        assert!(users.load(NOW, -2, b"").is_ok());
        let first = users.change(add("a")).expect("begun");
        assert_eq!(
            users.change(add("b")),
            Err(Refusal(Errno::EBUSY, "another change of users is under way".to_owned()))
        );
        assert_eq!(users.db().map(|db| db.users.len()), Some(0));
        users.kept(NOW, first, true);
        let second = users.change(add("b")).expect("begun");
        users.kept(NOW, second, false);
        assert_eq!(names(&users), ["a"], "what was refused does not count");
        let _ = users.change(add("b")).expect("begun");
        users.unsent();
        assert!(users.change(add("b")).is_ok());
    }

    #[test]
    fn what_the_monitors_say_while_a_change_is_under_way_does_not_undo_it() {
        let mut users = Users::default();
        assert!(users.load(NOW, -2, b"").is_ok());
        let change = users.change(add("a")).expect("begun");
        // On a new session both are asked again, first what they hold.
        assert!(users.load(NOW, -2, b"").is_ok());
        assert!(users.change(add("b")).is_err(), "it is still under way");
        assert!(!users.ask_again(NOW), "not before it is over");
        users.kept(NOW, change, true);
        assert_eq!(names(&users), ["a"]);
        assert!(users.ask_again(NOW) && !users.ask_again(NOW), "once");
    }

    #[test]
    fn a_change_of_an_earlier_time_in_charge_does_not_count_but_is_asked_for() {
        let mut users = Users::default();
        assert!(users.load(NOW, -2, b"").is_ok());
        let early = users.change(add("a")).expect("begun");
        users.forget();
        assert!(users.load(NOW, -2, b"").is_ok());
        let late = users.change(add("b")).expect("begun");
        users.kept(NOW, early, true);
        assert_eq!(names(&users), [""; 0]);
        users.kept(NOW, late, true);
        assert_eq!(names(&users), ["b"]);
        assert!(users.ask_again(NOW));
    }

    #[test]
    fn monitors_that_do_not_give_users_out_are_asked_again_after_a_while() {
        let mut users = Users::default();
        assert!(users.load(NOW, Errno::EACCES.neg(), b"").is_err());
        assert_eq!(users.db(), None, "that is not to say that there are none");
        assert!(!users.ask_again(NOW) && users.ask_again(NOW + AGAIN));
        assert!(users.load(NOW, 0, KEPT.as_bytes()).is_ok());
        assert!(users.load(NOW, Errno::EAGAIN.neg(), b"").is_err());
        assert_eq!(names(&users), ["admin"], "what they said last is good");
    }

    #[test]
    fn two_changes_in_one_second_have_different_times() {
        let mut user = User::new("a", 7);
        user.touch(7);
        assert_eq!(user.last_update, 8);
        user.set_password("h".to_owned(), 7);
        assert_eq!(user.last_update, 9);
        user.touch(20);
        assert_eq!(user.last_update, 20);
    }

    #[test]
    fn more_than_the_monitors_take_is_refused() {
        let mut users = Users::default();
        assert!(users.load(NOW, -2, b"").is_ok());
        let change = users.change(|db| {
            let user = User { email: Some("x".repeat(MOST_BYTES)), ..User::new("a", 7) };
            db.users.insert("a".to_owned(), user);
            Ok(())
        });
        assert_eq!(change.map_err(|r| r.0), Err(Errno::E2BIG));
    }
}
