//! Conversations that `previous_response_id` continues.
//!
//! They are kept in memory, within a number and a sum of bytes; the oldest make room for the newest. One that is larger than
//! all the room is not kept. What is gone, and what never was, is the same error to a client.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::super::error::{ApiError, ErrorCode};

/// A bounded store of conversations by the ids of their last responses.
#[derive(Debug)]
pub struct ResponseStore {
    responses_max: usize,
    bytes_max: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Serialized, because that is compact and its size is known.
    conversations: HashMap<String, String>,
    /// Ids, oldest first.
    order: VecDeque<String>,
    bytes: usize,
}

impl ResponseStore {
    pub fn new(responses_max: usize, bytes_max: usize) -> Self {
        Self { responses_max, bytes_max, kept: Mutex::default() }
    }

    /// The messages of a response's conversation, its answer included.
    ///
    /// # Errors
    /// A 404 that says what to send instead.
    pub fn find(&self, id: &str) -> Result<Vec<Value>, ApiError> {
        let found = self.kept().conversations.get(id).cloned();
        let conversation = found.ok_or_else(|| {
            let message = format!(
                "There is no response '{id}' here: it was never stored, or others took its room. Send the whole \
                 conversation as 'input'."
            );
            ApiError::of(ErrorCode::ResponseNotFound, "previous_response_id", message)
        })?;
        Ok(serde_json::from_str(&conversation).expect("it was serialized from messages"))
    }

    /// Keeps a conversation under a new id.
    pub fn insert(&self, id: String, messages: &[Value]) {
        let conversation = serde_json::to_string(messages).expect("messages are JSON");
        if conversation.len() > self.bytes_max || self.responses_max == 0 {
            return;
        }
        let mut kept = self.kept();
        while kept.order.len() >= self.responses_max || kept.bytes + conversation.len() > self.bytes_max {
            let oldest = kept.order.pop_front().expect("something takes the room");
            let gone = kept.conversations.remove(&oldest).expect("every id in the order has a conversation");
            kept.bytes -= gone.len();
        }
        kept.bytes += conversation.len();
        kept.order.push_back(id.clone());
        kept.conversations.insert(id, conversation);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // A panic elsewhere leaves a conversation kept or gone, both of which are in order.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_oldest_make_room_within_the_number_and_the_bytes() {
        let message = |text: &str| [json!({"role": "user", "content": text})];
        let bytes = serde_json::to_string(&message("a")).unwrap().len();
        let store = ResponseStore::new(2, 3 * bytes);
        for id in ["1", "2", "3"] {
            store.insert(id.to_owned(), &message("a"));
        }
        let error = store.find("1").unwrap_err();
        assert_eq!(
            (error.code, error.param.as_deref()),
            (ErrorCode::ResponseNotFound, Some("previous_response_id"))
        );
        assert_eq!(store.find("2").unwrap(), message("a"));
        store.insert("4".to_owned(), &message(&"b".repeat(bytes + 2)));
        assert!(store.find("2").is_err());
        assert!(store.find("3").is_err(), "two messages take more than the bytes");
        store.insert("5".to_owned(), &message(&"c".repeat(3 * bytes)));
        assert!(store.find("5").is_err() && store.find("4").is_ok());
    }
}
