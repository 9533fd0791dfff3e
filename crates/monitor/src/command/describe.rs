//! What clients are told of the commands: they parse their arguments by it.
//!
//! Source: dump_cmddesc_to_json in src/common/cmdparse.cc.

use serde_json::{Map, Value, json};

use crate::command::{Command, Signature};

/// The reply to `get_command_descriptions`: `cmd000`, `cmd001` and so on.
pub fn describe_all() -> Value {
    describe_commands(super::all())
}

/// The same for other tables.
pub fn describe_commands<'a>(commands: impl Iterator<Item = &'a Command>) -> Value {
    let describe = |(i, c): (usize, &Command)| (format!("cmd{i:03}"), describe(c));
    Value::Object(commands.enumerate().map(describe).collect())
}

fn describe(c: &Command) -> Value {
    let sig = Signature::parse(c.sig);
    let words = sig.prefix.iter().map(|w| json!(w));
    let params = sig.params.iter().map(|p| {
        let pairs = p.described.iter().map(|(k, v)| ((*k).to_owned(), json!(v)));
        Value::Object(pairs.collect::<Map<String, Value>>())
    });
    let sig: Vec<Value> = words.chain(params).collect();
    json!({ "sig": sig, "help": c.help, "module": c.module, "perm": c.perm, "flags": c.flags })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Handler, Reply, flags};

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
    fn every_command_is_well_formed_and_there_once() {
        let mut seen = std::collections::BTreeSet::new();
        for c in crate::command::all() {
            let sig = Signature::parse(c.sig);
            assert!(seen.insert(sig.prefix.clone()), "{} is there twice", c.sig);
            assert!(!sig.prefix.is_empty() && !c.help.is_empty() && !c.module.is_empty(), "{}", c.sig);
            assert!(c.perm.chars().all(|p| "rwx".contains(p)), "{}", c.sig);
            assert!(sig.params.iter().all(|p| !p.name.is_empty()), "{}", c.sig);
            assert_eq!(matches!(c.handler, Handler::Mgr), c.flags & flags::MGR != 0, "{}", c.sig);
        }
    }
}
