//! The runtime's clock. Everything below the runtime gets the time as an argument.

use std::time::Instant;

#[expect(clippy::disallowed_methods, reason = "the runtime is the shell that reads the clock")]
pub(super) fn now() -> Instant {
    Instant::now()
}
