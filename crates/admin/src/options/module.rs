//! Options of managers' modules, which are in no table: a module describes them itself.
//!
//! Source: MgrMonitor::update_from_paxos, where it makes an Option of each.

use super::OptionOf;

/// What a module says of one of its options. Texts are empty where it says nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModuleSetting {
    /// `mgr/MODULE/OPTION`.
    pub name: String,
    /// As in [`OptionOf::kind`].
    pub kind: &'static str,
    pub level: &'static str,
    /// `Option::FLAG_*`.
    pub flags: u32,
    pub default: String,
    pub min: String,
    pub max: String,
    /// Separated by `|`.
    pub choices: String,
    /// Lists separated by commas.
    pub tags: String,
    pub see_also: String,
    pub desc: String,
    pub long_desc: String,
}

/// Source: Option::FLAG_* in src/common/options.h, and the letters that the table has for them.
const FLAGS: [(u32, &str); 5] = [(0x1, "R"), (0x2, "n"), (0x4, "s"), (0x8, "c"), (0x10, "C")];
const RUNTIME: u32 = 0x1;
const NO_MON_UPDATE: u32 = 0x2;
/// Flags of options that a running daemon does not take.
const FIXED: u32 = 0x4 | 0x8 | 0x10;

impl ModuleSetting {
    /// The option that it describes.
    pub fn option(&self) -> OptionOf<'_> {
        let mut option = OptionOf {
            name: &self.name,
            kind: self.kind,
            level: self.level,
            default: "",
            defaults: ("", ""),
            at_runtime: self.flags & RUNTIME != 0 && self.flags & FIXED == 0,
            not_by_monitors: self.flags & NO_MON_UPDATE != 0,
            cluster_creation: self.flags & 0x8 != 0,
            flags: flag_letters(self.flags),
            min: "",
            max: "",
            choices: "",
            services: "",
            see_also: &self.see_also,
            tags: &self.tags,
            desc: &self.desc,
            long_desc: &self.long_desc,
        };
        // Neither the default nor the bounds have to be one of the choices.
        option.default = match option.parse_value(&self.default).is_ok() && !self.default.is_empty() {
            true => &self.default,
            false => zero(self.kind),
        };
        option.defaults = (option.default, "");
        if [&self.min, &self.max].iter().all(|b| !b.is_empty() && option.parse_value(b).is_ok()) {
            (option.min, option.max) = (&self.min, &self.max);
        }
        OptionOf { choices: &self.choices, ..option }
    }
}

/// What an option is whose module gives no default. Source: Option::Option in src/common/options.h.
fn zero(kind: &str) -> &'static str {
    match kind {
        "bool" => "false",
        "int" | "uint" | "size" | "float" | "secs" | "millisecs" => "0",
        _ => "",
    }
}

/// Modules' options have at most one flag; of several the first is shown.
fn flag_letters(flags: u32) -> &'static str {
    FLAGS.iter().find(|(bit, _)| flags & bit != 0).map_or("", |(_, letter)| letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting() -> ModuleSetting {
        ModuleSetting {
            name: "mgr/balancer/upmap_max_deviation".to_owned(),
            kind: "int",
            level: "advanced",
            flags: 1,
            default: "5".to_owned(),
            min: "1".to_owned(),
            desc: "deviation below which no optimization is attempted".to_owned(),
            long_desc: "If the number of PGs are within this count.".to_owned(),
            ..ModuleSetting::default()
        }
    }

    #[test]
    fn a_modules_option_is_read_and_shown_as_any_other() {
        let s = setting();
        let o = s.option();
        assert_eq!(o.parse_value("2K"), Ok("2000".to_owned()));
        assert_eq!(o.parse_value("-7"), Ok("-7".to_owned()), "one bound alone is none");
        assert!(o.parse_value("soon").is_err());
        let want = "mgr/balancer/upmap_max_deviation - deviation below which no optimization is attempted\n  (int, \
                    advanced)\n  Default: 5\n  Can update at runtime: true\n\nIf the number of PGs are within this \
                    count.\n";
        assert_eq!(o.help_text(), want);
        assert_eq!((&o.schema()["default"], &o.schema()["flags"][0]), (&5.into(), &"runtime".into()));
    }

    #[test]
    fn choices_bind_values_and_defaults_follow_the_type() {
        let s = ModuleSetting {
            kind: "str",
            choices: "none|upmap".to_owned(),
            default: "best".to_owned(),
            ..setting()
        };
        let o = s.option();
        assert_eq!(o.default, "best");
        assert!(o.parse_value("upmap").is_ok() && o.parse_value("worst").is_err());
        let both = ModuleSetting { max: "9".to_owned(), default: String::new(), ..setting() };
        assert_eq!((both.option().default, both.option().parse_value("10").is_ok()), ("0", false));
        let odd = ModuleSetting { kind: "bool", default: "perhaps".to_owned(), flags: 0, ..setting() };
        assert_eq!((odd.option().default, odd.option().at_runtime), ("false", false));
    }
}
