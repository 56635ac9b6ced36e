//! From a step to a program's inputs: field orders are the contract's, buffers are reused, and only what changed is sent.

use crate::core::contract::{BoundContract, OperationFamily, ValueSource};
use crate::core::proto::{PrefillField, RequestField, RequestParameter, StateField};
use crate::device::{BufferId, DeviceError, ProgramId};
use crate::ids::{RequestId, SlotId, TokenId};
use crate::schedule::{Capacity, Geometry, Operation, PageUpdate, StateCopy, Step};

use super::engine::GenerationRequest;
use super::queue::DeviceQueue;

const COMMAND_FIELDS: usize = 8;
const REQUEST_FIELDS: usize = 16;
const REQUEST_PARAMETERS: usize = 8;

/// Why a core cannot be driven.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    #[error("the core binds no buffer for {source_name}; prepare it again")]
    MissingBuffer { source_name: &'static str },
    #[error("the core has no {family} program; prepare it again")]
    MissingProgram { family: &'static str },
}

/// The buffer of a source that the runtime cannot do without.
pub(super) fn require(contract: &BoundContract, source: ValueSource) -> Result<BufferId, BindError> {
    contract.buffer(source).ok_or(BindError::MissingBuffer { source_name: source.as_str_name() })
}

/// What the scheduler needs to know of a core that is loaded with `pages` KV pages and `snapshots` snapshot rows.
pub fn geometry(contract: &BoundContract, pages: u32, snapshots: u32) -> Geometry {
    let capacities = |family, size: fn(&crate::core::contract::Program) -> u32| {
        let mut capacities: Vec<Capacity> = contract
            .programs_of(family)
            // A cost that was not measured counts as the same for all.
            .map(|(_, program)| Capacity {
                size: size(program),
                cost_ns: (program.cost_ms * 1e6).max(1.0) as u64,
            })
            .collect();
        capacities.sort_unstable_by_key(|capacity| capacity.size);
        capacities
    };
    Geometry {
        page_tokens: contract.state.page_tokens,
        pages,
        snapshots,
        slots: contract.limits.requests_max,
        context_tokens_max: contract.limits.context_tokens_max,
        prefill: capacities(OperationFamily::Prefill, |program| program.tokens),
        decode: capacities(OperationFamily::Decode, |program| program.requests),
        frames: contract.completion.frames,
    }
}

/// Packs and submits steps.
#[derive(Debug)]
pub struct Packer {
    frame: BufferId,
    lane_slots: BufferId,
    lane_epochs: BufferId,
    lane_masked: BufferId,
    grammar_masks: BufferId,
    mask_words: u32,
    prefill_command: BufferId,
    prefill_tokens: BufferId,
    admission_command: BufferId,
    admission_fields: BufferId,
    admission_parameters: BufferId,
    admission_prompt: BufferId,
    /// Tokens and values; absent when the core takes no bias.
    admission_bias: Option<(BufferId, BufferId)>,
    state_command: BufferId,
    page_table: BufferId,
    table_width: u32,
    /// Row of snapshot 0.
    snapshot_row: u32,
    initialize: ProgramId,
    restore: ProgramId,
    snapshot: ProgramId,
    resume: ProgramId,
    resume_capacity: u32,
    /// Programs by capacity.
    prefill: Vec<(u32, ProgramId)>,
    decode: Vec<(u32, ProgramId)>,
    /// Holds one upload at a time; large enough for any from the start.
    bytes: Vec<u8>,
}

impl Packer {
    /// # Errors
    /// A buffer or program that the core lacks.
    pub fn new(contract: &BoundContract) -> Result<Self, BindError> {
        let buffer = |source| require(contract, source);
        let bias = (contract.limits.bias_entries_max > 0).then_some(());
        let admission_bias = bias
            .map(|()| {
                Ok((buffer(ValueSource::AdmissionBiasTokens)?, buffer(ValueSource::AdmissionBiasValues)?))
            })
            .transpose()?;
        let program = |family: OperationFamily, name| {
            contract.programs_of(family).next().ok_or(BindError::MissingProgram { family: name })
        };
        let (resume, resume_program) = program(OperationFamily::Resume, "resume")?;
        let prefill: Vec<_> = contract.programs_of(OperationFamily::Prefill).collect();
        let decode: Vec<_> = contract.programs_of(OperationFamily::Decode).collect();
        let lanes_max = decode.iter().map(|(_, program)| program.requests).max().unwrap_or(0);
        let table_width = contract.state.pages_per_request_max;
        // Every upload is of at most so many words of 8 bytes.
        let words_max = contract.limits.context_tokens_max.max(lanes_max).max(table_width);
        let words_max = words_max.max(contract.limits.bias_entries_max).max(REQUEST_FIELDS as u32);
        let words_max = words_max.max(contract.limits.vocabulary.div_ceil(u64::BITS));
        Ok(Self {
            frame: buffer(ValueSource::Frame)?,
            lane_slots: buffer(ValueSource::LaneSlots)?,
            lane_epochs: buffer(ValueSource::LaneEpochs)?,
            lane_masked: buffer(ValueSource::LaneMasked)?,
            grammar_masks: buffer(ValueSource::GrammarMasks)?,
            mask_words: contract.limits.vocabulary.div_ceil(u32::BITS),
            prefill_command: buffer(ValueSource::PrefillCommand)?,
            prefill_tokens: buffer(ValueSource::PrefillTokens)?,
            admission_command: buffer(ValueSource::AdmissionCommand)?,
            admission_fields: buffer(ValueSource::AdmissionFields)?,
            admission_parameters: buffer(ValueSource::AdmissionParameters)?,
            admission_prompt: buffer(ValueSource::AdmissionPrompt)?,
            admission_bias,
            state_command: buffer(ValueSource::StateCommand)?,
            page_table: buffer(ValueSource::PageTable)?,
            table_width,
            snapshot_row: contract.state.base_rows(contract.limits.requests_max),
            initialize: program(OperationFamily::Initialize, "initialize")?.0,
            restore: program(OperationFamily::Restore, "restore")?.0,
            snapshot: program(OperationFamily::Snapshot, "snapshot")?.0,
            resume,
            resume_capacity: resume_program.requests,
            prefill: prefill.iter().map(|&(id, program)| (program.tokens, id)).collect(),
            decode: decode.iter().map(|&(id, program)| (program.requests, id)).collect(),
            bytes: Vec::with_capacity(words_max as usize * 8),
        })
    }

    /// Uploads a step's inputs but for masks, and gives its program. `request` gives what is asked for when one is
    /// initialized; later it may have ended.
    pub(super) fn pack<'a>(
        &mut self,
        device: &mut DeviceQueue,
        step: &Step,
        request: impl FnOnce(RequestId) -> &'a GenerationRequest,
    ) -> Result<ProgramId, DeviceError> {
        self.upload_i64(device, self.frame, 0, [i64::from(step.frame)])?;
        let program = match step.operation {
            Operation::Initialize { output_limit, generated_before } => {
                let request = request(step.lanes[0].request);
                self.pack_table_row(device, step)?;
                self.pack_admission(device, step, request, output_limit, generated_before)?;
                self.initialize
            }
            Operation::Prefill { capacity, consumed, sample } => {
                self.pack_page_updates(device, &step.page_updates)?;
                self.pack_chunk(device, step, consumed, sample)?;
                program_of(&self.prefill, capacity)
            }
            Operation::Decode { capacity } => {
                self.pack_page_updates(device, &step.page_updates)?;
                self.pack_lanes(device, step, capacity)?;
                program_of(&self.decode, capacity)
            }
            Operation::Restore(copy) => {
                self.pack_state_copy(device, step, copy)?;
                self.restore
            }
            Operation::Snapshot(copy) => {
                self.pack_state_copy(device, step, copy)?;
                self.snapshot
            }
            Operation::Resume => {
                self.pack_page_updates(device, &step.page_updates)?;
                self.pack_lanes(device, step, self.resume_capacity)?;
                self.resume
            }
        };
        Ok(program)
    }

    /// Uploads the masks of the lanes that take one.
    pub(super) fn pack_masks<'a>(
        &mut self,
        device: &mut DeviceQueue,
        step: &Step,
        mask: impl Fn(RequestId) -> &'a [u32],
    ) -> Result<(), DeviceError> {
        for (index, lane) in (0..).zip(&step.lanes).filter(|(_, lane)| lane.is_masked) {
            self.pack_mask(device, index, mask(lane.request))?;
        }
        Ok(())
    }

    /// The slot as it shall be: its fields, parameters and bias, and the history that its histogram counts.
    fn pack_admission(
        &mut self,
        device: &mut DeviceQueue,
        step: &Step,
        request: &GenerationRequest,
        output_limit: u32,
        generated_before: u32,
    ) -> Result<(), DeviceError> {
        let sampling = &request.sampling;
        let lane = &step.lanes[0];
        let mut command = [0; COMMAND_FIELDS];
        command[0] = i64::from(lane.slot.0);
        command[1] = step.tokens.len() as i64;
        self.upload_i64(device, self.admission_command, 0, command)?;

        let mut fields = [0; REQUEST_FIELDS];
        fields[RequestField::Epoch as usize] = bits(lane.epoch.0);
        fields[RequestField::Pending as usize] = -1;
        fields[RequestField::Seed as usize] = bits(stream_seed(sampling.seed, generated_before));
        fields[RequestField::TopK as usize] = i64::from(sampling.top_k);
        fields[RequestField::OutputLimit as usize] = i64::from(output_limit);
        fields[RequestField::IgnoreEos as usize] = i64::from(request.ignore_eos);
        fields[RequestField::Logprobs as usize] = request.logprobs.map_or(-1, i64::from);
        fields[RequestField::BiasCount as usize] = sampling.logit_bias.len() as i64;
        self.upload_i64(device, self.admission_fields, 0, fields)?;

        let mut parameters = [0.0; REQUEST_PARAMETERS];
        parameters[RequestParameter::Temperature as usize] = sampling.temperature;
        parameters[RequestParameter::TopP as usize] = sampling.top_p;
        parameters[RequestParameter::MinP as usize] = sampling.min_p;
        parameters[RequestParameter::Repetition as usize] = sampling.repetition_penalty;
        parameters[RequestParameter::Presence as usize] = sampling.presence_penalty;
        parameters[RequestParameter::Frequency as usize] = sampling.frequency_penalty;
        self.upload_f32(device, self.admission_parameters, parameters)?;

        self.upload_i64(device, self.admission_prompt, 0, tokens(&step.tokens))?;
        if let Some((bias_tokens, bias_values)) = self.admission_bias
            && !sampling.logit_bias.is_empty()
        {
            let entries = &sampling.logit_bias;
            self.upload_i64(device, bias_tokens, 0, entries.iter().map(|entry| i64::from(entry.0.0)))?;
            self.upload_f32(device, bias_values, entries.iter().map(|entry| entry.1))?;
        }
        Ok(())
    }

    fn pack_chunk(
        &mut self,
        device: &mut DeviceQueue,
        step: &Step,
        consumed: u32,
        sample: bool,
    ) -> Result<(), DeviceError> {
        let lane = &step.lanes[0];
        let mut command = [0; COMMAND_FIELDS];
        command[PrefillField::Slot as usize] = i64::from(lane.slot.0);
        command[PrefillField::Epoch as usize] = bits(lane.epoch.0);
        command[PrefillField::Consumed as usize] = i64::from(consumed);
        command[PrefillField::Count as usize] = step.tokens.len() as i64;
        command[PrefillField::Sample as usize] = i64::from(sample);
        command[PrefillField::Masked as usize] = i64::from(lane.is_masked);
        self.upload_i64(device, self.prefill_command, 0, command)?;
        self.upload_i64(device, self.prefill_tokens, 0, tokens(&step.tokens))
    }

    fn pack_state_copy(
        &mut self,
        device: &mut DeviceQueue,
        step: &Step,
        copy: StateCopy,
    ) -> Result<(), DeviceError> {
        let lane = &step.lanes[0];
        self.pack_page_updates(device, &step.page_updates)?;
        let mut command = [0; COMMAND_FIELDS];
        command[StateField::Slot as usize] = i64::from(lane.slot.0);
        command[StateField::Epoch as usize] = bits(lane.epoch.0);
        command[StateField::Row as usize] = i64::from(self.snapshot_row + copy.snapshot.0);
        command[StateField::Consumed as usize] = i64::from(copy.consumed);
        command[StateField::Page as usize] = copy.partial_page.map_or(-1, |page| i64::from(page.0));
        self.upload_i64(device, self.state_command, 0, command)
    }

    fn pack_lanes(
        &mut self,
        device: &mut DeviceQueue,
        step: &Step,
        capacity: u32,
    ) -> Result<(), DeviceError> {
        let empty = capacity as usize - step.lanes.len();
        let slots = step.lanes.iter().map(|lane| i64::from(lane.slot.0));
        self.upload_i64(device, self.lane_slots, 0, slots.chain(std::iter::repeat_n(-1, empty)))?;
        let epochs = step.lanes.iter().map(|lane| bits(lane.epoch.0));
        self.upload_i64(device, self.lane_epochs, 0, epochs.chain(std::iter::repeat_n(0, empty)))?;
        let masked = step.lanes.iter().map(|lane| i64::from(lane.is_masked));
        self.upload_i64(device, self.lane_masked, 0, masked.chain(std::iter::repeat_n(0, empty)))
    }

    fn pack_mask(&mut self, device: &mut DeviceQueue, lane: u64, mask: &[u32]) -> Result<(), DeviceError> {
        assert_eq!(mask.len(), self.mask_words as usize, "a mask covers the vocabulary");
        self.bytes.clear();
        for word in mask {
            self.bytes.extend_from_slice(&word.to_le_bytes());
        }
        device.upload(self.grammar_masks, lane * u64::from(self.mask_words) * 4, &self.bytes)
    }

    /// The whole row of a slot: what its last request had mapped must not show through.
    fn pack_table_row(&mut self, device: &mut DeviceQueue, step: &Step) -> Result<(), DeviceError> {
        let mapped = step.page_updates.iter().map(|update| update.page.0 as i32);
        let unmapped = self.table_width as usize - step.page_updates.len();
        self.bytes.clear();
        for entry in mapped.chain(std::iter::repeat_n(-1, unmapped)) {
            self.bytes.extend_from_slice(&entry.to_le_bytes());
        }
        device.upload(self.page_table, self.table_offset(step.lanes[0].slot, 0), &self.bytes)
    }

    /// Runs of neighbouring entries go together.
    fn pack_page_updates(
        &mut self,
        device: &mut DeviceQueue,
        updates: &[PageUpdate],
    ) -> Result<(), DeviceError> {
        let is_run = |left: &PageUpdate, right: &PageUpdate| {
            left.slot == right.slot && left.logical_page + 1 == right.logical_page
        };
        for run in updates.chunk_by(is_run) {
            self.bytes.clear();
            for update in run {
                self.bytes.extend_from_slice(&(update.page.0 as i32).to_le_bytes());
            }
            let offset_bytes = self.table_offset(run[0].slot, run[0].logical_page);
            device.upload(self.page_table, offset_bytes, &self.bytes)?;
        }
        Ok(())
    }

    fn table_offset(&self, slot: SlotId, logical_page: u32) -> u64 {
        (u64::from(slot.0) * u64::from(self.table_width) + u64::from(logical_page)) * 4
    }

    fn upload_i64(
        &mut self,
        device: &mut DeviceQueue,
        buffer: BufferId,
        offset_bytes: u64,
        values: impl IntoIterator<Item = i64>,
    ) -> Result<(), DeviceError> {
        self.bytes.clear();
        for value in values {
            self.bytes.extend_from_slice(&value.to_le_bytes());
        }
        device.upload(buffer, offset_bytes, &self.bytes)
    }

    fn upload_f32(
        &mut self,
        device: &mut DeviceQueue,
        buffer: BufferId,
        values: impl IntoIterator<Item = f32>,
    ) -> Result<(), DeviceError> {
        self.bytes.clear();
        for value in values {
            self.bytes.extend_from_slice(&value.to_le_bytes());
        }
        device.upload(buffer, 0, &self.bytes)
    }
}

/// The seed that a request goes on with after a preemption: another random stream for every place it can happen at, and
/// its own where none happened.
pub(super) fn stream_seed(seed: u64, generated_before: u32) -> u64 {
    if generated_before == 0 {
        return seed;
    }
    // SplitMix64's finalizer, over a word that differs for each count.
    let word = seed.wrapping_add(u64::from(generated_before).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

fn program_of(programs: &[(u32, ProgramId)], capacity: u32) -> ProgramId {
    let chosen = programs.iter().find(|(size, _)| *size == capacity);
    chosen.expect("the scheduler's capacities are the programs'").1
}

fn tokens(tokens: &[TokenId]) -> impl Iterator<Item = i64> {
    tokens.iter().map(|token| i64::from(token.0))
}

/// A word as the device's signed type holds it.
fn bits(word: u64) -> i64 {
    i64::from_le_bytes(word.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preemption_changes_the_stream_and_its_place_matters() {
        assert_eq!(stream_seed(7, 0), 7);
        let mut seeds: Vec<u64> = (0..1000).map(|generated| stream_seed(7, generated)).collect();
        seeds.extend((1..1000).map(|generated| stream_seed(8, generated)));
        seeds.sort_unstable();
        assert!(seeds.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
