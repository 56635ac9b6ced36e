//! Responses that were finished, and the conversations that `previous_response_id` continues.
//!
//! They are kept in memory, within a number and a sum of bytes; the oldest make room for the newest. One that is larger than
//! all the room is not kept. What is gone, and what never was, is the same error to a client.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::super::error::{ApiError, ErrorCode};

/// A bounded store of responses by their ids.
#[derive(Debug)]
pub struct ResponseStore {
    responses_max: usize,
    bytes_max: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    responses: HashMap<String, StoredResponse>,
    /// Ids, oldest first.
    order: VecDeque<String>,
    bytes: usize,
}

/// A response and its conversation, serialized, because that is compact and its size is known.
#[derive(Clone, Debug)]
struct StoredResponse {
    response: String,
    /// The messages up to and with the answer.
    conversation: String,
}

impl StoredResponse {
    fn bytes(&self) -> usize {
        self.response.len() + self.conversation.len()
    }
}

impl ResponseStore {
    pub fn new(responses_max: usize, bytes_max: usize) -> Self {
        Self { responses_max, bytes_max, kept: Mutex::default() }
    }

    /// The messages of a response's conversation, its answer included.
    ///
    /// # Errors
    /// A 404 that says what to send instead.
    pub fn conversation(&self, id: &str) -> Result<Vec<Value>, ApiError> {
        let found = self.kept().responses.get(id).map(|stored| stored.conversation.clone());
        // Arguments may nest as deep as the parser goes, and nest deeper in a message than it does.
        found.and_then(|conversation| serde_json::from_str(&conversation).ok()).ok_or_else(|| {
            let message = format!("{} Send the whole conversation as 'input'.", unknown(id));
            ApiError::of(ErrorCode::PreviousResponseNotFound, "previous_response_id", message)
        })
    }

    /// A response's JSON.
    ///
    /// # Errors
    /// A 404.
    pub fn response(&self, id: &str) -> Result<String, ApiError> {
        let found = self.kept().responses.get(id).map(|stored| stored.response.clone());
        found.ok_or_else(|| ApiError::new(ErrorCode::ResponseNotFound, unknown(id)))
    }

    /// Keeps a response and its conversation under a new id.
    pub fn insert(&self, id: String, response: String, messages: &[Value]) {
        let conversation = serde_json::to_string(messages).expect("messages are JSON");
        let stored = StoredResponse { response, conversation };
        if stored.bytes() > self.bytes_max || self.responses_max == 0 {
            return;
        }
        let mut kept = self.kept();
        while kept.order.len() >= self.responses_max || kept.bytes + stored.bytes() > self.bytes_max {
            let oldest = kept.order.front().expect("something takes the room").clone();
            kept.remove(&oldest);
        }
        kept.bytes += stored.bytes();
        kept.order.push_back(id.clone());
        kept.responses.insert(id, stored);
    }

    /// Forgets a response and its conversation.
    ///
    /// # Errors
    /// A 404.
    pub fn remove(&self, id: &str) -> Result<(), ApiError> {
        match self.kept().remove(id) {
            true => Ok(()),
            false => Err(ApiError::new(ErrorCode::ResponseNotFound, unknown(id))),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // A panic elsewhere leaves a response kept or gone, both of which are in order.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// Whether it was there.
    fn remove(&mut self, id: &str) -> bool {
        let Some(gone) = self.responses.remove(id) else { return false };
        self.bytes -= gone.bytes();
        self.order.retain(|kept| kept != id);
        true
    }
}

fn unknown(id: &str) -> String {
    format!("There is no response '{id}' here: it was never stored, or others took its room.")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_conversation_that_nests_too_deep_to_be_read_again_is_not_found() {
        let store = ResponseStore::new(2, 1 << 20);
        for (depth, is_found) in [(100, true), (200, false)] {
            let arguments = (0..depth).fold(json!({}), |inner, _| json!({"a": inner}));
            store.insert("id".to_owned(), "{}".to_owned(), &[json!({"arguments": arguments})]);
            assert_eq!(store.conversation("id").is_ok(), is_found, "{depth}");
            store.remove("id").unwrap();
        }
    }

    #[test]
    fn the_oldest_make_room_within_the_number_and_the_bytes() {
        let message = |text: &str| [json!({"role": "user", "content": text})];
        let response = || "{}".to_owned();
        let bytes = serde_json::to_string(&message("a")).unwrap().len() + response().len();
        let store = ResponseStore::new(2, 3 * bytes);
        for id in ["1", "2", "3"] {
            store.insert(id.to_owned(), response(), &message("a"));
        }
        let error = store.conversation("1").unwrap_err();
        assert_eq!(
            (error.code, error.param.as_deref()),
            (ErrorCode::PreviousResponseNotFound, Some("previous_response_id"))
        );
        assert_eq!(store.response("1").unwrap_err().code, ErrorCode::ResponseNotFound);
        assert_eq!(store.conversation("2").unwrap(), message("a"));
        store.insert("4".to_owned(), response(), &message(&"b".repeat(bytes + 2)));
        assert!(store.conversation("2").is_err());
        assert!(store.conversation("3").is_err(), "two responses take more than the bytes");
        store.insert("5".to_owned(), response(), &message(&"c".repeat(3 * bytes)));
        assert!(store.conversation("5").is_err() && store.conversation("4").is_ok());
        store.remove("4").unwrap();
        assert!(store.response("4").is_err() && store.remove("4").is_err());
        let kept = store.kept();
        assert_eq!((kept.bytes, kept.order.len()), (0, 0));
    }
}
