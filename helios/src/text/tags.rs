//! Finds the tags of a Jinja source where the engine's lexer finds them, so that a template can be edited as text.
//!
//! Strings, brackets, comments and raw blocks are read as the lexer reads them; what is inside a tag is only split into
//! names. An unfinished tag ends the list, and compiling the template reports it.

use std::ops::Range;

/// `{% ... %}` or `{{ ... }}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag<'a> {
    pub is_block: bool,
    pub start: usize,
    pub end: usize,
    /// Between the delimiters, without whitespace control.
    pub text: &'a str,
    /// Whitespace control at the tag's start and end: `-`, `+` or nothing.
    pub left: &'a str,
    pub right: &'a str,
}

impl<'a> Tag<'a> {
    fn new(source: &'a str, start: usize, end: usize) -> Self {
        let is_control = |text: &&str| matches!(*text, "-" | "+");
        let inner = &source[start + 2..end - 2];
        let left = inner.get(..1).filter(is_control).unwrap_or_default();
        let inner = &inner[left.len()..];
        let right = inner.len().checked_sub(1).and_then(|last| inner.get(last..)).filter(is_control);
        let right = right.unwrap_or_default();
        let text = inner[..inner.len() - right.len()].trim();
        Self { is_block: source[start..].starts_with("{%"), start, end, text, left, right }
    }

    /// A block's first word, and what follows it.
    pub fn statement(&self) -> (&'a str, &'a str) {
        let length = self.text.find(|character: char| !is_name(character)).unwrap_or(self.text.len());
        let (word, rest) = self.text.split_at(length);
        (word, rest.trim())
    }

    /// The names of an assignment, and what is assigned to them; none if this is another tag or a `set` block.
    pub fn assignment(&self) -> Option<(&'a str, &'a str)> {
        let (word, rest) = self.statement();
        if !self.is_block || word != "set" {
            return None;
        }
        let equals = outside_strings(rest).find(|&(_, byte)| byte == b'=')?.0;
        Some((rest[..equals].trim(), rest[equals + 1..].trim()))
    }
}

/// Every tag outside comments and raw blocks, in order.
pub(super) fn tags(source: &str) -> Vec<Tag<'_>> {
    let mut tags = Vec::new();
    let mut at = 0;
    while let Some(found) = source[at..].find('{') {
        let start = at + found;
        let next = match source.as_bytes().get(start + 1) {
            Some(b'#') => source[start + 2..].find("#}").map(|length| start + 2 + length + 2),
            Some(b'%') => end_of_tag(source, start + 2, "%}"),
            Some(b'{') => end_of_tag(source, start + 2, "}}"),
            _ => {
                at = start + 1;
                continue;
            }
        };
        let Some(mut end) = next else { break };
        if !source[start..].starts_with("{#") {
            let tag = Tag::new(source, start, end);
            if tag.is_block && tag.text == "raw" {
                let Some(end_of_raw) = end_of_raw(source, end) else { break };
                end = end_of_raw;
            } else {
                tags.push(tag);
            }
        }
        at = end;
    }
    tags
}

/// The source with stretches of it replaced; they are in order and do not overlap.
pub(super) fn edited(source: &str, edits: Vec<(Range<usize>, String)>) -> String {
    let mut result = String::with_capacity(source.len() + edits.len() * 64);
    let mut copied = 0;
    for (range, text) in edits {
        result.push_str(&source[copied..range.start]);
        result.push_str(&text);
        copied = range.end;
    }
    result.push_str(&source[copied..]);
    result
}

/// The variables and dotted paths that an expression names, and some words that are none.
pub(super) fn names(text: &str) -> Vec<&str> {
    let is_path = |byte: u8| is_name(char::from(byte)) || byte == b'.';
    let mut names = Vec::new();
    let mut start = None;
    for (at, byte) in outside_strings(text).chain([(text.len(), b' ')]) {
        match start {
            None if is_path(byte) => start = Some(at),
            Some(from) if !is_path(byte) => {
                names.push(&text[from..at]);
                start = None;
            }
            _ => {}
        }
    }
    names
}

/// The variables that an expression indexes by the variable `index` alone.
pub(super) fn indexed_by<'a>(text: &'a str, index: &str) -> Vec<&'a str> {
    let bracketed = |rest: &str| {
        let rest = rest.trim_start().strip_prefix(index);
        rest.is_some_and(|rest| rest.trim_start().starts_with(']'))
    };
    outside_strings(text)
        .filter(|&(at, byte)| byte == b'[' && bracketed(&text[at + 1..]))
        .map(|(at, _)| {
            &text[text[..at].rfind(|character| !is_name(character)).map_or(0, |last| last + 1)..at]
        })
        .filter(|name| !name.is_empty())
        .collect()
}

fn is_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

/// The bytes of an expression that are not part of a string, and where they are.
fn outside_strings(text: &str) -> impl Iterator<Item = (usize, u8)> {
    let mut quote = None;
    let mut escaped = false;
    text.bytes().enumerate().filter(move |&(_, byte)| match quote {
        Some(open) => {
            if escaped {
                escaped = false;
            } else if byte == b'\\' {
                escaped = true;
            } else if byte == open {
                quote = None;
            }
            false
        }
        None if matches!(byte, b'\'' | b'"') => {
            quote = Some(byte);
            false
        }
        None => true,
    })
}

/// Where the tag ends whose inside starts at `from`.
fn end_of_tag(source: &str, from: usize, delimiter: &str) -> Option<usize> {
    let inside = &source[from..];
    let mut depth = 0;
    for (at, byte) in outside_strings(inside) {
        if depth == 0 && inside[at..].starts_with(delimiter) {
            return Some(from + at + delimiter.len());
        }
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Where the raw block ends whose content starts at `from`.
fn end_of_raw(source: &str, from: usize) -> Option<usize> {
    let content = &source[from..];
    content.match_indices("{%").find_map(|(at, _)| {
        let length = content[at..].find("%}")? + 2;
        (Tag::new(content, at, at + length).text == "endraw").then_some(from + at + length)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_found_where_the_lexer_finds_them() {
        let source = "a {{- {'b': {'}}': 1}} -}} {# {% no #} {% if x == '%}' +%}\
             {% raw %}{% no %}{{ no }}{%- endraw %} { {%- set y = [1] %} {{ \"\\\"}}\" }}";
        let texts: Vec<&str> = tags(source).iter().map(|tag| tag.text).collect();
        assert_eq!(texts, ["{'b': {'}}': 1}}", "if x == '%}'", "set y = [1]", "\"\\\"}}\""]);
        let controls: Vec<(&str, &str)> = tags(source).iter().map(|tag| (tag.left, tag.right)).collect();
        assert_eq!(controls, [("-", "-"), ("", "+"), ("-", ""), ("", "")]);
        assert_eq!(tags("{% if 'a %}").len(), 0);
        assert_eq!(tags("{%-%}{{-}}{{}}").len(), 3);
    }

    #[test]
    fn statements_and_names_are_read_outside_strings() {
        let of = |source| tags(source)[0];
        assert_eq!(of("{%- for a, b in c -%}").statement(), ("for", "a, b in c"));
        assert_eq!(of("{% set ns.a = b == 'c=d' %}").assignment(), Some(("ns.a", "b == 'c=d'")));
        assert_eq!(of("{% set a %}").assignment(), None);
        assert_eq!(of("{{ a == b }}").assignment(), None);
        assert_eq!(names("not (ns.a or b['c'].d) ~ \"e\""), ["not", "ns.a", "or", "b", ".d"]);
        assert_eq!(indexed_by("a[i] + b.c[ i ] + d[i + 1] + '[i]' + e[ij]", "i"), ["a", "c"]);
    }
}
