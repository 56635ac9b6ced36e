//! What may stand around an answer: reasoning before it, tool calls in its place.

use std::fmt::Write as _;

use llguidance::api::GrammarWithLexer;

use super::GrammarError;
use super::source::lark_string;
use super::vocabulary::Vocabulary;

/// White space between reasoning and what follows, which models are used to write.
const BLANK_BYTES_MAX: usize = 8;

/// What an output may hold besides the constrained answer. The default is nothing.
///
/// Delimiters are written as their text; the names of special tokens in them stand for these tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// Free text that may come first, or comes first where it is open already.
    pub reasoning: Option<Reasoning>,
    /// What opens tool calls, if the request has tools. Where an output opens one, everything up to its end is free,
    /// other special tokens included: the output parser validates calls.
    pub calls: Vec<String>,
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

    /// The grammar around the answer's, or none where there is nothing around it.
    pub(super) fn grammar(
        &self,
        answer: &str,
        vocabulary: &Vocabulary,
    ) -> Result<Option<GrammarWithLexer>, GrammarError> {
        if *self == Self::default() {
            return Ok(None);
        }
        let mut rules = String::new();
        let thought = match &self.reasoning {
            None => "",
            Some(reasoning) => {
                rules.push_str(&reasoning.rules(vocabulary)?);
                if reasoning.opened { "thought" } else { "reasoning?" }
            }
        };
        let mut bodies = vec![format!("@{answer}")];
        for open in &self.calls {
            bodies.push(format!("{} free", sequence(&pieces(open, vocabulary)?)));
        }
        if !self.calls.is_empty() {
            rules.push_str(&free(vocabulary));
        }
        let grammar = format!("start: {thought} body\nbody: {}\n{rules}", bodies.join(" | "));
        Ok(Some(GrammarWithLexer {
            name: Some("envelope".to_owned()),
            ..GrammarWithLexer::from_lark(grammar)
        }))
    }
}

impl Reasoning {
    /// Rules `reasoning`, with the opening delimiter, and `thought`, without it.
    fn rules(&self, vocabulary: &Vocabulary) -> Result<String, GrammarError> {
        let close = pieces(&self.close, vocabulary)?;
        let (first, rest) = close.split_first().ok_or_else(|| empty_delimiter(&self.close))?;
        let mut rules = format!("BLANK: /[ \\t\\r\\n]{{1,{BLANK_BYTES_MAX}}}/\n");
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

fn sequence(pieces: &[Piece<'_>]) -> String {
    let atoms = pieces.iter().map(|piece| match piece {
        Piece::Text(text) => lark_string(text),
        Piece::Special(token) => format!("<[{token}]>"),
    });
    atoms.collect::<Vec<_>>().join(" ")
}
