//! A fixed set of equal resources: free, owned by one owner, or released and still in use by the device.

use std::collections::VecDeque;

use crate::ids::{PageId, RequestId, SlotId, SnapshotId, StepId, TransferId};

/// A resource that is named by its number, from 0.
pub trait Numbered: Copy + std::fmt::Debug + Eq {
    fn numbered(number: u32) -> Self;
    fn number(self) -> u32;
}

impl Numbered for PageId {
    fn numbered(number: u32) -> Self {
        Self(number)
    }
    fn number(self) -> u32 {
        self.0
    }
}

impl Numbered for SlotId {
    fn numbered(number: u32) -> Self {
        Self(number)
    }
    fn number(self) -> u32 {
        self.0
    }
}

impl Numbered for SnapshotId {
    fn numbered(number: u32) -> Self {
        Self(number)
    }
    fn number(self) -> u32 {
        self.0
    }
}

/// Who holds a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// For its own use: nobody else reads or writes it.
    Request(RequestId),
    /// A checkpoint on its way from a tier: nobody else reads or writes it.
    Transfer(TransferId),
    /// A published checkpoint: immutable, and read by whoever has pinned it.
    Cache,
}

/// Where one resource is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Free,
    Owned(Owner),
    /// Released, and referenced by steps up to this one.
    Retiring(StepId),
}

/// A pool of resources; nothing allocates after construction.
///
/// Invariants: every resource is in exactly one of the free list, an owner's hands and the retiring queue, and the
/// retiring queue is in order of steps.
#[derive(Clone, Debug)]
pub struct Pool<I> {
    lives: Vec<Life>,
    /// A stack: what was used last is handed out first.
    free: Vec<I>,
    retiring: VecDeque<(StepId, I)>,
    completed: StepId,
}

/// A broken invariant of a pool or of what uses it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct IntegrityError(pub String);

impl<I: Numbered> Pool<I> {
    pub fn new(count: u32) -> Self {
        Self {
            lives: vec![Life::Free; count as usize],
            free: (0..count).rev().map(I::numbered).collect(),
            retiring: VecDeque::with_capacity(count as usize),
            completed: StepId(0),
        }
    }

    /// All resources.
    pub fn total(&self) -> u32 {
        u32::try_from(self.lives.len()).expect("a pool is made with a u32 count")
    }

    /// Resources that [`Pool::take`] can hand out now.
    pub fn available(&self) -> u32 {
        u32::try_from(self.free.len()).expect("the free list is within the pool")
    }

    /// Resources that are released and wait for the device.
    pub fn retiring(&self) -> u32 {
        u32::try_from(self.retiring.len()).expect("the retiring queue is within the pool")
    }

    pub fn owner(&self, resource: I) -> Option<Owner> {
        match self.lives[resource.number() as usize] {
            Life::Owned(owner) => Some(owner),
            Life::Free | Life::Retiring(_) => None,
        }
    }

    /// Hands one resource to `owner`; `None` when nothing is free.
    pub fn take(&mut self, owner: Owner) -> Option<I> {
        let resource = self.free.pop()?;
        self.lives[resource.number() as usize] = Life::Owned(owner);
        Some(resource)
    }

    /// Hands a resource from one owner to another, as it is.
    ///
    /// Panics when `from` does not own it.
    pub fn transfer(&mut self, resource: I, from: Owner, to: Owner) {
        let life = &mut self.lives[resource.number() as usize];
        assert_eq!(*life, Life::Owned(from), "{resource:?} is handed on by another than its owner");
        *life = Life::Owned(to);
    }

    /// Ends the logical life of a resource that steps up to `last_use` may reference.
    ///
    /// Panics when `owner` does not own it, or when `last_use` is not complete and older than an earlier release's: both are the
    /// caller's bugs, and going on would let two requests write one page.
    pub fn release(&mut self, resource: I, owner: Owner, last_use: StepId) {
        let life = &mut self.lives[resource.number() as usize];
        assert_eq!(*life, Life::Owned(owner), "{resource:?} is released by another than its owner");
        if last_use <= self.completed {
            *life = Life::Free;
            self.free.push(resource);
            return;
        }
        let newest = self.retiring.back().map_or(StepId(0), |&(step, _)| step);
        assert!(newest <= last_use, "{resource:?} is released after step {last_use}, before step {newest}");
        *life = Life::Retiring(last_use);
        self.retiring.push_back((last_use, resource));
    }

    /// Ends the device's life of everything that only steps up to `step` reference.
    pub fn complete(&mut self, step: StepId) {
        self.completed = self.completed.max(step);
        while let Some(&(last_use, resource)) = self.retiring.front() {
            if last_use > self.completed {
                break;
            }
            self.retiring.pop_front();
            self.lives[resource.number() as usize] = Life::Free;
            self.free.push(resource);
        }
    }

    /// Checks that free, owned and retiring resources partition the pool, and that `owned` is what `owner`s hold.
    pub fn check_integrity(&self, owned: &[(Owner, I)]) -> Result<(), IntegrityError> {
        let mut expected = vec![Life::Free; self.lives.len()];
        let claims = owned.iter().map(|&(owner, resource)| (resource, Life::Owned(owner)));
        let retiring = self.retiring.iter().map(|&(step, resource)| (resource, Life::Retiring(step)));
        for (resource, life) in claims.chain(retiring) {
            let place = expected
                .get_mut(resource.number() as usize)
                .ok_or_else(|| IntegrityError(format!("{resource:?} is outside the pool")))?;
            if *place != Life::Free {
                return Err(IntegrityError(format!("{resource:?} is {place:?} and {life:?} at once")));
            }
            *place = life;
        }
        if let Some(number) = (0..expected.len()).find(|&number| expected[number] != self.lives[number]) {
            let (is, should) = (self.lives[number], expected[number]);
            return Err(IntegrityError(format!("resource {number} is {is:?} and should be {should:?}")));
        }
        let mut is_listed = vec![false; self.lives.len()];
        for resource in &self.free {
            let number = resource.number() as usize;
            if expected[number] != Life::Free || std::mem::replace(&mut is_listed[number], true) {
                return Err(IntegrityError(format!("{resource:?} is wrongly in the free list")));
            }
        }
        let free = expected.iter().filter(|&&life| life == Life::Free).count();
        if self.free.len() != free {
            return Err(IntegrityError(format!("{free} are free and {} are listed", self.free.len())));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Operation {
        Take { owner: u64 },
        Transfer { index: usize },
        Release { index: usize },
        Submit,
        Complete,
    }

    fn operation() -> impl Strategy<Value = Operation> {
        prop_oneof![
            4 => (0..5u64).prop_map(|owner| Operation::Take { owner }),
            3 => any::<usize>().prop_map(|index| Operation::Release { index }),
            1 => any::<usize>().prop_map(|index| Operation::Transfer { index }),
            2 => Just(Operation::Submit),
            2 => Just(Operation::Complete),
        ]
    }

    proptest! {
        /// The naive model writes down, for every page, its owner and the step that it waits for.
        #[test]
        fn a_page_is_reusable_only_after_its_owner_and_the_device_let_go(
            count in 0..12u32,
            operations in prop::collection::vec(operation(), 0..200),
        ) {
            let mut pool = Pool::<PageId>::new(count);
            let mut owned: Vec<(Owner, PageId)> = Vec::new();
            let mut waiting: Vec<(u64, PageId)> = Vec::new();
            let (mut submitted, mut completed) = (0u64, 0u64);
            for operation in operations {
                match operation {
                    Operation::Take { owner } => {
                        let owner = Owner::Request(RequestId(owner));
                        let page = pool.take(owner);
                        let free = count as usize - owned.len() - waiting.len();
                        prop_assert_eq!(page.is_some(), free > 0);
                        if let Some(page) = page {
                            prop_assert!(owned.iter().all(|&(_, other)| other != page));
                            prop_assert!(waiting.iter().all(|&(_, other)| other != page));
                            owned.push((owner, page));
                        }
                    }
                    Operation::Release { index } if !owned.is_empty() => {
                        let (owner, page) = owned.swap_remove(index % owned.len());
                        pool.release(page, owner, StepId(submitted));
                        if submitted > completed {
                            waiting.push((submitted, page));
                        }
                    }
                    Operation::Transfer { index } if !owned.is_empty() => {
                        let index = index % owned.len();
                        let (owner, page) = owned[index];
                        pool.transfer(page, owner, Owner::Cache);
                        owned[index] = (Owner::Cache, page);
                    }
                    Operation::Release { .. } | Operation::Transfer { .. } => {}
                    Operation::Submit => submitted += 1,
                    Operation::Complete if completed < submitted => {
                        completed += 1;
                        pool.complete(StepId(completed));
                        waiting.retain(|&(step, _)| step > completed);
                    }
                    Operation::Complete => {}
                }
                prop_assert_eq!(pool.retiring() as usize, waiting.len());
                prop_assert_eq!(pool.available() as usize + owned.len() + waiting.len(), count as usize);
                prop_assert_eq!(pool.check_integrity(&owned), Ok(()));
            }
        }
    }

    #[test]
    #[should_panic(expected = "released by another than its owner")]
    fn a_second_release_is_refused() {
        let mut pool = Pool::<SlotId>::new(1);
        let owner = Owner::Request(RequestId(1));
        let slot = pool.take(owner).unwrap();
        pool.release(slot, owner, StepId(0));
        pool.release(slot, owner, StepId(0));
    }

    #[test]
    fn integrity_notices_a_lost_and_a_shared_page() {
        let mut pool = Pool::<PageId>::new(2);
        let (first, second) = (Owner::Request(RequestId(1)), Owner::Request(RequestId(2)));
        let page = pool.take(first).unwrap();
        assert!(pool.check_integrity(&[]).is_err());
        assert!(pool.check_integrity(&[(first, page), (second, page)]).is_err());
        assert!(pool.check_integrity(&[(second, page)]).is_err());
        assert_eq!(pool.check_integrity(&[(first, page)]), Ok(()));
    }
}
