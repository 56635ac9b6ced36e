//! Row and page geometry, and the layout of completion records.

use super::super::contract::{CompletionLayout, Limits, Region, RegionRole, StateLayout};
use super::super::{CoreError, proto};
use super::{counted, element, name, within};

const ROWS_PER_SLOT_MAX: u32 = 64;
const PAGE_TOKENS_MAX: u32 = 1 << 16;
const SEGMENTS_MAX: usize = 1 << 16;
const STRIDE_ALIGNMENT_BYTES: u64 = 64;
const METADATA_FIELDS: u32 = 16;
const TOKEN_CAPACITY_DEFAULT: u32 = 8;
const TOKEN_CAPACITY_MAX: u32 = 64;
const FRAMES_MAX: u32 = 16;

pub fn bind(
    state: &proto::StateSchema,
    regions: &[Region],
    limits: &Limits,
) -> Result<StateLayout, CoreError> {
    let page_tokens = within("state.page_tokens", state.page_tokens, 1..=PAGE_TOKENS_MAX)?;
    let layout = StateLayout {
        rows_region: state.rows_region,
        row_stride_bytes: state.row_stride_bytes,
        rows_per_slot: within("state.rows_per_slot", state.rows_per_slot, 1..=ROWS_PER_SLOT_MAX)?,
        pages_region: state.pages_region,
        page_stride_bytes: state.page_stride_bytes,
        page_tokens,
        pages_per_request_max: limits.context_tokens_max.div_ceil(page_tokens),
    };
    let rows = layout.base_rows(limits.requests_max);
    check_region("state.rows_region", regions, layout.rows_region, RegionRole::Rows)?;
    check_stride("state.row_stride_bytes", layout.row_stride_bytes, regions, layout.rows_region, rows)?;
    check_segments("state.row_segments", &state.row_segments, layout.row_stride_bytes)?;
    let pages = layout.pages_per_request_max;
    check_region("state.pages_region", regions, layout.pages_region, RegionRole::Pages)?;
    check_stride("state.page_stride_bytes", layout.page_stride_bytes, regions, layout.pages_region, pages)?;
    check_segments("state.page_segments", &state.page_segments, layout.page_stride_bytes)?;
    Ok(layout)
}

pub fn bind_completion(layout: proto::CompletionLayout) -> Result<CompletionLayout, CoreError> {
    let token_capacity = match layout.token_capacity {
        0 => TOKEN_CAPACITY_DEFAULT,
        literal => within("completion.token_capacity", literal, 1..=TOKEN_CAPACITY_MAX)?,
    };
    Ok(CompletionLayout {
        metadata_fields: within(
            "completion.metadata_fields",
            layout.metadata_fields,
            METADATA_FIELDS..=METADATA_FIELDS,
        )?,
        token_capacity,
        frames: within("completion.frames", layout.frames, 1..=FRAMES_MAX)?,
    })
}

fn check_region(field: &str, regions: &[Region], index: u32, role: RegionRole) -> Result<(), CoreError> {
    let region = element(field, regions, index)?;
    let others = regions.iter().filter(|region| region.role == role).count();
    if region.role != role || others != 1 {
        let reason = format!("must name the core's only region of role {role:?}");
        return Err(CoreError::contract(field, reason));
    }
    Ok(())
}

/// Checks that the region's addresses hold `count` strides: what one context, or every slot, takes.
fn check_stride(
    field: &str,
    stride_bytes: u64,
    regions: &[Region],
    region: u32,
    count: u32,
) -> Result<(), CoreError> {
    if stride_bytes == 0 || !stride_bytes.is_multiple_of(STRIDE_ALIGNMENT_BYTES) {
        let reason = format!("is {stride_bytes}, which is no positive multiple of {STRIDE_ALIGNMENT_BYTES}");
        return Err(CoreError::contract(field, reason));
    }
    let region = element(field, regions, region)?;
    if region.bytes / stride_bytes < u64::from(count) {
        let reason = format!(
            "is {stride_bytes}, so region `{}` of {} bytes does not hold the {count} that are needed",
            region.name, region.bytes
        );
        return Err(CoreError::contract(field, reason));
    }
    Ok(())
}

/// Segments follow one another within the stride.
fn check_segments(field: &str, segments: &[proto::Segment], stride_bytes: u64) -> Result<(), CoreError> {
    counted(field, segments, 1..=SEGMENTS_MAX)?;
    let mut free_from = 0;
    for (index, segment) in segments.iter().enumerate() {
        let field = format!("{field}[{index}]");
        name(&format!("{field}.name"), &segment.name)?;
        let end = segment.offset_bytes.checked_add(segment.bytes).filter(|&end| end <= stride_bytes);
        let Some(end) = end else {
            let reason = format!("ends beyond the stride of {stride_bytes} bytes");
            return Err(CoreError::contract(field, reason));
        };
        if segment.bytes == 0 || segment.offset_bytes < free_from {
            let reason = format!("is empty or starts before byte {free_from}, where the last one ends");
            return Err(CoreError::contract(field, reason));
        }
        free_from = end;
    }
    Ok(())
}
