//! Conditions of statements, over what is known of a request. Source: Condition in
//! src/rgw/rgw_iam_policy.h and its .cc.

use std::collections::BTreeMap;
use std::net::IpAddr;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::matching::{by_colons_exactly, wildcards};

/// What is known of a request, by key: `aws:SourceIp`, `s3:prefix` and their like.
pub type Environment = BTreeMap<String, String>;

/// How a condition compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    StringEquals,
    StringNotEquals,
    StringEqualsIgnoreCase,
    StringNotEqualsIgnoreCase,
    StringLike,
    StringNotLike,
    NumericEquals,
    NumericNotEquals,
    NumericLessThan,
    NumericLessThanEquals,
    NumericGreaterThan,
    NumericGreaterThanEquals,
    DateEquals,
    DateNotEquals,
    DateLessThan,
    DateLessThanEquals,
    DateGreaterThan,
    DateGreaterThanEquals,
    Bool,
    BinaryEquals,
    IpAddress,
    NotIpAddress,
    /// Names of resources. radosgw 16.2 reads these, and none of them holds; requests of clients have no keys
    /// that they are about.
    ArnLike,
    ArnNotLike,
    Null,
}

impl Operator {
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "StringEquals" => Self::StringEquals,
            "StringNotEquals" => Self::StringNotEquals,
            "StringEqualsIgnoreCase" => Self::StringEqualsIgnoreCase,
            "StringNotEqualsIgnoreCase" => Self::StringNotEqualsIgnoreCase,
            "StringLike" => Self::StringLike,
            "StringNotLike" => Self::StringNotLike,
            "NumericEquals" => Self::NumericEquals,
            "NumericNotEquals" => Self::NumericNotEquals,
            "NumericLessThan" => Self::NumericLessThan,
            "NumericLessThanEquals" => Self::NumericLessThanEquals,
            "NumericGreaterThan" => Self::NumericGreaterThan,
            "NumericGreaterThanEquals" => Self::NumericGreaterThanEquals,
            "DateEquals" => Self::DateEquals,
            "DateNotEquals" => Self::DateNotEquals,
            "DateLessThan" => Self::DateLessThan,
            "DateLessThanEquals" => Self::DateLessThanEquals,
            "DateGreaterThan" => Self::DateGreaterThan,
            "DateGreaterThanEquals" => Self::DateGreaterThanEquals,
            "Bool" => Self::Bool,
            "BinaryEquals" => Self::BinaryEquals,
            "IpAddress" => Self::IpAddress,
            "NotIpAddress" => Self::NotIpAddress,
            "ArnEquals" | "ArnLike" => Self::ArnLike,
            "ArnNotEquals" | "ArnNotLike" => Self::ArnNotLike,
            "Null" => Self::Null,
            _ => return None,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Condition {
    pub operator: Operator,
    pub key: String,
    /// Holds where the key is not known.
    pub if_exists: bool,
    pub values: Vec<String>,
}

impl Condition {
    /// A condition that says "not" holds when one of its values is another one, as in radosgw; where the key
    /// is not known no other condition holds.
    pub fn holds(&self, env: &Environment) -> bool {
        use Operator as O;
        let known = env.get(&self.key);
        if self.operator == O::Null {
            return known.is_none();
        }
        let Some(known) = known else { return self.if_exists };
        let any = |fits: &dyn Fn(&str) -> bool| self.values.iter().any(|value| fits(value));
        let ignoring = |value: &str| value.eq_ignore_ascii_case(known);
        let like = |value: &str| wildcards(value.as_bytes(), known.as_bytes(), false);
        let arn = |value: &str| by_colons_exactly(value, known);
        match self.operator {
            O::StringEquals => any(&|value| value == known),
            O::StringNotEquals => any(&|value| value != known),
            O::StringEqualsIgnoreCase => any(&ignoring),
            O::StringNotEqualsIgnoreCase => any(&|value| !ignoring(value)),
            O::StringLike => any(&like),
            O::StringNotLike => any(&|value| !like(value)),
            O::NumericEquals => self.any(known, number, |a, b| a == b),
            O::NumericNotEquals => self.any(known, number, |a, b| a != b),
            O::NumericLessThan => self.any(known, number, |a, b| a < b),
            O::NumericLessThanEquals => self.any(known, number, |a, b| a <= b),
            O::NumericGreaterThan => self.any(known, number, |a, b| a > b),
            O::NumericGreaterThanEquals => self.any(known, number, |a, b| a >= b),
            O::DateEquals => self.any(known, date, |a, b| a == b),
            O::DateNotEquals => self.any(known, date, |a, b| a != b),
            O::DateLessThan => self.any(known, date, |a, b| a < b),
            O::DateLessThanEquals => self.any(known, date, |a, b| a <= b),
            O::DateGreaterThan => self.any(known, date, |a, b| a > b),
            O::DateGreaterThanEquals => self.any(known, date, |a, b| a >= b),
            O::Bool => self.any(known, |text| Some(boolean(text)), |a, b| a == b),
            O::BinaryEquals => self.any(known, |text| BASE64_STANDARD.decode(text).ok(), |a, b| a == b),
            O::IpAddress => self.any(known, Network::read, Network::is_same),
            O::NotIpAddress => {
                Network::read(known).is_some() && !self.any(known, Network::read, Network::is_same)
            }
            O::ArnLike => any(&arn),
            O::ArnNotLike => any(&|value| !arn(value)),
            O::Null => false,
        }
    }

    /// Whether the known value compares so with one of the condition's; those that cannot be read are none.
    fn any<T>(&self, known: &str, read: impl Fn(&str) -> Option<T>, fits: impl Fn(&T, &T) -> bool) -> bool {
        let known = read(known);
        let mut values = self.values.iter().filter_map(|value| read(value));
        known.is_some_and(|known| values.any(|value| fits(&known, &value)))
    }
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok()
}

/// Seconds since the epoch, in parts of a thousand million: a number, or a date of ISO 8601.
fn date(text: &str) -> Option<i128> {
    if let Some(seconds) = number(text) {
        // As integers are cast: what does not fit is the nearest one that does.
        return Some((seconds * 1e9) as i128);
    }
    let stamp = text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_nanosecond);
    let day = || {
        let day = text.parse::<jiff::civil::Date>().ok()?;
        Some(
            jiff::tz::Offset::UTC
                .to_timestamp(day.to_datetime(jiff::civil::Time::midnight()))
                .ok()?
                .as_nanosecond(),
        )
    };
    stamp.or_else(day)
}

fn boolean(text: &str) -> bool {
    let is_false = text.is_empty() || text.eq_ignore_ascii_case("false");
    !is_false && number(text).is_none_or(|n| n != 0.0 && !n.is_nan())
}

/// Addresses with the same first bits. Source: MaskedIP.
#[derive(Debug, Clone, Copy)]
struct Network {
    bits: u128,
    width: u32,
    prefix: u32,
}

impl Network {
    fn read(text: &str) -> Option<Self> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix.parse::<u32>().ok()?)),
            None => (text, None),
        };
        let (bits, width) = match address.parse().ok()? {
            IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
            IpAddr::V6(address) => (u128::from(address), 128),
        };
        let prefix = prefix.unwrap_or(width);
        (prefix <= width).then_some(Self { bits, width, prefix })
    }

    fn is_same(&self, other: &Self) -> bool {
        // Not as radosgw, which compares the last bits of one kind with those of the other.
        let shift = (self.width - self.prefix).max(other.width - other.prefix);
        let first = |n: &Self| n.bits.checked_shr(shift).unwrap_or(0);
        self.width == other.width && first(self) == first(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(operator: &str, known: &str, values: &[&str], want: bool) {
        let values: Vec<String> = values.iter().map(|v| (*v).to_owned()).collect();
        let condition = Condition {
            operator: Operator::named(operator).unwrap(),
            key: "k".into(),
            if_exists: false,
            values: values.clone(),
        };
        let env = Environment::from([("k".to_owned(), known.to_owned())]);
        assert_eq!(condition.holds(&env), want, "{operator} {known} {values:?}");
    }

    #[test]
    fn conditions_compare_as_in_radosgw() {
        for (operator, known, values, want) in [
            ("StringEquals", "a", &["b", "a"][..], true),
            ("StringEquals", "a", &["A"], false),
            ("StringNotEquals", "a", &["a"], false),
            ("StringNotEquals", "a", &["a", "b"], true),
            ("StringEqualsIgnoreCase", "a", &["A"], true),
            ("StringNotEqualsIgnoreCase", "a", &["A"], false),
            ("StringLike", "public/x", &["public/*"], true),
            ("StringNotLike", "public/x", &["public/*"], false),
            ("NumericLessThan", "5", &["x", "6"], true),
            ("NumericGreaterThanEquals", "5.0", &["5"], true),
            ("NumericEquals", "five", &["5"], false),
            ("DateLessThan", "1700000000", &["2023-11-15T00:00:00Z"], true),
            ("DateGreaterThan", "1700000000", &["2023-11-15"], false),
            ("DateEquals", "0", &["1970-01-01"], true),
            ("Bool", "true", &["TRUE"], true),
            ("Bool", "1", &["false"], false),
            ("BinaryEquals", "QQ==", &["QQ=="], true),
            ("BinaryEquals", "=", &["="], false),
            ("IpAddress", "10.0.0.1", &["10.0.0.0/24"], true),
            ("IpAddress", "10.0.1.1", &["10.0.0.0/24", "x/8", "10.0.0.0/33"], false),
            ("IpAddress", "10.0.1.1", &["0.0.0.0/0"], true),
            ("IpAddress", "::1", &["::/0"], true),
            ("IpAddress", "::1", &["0.0.0.1"], false),
            ("NotIpAddress", "10.0.0.1", &["10.0.0.0/8"], false),
            ("NotIpAddress", "11.0.0.1", &["10.0.0.0/8"], true),
            ("NotIpAddress", "x", &["10.0.0.0/8"], false),
            ("ArnEquals", "a:b", &["a:*"], true),
            ("ArnLike", "a:b", &["*"], false),
            ("ArnNotLike", "a:b", &["a:c"], true),
            ("ArnNotEquals", "a:b", &["a:b"], false),
            ("Null", "a", &["true"], false),
        ] {
            check(operator, known, values, want);
        }
    }

    #[test]
    fn what_is_not_known_holds_only_if_that_is_said() {
        let of = |operator: &str, if_exists| Condition {
            operator: Operator::named(operator).unwrap(),
            key: "k".into(),
            if_exists,
            values: vec!["a".into()],
        };
        let none = Environment::new();
        assert!(!of("StringNotEquals", false).holds(&none));
        assert!(of("StringEquals", true).holds(&none));
        assert!(of("Null", false).holds(&none));
    }
}
