//! Bounds: what a source may cost, and what is kept.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::cache::Cache;
use super::super::{
    Envelope, GrammarCompiler, GrammarError, GrammarLimits, GrammarSlot, GrammarSource, MaskState, Vocabulary,
};
use super::walk::walk;
use super::{SECOND_END, TOKENS, bench, compile, tokenizer};
use crate::ids::TokenId;
use crate::text::testing::IM_END;

fn compiler(limits: GrammarLimits) -> GrammarCompiler {
    GrammarCompiler::new(Vocabulary::new(&tokenizer(), &[IM_END, SECOND_END], TOKENS), limits).unwrap()
}

#[test]
fn a_source_over_the_bound_is_refused() {
    let limits = GrammarLimits { source_bytes_max: 200, ..GrammarLimits::default() };
    let long = GrammarSource::Regex("a".repeat(200));
    match compiler(limits).compile(&long, &Envelope::default()) {
        Err(GrammarError::TooLong { bytes, bytes_max: 200 }) => assert!(bytes > 200),
        other => panic!("{other:?}"),
    }
}

/// Sources that make a compiler work, most of them just below the bound of bytes, and whether they compile.
fn hard_sources() -> Vec<(GrammarSource, bool)> {
    let bytes = GrammarLimits::default().source_bytes_max - 1000;
    let chain = |count: usize| {
        let definition = |index: usize| {
            (format!("d{index}"), json!({"items": {"$ref": format!("#/$defs/d{}", index + 1)}}))
        };
        let mut definitions: serde_json::Map<String, Value> = (0..count).map(definition).collect();
        definitions.insert(format!("d{count}"), json!({"type": "null"}));
        json!({"$defs": definitions, "$ref": "#/$defs/d0"})
    };
    let rules: Vec<String> = (0..bytes / 16).map(|index| format!("r{index}: r{}", index + 1)).collect();
    let words: Vec<String> = (0..bytes / 16).map(|index| format!("word{index}")).collect();
    let words = GrammarSource::Choice(words);
    let pattern = json!({"type": "string", "pattern": "^(\\w+\\s?)+$", "minLength": 100_000});
    let items = json!({"type": "array", "items": {"type": "string"}, "minItems": 1_000_000});
    let regex = GrammarSource::Regex;
    let lark = |start: String| GrammarSource::Lark(format!("start: {start}"));
    vec![
        (GrammarSource::JsonSchema(chain(bytes / 48)), true),
        (GrammarSource::JsonSchema(pattern), true),
        (GrammarSource::JsonSchema(items), true),
        (words, true),
        (regex("(a|b)".repeat(bytes / 5)), true),
        (regex(format!("{}a{}", "(".repeat(240), "){0,9}".repeat(240))), false),
        (regex("(?:[^x]*x){1000}y{1000}[a-z]{5000}".to_owned()), true),
        (regex(format!("{}z", "a?".repeat(2000))), true),
        (lark(format!("r0\n{}\nr{}: \"a\"", rules.join("\n"), rules.len())), true),
        (lark(format!("{}A\nA: \"a\"", "~".repeat(bytes - 20))), false),
        (lark("(".repeat(bytes - 20)), false),
        (lark("\"a\"{1000} ".repeat(bytes / 12)), false),
    ]
}

#[test]
fn hard_sources_compile_or_are_refused() {
    for (index, (source, compiles)) in hard_sources().into_iter().enumerate() {
        let result = compile(&source);
        assert_eq!(result.is_ok(), compiles, "{index}: {result:?}");
        let Ok(mut constraint) = result else { continue };
        // Here the stack is that of any thread.
        let mut mask = vec![0; constraint.mask_words()];
        for _ in 0..64 {
            match constraint.mask(&mut mask) {
                Ok(MaskState::Open | MaskState::Accepting) => {}
                Ok(MaskState::Complete) | Err(GrammarError::TooComplex(_)) => break,
                Err(error) => panic!("{index}: {error}"),
            }
            let allowed = super::walk::allowed(&mask);
            let token = *allowed.iter().find(|token| **token != SECOND_END && **token != IM_END).unwrap();
            constraint.accept(token).unwrap();
        }
    }
}

#[test]
fn equal_sources_are_compiled_once() {
    let mut cache = Cache::new(2, 10);
    let start = Arc::new(compile(&GrammarSource::JsonObject).unwrap());
    cache.insert("aaaa".to_owned(), start.clone());
    cache.insert("bbbb".to_owned(), start.clone());
    assert!(cache.find("aaaa").is_some());
    cache.insert("cccc".to_owned(), start.clone());
    assert!(cache.find("bbbb").is_none(), "the least recently used one goes first");
    assert!(cache.find("aaaa").is_some() && cache.find("cccc").is_some());
    cache.insert("ddddddd".to_owned(), start.clone());
    assert!(cache.find("aaaa").is_none() && cache.find("cccc").is_none() && cache.find("ddddddd").is_some());
    cache.insert("larger than all".to_owned(), start);
    assert!(cache.find("larger than all").is_none() && cache.find("ddddddd").is_some());
}

#[test]
fn clones_go_their_own_ways() {
    let start = compile(&GrammarSource::Choice(vec!["ab".to_owned(), "cd".to_owned()])).unwrap();
    let first = walk(start.clone(), 1);
    let mut texts: Vec<_> = (0..32).map(|seed| walk(start.clone(), seed)).collect();
    assert_eq!(walk(start, 1), first, "a start state does not change");
    texts.sort();
    texts.dedup();
    assert!(texts.len() > 1);
}

#[test]
fn a_slot_goes_from_mask_to_mask() {
    fn sendable<T: Send + Sync>(value: T) -> T {
        value
    }
    let constraint =
        bench().compiler.compile(&GrammarSource::Choice(vec!["ab".to_owned()]), &Envelope::default());
    let mut slot = sendable(GrammarSlot::new(constraint.unwrap()));
    assert_eq!(slot.start().unwrap(), MaskState::Open);
    assert_eq!(super::walk::allowed(slot.mask()), [TokenId(u32::from(b'a'))]);
    assert_eq!(slot.advance(TokenId(u32::from(b'a'))).unwrap(), MaskState::Open);
    assert_eq!(slot.advance(TokenId(u32::from(b'b'))).unwrap(), MaskState::Complete);
    assert_eq!(super::walk::allowed(slot.mask()), [SECOND_END, IM_END]);
    assert!(slot.advance(TokenId(u32::from(b'b'))).is_err());
}
