//! The JSON of lrc's words `layers` and `crush-steps`, as lenient as Ceph's reader: commas before a closing
//! bracket.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::{LrcError, ProfileError};
use crate::profile::PlacementStep;

/// A layer as it is written: which positions it reads (`D`) and makes (`c`), and the words of its own
/// profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LayerText {
    pub(crate) map: String,
    pub(crate) values: BTreeMap<String, String>,
}

/// Source: ErasureCodeLrc::layers_description, layers_parse.
pub(crate) fn layers(text: &str) -> Result<Vec<LayerText>, ProfileError> {
    let mut layers = Vec::new();
    for (at, layer) in array("layers", text)?.iter().enumerate() {
        let elements =
            layer.as_array().ok_or_else(|| LrcError::NotAnArray(format!("layer {at} of {text}")))?;
        let Some(first) = elements.first() else {
            continue;
        };
        let map = first.as_str().ok_or(LrcError::LayerMap(at))?.to_owned();
        let values = match elements.get(1) {
            None => BTreeMap::new(),
            Some(Value::String(words)) => words_of(words).ok_or(LrcError::LayerOptions(at))?,
            Some(Value::Object(object)) => strings(object).ok_or(LrcError::LayerOptions(at))?,
            Some(_) => return Err(LrcError::LayerOptions(at).into()),
        };
        layers.push(LayerText { map, values });
    }
    Ok(layers)
}

/// Source: ErasureCodeLrc::parse_rule, parse_rule_step.
pub(crate) fn steps(text: &str) -> Result<Vec<PlacementStep>, ProfileError> {
    let mut steps = Vec::new();
    for step in &array("crush-steps", text)? {
        let elements = step.as_array().ok_or_else(|| LrcError::NotAnArray(format!("{step} in {text}")))?;
        let string = |at: usize| elements.get(at).map(|e| e.as_str().map(str::to_owned));
        let operation = string(0).unwrap_or_else(|| Some(String::new()));
        let operation = operation.ok_or_else(|| LrcError::StepOperation(step.to_string()))?;
        let bucket_type = string(1).unwrap_or_else(|| Some(String::new()));
        let bucket_type = bucket_type.ok_or_else(|| LrcError::StepType(step.to_string()))?;
        let count = elements.get(2).map_or(Some(0), Value::as_i64).and_then(|n| i32::try_from(n).ok());
        let count = count.ok_or_else(|| LrcError::StepCount(step.to_string()))?;
        steps.push(PlacementStep { leaf: operation == "chooseleaf", bucket_type, count });
    }
    Ok(steps)
}

fn array(key: &'static str, text: &str) -> Result<Vec<Value>, ProfileError> {
    match serde_json::from_str(&without_trailing_commas(text)) {
        Ok(Value::Array(array)) => Ok(array),
        Ok(_) => Err(LrcError::NotAnArray(format!("{key}='{text}'")).into()),
        Err(e) => Err(LrcError::NotJson { key, text: text.to_owned(), reason: e.to_string() }.into()),
    }
}

/// A JSON object of strings, or `key=value` words with spaces between. Source: get_json_str_map.
fn words_of(text: &str) -> Option<BTreeMap<String, String>> {
    match serde_json::from_str::<Value>(&without_trailing_commas(text)) {
        Ok(Value::Object(object)) => strings(&object),
        Ok(_) => None,
        Err(_) => {
            let words = text.split(['\t', '\n', ' ']).filter(|word| !word.is_empty());
            let pair = |word: &str| word.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()));
            Some(words.map(|word| pair(word).unwrap_or_else(|| (word.to_owned(), String::new()))).collect())
        }
    }
}

fn strings(object: &serde_json::Map<String, Value>) -> Option<BTreeMap<String, String>> {
    object.iter().map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// Ceph's reader takes `[ 1, 2, ]`, and its own documentation writes layers so.
fn without_trailing_commas(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    for c in text.chars() {
        if !in_string && matches!(c, ']' | '}') {
            let kept = out.trim_end();
            if kept.ends_with(',') {
                out.truncate(kept.len() - 1);
            }
        }
        (in_string, escaped) = match (c, in_string, escaped) {
            ('"', inside, false) => (!inside, false),
            ('\\', true, false) => (true, true),
            (_, inside, _) => (inside, false),
        };
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_before_closing_brackets_are_taken() {
        let text = r#"[ [ "_cDD,]", "k=2 m=1" , ], [ "x", { "w": "8", } ] , ]"#;
        let read = layers(text).expect("layers");
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].map.as_str(), read[0].values["m"].as_str()), ("_cDD,]", "1"));
        assert_eq!((read[1].map.as_str(), read[1].values["w"].as_str()), ("x", "8"));
        assert_eq!(without_trailing_commas(r#"["\",]",]"#), r#"["\",]"]"#);
    }
}
