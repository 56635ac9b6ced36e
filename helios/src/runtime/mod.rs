//! The model thread: it feeds the scheduler, packs inputs, launches programs and delivers completions.

pub mod engine;
