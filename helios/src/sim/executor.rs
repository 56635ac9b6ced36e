//! A device of plain byte buffers: uploads land in them, launches read them as the contract lays them out and run the
//! [`Model`], and records come out as words.
//!
//! Everything submitted runs as late as it may, when a fence is waited for, so that nobody can rely on more. A sampled token
//! depends on every parameter that was uploaded, so a field in a wrong place shows as a wrong token.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::core::contract::{BoundContract, OperationFamily, ValueSource};
use crate::core::proto::{CompletionField, PrefillField, RequestField, StateField};
use crate::device::{BufferId, Copier, DeviceError, Executor, Fence, Placement, ProgramId};
use crate::ids::{Epoch, PageId, RowId, SlotId, SnapshotId, TokenId};
use crate::schedule::{Finish, Record, StateCopy, Status};

use super::model::{LaneInput, Model, SlotFields};
use super::random::mix;

/// What goes wrong, and at which call of its kind, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Launch(u64),
    Upload(u64),
    Wait(u64),
    Read(u64),
    /// From this launch on, this field of every record holds this value.
    Record(u64, CompletionField, i64),
    /// The device has room for one launch only; not a failure.
    Narrow,
    Panic(u64),
}

enum Command {
    Upload { buffer: usize, offset_bytes: usize, bytes: Vec<u8> },
    Early { program: usize },
    Launch { program: usize, fence: Fence },
}

pub(crate) struct SimExecutor {
    contract: BoundContract,
    buffers: Vec<Vec<u8>>,
    model: Model,
    commands: VecDeque<Command>,
    completed: Fence,
    /// A program that was begun, and every buffer then.
    early: Option<(usize, Vec<Vec<u8>>)>,
    fault: Option<Fault>,
    step_time: Duration,
    counts: [u64; 4],
    launches: Arc<AtomicU64>,
    early_launches: Arc<AtomicU64>,
    last_fence: u64,
    /// Alternatives that each slot's request asked for.
    logprobs: Vec<i64>,
}

impl SimExecutor {
    pub(crate) fn new(
        contract: &BoundContract,
        pages: u32,
        snapshots: u32,
        fault: Option<Fault>,
        step_time: Duration,
    ) -> Self {
        let (limits, state) = (&contract.limits, &contract.state);
        Self {
            buffers: contract.buffers.iter().map(|buffer| vec![0xAA; buffer.bytes as usize]).collect(),
            model: Model::new(limits.vocabulary, state.page_tokens, limits.requests_max, pages, snapshots),
            commands: VecDeque::new(),
            completed: Fence(0),
            early: None,
            fault,
            step_time,
            counts: [0; 4],
            launches: Arc::default(),
            early_launches: Arc::default(),
            last_fence: 0,
            logprobs: vec![-1; limits.requests_max as usize],
            contract: contract.clone(),
        }
    }

    /// Launches so far, for whoever gave the executor away.
    pub(crate) fn launches(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.launches)
    }

    /// Launches that were begun before their masks were there.
    pub(crate) fn early_launches(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.early_launches)
    }

    fn count(&mut self, kind: usize, fault: impl Fn(u64) -> Fault) -> Result<(), DeviceError> {
        self.counts[kind] += 1;
        let count = self.counts[kind];
        if self.fault == Some(fault(count)) {
            let operation = format!("{:?}", fault(count));
            let description = "as the test wants it".into();
            return Err(DeviceError::Driver { operation, code: 700, name: "SIMULATED".into(), description });
        }
        Ok(())
    }

    fn buffer(&self, source: ValueSource) -> &[u8] {
        &self.buffers[self.contract.buffer(source).expect("the contract has it").0 as usize]
    }

    fn words(&self, source: ValueSource) -> Vec<i64> {
        let (words, _) = self.buffer(source).as_chunks::<8>();
        words.iter().map(|&word| i64::from_le_bytes(word)).collect()
    }

    fn write(&mut self, source: ValueSource, offset_bytes: usize, bytes: &[u8]) {
        let buffer = self.contract.buffer(source).expect("the contract has it").0 as usize;
        self.buffers[buffer][offset_bytes..offset_bytes + bytes.len()].copy_from_slice(bytes);
    }

    fn table(&self, slot: SlotId) -> Vec<Option<PageId>> {
        let width = self.contract.state.pages_per_request_max as usize;
        let (entries, _) = self.buffer(ValueSource::PageTable).as_chunks::<4>();
        let row = &entries[slot.0 as usize * width..][..width];
        row.iter().map(|&entry| u32::try_from(i32::from_le_bytes(entry)).ok().map(PageId)).collect()
    }

    /// What was begun is what is launched, and nothing but masks has been written since.
    fn check_early(&mut self, program: usize) {
        let Some((begun, buffers)) = self.early.take() else { return };
        assert_eq!(begun, program, "a program that was begun is launched before any other");
        let masks = self.contract.buffer(ValueSource::GrammarMasks).expect("the contract has it").0 as usize;
        for (index, (before, now)) in buffers.iter().zip(&self.buffers).enumerate() {
            assert!(
                index == masks || before == now,
                "buffer {index} was written behind a program's beginning"
            );
        }
    }

    fn run(&mut self, program: usize) {
        let (family, lanes) =
            (self.contract.programs[program].family, self.contract.programs[program].requests);
        match family {
            OperationFamily::Initialize => self.initialize(),
            OperationFamily::Prefill => self.prefill(self.contract.programs[program].tokens),
            OperationFamily::Decode | OperationFamily::Resume => self.decode(lanes as usize, family),
            OperationFamily::Restore | OperationFamily::Snapshot => self.copy_state(family),
            other @ (OperationFamily::Unspecified | OperationFamily::Reset) => {
                panic!("the simulated core has no {other:?} program")
            }
        }
    }

    fn initialize(&mut self) {
        let command = self.words(ValueSource::AdmissionCommand);
        let fields = self.words(ValueSource::AdmissionFields);
        let prompt = &self.words(ValueSource::AdmissionPrompt)[..command[1] as usize];
        let prompt: Vec<TokenId> = prompt.iter().map(|&token| TokenId(token as u32)).collect();
        let slot = SlotId(command[0] as u32);
        assert_eq!(fields[RequestField::Consumed as usize], 0);
        assert_eq!(fields[RequestField::Generated as usize], 0);
        assert_eq!(fields[RequestField::Finished as usize], 0);
        assert_eq!(fields[RequestField::Pending as usize], -1);
        assert_eq!(fields[RequestField::Counter as usize], 0);
        assert_eq!(fields[12..], [0; 4]);
        let bias_count = fields[RequestField::BiasCount as usize] as usize;
        let seed = fields[RequestField::Seed as usize] as u64;
        let top_k = fields[RequestField::TopK as usize];
        let parameters = self.buffer(ValueSource::AdmissionParameters).as_chunks::<4>().0;
        let bias_values = self.buffer(ValueSource::AdmissionBiasValues).as_chunks::<4>().0;
        let bias_tokens = self.words(ValueSource::AdmissionBiasTokens);
        let bias = bias_tokens.into_iter().zip(bias_values.iter().copied().map(f32::from_le_bytes));
        let seed = stream(
            seed,
            top_k as u32,
            parameters[..6].iter().copied().map(f32::from_le_bytes),
            bias.take(bias_count),
        );
        self.logprobs[slot.0 as usize] = fields[RequestField::Logprobs as usize];
        let fields = SlotFields {
            epoch: Epoch(fields[RequestField::Epoch as usize] as u64),
            output_limit: fields[RequestField::OutputLimit as usize] as u32,
            ignore_eos: fields[RequestField::IgnoreEos as usize] == 1,
            seed,
        };
        let record = self.model.initialize(slot, fields, &prompt);
        self.complete(0, record, OperationFamily::Initialize);
    }

    fn prefill(&mut self, capacity: u32) {
        let command = self.words(ValueSource::PrefillCommand);
        let field = |field: PrefillField| command[field as usize];
        let slot = SlotId(field(PrefillField::Slot) as u32);
        let count = field(PrefillField::Count) as usize;
        assert!(count > 0 && count <= capacity as usize);
        let mask = self.mask(0, field(PrefillField::Masked));
        let tokens = &self.words(ValueSource::PrefillTokens)[..count];
        let tokens: Vec<TokenId> = tokens.iter().map(|&token| TokenId(token as u32)).collect();
        let table = self.table(slot);
        let epoch = Epoch(field(PrefillField::Epoch) as u64);
        let lane = LaneInput { slot, epoch, mask: mask.as_deref(), table: &table };
        let (consumed, sample) = (field(PrefillField::Consumed) as u32, field(PrefillField::Sample) == 1);
        let record = self.model.prefill(lane, consumed, &tokens, sample);
        self.complete(0, record, OperationFamily::Prefill);
    }

    fn copy_state(&mut self, family: OperationFamily) {
        let command = self.words(ValueSource::StateCommand);
        let field = |field: StateField| command[field as usize];
        let slot = SlotId(field(StateField::Slot) as u32);
        let epoch = Epoch(field(StateField::Epoch) as u64);
        let base_rows = self.contract.state.base_rows(self.contract.limits.requests_max);
        let copy = StateCopy {
            snapshot: SnapshotId(field(StateField::Row) as u32 - base_rows),
            consumed: field(StateField::Consumed) as u32,
            partial_page: u32::try_from(field(StateField::Page)).ok().map(PageId),
        };
        let table = self.table(slot);
        let lane = LaneInput { slot, epoch, mask: None, table: &table };
        let record = match family {
            OperationFamily::Restore => self.model.restore(lane, copy),
            _ => self.model.snapshot(lane, copy),
        };
        self.complete(0, record, family);
    }

    fn decode(&mut self, lanes: usize, family: OperationFamily) {
        let (slots, epochs) = (self.words(ValueSource::LaneSlots), self.words(ValueSource::LaneEpochs));
        let masked = self.words(ValueSource::LaneMasked);
        for lane in 0..lanes {
            if slots[lane] < 0 {
                continue;
            }
            let slot = SlotId(slots[lane] as u32);
            let (epoch, table) = (Epoch(epochs[lane] as u64), self.table(slot));
            let mask = self.mask(lane, masked[lane]);
            let input = LaneInput { slot, epoch, mask: mask.as_deref(), table: &table };
            let record = match family {
                OperationFamily::Resume => self.model.resume(input),
                _ => self.model.decode(input),
            };
            self.complete(lane, record, family);
        }
    }

    fn mask(&self, lane: usize, is_masked: i64) -> Option<Vec<u32>> {
        let words = self.contract.limits.vocabulary.div_ceil(32) as usize;
        let (masks, _) = self.buffer(ValueSource::GrammarMasks).as_chunks::<4>();
        let mask = masks[lane * words..][..words].iter().copied().map(u32::from_le_bytes);
        (is_masked == 1).then(|| mask.collect())
    }

    fn complete(&mut self, lane: usize, record: Record, family: OperationFamily) {
        let frame = self.words(ValueSource::Frame)[0] as usize;
        let completion = self.contract.buffer(ValueSource::Completion).expect("the contract has it");
        let shape = &self.contract.buffers[completion.0 as usize].shape;
        let (lanes, record_words) = (shape[1] as usize, shape[2] as usize);
        let mut words = vec![0i64; record_words];
        let mut set = |field: CompletionField, value: i64| words[field as usize] = value;
        set(CompletionField::Epoch, record.epoch.0 as i64);
        set(CompletionField::Slot, i64::from(record.slot.0));
        set(
            CompletionField::Status,
            match record.status {
                Status::Inactive => 0,
                Status::Live => 1,
                Status::Rejected => 2,
            },
        );
        set(CompletionField::Family, i64::from(family as i32));
        set(CompletionField::Consumed, i64::from(record.consumed));
        set(CompletionField::Generated, i64::from(record.generated));
        set(CompletionField::TokenCount, i64::from(record.token.is_some()));
        set(
            CompletionField::Finished,
            match record.finish {
                None => 0,
                Some(Finish::EndToken) => 1,
                Some(Finish::Length) => 2,
            },
        );
        set(CompletionField::Pending, record.token.map_or(-1, |token| i64::from(token.0)));
        set(CompletionField::LogprobCount, self.logprobs[record.slot.0 as usize]);
        if let Some(Fault::Record(launch, field, value)) = self.fault
            && launch <= self.completed.0 + 1
        {
            set(field, value);
        }
        if let Some(token) = record.token {
            words[self.contract.completion.metadata_fields as usize] = i64::from(token.0);
            self.report_logprobs(frame * lanes + lane, token, self.logprobs[record.slot.0 as usize]);
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.write(ValueSource::Completion, (frame * lanes + lane) * record_words * 8, &bytes);
    }

    /// The sampled token has minus its id, alternative i is the token i further on and has minus i.
    fn report_logprobs(&mut self, row: usize, token: TokenId, count: i64) {
        let width = self.contract.limits.logprobs_max as usize;
        for index in 0..count.max(0) as usize {
            let alternative = i64::from(token.0) + index as i64;
            self.write(ValueSource::LogprobTokens, (row * width + index) * 8, &alternative.to_le_bytes());
            let value = -(index as f32);
            self.write(ValueSource::LogprobValues, (row * (1 + width) + 1 + index) * 4, &value.to_le_bytes());
        }
        self.write(ValueSource::LogprobValues, row * (1 + width) * 4, &(-(token.0 as f32)).to_le_bytes());
    }
}

/// The random stream that a slot's fields and parameters name; `top_k` 1 leaves no choice and so no stream.
pub(crate) fn stream(
    seed: u64,
    top_k: u32,
    parameters: impl Iterator<Item = f32>,
    bias: impl Iterator<Item = (i64, f32)>,
) -> u64 {
    if top_k == 1 {
        return 0;
    }
    let hash = mix(seed ^ mix(u64::from(top_k)));
    let hash = parameters.fold(hash, |hash, value| mix(hash ^ u64::from(value.to_bits())));
    bias.fold(hash, |hash, (token, value)| mix(mix(hash ^ token as u64) ^ u64::from(value.to_bits()))) | 1
}

/// Copies for the tiers. The model's state is no bytes: what goes out is blank, and nothing comes back.
struct BlankCopier;

impl Copier for BlankCopier {
    fn page_bytes(&self) -> usize {
        64
    }

    fn row_bytes(&self) -> usize {
        64
    }

    fn placement(&self) -> Placement {
        Placement::Device
    }

    fn read_page(&mut self, _page: PageId, into: &mut [u8]) -> Result<(), DeviceError> {
        into.fill(0);
        Ok(())
    }

    fn write_page(&mut self, _page: PageId, _from: &[u8]) -> Result<(), DeviceError> {
        Err(DeviceError::Stopped)
    }

    fn read_row(&mut self, _row: RowId, into: &mut [u8]) -> Result<(), DeviceError> {
        into.fill(0);
        Ok(())
    }

    fn write_row(&mut self, _row: RowId, _from: &[u8]) -> Result<(), DeviceError> {
        Err(DeviceError::Stopped)
    }
}

impl Executor for SimExecutor {
    fn copier(&self) -> Result<Box<dyn Copier>, DeviceError> {
        Ok(Box::new(BlankCopier))
    }

    fn upload(&mut self, buffer: BufferId, offset_bytes: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.count(1, Fault::Upload)?;
        let buffer_bytes = self.buffers[buffer.0 as usize].len() as u64;
        let end_bytes = offset_bytes + bytes.len() as u64;
        if end_bytes > buffer_bytes {
            return Err(DeviceError::OutOfBounds { buffer: buffer.0, offset_bytes, end_bytes, buffer_bytes });
        }
        let (buffer, offset_bytes) = (buffer.0 as usize, offset_bytes as usize);
        self.commands.push_back(Command::Upload { buffer, offset_bytes, bytes: bytes.to_vec() });
        Ok(())
    }

    fn launch(&mut self, program: ProgramId) -> Result<Fence, DeviceError> {
        let has_launch = self.commands.iter().any(|command| matches!(command, Command::Launch { .. }));
        if self.fault == Some(Fault::Narrow) && has_launch {
            return Err(DeviceError::Busy { in_flight_max: 1 });
        }
        self.count(0, Fault::Launch)?;
        assert_ne!(self.fault, Some(Fault::Panic(self.counts[0])), "as the test wants it");
        self.launches.fetch_add(1, Ordering::Relaxed);
        self.last_fence += 1;
        let fence = Fence(self.last_fence);
        self.commands.push_back(Command::Launch { program: program.0 as usize, fence });
        Ok(fence)
    }

    fn launch_early(&mut self, program: ProgramId) -> Result<bool, DeviceError> {
        self.early_launches.fetch_add(1, Ordering::Relaxed);
        self.commands.push_back(Command::Early { program: program.0 as usize });
        Ok(true)
    }

    fn is_complete(&mut self, fence: Fence) -> Result<bool, DeviceError> {
        Ok(fence <= self.completed)
    }

    fn wait(&mut self, fence: Fence, _timeout: Duration) -> Result<(), DeviceError> {
        self.count(2, Fault::Wait)?;
        while self.completed < fence {
            match self.commands.pop_front().expect("the fence was submitted") {
                Command::Upload { buffer, offset_bytes, bytes } => {
                    self.buffers[buffer][offset_bytes..offset_bytes + bytes.len()].copy_from_slice(&bytes);
                }
                Command::Early { program } => self.early = Some((program, self.buffers.clone())),
                Command::Launch { program, fence } => {
                    std::thread::sleep(self.step_time);
                    self.check_early(program);
                    self.run(program);
                    self.completed = fence;
                }
            }
        }
        Ok(())
    }

    fn read(&mut self, buffer: BufferId, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.count(3, Fault::Read)?;
        let offset_bytes = offset_bytes as usize;
        into.copy_from_slice(&self.buffers[buffer.0 as usize][offset_bytes..offset_bytes + into.len()]);
        Ok(())
    }
}
