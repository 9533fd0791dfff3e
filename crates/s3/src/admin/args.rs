//! What a query says. Source: RESTArgs in src/rgw/rgw_rest.cc.

use bytes::Bytes;
use rgw::UserId;
use s3s::{S3ErrorCode, S3Result, s3_error};

use crate::sign;

/// Names in one query.
const MAX_ARGS: usize = 64;

/// Names and values of a query, without escapes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Args(Vec<(String, String)>);

impl Args {
    pub fn of(query: &str) -> S3Result<Self> {
        let invalid = || -> s3s::S3Error { S3ErrorCode::InvalidURI.into() };
        let fields = query.split('&').filter(|field| !field.is_empty());
        let read = |field: &str| -> S3Result<(String, String)> {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            let plain = |text: &str| sign::percent_decode(&text.replace('+', " ")).ok_or_else(invalid);
            let (name, value): (String, String) = (plain(name)?, plain(value)?);
            if value.chars().any(char::is_control) {
                return Err(s3_error!(InvalidArgument, "{} has control characters", name.escape_default()));
            }
            Ok((name, value))
        };
        let args: Vec<_> = fields.take(MAX_ARGS + 1).map(read).collect::<S3Result<_>>()?;
        if args.len() > MAX_ARGS {
            return Err(s3_error!(InvalidArgument, "the query has more than {MAX_ARGS} names"));
        }
        Ok(Self(args))
    }

    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A text; nothing for an empty one.
    pub fn text(&self, name: &str) -> Option<Bytes> {
        self.get(name).filter(|text| !text.is_empty()).map(|text| Bytes::copy_from_slice(text.as_bytes()))
    }

    /// A text that has to be there.
    pub fn wanted(&self, name: &str) -> S3Result<Bytes> {
        self.text(name).ok_or_else(|| s3_error!(InvalidArgument, "{name} is missing"))
    }

    /// A name alone is true. Source: RESTArgs::get_bool.
    pub fn flag(&self, name: &str) -> S3Result<Option<bool>> {
        let Some(text) = self.get(name) else { return Ok(None) };
        match text.to_ascii_lowercase().as_str() {
            "" | "true" | "yes" | "1" => Ok(Some(true)),
            "false" | "no" | "0" => Ok(Some(false)),
            _ => Err(s3_error!(InvalidArgument, "{name} is true or false")),
        }
    }

    pub fn number<T: std::str::FromStr>(&self, name: &str) -> S3Result<Option<T>> {
        let text = self.get(name).filter(|text| !text.is_empty());
        let read = |text: &str| text.parse().map_err(|_| s3_error!(InvalidArgument, "{name} is a number"));
        text.map(read).transpose()
    }

    /// The user that is meant, or that a subuser `user:name` belongs to.
    pub fn user(&self) -> S3Result<UserId> {
        let of_subuser = || self.get("subuser").and_then(|text| text.split_once(':')).map(|(user, _)| user);
        let text = self.get("uid").filter(|uid| !uid.is_empty()).or_else(of_subuser);
        let text = text.filter(|text| !text.is_empty());
        let text = text.ok_or_else(|| s3_error!(InvalidArgument, "uid is missing"))?;
        Ok(UserId::from_text(&Bytes::copy_from_slice(text.as_bytes())))
    }

    /// The name of a subuser without its user's.
    pub fn subuser(&self) -> Option<Bytes> {
        let text = self.get("subuser")?;
        let name = text.split_once(':').map_or(text, |(_, name)| name);
        (!name.is_empty()).then(|| Bytes::copy_from_slice(name.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_query_says_is_read_or_refused() {
        let args = Args::of("uid=t%24u&display-name=A+B%21&stats&n=7&no=false&empty=").unwrap();
        assert_eq!(args.user().unwrap().to_text(), "t$u");
        assert_eq!(args.get("display-name"), Some("A B!"));
        assert_eq!((args.flag("stats").unwrap(), args.flag("no").unwrap()), (Some(true), Some(false)));
        assert_eq!((args.number("n").unwrap(), args.number::<u32>("m").unwrap()), (Some(7), None));
        assert_eq!((args.text("empty"), args.has("empty")), (None, true));
        assert!(args.flag("uid").is_err() && args.number::<u32>("uid").is_err());
        assert!(args.wanted("empty").is_err());
        let of = Args::of("subuser=u:s").unwrap();
        assert_eq!((of.user().unwrap().to_text(), of.subuser()), ("u".into(), Some("s".into())));
        assert!(Args::of("subuser=s").unwrap().user().is_err());
        for bad in ["a=%zz", "a=%0d%0aX", "a=%ff", &"a&".repeat(MAX_ARGS + 1)] {
            assert!(Args::of(bad).is_err(), "{bad}");
        }
    }
}
