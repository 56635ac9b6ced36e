//! `GET /metrics`: what the engine counts and observes, in Prometheus' text format.
//!
//! It counts nothing itself: every scrape reads [`EngineStats`] and [`EngineHistograms`] once, and answers whatever state
//! the engine is in. `docs/metrics.md` has the same names and the same words.

use std::fmt;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::error::ApiError;
use super::service::Service;
use crate::runtime::engine::EngineStats;
use crate::runtime::metrics::{EngineHistograms, Histogram};

pub(super) async fn metrics(State(service): State<Arc<Service>>) -> Result<Response, ApiError> {
    let scrape = Scrape {
        stats: service.engine.stats(),
        histograms: Arc::clone(service.engine.histograms()),
        model: service.model.id.clone(),
    };
    let text = scrape.text().map_err(|error| ApiError::internal(format!("writing the metrics: {error}")))?;
    Ok(([(header::CONTENT_TYPE, prometheus_text::CONTENT_TYPE)], text).into_response())
}

/// What one scrape reads from.
#[derive(Debug)]
pub(super) struct Scrape {
    pub stats: EngineStats,
    pub histograms: Arc<EngineHistograms>,
    pub model: String,
}

impl Scrape {
    /// # Errors
    /// None that a string gives: the encoder's interface has them.
    pub fn text(self) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        prometheus_text::encode(&mut text, &registry)?;
        Ok(text)
    }

    fn server(&self, page: &mut Page) -> fmt::Result {
        let build = [("version", env!("CARGO_PKG_VERSION")), ("model", &self.model)];
        page.family(
            "flare_build_info",
            "Always 1; the labels say what is served by what.",
            MetricType::Gauge,
        )?
        .encode_family(&build)?
        .encode_gauge(&1u32)?;
        page.gauge(
            "flare_engine_failed",
            "1 once execution has failed, and every request is refused.",
            self.stats.failed.into(),
        )
    }

    fn requests(&self, page: &mut Page) -> fmt::Result {
        let stats = &self.stats;
        page.gauge(
            "flare_requests_running",
            "Requests that hold a slot, prefilling or decoding.",
            stats.requests_running.into(),
        )?;
        page.gauge(
            "flare_requests_waiting",
            "Requests submitted and not yet admitted.",
            stats.requests_waiting.into(),
        )?;
        page.counters(
            "flare_requests",
            "Requests that have ended, by outcome. One whose stop string appeared or whose client left is cancelled.",
            "outcome",
            [
                ("finished", stats.requests_finished),
                ("cancelled", stats.requests_cancelled),
                ("failed", stats.requests_failed),
            ],
        )?;
        page.counter(
            "flare_requests_refused",
            "Requests that were not queued because the queue, or their client's share of it, was full.",
            stats.requests_refused,
        )?;
        page.gauge(
            "flare_slots_free",
            "Places for running requests that are free.",
            stats.slots_free.into(),
        )?;
        page.gauge("flare_slots_max", "Requests that can run at one time.", stats.slots_max.into())?;
        page.counter(
            "flare_preemptions",
            "Times a running request gave its pages to older ones, to go on later.",
            stats.preemptions,
        )?;
        page.counters(
            "flare_prompt_tokens",
            "Tokens that requests started from, by source. What a preempted request starts from again counts again.",
            "source",
            [("computed", stats.prompt_tokens_computed), ("cache", stats.prompt_tokens_cached)],
        )?;
        page.counter("flare_generated_tokens", "Tokens sampled for requests.", stats.tokens_generated)
    }

    fn cache(&self, page: &mut Page) -> fmt::Result {
        let stats = &self.stats;
        page.gauge("flare_pages_free", "KV pages that nothing uses.", stats.pages_free.into())?;
        page.gauge(
            "flare_pages_cached",
            "KV pages of cached checkpoints, given up when requests need them.",
            stats.pages_cached.into(),
        )?;
        page.gauge("flare_pages_max", "KV pages that the server has.", stats.pages_max.into())?;
        page.gauge("flare_snapshots_free", "Snapshot rows that nothing uses.", stats.snapshots_free.into())?;
        page.gauge(
            "flare_snapshots_cached",
            "Snapshot rows of cached checkpoints, one each.",
            stats.snapshots_cached.into(),
        )?;
        page.gauge("flare_snapshots_max", "Snapshot rows that the server has.", stats.snapshots_max.into())?;
        page.counters(
            "flare_checkpoints",
            "Checkpoints that were due, by outcome: published, a duplicate of one that was there, or skipped because every \
             row was in use.",
            "outcome",
            [
                ("published", stats.checkpoints_published),
                ("duplicate", stats.checkpoints_duplicate),
                ("skipped", stats.checkpoints_skipped),
            ],
        )?;
        page.counter(
            "flare_checkpoints_thinned",
            "Checkpoints between two others that were given up for their row; the conversations stay cached.",
            stats.checkpoints_thinned,
        )?;
        page.counters(
            "flare_evictions",
            "Ends of conversations that the cache gave up, by what was short.",
            "pressure",
            [("pages", stats.evictions_for_pages), ("snapshots", stats.evictions_for_snapshots)],
        )
    }

    fn tiers(&self, page: &mut Page) -> fmt::Result {
        page.counters(
            "flare_fetches",
            "Checkpoints asked back from a tier, by outcome; a failed one took too long, was damaged or made room.",
            "outcome",
            [("done", self.stats.fetches), ("failed", self.stats.fetches_failed)],
        )?;
        let (memory, disk) = (&self.stats.tiers.memory, &self.stats.tiers.disk);
        let is_on = [memory.is_on.into(), disk.is_on.into()];
        page.tier_gauge("flare_tier_on", "1 while the tier is in use.", is_on)?;
        let is_degraded = [memory.is_degraded.into(), disk.is_degraded.into()];
        page.tier_gauge(
            "flare_tier_degraded",
            "1 while the tier stores nothing because writing kept failing.",
            is_degraded,
        )?;
        page.tier_gauge("flare_tier_bytes", "Bytes that the tier holds.", [memory.bytes, disk.bytes])?;
        page.tier_gauge(
            "flare_tier_budget_bytes",
            "Bytes that the tier may hold.",
            [memory.budget_bytes, disk.budget_bytes],
        )?;
        let checkpoints = [memory.checkpoints, disk.checkpoints];
        page.tier_gauge("flare_tier_checkpoints", "Checkpoints that the tier holds.", checkpoints)?;
        page.tier_gauge("flare_tier_pages", "KV pages that the tier holds.", [memory.pages, disk.pages])?;
        page.tier_counter(
            "flare_tier_hits",
            "Checkpoints that were looked for in the tier and found.",
            [memory.hits, disk.hits],
        )?;
        page.tier_counter(
            "flare_tier_misses",
            "Checkpoints that were looked for in the tier and not found.",
            [memory.misses, disk.misses],
        )?;
        page.tier_counter(
            "flare_tier_stores",
            "Checkpoints that were copied to the tier.",
            [memory.stores, disk.stores],
        )?;
        page.tier_counter(
            "flare_tier_store_failures",
            "Checkpoints that could not be copied to the tier.",
            [memory.store_failures, disk.store_failures],
        )?;
        page.tier_counter(
            "flare_tier_drops",
            "Checkpoints that the tier gave up, for room or because they were damaged.",
            [memory.drops, disk.drops],
        )
    }

    fn distributions(&self, page: &mut Page) -> fmt::Result {
        let histograms = &*self.histograms;
        page.histogram(
            "flare_request_queue_time_seconds",
            "From submission to admission.",
            &histograms.queue_time,
        )?;
        page.histogram(
            "flare_time_to_first_token_seconds",
            "From submission to the first token.",
            &histograms.time_to_first_token,
        )?;
        page.histogram(
            "flare_inter_token_time_seconds",
            "Between two tokens of a request, preemptions and other requests' prefill included.",
            &histograms.inter_token_time,
        )?;
        page.histogram(
            "flare_request_duration_seconds",
            "From submission to the end of an admitted request, whatever its outcome.",
            &histograms.request_duration,
        )?;
        page.histogram("flare_request_prompt_tokens", "Tokens of a prompt.", &histograms.prompt_tokens)?;
        page.histogram(
            "flare_request_cached_tokens",
            "Tokens of a prompt that came from the cache.",
            &histograms.cached_tokens,
        )?;
        page.histogram(
            "flare_request_generated_tokens",
            "Tokens that a request had got when it ended.",
            &histograms.generated_tokens,
        )?;
        page.histograms(
            "flare_step_duration_seconds",
            "How long one launch kept the device, by operation.",
            "operation",
            histograms.step_durations.by_operation(),
        )?;
        page.histogram("flare_decode_lanes", "Requests that a decode step served.", &histograms.decode_lanes)
    }
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let page = &mut Page(encoder);
        self.server(page)?;
        self.requests(page)?;
        self.cache(page)?;
        self.tiers(page)?;
        self.distributions(page)
    }
}

/// What has been written so far. A counter's name gets its `_total` from the encoder.
struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    fn family<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, None, kind)
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.family(name, help, MetricType::Gauge)?.encode_gauge(&value)
    }

    fn tier_gauge(&mut self, name: &str, help: &str, [memory, disk]: [u64; 2]) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Gauge)?;
        for (tier, value) in [("memory", memory), ("disk", disk)] {
            family.encode_family(&[("tier", tier)])?.encode_gauge(&value)?;
        }
        Ok(())
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Counter)?;
        family.encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    fn tier_counter(&mut self, name: &str, help: &str, [memory, disk]: [u64; 2]) -> fmt::Result {
        self.counters(name, help, "tier", [("memory", memory), ("disk", disk)])
    }

    fn counters<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: [(&str, u64); N],
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Counter)?;
        for (name, value) in values {
            family.encode_family(&[(label, name)])?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        Ok(())
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) -> fmt::Result {
        encode_histogram(self.family(name, help, MetricType::Histogram)?, histogram)
    }

    fn histograms<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        histograms: [(&str, &Histogram); N],
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Histogram)?;
        for (name, histogram) in histograms {
            encode_histogram(family.encode_family(&[(label, name)])?, histogram)?;
        }
        Ok(())
    }
}

fn encode_histogram(mut encoder: MetricEncoder, histogram: &Histogram) -> fmt::Result {
    let read = histogram.read();
    encoder.encode_histogram::<NoLabelSet>(read.sum, read.count, &read.buckets, None)
}
