//! What the compiler does not check: sizes, layers, the ban on IO in cores, module docs, the workspace's own map.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::named::{DOCUMENT, Named};
use crate::unused::Words;

const MAX_FILE_LINES: usize = 1_000;
const MAX_FUNCTION_LINES: usize = 70;

/// The layer of each crate; a crate uses only crates of lower layers. `None`: development tools, free to use all.
const LAYERS: &[(&str, Option<u8>)] = &[
    ("allocator", Some(0)),
    ("codec", Some(0)),
    ("types", Some(1)),
    ("nbd", Some(1)),
    ("writeback", Some(1)),
    ("crush", Some(2)),
    ("cephx", Some(2)),
    ("admin", Some(2)),
    ("maps", Some(3)),
    ("messages", Some(3)),
    ("rgw", Some(3)),
    ("erasure", Some(4)),
    ("msgr", Some(4)),
    ("store", Some(4)),
    ("classes", Some(4)),
    ("quorum", Some(4)),
    ("reporter", Some(4)),
    ("monitor", Some(5)),
    ("manager", Some(6)),
    ("cephfs", Some(6)),
    ("mds", Some(6)),
    ("pg", Some(5)),
    ("objecter", Some(5)),
    ("gateway", Some(5)),
    ("runtime", Some(7)),
    ("block", Some(7)),
    ("daemons", Some(8)),
    ("rados", Some(8)),
    ("rbd", Some(9)),
    ("rgwio", Some(9)),
    ("cephfsio", Some(9)),
    ("s3", Some(10)),
    ("dashboard", Some(10)),
    ("loligo", Some(11)),
    ("testkit", None),
    ("simulator", None),
    ("fuzz", None),
    ("xtask", None),
];

/// Features that put faults into a program. Only tests and development tools turn them on.
const FAULTS: &[&str] = &["test-medium", "planted"];

/// The highest layer whose crates do no IO.
const LAST_CORE_LAYER: u8 = 6;

/// What a core must not name outside its tests.
const BANNED_IN_CORES: &[&str] = &[
    "std::net::Tcp",
    "std::net::Udp",
    "std::fs",
    "std::thread",
    "std::process",
    "tokio",
    "async fn",
    "Instant::now",
    "SystemTime",
    "HashMap<",
    "HashSet<",
    "thread_rng",
];

pub fn run(root: &Path) -> Result<()> {
    let waivers = read_waivers(root)?;
    let mut report = Report { waivers, used: BTreeMap::new(), problems: Vec::new() };
    let crates = crate_dirs(root)?;
    for (name, dir) in &crates {
        let Some((_, layer)) = LAYERS.iter().find(|(n, _)| n == name) else {
            report.problem(format!("crates/{name}: not in the table of layers (crates/xtask/src/tidy.rs)"));
            continue;
        };
        check_layers(&mut report, name, dir, *layer)?;
        if layer.is_some() {
            let manifest = fs::read_to_string(dir.join("Cargo.toml"))?;
            report.problems.extend(faults_in_product(&manifest).map(|what| format!("crates/{name}: {what}")));
        }
        for file in rust_files(dir)? {
            let shown = file.strip_prefix(root).unwrap_or(&file).display().to_string();
            let text = fs::read_to_string(&file)?;
            check_file(&mut report, &shown, &text);
            let is_core = layer.is_some_and(|l| l <= LAST_CORE_LAYER) && shown.contains("/src/");
            if is_core {
                check_core(&mut report, &shown, &text);
            }
        }
    }
    check_architecture(&mut report, root)?;
    check_names(&mut report, root)?;
    check_options(&mut report, root, &crates)?;
    check_paths(&mut report, root)?;
    check_tests(&mut report, root)?;
    report.problems.extend(crate::manual::faults(root)?);
    report.finish()
}

struct Report {
    /// `kind path` of each waiver.
    waivers: Vec<String>,
    used: BTreeMap<String, bool>,
    problems: Vec<String>,
}

impl Report {
    fn problem(&mut self, text: String) {
        self.problems.push(text);
    }

    fn waivable(&mut self, kind: &str, place: &str, text: String) {
        let key = format!("{kind} {place}");
        if self.waivers.contains(&key) {
            self.used.insert(key, true);
        } else {
            self.problems.push(format!("{text} [{key}]"));
        }
    }

    fn finish(mut self) -> Result<()> {
        for waiver in &self.waivers {
            if !self.used.contains_key(waiver) {
                self.problems.push(format!("tidy-waivers.txt: '{waiver}' is not needed any more, remove it"));
            }
        }
        if self.problems.is_empty() {
            return Ok(());
        }
        for problem in &self.problems {
            eprintln!("tidy: {problem}");
        }
        bail!("{} tidy problem(s)", self.problems.len())
    }
}

/// Lines `kind place  # reason`; the list only shrinks.
fn read_waivers(root: &Path) -> Result<Vec<String>> {
    let path = root.join("crates/xtask/tidy-waivers.txt");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut out = Vec::new();
    for line in text.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty()) {
        let (what, reason) =
            line.split_once('#').with_context(|| format!("waiver without a reason: {line}"))?;
        if reason.trim().is_empty() {
            bail!("waiver without a reason: {line}");
        }
        out.push(what.trim().to_owned());
    }
    Ok(out)
}

fn crate_dirs(root: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut out = BTreeMap::new();
    for entry in fs::read_dir(root.join("crates"))? {
        let path = entry?.path();
        if path.join("Cargo.toml").is_file() {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            out.insert(name, path);
        }
    }
    Ok(out)
}

fn rust_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut out = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            out.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
    out.sort();
    Ok(out)
}

fn check_layers(report: &mut Report, name: &str, dir: &Path, layer: Option<u8>) -> Result<()> {
    let Some(layer) = layer else { return Ok(()) };
    let manifest = fs::read_to_string(dir.join("Cargo.toml"))?;
    let mut section = "";
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        }
        if section != "[dependencies]" {
            continue;
        }
        let used = line.split(['.', ' ', '=']).next().unwrap_or_default();
        if let Some((_, used_layer)) = LAYERS.iter().find(|(n, _)| *n == used) {
            if used_layer.is_none_or(|u| u >= layer) {
                report.problem(format!(
                    "crates/{name} (layer {layer}) uses {used}, which is not in a lower layer"
                ));
            }
        } else if layer <= LAST_CORE_LAYER && matches!(used, "tokio" | "redb" | "rustix" | "socket2" | "rand")
        {
            report.problem(format!("crates/{name} is a core and depends on {used}"));
        }
    }
    Ok(())
}

/// What in a manifest puts faults into the product: a default feature, or a dependency that is not a test's. A feature may
/// turn on the one of the same name elsewhere.
fn faults_in_product(manifest: &str) -> impl Iterator<Item = String> {
    let mut section = "";
    manifest.lines().filter_map(move |line| {
        if line.starts_with('[') {
            section = line;
        }
        let fault = FAULTS.iter().find(|fault| line.contains(&format!("{fault}\"")))?;
        let is_product = match section {
            "[dev-dependencies]" => false,
            "[features]" => !line.starts_with(&format!("{fault} = ")),
            _ => !line.starts_with("required-features"),
        };
        is_product.then(|| format!("the feature {fault} gets into the product: {line}"))
    })
}

fn check_file(report: &mut Report, shown: &str, text: &str) {
    if !text.starts_with("//!") && !text.starts_with("#!/") {
        report.problem(format!("{shown}: does not open with a //! sentence on its purpose"));
    }
    let lines = text.lines().count();
    if lines > MAX_FILE_LINES {
        report.waivable("file", shown, format!("{shown}: {lines} lines, at most {MAX_FILE_LINES}"));
    }
    for (name, line, length) in functions(text) {
        if length > MAX_FUNCTION_LINES {
            let place = format!("{shown}:{name}");
            report.waivable(
                "fn",
                &place,
                format!("{shown}:{line}: fn {name} has {length} lines, at most {MAX_FUNCTION_LINES}"),
            );
        }
    }
}

/// Name, first line and length of each function, found by rustfmt's indentation.
fn functions(text: &str) -> Vec<(String, usize, usize)> {
    let mut out = Vec::new();
    let mut open: Option<(String, usize, String)> = None;
    for (i, line) in text.lines().enumerate() {
        let indent: String = line.chars().take_while(|c| *c == ' ').collect();
        if let Some((name, start, at)) = &open {
            if line == format!("{at}}}") {
                out.push((name.clone(), *start, i + 2 - *start));
                open = None;
            }
            continue;
        }
        let words = line.trim_start();
        if is_function(words) && !line.trim_end().ends_with(['}', ';']) {
            let name = words.split("fn ").nth(1).unwrap_or_default();
            let name: String = name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            open = Some((name, i + 1, indent));
        }
    }
    out
}

/// Whether this line begins a function, whatever stands before `fn`.
fn is_function(words: &str) -> bool {
    let mut rest = words;
    loop {
        let (word, more) = rest.split_once(' ').unwrap_or((rest, ""));
        match word {
            "fn" => return true,
            "pub" | "async" | "const" | "unsafe" => rest = more,
            _ if word.starts_with("pub(") && word.ends_with(')') => rest = more,
            _ => return false,
        }
    }
}

fn check_core(report: &mut Report, shown: &str, text: &str) {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    for (i, line) in code.lines().enumerate() {
        let line_code = line.split("//").next().unwrap_or_default();
        for banned in BANNED_IN_CORES {
            if line_code.contains(banned) {
                report.problem(format!("{shown}:{}: a core must not use `{banned}`", i + 1));
            }
        }
    }
}

/// What is public is used somewhere, be it by a test.
fn check_names(report: &mut Report, root: &Path) -> Result<()> {
    let mut files = Vec::new();
    for folder in ["crates", "fuzz"] {
        for file in rust_files(&root.join(folder))? {
            let shown = file.strip_prefix(root).unwrap_or(&file).display().to_string();
            files.push((shown, fs::read_to_string(&file)?));
        }
    }
    let mut words = Words::default();
    files.iter().for_each(|(_, text)| words.add(text));
    for (shown, text) in files.iter().filter(|(shown, _)| shown.contains("/src/")) {
        for (name, line) in words.unused(text) {
            report.waivable(
                "unused",
                &format!("{shown}:{name}"),
                format!("{shown}:{line}: nothing uses {name}, public as it is"),
            );
        }
    }
    Ok(())
}

/// Options that are said to act are read by code of the product, and the other way round.
fn check_options(report: &mut Report, root: &Path, crates: &BTreeMap<String, PathBuf>) -> Result<()> {
    let table = |name: &str| -> Result<String> {
        let path = root.join("crates/admin/src/options").join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let (effects, options) = (table("effects.tsv")?, table("options.tsv")?);
    let mut read = BTreeSet::new();
    for (name, dir) in crates {
        if !LAYERS.iter().any(|(n, layer)| n == name && layer.is_some()) {
            continue;
        }
        for file in rust_files(&dir.join("src"))?.iter().filter(|f| !f.ends_with("tests.rs")) {
            if !file.components().any(|c| c.as_os_str() == "options" || c.as_os_str() == "tests") {
                read.extend(texts(&fs::read_to_string(file)?));
            }
        }
    }
    let acts: BTreeSet<&str> = effects.lines().filter_map(|l| l.strip_suffix("\tacts")).collect();
    let seldom: BTreeSet<&str> = effects
        .lines()
        .filter(|l| l.contains("\tnothing\tonly "))
        .filter_map(|l| l.split('\t').next())
        .collect();
    for name in acts.iter().filter(|name| !read.contains(**name)) {
        report.problem(format!("effects.tsv: {name} is said to act, and no code reads it"));
    }
    // Words like `host` mean other things as well.
    let names = options.lines().filter_map(|l| l.split('\t').next()).filter(|name| name.contains('_'));
    for name in names.filter(|name| read.contains(*name) && !acts.contains(name) && !seldom.contains(name)) {
        report.problem(format!("effects.tsv: code reads {name}, which is not said to act"));
    }
    Ok(())
}

/// Files that the documents name are there.
fn check_paths(report: &mut Report, root: &Path) -> Result<()> {
    for document in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "FEATURES.md", "GLOSSARY.md"] {
        let text =
            fs::read_to_string(root.join(document)).with_context(|| format!("cannot read {document}"))?;
        for path in paths(&text).filter(|p| !root.join(p).exists() && !root.join("crates").join(p).exists()) {
            report.problem(format!("{document}: there is no {path}"));
        }
    }
    Ok(())
}

/// Tests that the table of reviews names are there.
fn check_tests(report: &mut Report, root: &Path) -> Result<()> {
    let text = fs::read_to_string(root.join(DOCUMENT)).with_context(|| format!("cannot read {DOCUMENT}"))?;
    let mut named = Named::default();
    let mut folders = vec![root.join("crates"), root.join("thrash")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && name != "node_modules" {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs" || e == "py") {
                named.add(&fs::read_to_string(&path)?);
            } else {
                continue;
            }
            named.add_path(&name);
        }
    }
    for (line, name) in named.missing(&text) {
        report.problem(format!("{DOCUMENT}:{line}: there is no {name}"));
    }
    Ok(())
}

/// Words in backticks that are paths of files or folders of the repository, some without `crates/`.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.split('`').skip(1).step_by(2);
    let is_plain = |t: &&str| t.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b));
    let is_path = |t: &&str| t.starts_with("crates/") || t.starts_with("docs/") || t.contains("/src/");
    quoted.filter(is_plain).filter(is_path)
}

/// Texts in a file's code that may be names of options; none of its tests.
fn texts(text: &str) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let quoted = code.split('"');
    let is_name = |t: &&str| t.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    quoted.filter(|t| !t.is_empty()).filter(is_name).map(str::to_owned).collect()
}

/// Every crate has its row in ARCHITECTURE.md, with the layer that this file gives it.
fn check_architecture(report: &mut Report, root: &Path) -> Result<()> {
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).context("cannot read ARCHITECTURE.md")?;
    for (name, layer) in LAYERS {
        let exists = root.join("crates").join(name).join("Cargo.toml").is_file();
        let shown = layer.map_or("dev".to_owned(), |l| l.to_string());
        let row = format!("| {shown} | `{name}` |");
        if exists && !text.contains(&row) {
            report.problem(format!("ARCHITECTURE.md: no row starting '{row}'"));
        }
        if !exists {
            report.problem(format!("crates/{name} is in the table of layers but does not exist"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{faults_in_product, functions, paths, texts};

    #[test]
    fn names_of_options_are_found_in_code_alone() {
        let code =
            "f(\"osd_max_scrubs\", '\"');\ng(\"mon_lease\");\n#[cfg(test)]\nmod tests {\n\"osd_data\"\n}";
        assert_eq!(texts(code).into_iter().collect::<Vec<_>>(), ["mon_lease", "osd_max_scrubs"]);
    }

    #[test]
    fn functions_are_found_whatever_stands_before_them() {
        for before in ["", "pub ", "pub(super) async ", "pub(crate) const unsafe ", "async "] {
            let text = format!("    {before}fn long(\n        x: u8,\n    ) {{\n        x;\n    }}\n");
            assert_eq!(functions(&text), [("long".to_owned(), 1, 5)], "{before}");
        }
        assert_eq!(functions("    // fn none(\n    type F = fn (\n    }\n"), []);
    }

    #[test]
    fn paths_are_told_from_other_words() {
        let text = "`crates/pg/LEASES.md`, `pg/src/io.rs`, `a/b`, `docs/*.md`, `cargo test`, crates/none";
        assert_eq!(paths(text).collect::<Vec<_>>(), ["crates/pg/LEASES.md", "pg/src/io.rs"]);
    }

    #[test]
    fn faults_are_for_tests_and_tools_alone() {
        let found = |manifest: &str| faults_in_product(manifest).count();
        let fine = "[dependencies]\na = \"1\"\n[features]\nplanted = [\"a/planted\"]\n\
                    [dev-dependencies]\na = { features = [\"planted\"] }\n\
                    [[test]]\nrequired-features = [\"test-medium\"]\n";
        assert_eq!(found(fine), 0);
        assert_eq!(found("[features]\nplanted = []\ndefault = [\"planted\"]\n"), 1);
        assert_eq!(found("[features]\nfast = [\"runtime/test-medium\"]\n"), 1);
        assert_eq!(found("[dependencies]\npg = { workspace = true, features = [\"planted\"] }\n"), 1);
    }

    #[test]
    fn counts_the_lines_of_a_function() {
        let text =
            "//! x\nfn a() {\n    1;\n}\n\nimpl X {\n    pub fn b(&self) -> u8 {\n        2\n    }\n}\n";
        assert_eq!(functions(text), vec![("a".to_owned(), 2, 3), ("b".to_owned(), 7, 3)]);
    }
}
