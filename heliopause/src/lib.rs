//! Heliopause: what Ignition needs of Helios while it prepares a core.
//!
//! It hands Python memory at a core's fixed addresses, and loads and runs finished cores with Helios' own loader. It owns
//! no format and no policy: whatever it does is a call into Helios. The classes are described for Python in
//! `flare_heliopause.pyi`.

mod arena;
mod core;
mod error;

use pyo3::prelude::*;

#[pymodule(gil_used = true)]
mod flare_heliopause {
    #[pymodule_export]
    use super::arena::Arena;
    #[pymodule_export]
    use super::core::Core;
    #[pymodule_export]
    use super::error::HeliopauseError;
}
