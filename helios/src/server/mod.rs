//! HTTP and SSE: the APIs of OpenAI and Anthropic for one loaded core.
//!
//! Four APIs are thin adapters: each reads its bodies into a `GenerationPlan`, by way of a
//! `Conversation` where it has messages, and spells the one stream of `ChoiceEvent`s in its own way.
//!
//! Sockets, parsing and formatting run here; tokens come from the engine handle. A response's status and headers are sent
//! only once the engine has admitted the request, and dropping a response, in whatever phase, cancels its
//! generations. Everything a client can make grow has a bound named in [`ServerConfig`] or beside its use.
//! Nothing here waits for the model thread on a socket thread, and no internal text reaches a body.

mod answer;
mod auth;
mod body;
mod chat;
mod choice;
mod completions;
mod connection;
mod constraint;
mod content;
mod conversation;
mod cors;
mod error;
mod fields;
mod generate;
mod health;
mod logprobs;
mod messages;
mod metrics;
mod models;
mod options;
mod patience;
mod reading;
mod responses;
mod routes;
mod selection;
mod service;
mod sse;
#[cfg(test)]
mod tests;
mod tokenize;

pub use auth::ApiKey;
pub use connection::{Ended, serve};
pub use cors::CorsOrigin;
pub use error::{ApiError, ErrorCode};
pub use options::ZeroTemperature;
pub use service::{ModelProfile, ServerConfig, Service};
