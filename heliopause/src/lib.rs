//! Heliopause: what Ignition needs of Helios while it prepares a core.

use pyo3::prelude::*;

#[pymodule(gil_used = true)]
mod flare_heliopause {}
