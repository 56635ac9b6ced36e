//! Marks: where in a rendering completed messages end.
//!
//! A template is annotated as text, before it is compiled. At the start of each iteration of each loop, and behind each loop,
//! it gets a call that notes how much has been written; whether a loop goes over messages is seen when it runs, by
//! what its variable holds. So a mark stands behind the text before the first message and behind each message, however a
//! template names, slices, filters or rebuilds its messages. Another call stands where the open header of the answer may
//! begin, and nothing behind the last such place is a mark.
//!
//! An annotation writes nothing, and the tag that it joins keeps its whitespace control, so a rendering has the same
//! bytes with and without. Output that is captured (macros, `set` blocks) has no position yet, and is not annotated. A
//! template that is not understood has no marks; a mark that is not a message's end is possible, and harmless.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::value::{Object, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};

use super::tags::{Tag, edited, indexed_by, names, tags};

/// The variable that annotated templates call.
pub(super) const RECORDER: &str = "helios_marks_recorder";
const GENERATION: &str = "add_generation_prompt";
/// The call where the open header of the answer may begin.
const HEADER: &str = "header()";

/// The template with calls to [`RECORDER`], or as it was if its blocks do not pair up.
pub(super) fn annotated(source: &str) -> String {
    let tags = tags(source);
    match Annotator::new(&tags).insertions(&tags) {
        Some(insertions) => edited(source, insertions),
        None => source.to_owned(),
    }
}

/// What a block means to the tags within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    /// A loop, and its number.
    Loop(usize),
    /// A condition; whether it asks for the generation prompt, and for the start of a loop.
    Condition { header: bool, first: bool },
    /// Its output goes to a variable.
    Captured,
}

struct Annotator<'a> {
    /// The generation prompt, and variables that were set from it.
    header_names: BTreeSet<&'a str>,
    blocks: Vec<Block>,
    loops: usize,
}

impl<'a> Annotator<'a> {
    fn new(tags: &[Tag<'a>]) -> Self {
        let mut header_names = BTreeSet::from([GENERATION]);
        loop {
            let known = header_names.len();
            for (name, value) in tags.iter().filter_map(Tag::assignment) {
                // A namespace has the prompt in one of its fields at most.
                if mentions(value, &header_names) && !value.starts_with("namespace") {
                    header_names.insert(name);
                }
            }
            if header_names.len() == known {
                return Self { header_names, blocks: Vec::new(), loops: 0 };
            }
        }
    }

    /// Where to insert what; none if blocks do not pair up.
    fn insertions(mut self, tags: &[Tag<'a>]) -> Option<Vec<(Range<usize>, String)>> {
        let mut insertions = Vec::new();
        for tag in tags {
            let captured = self.blocks.contains(&Block::Captured);
            let insertion = if !tag.is_block {
                self.header(tag).map(|call| before(tag, &call))
            } else if tag.text.starts_with("end") {
                self.end_of_block(tag)?.map(|call| behind(tag, &call))
            } else {
                self.block(tag, tags).map(|call| behind(tag, &call))
            };
            insertions.extend(insertion.filter(|_| !captured));
        }
        self.blocks.is_empty().then_some(insertions)
    }

    /// The call that belongs behind a block's tag, if one does.
    fn block(&mut self, tag: &Tag<'a>, tags: &[Tag<'a>]) -> Option<String> {
        let (word, rest) = tag.statement();
        match word {
            "for" if rest.ends_with(" recursive") => {
                self.blocks.push(Block::Captured);
                None
            }
            "for" => {
                self.loops += 1;
                self.blocks.push(Block::Loop(self.loops));
                message_call(self.loops, rest, tags)
            }
            "if" => {
                let (header, first) = (mentions(rest, &self.header_names), asks_for_first(rest));
                self.blocks.push(Block::Condition { header, first });
                header.then(|| HEADER.to_owned())
            }
            "elif" | "else" => {
                let Block::Condition { header, first } = self.blocks.last_mut()? else { return None };
                *header |= mentions(rest, &self.header_names);
                *first |= asks_for_first(rest);
                header.then(|| HEADER.to_owned())
            }
            "set" if tag.assignment().is_some() => None,
            "set" | "macro" | "call" | "filter" | "block" => {
                self.blocks.push(Block::Captured);
                None
            }
            _ => None,
        }
    }

    /// The call that belongs behind the end of a block, if one does; no outer value if no such block is open.
    fn end_of_block(&mut self, tag: &Tag<'a>) -> Option<Option<String>> {
        let paired = match tag.statement().0 {
            "endfor" | "endif" | "endset" | "endmacro" | "endcall" | "endfilter" | "endblock" => {
                self.blocks.pop()?
            }
            _ => return Some(None),
        };
        Some(match paired {
            Block::Loop(number) => Some(format!("end({number})")),
            Block::Condition { first: true, .. } => {
                let innermost = self.blocks.iter().rev().find_map(|block| match block {
                    Block::Loop(number) => Some(number),
                    _ => None,
                });
                innermost.map(|number| format!("first({number})"))
            }
            Block::Condition { .. } | Block::Captured => None,
        })
    }

    fn header(&self, tag: &Tag<'_>) -> Option<String> {
        mentions(tag.text, &self.header_names).then(|| HEADER.to_owned())
    }
}

/// Text that only the first message has before it, such as a default system message.
fn asks_for_first(condition: &str) -> bool {
    names(condition).iter().any(|name| matches!(*name, "loop.first" | "loop.index0" | "loop.index"))
}

fn mentions(text: &str, wanted: &BTreeSet<&str>) -> bool {
    names(text).into_iter().any(|name| wanted.contains(name))
}

/// `message(number, [loop variables], [lists that a loop variable is an index of])`.
fn message_call(number: usize, clause: &str, tags: &[Tag<'_>]) -> Option<String> {
    let (variables, _) = clause.split_once(" in ")?;
    let variables = variables.trim().trim_matches(['(', ')']);
    let lists: BTreeSet<&str> = tags.iter().flat_map(|tag| indexed_by(tag.text, variables)).collect();
    let lists: Vec<&str> = lists.into_iter().collect();
    Some(format!("message({number}, [{variables}], [{}])", lists.join(", ")))
}

/// Behind a block's tag; the call's tag takes over how that one ends.
fn behind(tag: &Tag<'_>, call: &str) -> (Range<usize>, String) {
    let at = tag.end - 2 - tag.right.len();
    (at..at, format!(" %}}{{% do {RECORDER}.{call} "))
}

/// Before an expression; the call's tag treats the whitespace before it as the expression does.
fn before(tag: &Tag<'_>, call: &str) -> (Range<usize>, String) {
    let control = if tag.left == "-" { "-" } else { "+" };
    (tag.start..tag.start, format!("{{%{control} do {RECORDER}.{call} %}}"))
}

/// Takes one rendering's notes.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    written_bytes: AtomicUsize,
    notes: Mutex<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    /// Loops over messages that are running, innermost last.
    open: Vec<OpenLoop>,
    marks: Vec<usize>,
    /// The last place where the answer's header may begin.
    header: Option<usize>,
}

#[derive(Debug)]
struct OpenLoop {
    number: usize,
    marks: Vec<usize>,
}

impl Recorder {
    /// Notes that the rendering has grown.
    pub fn advance(&self, bytes: usize) {
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The marks of a rendering that is complete: ascending and distinct. `open_header` tells whether one was asked for.
    pub fn marks(&self, open_header: bool) -> Vec<usize> {
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut marks = notes.marks.clone();
        if let Some(header) = notes.header.filter(|_| open_header) {
            marks.retain(|&mark| mark < header);
            marks.push(header);
        }
        marks.sort_unstable();
        marks.dedup();
        marks
    }
}

impl Notes {
    fn message(&mut self, number: usize, position: usize) {
        match self.open.last_mut().filter(|open| open.number == number) {
            Some(open) => open.marks.push(position),
            None => self.open.push(OpenLoop { number, marks: vec![position] }),
        }
    }

    /// Text before the first message is written in the first iteration.
    fn first(&mut self, number: usize, position: usize) {
        if let Some(open) = self.open.last_mut().filter(|open| open.number == number)
            && let [start] = open.marks[..]
            && start < position
        {
            open.marks.push(position);
        }
    }

    fn end(&mut self, number: usize, position: usize) {
        let Some(mut open) = self.open.pop_if(|open| open.number == number) else { return };
        // A loop that only looks at messages may stand anywhere.
        if open.marks[0] < position {
            open.marks.push(position);
            self.marks.append(&mut open.marks);
        }
    }
}

impl Object for Recorder {
    fn call_method(
        self: &Arc<Self>,
        _: &mut State<'_, '_>,
        method: &str,
        arguments: &[Value],
    ) -> Result<Value, Error> {
        let position = self.written_bytes.load(Ordering::Relaxed);
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        match method {
            "message" => {
                let (number, variables, lists): (usize, Vec<Value>, Vec<Value>) = from_args(arguments)?;
                if variables.iter().any(|variable| is_message(variable) || is_index(variable, &lists)) {
                    notes.message(number, position);
                }
            }
            "first" => notes.first(from_args::<(usize,)>(arguments)?.0, position),
            "end" => notes.end(from_args::<(usize,)>(arguments)?.0, position),
            "header" => notes.header = Some(position),
            _ => return Err(ErrorKind::UnknownMethod.into()),
        }
        Ok(Value::from(()))
    }
}

fn is_message(value: &Value) -> bool {
    value.kind() == ValueKind::Map && value.get_attr("role").is_ok_and(|role| !role.is_undefined())
}

fn is_index(value: &Value, lists: &[Value]) -> bool {
    value.is_integer() && lists.iter().any(|list| list.get_item(value).is_ok_and(|item| is_message(&item)))
}

#[cfg(test)]
mod tests {
    use minijinja::context;
    use proptest::prelude::*;
    use serde_json::{Map, json};

    use super::super::template::{ChatTemplate, TemplateInput, python_environment};
    use super::super::values::value_of;
    use super::*;

    /// Fragments of templates, with every whitespace control; `?` stands for one.
    fn source() -> impl Strategy<Value = String> {
        let leaf = prop::sample::select(vec![
            "",
            " ",
            "\n",
            " \n",
            "\n  ",
            "a",
            "\n b ",
            "\t",
            "{{? m.content ?}}",
            "{#? c ?#}",
            "{{? 'h' if add_generation_prompt ?}}",
            "{%? set g = add_generation_prompt ?%}",
            "{{? g ?}}",
            "{%? raw ?%} {{ {% endif %}\n{%? endraw ?%}",
            "{%? for m in messages ?%}{%? continue ?%}{%? endfor ?%}",
        ]);
        let tree = leaf.prop_map(str::to_owned).prop_recursive(4, 40, 5, |inner| {
            let blocks = prop::sample::select(vec![
                "{%? for m in messages ?%}@{%? endfor ?%}",
                "{%? for m in messages if m.content ?%}@{%? else ?%}@{%? endfor ?%}",
                "{%? for i in range(2) ?%}@{{ messages[i].content }}{%? endfor ?%}",
                "{%? if loop is defined and loop.first ?%}@{%? endif ?%}",
                "{%? if add_generation_prompt ?%}@{%? elif m ?%}@{%? else ?%}@{%? endif ?%}",
                "{%? if m is defined ?%}@{%? elif not add_generation_prompt ?%}@{%? else ?%}@{%? endif ?%}",
                "{%? set x ?%}@{%? endset ?%}{{? x ?}}",
                "{%? macro f() ?%}@{%? endmacro ?%}{{ f() }}",
                "{%? filter upper ?%}@{%? endfilter ?%}",
                "@@",
            ]);
            (blocks, prop::collection::vec(inner, 3)).prop_map(|(block, inner)| {
                inner.iter().fold(block.to_owned(), |text, inner| text.replacen('@', inner, 1))
            })
        });
        (tree, prop::collection::vec(prop::sample::select(vec!["", "", "-", "+"]), 64)).prop_map(
            |(text, controls)| {
                let mut controls = controls.into_iter().cycle();
                text.chars().fold(String::new(), |mut text, character| {
                    match character {
                        '?' => text.push_str(controls.next().unwrap_or_default()),
                        _ => text.push(character),
                    }
                    text
                })
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn marks_do_not_change_a_byte(source in source(), add_generation_prompt in any::<bool>()) {
            let messages = [json!({"role": "user", "content": "one"}), json!({"role": "tool", "content": ""})];
            let plain = python_environment().render_str(
                &source,
                context! { messages => value_of(&json!(messages)), add_generation_prompt },
            );
            let template = ChatTemplate::parse(&source, "", "", 1 << 20);
            let Ok(plain) = plain else { return Ok(()) };
            let extra = Map::new();
            let input = TemplateInput { messages: &messages, tools: None, add_generation_prompt, extra: &extra };
            let rendering = template.unwrap().render(&input).unwrap();
            prop_assert_eq!(&rendering.text, &plain);
            prop_assert!(rendering.marks.iter().all(|&mark| mark <= plain.len()));
        }
    }

    fn marked(source: &str, add_generation_prompt: bool) -> String {
        let messages = [
            json!({"role": "system", "content": "S"}),
            json!({"role": "user", "content": "U"}),
            json!({"role": "assistant", "content": "A", "calls": ["x", "y"]}),
        ];
        let extra = Map::new();
        let input = TemplateInput { messages: &messages, tools: None, add_generation_prompt, extra: &extra };
        let rendering = ChatTemplate::parse(source, "<s>", "", 1 << 20).unwrap().render(&input).unwrap();
        let mut text = rendering.text;
        for &mark in rendering.marks.iter().rev() {
            text.insert(mark, '|');
        }
        text
    }

    #[test]
    fn marks_follow_messages_however_a_loop_reaches_them() {
        for (source, expected) in [
            ("<s>{% for m in messages %}[{{ m.content }}]{% endfor %}H", "<s>[S]|[U]|[A]|H"),
            ("pre{% for m in messages[1:] %}[{{ m.content }}]{% endfor %}", "pre|[U]|[A]|"),
            (
                "{% for m in messages %}{% if m.role == 'user' %}{% continue %}{% endif %}{{ m.role }}{% endfor %}.",
                "system|assistant|.",
            ),
            ("{% for i in range(3) %}{% set m = messages[i] %}{{ m.content }}{% endfor %}.", "S|U|A|."),
            (
                "{% for m in messages %}{% if loop.first %}default{% endif %}{{ m.content }}{% endfor %}.",
                "default|S|U|A|.",
            ),
            (
                "{% set l = namespace(i=[]) %}{% for m in messages %}{% set l.i = l.i + [{'role': 'x', 'c': m.content}] %}{% endfor %}{% for m in l.i %}{{ m.c }}{% endfor %}.",
                "S|U|A|.",
            ),
            // Not messages; or seen, but not shown.
            (
                "ab{% for m in messages %}{% set x = 1 %}{% endfor %}c{% for t in messages[2].calls %}{{ t }}{% endfor %}.",
                "abcxy.",
            ),
            // Without a position of its own.
            (
                "{% macro all() %}{% for m in messages %}{{ m.content }}{% endfor %}{% endmacro %}{{ all() }}.",
                "SUA.",
            ),
            ("{% set x %}{% for m in messages %}{{ m.content }}{% endfor %}{% endset %}{{ x }}.", "SUA."),
        ] {
            assert_eq!(marked(source, true), expected, "{source}");
        }
    }

    #[test]
    fn nothing_behind_the_open_header_is_marked() {
        let loop_with =
            |header: &str| format!("{{% for m in messages %}}[{{{{ m.content }}}}]{header}{{% endfor %}}.");
        for (source, open, closed) in [
            (
                loop_with("{% if loop.last and add_generation_prompt %}H{% endif %}"),
                "[S]|[U]|[A]|H.",
                "[S]|[U]|[A]|.",
            ),
            (
                loop_with("{{ 'H' if loop.last and add_generation_prompt }}"),
                "[S]|[U]|[A]|H.",
                "[S]|[U]|[A]|.",
            ),
            (
                "{% set g = add_generation_prompt and true %}".to_owned()
                    + &loop_with("{% if not loop.last %}{% elif g %}H{% else %}E{% endif %}"),
                "[S]|[U]|[A]|H.",
                "[S]|[U]|[A]E|.",
            ),
            (
                loop_with("") + "{% if not add_generation_prompt %}E{% else %}H{% endif %}",
                "[S]|[U]|[A]|.|H",
                "[S]|[U]|[A]|.E",
            ),
        ] {
            assert_eq!(
                (marked(&source, true), marked(&source, false)),
                (open.to_owned(), closed.to_owned()),
                "{source}"
            );
        }
    }

    #[test]
    fn a_source_that_does_not_pair_up_is_left_alone() {
        for source in ["{% endfor %}", "{% if x %}", "{% for m in messages %}"] {
            assert_eq!(annotated(source), source);
        }
    }
}
