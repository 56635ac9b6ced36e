//! What a request asks of its answer's form, under each API's names for it.
//!
//! A form is enforced as a whole or refused with a 400 that names the field, and for a schema the place in it. It holds for
//! the answer alone: reasoning before it is free, and where a request has tools a call may stand in its place.

use serde_json::{Value, json};

use super::error::ApiError;
use super::fields::{Fields, invalid, missing, unsupported, wrong_type};
use super::reading::Protocol;
use super::service::Service;
use crate::core::contract::ReasoningParser;
use crate::grammar::{Calls, Constraint, Envelope, GrammarError, GrammarSource, Reasoning};
use crate::parse::{Delimiters, Objects, Tools, harmony};

/// The form that an answer must have.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AnswerForm {
    source: GrammarSource,
    /// The field that asks for it.
    param: String,
}

impl AnswerForm {
    /// Reads the completion APIs' `response_format`, and the names that vLLM has for the same and more.
    ///
    /// # Errors
    /// A 400 that names the field.
    pub fn of_completions(fields: &Fields<'_>) -> Result<Option<Self>, ApiError> {
        let mut forms = Vec::new();
        if let Some(format) = fields.object("response_format")? {
            forms.extend(read_format(&format, Some("json_schema"))?);
        }
        let guided = ["guided_json", "guided_regex", "guided_grammar", "guided_choice"];
        forms.extend(read_guided(fields, guided)?);
        if let Some(outputs) = fields.object("structured_outputs")? {
            forms.extend(read_guided(&outputs, ["json", "regex", "grammar", "choice"])?);
            if outputs.boolean("json_object")?.unwrap_or(false) {
                forms.push(Self { source: GrammarSource::JsonObject, param: outputs.path("json_object") });
            }
        }
        only_one(forms)
    }

    /// Reads the responses API's `text.format`.
    ///
    /// # Errors
    /// A 400 that names the field.
    pub fn of_responses(fields: &Fields<'_>) -> Result<Option<Self>, ApiError> {
        let Some(text) = fields.object("text")? else { return Ok(None) };
        text.object("format")?.map_or(Ok(None), |format| read_format(&format, None))
    }

    /// Reads Anthropic's `output_config.format`.
    ///
    /// # Errors
    /// A 400 that names the field.
    pub fn of_messages(fields: &Fields<'_>) -> Result<Option<Self>, ApiError> {
        let Some(config) = fields.object("output_config")? else { return Ok(None) };
        config.object("format")?.map_or(Ok(None), |format| read_format(&format, None))
    }

    /// Compiles the form for the answers to one prompt. This may take a second.
    ///
    /// # Errors
    /// A 400 if it cannot be enforced.
    pub fn compile(
        &self,
        service: &Service,
        protocol: Option<&Protocol>,
    ) -> Result<Box<Constraint>, ApiError> {
        let envelope = match protocol {
            None => Envelope::default(),
            Some(protocol) => envelope(protocol),
        };
        let compiled = service.grammars().and_then(|compiler| compiler.compile(&self.source, &envelope));
        compiled.map(Box::new).map_err(|error| match error {
            GrammarError::Internal(_) => ApiError::internal(error.to_string()),
            error => invalid(&self.param, &error.to_string()),
        })
    }
}

/// What may stand around the answers to a conversation.
fn envelope(protocol: &Protocol) -> Envelope {
    let (tool_parser, reasoning_parser) = protocol.parsers;
    let tools = &protocol.tools;
    if reasoning_parser == ReasoningParser::Harmony {
        return in_messages(tools);
    }
    let delimiters = Delimiters::of(tool_parser, reasoning_parser);
    let reasoning = delimiters.reasoning.map(|tags| Reasoning {
        open: tags.open.to_owned(),
        close: tags.close.to_owned(),
        opened: delimiters.begin_in_reasoning(&protocol.prompt),
    });
    let has_calls = !tools.is_empty() && !delimiters.calls.is_empty();
    let calls = has_calls.then(|| match delimiters.objects {
        Some(objects) => calls_as_objects(&delimiters, objects, protocol),
        None => Calls::Free { opens: delimiters.calls.iter().map(|&open| open.to_owned()).collect() },
    });
    Envelope { reasoning, calls, ..Envelope::default() }
}

/// Calls that are one object each, which their opener begins or stands before.
fn calls_as_objects(delimiters: &Delimiters, objects: Objects, protocol: &Protocol) -> Calls {
    let mut opens: Vec<String> = delimiters.calls.iter().map(|&open| open.to_owned()).collect();
    if !delimiters.first_calls.is_empty() {
        opens.push(String::new());
    }
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"enum": protocol.tools.names().collect::<Vec<_>>()},
            objects.arguments: {"type": "object"},
        },
        "required": ["name", objects.arguments],
        "additionalProperties": false,
    });
    let between = protocol.parallel_calls.then(|| objects.between.to_owned());
    Calls::Values { opens, schema, close: objects.close.to_owned(), between }
}

/// Reasoning, answer and call as messages of their own. A call's end is an end of the sequence.
fn in_messages(tools: &Tools) -> Envelope {
    let reasoning = Reasoning {
        open: harmony::ANALYSIS.to_owned(),
        close: format!("{}{}", harmony::END, harmony::NEXT),
        opened: false,
    };
    let calls = (!tools.is_empty()).then(|| Calls::Values {
        opens: tools.names().map(harmony::call_head).collect(),
        schema: json!({"type": "object"}),
        close: String::new(),
        between: None,
    });
    Envelope { reasoning: Some(reasoning), answer_open: harmony::FINAL.to_owned(), calls }
}

fn only_one(mut forms: Vec<AnswerForm>) -> Result<Option<AnswerForm>, ApiError> {
    if let [first, second, ..] = forms.as_slice() {
        let requirement = format!("an answer has one form, and '{}' asks for one already", first.param);
        return Err(invalid(&second.param, &requirement));
    }
    Ok(forms.pop())
}

/// Reads a format by its type. `holder` names the object that holds the schema; the format itself does without one.
fn read_format(format: &Fields<'_>, holder: Option<&str>) -> Result<Option<AnswerForm>, ApiError> {
    match format.string("type")? {
        None | Some("text") => Ok(None),
        Some("json_object") => {
            Ok(Some(AnswerForm { source: GrammarSource::JsonObject, param: format.path("type") }))
        }
        Some("json_schema") => {
            let holder = match holder {
                None => format.clone(),
                Some(name) => format.object(name)?.ok_or_else(|| missing(&format.path(name)))?,
            };
            let param = holder.path("schema");
            let schema = holder.object("schema")?.ok_or_else(|| missing(&param))?;
            Ok(Some(AnswerForm {
                source: GrammarSource::JsonSchema(schema.object_map().clone().into()),
                param,
            }))
        }
        Some(other) => {
            let reason = format!("'{other}' is not one of 'text', 'json_object' and 'json_schema'");
            Err(unsupported(&format.path("type"), &reason))
        }
    }
}

/// Reads a schema, an expression, a grammar and choices under these names.
fn read_guided(
    fields: &Fields<'_>,
    [json, regex, grammar, choice]: [&str; 4],
) -> Result<Vec<AnswerForm>, ApiError> {
    let mut sources = Vec::new();
    if let Some(schema) = fields.get(json) {
        sources.push((json, GrammarSource::JsonSchema(read_schema(schema, &fields.path(json))?)));
    }
    if let Some(expression) = fields.string(regex)? {
        sources.push((regex, GrammarSource::Regex(expression.to_owned())));
    }
    if let Some(text) = fields.string(grammar)? {
        sources.push((grammar, GrammarSource::Lark(text.to_owned())));
    }
    if let Some(choices) = fields.array(choice)? {
        let path = fields.path(choice);
        let read = |choice: &Value| match choice {
            Value::String(text) => Ok(text.clone()),
            other => Err(wrong_type(&path, "an array of strings", other)),
        };
        sources.push((choice, GrammarSource::Choice(choices.iter().map(read).collect::<Result<_, _>>()?)));
    }
    Ok(sources.into_iter().map(|(name, source)| AnswerForm { source, param: fields.path(name) }).collect())
}

/// A schema, which may be spelled in a string.
fn read_schema(schema: &Value, path: &str) -> Result<Value, ApiError> {
    match schema {
        Value::Object(_) => Ok(schema.clone()),
        Value::String(spelled) => match serde_json::from_str(spelled) {
            Ok(schema @ Value::Object(_)) => Ok(schema),
            _ => Err(invalid(path, "it must spell a JSON object")),
        },
        other => Err(wrong_type(path, "an object or a string", other)),
    }
}
