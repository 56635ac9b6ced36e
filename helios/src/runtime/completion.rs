//! Completion records and logprobs: read behind a fence, checked against the contract's enums and ranges.

use crate::core::contract::{BoundContract, ValueSource};
use crate::core::proto::{CompletionField, CompletionStatus, Finish as FinishCode, OperationFamily};
use crate::device::{BufferId, DeviceError};
use crate::ids::{Epoch, SlotId, StepId, TokenId};
use crate::schedule::{Finish, Operation, Record, Status, Step};

use super::engine::TokenLogprobs;
use super::pack::{BindError, require};
use super::queue::DeviceQueue;

/// Why a step's records could not be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(
        "step {step}, lane {lane}: the completion record's {field} is {value}, which the contract rules out"
    )]
    Value { step: StepId, lane: usize, field: &'static str, value: i64 },
}

/// Reads completion frames; its buffers hold the largest from the start.
#[derive(Debug)]
pub struct CompletionReader {
    completion: BufferId,
    /// Tokens and values; absent when the core reports no logprobs.
    logprobs: Option<(BufferId, BufferId)>,
    metadata_fields: usize,
    record_words: usize,
    frame_lanes: usize,
    vocabulary: u32,
    logprobs_max: usize,
    bytes: Vec<u8>,
    records: Vec<Record>,
    /// Alternatives reported, by lane.
    alternatives: Vec<Option<u32>>,
}

impl CompletionReader {
    /// # Errors
    /// A buffer that the core lacks.
    pub fn new(contract: &BoundContract) -> Result<Self, BindError> {
        let completion = require(contract, ValueSource::Completion)?;
        let logprobs_max = contract.limits.logprobs_max as usize;
        let logprobs = (logprobs_max > 0).then(|| {
            Ok((
                require(contract, ValueSource::LogprobTokens)?,
                require(contract, ValueSource::LogprobValues)?,
            ))
        });
        let layout = &contract.completion;
        let record_words = (layout.metadata_fields + layout.token_capacity) as usize;
        let frame_lanes = contract.buffers[completion.0 as usize].shape[1] as usize;
        let bytes_max = (frame_lanes * record_words * 8).max((1 + logprobs_max) * 8);
        Ok(Self {
            completion,
            logprobs: logprobs.transpose()?,
            metadata_fields: layout.metadata_fields as usize,
            record_words,
            frame_lanes,
            vocabulary: contract.limits.vocabulary,
            logprobs_max,
            bytes: vec![0; bytes_max],
            records: Vec::with_capacity(frame_lanes),
            alternatives: Vec::with_capacity(frame_lanes),
        })
    }

    /// The records of a step that was waited for, one for each of its lanes.
    pub(super) fn read(&mut self, device: &mut DeviceQueue, step: &Step) -> Result<&[Record], RecordError> {
        self.records.clear();
        self.alternatives.clear();
        let record_bytes = self.record_words * 8;
        let offset_bytes = step.frame as usize * self.frame_lanes * record_bytes;
        let bytes = &mut self.bytes[..step.lanes.len() * record_bytes];
        device.read(self.completion, offset_bytes as u64, bytes)?;
        for (lane, bytes) in self.bytes.chunks_exact(record_bytes).take(step.lanes.len()).enumerate() {
            let words = Words {
                bytes,
                step: step.id,
                lane,
                vocabulary: self.vocabulary,
                metadata_fields: self.metadata_fields,
            };
            let record = words.record(step.operation)?;
            // Only a record with a token has logprobs; the field of another may hold anything.
            let alternatives = match record.token {
                Some(_) => words.alternatives(self.logprobs_max)?,
                None => None,
            };
            self.records.push(record);
            self.alternatives.push(alternatives);
        }
        Ok(&self.records)
    }

    /// Logprobs of a lane of the step that was read last; `None` when the lane reports none.
    pub(super) fn logprobs(
        &mut self,
        device: &mut DeviceQueue,
        frame: u32,
        lane: u32,
    ) -> Result<Option<TokenLogprobs>, DeviceError> {
        let (Some((tokens, values)), Some(count)) = (self.logprobs, self.alternatives[lane as usize]) else {
            return Ok(None);
        };
        let count = count as usize;
        let row = frame as usize * self.frame_lanes + lane as usize;
        let value_bytes = &mut self.bytes[..(1 + count) * 4];
        device.read(values, (row * (1 + self.logprobs_max) * 4) as u64, value_bytes)?;
        let (values, _) = value_bytes.as_chunks::<4>();
        let sampled = f32::from_le_bytes(values[0]);
        let mut alternatives: Vec<(TokenId, f32)> =
            values[1..].iter().map(|&value| (TokenId(0), f32::from_le_bytes(value))).collect();
        let token_bytes = &mut self.bytes[..count * 8];
        device.read(tokens, (row * self.logprobs_max * 8) as u64, token_bytes)?;
        let (words, _) = token_bytes.as_chunks::<8>();
        for (alternative, &word) in alternatives.iter_mut().zip(words) {
            alternative.0 = TokenId(u32::try_from(i64::from_le_bytes(word)).unwrap_or(u32::MAX));
        }
        Ok(Some(TokenLogprobs { sampled, alternatives }))
    }
}

/// One record's words, and where they stand.
struct Words<'a> {
    bytes: &'a [u8],
    step: StepId,
    lane: usize,
    vocabulary: u32,
    metadata_fields: usize,
}

impl Words<'_> {
    fn record(&self, operation: Operation) -> Result<Record, RecordError> {
        let family = match operation {
            Operation::Initialize { .. } => OperationFamily::Initialize,
            Operation::Prefill { .. } => OperationFamily::Prefill,
            Operation::Decode { .. } => OperationFamily::Decode,
            Operation::Resume => OperationFamily::Resume,
            Operation::Restore(_) => OperationFamily::Restore,
            Operation::Snapshot(_) => OperationFamily::Snapshot,
        };
        if self.field(CompletionField::Family) != i64::from(family as i32) {
            return Err(self.wrong(CompletionField::Family));
        }
        let status = match self.code(CompletionField::Status)? {
            CompletionStatus::Inactive => Status::Inactive,
            CompletionStatus::Live => Status::Live,
            CompletionStatus::Rejected => Status::Rejected,
        };
        let finish = match self.code(CompletionField::Finished)? {
            FinishCode::None => None,
            FinishCode::Eos => Some(Finish::EndToken),
            FinishCode::Length => Some(Finish::Length),
        };
        let token = match (status, self.field(CompletionField::TokenCount)) {
            (Status::Inactive | Status::Rejected, _) | (Status::Live, 0) => None,
            (Status::Live, 1) => Some(self.token()?),
            (Status::Live, _) => return Err(self.wrong(CompletionField::TokenCount)),
        };
        Ok(Record {
            slot: SlotId(self.count(CompletionField::Slot)?),
            epoch: Epoch(u64::from_le_bytes(self.field(CompletionField::Epoch).to_le_bytes())),
            status,
            consumed: self.count(CompletionField::Consumed)?,
            generated: self.count(CompletionField::Generated)?,
            finish,
            token,
        })
    }

    fn alternatives(&self, logprobs_max: usize) -> Result<Option<u32>, RecordError> {
        match self.field(CompletionField::LogprobCount) {
            -1 => Ok(None),
            count if (0..=logprobs_max as i64).contains(&count) => Ok(Some(count as u32)),
            _ => Err(self.wrong(CompletionField::LogprobCount)),
        }
    }

    fn token(&self) -> Result<TokenId, RecordError> {
        let value = self.word(self.metadata_fields);
        match u32::try_from(value) {
            Ok(token) if token < self.vocabulary => Ok(TokenId(token)),
            _ => Err(RecordError::Value { step: self.step, lane: self.lane, field: "token", value }),
        }
    }

    fn word(&self, index: usize) -> i64 {
        let (words, _) = self.bytes.as_chunks::<8>();
        i64::from_le_bytes(words[index])
    }

    fn field(&self, field: CompletionField) -> i64 {
        self.word(field as usize)
    }

    fn count(&self, field: CompletionField) -> Result<u32, RecordError> {
        u32::try_from(self.field(field)).map_err(|_| self.wrong(field))
    }

    fn code<C: TryFrom<i32>>(&self, field: CompletionField) -> Result<C, RecordError> {
        let code = i32::try_from(self.field(field)).ok().and_then(|code| C::try_from(code).ok());
        code.ok_or_else(|| self.wrong(field))
    }

    fn wrong(&self, field: CompletionField) -> RecordError {
        let value = self.field(field);
        RecordError::Value { step: self.step, lane: self.lane, field: field.as_str_name(), value }
    }
}
