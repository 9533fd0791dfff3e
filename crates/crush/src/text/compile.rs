//! From a text to a map, as `crushtool -c` makes it.

use std::collections::{BTreeMap, BTreeSet};

use super::words::Words;
use super::{TextError, TextProblem};
use crate::validate::MAX_RULES;
use crate::{
    Alg, Bucket, ChooseArg, ChooseArgMap, CrushMap, RULE_ERASURE, RULE_REPLICATED, Rule, Step, Tunables,
};

/// 16.16 limits of written weights. Source: CRUSH_MAX_DEVICE_WEIGHT, CRUSH_MAX_BUCKET_WEIGHT in src/crush/crush.h.
const MAX_DEVICE_WEIGHT: u32 = 100 << 16;
const MAX_BUCKET_WEIGHT: u32 = 65535 << 16;

impl CrushMap {
    /// Reads the text form. Unset tunables are the legacy ones, so that a text means the same for ever.
    pub fn compile(text: &str) -> Result<Self, TextError> {
        let mut words = Words::new(text);
        let map = CrushMap { tunables: Tunables::LEGACY, ..CrushMap::default() };
        let mut c = Compiler { map, ..Compiler::default() };
        while c.header_line(&mut words)? {}
        let entries = read_entries(&mut words)?;
        c.used_ids = entries.iter().flat_map(Entry::ids).collect();
        let mut seen_rule = false;
        for entry in in_order(entries)? {
            match entry {
                Entry::Bucket(_) if seen_rule => return Err(TextProblem::BucketAfterRule.at(entry.line())),
                Entry::Bucket(bucket) => c.bucket(&bucket)?,
                Entry::Rule(mut rule) => {
                    if !std::mem::replace(&mut seen_rule, true) {
                        let ids = std::mem::take(&mut c.class_buckets);
                        let line = rule.line();
                        c.map.populate_classes(&ids).map_err(|e| TextProblem::from(e).at(line))?;
                    }
                    c.rule(&mut rule)?;
                }
            }
        }
        while words.accept("choose_args") {
            c.choose_args(&mut words)?;
        }
        if words.peek().is_some() {
            return Err(words.wrong("a bucket, rule or choose_args"));
        }
        c.map.finalize();
        c.map.validate().map_err(|e| TextProblem::from(e).at(0))?;
        Ok(c.map)
    }
}

/// A bucket as written.
struct BucketText<'a> {
    line: usize,
    type_name: &'a str,
    name: &'a str,
    id: Option<i32>,
    class_ids: Vec<(&'a str, i32)>,
    alg: &'a str,
    hash: u8,
    items: Vec<ItemText<'a>>,
}

struct ItemText<'a> {
    line: usize,
    name: &'a str,
    weight: Option<u32>,
    position: Option<i64>,
}

enum Entry<'a> {
    Bucket(BucketText<'a>),
    /// A rule's words, from its name on; rules are read once all buckets are known.
    Rule(Words<'a>),
}

impl Entry<'_> {
    fn line(&self) -> usize {
        match self {
            Self::Bucket(b) => b.line,
            Self::Rule(words) => words.line(),
        }
    }

    fn ids(&self) -> Vec<i32> {
        match self {
            Self::Bucket(b) => b.id.into_iter().chain(b.class_ids.iter().map(|(_, id)| *id)).collect(),
            Self::Rule(_) => Vec::new(),
        }
    }
}

/// Reads buckets, and skips over rules, up to the weight sets.
fn read_entries<'a>(words: &mut Words<'a>) -> Result<Vec<Entry<'a>>, TextError> {
    let mut entries = Vec::new();
    while let Some(word) = words.peek().filter(|w| *w != "choose_args") {
        if word == "rule" {
            words.take();
            entries.push(Entry::Rule(words.clone()));
            while words.take().ok_or_else(|| words.wrong("}"))? != "}" {}
        } else {
            entries.push(Entry::Bucket(read_bucket(words)?));
        }
    }
    Ok(entries)
}

fn read_bucket<'a>(words: &mut Words<'a>) -> Result<BucketText<'a>, TextError> {
    let line = words.line();
    let (type_name, name) = (words.name()?, words.name()?);
    words.expect("{")?;
    let mut b = BucketText {
        line,
        type_name,
        name,
        id: None,
        class_ids: Vec::new(),
        alg: "",
        hash: 0,
        items: vec![],
    };
    while words.accept("id") {
        let id: i32 = words.number("a negative id")?;
        if id >= 0 {
            return Err(TextProblem::OutOfRange(id.to_string()).at(words.line()));
        }
        if words.accept("class") {
            b.class_ids.push((words.name()?, id));
        } else {
            b.id = Some(id);
        }
    }
    words.expect("alg")?;
    b.alg = words.name()?;
    while words.accept("hash") {
        b.hash = if words.accept("rjenkins1") { 0 } else { words.number("a hash")? };
    }
    while words.accept("item") {
        let mut item = ItemText { line: words.line(), name: words.name()?, weight: None, position: None };
        if words.accept("weight") {
            item.weight = Some(words.weight()?);
        }
        if words.accept("pos") {
            item.position = Some(words.number("a position")?);
        }
        b.items.push(item);
    }
    words.expect("}")?;
    Ok(b)
}

/// Puts buckets behind those they contain, by Ceph's way of swapping, which decides the ids of classes that no device
/// has. Source: CrushCompiler::adjust_bucket_item_place.
fn in_order(mut entries: Vec<Entry>) -> Result<Vec<Entry>, TextError> {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut names = Vec::new();
    let mut items: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (at, entry) in entries.iter().enumerate() {
        if let Entry::Bucket(b) = entry {
            places.insert(b.name, at);
            names.push((b.name, b.line));
            items.entry(b.name).or_default().extend(b.items.iter().map(|i| i.name));
        }
    }
    let contains = |outer: &str, inner: &str| items.get(outer).is_some_and(|set| set.contains(inner));
    for (i, (first, line)) in names.iter().enumerate() {
        for (second, _) in names.iter().skip(i + 1).filter(|(second, _)| contains(first, second)) {
            if contains(second, first) {
                return Err(TextProblem::Mutual((*first).to_owned(), (*second).to_owned()).at(*line));
            }
            if let (Some(a), Some(b)) = (places.get(first), places.get(second)) {
                entries.swap(*a, *b);
            }
        }
    }
    Ok(entries)
}

#[derive(Default)]
struct Compiler {
    map: CrushMap,
    /// Ids that buckets and shadow buckets name.
    used_ids: BTreeSet<i32>,
    /// Shadow ids that buckets name.
    class_buckets: BTreeMap<i32, BTreeMap<i32, i32>>,
    /// Weights of the buckets so far: what an item without a weight gets.
    weights: BTreeMap<i32, u32>,
    /// Ids by name, as the map's own tables go the other way.
    items: BTreeMap<String, i32>,
    types: BTreeMap<String, i32>,
}

impl Compiler {
    /// A tunable, device or type; false when the next word starts something else.
    fn header_line(&mut self, words: &mut Words) -> Result<bool, TextError> {
        let line = words.line();
        if words.accept("tunable") {
            let name = words.name()?;
            let value = words.number("a value")?;
            set_tunable(&mut self.map.tunables, name, value)
                .ok_or_else(|| TextProblem::UnknownTunable(name.to_owned()).at(line))?;
        } else if words.accept("device") {
            let id: i32 = words.number("a device id")?;
            if !(0..crate::ITEM_UNDEF).contains(&id) {
                return Err(TextProblem::OutOfRange(id.to_string()).at(line));
            }
            let name = words.name()?;
            self.define(name, id, line)?;
            if words.accept("class") {
                let class =
                    self.map.class_id_or_new(words.name()?).map_err(|e| TextProblem::from(e).at(line))?;
                self.map.device_classes.insert(id, class);
            }
        } else if words.accept("type") {
            let id: u16 = words.number("a type id")?;
            let name = words.name()?;
            self.types.insert(name.to_owned(), i32::from(id));
            self.map.type_names.insert(i32::from(id), name.to_owned());
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn define(&mut self, name: &str, id: i32, line: usize) -> Result<(), TextError> {
        if self.items.insert(name.to_owned(), id).is_some() {
            return Err(TextProblem::DefinedTwice(name.to_owned()).at(line));
        }
        self.map.item_names.insert(id, name.to_owned());
        Ok(())
    }

    fn item(&self, name: &str, line: usize) -> Result<i32, TextError> {
        self.items.get(name).copied().ok_or_else(|| TextProblem::NotDefined(name.to_owned()).at(line))
    }

    fn type_id(&self, name: &str, line: usize) -> Result<i32, TextError> {
        self.types.get(name).copied().ok_or_else(|| TextProblem::NotDefined(name.to_owned()).at(line))
    }

    fn bucket(&mut self, b: &BucketText) -> Result<(), TextError> {
        let type_id = self.type_id(b.type_name, b.line)?;
        let alg =
            Alg::from_name(b.alg).ok_or_else(|| TextProblem::UnknownAlg(b.alg.to_owned()).at(b.line))?;
        let mut class_ids = BTreeMap::new();
        for (class, id) in &b.class_ids {
            let class_id = self.map.class_id_or_new(class).map_err(|e| TextProblem::from(e).at(b.line))?;
            if class_ids.insert(class_id, *id).is_some() {
                return Err(TextProblem::DefinedTwice((*class).to_owned()).at(b.line));
            }
        }
        let items = self.bucket_items(b, alg)?;
        let free =
            || (0..).map(CrushMap::bucket_id).find(|id| !self.used_ids.contains(id)).unwrap_or(i32::MIN);
        let id = b.id.unwrap_or_else(free);
        self.used_ids.insert(id);
        if !class_ids.is_empty() {
            self.class_buckets.insert(id, class_ids);
        }
        let fail = |e: crate::EditError| TextProblem::from(e).at(b.line);
        let straw_version = self.map.tunables.straw_calc_version;
        let mut bucket = Bucket::new(alg, id, type_id as u16, &items, straw_version).map_err(fail)?;
        bucket.hash = b.hash;
        self.weights.insert(id, bucket.weight);
        self.map.place_bucket(id, bucket).map_err(fail)?;
        self.define(b.name, id, b.line)
    }

    /// Items in their places: those with a position there, the others in the gaps. Gaps left are device 0, weight 0.
    fn bucket_items(&self, b: &BucketText, alg: Alg) -> Result<Vec<(i32, u32)>, TextError> {
        let mut taken = BTreeSet::new();
        for item in &b.items {
            if let Some(position) = item.position {
                if position < 0 || !taken.insert(position) {
                    return Err(TextProblem::BadPosition(position).at(item.line));
                }
            }
        }
        let mut items = vec![(0, 0); b.items.len()];
        let mut free = (0..).filter(|p| !taken.contains(p));
        let mut uniform = None;
        for item in &b.items {
            let id = self.item(item.name, item.line)?;
            let weight = item.weight.or_else(|| self.weights.get(&id).copied()).unwrap_or(0x10000);
            let limit = if id >= 0 { MAX_DEVICE_WEIGHT } else { MAX_BUCKET_WEIGHT };
            if item.weight.is_some() && weight > limit {
                return Err(TextProblem::BadWeight(crate::weight_to_f32(weight).to_string()).at(item.line));
            }
            if alg == Alg::Uniform && *uniform.get_or_insert(weight) != weight {
                return Err(TextProblem::NotUniform(b.name.to_owned()).at(item.line));
            }
            let position = item.position.or_else(|| free.next()).unwrap_or(-1);
            let slot = usize::try_from(position).ok().and_then(|p| items.get_mut(p));
            *slot.ok_or_else(|| TextProblem::BadPosition(position).at(item.line))? = (id, weight);
        }
        Ok(items)
    }

    fn rule(&mut self, words: &mut Words) -> Result<(), TextError> {
        let line = words.line();
        let name = if words.peek() == Some("{") { None } else { Some(words.name()?) };
        words.expect("{")?;
        if !words.accept("id") && !words.accept("ruleset") {
            return Err(words.wrong("id"));
        }
        let id: u8 = words.number("a rule id")?;
        words.expect("type")?;
        let rule_type = match words.take() {
            Some("replicated") => RULE_REPLICATED,
            Some("erasure") => RULE_ERASURE,
            _ => {
                return Err(
                    TextProblem::Syntax { expected: "replicated or erasure", found: String::new() }.at(line)
                );
            }
        };
        words.expect("min_size")?;
        let min_size = words.number("a size")?;
        words.expect("max_size")?;
        let max_size = words.number("a size")?;
        let mut steps = Vec::new();
        while words.accept("step") {
            steps.push(self.step(words)?);
        }
        if steps.is_empty() || !words.accept("}") {
            return Err(words.wrong("step"));
        }
        let rule = Rule { ruleset: id, rule_type, min_size, max_size, steps };
        self.put_rule(usize::from(id), name, rule).map_err(|p| p.at(line))
    }

    fn put_rule(&mut self, id: usize, name: Option<&str>, rule: Rule) -> Result<(), TextProblem> {
        if let Some(name) = name {
            if self.map.rule_id(name).is_some() {
                return Err(TextProblem::DefinedTwice(name.to_owned()));
            }
        }
        if self.map.rules.len() <= id && id < MAX_RULES {
            self.map.rules.resize(id + 1, None);
        }
        match self.map.rules.get_mut(id) {
            Some(slot) if slot.is_none() => *slot = Some(rule),
            _ => return Err(TextProblem::DefinedTwice(format!("rule {id}"))),
        }
        if let Some(name) = name {
            self.map.rule_names.insert(id as i32, name.to_owned());
        }
        Ok(())
    }

    fn step(&self, words: &mut Words) -> Result<Step, TextError> {
        let line = words.line();
        let set = |words: &mut Words, op| Ok(Step::new(op, words.number("a count")?, 0));
        let word = words.take().unwrap_or("the end");
        match word {
            "take" => self.take(words),
            "emit" => Ok(Step::emit()),
            "noop" => Ok(Step::new(Step::NOOP, 0, 0)),
            "choose" | "chooseleaf" => {
                let op = match (word, words.take()) {
                    ("choose", Some("firstn")) => Step::CHOOSE_FIRSTN,
                    ("choose", Some("indep")) => Step::CHOOSE_INDEP,
                    (_, Some("firstn")) => Step::CHOOSELEAF_FIRSTN,
                    (_, Some("indep")) => Step::CHOOSELEAF_INDEP,
                    _ => return Err(words.wrong("firstn or indep")),
                };
                let n = words.number("a count")?;
                words.expect("type")?;
                let type_id = self.type_id(words.name()?, line)?;
                Ok(Step::new(op, n, type_id))
            }
            "set_choose_tries" => set(words, Step::SET_CHOOSE_TRIES),
            "set_chooseleaf_tries" => set(words, Step::SET_CHOOSELEAF_TRIES),
            "set_choose_local_tries" => set(words, Step::SET_CHOOSE_LOCAL_TRIES),
            "set_choose_local_fallback_tries" => set(words, Step::SET_CHOOSE_LOCAL_FALLBACK_TRIES),
            "set_chooseleaf_vary_r" => set(words, Step::SET_CHOOSELEAF_VARY_R),
            "set_chooseleaf_stable" => set(words, Step::SET_CHOOSELEAF_STABLE),
            other => Err(TextProblem::Syntax { expected: "a step", found: other.to_owned() }.at(line)),
        }
    }

    fn take(&self, words: &mut Words) -> Result<Step, TextError> {
        let line = words.line();
        let name = words.name()?;
        let mut item = self.item(name, line)?;
        if words.accept("class") {
            let class = words.name()?;
            let shadows = self.map.class_buckets.get(&item);
            let shadow = self.map.class_id(class).and_then(|c| shadows?.get(&c).copied());
            let (item_name, class) = (name.to_owned(), class.to_owned());
            item = shadow.ok_or_else(|| TextProblem::NoClass { item: item_name, class }.at(line))?;
        }
        Ok(Step::take(item))
    }

    fn choose_args(&mut self, words: &mut Words) -> Result<(), TextError> {
        let line = words.line();
        let word = words.take().unwrap_or_default();
        let id = word.parse::<u64>().map_err(|_| TextProblem::OutOfRange(word.to_owned()).at(line))?;
        // Ceph reads 64 bits with a ceiling and keeps the lower 32, which turns 2^64 - 1 into -1.
        let id = i64::from(id.min(i64::MAX as u64) as i32);
        words.expect("{")?;
        let mut args = vec![ChooseArg::default(); self.map.buckets.len()];
        while words.accept("{") {
            self.choose_arg(words, &mut args)?;
            words.expect("}")?;
        }
        words.expect("}")?;
        if self.map.choose_args.insert(id, ChooseArgMap { args }).is_some() {
            return Err(TextProblem::DefinedTwice(format!("choose_args {id}")).at(line));
        }
        Ok(())
    }

    fn choose_arg(&self, words: &mut Words, args: &mut [ChooseArg]) -> Result<(), TextError> {
        words.expect("bucket_id")?;
        let line = words.line();
        let bucket: i32 = words.number("a bucket id")?;
        let unknown = || TextProblem::NotDefined(bucket.to_string()).at(line);
        let wanted = self.map.bucket(bucket).ok_or_else(unknown)?.items.len();
        let slot = CrushMap::bucket_index(bucket).and_then(|i| args.get_mut(i)).ok_or_else(unknown)?;
        let check = |got: usize| match got {
            n if n == wanted => Ok(()),
            got => Err(TextProblem::WrongCount { bucket, wanted, got }.at(line)),
        };
        if words.accept("weight_set") {
            words.expect("[")?;
            while words.accept("[") {
                let mut weights = Vec::new();
                while !words.accept("]") {
                    weights.push(words.weight()?);
                }
                check(weights.len())?;
                slot.weight_sets.push(weights);
            }
            words.expect("]")?;
        }
        if words.accept("ids") {
            words.expect("[")?;
            while !words.accept("]") {
                slot.ids.push(words.number("an id")?);
            }
            check(slot.ids.len())?;
        }
        Ok(())
    }
}

/// `None` for a name that no tunable has. Values are cut to their fields as in Ceph.
fn set_tunable(t: &mut Tunables, name: &str, value: i64) -> Option<()> {
    let value = value as u32;
    match name {
        "choose_local_tries" => t.choose_local_tries = value,
        "choose_local_fallback_tries" => t.choose_local_fallback_tries = value,
        "choose_total_tries" => t.choose_total_tries = value,
        "chooseleaf_descend_once" => t.chooseleaf_descend_once = u32::from(value != 0),
        "chooseleaf_vary_r" => t.chooseleaf_vary_r = value as u8,
        "chooseleaf_stable" => t.chooseleaf_stable = value as u8,
        "straw_calc_version" => t.straw_calc_version = value as u8,
        "allowed_bucket_algs" => t.allowed_bucket_algs = value,
        _ => return None,
    }
    Some(())
}
