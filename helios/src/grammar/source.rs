//! What a request asks of its answer.

use llguidance::api::GrammarWithLexer;
use llguidance::derivre::RegexBuilder;
use llguidance::regex_to_lark;
use serde_json::{Value, json};

use super::{GrammarError, is_panic, reason_of, schema};

/// Brackets that a grammar may nest; its parser takes stack for each.
const LARK_NESTING_MAX: usize = 100;

/// What the answer must be.
#[derive(Clone, Debug, PartialEq)]
pub enum GrammarSource {
    /// JSON text that is valid against the schema.
    JsonSchema(Value),
    /// JSON text of any object.
    JsonObject,
    /// Text that the whole expression matches. Digits and word characters are those of ASCII, as in JSON Schema.
    Regex(String),
    /// Text of llguidance's dialect of Lark, from rule `start`.
    Lark(String),
    /// One of the texts.
    Choice(Vec<String>),
}

impl GrammarSource {
    /// A text that only equal sources share.
    pub(super) fn key(&self) -> String {
        match self {
            Self::JsonSchema(schema) => format!("schema\0{schema}"),
            Self::JsonObject => "object".to_owned(),
            Self::Regex(expression) => format!("regex\0{expression}"),
            Self::Lark(grammar) => format!("lark\0{grammar}"),
            Self::Choice(choices) => format!("choice\0{}", json!(choices)),
        }
    }

    /// The answer's grammar, once everything that can be checked without compiling it has been.
    pub(super) fn grammar(&self) -> Result<GrammarWithLexer, GrammarError> {
        match self {
            Self::JsonSchema(schema) => {
                Ok(GrammarWithLexer::from_json_schema(schema::checked(schema)?.schema))
            }
            Self::JsonObject => {
                Ok(GrammarWithLexer::from_json_schema(schema::checked(&json!({"type": "object"}))?.schema))
            }
            Self::Regex(expression) => {
                check_regex(expression).map_err(GrammarError::Regex)?;
                Ok(lark(format!("start: /{}/", regex_to_lark(expression, "dw"))))
            }
            Self::Lark(grammar) => {
                check_lark(grammar)?;
                Ok(lark(grammar.clone()))
            }
            Self::Choice(choices) => choice(choices),
        }
    }

    /// The error of a source that llguidance refuses.
    pub(super) fn refusal(&self, message: &str) -> GrammarError {
        let reason = reason_of(message);
        if is_panic(&reason) {
            // llguidance asserts some of its capacities, and catches what comes of it.
            return GrammarError::TooComplex("the compiler cannot hold it".to_owned());
        }
        match self {
            Self::JsonSchema(schema) => schema::refusal(schema, &reason),
            Self::JsonObject => GrammarError::Internal(reason),
            Self::Regex(_) => GrammarError::Regex(reason),
            Self::Lark(_) => GrammarError::Lark(reason),
            Self::Choice(_) => GrammarError::Choice(reason),
        }
    }
}

/// What is wrong with an expression. Matching it is left to the caller.
pub(super) fn check_regex(expression: &str) -> Result<(), String> {
    if expression.is_empty() {
        return Err("it is empty".to_owned());
    }
    // llguidance gives a group of this name a meaning of its own.
    if expression.contains("(?P<stop>") || expression.contains("(?<stop>") {
        return Err("a group must not be named stop".to_owned());
    }
    match RegexBuilder::new().mk_regex_for_serach(expression) {
        Ok(_) => Ok(()),
        Err(error) if error.to_string().starts_with("lookarounds") => {
            Err("word boundaries and anchors inside of an expression are not supported".to_owned())
        }
        Err(error) => Err(reason_of(&error.to_string())),
    }
}

fn lark(grammar: String) -> GrammarWithLexer {
    GrammarWithLexer::from_lark(grammar)
}

fn check_lark(grammar: &str) -> Result<(), GrammarError> {
    if grammar.contains("%json") {
        let reason = "JSON schemas inside of a grammar are not supported; ask for a schema instead";
        return Err(GrammarError::Lark(reason.to_owned()));
    }
    let mut depth = 0_usize;
    for byte in grammar.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > LARK_NESTING_MAX {
            return Err(GrammarError::Lark(format!("brackets nest deeper than {LARK_NESTING_MAX}")));
        }
    }
    Ok(())
}

fn choice(choices: &[String]) -> Result<GrammarWithLexer, GrammarError> {
    if choices.is_empty() {
        return Err(GrammarError::Choice("there are none".to_owned()));
    }
    if choices.iter().any(String::is_empty) {
        return Err(GrammarError::Choice("one of them is empty".to_owned()));
    }
    let texts: Vec<String> = choices.iter().map(|text| lark_string(text)).collect();
    Ok(lark(format!("start: CHOICE\nCHOICE: {}", texts.join(" | "))))
}

/// A text as a literal of the grammar language, which is a JSON string that spells out one character more.
pub(super) fn lark_string(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}
