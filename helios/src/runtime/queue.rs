//! The device and the fences of what was submitted to it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::device::{BufferId, DeviceError, Executor, Fence, ProgramId};

use super::clock::now;

/// Longest that one step may take; beyond it the device counts as failed.
const STEP_TIMEOUT: Duration = Duration::from_secs(300);

/// An executor whose launches are waited for in order.
pub(super) struct DeviceQueue {
    executor: Box<dyn Executor>,
    /// Of launches not yet waited for and when they were, oldest first.
    fences: VecDeque<(Fence, Instant)>,
    /// When the last wait was over.
    completed: Instant,
    /// When the next launch's first part was submitted, if that was alone.
    early: Option<Instant>,
}

impl DeviceQueue {
    pub(super) fn new(executor: Box<dyn Executor>, launches_max: u32) -> Self {
        Self {
            executor,
            fences: VecDeque::with_capacity(launches_max as usize),
            completed: now(),
            early: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fences.is_empty()
    }

    pub(super) fn upload(
        &mut self,
        buffer: BufferId,
        offset_bytes: u64,
        bytes: &[u8],
    ) -> Result<(), DeviceError> {
        self.with_room(|executor| executor.upload(buffer, offset_bytes, bytes))
    }

    pub(super) fn launch(&mut self, program: ProgramId) -> Result<(), DeviceError> {
        let fence = self.with_room(|executor| executor.launch(program))?;
        self.fences.push_back((fence, self.early.take().unwrap_or_else(now)));
        Ok(())
    }

    /// Submits what of the next launch needs no mask, where the device can.
    pub(super) fn launch_early(&mut self, program: ProgramId) -> Result<(), DeviceError> {
        let is_begun = self.with_room(|executor| executor.launch_early(program))?;
        self.early = is_begun.then(now);
        Ok(())
    }

    /// Blocks until the oldest launch is complete. Returns how long the device had it: since the launch, or since the
    /// completion before, whichever was later.
    pub(super) fn wait_oldest(&mut self) -> Result<Duration, DeviceError> {
        let Some(&(fence, launched)) = self.fences.front() else { return Ok(Duration::ZERO) };
        self.executor.wait(fence, STEP_TIMEOUT)?;
        self.fences.pop_front();
        let begun = launched.max(self.completed);
        self.completed = now();
        Ok(self.completed.duration_since(begun))
    }

    /// Reads what a launch that was waited for wrote, and none in flight writes again.
    pub(super) fn read(
        &mut self,
        buffer: BufferId,
        offset_bytes: u64,
        into: &mut [u8],
    ) -> Result<(), DeviceError> {
        self.executor.read(buffer, offset_bytes, into)
    }

    /// Waits for one launch after another while the device's own queue is full.
    fn with_room<T>(
        &mut self,
        mut operation: impl FnMut(&mut dyn Executor) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        for &(fence, _) in &self.fences {
            match operation(&mut *self.executor) {
                Err(DeviceError::Busy { .. }) => self.executor.wait(fence, STEP_TIMEOUT)?,
                outcome => return outcome,
            }
        }
        operation(&mut *self.executor)
    }
}
