//! What a parser makes of a model's output.

/// One step of an answer. Of one call: its start, its arguments' pieces in order, its end, and nothing else between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputEvent {
    Text(String),
    Reasoning(String),
    /// A call to a declared tool. Indexes rise from 0 by one a call.
    ToolCallStart {
        index: u32,
        id: String,
        name: String,
    },
    /// The next piece of the arguments' JSON text.
    ToolCallArguments {
        index: u32,
        delta: String,
    },
    /// The arguments are one complete JSON object. A call that never gets here was too long to be held and broke off.
    ToolCallEnd {
        index: u32,
    },
}

/// Appends an event; one that continues the last is merged with it.
pub(super) fn append(events: &mut Vec<OutputEvent>, event: OutputEvent) {
    match (events.last_mut(), &event) {
        (Some(OutputEvent::Text(text)), OutputEvent::Text(more))
        | (Some(OutputEvent::Reasoning(text)), OutputEvent::Reasoning(more)) => text.push_str(more),
        (
            Some(OutputEvent::ToolCallArguments { index, delta }),
            OutputEvent::ToolCallArguments { index: of, delta: more },
        ) if index == of => delta.push_str(more),
        _ => events.push(event),
    }
}
