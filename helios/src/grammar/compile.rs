//! Compilation, once for equal sources.

use std::sync::{Arc, Mutex, PoisonError};

use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::InferenceCapabilities;
use llguidance::{Matcher, ParserFactory};

use super::cache::Cache;
use super::{Constraint, Envelope, GrammarError, GrammarSource, Vocabulary, reason_of};

/// Stack for compiling: references of a schema are followed by recursion, as deep as [`GrammarLimits::source_bytes_max`] lets them chain.
const COMPILE_STACK_BYTES: usize = 128 << 20;

/// What a constraint may cost.
#[derive(Clone, Debug)]
pub struct GrammarLimits {
    /// Bytes of a source and its delimiters.
    pub source_bytes_max: usize,
    /// Symbols of a compiled grammar. llguidance numbers them in 16 bits.
    pub symbols_max: usize,
    /// Steps for building a lexer, 50 of which take about 1 µs.
    pub compile_fuel: u64,
    /// Steps of the lexer for one mask, 14 of which take about 1 µs.
    pub mask_fuel: u64,
    /// Parser items for one mask, 20 of which take about 1 µs.
    pub mask_items_max: usize,
    /// States of one request's lexer, 1 to 2 KiB each.
    pub lexer_states_max: usize,
    /// Compiled constraints that are kept, and the bytes of their sources.
    pub cached_max: usize,
    pub cached_source_bytes_max: usize,
}

impl Default for GrammarLimits {
    fn default() -> Self {
        Self {
            source_bytes_max: 128 << 10,
            symbols_max: 50_000,
            compile_fuel: 1_000_000,
            mask_fuel: 200_000,
            mask_items_max: 50_000,
            lexer_states_max: 50_000,
            cached_max: 64,
            cached_source_bytes_max: 1 << 20,
        }
    }
}

/// Compiles constraints for one vocabulary.
///
/// Creating one takes tens of milliseconds. Its holder does that for the first request with a constraint, in a
/// [`OnceLock`](std::sync::OnceLock) and away from the threads that serve sockets.
pub struct GrammarCompiler {
    factory: ParserFactory,
    vocabulary: Vocabulary,
    limits: GrammarLimits,
    cache: Mutex<Cache>,
}

impl std::fmt::Debug for GrammarCompiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrammarCompiler")
            .field("vocabulary", &self.vocabulary)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl GrammarCompiler {
    /// # Errors
    /// [`GrammarError::Internal`] if llguidance cannot use the vocabulary.
    pub fn new(vocabulary: Vocabulary, limits: GrammarLimits) -> Result<Self, GrammarError> {
        let mut factory =
            ParserFactory::new(&vocabulary.environment, InferenceCapabilities::default(), &slices())
                .map_err(|error| GrammarError::Internal(reason_of(&error.to_string())))?;
        factory.quiet();
        *factory.limits_mut() = ParserLimits {
            initial_lexer_fuel: limits.compile_fuel,
            step_lexer_fuel: limits.mask_fuel,
            step_max_items: limits.mask_items_max,
            max_lexer_states: limits.lexer_states_max,
            max_grammar_size: limits.symbols_max,
            verbose_errors: false,
            ..ParserLimits::default()
        };
        let cache = Mutex::new(Cache::new(limits.cached_max, limits.cached_source_bytes_max));
        Ok(Self { factory, vocabulary, limits, cache })
    }

    /// The constraint's state before the first token.
    ///
    /// # Errors
    /// Whatever keeps the source from being enforced as a whole: see [`GrammarError`].
    pub fn compile(&self, source: &GrammarSource, envelope: &Envelope) -> Result<Constraint, GrammarError> {
        let key = format!("{}\0{}", envelope.key(), source.key());
        if key.len() > self.limits.source_bytes_max {
            return Err(GrammarError::TooLong { bytes: key.len(), bytes_max: self.limits.source_bytes_max });
        }
        let found = self.cache().find(&key);
        if let Some(start) = found {
            return Ok(Constraint::clone(&start));
        }
        let start = on_a_deep_stack(|| self.compile_anew(source, envelope))?;
        self.cache().insert(key, Arc::new(start.clone()));
        Ok(start)
    }

    fn compile_anew(&self, source: &GrammarSource, envelope: &Envelope) -> Result<Constraint, GrammarError> {
        let mut answer = source.grammar()?;
        answer.name = Some("answer".to_owned());
        let mut grammars = envelope.grammars("answer", &self.vocabulary)?;
        grammars.push(answer);
        let grammar = TopLevelGrammar { grammars, max_tokens: None };
        let parser =
            self.factory.create_parser(grammar).map_err(|error| source.refusal(&error.to_string()))?;
        let mut matcher = Matcher::new(Ok(parser));
        // Where llguidance only warns, something would not be enforced.
        if let Some(warning) = matcher.grammar_warnings().first() {
            return Err(source.refusal(warning));
        }
        // The first mask is the same for every request, and shows whether there is a first token at all.
        let mut start = Constraint::new(matcher, self.vocabulary.clone());
        start.mask(&mut vec![0; start.mask_words()])?;
        Ok(start)
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        // Nothing that can panic leaves the cache half changed.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sets of tokens that a mask may take whole where the grammar admits every one of them: those of JSON's strings, and words,
/// which other expressions admit and which are a good part of most vocabularies.
fn slices() -> Vec<String> {
    let mut slices = SlicedBiasComputer::general_slices();
    slices.extend(["[a-z]{1,10}", " [a-z]{1,10}"].map(str::to_owned));
    slices
}

fn on_a_deep_stack<T: Send>(
    work: impl FnOnce() -> Result<T, GrammarError> + Send,
) -> Result<T, GrammarError> {
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("flare-grammar".to_owned())
            .stack_size(COMPILE_STACK_BYTES)
            .spawn_scoped(scope, work)
            .map_err(|error| GrammarError::Internal(format!("no thread to compile on: {error}")))?
            .join()
            .unwrap_or_else(|_| Err(GrammarError::Internal("compilation panicked".to_owned())))
    })
}
