//! A strict reader of Prometheus' text format, version 0.0.4: what it takes, Prometheus takes.

use std::collections::BTreeMap;

/// Labels by name, in the order in which they stand.
pub type Labels = Vec<(String, String)>;

/// The series of a name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Family {
    pub kind: String,
    pub help: String,
    /// In the order in which they stand.
    pub series: Vec<(Labels, f64)>,
}

impl Family {
    /// The value of the series that has these labels, whatever else it has.
    pub fn value(&self, labels: &[(&str, &str)]) -> Option<f64> {
        let has =
            |of: &Labels| labels.iter().all(|(n, t)| of.iter().any(|(name, text)| name == n && text == t));
        self.series.iter().find(|(of, _)| has(of)).map(|(_, value)| *value)
    }

    /// The names of labels, by which series are told apart.
    pub fn label_names(&self) -> Vec<&str> {
        self.series
            .first()
            .into_iter()
            .flat_map(|(labels, _)| labels)
            .map(|(name, _)| name.as_str())
            .collect()
    }
}

/// All families, by name.
pub type Families = BTreeMap<String, Family>;

/// Reads all of it.
///
/// # Errors
/// In words, with the number of the line, where Prometheus would refuse it or take it for something else: a
/// second `HELP` or `TYPE`, series without a type or apart from the others of their name, names, values and
/// escapes that are none. [`check`] finds series that are told twice.
pub fn parse(text: &str) -> Result<Families, String> {
    let mut families = Families::new();
    let mut current = String::new();
    if !text.is_empty() && !text.ends_with('\n') {
        return Err("the last line does not end".to_owned());
    }
    for (at, line) in text.split('\n').enumerate() {
        take(line, &mut families, &mut current).map_err(|why| format!("line {}: {why}: {line}", at + 1))?;
    }
    Ok(families)
}

fn take(line: &str, families: &mut Families, current: &mut String) -> Result<(), String> {
    if line.is_empty() {
        return Ok(());
    }
    if let Some(rest) = line.strip_prefix("# HELP ") {
        let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
        is_name(name)?;
        if families.contains_key(name) {
            return Err("a second HELP".to_owned());
        }
        name.clone_into(current);
        let family = Family { help: unescaped(help, false)?, ..Family::default() };
        families.insert(name.to_owned(), family);
        return Ok(());
    }
    if let Some(rest) = line.strip_prefix("# TYPE ") {
        let (name, kind) = rest.split_once(' ').ok_or("no type")?;
        let family = families.get_mut(name).filter(|_| name == current).ok_or("a TYPE away from its HELP")?;
        if !family.kind.is_empty() || !family.series.is_empty() {
            return Err("a second TYPE".to_owned());
        }
        if !["counter", "gauge", "histogram", "summary", "untyped"].contains(&kind) {
            return Err("no type that there is".to_owned());
        }
        kind.clone_into(&mut family.kind);
        return Ok(());
    }
    if line.starts_with('#') {
        return Err("neither HELP nor TYPE".to_owned());
    }
    let (name, labels, value) = sample(line)?;
    let family =
        families.get_mut(&name).filter(|_| name == *current).ok_or("a series away from its family")?;
    if family.kind.is_empty() {
        return Err("a series without a type".to_owned());
    }
    family.series.push((labels, value));
    Ok(())
}

fn sample(line: &str) -> Result<(String, Labels, f64), String> {
    let end = line.find(['{', ' ']).ok_or("no value")?;
    let (name, mut rest) = line.split_at(end);
    is_name(name)?;
    let mut labels = Labels::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (label, behind) = rest.split_once("=\"").ok_or("no label")?;
            if label.contains(':') || labels.iter().any(|(name, _)| name == label) {
                return Err(format!("the label '{label}'"));
            }
            is_name(label)?;
            let end = quote(behind).ok_or("no end of a label's value")?;
            labels.push((label.to_owned(), unescaped(&behind[..end], true)?));
            rest = &behind[end + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None if rest.starts_with('}') => {}
                None => return Err("no comma between labels".to_owned()),
            }
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').ok_or("no blank in front of the value")?;
    let value = match value {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        "NaN" => f64::NAN,
        number if number.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
            number.parse().map_err(|_| "no number")?
        }
        _ => return Err("no number".to_owned()),
    };
    Ok((name.to_owned(), labels, value))
}

/// Where a value ends.
fn quote(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.char_indices().find_map(|(at, c)| {
        let ends = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends.then_some(at)
    })
}

fn unescaped(text: &str, quotes: bool) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => match rest.next() {
                Some('\\') => out.push('\\'),
                Some('n') => out.push('\n'),
                Some('"') if quotes => out.push('"'),
                _ => return Err("no escape that there is".to_owned()),
            },
            // Not forbidden, but nothing that a terminal should be shown.
            c if c.is_control() => return Err("a control character".to_owned()),
            c => out.push(c),
        }
    }
    Ok(out)
}

fn is_name(name: &str) -> Result<(), String> {
    let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == ':');
    let all = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':');
    if first && all { Ok(()) } else { Err(format!("the name '{name}'")) }
}

/// What is wrong with families beyond their form: a series that is there twice.
///
/// # Errors
/// The first of these, in words.
pub fn check(families: &Families) -> Result<(), String> {
    for (name, family) in families {
        let mut seen = std::collections::BTreeSet::new();
        for (labels, _) in &family.series {
            let mut sorted = labels.clone();
            sorted.sort();
            if !seen.insert(sorted) {
                return Err(format!("{name} has a series twice: {labels:?}"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_well_formed_is_read() {
        let text = "# HELP a some \\\\ \\n \"help\"\n# TYPE a gauge\na{x=\"1\\\"\\\\\\n}\",y=\"\"} 1.5\na 2\n\
                    # HELP b \n# TYPE b counter\nb +Inf\n";
        let all = parse(text).expect("read");
        assert_eq!(all["a"].help, "some \\ \n \"help\"");
        assert_eq!(all["a"].value(&[("x", "1\"\\\n}")]), Some(1.5));
        assert_eq!(all["a"].label_names(), ["x", "y"]);
        assert_eq!((all["b"].kind.as_str(), all["b"].value(&[])), ("counter", Some(f64::INFINITY)));
        assert_eq!(check(&all), Ok(()));
    }

    #[test]
    fn what_is_not_is_refused() {
        let head = "# HELP a h\n# TYPE a gauge\n";
        for bad in [
            "a 1\n",
            "# HELP a h\na 1\n",
            "# TYPE a gauge\n",
            "# HELP a h\n# TYPE a pressure\n",
            "# HELP 1a h\n",
            "# remark\n",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        for bad in [
            "a 1",
            "a\n",
            "a x\n",
            "a  1\n",
            "a 1\r\n",
            "a{} 1 2\n",
            "a{x=1} 1\n",
            "a{x=\"1} 1\n",
            "a{x=\"\\t\"} 1\n",
            "a{x=\"\t\"} 1\n",
            "a{x=\"1\"y=\"2\"} 1\n",
            "a{x=\"1\",x=\"2\"} 1\n",
            "a{x-y=\"1\"} 1\n",
            "a{x=\"1\"}1\n",
            "b 1\n",
            "# HELP a h\n",
            "# TYPE a gauge\n",
        ] {
            assert!(parse(&format!("{head}{bad}")).is_err(), "{bad}");
        }
        let apart = "# HELP a h\n# TYPE a gauge\n# HELP b h\n# TYPE b gauge\nb 1\na 1\n";
        assert!(parse(apart).is_err(), "apart from the others of its name");
        let twice =
            parse(&format!("{head}a{{x=\"1\",y=\"2\"}} 1\na{{y=\"2\",x=\"1\"}} 2\n")).expect("well-formed");
        assert!(check(&twice).is_err());
    }
}
