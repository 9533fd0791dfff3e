//! An option as `config help` shows it.
//!
//! Source: Option::dump and Option::print in src/common/options.cc.

use serde_json::{Value, json};

use super::{Effect, OptionOf};

fn list(text: &str) -> Vec<&str> {
    text.split(',').filter(|w| !w.is_empty()).collect()
}

impl OptionOf<'_> {
    /// Everything about the option, as JSON.
    pub fn schema(&self) -> Value {
        let bound = |b: &str| if b.is_empty() { json!("") } else { self.json_value(b) };
        let mut out = json!({
            "name": self.name,
            "type": self.kind,
            "level": self.level,
            "desc": self.desc,
            "long_desc": self.long_desc,
            "default": self.json_value(self.defaults.0),
            "daemon_default": bound(self.defaults.1),
            "tags": list(self.tags),
            "services": list(self.services),
            "see_also": list(self.see_also),
        });
        let rest = json!({
            "min": bound(self.min),
            "max": bound(self.max),
            "can_update_at_runtime": self.at_runtime,
            "flags": self.flag_names(),
        });
        if let (Some(out), Value::Object(rest)) = (out.as_object_mut(), rest) {
            if self.kind == "str" {
                out.insert("enum_values".to_owned(), json!(self.choices()));
            }
            out.extend(rest);
        }
        out
    }

    fn flag_names(&self) -> Vec<&'static str> {
        let known = [
            ('R', "runtime"),
            ('n', "no_mon_update"),
            ('s', "startup"),
            ('c', "cluster_create"),
            ('C', "create"),
        ];
        known.into_iter().filter(|(c, _)| self.flags.contains(*c)).map(|(_, name)| name).collect()
    }

    /// The same for people.
    pub fn help_text(&self) -> String {
        let shown = |text: &str| self.parse_value(text).unwrap_or_else(|_| text.to_owned());
        let mut out = format!("{} - {}\n  ({}, {})\n", self.name, self.desc, self.kind, self.level);
        match self.defaults {
            (default, "") => out += &format!("  Default: {}\n", shown(default)),
            (default, daemons) => {
                out += &format!(
                    "  Default (non-daemon): {}\n  Default (daemon): {}\n",
                    shown(default),
                    shown(daemons)
                );
            }
        }
        if !self.choices.is_empty() {
            let choices: String = self.choices().iter().map(|c| format!(" {c}")).collect();
            out += &format!("  Possible values: {choices}\n");
        }
        if !self.min.is_empty() {
            let max = if self.max.is_empty() { String::new() } else { self.bound_text(self.max) };
            out += &format!("  Minimum: {}\n  Maximum: {max}\n", self.bound_text(self.min));
        }
        out += &format!("  Can update at runtime: {}\n", self.at_runtime);
        let lists = [("Services", self.services), ("Tags", self.tags), ("See also", self.see_also)];
        for (title, words) in lists.into_iter().filter(|(_, words)| !words.is_empty()) {
            out += &format!("  {title}: [{words}]\n");
        }
        if !self.long_desc.is_empty() {
            out += &format!("\n{}\n", self.long_desc);
        }
        // Ceph has no such line.
        if let Effect::Nothing(why) = self.effect() {
            out += &format!("  No effect: {why}\n");
        }
        out
    }

    fn bound_text(&self, bound: &str) -> String {
        match (self.kind, bound.parse::<f64>()) {
            ("float", Ok(b)) => format!("{b:.6}"),
            _ => bound.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::options::find;

    /// Captured from `ceph config help` of 16.2.15, but for the descriptions.
    #[test]
    fn help_is_laid_out_as_cephs() {
        let o = find("rbd_cache_policy").expect("known");
        let want = format!(
            "rbd_cache_policy - {}\n  (str, advanced)\n  Default: writearound\n  Possible values:  writethrough \
             writeback writearound\n  Can update at runtime: false\n  Services: [rbd]\n",
            o.desc
        );
        assert_eq!(o.help_text(), want);
        let o = find("osd_memory_target").expect("known");
        assert!(o.help_text().contains("  Minimum: 939524096\n  Maximum: \n  Can update at runtime: true\n"));
        let schema = find("osd_max_backfills").expect("known").schema();
        assert_eq!((&schema["default"], &schema["min"]), (&1.into(), &"".into()));
        assert_eq!(schema["flags"], serde_json::json!(["runtime"]));
        let keys: Vec<&String> = schema.as_object().expect("an object").keys().collect();
        assert_eq!(keys.last().map(|k| k.as_str()), Some("flags"));
        assert!(!keys.iter().any(|k| *k == "enum_values"), "of texts alone");
    }
}
