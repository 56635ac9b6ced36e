//! Physical budgets, load-time sizing of rows and pages, and loading a core within them.
//!
//! How much memory the machine has is read here; what a core makes of it is [`plan`], a pure function. Nothing is resized after
//! loading.

mod load;
mod machine;
mod sizing;

pub use load::{LoadError, LoadedCore, MemoryOptions, PlacedCore, load};
pub use sizing::{Budget, MemoryError, MemoryPlan, plan};
