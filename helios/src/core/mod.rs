//! The runtime core: read the file, validate the contract, bind it to typed views.
//!
//! Everything in a file is an allegation until [`contract::BoundContract`] has been built from it. Only this module and the
//! server know serialized types.

pub mod contract;

/// Messages generated from `proto/core.proto`.
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/flare.core.v1.rs"));
}
