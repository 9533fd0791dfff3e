//! POSIX extended regular expressions over short strings, matched in time linear in the text.
//!
//! Capabilities may constrain a command's argument by such an expression, and some built-in profiles do. The
//! argument comes from the client, so a matcher that backtracks is out of the question; this one follows all
//! states at once.

/// Bounds the compiled program, and with it the time per character.
const MAX_STEPS: usize = 4096;
/// Ranges in all bracket expressions of the program: each is looked at for each character, and kept.
const MAX_RANGES: usize = 4 * MAX_STEPS;
const MAX_DEPTH: usize = 32;
const MAX_REPEAT: u32 = 255;
/// Repetitions of one atom, as in `a+*`: each is a level of recursion for whatever walks the tree.
const MAX_STACKED: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Char(char),
    Any,
    Set { negated: bool, ranges: Vec<(char, char)> },
    Start,
    End,
    Cat(Vec<Node>),
    Alt(Vec<Node>),
    Repeat { what: Box<Node>, min: u32, max: Option<u32> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Char(char),
    Any,
    Set {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
    Start,
    End,
    /// Both are followed.
    Split(usize, usize),
    Jump(usize),
    Done,
}

/// A compiled expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ere {
    steps: Vec<Step>,
}

impl Ere {
    /// Nothing when the pattern is malformed or too large.
    pub(super) fn new(pattern: &str) -> Option<Self> {
        let mut parser = Parser { rest: pattern, depth: 0 };
        let node = parser.alternatives()?;
        if !parser.rest.is_empty() {
            return None;
        }
        let mut steps = Vec::new();
        compile(&node, &mut steps, &mut 0)?;
        steps.push(Step::Done);
        Some(Self { steps })
    }

    /// Whether the whole of `text` matches.
    pub(super) fn matches_whole(&self, text: &str) -> bool {
        let mut at = StateSet::new(self.steps.len());
        self.follow(0, true, text.is_empty(), &mut at);
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            let mut next = StateSet::new(self.steps.len());
            for state in at.list {
                let hit = match self.steps.get(state) {
                    Some(Step::Char(want)) => *want == c,
                    Some(Step::Any) => true,
                    Some(Step::Set { negated, ranges }) => {
                        ranges.iter().any(|(lo, hi)| (*lo..=*hi).contains(&c)) != *negated
                    }
                    _ => false,
                };
                if hit {
                    self.follow(state + 1, false, chars.as_str().is_empty(), &mut next);
                }
            }
            at = next;
        }
        at.list.iter().any(|s| self.steps.get(*s) == Some(&Step::Done))
    }

    /// Adds `from` and every state reachable from it without consuming a character.
    fn follow(&self, from: usize, at_start: bool, at_end: bool, into: &mut StateSet) {
        let mut todo = vec![from];
        while let Some(state) = todo.pop() {
            if !into.add(state) {
                continue;
            }
            match self.steps.get(state) {
                Some(Step::Split(a, b)) => todo.extend([*a, *b]),
                Some(Step::Jump(to)) => todo.push(*to),
                Some(Step::Start) if at_start => todo.push(state + 1),
                Some(Step::End) if at_end => todo.push(state + 1),
                _ => {}
            }
        }
    }
}

struct StateSet {
    seen: Vec<bool>,
    list: Vec<usize>,
}

impl StateSet {
    fn new(len: usize) -> Self {
        Self { seen: vec![false; len], list: Vec::new() }
    }

    fn add(&mut self, state: usize) -> bool {
        match self.seen.get_mut(state) {
            Some(seen) if !*seen => {
                *seen = true;
                self.list.push(state);
                true
            }
            _ => false,
        }
    }
}

fn compile(node: &Node, out: &mut Vec<Step>, ranges_so_far: &mut usize) -> Option<()> {
    if out.len() > MAX_STEPS {
        return None;
    }
    match node {
        Node::Char(c) => out.push(Step::Char(*c)),
        Node::Any => out.push(Step::Any),
        Node::Set { negated, ranges } => {
            *ranges_so_far += ranges.len();
            if *ranges_so_far > MAX_RANGES {
                return None;
            }
            out.push(Step::Set { negated: *negated, ranges: ranges.clone() });
        }
        Node::Start => out.push(Step::Start),
        Node::End => out.push(Step::End),
        Node::Cat(parts) => parts.iter().try_for_each(|p| compile(p, out, ranges_so_far))?,
        Node::Alt(parts) => compile_alt(parts, out, ranges_so_far)?,
        Node::Repeat { what, min, max } => {
            for _ in 0..*min {
                let before = out.len();
                compile(what, out, ranges_so_far)?;
                if out.len() == before {
                    // Nothing repeated is nothing; nested counts of it would take for ever.
                    break;
                }
            }
            match max {
                None => {
                    let split = push_split(out);
                    compile(what, out, ranges_so_far)?;
                    out.push(Step::Jump(split));
                    patch_split(out, split);
                }
                Some(max) => {
                    for _ in *min..*max {
                        let split = push_split(out);
                        compile(what, out, ranges_so_far)?;
                        patch_split(out, split);
                    }
                }
            }
        }
    }
    Some(())
}

fn compile_alt(parts: &[Node], out: &mut Vec<Step>, ranges_so_far: &mut usize) -> Option<()> {
    let mut jumps = Vec::new();
    let (last, others) = parts.split_last()?;
    for part in others {
        let split = push_split(out);
        compile(part, out, ranges_so_far)?;
        jumps.push(out.len());
        out.push(Step::Jump(0));
        patch_split(out, split);
    }
    compile(last, out, ranges_so_far)?;
    let end = out.len();
    for jump in jumps {
        if let Some(step) = out.get_mut(jump) {
            *step = Step::Jump(end);
        }
    }
    Some(())
}

/// A split whose first way is the next step and whose second `patch_split` fills in.
fn push_split(out: &mut Vec<Step>) -> usize {
    let at = out.len();
    out.push(Step::Split(at + 1, at + 1));
    at
}

fn patch_split(out: &mut [Step], split: usize) {
    let end = out.len();
    if let Some(step) = out.get_mut(split) {
        *step = Step::Split(split + 1, end);
    }
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let c = chars.next()?;
        self.rest = chars.as_str();
        Some(c)
    }

    fn eat(&mut self, c: char) -> bool {
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn alternatives(&mut self) -> Option<Node> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let mut parts = vec![self.sequence()?];
        while self.eat('|') {
            parts.push(self.sequence()?);
        }
        self.depth -= 1;
        Some(Node::Alt(parts))
    }

    fn sequence(&mut self) -> Option<Node> {
        let mut parts = Vec::new();
        while let Some(c) = self.peek() {
            if matches!(c, '|' | ')') {
                break;
            }
            let mut node = self.atom()?;
            let mut stacked = 0;
            while let Some((min, max)) = self.repetition()? {
                stacked += 1;
                if stacked > MAX_STACKED {
                    return None;
                }
                node = Node::Repeat { what: Box::new(node), min, max };
            }
            parts.push(node);
        }
        Some(Node::Cat(parts))
    }

    fn atom(&mut self) -> Option<Node> {
        Some(match self.next()? {
            '.' => Node::Any,
            '^' => Node::Start,
            '$' => Node::End,
            '[' => return self.set(),
            '(' => {
                let inner = self.alternatives()?;
                return self.eat(')').then_some(inner);
            }
            '\\' => Node::Char(self.next()?),
            '*' | '+' | '?' | '{' => return None,
            c => Node::Char(c),
        })
    }

    /// `Some(None)` when no repetition follows, `None` when a malformed one does.
    #[allow(clippy::option_option)] // three outcomes: none, one, malformed
    fn repetition(&mut self) -> Option<Option<(u32, Option<u32>)>> {
        let repeat = match self.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => {
                let (inside, rest) = self.rest.strip_prefix('{')?.split_once('}')?;
                self.rest = rest;
                let (min, max) = match inside.split_once(',') {
                    None => (inside.parse().ok()?, Some(inside.parse().ok()?)),
                    Some((min, "")) => (min.parse().ok()?, None),
                    Some((min, max)) => (min.parse().ok()?, Some(max.parse().ok()?)),
                };
                let sane = min <= MAX_REPEAT && max.is_none_or(|m: u32| min <= m && m <= MAX_REPEAT);
                return sane.then_some(Some((min, max)));
            }
            _ => return Some(None),
        };
        self.next();
        Some(Some(repeat))
    }

    /// A bracket expression, behind its `[`.
    fn set(&mut self) -> Option<Node> {
        let negated = self.eat('^');
        let mut ranges = Vec::new();
        loop {
            if self.rest.starts_with("[:") {
                let (name, rest) = self.rest.strip_prefix("[:")?.split_once(":]")?;
                ranges.extend_from_slice(class_ranges(name)?);
                self.rest = rest;
            } else {
                let lo = self.next()?;
                // A `-` is a range only between two characters.
                let ranged = self.rest.starts_with('-') && !self.rest.starts_with("-]");
                let hi = if ranged {
                    self.next();
                    self.next()?
                } else {
                    lo
                };
                if hi < lo {
                    return None;
                }
                ranges.push((lo, hi));
            }
            if self.eat(']') {
                return Some(Node::Set { negated, ranges });
            }
        }
    }
}

fn class_ranges(name: &str) -> Option<&'static [(char, char)]> {
    Some(match name {
        "alpha" => &[('a', 'z'), ('A', 'Z')],
        "digit" => &[('0', '9')],
        "alnum" => &[('a', 'z'), ('A', 'Z'), ('0', '9')],
        "lower" => &[('a', 'z')],
        "upper" => &[('A', 'Z')],
        "space" => &[(' ', ' '), ('\t', '\r')],
        "blank" => &[(' ', ' '), ('\t', '\t')],
        "punct" => &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')],
        "xdigit" => &[('0', '9'), ('a', 'f'), ('A', 'F')],
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        let re = Ere::new(pattern).expect(pattern);
        for text in yes {
            assert!(re.matches_whole(text), "{pattern} on {text}");
        }
        for text in no {
            assert!(!re.matches_whole(text), "{pattern} on {text}");
        }
    }

    #[test]
    fn expressions_match_whole_strings() {
        check("^[^/]+/[0-9]+$", &["10.0.0.1:0/123", "a/0"], &["a/", "/1", "a/1b", "a/b/1", ""]);
        check("rbd/mirror/[^/]+", &["rbd/mirror/x"], &["rbd/mirror/", "rbd/mirror/x/y", "xrbd/mirror/x"]);
        check("a|bc|", &["a", "bc", ""], &["b", "abc"]);
        check("(ab)*c?", &["", "ababc", "c"], &["aab", "cc"]);
        check("x{2,3}y{2}z{1,}", &["xxyyz", "xxxyyzzz"], &["xyyz", "xxxxyyz", "xxyyyz", "xxyy"]);
        check("[]a-c-]+", &["]", "-b"], &["d", ""]);
        check("[[:digit:]_]+\\.", &["1_2."], &["1_2", "a."]);
        check("(a*)*b", &["aaaab", "b"], &["aaaa"]);
        check("a.c", &["abc", "aäc"], &["ac"]);
    }

    #[test]
    fn malformed_and_oversized_expressions_are_refused() {
        for bad in ["(", "a)", "[a", "*a", "a{2", "a{3,2}", "a{999}", "[b-a]", "\\", "((a{255}){255}){255}"] {
            assert_eq!(Ere::new(bad), None, "{bad}");
        }
        assert_eq!(Ere::new(&"(".repeat(1000)), None);
        assert_eq!(Ere::new(&format!("a{}", "+".repeat(1_000_000))), None);
        check("a+*", &["", "aaa"], &["b"]);
        let many = "ab".repeat(1000);
        assert!(Ere::new(&format!("[{many}]{{2}}")).is_some());
        assert_eq!(Ere::new(&format!("([{many}]{{15}}){{15}}")), None);
    }

    #[test]
    fn what_kills_a_backtracking_matcher_ends_at_once() {
        let re = Ere::new("(a|a)*(a|aa)+b").expect("compiles");
        assert!(!re.matches_whole(&"a".repeat(5000)));
    }
}
