//! Words of the text form, with their lines.

use super::{TextError, TextProblem};

/// The words left to read. Comments run from `#` to the end of the line; brackets are words of their own.
#[derive(Debug, Clone)]
pub(super) struct Words<'a> {
    words: Vec<(usize, &'a str)>,
    next: usize,
}

impl<'a> Words<'a> {
    pub fn new(text: &'a str) -> Self {
        let mut words = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default();
            for chunk in line.split_whitespace() {
                let mut rest = chunk;
                while let Some(at) = rest.find(['{', '}', '[', ']']) {
                    let (before, from) = rest.split_at(at);
                    let (bracket, after) = from.split_at(1);
                    if !before.is_empty() {
                        words.push((number, before));
                    }
                    words.push((number, bracket));
                    rest = after;
                }
                if !rest.is_empty() {
                    words.push((number, rest));
                }
            }
        }
        Self { words, next: 0 }
    }

    /// Line of the next word, or of the last one at the end.
    pub fn line(&self) -> usize {
        self.words.get(self.next).or(self.words.last()).map_or(0, |(line, _)| *line)
    }

    pub fn peek(&self) -> Option<&'a str> {
        self.words.get(self.next).map(|(_, w)| *w)
    }

    pub fn take(&mut self) -> Option<&'a str> {
        let word = self.peek()?;
        self.next += 1;
        Some(word)
    }

    /// Takes the next word if it is `word`.
    pub fn accept(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(word);
        self.next += usize::from(found);
        found
    }

    pub fn expect(&mut self, word: &'static str) -> Result<(), TextError> {
        if self.accept(word) { Ok(()) } else { Err(self.wrong(word)) }
    }

    pub fn wrong(&self, expected: &'static str) -> TextError {
        let found = self.peek().unwrap_or("the end").to_owned();
        TextProblem::Syntax { expected, found }.at(self.line())
    }

    /// A name: letters, digits, `-`, `_`, `.`.
    pub fn name(&mut self) -> Result<&'a str, TextError> {
        match self.peek() {
            Some(word) if crate::is_valid_name(word) => {
                self.next += 1;
                Ok(word)
            }
            _ => Err(self.wrong("a name")),
        }
    }

    /// An integer that fits `T`.
    pub fn number<T: TryFrom<i64>>(&mut self, expected: &'static str) -> Result<T, TextError> {
        let word = self.peek().ok_or_else(|| self.wrong(expected))?;
        let digits = word.strip_prefix('-').unwrap_or(word);
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(self.wrong(expected));
        }
        let number = word.parse::<i64>().ok().and_then(|n| T::try_from(n).ok());
        let number = number.ok_or_else(|| TextProblem::OutOfRange(word.to_owned()).at(self.line()))?;
        self.next += 1;
        Ok(number)
    }

    /// A weight written in decimal, as 16.16. Ceph computes in single precision and cuts off.
    pub fn weight(&mut self) -> Result<u32, TextError> {
        let word = self.peek().ok_or_else(|| self.wrong("a weight"))?;
        let starts_well = word.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.'));
        let number = word.parse::<f32>().ok().filter(|n| n.is_finite() && starts_well);
        let scaled = f64::from(number.ok_or_else(|| self.wrong("a weight"))? * 65536.0);
        if !(0.0..=f64::from(u32::MAX)).contains(&scaled) {
            return Err(TextProblem::BadWeight(word.to_owned()).at(self.line()));
        }
        self.next += 1;
        Ok(scaled as u32)
    }
}
