//! How long the OpenMP team waits awake.
//!
//! A decode step has hundreds of parallel regions a few microseconds apart, so a team's threads must spin a little for the next
//! one: waking a thread takes longer than many regions do. But libgomp spins for milliseconds by default, and where
//! anything else wants the processor (another program, our own sockets) the spinning thread holds up the one that it waits
//! for: steps were seen to take a hundred times as long. So the spinning is bounded to some microseconds.
#![expect(unsafe_code, reason = "libgomp is configured by the environment of the process")]

/// libgomp's variable for the length of its spin loop.
pub const SPIN_COUNT: &str = "GOMP_SPINCOUNT";
/// OpenMP's variable for how waiting threads wait.
pub const WAIT_POLICY: &str = "OMP_WAIT_POLICY";

/// Iterations of libgomp's spin loop, each some tens of cycles.
pub const SPINS: u32 = 1000;

/// Bounds how long OpenMP teams of this process spin, unless the user has set `GOMP_SPINCOUNT` or `OMP_WAIT_POLICY`.
///
/// To be called before the process starts threads and before it loads a core; with threads about it changes nothing.
pub fn bound_spinning() {
    let decided = [SPIN_COUNT, WAIT_POLICY].iter().any(|name| std::env::var_os(name).is_some());
    let threads = std::fs::read_dir("/proc/self/task").map_or(usize::MAX, Iterator::count);
    if decided || threads != 1 {
        return;
    }
    // SAFETY: this is the only thread, so nobody reads the environment meanwhile.
    unsafe { std::env::set_var(SPIN_COUNT, SPINS.to_string()) };
}
