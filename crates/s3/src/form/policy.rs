//! What the owner of a bucket lets a form do: a signed document with a time and conditions on the form's
//! fields. Source: src/rgw/rgw_policy_s3.cc.

use std::collections::{BTreeMap, BTreeSet};

use rgw::policy::Json;

/// Fields of a form by name, in small letters.
pub type Fields = BTreeMap<String, String>;

/// Why a form is refused, in words for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The document is none.
    Malformed(&'static str),
    /// The document does not allow it.
    Denied(&'static str),
}

use Refused::{Denied, Malformed};

#[derive(Debug, Clone, PartialEq, Eq)]
struct Condition {
    is_prefix: bool,
    /// Whether the second value is as it stands, whatever it begins with.
    is_literal: bool,
    /// Fields are named by a dollar in front of them.
    values: [String; 2],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormPolicy {
    /// Seconds since the epoch.
    expires_s: i64,
    conditions: Vec<Condition>,
    /// Bytes of the file, at least and at most.
    pub length: std::ops::RangeInclusive<u64>,
}

impl FormPolicy {
    pub fn read(text: &[u8]) -> Result<Self, Refused> {
        let document = Json::read(text).ok_or(Malformed("Malformed JSON"))?;
        let expiration = document.member("expiration").ok_or(Malformed("Policy missing expiration"))?;
        // Other ways to write a time are taken for none.
        let whole = |text: &&str| text.as_bytes().get(10) == Some(&b'T') && text.ends_with('Z');
        let expires: Option<jiff::Timestamp> =
            expiration.text().filter(whole).and_then(|text| text.parse().ok());
        let expires_s = expires.ok_or(Malformed("Failed to parse policy expiration"))?.as_second();
        let conditions = document.member("conditions").ok_or(Malformed("Policy missing conditions"))?;
        let Json::List(conditions) = conditions else { return Err(Malformed("Policy missing conditions")) };
        let mut policy = Self { expires_s, conditions: Vec::new(), length: 0..=u64::MAX };
        conditions.iter().try_for_each(|condition| policy.add(condition))?;
        Ok(policy)
    }

    fn add(&mut self, condition: &Json) -> Result<(), Refused> {
        let equal = |field: &str, value: &str| Condition {
            is_prefix: false,
            is_literal: true,
            values: [format!("${field}"), value.to_owned()],
        };
        match condition {
            Json::Members(members) if !members.is_empty() => {
                for (field, value) in members {
                    let value = value.text().ok_or(Malformed("Bad simple condition value"))?;
                    self.conditions.push(equal(field, value));
                }
                Ok(())
            }
            Json::List(list) => {
                let wrong = Malformed("Bad condition array, expecting 3 arguments");
                let texts: Vec<&str> =
                    list.iter().map(|item| item.text().ok_or(wrong)).collect::<Result<_, _>>()?;
                let [operator, first, second] = texts[..] else { return Err(wrong) };
                self.add_triple(operator, first, second)
            }
            _ => Err(Malformed("Failed to parse policy")),
        }
    }

    fn add_triple(&mut self, operator: &str, first: &str, second: &str) -> Result<(), Refused> {
        let is_prefix = match operator.to_ascii_lowercase().as_str() {
            "eq" => false,
            "starts-with" => true,
            "content-length-range" => {
                let number =
                    |text: &str| text.parse::<u64>().map_err(|_| Malformed("Bad content-length-range param"));
                let (least, most) = (number(first)?, number(second)?);
                self.length = least.max(*self.length.start())..=most.min(*self.length.end());
                return Ok(());
            }
            _ => return Err(Malformed("Invalid condition")),
        };
        self.conditions.push(Condition {
            is_prefix,
            is_literal: false,
            values: [first.to_owned(), second.to_owned()],
        });
        Ok(())
    }

    /// Whether it allows a form now. Each field must be in a condition, but for those that are `free`.
    pub fn check(&self, fields: &Fields, free: &[&str], now_s: i64) -> Result<(), Refused> {
        if self.expires_s <= now_s {
            return Err(Denied("Policy expired"));
        }
        let mut checked: BTreeSet<String> = free.iter().map(|name| name.to_ascii_lowercase()).collect();
        for condition in &self.conditions {
            let mut value = |text: &str| match text.strip_prefix('$') {
                None => text.to_owned(),
                Some(field) => {
                    let field = field.to_ascii_lowercase();
                    let value = fields.get(&field).cloned().unwrap_or_default();
                    checked.insert(field);
                    value
                }
            };
            let [first, second] = &condition.values;
            let first = value(first);
            let second = if condition.is_literal { second.clone() } else { value(second) };
            match condition.is_prefix {
                true if !first.starts_with(&second) => {
                    return Err(Denied("Policy condition failed: starts-with"));
                }
                false if first != second => return Err(Denied("Policy condition failed: eq")),
                _ => {}
            }
        }
        let unchecked = fields.keys().any(|name| !name.starts_with("x-ignore-") && !checked.contains(name));
        if unchecked { Err(Denied("Policy missing condition")) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn policy(conditions: &str) -> Result<FormPolicy, Refused> {
        FormPolicy::read(
            format!(r#"{{"expiration":"2023-11-15T00:00:00Z","conditions":[{conditions}]}}"#).as_bytes(),
        )
    }

    fn check(conditions: &str, fields: &[(&str, &str)]) -> Result<(), Refused> {
        let fields = fields.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        policy(conditions)?.check(&fields, &["policy", "Signature"], NOW)
    }

    #[test]
    fn each_field_is_in_a_condition_that_holds() {
        let all = r#"{"bucket":"b"},["starts-with","$Key","foo"],["Eq","$acl","private"]"#;
        let form = [("bucket", "b"), ("key", "foo/x"), ("acl", "private"), ("signature", "s")];
        assert_eq!(check(all, &form), Ok(()));
        let with = |at: usize, value: &'static str| {
            let mut form = form;
            form[at].1 = value;
            check(all, &form)
        };
        assert_eq!(with(0, "c"), Err(Denied("Policy condition failed: eq")));
        assert_eq!(with(1, "fo"), Err(Denied("Policy condition failed: starts-with")));
        assert_eq!(with(2, "public-read"), Err(Denied("Policy condition failed: eq")));
        assert_eq!(with(3, "anything"), Ok(()));
        let more = [&form[..], &[("x-amz-meta-a", "1")]].concat();
        assert_eq!(check(all, &more), Err(Denied("Policy missing condition")));
        let more = [&form[..], &[("x-ignore-a", "1")]].concat();
        assert_eq!(check(all, &more), Ok(()));
        // A field that is not there is empty.
        assert_eq!(check(r#"["starts-with","$x",""]"#, &[]), Ok(()));
        assert_eq!(check(r#"{"x":"y"}"#, &[]), Err(Denied("Policy condition failed: eq")));
        let old = policy("").unwrap();
        assert_eq!(old.check(&Fields::new(), &[], NOW + 86_400), Err(Denied("Policy expired")));
    }

    #[test]
    fn lengths_are_the_narrowest() {
        let length = |conditions: &str| policy(conditions).map(|policy| policy.length);
        assert_eq!(length(""), Ok(0..=u64::MAX));
        let two = r#"["content-length-range",1,10],["content-length-range","0","5"]"#;
        assert_eq!(length(two), Ok(1..=5));
        for wrong in [r#"["content-length-range",1]"#, r#"["content-length-range",-1,2]"#] {
            assert!(length(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn documents_that_say_too_little_are_refused() {
        for wrong in [
            "",
            "{}",
            r#"{"expiration":"2023-11-15T00:00:00Z"}"#,
            r#"{"expiration":"tomorrow","conditions":[]}"#,
            r#"{"expiration":"2023-11-15 00:00:00+00:00","conditions":[]}"#,
            r#"{"expiration":"2023-11-15T00:00:00Z","CONDITIONS":[]}"#,
            r#"{"expiration":"2023-11-15T00:00:00Z","conditions":{}}"#,
        ] {
            assert!(matches!(FormPolicy::read(wrong.as_bytes()), Err(Malformed(_))), "{wrong}");
        }
        for wrong in ["{}", r#"["eq","$a"]"#, r#"["like","$a","b"]"#, r#""x""#, r#"{"a":["b"]}"#] {
            assert!(matches!(policy(wrong), Err(Malformed(_))), "{wrong}");
        }
    }
}
