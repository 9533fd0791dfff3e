//! Changes of users that need a password's hash, which the shell makes: it would keep the core busy for too
//! long.

use serde_json::Value;
use types::Errno;

use super::{AccessDb, Refusal, User, python};

/// What becomes of a hash.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum WithHash {
    /// A user that there is not yet.
    Create(Box<User>),
    /// The password of one that there is.
    Password { username: String },
    /// Either; one that is new may do everything. Source: set_login_credentials_cmd.
    Credentials { username: String },
}

impl WithHash {
    /// Carries it out; gives what the command prints.
    pub fn apply(self, db: &mut AccessDb, hash: String, now: i64) -> Result<String, Refusal> {
        let username = match self {
            Self::Create(user) => {
                let username = user.username.clone();
                if db.users.contains_key(&username) {
                    return Err(Refusal(Errno::EEXIST, format!("User '{username}' already exists")));
                }
                db.users.insert(username.clone(), User { password: Some(hash), ..*user });
                username
            }
            Self::Password { username } => {
                db.user(&username)?.set_password(hash, now);
                username
            }
            Self::Credentials { username } => {
                let admin =
                    || User { roles: ["administrator".to_owned()].into(), ..User::new(&username, now) };
                db.users.entry(username.clone()).or_insert_with(admin).set_password(hash, now);
                return Ok(format!("{DEPRECATED}Username and password updated"));
            }
        };
        Ok(python(&db.users.get(&username).map_or(Value::Null, User::value)))
    }
}

const DEPRECATED: &str = "\
******************************************************************
***          WARNING: this command is deprecated.              ***
*** Please use the ac-user-* related commands to manage users. ***
******************************************************************
";
