//! Looks for delimiters in text that arrives a character at a time.

/// White space before a delimiter belongs to it up to this many bytes; so much of the text is held back at most, beside what
/// could become a delimiter.
pub const BLANK_BYTES_MAX: usize = 64;

/// Holds back the longest suffix that can still become a delimiter, with the blanks before it, and lets the rest go.
#[derive(Debug)]
pub struct Scanner<'a> {
    delimiters: &'a [&'static str],
    /// Whether white space belongs to a delimiter that follows it.
    is_blank: fn(char) -> bool,
    held: String,
}

impl<'a> Scanner<'a> {
    /// No delimiter may be the beginning of another: the shorter one would always win.
    pub fn new(delimiters: &'a [&'static str], is_blank: fn(char) -> bool) -> Self {
        debug_assert!(
            delimiters
                .iter()
                .all(|one| delimiters.iter().filter(|other| other.starts_with(one)).count() == 1),
            "one of {delimiters:?} begins another"
        );
        Self { delimiters, is_blank, held: String::new() }
    }

    /// Takes the next character. Appends to `released` what is certainly text, and says which delimiter is complete; that
    /// one and the blanks before it are held until [`Scanner::take`].
    pub fn push(&mut self, character: char, released: &mut String) -> Option<usize> {
        self.held.push(character);
        let complete = self.delimiters.iter().position(|delimiter| self.held.ends_with(delimiter));
        let kept = complete.map_or_else(|| self.undecided_bytes(), |found| self.delimiters[found].len());
        let start = self.blanks_start(self.held.len() - kept);
        released.extend(self.held.drain(..start));
        complete
    }

    /// What is held, which is then held no longer.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Length of the longest suffix that begins a delimiter.
    fn undecided_bytes(&self) -> usize {
        let held = self.held.as_bytes();
        let suffix = |delimiter: &&str| {
            let longest = held.len().min(delimiter.len() - 1);
            (1..=longest).rev().find(|&bytes| held.ends_with(&delimiter.as_bytes()[..bytes]))
        };
        self.delimiters.iter().filter_map(suffix).max().unwrap_or(0)
    }

    /// Where the blanks begin that stand before `end`.
    fn blanks_start(&self, end: usize) -> usize {
        let blanks = self.held[..end].chars().rev().take_while(|&one| (self.is_blank)(one));
        let mut bytes = 0;
        for blank in blanks {
            if bytes + blank.len_utf8() > BLANK_BYTES_MAX {
                break;
            }
            bytes += blank.len_utf8();
        }
        end - bytes
    }
}

/// Every white space that a tokenizer's text has between marks.
pub fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\n' | '\r' | '\t')
}

pub fn is_line_end(character: char) -> bool {
    matches!(character, '\n' | '\r')
}

/// Nothing belongs to a delimiter but itself.
pub fn never(_: char) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn released(scanner: &mut Scanner, text: &str) -> (String, Option<usize>) {
        let mut out = String::new();
        let mut found = None;
        for character in text.chars() {
            found = scanner.push(character, &mut out);
        }
        (out, found)
    }

    #[test]
    fn what_can_become_a_delimiter_is_held_and_nothing_else() {
        let mut scanner = Scanner::new(&["<tool>", "<｜x｜>"], is_space);
        assert_eq!(released(&mut scanner, "a < b <t"), ("a < b".to_owned(), None));
        assert_eq!(released(&mut scanner, "o<"), (" <to".to_owned(), None));
        assert_eq!(released(&mut scanner, "｜x"), (String::new(), None));
        assert_eq!(released(&mut scanner, "｜>"), (String::new(), Some(1)));
        assert_eq!(scanner.take(), "<｜x｜>");
    }

    #[test]
    fn a_long_run_of_blanks_flows() {
        let mut scanner = Scanner::new(&["<tool>"], is_space);
        let blanks = "\n".repeat(100);
        let (out, _) = released(&mut scanner, &blanks);
        assert_eq!(out.len(), 100 - BLANK_BYTES_MAX);
        assert_eq!(scanner.take().len(), BLANK_BYTES_MAX);
    }
}
