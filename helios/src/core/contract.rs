//! The bound contract: a core's description after every claim in it has been checked.
//!
//! Values of these types exist only for a valid core: indexes are in range, views lie inside their regions, every source that
//! a program needs is bound, and enums are known. Nothing here names a model except [`Identity::model_name`], which only
//! the server shows.

use crate::device::{BufferId, ProgramId};
use crate::ids::{RowId, SlotId, TokenId};

pub use super::proto::{AccessProperty, DataType, OperationFamily, ReasoningParser, ToolParser, ValueSource};

/// A validated core, without its payloads.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundContract {
    pub identity: Identity,
    pub limits: Limits,
    pub regions: Vec<Region>,
    pub modules: Vec<Module>,
    pub kernels: Vec<Kernel>,
    pub buffers: Vec<Buffer>,
    pub state: StateLayout,
    pub completion: CompletionLayout,
    pub programs: Vec<Program>,
    pub sampling: SamplingDefaults,
    pub frontend: Frontend,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub abi: u32,
    pub model_name: String,
    pub model_fingerprint: String,
    pub storage_digest: String,
    pub device: DeviceIdentity,
    pub created: String,
    pub versions: String,
}

/// The device that the core was prepared for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceIdentity {
    Host { architecture: String, isa: Vec<String> },
    Cuda { compute_major: u32, compute_minor: u32, multiprocessors: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub context_tokens_max: u32,
    pub requests_max: u32,
    pub vocabulary: u32,
    pub prefill_tokens_max: u32,
    pub bias_entries_max: u32,
    pub logprobs_max: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionRole {
    Weights,
    Io,
    Scratch,
    Rows,
    Pages,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionBacking {
    Storage,
    Zeroed,
    Elastic,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    pub name: String,
    pub address: u64,
    pub bytes: u64,
    pub role: RegionRole,
    pub backing: RegionBacking,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleFormat {
    Elf,
    Cubin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    pub name: String,
    pub format: ModuleFormat,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    pub module: u32,
    pub symbol: String,
    pub function: FunctionAttributes,
}

/// What a CUDA function is set to before it is launched. The default leaves a function as its module says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionAttributes {
    pub max_dynamic_shared_bytes: u32,
    pub non_portable_cluster: bool,
    /// Percent of L1 for shared memory.
    pub preferred_carveout: Option<u32>,
}

/// A named array that the runtime writes or reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    pub source: ValueSource,
    pub address: u64,
    pub bytes: u64,
    pub data_type: DataType,
    pub shape: Vec<u64>,
}

/// Row and page geometry; all that admission, growth and eviction may know of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateLayout {
    pub rows_region: u32,
    pub row_stride_bytes: u64,
    pub rows_per_slot: u32,
    pub pages_region: u32,
    pub page_stride_bytes: u64,
    pub page_tokens: u32,
    /// Width of the page table: pages that a whole context takes.
    pub pages_per_request_max: u32,
}

impl ValueSource {
    /// Whether the runtime writes it; launches write the others.
    pub fn is_uploaded(self) -> bool {
        match self {
            Self::Frame
            | Self::LaneSlots
            | Self::LaneEpochs
            | Self::LaneMasked
            | Self::GrammarMasks
            | Self::PrefillCommand
            | Self::PrefillTokens
            | Self::AdmissionCommand
            | Self::AdmissionFields
            | Self::AdmissionParameters
            | Self::AdmissionPrompt
            | Self::AdmissionBiasTokens
            | Self::AdmissionBiasValues
            | Self::StateCommand
            | Self::PageTable => true,
            Self::Unspecified
            | Self::RequestFields
            | Self::RequestParameters
            | Self::Histogram
            | Self::BiasTokens
            | Self::BiasValues
            | Self::Completion
            | Self::LogprobTokens
            | Self::LogprobValues
            | Self::Logits => false,
        }
    }
}

impl StateLayout {
    /// The first live row of a slot.
    pub fn live_row(&self, slot: SlotId) -> RowId {
        RowId(1 + slot.0 * self.rows_per_slot)
    }

    /// Rows that a core with `requests_max` slots needs before any snapshot: null and live rows.
    pub fn base_rows(&self, requests_max: u32) -> u32 {
        1 + requests_max * self.rows_per_slot
    }

    /// Pages that `tokens` of history take.
    pub fn pages_for(&self, tokens: u32) -> u32 {
        tokens.div_ceil(self.page_tokens)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionLayout {
    pub metadata_fields: u32,
    pub token_capacity: u32,
    pub frames: u32,
}

/// One prepared program.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    pub name: String,
    pub family: OperationFamily,
    pub requests: u32,
    pub tokens: u32,
    pub nodes: Vec<Node>,
    /// Each leads to a later node. None at all: nodes run one after another.
    pub edges: Vec<Edge>,
    pub bindings: Vec<BufferId>,
    pub cost_ms: f64,
}

/// A step of a program: a call in a host core, anything else in a CUDA core.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    Call { kernel: u32, arguments: Vec<u64> },
    Launch(Launch),
    Copy(Copy),
    Fill(Fill),
}

/// A CUDA kernel's launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    pub kernel: u32,
    pub grid: Extent3,
    pub block: Extent3,
    pub dynamic_shared_bytes: u32,
    /// The parameters' values, one after another; their sizes add up to this length.
    pub parameters: Vec<u8>,
    pub parameter_bytes: Vec<u32>,
    pub cooperative: bool,
    pub priority: i32,
    pub cluster: Option<Extent3>,
    pub preferred_cluster: Option<Extent3>,
    pub cluster_scheduling: ClusterScheduling,
    pub remote_memory_sync_domain: bool,
    /// The physical domains of the default and of the remote one.
    pub memory_sync_domain_map: Option<[u8; 2]>,
    pub access_window: Option<AccessWindow>,
    pub nvlink_centric_scheduling: bool,
}

#[cfg(test)]
impl Launch {
    /// One block of one thread, without parameters or attributes.
    pub(crate) fn plain() -> Self {
        let one = Extent3 { x: 1, y: 1, z: 1 };
        Self {
            kernel: 0,
            grid: one,
            block: one,
            dynamic_shared_bytes: 0,
            parameters: vec![],
            parameter_bytes: vec![],
            cooperative: false,
            priority: 0,
            cluster: None,
            preferred_cluster: None,
            cluster_scheduling: ClusterScheduling::Default,
            remote_memory_sync_domain: false,
            memory_sync_domain_map: None,
            access_window: None,
            nvlink_centric_scheduling: false,
        }
    }
}

/// Sides of a grid, block or cluster, none of them zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent3 {
    pub x: u32,
    pub y: u32,
    pub z: u32,
}

impl Extent3 {
    /// All of its elements.
    pub fn count(self) -> u64 {
        u64::from(self.x).saturating_mul(u64::from(self.y)).saturating_mul(u64::from(self.z))
    }

    /// Whether each side is a multiple of the other's.
    pub fn is_multiple_of(self, other: Self) -> bool {
        self.x.is_multiple_of(other.x) && self.y.is_multiple_of(other.y) && self.z.is_multiple_of(other.z)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterScheduling {
    Default,
    Spread,
    LoadBalancing,
}

/// How a launch's accesses to a range are kept in L2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AccessWindow {
    pub address: u64,
    pub bytes: u64,
    pub hit_ratio: f32,
    pub hit: AccessProperty,
    pub miss: AccessProperty,
}

/// A copy within the device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    pub destination: u64,
    pub source: u64,
    pub bytes: u64,
}

/// Elements of 1, 2 or 4 bytes, all set to one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    pub destination: u64,
    pub value: u32,
    pub element_bytes: u32,
    pub elements: u64,
}

/// `to` starts after `from` has come to `port`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    pub from: u32,
    pub to: u32,
    pub port: EdgePort,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgePort {
    /// Its end.
    End,
    /// Its blocks have triggered their dependents; these wait for its memory themselves.
    Trigger,
    /// Its blocks have all started; dependents wait for its memory themselves.
    Start,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SamplingDefaults {
    pub temperature: f32,
    pub top_k: u32,
    pub top_p: f32,
    pub min_p: f32,
    pub repetition_penalty: f32,
    pub presence_penalty: f32,
    pub frequency_penalty: f32,
    /// Requests are clamped to it where it is declared.
    pub temperature_range: Option<(f32, f32)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frontend {
    pub eos_tokens: Vec<TokenId>,
    pub bos_text: String,
    pub eos_text: String,
    pub tool_parser: ToolParser,
    pub reasoning_parser: ReasoningParser,
}

/// The text assets of a core, beside its contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontendAssets {
    /// tokenizer.json
    pub tokenizer: Vec<u8>,
    /// The chat template's Jinja source.
    pub template: String,
}

impl BoundContract {
    /// The buffer of a source; programs that bind a source have it.
    pub fn buffer(&self, source: ValueSource) -> Option<BufferId> {
        let index = self.buffers.iter().position(|buffer| buffer.source == source)?;
        u32::try_from(index).ok().map(BufferId)
    }

    /// Programs of a family, in the contract's order.
    pub fn programs_of(&self, family: OperationFamily) -> impl Iterator<Item = (ProgramId, &Program)> {
        (0u32..)
            .zip(&self.programs)
            .filter(move |(_, program)| program.family == family)
            .map(|(index, program)| (ProgramId(index), program))
    }
}
