//! A cursor over capability text, for grammars with ordered alternatives.

/// What counts as white space between words, by grammar.
pub(super) const SPACE_PLAIN: &[char] = &[' ', '\n', '\t'];
pub(super) const SPACE_ASCII: &[char] = &[' ', '\n', '\t', '\r', '\x0b', '\x0c'];

#[derive(Debug, Clone, Copy)]
pub(super) struct Scan<'a> {
    rest: &'a str,
    space: &'static [char],
}

impl<'a> Scan<'a> {
    pub(super) fn new(text: &'a str, space: &'static [char]) -> Self {
        Self { rest: text, space }
    }

    pub(super) fn rest(&self) -> &'a str {
        self.rest
    }

    /// Runs `body`; when it fails, nothing was consumed.
    pub(super) fn attempt<T>(&mut self, body: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let before = self.rest;
        let out = body(self);
        if out.is_none() {
            self.rest = before;
        }
        out
    }

    /// Consumes exactly `text`.
    pub(super) fn lit(&mut self, text: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(text)?;
        Some(())
    }

    /// Consumes one or more spaces.
    pub(super) fn spaces(&mut self) -> Option<()> {
        let trimmed = self.rest.trim_start_matches(self.space);
        let some = trimmed.len() < self.rest.len();
        self.rest = trimmed;
        some.then_some(())
    }

    /// Consumes any of `chars`, as many as there are.
    pub(super) fn skip(&mut self, chars: &[char]) {
        self.rest = self.rest.trim_start_matches(chars);
    }

    /// Spaces, then `word`.
    pub(super) fn word(&mut self, word: &str) -> Option<()> {
        self.attempt(|s| {
            s.spaces()?;
            s.lit(word)
        })
    }

    /// `=` or spaces: both separate a setting's name from its value.
    pub(super) fn equals_or_spaces(&mut self) -> Option<()> {
        self.lit("=").or_else(|| self.spaces())
    }

    /// One or more characters that satisfy `keep`.
    pub(super) fn take(&mut self, keep: impl Fn(char) -> bool) -> Option<String> {
        let end = self.rest.find(|c| !keep(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest;
        (!taken.is_empty()).then(|| taken.to_owned())
    }

    /// A quoted string, or a word of letters, digits and `_./-`.
    pub(super) fn string(&mut self) -> Option<String> {
        self.attempt(|s| s.quoted().filter(|t| !t.is_empty())).or_else(|| self.take(is_word))
    }

    /// As `string`, but the quoted form may be empty.
    pub(super) fn string_or_empty(&mut self) -> Option<String> {
        self.attempt(Self::quoted).or_else(|| self.take(is_word))
    }

    fn quoted(&mut self) -> Option<String> {
        let quote = self.rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let (text, rest) = self.rest.strip_prefix(quote)?.split_once(quote)?;
        self.rest = rest;
        Some(text.to_owned())
    }

    /// ` network CIDR` behind a grant.
    pub(super) fn network(&mut self) -> Option<super::rule::Network> {
        self.attempt(|s| {
            s.word("network")?;
            s.spaces()?;
            s.take(|c| c.is_ascii_hexdigit() || "/.:][".contains(c))
        })
        .map(|text| super::rule::Network::new(&text))
    }

    /// `*` or `all`, else any of `r`, `w`, `x` in this order, at least one: the bits given for each.
    pub(super) fn rwx(&mut self, any: u8, bits: [u8; 3]) -> Option<u8> {
        if self.lit("*").or_else(|| self.lit("all")).is_some() {
            return Some(any);
        }
        let mut allow = 0;
        for (letter, bit) in ["r", "w", "x"].into_iter().zip(bits) {
            if self.lit(letter).is_some() {
                allow |= bit;
            }
        }
        (allow != 0).then_some(allow)
    }

    /// Grants separated by `;` or `,` with `pad` around them. Gives what was parsed; the caller looks at
    /// `rest`.
    pub(super) fn grants<T>(
        &mut self,
        pad: &[char],
        mut grant: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let mut out = vec![self.attempt(&mut grant)?];
        while let Some(next) = self.attempt(|s| {
            s.skip(pad);
            s.lit(";").or_else(|| s.lit(","))?;
            s.skip(pad);
            grant(s)
        }) {
            out.push(next);
        }
        Some(out)
    }
}

/// Characters of unquoted words.
pub(super) fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_./-".contains(c)
}
