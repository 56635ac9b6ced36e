//! Regular expressions, choices and grammars.

use std::collections::BTreeSet;

use serde_json::json;

use super::super::{Constraint, GrammarError, GrammarSource, MaskState};
use super::walk::{allowed, walk_text};
use super::{bench, compile, token};
use crate::ids::TokenId;
use crate::text::testing::IM_END;

#[test]
fn an_answer_matches_the_whole_expression() {
    let expressions = [
        r"[a-z]{3}-\d+",
        r"(yes|no)( please)?",
        r"^\w+@\w+\.com$",
        r"/usr/(bin|lib)/[^/\n]{1,8}",
        r"(?i)caf[eé]",
        r"\p{Greek}{2,4}",
        "line\none",
        r"-?(0|[1-9][0-9]*)(\.[0-9]+)?",
    ];
    for expression in expressions {
        let start = compile(&GrammarSource::Regex(expression.to_owned())).unwrap();
        let whole = jsonschema::validator_for(&json!({ "pattern": format!("^(?:{expression})$") })).unwrap();
        for seed in 0..16 {
            let text = walk_text(&start, seed);
            assert!(whole.is_valid(&json!(text)), "{expression}, seed {seed}: {text:?}");
        }
    }
}

#[test]
fn expressions_that_cannot_be_enforced_are_refused() {
    for (expression, part) in [
        ("", "empty"),
        ("a(?!b)", "look-around"),
        (r"(a)\1", "backreferences"),
        ("a^b", "anchors"),
        ("(", "unclosed group"),
        ("abc\\", "escape"),
        ("(?<stop>x)", "stop"),
    ] {
        match compile(&GrammarSource::Regex(expression.to_owned())) {
            Err(GrammarError::Regex(reason)) => assert!(reason.contains(part), "{expression}: {reason}"),
            other => panic!("{expression}: {other:?}"),
        }
    }
}

#[test]
fn choices_are_all_reached_and_nothing_else() {
    let choices = ["a", "ab", "abc", "b\"c\\", "né\u{7f}", "12", "1", "true false", "<|im_end|>"];
    let choices: BTreeSet<String> = choices.iter().map(|choice| (*choice).to_owned()).collect();
    let start = compile(&GrammarSource::Choice(choices.iter().cloned().collect())).unwrap();
    let mut reached = BTreeSet::new();
    exhaust(start, Vec::new(), &mut reached);
    assert_eq!(reached, choices);
}

/// Follows every token from here to every end.
fn exhaust(mut constraint: Constraint, text: Vec<u8>, reached: &mut BTreeSet<String>) {
    let mut mask = vec![0; constraint.mask_words()];
    let state = constraint.mask(&mut mask).unwrap();
    if state != MaskState::Open {
        reached.insert(String::from_utf8(text.clone()).unwrap());
    }
    for next in allowed(&mask).into_iter().filter(|next| *next != IM_END && *next != super::SECOND_END) {
        let mut branch = constraint.clone();
        branch.accept(next).unwrap();
        exhaust(branch, [text.as_slice(), &bench().tokenizer.piece(next).bytes].concat(), reached);
    }
}

#[test]
fn choices_without_text_are_refused() {
    for choices in [vec![], vec!["a".to_owned(), String::new()]] {
        assert!(matches!(compile(&GrammarSource::Choice(choices)), Err(GrammarError::Choice(_))));
    }
}

#[test]
fn a_grammar_nests() {
    let grammar = "start: list\nlist: \"(\" item* \")\"\nitem: list | WORD \";\"\nWORD: /[a-z]{1,3}/";
    let start = compile(&GrammarSource::Lark(grammar.to_owned())).unwrap();
    let mut deepest = 0;
    for seed in 0..16 {
        let text = walk_text(&start, seed);
        let mut depth = 0_i32;
        for character in text.chars() {
            depth += match character {
                '(' => 1,
                ')' => -1,
                _ => 0,
            };
            deepest = deepest.max(depth);
            assert!(depth >= 0, "{text}");
        }
        assert_eq!(depth, 0, "{text}");
    }
    assert!(deepest > 1);
}

#[test]
fn grammars_with_errors_are_refused_by_line() {
    for (grammar, part) in [
        ("start: missing", "unknown name"),
        ("start: %json {\"type\": \"null\"}", "ask for a schema"),
        ("begin: \"a\"", "no start rule"),
        ("start: \"a\"\nother: (", "2("),
        ("start: /a(?=b)/", "1(8): invalid regex \"a(?=b)\" (in regex): look-around"),
    ] {
        match compile(&GrammarSource::Lark(grammar.to_owned())) {
            Err(GrammarError::Lark(reason)) => assert!(reason.contains(part), "{grammar}: {reason}"),
            other => panic!("{grammar}: {other:?}"),
        }
    }
}

#[test]
fn a_grammar_cannot_name_the_end_or_padding() {
    let every = "start: <[*]> <[*]>";
    let mut constraint = compile(&GrammarSource::Lark(every.to_owned())).unwrap();
    let mut mask = vec![0; constraint.mask_words()];
    assert_eq!(constraint.mask(&mut mask).unwrap(), MaskState::Open);
    let tokens = allowed(&mask);
    assert!(tokens.contains(&token(super::THINK)));
    assert!(!tokens.contains(&IM_END));
    assert!(tokens.iter().all(|token| !bench().tokenizer.piece(*token).bytes.is_empty()));
}

#[test]
fn a_token_that_the_mask_forbids_is_refused() {
    let start = compile(&GrammarSource::Choice(vec!["ab".to_owned()])).unwrap();
    for wrong in [TokenId(u32::from(b'b')), IM_END, TokenId(295), TokenId(9999), token(super::THINK)] {
        assert_eq!(start.clone().accept(wrong), Err(GrammarError::Refused(wrong)));
    }
}
