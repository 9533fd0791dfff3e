//! What clients are told of the commands: they parse their arguments by it.
//!
//! Source: dump_cmddesc_to_json in src/common/cmdparse.cc.

use admin::described;
use messages::mgr::CommandDesc;
use serde_json::{Map, Value, json};

use crate::command::{Command, flags};

/// The reply to `get_command_descriptions`: `cmd000`, `cmd001` and so on; the managers' commands come first.
pub fn describe_all(of_managers: &[CommandDesc]) -> Value {
    let theirs = of_managers.iter().map(|c| {
        describe(&c.cmdstring, &c.helpstring, &c.module, &c.req_perms, c.flags | u64::from(flags::MGR))
    });
    number(theirs.chain(super::all().map(describe_ours)))
}

/// The same for another table.
pub fn describe_commands<'a>(commands: impl Iterator<Item = &'a Command>) -> Value {
    number(commands.map(describe_ours))
}

fn number(commands: impl Iterator<Item = Value>) -> Value {
    Value::Object(commands.enumerate().map(|(i, c)| (format!("cmd{i:03}"), c)).collect())
}

fn describe_ours(c: &Command) -> Value {
    describe(c.sig, c.help, c.module, c.perm, c.flags.into())
}

fn describe(sig: &str, help: &str, module: &str, perm: &str, flags: u64) -> Value {
    // What only daemons send stands in no description, as in Ceph.
    let untold = |w: &str| described(w).iter().any(|(key, _)| *key == "untold");
    let word = |w: &str| match w.contains(['=', ',']) {
        false => json!(w),
        true => {
            let pairs = described(w).into_iter().map(|(k, v)| (k.to_owned(), json!(v)));
            Value::Object(pairs.collect::<Map<String, Value>>())
        }
    };
    let sig: Vec<Value> = sig.split_whitespace().filter(|w| !untold(w)).map(word).collect();
    json!({ "sig": sig, "help": help, "module": module, "perm": perm, "flags": flags })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Handler, Reply, Signature};

    #[test]
    fn the_form_is_cephs() {
        let dump = Command {
            sig: "pg dump name=dumpcontents,type=CephChoices,strings=all|summary,n=N,req=false",
            help: "show",
            module: "pg",
            perm: "r",
            flags: flags::MGR,
            handler: Handler::Read(|_| Reply::ok()),
        };
        // Captured from 16.2.15, help and choices shortened.
        let want = r#"{"cmd000":{"sig":["pg","dump",{"n":"N","name":"dumpcontents","req":"false","strings":"all|summary","type":"CephChoices"}],"help":"show","module":"pg","perm":"r","flags":8}}"#;
        assert_eq!(describe_commands([&dump].into_iter()).to_string(), want);
    }

    #[test]
    fn what_only_daemons_send_is_not_told() {
        let set = crate::command::all().find(|c| c.sig.starts_with("fs set name=fs_name")).expect("is there");
        assert!(Signature::parse(set.sig).param("confirm").is_some());
        let told = describe_commands([set].into_iter()).to_string();
        assert!(told.contains("yes_i_really_mean_it") && !told.contains("confirm"), "{told}");
    }

    #[test]
    fn every_command_is_well_formed_and_there_once() {
        let mut seen = std::collections::BTreeSet::new();
        for c in crate::command::all() {
            let sig = Signature::parse(c.sig);
            // `osd crush set` is two commands, which their parameters tell apart.
            let first = sig.params.first().map(|p| p.name);
            assert!(seen.insert((sig.prefix.clone(), first)), "{} is there twice", c.sig);
            assert!(!sig.prefix.is_empty() && !c.help.is_empty() && !c.module.is_empty(), "{}", c.sig);
            assert!(c.perm.chars().all(|p| "rwx".contains(p)), "{}", c.sig);
            assert!(sig.params.iter().all(|p| !p.name.is_empty()), "{}", c.sig);
            assert_eq!(c.flags & flags::MGR, 0, "{} is the managers' to offer", c.sig);
        }
    }
}
