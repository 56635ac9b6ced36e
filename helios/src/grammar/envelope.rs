//! What may stand around an answer: reasoning before it, tool calls in its place.

use std::fmt::Write as _;

use llguidance::api::GrammarWithLexer;
use serde_json::Value;

use super::source::lark_string;
use super::vocabulary::Vocabulary;
use super::{GrammarError, schema};

/// White space between the parts of an output, which models are used to write.
const BLANK_BYTES_MAX: usize = 8;

/// What an output may hold besides the constrained answer. The default is nothing.
///
/// Delimiters are written as their text; the names of special tokens in them stand for these tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// Free text that may come first, or comes first where it is open already.
    pub reasoning: Option<Reasoning>,
    /// What stands before the answer, empty for nothing.
    pub answer_open: String,
    /// Tool calls in the answer's place, if the request has tools.
    pub calls: Option<Calls>,
}

/// How calls may be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Where an output has one of these, everything up to its end is free, other special tokens included: the output parser
    /// validates calls.
    Free { opens: Vec<String> },
    /// Values of a schema, one or several.
    Values {
        /// What stands before the first, or nothing.
        opens: Vec<String>,
        schema: Value,
        /// What stands behind each, or nothing.
        close: String,
        /// What stands between one's end and another, which takes no further opener; none if one is all.
        between: Option<String>,
    },
}

/// What stands around reasoning.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reasoning {
    pub open: String,
    pub close: String,
    /// The prompt ends inside of reasoning, so the output begins there and must close it.
    pub opened: bool,
}

impl Envelope {
    /// A text that only equal envelopes share.
    pub(super) fn key(&self) -> String {
        format!("{self:?}")
    }

    /// The grammar around the answer's and what else it refers to, or nothing where there is nothing around the answer.
    pub(super) fn grammars(
        &self,
        answer: &str,
        vocabulary: &Vocabulary,
    ) -> Result<Vec<GrammarWithLexer>, GrammarError> {
        if *self == Self::default() {
            return Ok(Vec::new());
        }
        let mut grammars = Vec::new();
        let mut rules = format!("BLANK: /[ \\t\\r\\n]{{1,{BLANK_BYTES_MAX}}}/\n");
        let thought = match &self.reasoning {
            None => "",
            Some(reasoning) => {
                rules.push_str(&reasoning.rules(vocabulary)?);
                if reasoning.opened { "thought" } else { "reasoning?" }
            }
        };
        let mut bodies = format!("{} @{answer}", optional(&self.answer_open, vocabulary)?);
        if let Some(calls) = &self.calls {
            bodies.push_str(" | calls");
            rules.push_str(&calls.rules(vocabulary)?);
        }
        if let Some(Calls::Values { schema, .. }) = &self.calls {
            grammars.push(named("call", GrammarWithLexer::from_json_schema(schema::checked(schema)?.schema)));
        }
        let grammar = format!("start: {thought} body\nbody: {bodies}\n{rules}");
        grammars.insert(0, named("envelope", GrammarWithLexer::from_lark(grammar)));
        Ok(grammars)
    }
}

impl Reasoning {
    /// Rules `reasoning`, with the opening delimiter, and `thought`, without it.
    fn rules(&self, vocabulary: &Vocabulary) -> Result<String, GrammarError> {
        let close = pieces(&self.close, vocabulary)?;
        let (first, rest) = close.split_first().ok_or_else(|| empty_delimiter(&self.close))?;
        let mut rules = String::new();
        if !self.opened {
            let open = sequence(&pieces(&self.open, vocabulary)?);
            writeln!(rules, "reasoning: {open} thought").expect("writing to a string does not fail");
        }
        let rest = sequence(rest);
        match first {
            Piece::Special(token) => {
                rules.push_str(&format!("thought: THOUGHT? <[{token}]> {rest} BLANK?\nTHOUGHT: /(?s:.+)/\n"));
            }
            // The text goes on to the first occurrence of what closes it.
            Piece::Text(text) => rules.push_str(&format!(
                "thought: inner {rest} BLANK?\ninner[suffix={}]: /(?s:.*)/\n",
                lark_string(text)
            )),
        }
        Ok(rules)
    }
}

impl Calls {
    /// Rule `calls`.
    fn rules(&self, vocabulary: &Vocabulary) -> Result<String, GrammarError> {
        match self {
            Self::Free { opens } => {
                let call = |open: &String| Ok(format!("{} free", sequence(&pieces(open, vocabulary)?)));
                Ok(format!("calls: {}\n{}", alternatives(opens, call)?, free(vocabulary)))
            }
            Self::Values { opens, close, between, .. } => {
                let call = |open: &String| Ok(format!("{} value", optional(open, vocabulary)?));
                let further = match between {
                    None => String::new(),
                    Some(between) => format!("(BLANK? {} value)*", optional(between, vocabulary)?),
                };
                let (calls, close) = (alternatives(opens, call)?, optional(close, vocabulary)?);
                Ok(format!("calls: call {further}\ncall: {calls}\nvalue: BLANK? @call BLANK? {close}\n"))
            }
        }
    }
}

fn alternatives(
    opens: &[String],
    rule: impl Fn(&String) -> Result<String, GrammarError>,
) -> Result<String, GrammarError> {
    Ok(opens.iter().map(rule).collect::<Result<Vec<_>, _>>()?.join(" | "))
}

fn named(name: &str, grammar: GrammarWithLexer) -> GrammarWithLexer {
    GrammarWithLexer { name: Some(name.to_owned()), ..grammar }
}

/// Rule `free`: text and special tokens up to the end of the output.
fn free(vocabulary: &Vocabulary) -> String {
    let mut tokens: Vec<u32> = vocabulary.specials.iter().map(|(_, token)| *token).collect();
    if tokens.is_empty() {
        return "free: FREE?\nFREE: /(?s:.+)/\n".to_owned();
    }
    tokens.sort_unstable();
    let ids: Vec<String> = tokens.iter().map(u32::to_string).collect();
    format!("free: FREE? (<[{}]> FREE?)*\nFREE: /(?s:.+)/\n", ids.join(","))
}

/// A part of a delimiter.
enum Piece<'a> {
    Text(&'a str),
    Special(u32),
}

/// A delimiter, cut where it names special tokens.
fn pieces<'a>(delimiter: &'a str, vocabulary: &Vocabulary) -> Result<Vec<Piece<'a>>, GrammarError> {
    if delimiter.is_empty() {
        return Err(empty_delimiter(delimiter));
    }
    let mut pieces = Vec::new();
    let mut text_start = 0;
    let mut position = 0;
    while position < delimiter.len() {
        let rest = &delimiter[position..];
        // Names come longest first.
        let special = vocabulary.specials.iter().find(|(name, _)| rest.starts_with(name.as_str()));
        if let Some((name, token)) = special {
            if text_start < position {
                pieces.push(Piece::Text(&delimiter[text_start..position]));
            }
            pieces.push(Piece::Special(*token));
            position += name.len();
            text_start = position;
        } else {
            position += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    if text_start < delimiter.len() {
        pieces.push(Piece::Text(&delimiter[text_start..]));
    }
    Ok(pieces)
}

fn empty_delimiter(delimiter: &str) -> GrammarError {
    GrammarError::Envelope(format!("{delimiter:?} delimits nothing"))
}

/// A delimiter that may be empty.
fn optional(delimiter: &str, vocabulary: &Vocabulary) -> Result<String, GrammarError> {
    if delimiter.is_empty() { Ok(String::new()) } else { Ok(sequence(&pieces(delimiter, vocabulary)?)) }
}

fn sequence(pieces: &[Piece<'_>]) -> String {
    let atoms = pieces.iter().map(|piece| match piece {
        Piece::Text(text) => lark_string(text),
        Piece::Special(token) => format!("<[{token}]>"),
    });
    atoms.collect::<Vec<_>>().join(" ")
}
