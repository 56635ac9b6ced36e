//! What the core is and which device it was prepared for.

use super::super::contract::{DeviceIdentity, Identity};
use super::super::{CoreError, proto};
use super::{counted, name, present, within};

const TEXT_BYTES_MAX: usize = 256;
const ISA_FEATURES_MAX: usize = 256;
const COMPUTE_MAJOR_MAX: u32 = 99;
const MULTIPROCESSORS_MAX: u32 = 1 << 16;

pub fn bind(identity: proto::Identity, abi: u32) -> Result<Identity, CoreError> {
    text("identity.model_name", &identity.model_name)?;
    if identity.model_name.is_empty() {
        return Err(CoreError::contract("identity.model_name", "is empty"));
    }
    for (field, digest) in [
        ("identity.model_fingerprint", &identity.model_fingerprint),
        ("identity.storage_digest", &identity.storage_digest),
    ] {
        if !is_digest(digest) {
            return Err(CoreError::contract(field, "is not 64 lower-case hexadecimal digits"));
        }
    }
    let device = match present("identity.device", identity.device)? {
        proto::identity::Device::Host(host) => bind_host(host)?,
        proto::identity::Device::Cuda(cuda) => bind_cuda(cuda)?,
    };
    Ok(Identity {
        abi,
        model_name: identity.model_name,
        model_fingerprint: identity.model_fingerprint,
        storage_digest: identity.storage_digest,
        device,
        created: identity.created,
        versions: identity.versions,
    })
}

/// Whether `text` is a SHA-256 digest in lower-case hexadecimal.
pub fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn bind_host(host: proto::HostDevice) -> Result<DeviceIdentity, CoreError> {
    name("identity.host.architecture", &host.architecture)?;
    counted("identity.host.isa", &host.isa, 0..=ISA_FEATURES_MAX)?;
    for (index, feature) in host.isa.iter().enumerate() {
        name(&format!("identity.host.isa[{index}]"), feature)?;
    }
    Ok(DeviceIdentity::Host { architecture: host.architecture, isa: host.isa })
}

fn bind_cuda(cuda: proto::CudaDevice) -> Result<DeviceIdentity, CoreError> {
    let number = |field: &str, value, range| within(&format!("identity.cuda.{field}"), value, range);
    Ok(DeviceIdentity::Cuda {
        compute_major: number("compute_major", cuda.compute_major, 1..=COMPUTE_MAJOR_MAX)?,
        compute_minor: number("compute_minor", cuda.compute_minor, 0..=9)?,
        multiprocessors: number("multiprocessors", cuda.multiprocessors, 1..=MULTIPROCESSORS_MAX)?,
    })
}

fn text(field: &str, value: &str) -> Result<(), CoreError> {
    if value.len() > TEXT_BYTES_MAX || value.chars().any(char::is_control) {
        let reason = format!("is longer than {TEXT_BYTES_MAX} bytes or holds control characters");
        return Err(CoreError::contract(field, reason));
    }
    Ok(())
}
