//! `flare run`: load, start the model thread, listen, and take everything down again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};

use helios::core::Core;
use helios::memory::{LoadError, LoadedCore, MemoryOptions, load};
use helios::runtime::engine::{EngineLimits, channel};
use helios::runtime::worker::{Worker, WorkerOptions};
use helios::server::{Ended, ModelProfile, ServerConfig, Service, ZeroTemperature, serve};
use helios::text::TextFrontend;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::cli::{self, RunOptions};
use crate::error::RunError;
use crate::signals::StopSignals;

/// Threads that serve sockets; the machine's other cores belong to the model.
const SOCKET_THREADS: usize = 2;
/// What a worker that prepares a prompt may still take after the server has ended.
const WORKERS_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves until a signal. Returns once every thread has ended.
pub fn run(options: RunOptions) -> Result<(), RunError> {
    let api_keys = options.api_keys()?;
    let mut clock = StartClock::start();
    let core = Core::open(&options.core).map_err(LoadError::from)?;
    clock.lap("core");
    // Parsing a large vocabulary takes as long as setting up a device, and needs none.
    let (contract, assets) = (Arc::clone(&core.contract), Arc::clone(&core.assets));
    let parser = Builder::new().name("flare-text".into());
    let text = parser.spawn(move || TextFrontend::new(&contract, &assets))?;
    let LoadedCore { contract, executor, digest, memory } =
        load(core, &MemoryOptions { limit_bytes: options.memory }, &mut |step| clock.lap(step))?;
    clock.moved("upload", memory.weights_bytes);
    let text = text.join().expect("parsing text does not panic")?;
    clock.lap("text");
    let clients = u32::try_from(api_keys.len()).unwrap_or(u32::MAX).max(1);
    let (engine, receiver) = channel(EngineLimits {
        waiting_max: options.max_queue,
        // Every client finds room for its share, whatever the others do.
        client_waiting_max: (options.max_queue / clients).max(1),
        ..EngineLimits::default()
    });
    let tiers = options.prefix_cache();
    let worker_options = WorkerOptions {
        pages: memory.pages,
        snapshots: tiers.as_ref().map_or(0, |_| memory.snapshot_rows),
        tiers: tiers.unwrap_or_default(),
        core: digest,
    };
    let worker = Worker::start(&contract, worker_options, executor, receiver)?;
    clock.lap("engine");
    let zero_temperature = match options.zero_temperature {
        cli::ZeroTemperature::Reject => ZeroTemperature::Reject,
        cli::ZeroTemperature::Top1 => ZeroTemperature::Top1,
    };
    let model = ModelProfile::new(&contract, options.served_model_name.clone(), zero_temperature);
    let config = ServerConfig {
        drain_timeout: options.drain_timeout(),
        request_timeout: options.request_timeout(),
        api_keys,
        cors_origins: options.cors_origins.clone(),
        ..ServerConfig::default()
    };
    eprintln!("{memory}");

    let runtime = socket_runtime(config.preparations_max)?;
    let served = runtime.block_on(async {
        let service = Service::new(engine, text, model, config);
        let signals = StopSignals::catch()?;
        let listener = listen(SocketAddr::new(options.host, options.port)).await?;
        let address = listener.local_addr()?;
        eprintln!("{}", clock.summary());
        eprintln!("serving {} at http://{address}", service.model.id);
        Ok(serve(listener, service, signals.first()).await)
    });
    // The last handle goes with the runtime; without one, the model thread of a failed start ends too.
    runtime.shutdown_timeout(WORKERS_TIMEOUT);
    match served {
        Ok(Ended::ModelThreadStuck) => Err(RunError::Stuck),
        Ok(Ended::InOrder) => {
            worker.join();
            Ok(())
        }
        Err(error) => {
            worker.join();
            Err(error)
        }
    }
}

fn socket_runtime(preparations_max: usize) -> Result<Runtime, RunError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(SOCKET_THREADS)
        .max_blocking_threads(preparations_max)
        .thread_name("flare-socket")
        .enable_all()
        .build()?;
    Ok(runtime)
}

async fn listen(address: SocketAddr) -> Result<TcpListener, RunError> {
    TcpListener::bind(address).await.map_err(|error| RunError::Listen { address, error })
}

/// How long each step of the start took.
struct StartClock {
    started: Instant,
    last: Instant,
    laps: Vec<Lap>,
}

struct Lap {
    name: &'static str,
    time: Duration,
    /// What was moved in that time, where the step moves anything.
    moved_bytes: Option<u64>,
}

impl StartClock {
    #[expect(clippy::disallowed_methods, reason = "the shell reads the clock")]
    fn start() -> Self {
        let now = Instant::now();
        Self { started: now, last: now, laps: Vec::new() }
    }

    fn lap(&mut self, name: &'static str) {
        self.laps.push(Lap { name, time: self.last.elapsed(), moved_bytes: None });
        self.last = self.started + self.started.elapsed();
    }

    /// Says how much the step `name`, if there was one, moved.
    fn moved(&mut self, name: &str, bytes: u64) {
        for lap in self.laps.iter_mut().filter(|lap| lap.name == name) {
            lap.moved_bytes = Some(bytes);
        }
    }

    fn summary(&self) -> String {
        let laps: Vec<String> = self.laps.iter().map(Lap::to_string).collect();
        format!("ready after {:.3} s ({})", self.started.elapsed().as_secs_f64(), laps.join(", "))
    }
}

impl std::fmt::Display for Lap {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.time.as_secs_f64();
        write!(formatter, "{} {seconds:.3} s", self.name)?;
        match self.moved_bytes {
            Some(bytes) => write!(formatter, " at {:.1} GB/s", bytes as f64 / seconds / 1e9),
            None => Ok(()),
        }
    }
}
