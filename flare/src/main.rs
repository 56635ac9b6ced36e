//! The `flare` binary: wiring, signals and exit codes.

fn main() {}
