//! Who may sign in to the dashboard: users and roles, in the form in which Ceph's module keeps them.
//!
//! Invariants:
//! 1. What is here is what the monitors have said that they hold; a new manager in charge starts over from
//!    that.
//! 2. One change is under way at a time: the next one is made of what the last one left.
//! 3. No password is here: only bcrypt hashes, which the shell makes, for that takes long.
//! 4. Before it is known what the monitors hold nothing is changed, and nobody signs in.
//!
//! Source: src/pybind/mgr/dashboard/services/access_control.py (16.2).

mod change;
mod once;
mod roles;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde_json::{Map, Value, json};
use types::Errno;

pub(crate) use change::WithHash;
pub(crate) use once::{LONGEST, Once, SHORTEST};
pub use roles::{Role, SCOPES, system_names, system_role};

/// Where Ceph's module keeps them, in the config-key store.
pub const KEY: &str = "mgr/dashboard/accessdb_v2";
const VERSION: u64 = 2;
/// The monitors take no more for a key. Source: mon_config_key_max_entry_size.
const MOST_BYTES: usize = 64 << 10;

/// Somebody who may sign in.
#[derive(Debug, Clone, PartialEq)]
pub struct User {
    pub username: String,
    /// A bcrypt hash; without one there is no way in.
    pub password: Option<String>,
    pub roles: BTreeSet<String>,
    pub name: Option<String>,
    pub email: Option<String>,
    /// In seconds since 1970. Sessions that began before end.
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
    /// Whether a change is under way.
    changing: bool,
}

/// Why nothing is changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(pub Errno, pub String);

impl Users {
    /// Takes what the monitors answered to `config-key get`. What cannot be read stays there as it is, and
    /// nobody signs in; the reason is for the log.
    pub(crate) fn load(&mut self, result: i32, stored: &[u8]) -> Result<(), String> {
        self.changing = false;
        self.db = None;
        if result == Errno::ENOENT.neg() {
            self.db = Some(AccessDb::default());
            return Ok(());
        }
        if result != 0 {
            return Err(format!("the monitors do not give {KEY} out ({result})"));
        }
        self.db = Some(AccessDb::parse(stored).ok_or(format!("{KEY} cannot be read: nobody signs in"))?);
        Ok(())
    }

    /// Another manager is in charge: what it changes is not known here.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// `None` before it is known what the monitors hold.
    pub fn db(&self) -> Option<&AccessDb> {
        self.db.as_ref()
    }

    /// Begins a change, made of a copy.
    pub(crate) fn change(
        &mut self,
        how: impl FnOnce(&mut AccessDb) -> Result<(), Refusal>,
    ) -> Result<AccessDb, Refusal> {
        let Some(db) = &self.db else {
            return Err(Refusal(Errno::EAGAIN, "it is not known yet which users there are".to_owned()));
        };
        if self.changing {
            return Err(Refusal(Errno::EBUSY, "another change of users is under way".to_owned()));
        }
        let mut changed = db.clone();
        how(&mut changed)?;
        if changed.to_text().len() > MOST_BYTES {
            let why = format!("all users and roles together take at most {MOST_BYTES} bytes");
            return Err(Refusal(Errno::E2BIG, why));
        }
        self.changing = true;
        Ok(changed)
    }

    /// The monitors have answered: they keep what changed, or refused it (`None`).
    pub(crate) fn kept(&mut self, db: Option<AccessDb>) {
        self.changing = false;
        self.db = db.or(self.db.take());
    }
}

impl AccessDb {
    /// `None` when it is not in the form of 16.2, or names a role that there is not.
    pub fn parse(stored: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(stored).ok()?;
        if value.get("version")?.as_u64()? != VERSION {
            return None;
        }
        let of = |name: &str| value.get(name).map_or(Some(Map::new()), |v| v.as_object().cloned());
        let roles = of("roles")?.into_iter().map(|(name, v)| Some((name, Role::parse(&v)?)));
        let users = of("users")?.into_iter().map(|(name, v)| Some((name, User::parse(&v)?)));
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
        let text = |name: &str| value.get(name).map(|v| v.as_str().map(ToOwned::to_owned));
        let roles = value.get("roles")?.as_array()?.iter();
        Some(Self {
            username: value.get("username")?.as_str()?.to_owned(),
            password: text("password")?,
            roles: roles.map(|r| r.as_str().map(ToOwned::to_owned)).collect::<Option<_>>()?,
            name: text("name")?,
            email: text("email")?,
            last_update: value.get("lastUpdate")?.as_i64()?,
            enabled: value.get("enabled")?.as_bool()?,
            pwd_expiration_date: value.get("pwdExpirationDate")?.as_i64(),
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
        self.last_update = now;
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
        let later = KEPT.replace("\"version\": 2", "\"version\": 3");
        let foreign = KEPT.replace("administrator", "nobody-knows-it");
        let cut = KEPT.strip_suffix('}').expect("an object");
        for stored in ["", "[]", "{}", &later, &foreign, cut] {
            let mut users = Users::default();
            assert!(users.load(0, stored.as_bytes()).is_err(), "{stored}");
            assert_eq!(users.db(), None);
            assert!(users.change(|_| Ok(())).is_err());
        }
    }

    #[test]
    fn one_change_is_under_way_at_a_time_and_counts_when_it_is_kept() {
        let mut users = Users::default();
        assert!(users.load(-2, b"").is_ok());
        let add = |name: &'static str| {
            move |db: &mut AccessDb| {
                db.users.insert(name.to_owned(), User::new(name, 7));
                Ok(())
            }
        };
        let first = users.change(add("a")).expect("begun");
        assert_eq!(
            users.change(add("b")),
            Err(Refusal(Errno::EBUSY, "another change of users is under way".to_owned()))
        );
        assert_eq!(users.db().map(|db| db.users.len()), Some(0));
        users.kept(Some(first));
        assert!(users.change(add("b")).is_ok());
        users.kept(None);
        let names: Vec<&String> = users.db().into_iter().flat_map(|db| db.users.keys()).collect();
        assert_eq!(names, ["a"], "what was refused does not count");
    }

    #[test]
    fn more_than_the_monitors_take_is_refused() {
        let mut users = Users::default();
        assert!(users.load(-2, b"").is_ok());
        let change = users.change(|db| {
            let user = User { email: Some("x".repeat(MOST_BYTES)), ..User::new("a", 7) };
            db.users.insert("a".to_owned(), user);
            Ok(())
        });
        assert_eq!(change.map_err(|r| r.0), Err(Errno::E2BIG));
    }
}
