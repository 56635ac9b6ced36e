//! `tool_choice`: whether the model sees the tools, whether it must call one, and which ones it may call.

use super::conversation::TOOLS_MAX;
use super::error::ApiError;
use super::fields::{Fields, invalid, missing};
use crate::parse::ToolChoice;

/// What a request says of its tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ToolSelection {
    /// The model does not see them.
    None,
    Of {
        choice: ToolChoice,
        /// Those that may be called; `None` for all. The model sees the others too, so that prompts keep their prefix.
        allowed: Option<Vec<String>>,
    },
}

impl ToolSelection {
    /// The selection of a request that makes none.
    pub const AUTO: Self = Self::of(ToolChoice::Auto);

    pub const fn of(choice: ToolChoice) -> Self {
        Self::Of { choice, allowed: None }
    }

    /// The selection of a mode at `path`.
    ///
    /// # Errors
    /// A 400 that names the modes.
    pub fn of_mode(mode: &str, path: &str) -> Result<Self, ApiError> {
        match mode {
            "none" => Ok(Self::None),
            "auto" => Ok(Self::AUTO),
            "required" => Ok(Self::of(ToolChoice::Required)),
            other => Err(invalid(path, &format!("'{other}' is not one of 'none', 'auto' and 'required'"))),
        }
    }

    /// Reads the `mode` and `tools` of allowed tools; `name` gives a function's. Tools of other types are skipped, as they
    /// are where they are declared.
    ///
    /// # Errors
    /// A 400 that names the field.
    pub fn read_allowed(
        fields: &Fields<'_>,
        name: impl Fn(&Fields<'_>) -> Result<String, ApiError>,
    ) -> Result<Self, ApiError> {
        let path = fields.path("tools");
        let mut names = Vec::new();
        for (index, tool) in
            fields.array_within("tools", TOOLS_MAX)?.ok_or_else(|| missing(&path))?.iter().enumerate()
        {
            let tool = Fields::at(tool, format!("{path}[{index}]"))?;
            if tool.string("type")?.is_none_or(|kind| kind == "function") {
                names.push(name(&tool)?);
            }
        }
        let mode = fields.string("mode")?.unwrap_or("auto");
        Ok(match Self::of_mode(mode, &fields.path("mode"))? {
            Self::None => Self::None,
            Self::Of { choice, .. } => Self::Of { choice, allowed: Some(names) },
        })
    }
}
