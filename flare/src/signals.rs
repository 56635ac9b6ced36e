//! SIGINT and SIGTERM: the first asks the server to stop in order, the second ends the process.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit code of a process that a second signal ended, as shells report SIGINT.
const INTERRUPTED: i32 = 130;

/// The signals that stop the server, caught from construction on.
pub struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// Catches the signals. Needs a tokio runtime.
    pub fn catch() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Resolves at the first signal; from then on, another ends the process at once.
    pub async fn first(mut self) {
        self.next().await;
        tracing::info!("stopping: running requests are finished; a second signal ends at once");
        tokio::spawn(async move {
            self.next().await;
            end_at_once();
        });
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[expect(clippy::exit, reason = "a second signal asks for exactly this: no drain, no destructors")]
fn end_at_once() {
    std::process::exit(INTERRUPTED);
}
