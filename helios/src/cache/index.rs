//! Finds the deepest stored prefix of a history.
//!
//! Entries are kept under the digest of their last complete block, so a search takes one look-up for each block of the history,
//! from the end, and hashes a tail only where an entry exists.

use std::collections::BTreeMap;

use crate::ids::Digest;

use super::prefix::{BLOCK_TOKENS, History, PrefixChain, PrefixName};

#[derive(Clone, Debug)]
struct Entry<V> {
    name: PrefixName,
    value: V,
}

/// What is stored, by prefix name; one value a name.
#[derive(Clone, Debug)]
pub struct PrefixIndex<V> {
    /// Under one block, the deepest first.
    entries: BTreeMap<Digest, Vec<Entry<V>>>,
}

impl<V> Default for PrefixIndex<V> {
    fn default() -> Self {
        Self { entries: BTreeMap::new() }
    }
}

impl<V: Copy> PrefixIndex<V> {
    pub fn get(&self, name: &PrefixName) -> Option<V> {
        let entries = self.entries.get(&name.block)?;
        entries.iter().find(|entry| entry.name == *name).map(|entry| entry.value)
    }

    /// Keeps `value` under a name that nothing is kept under yet.
    pub fn insert(&mut self, name: PrefixName, value: V) {
        let entries = self.entries.entry(name.block).or_default();
        let place = entries.partition_point(|entry| entry.name.consumed > name.consumed);
        entries.insert(place, Entry { name, value });
    }

    pub fn remove(&mut self, name: &PrefixName) -> Option<V> {
        let entries = self.entries.get_mut(&name.block)?;
        let place = entries.iter().position(|entry| entry.name == *name)?;
        let value = entries.remove(place).value;
        if entries.is_empty() {
            self.entries.remove(&name.block);
        }
        Some(value)
    }

    /// The deepest entry that is a prefix of a history's first `tokens` tokens, which `chain` covers.
    pub fn deepest(
        &self,
        chain: &PrefixChain,
        tokens: u32,
        history: &(impl History + ?Sized),
    ) -> Option<(PrefixName, V)> {
        for block in (0..=tokens / BLOCK_TOKENS).rev() {
            let Some(entries) = self.entries.get(&chain.block(block)) else { continue };
            let is_prefix = |entry: &&Entry<V>| {
                entry.name.consumed <= tokens && chain.name(entry.name.consumed, history) == entry.name
            };
            if let Some(entry) = entries.iter().find(is_prefix) {
                return Some((entry.name, entry.value));
            }
        }
        None
    }

    pub fn iter(&self) -> impl Iterator<Item = (&PrefixName, V)> {
        self.entries.values().flatten().map(|entry| (&entry.name, entry.value))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::ids::TokenId;

    fn chain(tokens: &[TokenId]) -> PrefixChain {
        let mut chain = PrefixChain::new(Digest([0; 32]), Arc::from([]));
        chain.extend(tokens.len() as u32, tokens);
        chain
    }

    /// Histories that share prefixes of every length: runs of one token with a few changes.
    fn history() -> impl Strategy<Value = Vec<TokenId>> {
        (1..260usize, prop::collection::vec(0..260usize, 0..3)).prop_map(|(length, changes)| {
            (0..length).map(|position| TokenId(u32::from(changes.contains(&position)))).collect()
        })
    }

    proptest! {
        /// The naive index keeps the tokens themselves and compares them all.
        #[test]
        fn the_deepest_prefix_is_what_comparing_every_token_finds(
            stored in prop::collection::vec((history(), any::<bool>()), 0..20),
            probe in history(),
        ) {
            let mut index = PrefixIndex::default();
            let mut naive: Vec<(Vec<TokenId>, usize)> = Vec::new();
            for (value, (tokens, leaves)) in stored.into_iter().enumerate() {
                let name = chain(&tokens).name(tokens.len() as u32, tokens.as_slice());
                let known = naive.iter().position(|(other, _)| *other == tokens);
                prop_assert_eq!(index.get(&name), known.map(|at| naive[at].1));
                match known {
                    None => {
                        index.insert(name, value);
                        naive.push((tokens, value));
                    }
                    Some(at) if leaves => prop_assert_eq!(index.remove(&name), Some(naive.remove(at).1)),
                    Some(_) => {}
                }
            }
            let best = naive.iter().filter(|(tokens, _)| probe.starts_with(tokens));
            let best = best.max_by_key(|(tokens, _)| tokens.len());
            let found = index.deepest(&chain(&probe), probe.len() as u32, probe.as_slice());
            prop_assert_eq!(
                found.map(|(name, value)| (name.consumed as usize, value)),
                best.map(|(tokens, value)| (tokens.len(), *value))
            );
            prop_assert_eq!(index.iter().count(), naive.len());
        }
    }
}
