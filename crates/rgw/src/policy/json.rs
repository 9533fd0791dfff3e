//! JSON as it was written: members in their order, and those of one name beside each other.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    /// Nothing, a truth value.
    Other,
    /// A text, or a number as one.
    Text(String),
    List(Vec<Json>),
    Members(Vec<(String, Json)>),
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JSON")
    }
    fn visit_bool<E>(self, _: bool) -> Result<Json, E> {
        Ok(Json::Other)
    }
    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Other)
    }
    fn visit_i64<E>(self, n: i64) -> Result<Json, E> {
        Ok(Json::Text(n.to_string()))
    }
    fn visit_u64<E>(self, n: u64) -> Result<Json, E> {
        Ok(Json::Text(n.to_string()))
    }
    fn visit_f64<E>(self, n: f64) -> Result<Json, E> {
        Ok(Json::Text(n.to_string()))
    }
    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.to_owned()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Json::List(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = items.next_entry()? {
            members.push(member);
        }
        Ok(Json::Members(members))
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

impl Json {
    /// Lists in lists have a bound that is the library's.
    pub fn read(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    /// The only member of a name; nothing where there are two.
    pub fn member(&self, name: &str) -> Option<&Self> {
        let Self::Members(members) = self else { return None };
        let mut found = members.iter().filter(|(n, _)| n == name);
        found.next().filter(|_| found.next().is_none()).map(|(_, value)| value)
    }

    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}
