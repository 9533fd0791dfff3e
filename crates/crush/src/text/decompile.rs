//! From a map to its text, byte for byte as `crushtool -d` prints it.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::{TextError, TextProblem};
use crate::{Alg, ChooseArg, CrushMap, RULE_ERASURE, RULE_REPLICATED, Rule, Step, Tunables};

impl CrushMap {
    /// The text form. Shadow buckets appear only as ids in their originals.
    pub fn decompile(&self) -> Result<String, TextError> {
        let mut out = String::from("# begin crush map\n");
        self.write_tunables(&mut out);
        out += "\n# devices\n";
        for (id, name) in self.item_names.range(0..self.max_devices.max(0)) {
            line(&mut out, format_args!("device {id} {name}{}", class_suffix(self.item_class(*id))));
        }
        out += "\n# types\n";
        if !self.type_names.is_empty() && !self.type_names.contains_key(&0) {
            out += "type 0 osd\n";
        }
        for (id, name) in self.type_names.range(0..) {
            line(&mut out, format_args!("type {id} {name}"));
        }
        out += "\n# buckets\n";
        let mut done = BTreeSet::new();
        for id in self.buckets.iter().flatten().map(|b| b.id) {
            self.write_buckets(id, &mut done, &mut out);
        }
        out += "\n# rules\n";
        for (id, rule) in (0..).zip(&self.rules) {
            if let Some(rule) = rule {
                self.write_rule(id, rule, &mut out)?;
            }
        }
        self.write_choose_args(&mut out);
        out += "\n# end crush map\n";
        Ok(out)
    }

    /// Only what differs from the legacy values, which a text without tunables means.
    fn write_tunables(&self, out: &mut String) {
        let values = |t: &Tunables| {
            [
                ("choose_local_tries", t.choose_local_tries as i32),
                ("choose_local_fallback_tries", t.choose_local_fallback_tries as i32),
                ("choose_total_tries", t.choose_total_tries as i32),
                ("chooseleaf_descend_once", t.chooseleaf_descend_once as i32),
                ("chooseleaf_vary_r", i32::from(t.chooseleaf_vary_r)),
                ("chooseleaf_stable", i32::from(t.chooseleaf_stable)),
                ("straw_calc_version", i32::from(t.straw_calc_version)),
            ]
        };
        for ((name, value), (_, legacy)) in values(&self.tunables).into_iter().zip(values(&Tunables::LEGACY))
        {
            if value != legacy {
                line(out, format_args!("tunable {name} {value}"));
            }
        }
        let algs = self.tunables.allowed_bucket_algs;
        if algs != Tunables::LEGACY.allowed_bucket_algs {
            line(out, format_args!("tunable allowed_bucket_algs {algs}"));
        }
    }

    /// A bucket behind those below it, each once.
    fn write_buckets(&self, id: i32, done: &mut BTreeSet<i32>, out: &mut String) {
        if self.bucket(id).is_none() || !done.insert(id) {
            return;
        }
        for child in self.children(id) {
            self.write_buckets(*child, done, out);
        }
        if !self.is_shadow(id) {
            self.write_bucket(id, out);
        }
    }

    fn write_bucket(&self, id: i32, out: &mut String) {
        let Some(b) = self.bucket(id) else { return };
        line(out, format_args!("{} {} {{", self.type_label(i32::from(b.type_id)), self.item_label(id)));
        line(out, format_args!("\tid {id}\t\t# do not change unnecessarily"));
        for (class, shadow) in self.class_buckets.get(&id).into_iter().flatten() {
            let class = self.class_name(*class).unwrap_or_default();
            line(out, format_args!("\tid {shadow} class {class}\t\t# do not change unnecessarily"));
        }
        line(out, format_args!("\t# weight {}", fixed_point(b.weight)));
        let size = b.items.len();
        let note = match b.alg() {
            Alg::Uniform => format!("\t# do not change bucket size ({size}) unnecessarily"),
            Alg::List => "\t# add new items at the end; do not change order unnecessarily".to_owned(),
            Alg::Tree => "\t# do not change pos for existing items unnecessarily".to_owned(),
            Alg::Straw | Alg::Straw2 => String::new(),
        };
        line(out, format_args!("\talg {}{note}", b.alg().name()));
        let hash = if b.hash == 0 { "rjenkins1" } else { "unknown" };
        line(out, format_args!("\thash {}\t# {hash}", b.hash));
        let with_position = matches!(b.alg(), Alg::Uniform | Alg::Tree);
        for (position, (item, weight)) in b.weighted_items().enumerate() {
            let at = if with_position { format!(" pos {position}") } else { String::new() };
            line(out, format_args!("\titem {} weight {}{at}", self.item_label(item), fixed_point(weight)));
        }
        out.push_str("}\n");
    }

    fn write_rule(&self, id: i32, rule: &Rule, out: &mut String) -> Result<(), TextError> {
        line(out, format_args!("rule {} {{", self.rule_name(id).unwrap_or_default()));
        line(out, format_args!("\tid {id}"));
        if i32::from(rule.ruleset) != id {
            let ruleset = rule.ruleset;
            line(
                out,
                format_args!(
                    "\t# WARNING: ruleset {ruleset} != id {id}; this will not recompile to the same map"
                ),
            );
        }
        match rule.rule_type {
            RULE_REPLICATED => out.push_str("\ttype replicated\n"),
            RULE_ERASURE => out.push_str("\ttype erasure\n"),
            other => line(out, format_args!("\ttype {other}")),
        }
        line(out, format_args!("\tmin_size {}", rule.min_size));
        line(out, format_args!("\tmax_size {}", rule.max_size));
        for step in &rule.steps {
            self.write_step(step, out)?;
        }
        out.push_str("}\n");
        Ok(())
    }

    fn write_step(&self, step: &Step, out: &mut String) -> Result<(), TextError> {
        let Step { op, arg1, arg2 } = *step;
        let name = match op {
            Step::NOOP => "noop",
            Step::EMIT => "emit",
            Step::TAKE => {
                let unknown = || TextProblem::NotDefined(self.item_label(arg1)).at(0);
                let (original, class) = self.split_id_class(arg1).ok_or_else(unknown)?;
                let class = class_suffix(class.and_then(|c| self.class_name(c)));
                line(out, format_args!("\tstep take {}{class}", self.item_label(original)));
                return Ok(());
            }
            Step::CHOOSE_FIRSTN => "choose firstn",
            Step::CHOOSE_INDEP => "choose indep",
            Step::CHOOSELEAF_FIRSTN => "chooseleaf firstn",
            Step::CHOOSELEAF_INDEP => "chooseleaf indep",
            Step::SET_CHOOSE_TRIES => "set_choose_tries",
            Step::SET_CHOOSELEAF_TRIES => "set_chooseleaf_tries",
            Step::SET_CHOOSE_LOCAL_TRIES => "set_choose_local_tries",
            Step::SET_CHOOSE_LOCAL_FALLBACK_TRIES => "set_choose_local_fallback_tries",
            Step::SET_CHOOSELEAF_VARY_R => "set_chooseleaf_vary_r",
            Step::SET_CHOOSELEAF_STABLE => "set_chooseleaf_stable",
            // Steps of newer releases have no words.
            _ => return Ok(()),
        };
        match op {
            Step::NOOP | Step::EMIT => line(out, format_args!("\tstep {name}")),
            Step::SET_CHOOSE_TRIES.. => line(out, format_args!("\tstep {name} {arg1}")),
            _ => line(out, format_args!("\tstep {name} {arg1} type {}", self.type_label(arg2))),
        }
        Ok(())
    }

    fn write_choose_args(&self, out: &mut String) {
        if self.choose_args.is_empty() {
            return;
        }
        out.push_str("\n# choose_args\n");
        for (id, set) in &self.choose_args {
            // Printed without a sign, so that the default set is 2^64 - 1.
            line(out, format_args!("choose_args {} {{", *id as u64));
            for (index, arg) in set.args.iter().enumerate().filter(|(_, a)| !a.is_empty()) {
                write_choose_arg(Self::bucket_id(index), arg, out);
            }
            out.push_str("}\n");
        }
    }

    fn type_label(&self, id: i32) -> String {
        match self.type_name(id) {
            Some(name) => name.to_owned(),
            None if id == 0 => "device".to_owned(),
            None => format!("type{id}"),
        }
    }

    fn item_label(&self, id: i32) -> String {
        match self.item_name(id) {
            Some(name) => name.to_owned(),
            None if id >= 0 => format!("device{id}"),
            None => format!("bucket{}", -1 - i64::from(id)),
        }
    }
}

fn write_choose_arg(bucket: i32, arg: &ChooseArg, out: &mut String) {
    line(out, format_args!("  {{\n    bucket_id {bucket}"));
    if !arg.weight_sets.is_empty() {
        out.push_str("    weight_set [\n");
        for set in &arg.weight_sets {
            let weights: String = set.iter().map(|w| fixed_point(*w) + " ").collect();
            line(out, format_args!("      [ {weights}]"));
        }
        out.push_str("    ]\n");
    }
    if !arg.ids.is_empty() {
        let ids: String = arg.ids.iter().map(|id| format!("{id} ")).collect();
        line(out, format_args!("    ids [ {ids}]"));
    }
    out.push_str("  }\n");
}

fn class_suffix(class: Option<&str>) -> String {
    class.map_or_else(String::new, |c| format!(" class {c}"))
}

fn line(out: &mut String, text: std::fmt::Arguments) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{text}");
}

/// A 16.16 weight with three decimals, rounded as C's `%.3f` of the single-precision value does: ties to even.
fn fixed_point(weight: u32) -> String {
    let value = (weight as i32) as f32 as i64;
    let scaled = value.unsigned_abs() * 1000;
    let (whole, rest) = (scaled / 65536, scaled % 65536);
    let up = rest > 32768 || (rest == 32768 && whole % 2 == 1);
    let thousandths = whole + u64::from(up);
    let sign = if value < 0 { "-" } else { "" };
    format!("{sign}{}.{:03}", thousandths / 1000, thousandths % 1000)
}

#[cfg(test)]
mod tests {
    use super::fixed_point;

    #[test]
    fn weights_round_as_in_c() {
        let check = |weight, text: &str| assert_eq!(fixed_point(weight), text);
        check(0, "0.000");
        check(0x10000, "1.000");
        check(0x1000, "0.062");
        check(0x3000, "0.188");
        check(0x0ccd, "0.050");
        check(0x7fff_ffff, "32768.000");
        check(0xffff_0000, "-1.000");
    }
}
