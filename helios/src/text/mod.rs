//! Tokenizer, incremental decoding, chat templates and stop strings.
