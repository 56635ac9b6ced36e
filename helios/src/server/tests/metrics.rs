//! The exposition, read by a strict parser and held against its documentation and a run of the real engine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::{Admit, End, Fail, TestServer, eventually};
use crate::ids::{ClientId, Digest, TokenId};
use crate::runtime::engine::{
    Engine, EngineError, EngineLimits, EngineStats, GenerationRequest, SamplingParameters, channel,
};
use crate::runtime::worker::{Worker, WorkerOptions};
use crate::server::metrics::Scrape;
use crate::sim::core::{SLOTS, contract};
use crate::sim::executor::SimExecutor;
use crate::tiers::{Counters, TierOptions, TierStats};

const DOCUMENTATION: &str = include_str!("../../../../docs/metrics.md");

type Labels = BTreeMap<String, String>;

/// What stands under one `# HELP`.
#[derive(Debug, Default)]
struct Family {
    help: String,
    kind: String,
    /// By the sample's name and labels.
    samples: BTreeMap<(String, Labels), f64>,
}

impl Family {
    fn labels(&self) -> BTreeSet<&str> {
        let names = self.samples.keys().flat_map(|(_, labels)| labels.keys());
        names.map(String::as_str).filter(|&name| name != "le").collect()
    }
}

#[derive(Debug)]
struct Exposition(BTreeMap<String, Family>);

impl Exposition {
    /// Takes what the format allows and this server writes, and nothing else.
    fn parse(text: &str) -> Self {
        assert!(text.ends_with('\n'));
        let mut families = BTreeMap::new();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let (name, help) = line.strip_prefix("# HELP ").unwrap().split_once(' ').unwrap();
            let (typed, kind) =
                lines.next().unwrap().strip_prefix("# TYPE ").unwrap().split_once(' ').unwrap();
            assert_eq!(typed, name);
            let mut family = Family { help: help.into(), kind: kind.into(), ..Family::default() };
            while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
                let (sample, labels, value) = parse_sample(line);
                assert!(family.samples.insert((sample, labels), value).is_none(), "twice: {line}");
            }
            check_family(name, &family);
            assert!(families.insert(name.to_owned(), family).is_none(), "{name} stands twice");
        }
        Self(families)
    }

    /// The sample of a name and labels as Prometheus writes them.
    fn value(&self, sample: &str) -> f64 {
        let (name, labels, _) = parse_sample(&format!("{sample} 0"));
        let key = (name, labels);
        let values = self.0.values().filter_map(|family| family.samples.get(&key));
        values.copied().next().unwrap_or_else(|| panic!("there is no {sample}"))
    }
}

fn parse_sample(line: &str) -> (String, Labels, f64) {
    let (sample, value) = line.rsplit_once(' ').unwrap();
    let (name, labels) = match sample.split_once('{') {
        None => (sample, Labels::new()),
        Some((name, rest)) => (name, parse_labels(rest.strip_suffix('}').unwrap())),
    };
    assert!(name.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase()), "{line}");
    (name.to_owned(), labels, value.parse().unwrap())
}

fn parse_labels(mut rest: &str) -> Labels {
    let mut labels = Labels::new();
    loop {
        let (name, after) = rest.split_once("=\"").unwrap();
        let mut value = String::new();
        let mut characters = after.chars();
        loop {
            match characters.next().unwrap() {
                '"' => break,
                '\\' => value.push(characters.next().map(|one| if one == 'n' { '\n' } else { one }).unwrap()),
                one => value.push(one),
            }
        }
        assert!(labels.insert(name.to_owned(), value).is_none(), "{name} stands twice");
        match characters.as_str().strip_prefix(',') {
            Some(next) => rest = next,
            None => {
                assert_eq!(characters.as_str(), "");
                return labels;
            }
        }
    }
}

fn check_family(name: &str, family: &Family) {
    assert!(!family.samples.is_empty(), "{name} has no sample");
    assert_eq!(name.ends_with("_total"), family.kind == "counter", "{name}");
    if family.kind == "histogram" {
        return check_histogram(name, family);
    }
    assert!(["counter", "gauge"].contains(&&*family.kind), "{name} is a {}", family.kind);
    for ((sample, _), value) in &family.samples {
        assert!(sample == name && *value >= 0.0, "{sample} {value} in {name}");
    }
}

/// Cumulative buckets that end in infinity, which is the count, and a sum.
fn check_histogram(name: &str, family: &Family) {
    let mut buckets: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
    for ((sample, labels), &value) in &family.samples {
        let mut labels = labels.clone();
        let bound = labels.remove("le");
        assert_eq!(bound.is_some(), *sample == format!("{name}_bucket"), "{sample}");
        if let Some(bound) = bound {
            buckets.entry(labels).or_default().push((bound.parse().unwrap(), value));
        }
    }
    assert!(!buckets.is_empty(), "{name} has no buckets");
    let mut samples = 0;
    for (labels, mut buckets) in buckets {
        buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        assert!(buckets.is_sorted_by(|one, next| one.0 < next.0 && one.1 <= next.1), "{name}: {buckets:?}");
        let (bound, count) = *buckets.last().unwrap();
        let of = |suffix: &str| family.samples[&(format!("{name}_{suffix}"), labels.clone())];
        assert_eq!((bound, count), (f64::INFINITY, of("count")), "{name}");
        assert!(of("sum") >= 0.0);
        samples += buckets.len() + 2;
    }
    assert_eq!(samples, family.samples.len(), "{name} has samples of its own");
}

fn expose(engine: &Engine, model: &str) -> Exposition {
    let (stats, histograms) = (engine.stats(), Arc::clone(engine.histograms()));
    Exposition::parse(&Scrape { stats, histograms, model: model.into() }.text().unwrap())
}

#[test]
fn the_documentation_has_every_metric_and_no_other() {
    let (engine, _receiver) = channel(EngineLimits::default());
    let Exposition(exported) = expose(&engine, "m");
    let mut documented = BTreeSet::new();
    let rows = DOCUMENTATION.lines().skip_while(|line| !line.starts_with("| name and labels |")).skip(2);
    for row in rows.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, unit, meaning, question] = cells[..] else { panic!("five cells: {row}") };
        let name = name.strip_prefix('`').and_then(|name| name.strip_suffix('`')).unwrap();
        let (name, labels) = name.split_once('{').unwrap_or((name, "}"));
        let labels = labels.strip_suffix('}').unwrap().split(',').filter(|label| !label.is_empty());
        let family = exported.get(name).unwrap_or_else(|| panic!("{name} is not exported"));
        assert_eq!((&*family.kind, &*family.help), (kind, meaning), "{name}");
        assert_eq!(family.labels(), labels.collect(), "{name}");
        assert!(question.ends_with('?'), "{name}");
        let base = name.strip_suffix("_total").unwrap_or(name);
        for named in ["seconds", "bytes", "tokens"] {
            assert_eq!(base.ends_with(&format!("_{named}")), unit == named, "{name} in {unit}");
        }
        assert!(documented.insert(name), "{name} stands twice");
    }
    let exported: BTreeSet<&str> = exported.keys().map(String::as_str).collect();
    assert_eq!(exported, documented);
}

/// Written out whole, so that a new counter has to be thought of here.
fn distinct_stats() -> EngineStats {
    let tier = |first: u64| Counters {
        is_on: true,
        is_degraded: false,
        bytes: first,
        budget_bytes: first + 1,
        checkpoints: first + 2,
        pages: first + 3,
        hits: first + 4,
        misses: first + 5,
        stores: first + 6,
        store_failures: first + 7,
        drops: first + 8,
    };
    EngineStats {
        requests_running: 101,
        requests_waiting: 102,
        slots_free: 103,
        slots_max: 104,
        pages_free: 105,
        pages_cached: 106,
        pages_max: 107,
        snapshots_free: 108,
        snapshots_cached: 109,
        snapshots_max: 110,
        requests_finished: 111,
        requests_cancelled: 112,
        requests_failed: 113,
        requests_refused: 126,
        preemptions: 114,
        prompt_tokens_computed: 115,
        prompt_tokens_cached: 116,
        checkpoints_published: 117,
        checkpoints_duplicate: 118,
        checkpoints_skipped: 119,
        checkpoints_thinned: 120,
        evictions_for_pages: 121,
        evictions_for_snapshots: 122,
        fetches: 123,
        fetches_failed: 124,
        tiers: TierStats { memory: tier(201), disk: Counters { is_degraded: true, ..tier(301) } },
        tokens_generated: 125,
        failed: true,
    }
}

fn numbers(value: &Value, into: &mut Vec<f64>) {
    match value {
        Value::Number(number) => into.extend(number.as_f64()),
        Value::Object(fields) => fields.values().for_each(|field| numbers(field, into)),
        _ => {}
    }
}

#[test]
fn every_counter_of_the_engine_is_exported_once() {
    let stats = distinct_stats();
    let mut counted = Vec::new();
    numbers(&serde_json::to_value(&stats).unwrap(), &mut counted);
    let scrape = Scrape { stats, histograms: Arc::default(), model: "a \"b\" \\ c\n".into() };
    let exposition = Exposition::parse(&scrape.text().unwrap());
    let plain = exposition.0.values().filter(|family| family.kind != "histogram");
    let exported: Vec<f64> = plain.flat_map(|family| family.samples.values().copied()).collect();
    for number in counted {
        assert_eq!(exported.iter().filter(|&&value| value == number).count(), 1, "{number}");
    }
    for (sample, value) in [
        ("flare_engine_failed", 1.0),
        ("flare_tier_on{tier=\"memory\"}", 1.0),
        ("flare_tier_degraded{tier=\"memory\"}", 0.0),
        ("flare_tier_degraded{tier=\"disk\"}", 1.0),
        ("flare_requests_refused_total", 126.0),
        ("flare_evictions_total{pressure=\"pages\"}", 121.0),
        ("flare_evictions_total{pressure=\"snapshots\"}", 122.0),
        ("flare_tier_misses_total{tier=\"disk\"}", 306.0),
    ] {
        assert_eq!(exposition.value(sample), value, "{sample}");
    }
    let build = format!(
        "flare_build_info{{version=\"{}\",model=\"a \\\"b\\\" \\\\ c\\n\"}}",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(exposition.value(&build), 1.0);
}

fn request(prompt: impl Iterator<Item = u32>, output_tokens_max: u32) -> GenerationRequest {
    GenerationRequest {
        client: ClientId(0),
        prompt: prompt.map(TokenId).collect(),
        endpoints: Arc::default(),
        cache_salt: None,
        sampling: SamplingParameters::neutral(),
        output_tokens_max,
        ignore_eos: true,
        logprobs: None,
        constraint: None,
    }
}

#[tokio::test]
async fn a_run_of_the_engine_shows_in_the_numbers() {
    let (pages, snapshots) = (72, 12);
    let contract = contract();
    let executor = SimExecutor::new(&contract, pages, snapshots, None, Duration::ZERO);
    let (engine, receiver) = channel(EngineLimits::default());
    let (tiers, core) = (TierOptions::default(), Digest([0; 32]));
    let options = WorkerOptions { pages, snapshots, tiers, core };
    let worker = Worker::start(&contract, options, Box::new(executor), receiver).unwrap();
    // The same prompt again starts from its checkpoint; a prompt with an impossible token is refused.
    for _ in 0..2 {
        let mut generation = engine.submit(request(1..=20, 10)).await.unwrap();
        while generation.events.recv().await.is_some() {}
    }
    let mut refused = engine.submit(request(1_000_000..1_000_001, 1)).await.unwrap();
    while refused.events.recv().await.is_some() {}
    eventually(|| engine.stats().requests_failed == 1 && engine.stats().slots_free == SLOTS).await;

    let exposition = expose(&engine, "tests/tiny");
    for (sample, value) in [
        ("flare_requests_total{outcome=\"finished\"}", 2.0),
        ("flare_requests_total{outcome=\"failed\"}", 1.0),
        ("flare_requests_running", 0.0),
        ("flare_slots_max", SLOTS.into()),
        ("flare_prompt_tokens_total{source=\"computed\"}", 20.0),
        ("flare_prompt_tokens_total{source=\"cache\"}", 20.0),
        ("flare_generated_tokens_total", 20.0),
        ("flare_request_queue_time_seconds_count", 2.0),
        ("flare_time_to_first_token_seconds_count", 2.0),
        ("flare_inter_token_time_seconds_count", 18.0),
        ("flare_request_duration_seconds_count", 2.0),
        ("flare_request_prompt_tokens_sum", 40.0),
        ("flare_request_prompt_tokens_bucket{le=\"16\"}", 0.0),
        ("flare_request_prompt_tokens_bucket{le=\"64\"}", 2.0),
        ("flare_request_cached_tokens_sum", 20.0),
        ("flare_request_cached_tokens_bucket{le=\"0\"}", 1.0),
        ("flare_request_generated_tokens_sum", 20.0),
        ("flare_step_duration_seconds_count{operation=\"initialize\"}", 2.0),
        ("flare_step_duration_seconds_count{operation=\"restore\"}", 1.0),
        ("flare_step_duration_seconds_count{operation=\"resume\"}", 1.0),
    ] {
        assert_eq!(exposition.value(sample), value, "{sample}");
    }
    let decoded = exposition.value("flare_step_duration_seconds_count{operation=\"decode\"}");
    assert!(decoded >= 18.0);
    assert_eq!(exposition.value("flare_decode_lanes_count"), decoded);
    assert_eq!(exposition.value("flare_decode_lanes_bucket{le=\"1\"}"), decoded);
    let published = exposition.value("flare_checkpoints_total{outcome=\"published\"}");
    assert!(published >= 2.0);
    assert_eq!(exposition.value("flare_snapshots_cached"), published);
    assert_eq!(
        exposition.value("flare_pages_free") + exposition.value("flare_pages_cached"),
        exposition.value("flare_pages_max")
    );
    engine.shutdown(0).await;
    worker.join();
}

#[tokio::test]
async fn metrics_are_served_in_every_state() {
    let failure = EngineError::Execution("secret".into());
    let server = TestServer::start(move |request| match request.sampling.seed {
        1 => vec![Admit(0), Fail(failure.clone())],
        _ => vec![Admit(0), End],
    })
    .await;
    let get = async || {
        let reply = server.get("/metrics").await;
        assert_eq!(reply.status, 200);
        assert_eq!(reply.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
        Exposition::parse(&reply.body)
    };
    assert_eq!(get().await.value("flare_engine_failed"), 0.0);
    server.post("/v1/completions", &serde_json::json!({"prompt": "a", "seed": 1})).await;
    assert_eq!(get().await.value("flare_engine_failed"), 1.0);
    server.service.stop();
    let build = format!(
        "flare_build_info{{version=\"{}\",model=\"{}\"}}",
        env!("CARGO_PKG_VERSION"),
        server.service.model.id
    );
    assert_eq!(get().await.value(&build), 1.0);
}
