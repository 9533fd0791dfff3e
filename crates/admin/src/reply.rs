//! What a command answers: a code, a line for people, and data in the format asked for.

use bytes::Bytes;
use serde_json::Value;
use types::Errno;

/// How output is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    #[default]
    Plain,
    Json,
    JsonPretty,
}

impl Format {
    /// Unknown names mean plain, as in Ceph; formats that we do not write are refused.
    pub fn parse(name: Option<&str>) -> Result<Self, Reply> {
        match name {
            Some("json") => Ok(Self::Json),
            Some("json-pretty") => Ok(Self::JsonPretty),
            // Made of the JSON when the command has answered: see `xml::convert`.
            Some("xml" | "xml-pretty") => Ok(Self::Json),
            Some(other @ ("yaml" | "table" | "table-kv" | "html" | "html-pretty")) => {
                let text =
                    format!("output format '{other}' is not supported: use plain, json, json-pretty or xml");
                Err(Reply::error(Errno::EOPNOTSUPP, text))
            }
            _ => Ok(Self::Plain),
        }
    }

    pub fn is_plain(self) -> bool {
        self == Self::Plain
    }
}

/// A command's outcome.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reply {
    /// 0 or above for success, a negated errno else.
    pub code: i32,
    /// The status line, which the client prints on stderr.
    pub outs: String,
    /// What the client prints on stdout.
    pub data: Bytes,
}

impl Reply {
    /// Success without output.
    pub fn ok() -> Self {
        Self::default()
    }

    /// Success with a status line.
    pub fn done(outs: impl Into<String>) -> Self {
        Self { outs: outs.into(), ..Self::default() }
    }

    pub fn error(errno: Errno, outs: impl Into<String>) -> Self {
        Self { code: errno.neg(), outs: outs.into(), data: Bytes::new() }
    }

    /// Raw output.
    pub fn data(data: impl Into<Bytes>) -> Self {
        Self { data: data.into(), ..Self::default() }
    }

    /// Text as output, as it is.
    pub fn text(text: impl Into<String>) -> Self {
        Self::data(text.into().into_bytes())
    }

    /// JSON as output: compact without, pretty with a newline at the end, as Ceph's formatter flushes it. Plain output
    /// gets the pretty form: use [`Reply::show`] where plain text exists.
    pub fn json(format: Format, value: &Value) -> Self {
        Self::data(json_text(format, value))
    }

    /// JSON with a newline behind in either form, as commands end that write through a stream.
    pub fn json_line(format: Format, value: &Value) -> Self {
        Self::data(json_text(format, value).trim_end().to_owned() + "\n")
    }

    /// Plain text or JSON, whichever was asked for.
    pub fn show(format: Format, plain: impl FnOnce() -> String, value: impl FnOnce() -> Value) -> Self {
        match format {
            Format::Plain => Self::text(plain()),
            _ => Self::json(format, &value()),
        }
    }

    #[must_use]
    pub fn with_outs(self, outs: impl Into<String>) -> Self {
        Self { outs: outs.into(), ..self }
    }

    pub fn is_error(&self) -> bool {
        self.code < 0
    }
}

impl From<Errno> for Reply {
    fn from(errno: Errno) -> Self {
        Self::error(errno, errno.to_string())
    }
}

/// JSON with four spaces of indent and a newline behind, or compact.
pub fn json_text(format: Format, value: &Value) -> String {
    crate::json::to_text(value, format != Format::Json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_written_as_ceph_does() {
        let value = serde_json::json!({"b": [1, "x"], "a": {}, "e": []});
        assert_eq!(json_text(Format::Json, &value), r#"{"b":[1,"x"],"a":{},"e":[]}"#);
        let pretty = "{\n    \"b\": [\n        1,\n        \"x\"\n    ],\n    \"a\": {},\n    \"e\": []\n}\n";
        assert_eq!(json_text(Format::JsonPretty, &value), pretty);
    }

    #[test]
    fn formats_we_do_not_write_are_refused() {
        assert_eq!(Format::parse(Some("bogus")), Ok(Format::Plain));
        assert_eq!(Format::parse(None), Ok(Format::Plain));
        assert_eq!(Format::parse(Some("xml")), Ok(Format::Json));
        assert!(Format::parse(Some("yaml")).is_err_and(|r| r.code == -95));
    }
}
