//! Modules, kernels and programs: every index in range, every kernel once, every family that serving needs.

use std::collections::BTreeSet;
use std::ops::Range;

use super::super::contract::{
    Buffer, DeviceIdentity, FunctionAttributes, Kernel, Limits, Module, ModuleFormat, Node, OperationFamily,
    Program, Region, ValueSource,
};
use super::super::{CoreError, proto};
use super::nodes::{self, SHARED_BYTES_MAX};
use super::{counted, element, known, name, within};
use crate::device::BufferId;

const MODULES_MAX: usize = 1024;
const KERNELS_MAX: usize = 1 << 16;
const PROGRAMS_MAX: usize = 256;
const NODES_MAX: usize = 1 << 20;
const SYMBOL_BYTES_MAX: usize = 4096;

/// What programs refer to.
pub struct Context<'a> {
    pub limits: Limits,
    pub regions: &'a [Region],
    /// Addresses that are nothing but the core's regions.
    pub window: Range<u64>,
    pub kernels: &'a [Kernel],
    pub is_cuda: bool,
    pub buffers: &'a [Buffer],
}

pub fn bind_code(
    modules: &[proto::Module],
    kernels: &[proto::Kernel],
    device: &DeviceIdentity,
    images: usize,
) -> Result<(Vec<Module>, Vec<Kernel>), CoreError> {
    counted("modules", modules, 1..=MODULES_MAX)?;
    counted("kernels", kernels, 1..=KERNELS_MAX)?;
    if modules.len() != images {
        let reason = format!("are {}, and the file holds {images} module images", modules.len());
        return Err(CoreError::contract("modules", reason));
    }
    let modules: Vec<Module> = modules
        .iter()
        .enumerate()
        .map(|(index, module)| bind_module(&format!("modules[{index}]"), module, device))
        .collect::<Result<_, _>>()?;
    let kernels: Vec<Kernel> = kernels
        .iter()
        .enumerate()
        .map(|(index, kernel)| bind_kernel(&format!("kernels[{index}]"), kernel, &modules))
        .collect::<Result<_, _>>()?;
    if matches!(device, DeviceIdentity::Cuda { .. }) {
        check_kernels_differ(&kernels)?;
    }
    Ok((modules, kernels))
}

/// B: the largest decode capacity that the contract claims.
pub fn decode_lanes(programs: &[proto::Program]) -> u32 {
    let decode = programs.iter().filter(|program| program.family() == OperationFamily::Decode);
    decode.map(|program| program.requests).max().unwrap_or(0)
}

pub fn bind(programs: Vec<proto::Program>, context: &Context<'_>) -> Result<Vec<Program>, CoreError> {
    counted("programs", &programs, 1..=PROGRAMS_MAX)?;
    let mut bound: Vec<Program> = Vec::with_capacity(programs.len());
    for (index, program) in programs.into_iter().enumerate() {
        let field = format!("programs[{index}]");
        let program = bind_program(&field, program, context)?;
        if bound.iter().any(|other| other.name == program.name) {
            return Err(CoreError::contract(format!("{field}.name"), format!("repeats `{}`", program.name)));
        }
        bound.push(program);
    }
    check_families(&bound, context.limits)?;
    Ok(bound)
}

fn bind_module(field: &str, module: &proto::Module, device: &DeviceIdentity) -> Result<Module, CoreError> {
    let format = match known(&format!("{field}.format"), module.format)? {
        proto::ModuleFormat::Elf => ModuleFormat::Elf,
        proto::ModuleFormat::Cubin => ModuleFormat::Cubin,
        proto::ModuleFormat::Unspecified => unreachable!("`known` refuses zero"),
    };
    let fitting = match device {
        DeviceIdentity::Host { .. } => ModuleFormat::Elf,
        DeviceIdentity::Cuda { .. } => ModuleFormat::Cubin,
    };
    if format != fitting {
        let reason = format!("is {format:?}, and the core's device takes {fitting:?}");
        return Err(CoreError::contract(format!("{field}.format"), reason));
    }
    Ok(Module { name: name(&format!("{field}.name"), &module.name)?, format })
}

fn bind_kernel(field: &str, kernel: &proto::Kernel, modules: &[Module]) -> Result<Kernel, CoreError> {
    element(&format!("{field}.module"), modules, kernel.module)?;
    let symbol = &kernel.symbol;
    if symbol.is_empty()
        || symbol.len() > SYMBOL_BYTES_MAX
        || !symbol.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Err(CoreError::contract(format!("{field}.symbol"), "is no symbol name"));
    }
    let shared = format!("{field}.max_dynamic_shared_bytes");
    let function = FunctionAttributes {
        max_dynamic_shared_bytes: within(&shared, kernel.max_dynamic_shared_bytes, 0..=SHARED_BYTES_MAX)?,
        non_portable_cluster: kernel.non_portable_cluster,
        preferred_carveout: match kernel.preferred_carveout {
            Some(percent) => Some(within(&format!("{field}.preferred_carveout"), percent, 0..=100)?),
            None => None,
        },
    };
    Ok(Kernel { module: kernel.module, symbol: symbol.clone(), function })
}

/// A CUDA function's attributes are set once, so it may be claimed once.
fn check_kernels_differ(kernels: &[Kernel]) -> Result<(), CoreError> {
    let mut seen = BTreeSet::new();
    for (index, kernel) in kernels.iter().enumerate() {
        if !seen.insert((kernel.module, &kernel.symbol)) {
            let reason = format!("repeats `{}` of module {}", kernel.symbol, kernel.module);
            return Err(CoreError::contract(format!("kernels[{index}]"), reason));
        }
    }
    Ok(())
}

fn bind_program(field: &str, program: proto::Program, context: &Context<'_>) -> Result<Program, CoreError> {
    let family: OperationFamily = known(&format!("{field}.family"), program.family)?;
    counted(&format!("{field}.nodes"), &program.nodes, 1..=NODES_MAX)?;
    if !program.cost_ms.is_finite() || program.cost_ms < 0.0 {
        let reason = format!("is {}, which is no duration", program.cost_ms);
        return Err(CoreError::contract(format!("{field}.cost_ms"), reason));
    }
    let bindings = bind_bindings(field, &program.bindings, family, context.buffers)?;
    let name = name(&format!("{field}.name"), &program.name)?;
    let nodes = program
        .nodes
        .into_iter()
        .enumerate()
        .map(|(index, node)| nodes::bind_node(|| format!("{field}.nodes[{index}]"), node, context))
        .collect::<Result<Vec<Node>, _>>()?;
    let edges = nodes::bind_edges(field, &program.edges, &nodes, context.is_cuda)?;
    Ok(Program {
        name,
        family,
        requests: program.requests,
        tokens: program.tokens,
        nodes,
        edges,
        bindings,
        cost_ms: program.cost_ms,
    })
}

fn bind_bindings(
    field: &str,
    bindings: &[u32],
    family: OperationFamily,
    buffers: &[Buffer],
) -> Result<Vec<BufferId>, CoreError> {
    let field = format!("{field}.bindings");
    counted(&field, bindings, 0..=buffers.len())?;
    let mut sources = Vec::with_capacity(bindings.len());
    for (index, &binding) in bindings.iter().enumerate() {
        sources.push(element(&format!("{field}[{index}]"), buffers, binding)?.source);
    }
    let missing = required(family).iter().find(|source| !sources.contains(source));
    if let Some(source) = missing {
        let reason =
            format!("lack {}, which programs of {} take", source.as_str_name(), family.as_str_name());
        return Err(CoreError::contract(field, reason));
    }
    Ok(bindings.iter().copied().map(BufferId).collect())
}

/// The sources that every program of a family reads or writes, whatever the model.
fn required(family: OperationFamily) -> &'static [ValueSource] {
    use ValueSource as Source;
    match family {
        OperationFamily::Unspecified => &[],
        OperationFamily::Prefill => &[
            Source::Frame,
            Source::PrefillCommand,
            Source::PrefillTokens,
            Source::GrammarMasks,
            Source::PageTable,
            Source::Completion,
            Source::LogprobTokens,
            Source::LogprobValues,
        ],
        OperationFamily::Decode => &[
            Source::Frame,
            Source::LaneSlots,
            Source::LaneEpochs,
            Source::LaneMasked,
            Source::GrammarMasks,
            Source::PageTable,
            Source::Completion,
            Source::LogprobTokens,
            Source::LogprobValues,
        ],
        OperationFamily::Resume => &[
            Source::Frame,
            Source::LaneSlots,
            Source::LaneEpochs,
            Source::LaneMasked,
            Source::GrammarMasks,
            Source::Completion,
            Source::LogprobTokens,
            Source::LogprobValues,
        ],
        OperationFamily::Initialize => &[
            Source::Frame,
            Source::AdmissionCommand,
            Source::AdmissionFields,
            Source::AdmissionParameters,
            Source::AdmissionPrompt,
            Source::AdmissionBiasTokens,
            Source::AdmissionBiasValues,
            Source::Completion,
        ],
        OperationFamily::Restore | OperationFamily::Snapshot | OperationFamily::Reset => {
            &[Source::Frame, Source::StateCommand, Source::Completion]
        }
    }
}

/// Checks that every family is there, with capacities that grow and cover the limits.
fn check_families(programs: &[Program], limits: Limits) -> Result<(), CoreError> {
    let prefill = capacities(programs, OperationFamily::Prefill, |program| program.tokens)?;
    let largest = prefill.last().copied().unwrap_or(0);
    within(
        "the largest prefill program's tokens",
        largest,
        limits.prefill_tokens_max..=limits.prefill_tokens_max,
    )?;
    let decode = capacities(programs, OperationFamily::Decode, |program| program.requests)?;
    let lanes = decode.last().copied().unwrap_or(0);
    let lanes_max = limits.requests_max.next_power_of_two();
    within("the largest decode program's requests", lanes, limits.requests_max..=lanes_max)?;
    let resume = capacities(programs, OperationFamily::Resume, |program| program.requests)?;
    within("the largest resume program's requests", resume.last().copied().unwrap_or(0), 1..=lanes)?;
    for family in [
        OperationFamily::Initialize,
        OperationFamily::Restore,
        OperationFamily::Snapshot,
        OperationFamily::Reset,
    ] {
        let count = capacities(programs, family, |program| program.requests)?.len();
        within(&format!("the number of {} programs", family.as_str_name()), count, 1..=1)?;
    }
    for (index, program) in programs.iter().enumerate() {
        let chunked = program.family == OperationFamily::Prefill;
        let several = matches!(program.family, OperationFamily::Decode | OperationFamily::Resume);
        if chunked != (program.tokens > 0) {
            let reason = format!("is {}: prefill programs, and no others, have tokens", program.tokens);
            return Err(CoreError::contract(format!("programs[{index}].tokens"), reason));
        }
        let requests_max = if several { lanes } else { 1 };
        within(&format!("programs[{index}].requests"), program.requests, 1..=requests_max)?;
    }
    Ok(())
}

/// The capacities of a family's programs, which must grow in the contract's order.
fn capacities(
    programs: &[Program],
    family: OperationFamily,
    capacity: impl Fn(&Program) -> u32,
) -> Result<Vec<u32>, CoreError> {
    let found = programs.iter().filter(|program| program.family == family);
    let capacities: Vec<u32> = found.map(capacity).collect();
    if capacities.is_empty() {
        return Err(CoreError::contract("programs", format!("lack the family {}", family.as_str_name())));
    }
    if !capacities.is_sorted_by(|left, right| left < right) {
        let reason = format!("of {} have capacities {capacities:?}, which do not grow", family.as_str_name());
        return Err(CoreError::contract("programs", reason));
    }
    Ok(capacities)
}
