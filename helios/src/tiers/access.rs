//! Access to the device for transfers that still have it.
//!
//! A disk that does not answer must not keep the device's pages. So a transfer's access can be taken back at any time,
//! without asking the tier thread: afterwards no copy of it is running and none will begin.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Geometry, TierError};
use crate::device::Copier;
use crate::ids::{PageId, RowId, TransferId};

/// The transfers that may touch the device: those taken and neither answered nor abandoned.
#[derive(Clone, Default)]
pub struct Permits(Arc<Mutex<HashSet<TransferId>>>);

impl Permits {
    pub fn grant(&self, transfer: TransferId) {
        self.lock().insert(transfer);
    }

    /// Takes a transfer's access back, waiting for the end of a copy of one page or row at most.
    pub fn revoke(&self, transfer: TransferId) {
        self.lock().remove(&transfer);
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<TransferId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A copier that copies for transfers with a permit.
pub struct Access {
    copier: Box<dyn Copier>,
    permits: Permits,
}

impl Access {
    pub fn new(copier: Box<dyn Copier>, permits: Permits) -> Self {
        Self { copier, permits }
    }

    pub fn geometry(&self) -> Geometry {
        Geometry::of(&*self.copier)
    }

    pub fn permits(&self) -> &Permits {
        &self.permits
    }

    pub fn read_page(&mut self, of: TransferId, page: PageId, into: &mut [u8]) -> Result<(), TierError> {
        self.copy(of, |copier| Ok(copier.read_page(page, into)?))
    }

    pub fn write_page(&mut self, of: TransferId, page: PageId, from: &[u8]) -> Result<(), TierError> {
        self.copy(of, |copier| Ok(copier.write_page(page, from)?))
    }

    pub fn read_row(&mut self, of: TransferId, row: RowId, into: &mut [u8]) -> Result<(), TierError> {
        self.copy(of, |copier| Ok(copier.read_row(row, into)?))
    }

    pub fn write_row(&mut self, of: TransferId, row: RowId, from: &[u8]) -> Result<(), TierError> {
        self.copy(of, |copier| Ok(copier.write_row(row, from)?))
    }

    /// Copies while nobody can take the permit back.
    fn copy(
        &mut self,
        transfer: TransferId,
        copy: impl FnOnce(&mut dyn Copier) -> Result<(), TierError>,
    ) -> Result<(), TierError> {
        let permits = self.permits.lock();
        if permits.contains(&transfer) { copy(&mut *self.copier) } else { Err(TierError::Abandoned) }
    }
}
