//! When to stop writing to a disk that does not take it, and when to try again.
//!
//! Time is an argument, counted from any fixed moment.

use std::time::Duration;

/// Failures in a row that stop the writing.
const FAILURES_MAX: u32 = 3;
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// Whether writing works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    failures: u32,
    pause: Option<Pause>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pause {
    length: Duration,
    until: Duration,
}

impl Health {
    /// Whether to write at all, or how long not to.
    pub fn check(&self, now: Duration) -> Result<(), Duration> {
        let left = self.pause.and_then(|pause| pause.until.checked_sub(now)).unwrap_or_default();
        if left.is_zero() { Ok(()) } else { Err(left) }
    }

    pub fn is_degraded(&self) -> bool {
        self.pause.is_some()
    }

    /// Whether the last attempt to write failed.
    pub fn is_in_doubt(&self) -> bool {
        self.failures > 0
    }

    /// Writing failed. Returns whether it stops for the first time since it last worked.
    pub fn fail(&mut self, now: Duration) -> bool {
        self.failures = self.failures.saturating_add(1);
        if self.failures < FAILURES_MAX {
            return false;
        }
        let length = self.pause.map_or(PAUSE_MIN, |pause| (pause.length * 2).min(PAUSE_MAX));
        self.pause.replace(Pause { length, until: now + length }).is_none()
    }

    /// Writing worked. Returns whether it had stopped.
    pub fn succeed(&mut self) -> bool {
        std::mem::take(self).is_degraded()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn the_third_failure_in_a_row_stops_and_one_success_resumes() {
        let mut health = Health::default();
        assert!(!health.fail(seconds(0)) && !health.fail(seconds(0)));
        assert!(!health.succeed());
        assert!(!health.fail(seconds(1)) && !health.fail(seconds(1)));
        assert_eq!(health.check(seconds(1)), Ok(()));
        assert!(health.fail(seconds(1)));
        assert_eq!(health.check(seconds(1)), Err(PAUSE_MIN));
        assert_eq!(health.check(seconds(2)), Ok(()));
        assert!(health.is_degraded());
        assert!(health.succeed());
        assert_eq!(health, Health::default());
    }

    #[test]
    fn pauses_double_up_to_a_bound() {
        let mut health = Health::default();
        health.fail(seconds(0));
        health.fail(seconds(0));
        let mut now = seconds(0);
        let mut pauses = Vec::new();
        for round in 0..12 {
            assert_eq!(health.fail(now), round == 0, "reported once");
            let pause = health.check(now).unwrap_err();
            pauses.push(pause.as_secs());
            now += pause;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
    }
}
