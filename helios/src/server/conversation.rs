//! A conversation in the one form that every API is read into, and its way to a prompt.
//!
//! Messages and tools are what chat templates take: the shapes of the chat completions API, with one text as content, roles
//! `system`, `user`, `assistant` and `tool`, and a tool call's arguments as the object that they spell. There is at most one
//! `system` message, and it comes first, because templates take no other.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::constraint::AnswerForm;
use super::error::ApiError;
use super::fields::{invalid, unsupported};
use super::generate::Prompt;
use super::reading::Protocol;
use super::selection::ToolSelection;
use super::service::Service;
use crate::core::contract::ToolParser;
use crate::ids::TokenId;
use crate::parse::{Tool, ToolChoice, Tools};
use crate::text::{Encoded, Recall, Rendering, SpecialTokens, TemplateInput};

/// Messages, or items of the responses API, that one request may hold.
pub(super) const MESSAGES_MAX: usize = 16_384;
/// Tools that one request may declare.
pub(super) const TOOLS_MAX: usize = 1024;
/// What `tool_choice: required` adds to the conversation.
const CALL_INSTRUCTION: &str = "Answer by calling at least one of the tools.";
const SYSTEM_SEPARATOR: &str = "\n\n";

/// A conversation and what is asked of its next message.
#[derive(Clone, Debug)]
pub(super) struct Conversation {
    /// The field that the messages came from, which errors name.
    pub param: &'static str,
    pub messages: Vec<Value>,
    pub tools: Vec<Value>,
    pub choice: ToolChoice,
    /// Of the tools, those that may be called; `None` for all.
    pub allowed: Option<Vec<String>>,
    pub parallel_calls: bool,
    pub ending: Ending,
    /// Further variables of the template.
    pub variables: Map<String, Value>,
    pub special: SpecialTokens,
    pub recall: Recall,
    /// What the answer must be.
    pub form: Option<AnswerForm>,
}

/// What the prompt ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The header of the assistant's next message.
    Answer,
    /// The last message, the assistant's, without its end.
    Continuation,
    /// The last message's end.
    Messages,
}

impl Conversation {
    pub fn new(param: &'static str, messages: Vec<Value>) -> Self {
        Self {
            param,
            messages,
            tools: Vec::new(),
            choice: ToolChoice::Auto,
            allowed: None,
            parallel_calls: true,
            ending: Ending::Answer,
            variables: Map::new(),
            // The template writes its special tokens itself; adding more would double them.
            special: SpecialTokens::AsWritten,
            recall: Recall::Allowed,
            form: None,
        }
    }

    /// Gives the conversation those tools that are selected.
    ///
    /// # Errors
    /// A 400 for a choice that these tools, or this model, cannot satisfy.
    pub fn select_tools(
        &mut self,
        service: &Service,
        tools: Vec<Value>,
        selection: ToolSelection,
    ) -> Result<(), ApiError> {
        let ToolSelection::Of { choice, allowed } = selection else { return Ok(()) };
        self.tools = tools;
        if choice != ToolChoice::Auto {
            if matches!(service.model.parsers.0, ToolParser::None | ToolParser::Unspecified) {
                let reason = "this model's answers are not read for tool calls, so none can be required; use 'auto' or 'none'";
                return Err(unsupported("tool_choice", reason));
            }
            if allowed.as_ref().is_some_and(Vec::is_empty)
                || !self.tools.iter().any(|tool| tool_name(tool).is_some())
            {
                return Err(invalid("tool_choice", "it requires a call, but there are no tools to call"));
            }
        }
        let is_declared = |name: &&String| self.tools.iter().any(|tool| tool_name(tool) == Some(name));
        if let Some(unknown) = allowed.iter().flatten().find(|name| !is_declared(name)) {
            return Err(invalid("tool_choice", &format!("there is no tool '{unknown}'")));
        }
        if let ToolChoice::Named(wanted) = &choice {
            self.tools.retain(|tool| tool_name(tool) == Some(wanted));
            if self.tools.is_empty() {
                return Err(invalid("tool_choice", &format!("there is no tool '{wanted}'")));
            }
        }
        (self.choice, self.allowed) = (choice, allowed);
        Ok(())
    }

    /// Renders and tokenizes the conversation.
    ///
    /// # Errors
    /// A 400 if the template refuses it, it leaves no room for an output token, or its answer's form cannot be enforced.
    pub fn prompt(mut self, service: &Service) -> Result<Prompt, ApiError> {
        let param = self.param;
        let form = self.form.take();
        let allowed = self.allowed.take();
        let may_call = |tool: &Tool| allowed.as_ref().is_none_or(|allowed| allowed.contains(&tool.name));
        let tools: Vec<Tool> = self.tools.iter().filter_map(declared).filter(may_call).collect();
        let (choice, parallel_calls) = (self.choice.clone(), self.parallel_calls);
        let (text, encoded) = self.encode(service)?;
        service.check_prompt(param, &encoded.tokens)?;
        let protocol = Protocol {
            parsers: service.model.parsers,
            tools: Arc::new(Tools::new(tools)),
            choice,
            parallel_calls,
            prompt: text.into(),
        };
        let constraint = form.map(|form| form.compile(service, Some(&protocol))).transpose()?;
        Ok(Prompt {
            tokens: encoded.tokens.into(),
            endpoints: encoded.endpoints.into(),
            protocol: Some(protocol),
            constraint,
        })
    }

    /// The prompt's tokens, of which there may be more than the context has room for.
    ///
    /// # Errors
    /// A 400 if the template refuses the conversation.
    pub fn tokens(self, service: &Service) -> Result<Vec<TokenId>, ApiError> {
        let (_, encoded) = self.encode(service)?;
        Ok(encoded.tokens)
    }

    fn encode(mut self, service: &Service) -> Result<(String, Encoded), ApiError> {
        if self.choice == ToolChoice::Required {
            self.messages.push(json!({"role": "system", "content": CALL_INSTRUCTION}));
        }
        merge_system(&mut self.messages);
        let Rendering { text, marks } = self.render(service)?;
        let encoded = service
            .text
            .tokenizer
            .encode_marked(&text, self.special, self.recall, &marks)
            .map_err(|error| ApiError::tokenizing(self.param, &error))?;
        Ok((text, encoded))
    }

    fn render(&self, service: &Service) -> Result<Rendering, ApiError> {
        let template = &service.text.template;
        let input = TemplateInput {
            messages: &self.messages,
            tools: (!self.tools.is_empty()).then_some(&self.tools),
            add_generation_prompt: self.ending == Ending::Answer,
            extra: &self.variables,
        };
        let rendered = if self.ending == Ending::Continuation {
            let last = self.messages.last().map_or("", |last| last["content"].as_str().unwrap_or_default());
            template.render_to_continue(&input, last)
        } else {
            template.render(&input)
        };
        rendered.map_err(|error| ApiError { param: Some(self.param.to_owned()), ..error.into() })
    }
}

/// An assistant's message that is put together from parts.
#[derive(Clone, Debug, Default)]
pub(super) struct AssistantTurn {
    pub texts: Vec<String>,
    pub reasoning: String,
    pub calls: Vec<Value>,
}

impl AssistantTurn {
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.reasoning.is_empty() && self.calls.is_empty()
    }

    /// Adds a call; `arguments` is an object.
    pub fn call(&mut self, id: &str, name: &str, arguments: Value) {
        let function = json!({"name": name, "arguments": arguments});
        self.calls.push(json!({"id": id, "type": "function", "function": function}));
    }

    pub fn message(self) -> Value {
        let mut message = json!({"role": "assistant", "content": self.texts.join("\n")});
        set_reasoning(&mut message, self.reasoning);
        if !self.calls.is_empty() {
            message["tool_calls"] = self.calls.into();
        }
        message
    }
}

/// Templates read an assistant's reasoning under either name.
pub(super) fn set_reasoning(message: &mut Value, reasoning: String) {
    if !reasoning.is_empty() {
        message["reasoning_content"] = reasoning.clone().into();
        message["reasoning"] = reasoning.into();
    }
}

/// A tool's result; templates of some families want the tool's name.
pub(super) fn tool_message(call_id: &str, name: Option<&str>, content: &str) -> Value {
    let mut message = json!({"role": "tool", "tool_call_id": call_id, "content": content});
    if let Some(name) = name {
        message["name"] = name.into();
    }
    message
}

/// The arguments that a text spells; none at all are an empty object.
///
/// # Errors
/// A 400 that names the field at `path`.
pub(super) fn spelled_arguments(text: &str, path: &str) -> Result<Value, ApiError> {
    if text.trim().is_empty() {
        return Ok(json!({}));
    }
    match serde_json::from_str(text) {
        Ok(arguments @ Value::Object(_)) => Ok(arguments),
        _ => Err(invalid(path, "it must spell a JSON object")),
    }
}

/// The template's variables for an effort of reasoning. Templates that only turn it on and off know another name.
pub(super) fn set_effort(variables: &mut Map<String, Value>, effort: &str) {
    variables.insert("reasoning_effort".to_owned(), effort.into());
    if effort == "none" {
        variables.insert("enable_thinking".to_owned(), false.into());
    }
}

fn tool_name(tool: &Value) -> Option<&str> {
    tool["function"]["name"].as_str()
}

fn declared(tool: &Value) -> Option<Tool> {
    let parameters = tool["function"].get("parameters").cloned().unwrap_or_default();
    Some(Tool { name: tool_name(tool)?.to_owned(), parameters })
}

/// Gathers all `system` messages in one at the beginning.
fn merge_system(messages: &mut Vec<Value>) {
    let is_system = |message: &Value| message["role"] == "system";
    if !messages.iter().skip(1).any(is_system) {
        return;
    }
    let (system, mut rest): (Vec<Value>, Vec<Value>) =
        std::mem::take(messages).into_iter().partition(is_system);
    let texts: Vec<&str> = system.iter().filter_map(|message| message["content"].as_str()).collect();
    messages.push(json!({"role": "system", "content": texts.join(SYSTEM_SEPARATOR)}));
    messages.append(&mut rest);
}
