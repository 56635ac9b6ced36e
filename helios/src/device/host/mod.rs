//! The host device: a core's memory and programs inside this process, on the machine's own processors.

pub mod mapping;
