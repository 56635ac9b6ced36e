//! Every fixture, cut in every way, and what no cut and no truncation may change.

mod fixtures;

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::Value;

use self::fixtures::{GROUPS, Group, Means, tools};
use super::event::append;
use super::{CALL_HELD_BYTES_MAX, Delimiters, OutputEvent, OutputParser};
use crate::core::contract::{ReasoningParser, ToolParser};

/// An output's meaning. A call that has no end has no arguments here.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Meaning {
    Text(String),
    Reasoning(String),
    Call(String, Option<String>),
}

/// The merged events of an output that arrives in these pieces.
fn events<'a>(group: &Group, pieces: impl IntoIterator<Item = &'a str>) -> Vec<OutputEvent> {
    let mut drawn = 0_u128;
    let random = move || {
        drawn += 1;
        drawn << 32
    };
    let mut parser = OutputParser::new(group.parsers, group.prompt, Arc::new(tools()), random);
    let mut events = Vec::new();
    for piece in pieces {
        parser.push(piece).into_iter().for_each(|event| append(&mut events, event));
    }
    parser.finish().into_iter().for_each(|event| append(&mut events, event));
    events
}

/// What events mean, after a check that they are in order.
fn meaning(events: &[OutputEvent]) -> Vec<Meaning> {
    let mut meanings = Vec::new();
    let mut calls = 0;
    let mut open: Option<String> = None;
    for event in events {
        match event {
            OutputEvent::Text(text) => meanings.push(Meaning::Text(text.clone())),
            OutputEvent::Reasoning(text) => meanings.push(Meaning::Reasoning(text.clone())),
            OutputEvent::ToolCallStart { index, name, .. } => {
                assert_eq!(*index, calls);
                calls += 1;
                open = Some(String::new());
                meanings.push(Meaning::Call(name.clone(), None));
            }
            OutputEvent::ToolCallArguments { index, delta } => {
                assert_eq!(*index + 1, calls);
                open.as_mut().expect("arguments belong to an open call").push_str(delta);
            }
            OutputEvent::ToolCallEnd { index } => {
                assert_eq!(*index + 1, calls);
                let json = open.take().expect("an open call ends");
                let value: Value = serde_json::from_str(&json).unwrap();
                assert!(value.is_object(), "{json}");
                let Some(Meaning::Call(_, arguments)) = meanings.last_mut() else {
                    panic!("something stands in a call: {events:?}")
                };
                *arguments = Some(json);
            }
        }
    }
    meanings
}

fn wanted(means: &[Means]) -> Vec<Meaning> {
    let owned = |one: &Means| match *one {
        Means::Text(text) => Meaning::Text(text.to_owned()),
        Means::Reasoning(text) => Meaning::Reasoning(text.to_owned()),
        Means::Call(name, json) => Meaning::Call(name.to_owned(), Some(json.to_owned())),
    };
    means.iter().map(owned).collect()
}

fn every_fixture() -> impl Iterator<Item = (&'static Group, &'static str, &'static [Means])> {
    GROUPS.iter().flat_map(|group| group.outputs.iter().map(move |(output, means)| (group, *output, *means)))
}

fn boundaries(text: &str) -> Vec<usize> {
    (0..=text.len()).filter(|&at| text.is_char_boundary(at)).collect()
}

#[test]
fn every_form_has_its_fixtures() {
    for parser in (2..=10).map(|value| ToolParser::try_from(value).unwrap()) {
        let count: usize =
            GROUPS.iter().filter(|group| group.parsers.0 == parser).map(|group| group.outputs.len()).sum();
        assert!(count >= 8, "{parser:?} has {count}");
    }
}

#[test]
fn outputs_mean_what_they_mean() {
    for (group, output, means) in every_fixture() {
        assert_eq!(meaning(&events(group, [output])), wanted(means), "{:?} {output}", group.parsers);
    }
}

#[test]
fn no_cut_changes_an_event() {
    for (group, output, _) in every_fixture() {
        let whole = events(group, [output]);
        for cut in boundaries(output) {
            let (before, after) = output.split_at(cut);
            assert_eq!(events(group, [before, after]), whole, "{before}|{after}");
        }
        let characters = boundaries(output);
        let single = characters.windows(2).map(|at| &output[at[0]..at[1]]);
        assert_eq!(events(group, single), whole, "{output}");
    }
}

proptest! {
    #[test]
    fn no_cuts_change_an_event(cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12)) {
        for (group, output, _) in every_fixture() {
            let boundaries = boundaries(output);
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| *cut.get(&boundaries)).collect();
            cuts.extend([0, output.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|window| &output[window[0]..window[1]]);
            prop_assert_eq!(events(group, pieces), events(group, [output]));
        }
    }

    /// Text made of the forms' own parts goes through every wrong turn that they have.
    #[test]
    fn whatever_is_generated_is_accounted_for(
        parts in prop::collection::vec(any::<prop::sample::Index>(), 0..24),
        cut in any::<prop::sample::Index>(),
    ) {
        for group in GROUPS {
            let vocabulary = parts_of(group);
            let output: String = parts.iter().map(|part| *part.get(&vocabulary)).collect();
            let events = events(group, [output.as_str()]);
            check_accounted(group, &output, &events)?;
            let (before, after) = output.split_at(*cut.get(&boundaries(&output)));
            prop_assert_eq!(self::events(group, [before, after]), events);
        }
    }
}

/// Pieces of a group's fixtures: what its marks separate, the marks, and what else grammars look at.
fn parts_of(group: &Group) -> Vec<&'static str> {
    let mut parts: Vec<&'static str> =
        vec![" ", "\n", "{", "}", "\"", ",", ":", "é", "ping", "{\"name\": \"ping\"", "\"arguments\": {}"];
    for (output, _) in group.outputs {
        parts.extend(output.split_inclusive(['>', ']', '}']));
    }
    parts
}

/// Text and reasoning stand in the output in their order, whole, and what is between them is marks, the white space next to
/// marks, or calls.
fn check_accounted(group: &Group, output: &str, events: &[OutputEvent]) -> Result<(), TestCaseError> {
    meaning(events);
    let marks = marks_of(group);
    // Everywhere in the output that what was shown so far can end.
    let mut ends = without_marks(&marks, output, &BTreeSet::from([0]), true);
    let mut events = events.iter().peekable();
    while let Some(event) = events.next() {
        let is_next_to_call =
            !matches!(events.peek(), None | Some(OutputEvent::Text(_) | OutputEvent::Reasoning(_)));
        match event {
            OutputEvent::Text(text) | OutputEvent::Reasoning(text) => {
                for character in text.chars() {
                    let next = |&end: &usize| {
                        output[end..].starts_with(character).then_some(end + character.len_utf8())
                    };
                    ends = without_marks(&marks, output, &ends.iter().filter_map(next).collect(), false);
                }
                if is_next_to_call {
                    ends = without_marks(&marks, output, &ends, true);
                }
            }
            // A call may be anything.
            _ => {
                let first = ends.first().copied().unwrap_or(output.len());
                ends = boundaries(output).into_iter().filter(|&end| end >= first).collect();
            }
        }
        prop_assert!(!ends.is_empty(), "{event:?} does not follow in {output:?}");
    }
    prop_assert!(ends.contains(&output.len()), "the end of {output:?} is lost");
    Ok(())
}

/// Where runs of marks and white space from these places end. A run without a mark counts next to a call or the beginning.
fn without_marks(
    marks: &[&'static str],
    output: &str,
    starts: &BTreeSet<usize>,
    counts_alone: bool,
) -> BTreeSet<usize> {
    let mut reached: BTreeSet<(usize, bool)> = starts.iter().map(|&start| (start, counts_alone)).collect();
    let mut new: Vec<(usize, bool)> = reached.iter().copied().collect();
    while let Some((at, has_mark)) = new.pop() {
        let mut reach = |end: usize, has_mark: bool| {
            if reached.insert((end, has_mark)) {
                new.push((end, has_mark));
            }
        };
        let rest = &output[at..];
        marks.iter().filter(|mark| rest.starts_with(**mark)).for_each(|mark| reach(at + mark.len(), true));
        rest.chars()
            .take(1)
            .filter(|one| one.is_whitespace())
            .for_each(|one| reach(at + one.len_utf8(), has_mark));
    }
    let marked = reached.into_iter().filter(|&(_, has_mark)| has_mark).map(|(end, _)| end);
    marked.chain(starts.iter().copied()).collect()
}

fn marks_of(group: &Group) -> Vec<&'static str> {
    let (tools, reasoning) = group.parsers;
    let delimiters = Delimiters::of(tools, reasoning);
    let mut marks = delimiters.marks.to_vec();
    marks.extend(delimiters.reasoning.iter().flat_map(|tags| [tags.open, tags.close]));
    if tools == ToolParser::Harmony {
        marks.extend(["assistant", "analysis", "final", "commentary", "json"]);
    }
    marks
}

#[test]
fn a_truncated_output_has_the_calls_that_were_complete() {
    let calls = |events: &[OutputEvent]| -> Vec<Meaning> {
        meaning(events).into_iter().filter(|one| matches!(one, Meaning::Call(..))).collect()
    };
    for (group, output, means) in every_fixture() {
        let whole = wanted(means);
        let wants_calls = whole.iter().any(|one| matches!(one, Meaning::Call(..)));
        for end in boundaries(output) {
            let events = events(group, [&output[..end]]);
            check_accounted(group, &output[..end], &events).unwrap();
            let calls = calls(&events);
            if wants_calls {
                let known = whole.iter().filter(|one| matches!(one, Meaning::Call(..)));
                assert!(known.take(calls.len()).eq(&calls), "{} has {calls:?}", &output[..end]);
            }
        }
    }
}

#[test]
fn without_tools_no_text_is_a_call() {
    for (group, output, _) in every_fixture() {
        let mut parser = OutputParser::new(group.parsers, group.prompt, Arc::default(), || 0);
        let mut events = parser.push(output);
        events.extend(parser.finish());
        let is_shown =
            |event: &OutputEvent| matches!(event, OutputEvent::Text(_) | OutputEvent::Reasoning(_));
        assert!(events.iter().all(is_shown), "{output}: {events:?}");
    }
}

#[test]
fn ids_are_of_the_form_that_templates_take() {
    let id = |parser, output: &str| {
        let parsers = (parser, ReasoningParser::None);
        let mut parser = OutputParser::new(parsers, "", Arc::new(tools()), || u128::MAX / 3);
        let Some(OutputEvent::ToolCallStart { id, .. }) = parser.push(output).into_iter().next() else {
            panic!("a call starts")
        };
        id
    };
    let usual = id(ToolParser::HermesJson, "<tool_call>{\"name\": \"ping\"}</tool_call>");
    assert_eq!(usual, "call_555555555555555555555555");
    let short = id(ToolParser::Mistral, "[TOOL_CALLS]ping[ARGS]{}");
    assert!(short.len() == 9 && short.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{short}");
}

/// A call of each form whose arguments' text is `content`, up to the end of that text, and the rest.
fn long_calls(content: &str) -> Vec<(Group, String, &'static str)> {
    let group = |tools, reasoning| Group { parsers: (tools, reasoning), prompt: "", outputs: &[] };
    let plain = |tools| group(tools, ReasoningParser::None);
    let json = format!("{{\"content\": \"{content}");
    vec![
        (
            plain(ToolParser::HermesJson),
            format!("<tool_call>{{\"name\": \"write\", \"arguments\": {json}"),
            "\"}}</tool_call>",
        ),
        (
            plain(ToolParser::HermesJson),
            format!("<tool_call>{{\"name\": \"write\", \"arguments\": \"{{\\\"content\\\": \\\"{content}"),
            "\\\"}\"}</tool_call>",
        ),
        (
            plain(ToolParser::QwenXml),
            format!("<tool_call><function=write><parameter=content>\n{content}"),
            "\n</parameter></function></tool_call>",
        ),
        (plain(ToolParser::Llama3Json), format!("{{\"name\": \"write\", \"parameters\": {json}"), "\"}}"),
        (plain(ToolParser::Mistral), format!("[TOOL_CALLS]write[ARGS]{json}"), "\"}"),
        (
            plain(ToolParser::Glm),
            format!("<tool_call>write\n<arg_key>content</arg_key>\n<arg_value>{content}"),
            "</arg_value>\n</tool_call>",
        ),
        (
            plain(ToolParser::Deepseek),
            format!("<｜tool▁call▁begin｜>write<｜tool▁sep｜>{json}"),
            "\"}<｜tool▁call▁end｜>",
        ),
        (
            plain(ToolParser::Kimi),
            format!("<|tool_call_begin|>functions.write:0<|tool_call_argument_begin|>{json}"),
            "\"}<|tool_call_end|>",
        ),
        (
            group(ToolParser::Harmony, ReasoningParser::Harmony),
            format!("<|channel|>commentary to=functions.write<|message|>{json}"),
            "\"}<|call|>",
        ),
    ]
}

#[test]
fn a_long_call_streams_once_its_name_is_known() {
    let content = "wörd ".repeat(CALL_HELD_BYTES_MAX / 4);
    for (group, begun, rest) in long_calls(&content) {
        let mut parser = OutputParser::new(group.parsers, "", Arc::new(tools()), || 0);
        let mut merged = Vec::new();
        parser.push(&begun).into_iter().for_each(|event| append(&mut merged, event));
        let Some(OutputEvent::ToolCallArguments { delta, .. }) = merged.last() else {
            panic!("{:?} does not stream", group.parsers)
        };
        assert!(delta.len() > CALL_HELD_BYTES_MAX, "{:?} streams {} bytes", group.parsers, delta.len());
        parser.push(rest).into_iter().for_each(|event| append(&mut merged, event));
        parser.finish().into_iter().for_each(|event| append(&mut merged, event));
        let [Meaning::Call(name, Some(json))] = &meaning(&merged)[..] else {
            panic!("one call: {:?}", group.parsers)
        };
        let value: Value = serde_json::from_str(json).unwrap();
        assert_eq!((name.as_str(), value["content"].as_str()), ("write", Some(content.as_str())));
    }
}

#[test]
fn a_long_call_that_breaks_off_has_no_end_and_loses_nothing() {
    let content = "wörd ".repeat(CALL_HELD_BYTES_MAX / 4);
    for (group, begun, _) in long_calls(&content) {
        let events = events(&group, [begun.as_str()]);
        let meaning = meaning(&events);
        assert_eq!(meaning[0], Meaning::Call("write".to_owned(), None), "{:?}", group.parsers);
        let delta = events.iter().find_map(|event| match event {
            OutputEvent::ToolCallArguments { delta, .. } => Some(delta.as_str()),
            _ => None,
        });
        let shown = match meaning.get(1) {
            Some(Meaning::Text(text)) => text.as_str(),
            _ => "",
        };
        let whole = format!("{}{shown}", delta.unwrap());
        assert_eq!(whole.matches("wörd ").count(), CALL_HELD_BYTES_MAX / 4, "{:?}", group.parsers);
    }
}

#[test]
fn a_long_call_without_a_name_is_text() {
    let output = format!("<tool_call>{{\"arguments\": {{\"a\": \"{}", "x".repeat(2 * CALL_HELD_BYTES_MAX));
    let group = Group { parsers: (ToolParser::HermesJson, ReasoningParser::None), prompt: "", outputs: &[] };
    let mut parser = OutputParser::new(group.parsers, "", Arc::new(tools()), || 0);
    let shown = parser.push(&output);
    assert_eq!(meaning(&shown), [Meaning::Text(output)], "it flows before the end");
}
