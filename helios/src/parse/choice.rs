//! `tool_choice`: what of an output is shown, and whether it did what was asked.

use super::event::OutputEvent;

/// What a request asks of its calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model chooses.
    #[default]
    Auto,
    /// At least one call.
    Required,
    /// A call to this tool, and to no other.
    Named(String),
}

/// Why an output does not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    #[error(
        "the model completed no tool call, and tool_choice requires one; ask again or use tool_choice `auto`"
    )]
    NoCall,
    #[error(
        "the model did not complete a call to `{wanted}`, which tool_choice names; ask again or use `auto`"
    )]
    NoCallTo { wanted: String },
    #[error("the model called `{called}`, and tool_choice names `{wanted}`; ask again or use `auto`")]
    OtherCall { wanted: String, called: String },
}

/// The calls of one output, as its events tell of them.
#[derive(Clone, Debug, Default)]
pub struct Calls(Vec<Call>);

#[derive(Clone, Debug)]
struct Call {
    name: String,
    is_complete: bool,
}

impl ToolChoice {
    /// Whether an event is shown. A named tool's call stands without the text around it; reasoning and arguments stay.
    pub fn shows(&self, event: &OutputEvent) -> bool {
        !matches!((self, event), (Self::Named(_), OutputEvent::Text(_)))
    }
}

impl Calls {
    /// Takes note of an event. Events come in their order.
    pub fn observe(&mut self, event: &OutputEvent) {
        match event {
            OutputEvent::ToolCallStart { name, .. } => {
                self.0.push(Call { name: name.clone(), is_complete: false });
            }
            OutputEvent::ToolCallEnd { .. } => {
                if let Some(last) = self.0.last_mut() {
                    last.is_complete = true;
                }
            }
            _ => {}
        }
    }

    /// How many calls are complete. An answer with some finishes for its calls, one with none does not.
    pub fn completed(&self) -> usize {
        self.0.iter().filter(|call| call.is_complete).count()
    }

    /// Whether the whole output did what was asked.
    ///
    /// # Errors
    /// What is missing, or what there should not be.
    pub fn check(&self, choice: &ToolChoice) -> Result<(), ChoiceError> {
        match choice {
            ToolChoice::Required if self.completed() == 0 => Err(ChoiceError::NoCall),
            ToolChoice::Auto | ToolChoice::Required => Ok(()),
            ToolChoice::Named(wanted) => {
                let wanted = wanted.clone();
                if let Some(other) = self.0.iter().find(|call| call.name != wanted) {
                    return Err(ChoiceError::OtherCall { wanted, called: other.name.clone() });
                }
                if self.completed() == 0 { Err(ChoiceError::NoCallTo { wanted }) } else { Ok(()) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(names: &[&str], last_is_complete: bool) -> Calls {
        let mut calls = Calls::default();
        for (index, name) in (0..).zip(names) {
            let name = (*name).to_owned();
            calls.observe(&OutputEvent::ToolCallStart { index, id: String::new(), name });
            if last_is_complete || index as usize + 1 < names.len() {
                calls.observe(&OutputEvent::ToolCallEnd { index });
            }
        }
        calls
    }

    #[test]
    fn required_wants_a_completed_call() {
        assert_eq!(calls(&[], true).check(&ToolChoice::Required), Err(ChoiceError::NoCall));
        assert_eq!(calls(&["f"], false).check(&ToolChoice::Required), Err(ChoiceError::NoCall));
        assert_eq!(calls(&["f", "g"], false).check(&ToolChoice::Required), Ok(()));
        assert_eq!(calls(&[], true).check(&ToolChoice::Auto), Ok(()));
    }

    #[test]
    fn named_wants_that_tool_and_no_other() {
        let choice = ToolChoice::Named("f".to_owned());
        assert_eq!(calls(&["f", "f"], true).check(&choice), Ok(()));
        let missing = ChoiceError::NoCallTo { wanted: "f".to_owned() };
        assert_eq!(calls(&[], true).check(&choice), Err(missing.clone()));
        assert_eq!(calls(&["f"], false).check(&choice), Err(missing));
        let other = ChoiceError::OtherCall { wanted: "f".to_owned(), called: "g".to_owned() };
        assert_eq!(calls(&["f", "g"], true).check(&choice), Err(other));
    }

    #[test]
    fn a_named_call_stands_alone() {
        let named = ToolChoice::Named("f".to_owned());
        assert!(!named.shows(&OutputEvent::Text("Sure:".to_owned())));
        assert!(named.shows(&OutputEvent::Reasoning("why".to_owned())));
        assert!(ToolChoice::Auto.shows(&OutputEvent::Text("Sure:".to_owned())));
    }
}
