//! The command line: what `flare` can be asked for.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use helios::server::{ApiKey, CorsOrigin};
use helios::tiers::{DiskOptions, TierOptions};

use crate::error::RunError;

/// What the prefix cache may take of a disk where the user names only the folder.
const PREFIX_CACHE_DISK_BYTES: u64 = 10 << 30;

/// Serves prepared models on this machine.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Load a runtime core and serve it over HTTP until SIGINT or SIGTERM.
    Run(RunOptions),
}

#[derive(Debug, Args)]
pub struct RunOptions {
    /// Folder that `ignition prepare` wrote.
    pub core: PathBuf,
    /// Address to listen on. Any other than a loopback address lets other machines in.
    #[arg(long, default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// Port to listen on; 0 takes any free one.
    #[arg(long, default_value_t = 8080)]
    pub port: u16,
    /// Memory that the core may take, weights included, such as 2GiB. Default: what the machine has available, less headroom.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memory: Option<u64>,
    /// Compute every prompt from its first token, whatever was computed before.
    #[arg(long, conflicts_with_all = ["prefix_cache_memory", "prefix_cache_disk"])]
    pub no_prefix_cache: bool,
    /// Memory for copies of conversations that the device has no room for, beside --memory, such as 4GiB. Default: none.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub prefix_cache_memory: Option<u64>,
    /// Folder for copies of conversations that outlive the server; each server needs one of its own. Default: none.
    #[arg(long, value_name = "DIR")]
    pub prefix_cache_disk: Option<PathBuf>,
    /// What --prefix-cache-disk may hold. Default: 10GiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "prefix_cache_disk")]
    pub prefix_cache_disk_size: Option<u64>,
    /// What a request with `temperature: 0` gets.
    #[arg(long, value_enum, default_value_t)]
    pub zero_temperature: ZeroTemperature,
    /// Requests that may wait for admission, divided evenly among the keys; further ones are refused with status 503.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub max_queue: u32,
    /// How long running requests may take to finish once the server is told to stop.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(0..=3_600_000))]
    pub drain_timeout_ms: u64,
    /// Key that requests must show, as a bearer token or in `x-api-key`. Other users of this machine can see a command line; the
    /// variable and --api-key-file they cannot.
    #[arg(long, value_name = "KEY", env = "FLARE_API_KEY", hide_env_values = true, value_parser = parse_key)]
    pub api_key: Option<ApiKey>,
    /// File with such keys, one a line. Each key is a client, and clients take turns.
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// Origin of web pages that may send requests, or * for all; repeatable. Default: none.
    #[arg(long = "cors-origin", value_name = "ORIGIN")]
    pub cors_origins: Vec<CorsOrigin>,
    /// What one request may take. Default: as long as it takes.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400_000))]
    pub request_timeout_ms: Option<u64>,
    /// Name that clients see. Default: the core's own.
    #[arg(long, value_name = "NAME")]
    pub served_model_name: Option<String>,
    /// How the log on stderr is written; FLARE_LOG sets what it holds, such as `debug`.
    #[arg(long, value_enum, default_value_t)]
    pub log_format: LogFormat,
}

impl RunOptions {
    pub fn drain_timeout(&self) -> Duration {
        Duration::from_millis(self.drain_timeout_ms)
    }

    pub fn request_timeout(&self) -> Option<Duration> {
        self.request_timeout_ms.map(Duration::from_millis)
    }

    /// The keys of all sources, each once.
    pub fn api_keys(&self) -> Result<Vec<ApiKey>, RunError> {
        let mut keys: Vec<ApiKey> = self.api_key.iter().cloned().collect();
        if let Some(file) = &self.api_key_file {
            let wrong = |reason: String| RunError::Keys { file: file.clone(), reason };
            let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
            let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty()).peekable();
            if lines.peek().is_none() {
                return Err(wrong("there are none in it".to_owned()));
            }
            for key in lines.map(ApiKey::new) {
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        Ok(keys)
    }

    /// Where copies of what the prefix cache holds are kept; `None` turns the whole prefix cache off.
    pub fn prefix_cache(&self) -> Option<TierOptions> {
        let budget_bytes = self.prefix_cache_disk_size.unwrap_or(PREFIX_CACHE_DISK_BYTES);
        let disk = self.prefix_cache_disk.clone().map(|folder| DiskOptions { folder, budget_bytes });
        (!self.no_prefix_cache).then_some(TierOptions { memory_bytes: self.prefix_cache_memory, disk })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ZeroTemperature {
    /// An error that says what gives the same.
    #[default]
    Reject,
    /// The most likely token each time, as `top_k: 1` gives it.
    #[value(name = "top-1")]
    Top1,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// An empty key is a variable that somebody forgot to set, and would let everybody in.
fn parse_key(text: &str) -> Result<ApiKey, String> {
    match text.trim() {
        "" => Err("a key must not be empty".to_owned()),
        key => Ok(ApiKey::new(key)),
    }
}

/// Bytes that a size names: a number and, after it, nothing, B, or a decimal (KB) or binary (KiB) unit.
fn parse_size(text: &str) -> Result<u64, String> {
    let digits =
        text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1024.0 * 1024.0,
        "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "t" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        _ => return Err(format!("'{}' is not a unit; use one such as MiB or GiB", unit.trim())),
    };
    let number: f64 = number.parse().map_err(|_| "a size is a number and a unit, such as 2GiB".to_owned())?;
    let bytes = number * scale;
    if bytes >= 1.0 && bytes < u64::MAX as f64 {
        Ok(bytes as u64)
    } else {
        Err("the size is out of range".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("2GiB", 2 << 30),
            ("1.5g", 3 << 29),
            ("512 MiB", 512 << 20),
            ("100MB", 100_000_000),
            ("7", 7),
            ("7B", 7),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "GiB", "2XB", "-1", "1.2.3", "0", "99999999999TiB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    fn prefix_cache(arguments: &[&str]) -> Result<Option<TierOptions>, clap::error::ErrorKind> {
        let arguments = ["flare", "run", "core"].iter().chain(arguments);
        let Command::Run(options) = Cli::try_parse_from(arguments).map_err(|error| error.kind())?.command;
        Ok(options.prefix_cache())
    }

    #[test]
    fn the_prefix_cache_is_on_and_its_tiers_are_asked_for() {
        use clap::error::ErrorKind::{ArgumentConflict, MissingRequiredArgument, ValueValidation};
        let disk = |budget_bytes| Some(DiskOptions { folder: PathBuf::from("kept"), budget_bytes });
        assert_eq!(prefix_cache(&[]), Ok(Some(TierOptions::default())));
        assert_eq!(prefix_cache(&["--no-prefix-cache"]), Ok(None));
        assert_eq!(
            prefix_cache(&["--prefix-cache-memory", "4GiB", "--prefix-cache-disk", "kept"]),
            Ok(Some(TierOptions { memory_bytes: Some(4 << 30), disk: disk(10 << 30) }))
        );
        assert_eq!(
            prefix_cache(&["--prefix-cache-disk", "kept", "--prefix-cache-disk-size", "1MiB"]),
            Ok(Some(TierOptions { memory_bytes: None, disk: disk(1 << 20) }))
        );
        for (arguments, kind) in [
            (&["--prefix-cache-disk-size", "1MiB"][..], MissingRequiredArgument),
            (&["--no-prefix-cache", "--prefix-cache-disk", "kept"], ArgumentConflict),
            (&["--no-prefix-cache", "--prefix-cache-memory", "1MiB"], ArgumentConflict),
            (&["--prefix-cache-memory", "much"], ValueValidation),
        ] {
            assert_eq!(prefix_cache(arguments), Err(kind), "{arguments:?}");
        }
    }

    fn options(arguments: &[&str]) -> Result<RunOptions, clap::Error> {
        let arguments = ["flare", "run", "core"].iter().chain(arguments);
        let Command::Run(options) = Cli::try_parse_from(arguments)?.command;
        Ok(options)
    }

    #[test]
    fn keys_come_from_the_command_line_and_a_file_and_are_not_shown() {
        assert!(options(&["--api-key", " "]).is_err());
        let folder = std::env::temp_dir().join(format!("flare-keys-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("keys");
        std::fs::write(&file, "first\n\n second \nthird\nfirst\n").unwrap();
        let path = file.to_str().unwrap();
        let both = options(&["--api-key", "third", "--api-key-file", path]).unwrap();
        assert!(!format!("{both:?}").contains("third"));
        let keys = both.api_keys().unwrap();
        assert_eq!(keys, ["third", "first", "second"].map(ApiKey::new));
        std::fs::write(&file, "\n").unwrap();
        assert!(options(&["--api-key-file", path]).unwrap().api_keys().is_err());
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(options(&["--api-key-file", path]).unwrap().api_keys().is_err());
    }

    #[test]
    fn origins_are_origins() {
        for origin in ["*", "https://example.org", "http://localhost:3000"] {
            assert_eq!(options(&["--cors-origin", origin]).unwrap().cors_origins.len(), 1);
        }
        for text in ["example.org", "https://example.org/", "https://"] {
            assert!(options(&["--cors-origin", text]).is_err(), "{text}");
        }
    }

    #[test]
    fn defaults_listen_on_this_machine_alone() {
        let Command::Run(options) = Cli::try_parse_from(["flare", "run", "core"]).unwrap().command;
        assert!(options.host.is_loopback());
        assert_eq!(options.zero_temperature, ZeroTemperature::Reject);
        let arguments = ["flare", "run", "core", "--zero-temperature", "top-1", "--memory", "1GiB"];
        let Command::Run(options) = Cli::try_parse_from(arguments).unwrap().command;
        assert_eq!((options.zero_temperature, options.memory), (ZeroTemperature::Top1, Some(1 << 30)));
    }
}
