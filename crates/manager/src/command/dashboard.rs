//! `dashboard`: who may sign in.
//!
//! A newline at the end of a file with a password is no part of it, although Ceph's module takes it for one:
//! no form lets anybody type it.
//!
//! Source: src/pybind/mgr/dashboard/services/access_control.py (16.2).

use monitor::command::Reply;
use serde_json::{Value, json};
use types::Errno;

use crate::command::{Command, Ctx};
use crate::mon_commands::MonRequest;
use crate::outcome::Then;
use crate::users::{
    self, AccessDb, LONGEST, ONCE, Refusal, SHORTEST, User, WithHash, check_password, python, system_names,
};

pub(super) const COMMANDS: &[Command] = &[
    command(
        "dashboard set-login-credentials name=username,type=CephString",
        "Set the login credentials. Password read from -i <file>",
        "w",
        set_login_credentials,
    ),
    command(
        "dashboard ac-role-show name=rolename,type=CephString,req=false",
        "Show role info",
        "r",
        role_show,
    ),
    command(
        "dashboard ac-user-show name=username,type=CephString,req=false",
        "Show user info",
        "r",
        user_show,
    ),
    command(
        "dashboard ac-user-create name=username,type=CephString name=rolename,type=CephString,req=false \
         name=name,type=CephString,req=false name=email,type=CephString,req=false \
         name=enabled,type=CephBool,req=false name=force_password,type=CephBool,req=false \
         name=pwd_expiration_date,type=CephInt,req=false name=pwd_update_required,type=CephBool,req=false",
        "Create a user. Password read from -i <file>",
        "w",
        user_create,
    ),
    command("dashboard ac-user-enable name=username,type=CephString", "Enable a user", "w", |ctx| {
        enable(ctx, true)
    }),
    command("dashboard ac-user-disable name=username,type=CephString", "Disable a user", "w", |ctx| {
        enable(ctx, false)
    }),
    command("dashboard ac-user-delete name=username,type=CephString", "Delete user", "w", user_delete),
    command(
        "dashboard ac-user-set-roles name=username,type=CephString name=roles,type=CephString,n=N",
        "Set user roles",
        "w",
        set_roles,
    ),
    command(
        "dashboard ac-user-set-password name=username,type=CephString name=force_password,type=CephBool,req=false",
        "Set user password from -i <file>",
        "w",
        set_password,
    ),
    command(
        "dashboard sign-in-once",
        "Let whoever has the code in -i <file> sign in once, within 15 minutes, as administrator",
        "rw",
        sign_in_once,
    ),
];

const fn command(
    sig: &'static str,
    help: &'static str,
    perm: &'static str,
    handler: fn(&mut Ctx<'_>) -> Reply,
) -> Command {
    Command::new(sig, help, "mgr", perm, handler)
}

/// Bytes of a user's name.
const NAME_BYTES: usize = 256;
/// bcrypt takes no more of a password into account: longer ones would seem to differ and would not.
const PASSWORD_BYTES: usize = 72;

impl Ctx<'_> {
    fn seconds(&self) -> i64 {
        i64::from(self.now.wall.sec)
    }

    /// Has the monitors keep users as they are after a change; it counts when they do.
    fn change_users(
        &mut self,
        how: impl FnOnce(&mut AccessDb) -> Result<(), Refusal>,
        say: impl FnOnce(&AccessDb) -> String,
    ) -> Reply {
        match self.users.change(how) {
            Err(refusal) => refused(refusal),
            Ok(changed) => {
                let done = Reply::text(say(&changed.db));
                let requests = vec![request(&changed.db)];
                self.ask_monitors_for_all(requests, done, Then::Users(Box::new(changed)))
            }
        }
    }

    fn username(&self) -> Result<String, Reply> {
        let name = self.args.text_or_empty("username");
        if name.is_empty() || name.len() > NAME_BYTES || name.chars().any(char::is_control) {
            let why = format!("a user's name has 1 to {NAME_BYTES} bytes and no control characters");
            return Err(Reply::error(Errno::EINVAL, why));
        }
        Ok(name.to_owned())
    }

    /// The name of a user who may be a new one.
    fn new_username(&self) -> Result<String, Reply> {
        let name = self.username()?;
        if name == ONCE {
            let why = format!("'{ONCE}' is the name of whoever signs in with a code: no user has it");
            return Err(Reply::error(Errno::EINVAL, why));
        }
        Ok(name)
    }

    /// The password in the file that came with the command. Source: CLICheckNonemptyFileInput.
    fn password(&self) -> Result<String, Reply> {
        const NO_FILE: &str = "Please specify the file containing the password/secret with \"-i\" option.";
        const EMPTY: &str = "Empty content: please add a password/secret to the file.";
        if self.input.is_empty() {
            return Err(Reply::error(Errno::EINVAL, NO_FILE));
        }
        let Ok(text) = std::str::from_utf8(self.input) else {
            return Err(Reply::error(Errno::EINVAL, "a password is text"));
        };
        let text = text.strip_suffix('\n').unwrap_or(text);
        let text = text.strip_suffix('\r').unwrap_or(text);
        if text.trim_matches('\n').is_empty() {
            return Err(Reply::error(Errno::EINVAL, EMPTY));
        }
        if text.len() > PASSWORD_BYTES || text.contains('\0') {
            let why = format!("a password has at most {PASSWORD_BYTES} bytes, none of them 0");
            return Err(Reply::error(Errno::EINVAL, why));
        }
        Ok(text.to_owned())
    }
}

/// Has the monitors keep them.
pub(crate) fn request(db: &AccessDb) -> MonRequest {
    let json = json!({ "prefix": "config-key set", "key": users::KEY }).to_string();
    MonRequest { json, input: db.to_bytes(), ..MonRequest::default() }
}

pub(crate) fn refused(Refusal(errno, why): Refusal) -> Reply {
    Reply::error(errno, why)
}

fn shown(db: &AccessDb, username: &str) -> String {
    python(&db.users.get(username).map_or(Value::Null, User::value))
}

fn set_login_credentials(ctx: &mut Ctx<'_>) -> Reply {
    match ctx.new_username().and_then(|username| Ok((username, ctx.password()?))) {
        Err(reply) => reply,
        Ok((username, password)) => ctx.hash(password, WithHash::Credentials { username }),
    }
}

fn role_show(ctx: &mut Ctx<'_>) -> Reply {
    let Some(db) = ctx.users.db() else { return unknown() };
    let Some(name) = ctx.args.text("rolename") else {
        let own = db.roles.keys().cloned();
        return Reply::text(python(&own.chain(system_names().map(str::to_owned)).collect()));
    };
    match db.role(name) {
        Some(role) => Reply::text(python(&role.value())),
        None => Reply::error(Errno::ENOENT, no_role(name)),
    }
}

fn user_show(ctx: &mut Ctx<'_>) -> Reply {
    let Some(db) = ctx.users.db() else { return unknown() };
    match ctx.args.text("username") {
        None => Reply::text(python(&db.users.keys().map(String::as_str).collect())),
        Some(name) => match db.users.get(name) {
            Some(user) => Reply::text(python(&user.value())),
            None => Reply::error(Errno::ENOENT, format!("User '{name}' does not exist")),
        },
    }
}

fn unknown() -> Reply {
    Reply::error(Errno::EAGAIN, "it is not known yet which users there are")
}

fn no_role(name: &str) -> String {
    format!("Role '{name}' does not exist")
}

fn user_create(ctx: &mut Ctx<'_>) -> Reply {
    match new_user(ctx) {
        Err(reply) => reply,
        Ok((password, user)) => ctx.hash(password, WithHash::Create(Box::new(user))),
    }
}

fn new_user(ctx: &Ctx<'_>) -> Result<(String, User), Reply> {
    let password = ctx.password()?;
    let username = ctx.new_username()?;
    let db = ctx.users.db().ok_or_else(unknown)?;
    let role = ctx.args.text("rolename").map(ToOwned::to_owned);
    if let Some(name) = role.as_ref().filter(|name| db.role(name).is_none()) {
        return Err(Reply::error(Errno::ENOENT, no_role(name)));
    }
    if !ctx.args.flag("force_password") {
        check_password(&password).map_err(refused)?;
    }
    if db.users.contains_key(&username) {
        // Not an error in Ceph.
        return Err(Reply::text(format!("User '{username}' already exists")));
    }
    let text = |name: &str| ctx.args.text(name).map(ToOwned::to_owned);
    let expires = ctx.args.int("pwd_expiration_date").filter(|at| *at != 0);
    if expires.is_some_and(|at| at < ctx.seconds()) {
        return Err(Reply::error(Errno::EINVAL, "The password expiration date must not be in the past"));
    }
    let user = User {
        roles: role.into_iter().collect(),
        name: text("name"),
        email: text("email"),
        enabled: ctx.args.get("enabled").is_none() || ctx.args.flag("enabled"),
        pwd_expiration_date: expires,
        pwd_update_required: ctx.args.flag("pwd_update_required"),
        ..User::new(&username, ctx.seconds())
    };
    Ok((password, user))
}

fn enable(ctx: &mut Ctx<'_>, on: bool) -> Reply {
    let (name, now) = (ctx.args.text_or_empty("username").to_owned(), ctx.seconds());
    let change = |db: &mut AccessDb| -> Result<(), Refusal> {
        let user = db.user(&name)?;
        user.enabled = on;
        user.touch(now);
        Ok(())
    };
    ctx.change_users(change, |db| shown(db, &name))
}

fn user_delete(ctx: &mut Ctx<'_>) -> Reply {
    let name = ctx.args.text_or_empty("username").to_owned();
    let change = |db: &mut AccessDb| -> Result<(), Refusal> {
        db.user(&name)?;
        db.users.remove(&name);
        Ok(())
    };
    ctx.change_users(change, |_| format!("User '{name}' deleted"))
}

fn set_roles(ctx: &mut Ctx<'_>) -> Reply {
    let (name, now) = (ctx.args.text_or_empty("username").to_owned(), ctx.seconds());
    let roles: Vec<String> = ctx.args.list("roles");
    let change = |db: &mut AccessDb| -> Result<(), Refusal> {
        if let Some(none) = roles.iter().find(|role| db.role(role).is_none()) {
            return Err(Refusal(Errno::ENOENT, no_role(none)));
        }
        let user = db.user(&name)?;
        user.roles = roles.iter().cloned().collect();
        user.touch(now);
        Ok(())
    };
    ctx.change_users(change, |db| shown(db, &name))
}

fn set_password(ctx: &mut Ctx<'_>) -> Reply {
    match new_password(ctx) {
        Err(reply) => reply,
        Ok((username, password)) => ctx.hash(password, WithHash::Password { username }),
    }
}

fn new_password(ctx: &Ctx<'_>) -> Result<(String, String), Reply> {
    let (username, password) = (ctx.username()?, ctx.password()?);
    if !ctx.args.flag("force_password") {
        check_password(&password).map_err(refused)?;
    }
    match ctx.users.db().ok_or_else(unknown)?.users.contains_key(&username) {
        true => Ok((username, password)),
        false => Err(Reply::error(Errno::ENOENT, format!("User '{username}' does not exist"))),
    }
}

fn sign_in_once(ctx: &mut Ctx<'_>) -> Reply {
    let code = std::str::from_utf8(ctx.input).unwrap_or_default().trim().to_owned();
    if !(SHORTEST..=LONGEST).contains(&code.len()) {
        let why = format!("a code has {SHORTEST} to {LONGEST} bytes; it is read from -i FILE");
        return Reply::error(Errno::EINVAL, why);
    }
    ctx.once.give_out(ctx.now, code);
    Reply::ok()
}
