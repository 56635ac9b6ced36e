//! Tools and `tool_choice` of the responses API, and the names that the model sees.
//!
//! A namespace groups tools whose names are only unique within it, and a call comes back with both names. Models know one
//! name a tool, so they see `namespace__name`. Hosted tools are skipped: nothing here could run them.

use serde_json::{Value, json};

use super::super::conversation::TOOLS_MAX;
use super::super::error::ApiError;
use super::super::fields::{Fields, invalid};
use super::super::selection::ToolSelection;
use crate::parse::ToolChoice;

/// The tools of a request, under the names that the model sees.
#[derive(Clone, Debug, Default)]
pub(super) struct ToolNames {
    /// In the shape that templates take.
    definitions: Vec<Value>,
    namespaced: Vec<Namespaced>,
}

#[derive(Clone, Debug)]
struct Namespaced {
    shown: String,
    namespace: String,
    name: String,
}

impl ToolNames {
    /// Reads `tools`.
    ///
    /// # Errors
    /// A 400 that names the field.
    pub fn read(fields: &Fields<'_>) -> Result<Self, ApiError> {
        let mut names = Self::default();
        for (index, tool) in fields.array_within("tools", TOOLS_MAX)?.unwrap_or_default().iter().enumerate() {
            let tool = Fields::at(tool, format!("tools[{index}]"))?;
            match tool.string("type")? {
                Some("function") => names.add(&tool, None)?,
                Some("namespace") => names.add_namespace(&tool)?,
                _ => {}
            }
        }
        Ok(names)
    }

    pub fn definitions(&self) -> Vec<Value> {
        self.definitions.clone()
    }

    /// The name that the model sees.
    pub fn shown(namespace: Option<&str>, name: &str) -> String {
        match namespace {
            None | Some("") => name.to_owned(),
            Some(namespace) => format!("{namespace}__{name}"),
        }
    }

    /// Writes the names of a call into its item, as the client knows them.
    pub fn name_item(&self, item: &mut Value, shown: &str) {
        match self.namespaced.iter().find(|tool| tool.shown == shown) {
            None => item["name"] = shown.into(),
            Some(tool) => {
                item["name"] = tool.name.as_str().into();
                item["namespace"] = tool.namespace.as_str().into();
            }
        }
    }

    /// Reads `tool_choice`.
    ///
    /// # Errors
    /// A 400 that names the field.
    pub fn read_choice(&self, fields: &Fields<'_>) -> Result<ToolSelection, ApiError> {
        let choice = match fields.get("tool_choice") {
            None => return Ok(ToolSelection::AUTO),
            Some(Value::String(mode)) => return ToolSelection::of_mode(mode, "tool_choice"),
            Some(choice) => Fields::at(choice, "tool_choice".to_owned())?,
        };
        let shown = |tool: &Fields<'_>| Ok(Self::shown(tool.string("namespace")?, tool.required("name")?));
        match choice.string("type")? {
            Some("function") => Ok(ToolSelection::of(ToolChoice::Named(shown(&choice)?))),
            Some("allowed_tools") => ToolSelection::read_allowed(&choice, shown),
            _ => Err(invalid("tool_choice.type", "it must be 'function' or 'allowed_tools'")),
        }
    }

    fn add_namespace(&mut self, fields: &Fields<'_>) -> Result<(), ApiError> {
        let namespace = fields.required("name")?;
        for (index, tool) in fields.array_within("tools", TOOLS_MAX)?.unwrap_or_default().iter().enumerate() {
            let tool = Fields::at(tool, format!("{}[{index}]", fields.path("tools")))?;
            if tool.string("type")?.is_none_or(|kind| kind == "function") {
                self.add(&tool, Some(namespace))?;
            }
        }
        Ok(())
    }

    fn add(&mut self, fields: &Fields<'_>, namespace: Option<&str>) -> Result<(), ApiError> {
        let name = fields.required("name")?;
        fields.boolean("strict")?;
        let shown = Self::shown(namespace, name);
        let mut function = json!({"name": shown});
        for field in ["description", "parameters"] {
            if let Some(value) = fields.get(field) {
                function[field] = value.clone();
            }
        }
        self.definitions.push(json!({"type": "function", "function": function}));
        if let Some(namespace) = namespace {
            self.namespaced.push(Namespaced {
                shown,
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            });
        }
        Ok(())
    }
}
