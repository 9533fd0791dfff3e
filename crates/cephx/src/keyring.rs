//! Keyring files: sections of entities with a key and caps, in Ceph's INI form.
//!
//! ```text
//! [client.admin]
//!         key = AQ...==
//!         caps mon = "allow *"
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;

use types::AuthName;

use crate::entity_auth::EntityAuth;
use crate::key::{CryptoKey, KeyTextError};

/// The entities of a keyring file, by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Keyring {
    pub entries: BTreeMap<AuthName, EntityAuth>,
}

/// A keyring's text was not accepted; lines count from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    #[error("line {line}: bad entity name '{name}'")]
    BadName { line: usize, name: String },
    #[error("line {line}: {problem}")]
    BadKey { line: usize, problem: KeyTextError },
    #[error("line {line}: unknown setting '{setting}' (known are key and caps SERVICE)")]
    UnknownSetting { line: usize, setting: String },
    #[error("line {line}: expected {expected}")]
    Syntax { line: usize, expected: &'static str },
}

impl Keyring {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn get(&self, name: &AuthName) -> Option<&EntityAuth> {
        self.entries.get(name)
    }

    pub fn insert(&mut self, name: AuthName, auth: EntityAuth) {
        self.entries.insert(name, auth);
    }

    /// Parses a keyring as tolerantly as Ceph: comments, blank lines, any white space, `_` for the space in
    /// `caps mon`, values with and without quotes, an old `auid`, a `[global]` section (ignored).
    ///
    /// Source: KeyRing::decode_plaintext in src/auth/KeyRing.cc, src/common/ConfUtils.cc.
    pub fn parse(text: &str) -> Result<Self, KeyringError> {
        let mut ring = Self::new();
        let mut section: Option<AuthName> = None;
        let mut in_global = true;
        for (line, raw) in join_continued(text) {
            let content = raw.trim();
            if content.is_empty() || content.starts_with(['#', ';']) {
                continue;
            }
            if let Some(heading) = content.strip_prefix('[') {
                let (name, rest) = heading
                    .split_once(']')
                    .ok_or(KeyringError::Syntax { line, expected: "']' after the name" })?;
                expect_end(rest, line)?;
                in_global = name.trim() == "global";
                section = match in_global {
                    true => None,
                    false => Some(parse_name(name.trim(), line)?),
                };
                if let Some(name) = &section {
                    ring.entries.entry(name.clone()).or_default();
                }
                continue;
            }
            let (setting, value) =
                content.split_once('=').ok_or(KeyringError::Syntax { line, expected: "NAME = VALUE" })?;
            let value = parse_value(value.trim_start(), line)?;
            match &section {
                Some(name) => ring.entries.entry(name.clone()).or_default().set(setting, value, line)?,
                None if in_global => {}
                None => return Err(KeyringError::Syntax { line, expected: "[ENTITY] first" }),
            }
        }
        Ok(ring)
    }
}

/// The text form, byte for byte as Ceph writes it. Source: KeyRing::print in src/auth/KeyRing.cc.
impl std::fmt::Display for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, auth) in &self.entries {
            writeln!(f, "[{name}]")?;
            writeln!(f, "\tkey = {}", auth.key.to_base64())?;
            for (service, caps) in &auth.caps {
                writeln!(f, "\tcaps {service} = \"{}\"", caps.replace('"', "\\\""))?;
            }
        }
        Ok(())
    }
}

impl EntityAuth {
    fn set(&mut self, setting: &str, value: String, line: usize) -> Result<(), KeyringError> {
        let setting = setting.trim().replace('_', " ");
        let words: Vec<&str> = setting.split_whitespace().collect();
        match words.as_slice() {
            ["key"] => {
                self.key = CryptoKey::from_base64(&value)
                    .map_err(|problem| KeyringError::BadKey { line, problem })?;
            }
            ["caps", service @ ..] if !service.is_empty() => {
                self.caps.insert(service.join(" "), value);
            }
            ["auid"] => {}
            _ => return Err(KeyringError::UnknownSetting { line, setting }),
        }
        Ok(())
    }
}

fn parse_name(text: &str, line: usize) -> Result<AuthName, KeyringError> {
    AuthName::parse(text).ok_or_else(|| KeyringError::BadName { line, name: text.to_owned() })
}

/// Lines with their numbers; a backslash at a line's end continues it on the next.
fn join_continued(text: &str) -> Vec<(usize, String)> {
    let mut joined: Vec<(usize, String)> = Vec::new();
    let mut continuing = false;
    for (at, raw) in text.lines().enumerate() {
        let (content, more) = match raw.strip_suffix('\\') {
            Some(head) => (head, true),
            None => (raw, false),
        };
        match joined.last_mut() {
            Some((_, last)) if continuing => last.push_str(content),
            _ => joined.push((at + 1, content.to_owned())),
        }
        continuing = more;
    }
    joined
}

/// A value up to its closing quote, or up to a comment; a backslash takes the next character as it is.
fn parse_value(text: &str, line: usize) -> Result<String, KeyringError> {
    let mut chars = text.chars();
    let quote = chars.clone().next().filter(|c| matches!(c, '"' | '\''));
    if quote.is_some() {
        chars.next();
    }
    let mut out = String::new();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.extend(chars.next()),
            c if Some(c) == quote => {
                expect_end(chars.as_str(), line)?;
                return Ok(out);
            }
            '#' | ';' if quote.is_none() => break,
            c => out.write_char(c).unwrap_or(()),
        }
    }
    match quote {
        Some(_) => Err(KeyringError::Syntax { line, expected: "a closing quote" }),
        None => Ok(out.trim_end().to_owned()),
    }
}

fn expect_end(rest: &str, line: usize) -> Result<(), KeyringError> {
    let rest = rest.trim();
    if rest.is_empty() || rest.starts_with(['#', ';']) {
        return Ok(());
    }
    Err(KeyringError::Syntax { line, expected: "the end of the line" })
}
