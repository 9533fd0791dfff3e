//! `--setuser` and `--setgroup` of service files: a daemon runs as whoever started it, and refuses to seem to
//! do otherwise.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail};

/// Fails when the command line asks for another user or group than the process has.
pub fn check(given: &BTreeMap<String, String>) -> Result<()> {
    let own = [rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()];
    let tables = [("setuser", "/etc/passwd"), ("setgroup", "/etc/group")];
    for ((option, table), own) in tables.into_iter().zip(own) {
        let Some(wanted) = given.get(option).filter(|w| !w.is_empty()) else { continue };
        let table = std::fs::read_to_string(Path::new(table)).unwrap_or_default();
        if number(wanted, &table) != Some(own) {
            bail!(
                "--{option} {wanted}: the process has the number {own} and keeps it; start it as that one (User= and Group= \
                 of a service file), with its folder and its keyring readable"
            );
        }
    }
    Ok(())
}

/// The number that a name, or a number in words, has in a table of `name:password:number:...` lines.
fn number(wanted: &str, table: &str) -> Option<u32> {
    wanted.parse().ok().or_else(|| {
        let mut rows = table.lines().map(|line| line.split(':'));
        rows.find_map(|mut row| (row.next() == Some(wanted)).then(|| row.nth(1)?.parse().ok())?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_known() {
        let table = "root:x:0:0:root:/root:/bin/bash\nceph:x:64045:64045::/var/lib/ceph:/usr/sbin/nologin\n";
        for (wanted, number_of) in
            [("ceph", Some(64_045)), ("root", Some(0)), ("17", Some(17)), ("none", None)]
        {
            assert_eq!(number(wanted, table), number_of, "{wanted}");
        }
    }

    #[test]
    fn another_user_is_refused() {
        let ask = |option: &str, value: &str| check(&[(option.to_owned(), value.to_owned())].into());
        let own = rustix::process::geteuid().as_raw();
        assert!(check(&BTreeMap::new()).is_ok() && ask("setuser", &own.to_string()).is_ok());
        let why = ask("setuser", &(own + 1).to_string()).expect_err("another one").to_string();
        assert!(why.contains("start it as that one"), "{why}");
        assert!(ask("setgroup", "no such group").is_err());
    }
}
