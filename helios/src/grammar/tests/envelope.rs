//! Reasoning and calls around a constrained answer.

use super::super::{Calls, Constraint, Envelope, GrammarSource, MaskState, Reasoning};
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
    let envelope = Envelope { reasoning, calls: free(calls), ..Envelope::default() };
    bench().compiler.compile(&answer(), &envelope).unwrap()
}

fn free(opens: &[&str]) -> Option<Calls> {
    let opens: Vec<String> = opens.iter().map(|&open| open.to_owned()).collect();
    (!opens.is_empty()).then_some(Calls::Free { opens })
}

/// Calls of `f` and `g` in the answer's place, as objects.
fn objects(open: &str, close: &str, between: Option<&str>) -> Envelope {
    let schema = serde_json::json!({
        "type": "object", "properties": {"name": {"enum": ["f", "g"]}, "arguments": {"type": "object"}},
        "required": ["name", "arguments"], "additionalProperties": false,
    });
    let (opens, close) = (vec![open.to_owned()], close.to_owned());
    let calls = Some(Calls::Values { opens, schema, close, between: between.map(str::to_owned) });
    Envelope { reasoning: tags(false), calls, ..Envelope::default() }
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
fn calls_that_are_objects_are_valid_ones() {
    let call = "{\"name\": \"f\", \"arguments\": {\"x\": [1, \"日本\"]}}";
    for (open, close, between) in
        [("<tool_call>", "</tool_call>", "<tool_call>"), ("", "", ";"), ("<|call|>", "", ";")]
    {
        let one = format!("{open}{call}{close}");
        let two = format!("<think>which?</think>\n{open}\n{call}\n{close}\n{between}{call}{close}");
        let compile = |between| bench().compiler.compile(&answer(), &objects(open, close, between)).unwrap();
        let (several, single) = (compile(Some(between)), compile(None));
        for text in [&one, &two] {
            assert_eq!(state(&several, text), MaskState::Accepting, "{text}");
        }
        assert_ne!(state(&single, &one), MaskState::Open, "{one}");
        assert!(after(&single, &two).is_err());
        for start in [&several, &single] {
            assert_eq!(state(start, "{\"n\":1}"), MaskState::Complete);
            for wrong in ["{\"name\": \"h", "{\"arguments", "oops"] {
                assert!(after(start, &format!("{open}{wrong}")).is_err(), "{open}{wrong}");
            }
        }
        let (_, begun) = after(&several, "<think>a</think>").unwrap();
        for seed in 0..8 {
            let text = walk_text(&begun, seed);
            assert!(text.contains("\"n\"") || text.contains("\"arguments\""), "{text}");
        }
    }
}

#[test]
fn an_answer_may_be_opened() {
    let reasoning = Reasoning {
        open: "<|think|>analysis".to_owned(),
        close: "<|/think|>assistant".to_owned(),
        opened: false,
    };
    let envelope =
        Envelope { reasoning: Some(reasoning), answer_open: "<|call|>final".to_owned(), calls: None };
    let start = bench().compiler.compile(&answer(), &envelope).unwrap();
    for text in
        ["<|call|>final{\"n\":1}", "<|think|>analysisAnything {.<|/think|>assistant<|call|>final{\"n\": 12}"]
    {
        assert_eq!(state(&start, text), MaskState::Complete, "{text}");
    }
    for text in ["{", "final", "<|call|>no", "<|call|>final[", "<|think|>analysis<|/think|><|call|>"] {
        assert!(after(&start, text).is_err(), "{text}");
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
    let envelope = Envelope { reasoning: tags(false), calls: free(&["<tool_call>"]), ..Envelope::default() };
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
    let envelope = Envelope { calls: free(&[""]), ..Envelope::default() };
    assert!(bench().compiler.compile(&answer(), &envelope).is_err());
}
