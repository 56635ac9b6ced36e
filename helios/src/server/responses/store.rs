//! Responses that were finished, and the conversations that `previous_response_id` continues.
//!
//! They are kept in memory, within a number and a sum of bytes; the oldest make room for the newest. One that is larger than
//! all the room is not kept. What is gone, what never was, and what another client was answered, is the same error to a client.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::super::error::{ApiError, ErrorCode};
use crate::ids::ClientId;

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
    /// Whom it was given to; nobody else is told of it.
    client: ClientId,
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
    pub fn conversation(&self, client: ClientId, id: &str) -> Result<Vec<Value>, ApiError> {
        let found = self.kept().of(client, id).map(|stored| stored.conversation.clone());
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
    pub fn response(&self, client: ClientId, id: &str) -> Result<String, ApiError> {
        let found = self.kept().of(client, id).map(|stored| stored.response.clone());
        found.ok_or_else(|| ApiError::new(ErrorCode::ResponseNotFound, unknown(id)))
    }

    /// Keeps a response to `client` and its conversation under a new id.
    pub fn insert(&self, client: ClientId, id: String, response: String, messages: &[Value]) {
        let conversation = serde_json::to_string(messages).expect("messages are JSON");
        let stored = StoredResponse { client, response, conversation };
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
    pub fn remove(&self, client: ClientId, id: &str) -> Result<(), ApiError> {
        let mut kept = self.kept();
        if kept.of(client, id).is_none() {
            return Err(ApiError::new(ErrorCode::ResponseNotFound, unknown(id)));
        }
        kept.remove(id);
        Ok(())
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // A panic elsewhere leaves a response kept or gone, both of which are in order.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn of(&self, client: ClientId, id: &str) -> Option<&StoredResponse> {
        self.responses.get(id).filter(|stored| stored.client == client)
    }

    fn remove(&mut self, id: &str) {
        let Some(gone) = self.responses.remove(id) else { return };
        self.bytes -= gone.bytes();
        self.order.retain(|kept| kept != id);
    }
}

fn unknown(id: &str) -> String {
    format!("There is no response '{id}' here: it was never stored, or others took its room.")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CLIENT: ClientId = ClientId(1);

    #[test]
    fn one_clients_responses_are_nobody_elses() {
        let (store, other) = (ResponseStore::new(2, 1 << 20), ClientId(2));
        store.insert(CLIENT, "id".to_owned(), "{}".to_owned(), &[]);
        assert!(store.response(other, "id").is_err() && store.conversation(other, "id").is_err());
        assert!(store.remove(other, "id").is_err());
        assert_eq!(store.response(CLIENT, "id").unwrap(), "{}");
        store.remove(CLIENT, "id").unwrap();
    }

    #[test]
    fn a_conversation_that_nests_too_deep_to_be_read_again_is_not_found() {
        let store = ResponseStore::new(2, 1 << 20);
        for (depth, is_found) in [(100, true), (200, false)] {
            let arguments = (0..depth).fold(json!({}), |inner, _| json!({"a": inner}));
            store.insert(CLIENT, "id".to_owned(), "{}".to_owned(), &[json!({"arguments": arguments})]);
            assert_eq!(store.conversation(CLIENT, "id").is_ok(), is_found, "{depth}");
            store.remove(CLIENT, "id").unwrap();
        }
    }

    #[test]
    fn the_oldest_make_room_within_the_number_and_the_bytes() {
        let message = |text: &str| [json!({"role": "user", "content": text})];
        let response = || "{}".to_owned();
        let bytes = serde_json::to_string(&message("a")).unwrap().len() + response().len();
        let store = ResponseStore::new(2, 3 * bytes);
        for id in ["1", "2", "3"] {
            store.insert(CLIENT, id.to_owned(), response(), &message("a"));
        }
        let error = store.conversation(CLIENT, "1").unwrap_err();
        assert_eq!(
            (error.code, error.param.as_deref()),
            (ErrorCode::PreviousResponseNotFound, Some("previous_response_id"))
        );
        assert_eq!(store.response(CLIENT, "1").unwrap_err().code, ErrorCode::ResponseNotFound);
        assert_eq!(store.conversation(CLIENT, "2").unwrap(), message("a"));
        store.insert(CLIENT, "4".to_owned(), response(), &message(&"b".repeat(bytes + 2)));
        assert!(store.conversation(CLIENT, "2").is_err());
        assert!(store.conversation(CLIENT, "3").is_err(), "two responses take more than the bytes");
        store.insert(CLIENT, "5".to_owned(), response(), &message(&"c".repeat(3 * bytes)));
        assert!(store.conversation(CLIENT, "5").is_err() && store.conversation(CLIENT, "4").is_ok());
        store.remove(CLIENT, "4").unwrap();
        assert!(store.response(CLIENT, "4").is_err() && store.remove(CLIENT, "4").is_err());
        let kept = store.kept();
        assert_eq!((kept.bytes, kept.order.len()), (0, 0));
    }
}
