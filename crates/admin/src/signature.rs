//! Signatures in Ceph's form: prefix words, then parameters as `key=value` lists.
//!
//! A parameter with `untold=true` is one that daemons alone send: monitors take it, and no description has
//! it.
//!
//! Source: the head of src/mon/MonCommands.h, cmddesc_get_args in src/common/cmdparse.cc.

/// A parsed signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    pub prefix: Vec<&'static str>,
    pub params: Vec<Param>,
}

/// One parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Param {
    pub name: &'static str,
    pub kind: ParamKind,
    pub required: bool,
    /// `n=N`: a list.
    pub repeated: bool,
    pub range: Option<(f64Bits, Option<f64Bits>)>,
    /// `strings=a|b|c`.
    pub choices: Vec<&'static str>,
    /// Every `key=value`, sorted by key: what clients are told.
    pub described: Vec<(&'static str, &'static str)>,
}

/// A bound of a range; kept as bits so that parameters can be compared.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct f64Bits(u64);

impl f64Bits {
    pub fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// The JSON form that a parameter takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamKind {
    Int,
    Float,
    Bool,
    /// An OSD: a number, or `*`, `all`, `any`.
    OsdName,
    /// Every other type is text for us.
    Text,
}

impl Signature {
    pub fn parse(sig: &'static str) -> Self {
        let params = sig.split_whitespace().filter(|w| w.contains('=')).map(Param::parse).collect();
        Self { prefix: Self::prefix_of(sig).collect(), params }
    }

    /// The words before the first parameter.
    pub fn prefix_of(sig: &'static str) -> impl Iterator<Item = &'static str> {
        sig.split_whitespace().take_while(|w| !w.contains(['=', ',']))
    }

    pub fn param(&self, name: &str) -> Option<&Param> {
        self.params.iter().find(|p| p.name == name)
    }
}

/// The `key=value` pairs of a parameter, sorted by key.
pub fn described(word: &str) -> Vec<(&str, &str)> {
    let mut pairs: Vec<(&str, &str)> = word.split(',').filter_map(|kv| kv.split_once('=')).collect();
    pairs.sort_unstable();
    pairs
}

impl Param {
    fn parse(word: &'static str) -> Self {
        let described = described(word);
        let get = |key: &str| described.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
        let kind = match get("type").unwrap_or_default() {
            "CephInt" => ParamKind::Int,
            "CephFloat" => ParamKind::Float,
            "CephBool" => ParamKind::Bool,
            "CephOsdName" => ParamKind::OsdName,
            _ => ParamKind::Text,
        };
        let bound = |s: &str| s.parse::<f64>().ok().map(|v| f64Bits(v.to_bits()));
        let range = get("range").and_then(|r| match r.split_once('|') {
            Some((low, high)) => Some((bound(low)?, bound(high))),
            None => Some((bound(r)?, None)),
        });
        Self {
            name: get("name").unwrap_or_default(),
            kind,
            required: get("req") != Some("false"),
            repeated: get("n") == Some("N"),
            range,
            choices: get("strings").map(|s| s.split('|').collect()).unwrap_or_default(),
            described,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_read() {
        let s = Signature::parse(
            "osd pool create name=pool,type=CephPoolname name=pg_num,type=CephInt,range=0|65536,req=false \
             name=ids,type=CephString,n=N",
        );
        assert_eq!(s.prefix, ["osd", "pool", "create"]);
        assert_eq!(s.params.iter().map(|p| p.name).collect::<Vec<_>>(), ["pool", "pg_num", "ids"]);
        let pg_num = s.param("pg_num").expect("there");
        assert!(!pg_num.required && pg_num.kind == ParamKind::Int);
        let (low, high) = pg_num.range.expect("has a range");
        assert_eq!((low.get(), high.map(f64Bits::get)), (0.0, Some(65_536.0)));
        assert!(s.param("ids").expect("there").repeated);
        let keys: Vec<&str> = pg_num.described.iter().map(|(k, _)| *k).collect();
        assert_eq!(keys, ["name", "range", "req", "type"]);
    }
}
