//! Regions: aligned, apart from each other, within the device's address window, and backed by what the file holds.

use std::ops::Range;

use super::super::contract::{DeviceIdentity, Region, RegionBacking, RegionRole};
use super::super::file::CoreFile;
use super::super::{CoreError, proto};
use super::{counted, known, name};

const REGIONS_MAX: usize = 64;
const ADDRESS_ALIGNMENT_BYTES: u64 = 2 << 20;
const LENGTH_ALIGNMENT_BYTES: u64 = 4096;

/// The addresses that cores of a device may use. Nothing else of a process lies there, so an argument in the window is an
/// address in one of the core's regions and an argument outside it is a plain number.
pub fn window(device: &DeviceIdentity) -> Range<u64> {
    match device {
        DeviceIdentity::Host { .. } => 0x1000_0000_0000..0x2000_0000_0000,
        DeviceIdentity::Cuda { .. } => 0x2000_0000_0000..0x4000_0000_0000,
    }
}

pub fn bind(
    regions: &[proto::Region],
    device: &DeviceIdentity,
    file: &CoreFile,
) -> Result<Vec<Region>, CoreError> {
    counted("regions", regions, 1..=REGIONS_MAX)?;
    let window = window(device);
    let mut bound: Vec<Region> = Vec::with_capacity(regions.len());
    for (index, region) in regions.iter().enumerate() {
        let region = bind_region(&format!("regions[{index}]"), region, &window)?;
        if let Some(other) = bound.iter().find(|other| overlap(other, &region)) {
            let reason = format!("overlaps region `{}`", other.name);
            return Err(CoreError::contract(format!("regions[{index}].address"), reason));
        }
        if bound.iter().any(|other| other.name == region.name) {
            let reason = format!("repeats the name `{}`", region.name);
            return Err(CoreError::contract(format!("regions[{index}].name"), reason));
        }
        if region.backing == RegionBacking::Storage {
            check_storage(&region, file)?;
        }
        bound.push(region);
    }
    Ok(bound)
}

fn bind_region(field: &str, region: &proto::Region, window: &Range<u64>) -> Result<Region, CoreError> {
    let role = match known(&format!("{field}.role"), region.role)? {
        proto::RegionRole::Weights => RegionRole::Weights,
        proto::RegionRole::Io => RegionRole::Io,
        proto::RegionRole::Scratch => RegionRole::Scratch,
        proto::RegionRole::Rows => RegionRole::Rows,
        proto::RegionRole::Pages => RegionRole::Pages,
        proto::RegionRole::Unspecified => unreachable!("`known` refuses zero"),
    };
    let backing = match known(&format!("{field}.backing"), region.backing)? {
        proto::RegionBacking::Storage => RegionBacking::Storage,
        proto::RegionBacking::Zeroed => RegionBacking::Zeroed,
        proto::RegionBacking::Elastic => RegionBacking::Elastic,
        proto::RegionBacking::Unspecified => unreachable!("`known` refuses zero"),
    };
    let fitting = match role {
        RegionRole::Weights => RegionBacking::Storage,
        RegionRole::Io | RegionRole::Scratch => RegionBacking::Zeroed,
        RegionRole::Rows | RegionRole::Pages => RegionBacking::Elastic,
    };
    if backing != fitting {
        let reason = format!("is {backing:?}, and a region of role {role:?} is {fitting:?}");
        return Err(CoreError::contract(format!("{field}.backing"), reason));
    }
    if !region.address.is_multiple_of(ADDRESS_ALIGNMENT_BYTES) {
        let reason = format!("is {:#x}, which is no multiple of 2 MiB", region.address);
        return Err(CoreError::contract(format!("{field}.address"), reason));
    }
    if region.bytes == 0 || !region.bytes.is_multiple_of(LENGTH_ALIGNMENT_BYTES) {
        let reason = format!("is {}, which is no positive multiple of 4096", region.bytes);
        return Err(CoreError::contract(format!("{field}.bytes"), reason));
    }
    let end = region.address.checked_add(region.bytes).filter(|&end| end <= window.end);
    if region.address < window.start || end.is_none() {
        let reason = format!(
            "is {:#x}, and {} bytes from there leave the device's window {:#x}..{:#x}",
            region.address, region.bytes, window.start, window.end
        );
        return Err(CoreError::contract(format!("{field}.address"), reason));
    }
    let name = name(&format!("{field}.name"), &region.name)?;
    Ok(Region { name, address: region.address, bytes: region.bytes, role, backing })
}

fn overlap(left: &Region, right: &Region) -> bool {
    left.address < right.address + right.bytes && right.address < left.address + left.bytes
}

fn check_storage(region: &Region, file: &CoreFile) -> Result<(), CoreError> {
    let extent = file.storage(&region.name)?;
    if extent.bytes == region.bytes {
        return Ok(());
    }
    let reason = format!("has {} bytes and its region has {}", extent.bytes, region.bytes);
    Err(CoreError::tensor(format!("storage.{}", region.name), reason))
}
