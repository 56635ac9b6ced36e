//! Reasoning and calls around a constrained answer.

use super::super::{Constraint, Envelope, GrammarSource, MaskState, Reasoning};
use super::walk::{allowed, walk_text};
use super::{THINK, THINK_END, bench};
use crate::ids::TokenId;
use crate::text::SpecialTokens;

fn answer() -> GrammarSource {
    let schema = serde_json::json!({
        "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false,
    });
    GrammarSource::JsonSchema(schema)
}

fn tags(opened: bool) -> Option<Reasoning> {
    Some(Reasoning { open: "<think>".to_owned(), close: "</think>".to_owned(), opened })
}

fn special(opened: bool) -> Option<Reasoning> {
    Some(Reasoning { open: THINK.to_owned(), close: THINK_END.to_owned(), opened })
}

fn compile(reasoning: Option<Reasoning>, calls: &[&str]) -> Constraint {
    let calls = calls.iter().map(|call| (*call).to_owned()).collect();
    bench().compiler.compile(&answer(), &Envelope { reasoning, calls }).unwrap()
}

/// What is allowed after a text that must be allowed itself, token by token.
fn after(constraint: &Constraint, text: &str) -> Result<(MaskState, Constraint), TokenId> {
    let mut constraint = constraint.clone();
    let mut mask = vec![0; constraint.mask_words()];
    for next in bench().tokenizer.encode(text, SpecialTokens::AsWritten).unwrap() {
        constraint.mask(&mut mask).unwrap();
        if !allowed(&mask).contains(&next) {
            return Err(next);
        }
        constraint.accept(next).unwrap();
    }
    Ok((constraint.mask(&mut mask).unwrap(), constraint))
}

fn state(constraint: &Constraint, text: &str) -> MaskState {
    after(constraint, text).unwrap_or_else(|token| panic!("{token} is refused in {text:?}")).0
}

#[test]
fn reasoning_is_free_and_the_answer_is_not() {
    for (reasoning, open, close) in [(tags(false), "<think>", "</think>"), (special(false), THINK, THINK_END)]
    {
        let start = compile(reasoning, &[]);
        let thought = "so {\"n\": \"x\"} < or </thin, 日本 🦀\n\n";
        for text in [
            "{\"n\":1}".to_owned(),
            format!("{open}{close}{{\"n\":1}}"),
            format!("{open}\n{thought}{close}\n\n{{\"n\": 12}}"),
        ] {
            assert_eq!(state(&start, &text), MaskState::Complete, "{text}");
        }
        for text in [open.to_owned(), format!("{open}{thought}"), format!("{open}{thought}{close}")] {
            assert_eq!(state(&start, &text), MaskState::Open, "{text}");
        }
        assert!(after(&start, &format!("{open}{thought}{close}no")).is_err());
        assert!(after(&start, thought).is_err(), "without its delimiter there is no reasoning");
        assert!(after(&start, &format!("{{\"n\":1}}{open}")).is_err(), "reasoning comes first");
    }
}

#[test]
fn reasoning_that_the_prompt_opened_must_be_closed() {
    for (reasoning, close) in [(tags(true), "</think>"), (special(true), THINK_END)] {
        let start = compile(reasoning, &[]);
        assert_eq!(state(&start, "{\"n\":1}"), MaskState::Open, "this is a thought");
        assert_eq!(state(&start, &format!("first{close}\n{{\"n\":1}}")), MaskState::Complete);
        assert_eq!(state(&start, &format!("{close}{{\"n\":1}}")), MaskState::Complete);
    }
}

#[test]
fn tokens_may_cross_the_borders_of_delimiters() {
    let start = compile(tags(false), &[]);
    // The tokenizer has tokens for "ink>\n" and "k>{".
    assert_eq!(state(&start, "<think>\nhm</think>\n{\"n\":1}"), MaskState::Complete);
    assert_eq!(state(&start, "<think>hm</think>{\"n\":1}"), MaskState::Complete);
}

#[test]
fn a_call_may_stand_in_the_answers_place() {
    for call in ["<tool_call>", "<|call|>", "<|call|>functions"] {
        let start = compile(tags(false), &[call, "[CALLS]"]);
        let payload = "\n{\"name\": 5, oops <|think|>\n日本";
        for text in [
            format!("{call}{payload}"),
            format!("<think>which?</think>\n{call}{payload}"),
            format!("[CALLS]{payload}"),
        ] {
            assert_eq!(state(&start, &text), MaskState::Accepting, "{text}");
        }
        assert_eq!(state(&start, "{\"n\":1}"), MaskState::Complete);
        assert_eq!(state(&start, "<think>no</think>{\"n\":1}"), MaskState::Complete);
        assert!(after(&start, &format!("text {call}")).is_err());
        assert!(after(&compile(tags(false), &[]), call).is_err(), "without tools there is no call");
    }
}

#[test]
fn walks_end_in_an_answer() {
    for (reasoning, thought) in [
        (None, String::new()),
        (tags(false), "<think>a < b".to_owned() + "</think>"),
        (tags(true), "a < b</think>\n\n".to_owned()),
        (special(false), format!("{THINK}a{THINK_END}")),
        (special(true), format!("a{THINK_END}\n")),
    ] {
        let (_, start) = after(&compile(reasoning, &[]), &thought).unwrap();
        for seed in 0..8 {
            let text = walk_text(&start, seed);
            let value: serde_json::Value =
                serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"));
            assert!(value["n"].is_number(), "{text:?}");
        }
    }
}

#[test]
fn other_sources_fit_into_an_envelope_too() {
    let envelope = Envelope { reasoning: tags(false), calls: vec!["<tool_call>".to_owned()] };
    let sources = [
        GrammarSource::Choice(vec!["yes".to_owned(), "<no>".to_owned()]),
        GrammarSource::Regex("yes|<no>".to_owned()),
        GrammarSource::Lark("start: \"yes\" | \"<no>\"".to_owned()),
    ];
    for source in sources {
        let start = bench().compiler.compile(&source, &envelope).unwrap();
        for text in ["yes", "<no>", "<think>a</think>\n\nyes", "<think></think><no>"] {
            assert_eq!(state(&start, text), MaskState::Complete, "{source:?}: {text}");
        }
        assert_eq!(state(&start, "<tool_call>x"), MaskState::Accepting);
        assert!(after(&start, "<think>a</think>no").is_err());
    }
}

#[test]
fn an_envelope_without_text_is_refused() {
    let envelope = Envelope { calls: vec![String::new()], ..Envelope::default() };
    assert!(bench().compiler.compile(&answer(), &envelope).is_err());
}
