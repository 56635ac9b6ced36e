//! HTTP and SSE: the OpenAI-compatible surface of one loaded core.
//!
//! Sockets, parsing and formatting run here; tokens come from the engine handle. A response's status and headers are sent
//! only once the engine has admitted the request, and dropping a response, in whatever phase, cancels its
//! generations. Everything a client can make grow has a bound named in [`ServerConfig`] or beside its use.
//! Nothing here waits for the model thread on a socket thread, and no internal text reaches a body.

mod body;
mod chat;
mod completions;
mod connection;
mod error;
mod fields;
mod generate;
mod health;
mod logprobs;
mod messages;
mod models;
mod options;
mod routes;
mod service;
mod sse;
#[cfg(test)]
mod tests;

pub use connection::{Ended, serve};
pub use error::{ApiError, ErrorCode};
pub use options::ZeroTemperature;
pub use service::{ModelProfile, ServerConfig, Service};
