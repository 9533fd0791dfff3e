//! The words of a profile, read as the plug-ins read them. Source: to_int, to_bool, to_string in
//! ErasureCode.cc.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::ProfileError;

/// Reading a key fills it in where it is missing or empty.
#[derive(Debug, Clone)]
pub(crate) struct Values(pub(crate) BTreeMap<String, String>);

impl Values {
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    pub(crate) fn set(&mut self, key: &str, value: &str) {
        self.0.insert(key.to_owned(), value.to_owned());
    }

    pub(crate) fn text(&mut self, key: &str, default: &str) -> String {
        let value = self.0.entry(key.to_owned()).or_default();
        if value.is_empty() {
            default.clone_into(value);
        }
        value.clone()
    }

    /// A whole number of 32 bits.
    pub(crate) fn int(&mut self, key: &'static str, default: &str) -> Result<i64, ProfileError> {
        let value = self.text(key, default);
        let number = admin::units::parse_int(&value).and_then(|n| match i32::try_from(n) {
            Ok(_) => Ok(n),
            Err(_) => Err(format!("The option value '{value}' seems to be invalid")),
        });
        number.map_err(|reason| ProfileError::NotANumber { key, value, reason })
    }

    /// Anything but `yes` and `true` is no.
    pub(crate) fn flag(&mut self, key: &str, default: &str) -> bool {
        matches!(self.text(key, default).as_str(), "yes" | "true")
    }
}

impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(|(k, v)| format!("{k}={v}")).collect();
        write!(f, "{{{}}}", words.join(","))
    }
}
