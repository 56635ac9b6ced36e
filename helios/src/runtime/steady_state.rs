//! Planning, packing, reading, applying and observing a decode step asks for no memory.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::completion::CompletionReader;
use super::engine::{GenerationRequest, SamplingParameters};
use super::metrics::EngineHistograms;
use super::pack::{Packer, geometry};
use super::queue::DeviceQueue;
use crate::core::contract::{BoundContract, OperationFamily, ValueSource};
use crate::core::proto::CompletionField;
use crate::device::allocations::allocations;
use crate::device::{BufferId, DeviceError, Executor, Fence, ProgramId};
use crate::ids::{ClientId, Digest, RequestId, TokenId};
use crate::schedule::{Event, Operation, Prompt, Scheduler, SchedulerLimits, Step};
use crate::sim::core::{SLOTS, contract};

/// Runs nothing: what it reads was written by the test.
struct Echo {
    fences: u64,
    completion: Arc<Mutex<Vec<u8>>>,
}

impl Executor for Echo {
    fn upload(&mut self, _: BufferId, _: u64, _: &[u8]) -> Result<(), DeviceError> {
        Ok(())
    }

    fn launch(&mut self, _: ProgramId) -> Result<Fence, DeviceError> {
        self.fences += 1;
        Ok(Fence(self.fences))
    }

    fn is_complete(&mut self, _: Fence) -> Result<bool, DeviceError> {
        Ok(true)
    }

    fn wait(&mut self, _: Fence, _: Duration) -> Result<(), DeviceError> {
        Ok(())
    }

    fn read(&mut self, _: BufferId, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let completion = self.completion.lock().unwrap();
        into.copy_from_slice(&completion[offset_bytes as usize..][..into.len()]);
        Ok(())
    }
}

/// Writes the records that the step's programs would.
fn answer(contract: &BoundContract, step: &Step, completion: &Mutex<Vec<u8>>) {
    let buffer = contract.buffer(ValueSource::Completion).unwrap().0 as usize;
    let shape = &contract.buffers[buffer].shape;
    let (lanes, record_bytes) = (shape[1] as usize, shape[2] as usize * 8);
    let family = match step.operation {
        Operation::Initialize { .. } => OperationFamily::Initialize,
        Operation::Prefill { .. } => OperationFamily::Prefill,
        Operation::Decode { .. } => OperationFamily::Decode,
        Operation::Resume => OperationFamily::Resume,
        Operation::Restore(_) => OperationFamily::Restore,
        Operation::Snapshot(_) => OperationFamily::Snapshot,
    };
    let mut completion = completion.lock().unwrap();
    for (index, lane) in step.lanes.iter().enumerate() {
        let record = &mut completion[(step.frame as usize * lanes + index) * record_bytes..][..record_bytes];
        let mut set = |field: usize, value: i64| {
            record[field * 8..][..8].copy_from_slice(&value.to_le_bytes());
        };
        set(CompletionField::Epoch as usize, lane.epoch.0 as i64);
        set(CompletionField::Slot as usize, i64::from(lane.slot.0));
        set(CompletionField::Status as usize, 1);
        set(CompletionField::Family as usize, i64::from(family as i32));
        set(CompletionField::Consumed as usize, i64::from(lane.consumed_after));
        set(CompletionField::Generated as usize, i64::from(lane.generated_after));
        set(CompletionField::TokenCount as usize, i64::from(lane.samples));
        set(CompletionField::LogprobCount as usize, -1);
        set(contract.completion.metadata_fields as usize, 7);
    }
}

fn request() -> GenerationRequest {
    GenerationRequest {
        client: ClientId(0),
        prompt: (1..=5).map(TokenId).collect(),
        endpoints: Arc::default(),
        cache_salt: None,
        sampling: SamplingParameters::neutral(),
        output_tokens_max: 90,
        ignore_eos: true,
        logprobs: None,
        constraint: None,
    }
}

#[test]
fn decode_steps_allocate_nothing() {
    let contract = contract();
    let completion = Arc::new(Mutex::new(vec![0; 4096]));
    let echo = Echo { fences: 0, completion: Arc::clone(&completion) };
    let mut device = DeviceQueue::new(Box::new(echo), contract.completion.frames);
    let mut packer = Packer::new(&contract).unwrap();
    let mut reader = CompletionReader::new(&contract).unwrap();
    let histograms = EngineHistograms::default();
    let mut scheduler = Scheduler::new(geometry(&contract, 100, 12), SchedulerLimits::default()).unwrap();
    let request = request();
    for id in 1..=u64::from(SLOTS) {
        let prompt = Prompt {
            tokens: Arc::clone(&request.prompt),
            endpoints: Arc::default(),
            root: Digest([id as u8; 32]),
            conditions: Arc::default(),
            is_constrained: false,
        };
        let event =
            Event::Submit { request: RequestId(id), client: ClientId(0), prompt, output_tokens_max: 90 };
        scheduler.handle(event, Duration::ZERO).unwrap();
    }
    let (mut steps, mut asked) = (0, [0, 0]);
    loop {
        // Until every request decodes, admissions make buffers; then pages still grow, every four tokens.
        let phase = usize::from(steps > 3 * SLOTS + 2);
        let before = allocations();
        while let Some(step) = scheduler.plan(Duration::ZERO) {
            let program = packer.pack(&mut device, step, |_| &request).unwrap();
            packer.pack_masks(&mut device, step, |_| &[]).unwrap();
            device.launch(program).unwrap();
            steps += 1;
        }
        asked[phase] += allocations() - before;
        let Some(step) = scheduler.oldest_in_flight() else { break };
        if step.lanes[0].generated_after == request.output_tokens_max {
            break;
        }
        answer(&contract, step, &completion);

        let before = allocations();
        let duration = device.wait_oldest().unwrap();
        let step = scheduler.oldest_in_flight().unwrap();
        histograms.step_completed(step, duration);
        let records = reader.read(&mut device, step).unwrap();
        scheduler.handle(Event::Completed { records }, Duration::ZERO).unwrap();
        scheduler.drain_outputs().for_each(drop);
        asked[phase] += allocations() - before;
    }
    assert!(steps > 80, "only {steps} steps ran");
    assert!(asked[0] > 0, "the counter counts");
    assert_eq!(asked[1], 0, "steady steps asked for memory");
    assert_eq!(scheduler.stats().running, SLOTS);
}
