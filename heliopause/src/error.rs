//! Helios' errors as the one Python exception of this module.

use pyo3::PyErr;

pyo3::create_exception!(
    flare_heliopause,
    HeliopauseError,
    pyo3::exceptions::PyRuntimeError,
    "Helios refused an operation; the message says what was wrong, where, and what to do."
);

/// Makes a Python exception of an error and its causes.
pub fn raise(error: impl std::error::Error) -> PyErr {
    HeliopauseError::new_err(error.to_string())
}
