//! Which web pages may send requests: none, unless their origin is named.

use std::str::FromStr;

use axum::http::{HeaderName, HeaderValue, Method};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

/// The origin of a web page, such as `https://example.org`, or `*` for all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorsOrigin(HeaderValue);

impl FromStr for CorsOrigin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || {
            "an origin is a scheme, a host and perhaps a port, such as https://example.org, or *".to_owned()
        };
        let is_origin = text.split_once("://").is_some_and(|(scheme, rest)| {
            !scheme.is_empty() && !rest.is_empty() && !rest.contains(['/', '?', '#'])
        });
        if text != "*" && !is_origin {
            return Err(wrong());
        }
        HeaderValue::from_str(text).map(Self).map_err(|_| wrong())
    }
}

/// Answers browsers' questions; `None` leaves them without an answer, which means no.
pub(super) fn layer(origins: &[CorsOrigin], exposed: HeaderName) -> Option<CorsLayer> {
    let allowed = match origins {
        [] => return None,
        origins if origins.iter().any(|origin| origin.0 == "*") => AllowOrigin::any(),
        origins => AllowOrigin::list(origins.iter().map(|origin| origin.0.clone())),
    };
    Some(
        CorsLayer::new()
            .allow_origin(allowed)
            .allow_methods([Method::GET, Method::POST, Method::DELETE])
            // Clients send headers of their own, which say nothing that is believed here.
            .allow_headers(AllowHeaders::mirror_request())
            .expose_headers([exposed]),
    )
}
