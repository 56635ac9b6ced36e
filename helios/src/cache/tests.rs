//! The cache against a naive model that writes down every checkpoint's tokens and whole list of pages.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::ids::{Digest, PageId, RequestId, SnapshotId, StepId, TokenId};

const PAGE_TOKENS: u32 = 3;

/// A request as the scheduler would keep it.
#[derive(Clone, Debug)]
struct Borrower {
    owner: Owner,
    tokens: Vec<TokenId>,
    base: Option<SnapshotId>,
    /// The base's pages, then its own.
    pages: Vec<PageId>,
    shared: usize,
}

#[derive(Clone, Debug)]
struct Known {
    tokens: Vec<TokenId>,
    pages: Vec<PageId>,
    snapshot: SnapshotId,
}

#[derive(Clone, Debug)]
enum Operation {
    /// Starts from whatever is cached of a known prefix with some tokens behind it.
    Start {
        known: usize,
        kept: usize,
        more: Vec<u32>,
    },
    Extend {
        borrower: usize,
        tokens: u32,
    },
    Publish {
        borrower: usize,
    },
    Leave {
        borrower: usize,
    },
    Submit,
    Complete,
}

fn operation() -> impl Strategy<Value = Operation> {
    let index = any::<usize>();
    prop_oneof![
        3 => (index, 0..40usize, prop::collection::vec(0..2u32, 0..8))
            .prop_map(|(known, kept, more)| Operation::Start { known, kept, more }),
        4 => (index, 1..8u32).prop_map(|(borrower, tokens)| Operation::Extend { borrower, tokens }),
        4 => index.prop_map(|borrower| Operation::Publish { borrower }),
        2 => index.prop_map(|borrower| Operation::Leave { borrower }),
        2 => Just(Operation::Submit),
        3 => Just(Operation::Complete),
    ]
}

struct Model {
    cache: PrefixCache,
    borrowers: Vec<Borrower>,
    known: Vec<Known>,
    submitted: u64,
    completed: u64,
    requests: u64,
}

impl Model {
    fn new(pages: u32, snapshots: u32) -> Self {
        Self {
            cache: PrefixCache::new(PAGE_TOKENS, pages, snapshots),
            borrowers: Vec::new(),
            known: Vec::new(),
            submitted: 0,
            completed: 0,
            requests: 0,
        }
    }

    fn apply(&mut self, operation: Operation) {
        let count = self.borrowers.len();
        match operation {
            Operation::Start { known, kept, more } => self.start(known, kept, &more),
            Operation::Extend { borrower, tokens } if count > 0 => self.extend(borrower % count, tokens),
            Operation::Publish { borrower } if count > 0 => self.publish(borrower % count),
            Operation::Leave { borrower } if count > 0 => self.leave(borrower % count),
            Operation::Submit => self.submitted += 1,
            Operation::Complete if self.completed < self.submitted => {
                self.completed += 1;
                self.cache.complete(StepId(self.completed));
            }
            _ => {}
        }
        self.forget_evicted();
        self.check();
    }

    fn start(&mut self, known: usize, kept: usize, more: &[u32]) {
        let mut tokens = match self.known.len() {
            0 => Vec::new(),
            count => self.known[known % count].tokens.clone(),
        };
        tokens.truncate(kept);
        tokens.extend(more.iter().copied().map(TokenId));
        let found = self.cache.find(&chain(&tokens), tokens.len() as u32, tokens.as_slice());
        let best = self.known.iter().filter(|known| tokens.starts_with(&known.tokens));
        let best = best.max_by_key(|known| known.tokens.len());
        assert_eq!(found, best.map(|best| (best.snapshot, best.tokens.len() as u32)));
        self.requests += 1;
        let owner = Owner::Request(RequestId(self.requests));
        let (base, consumed) = found.map_or((None, 0), |(snapshot, consumed)| (Some(snapshot), consumed));
        let mut pages = base.map(|snapshot| self.cache.pages_of(snapshot)).unwrap_or_default();
        if let Some(snapshot) = base {
            self.cache.pin(snapshot);
        }
        let shared = pages.len();
        if !consumed.is_multiple_of(PAGE_TOKENS) {
            // The partial page is a copy of its own.
            let Some(page) = self.cache.take_page(owner) else {
                return base.into_iter().for_each(|base| self.cache.unpin(base, StepId(self.submitted)));
            };
            pages.push(page);
        }
        tokens.truncate(consumed as usize);
        self.borrowers.push(Borrower { owner, tokens, base, shared, pages });
    }

    fn extend(&mut self, borrower: usize, tokens: u32) {
        let is_held =
            |page: PageId, model: &Self| model.borrowers.iter().any(|one| one.pages.contains(&page));
        for token in 0..tokens {
            let length = self.borrowers[borrower].tokens.len() as u32;
            if length.is_multiple_of(PAGE_TOKENS) {
                let room = self.cache.room(None);
                let page = self.cache.take_page(self.borrowers[borrower].owner);
                assert_eq!(page.is_some(), room > 0, "room is what can be had");
                let Some(page) = page else { return };
                assert!(!is_held(page, self), "a page is handed out while somebody reads it");
                self.borrowers[borrower].pages.push(page);
            }
            self.borrowers[borrower].tokens.push(TokenId(token % 2));
        }
    }

    fn publish(&mut self, index: usize) {
        let Borrower { owner, tokens, base, pages, shared } = self.borrowers[index].clone();
        if tokens.is_empty() {
            return;
        }
        let name = chain(&tokens).name(tokens.len() as u32, tokens.as_slice());
        let is_known = self.known.iter().any(|known| known.tokens == tokens);
        let Some(snapshot) = self.cache.take_snapshot(owner) else { return };
        self.forget_evicted();
        let complete = tokens.len() / PAGE_TOKENS as usize;
        let own = pages[shared..].get(..complete - shared).unwrap();
        match self.cache.publish(owner, snapshot, name, base, own) {
            Published::Duplicate => assert!(is_known),
            Published::New => {
                self.known.push(Known { tokens, pages: pages[..complete].to_vec(), snapshot });
                let one = &mut self.borrowers[index];
                (one.base, one.shared) = (Some(snapshot), complete);
            }
        }
    }

    fn leave(&mut self, index: usize) {
        let one = self.borrowers.remove(index);
        let last_use = StepId(self.submitted);
        for &page in &one.pages[one.shared..] {
            self.cache.release_page(page, one.owner, last_use);
        }
        if let Some(base) = one.base {
            self.cache.unpin(base, last_use);
        }
    }

    /// What is gone was not pinned, and there was a reason.
    fn forget_evicted(&mut self) {
        let cache = &self.cache;
        let (gone, known): (Vec<Known>, Vec<Known>) = self.known.drain(..).partition(|known| {
            let tokens = known.tokens.as_slice();
            let found = cache.find(&chain(tokens), tokens.len() as u32, tokens);
            found.is_none_or(|(snapshot, consumed)| {
                (snapshot, consumed as usize) != (known.snapshot, tokens.len())
            })
        });
        self.known = known;
        for known in gone {
            assert!(
                self.borrowers.iter().all(|one| one.base != Some(known.snapshot)),
                "a pinned one is gone"
            );
        }
    }

    fn check(&self) {
        for known in &self.known {
            assert_eq!(self.cache.pages_of(known.snapshot), known.pages, "a chain has other pages");
        }
        let mut holdings = Holdings::default();
        for one in &self.borrowers {
            holdings.pages.extend(one.pages[one.shared..].iter().map(|&page| (one.owner, page)));
            holdings.pins.extend(one.base);
        }
        self.cache.check_integrity(&holdings).unwrap();
        assert_eq!(self.cache.stats().checkpoints as usize, self.known.len());
    }
}

fn chain(tokens: &[TokenId]) -> PrefixChain {
    let mut chain = PrefixChain::new(Digest([0; 32]), Arc::from([]));
    chain.extend(tokens.len() as u32, tokens);
    chain
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn checkpoints_are_what_was_published_for_as_long_as_they_are_there(
        pages in 1..20u32,
        snapshots in 0..7u32,
        operations in prop::collection::vec(operation(), 0..120),
    ) {
        let mut model = Model::new(pages, snapshots);
        for operation in operations {
            model.apply(operation);
        }
    }
}

/// Publishes a chain at the given positions and lets it go; gives the snapshots.
fn published(cache: &mut PrefixCache, salt: u32, positions: &[u32]) -> Vec<SnapshotId> {
    let owner = Owner::Request(RequestId(u64::from(salt)));
    let tokens: Vec<TokenId> = (0..*positions.last().unwrap()).map(|_| TokenId(salt)).collect();
    let (mut base, mut shared) = (None, 0);
    let mut snapshots = Vec::new();
    for &position in positions {
        let complete = position / PAGE_TOKENS;
        let pages: Vec<PageId> = (shared..complete).map(|_| cache.take_page(owner).unwrap()).collect();
        let snapshot = cache.take_snapshot(owner).unwrap();
        let name = chain(&tokens).name(position, tokens.as_slice());
        assert_eq!(cache.publish(owner, snapshot, name, base, &pages), Published::New);
        (base, shared) = (Some(snapshot), complete);
        snapshots.push(snapshot);
    }
    cache.unpin(*snapshots.last().unwrap(), StepId(0));
    snapshots
}

fn is_there(cache: &PrefixCache, salt: u32, position: u32) -> bool {
    let tokens = vec![TokenId(salt); position as usize];
    cache.find(&chain(&tokens), position, tokens.as_slice()).is_some_and(|(_, consumed)| consumed == position)
}

#[test]
fn snapshot_pressure_thins_the_shortest_interval_and_keeps_endpoints() {
    let mut cache = PrefixCache::new(PAGE_TOKENS, 100, 6);
    published(&mut cache, 1, &[10, 20, 24, 40]);
    published(&mut cache, 2, &[30, 90]);
    let gone = |cache: &mut PrefixCache| {
        let before: Vec<(u32, u32)> = [(1, 10), (1, 20), (1, 24), (1, 40), (2, 30), (2, 90)]
            .into_iter()
            .filter(|&(salt, position)| is_there(cache, salt, position))
            .collect();
        cache.take_snapshot(Owner::Request(RequestId(9))).unwrap();
        before.into_iter().find(|&(salt, position)| !is_there(cache, salt, position)).unwrap()
    };
    // Interior ones: 20 lies between 10 and 24, 24 between 20 and 40; then roots; then the oldest leaf.
    assert_eq!(gone(&mut cache), (1, 20));
    assert_eq!(gone(&mut cache), (1, 24));
    assert_eq!(gone(&mut cache), (1, 10));
    assert_eq!(gone(&mut cache), (2, 30));
    assert_eq!(gone(&mut cache), (1, 40));
    assert_eq!(gone(&mut cache), (2, 90));
    assert_eq!(cache.take_snapshot(Owner::Request(RequestId(9))), None);
    assert_eq!((cache.stats().thinned, cache.stats().evicted_for_snapshots), (4, 2));
}

#[test]
fn page_pressure_unwinds_the_conversation_that_was_used_least_recently() {
    let mut cache = PrefixCache::new(PAGE_TOKENS, 20, 8);
    published(&mut cache, 1, &[12, 30]);
    let second = published(&mut cache, 2, &[12, 30]);
    let owner = Owner::Request(RequestId(9));
    cache.pin(second[0]);
    cache.unpin(second[0], StepId(0));
    assert_eq!(cache.room(None), 20);
    for (count, positions) in [(6, vec![(1, 30)]), (4, vec![(1, 12)]), (6, vec![(2, 30)]), (4, vec![(2, 12)])]
    {
        for (salt, position) in &positions {
            assert!(is_there(&cache, *salt, *position));
        }
        for _ in 0..count {
            cache.take_page(owner).unwrap();
        }
        for (salt, position) in positions {
            assert!(!is_there(&cache, salt, position));
        }
    }
    assert_eq!(cache.take_page(owner), None);
}

#[test]
fn what_steps_in_flight_may_use_is_not_given_up() {
    let mut cache = PrefixCache::new(PAGE_TOKENS, 4, 2);
    let only = published(&mut cache, 1, &[12])[0];
    cache.pin(only);
    assert_eq!((cache.room(None), cache.take_page(Owner::Request(RequestId(9)))), (0, None));
    cache.unpin(only, StepId(5));
    assert_eq!((cache.room(None), cache.take_page(Owner::Request(RequestId(9)))), (0, None));
    cache.complete(StepId(5));
    assert_eq!(cache.room(Some(only)), 0, "it is wanted");
    assert_eq!(cache.room(None), 4);
    assert!(cache.take_page(Owner::Request(RequestId(9))).is_some());
}
