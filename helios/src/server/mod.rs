//! HTTP and SSE.
