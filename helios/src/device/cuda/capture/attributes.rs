//! The attributes of a captured kernel node and of its function, as a launch and a kernel of the contract hold them.
#![expect(unsafe_code, reason = "the driver's interface is C")]

use std::mem::MaybeUninit;

use super::CaptureError;
use crate::core::proto;
use crate::device::DeviceError;
use crate::device::cuda::driver::{check, sys};
use sys::CUlaunchAttributeID as Attribute;

/// What every function may use without asking for more, so that recording it would say nothing.
const DYNAMIC_SHARED_BYTES_DEFAULT: i32 = 48 << 10;

/// Adds to `launch` every attribute that the node has.
pub fn read_launch(
    node: sys::CUgraphNode,
    index: usize,
    launch: &mut proto::Launch,
) -> Result<(), CaptureError> {
    let number = |attribute| Ok::<i32, DeviceError>(word(&read(node, attribute)?, 0).cast_signed());
    launch.cooperative = number(Attribute::CU_LAUNCH_ATTRIBUTE_COOPERATIVE)? != 0;
    launch.priority = number(Attribute::CU_LAUNCH_ATTRIBUTE_PRIORITY)?;
    launch.cluster = extent(&read(node, Attribute::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)?);
    launch.cluster_scheduling = number(Attribute::CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE)?;
    launch.memory_sync_domain = number(Attribute::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN)?;
    let map = read(node, Attribute::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP)?;
    launch.memory_sync_domain_map = Some(proto::MemorySyncDomainMap {
        default_domain: u32::from(map[0]),
        remote_domain: u32::from(map[1]),
    });
    launch.access_window = window(&read(node, Attribute::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW)?);
    // These came with later drivers and devices; where the driver does not know one, no node has it.
    if let Some(preferred) = read_known(node, Attribute::CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION)? {
        launch.preferred_cluster = extent(&preferred);
    }
    let nvlink = Attribute::CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING;
    launch.nvlink_centric_scheduling = read_known(node, nvlink)?.is_some_and(|value| word(&value, 0) != 0);
    let updatable = Attribute::CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;
    if read_known(node, updatable)?.is_some_and(|value| word(&value, 0) != 0) {
        return Err(CaptureError::Kind {
            node: index,
            kind: "a kernel that the device may change".to_owned(),
        });
    }
    Ok(())
}

/// Adds to `kernel` what its function was set to.
pub fn read_function(function: sys::CUfunction, kernel: &mut proto::Kernel) -> Result<(), DeviceError> {
    use sys::CUfunction_attribute as Attribute;
    let read = |attribute| {
        let mut value = 0;
        // SAFETY: the function is one of a loaded module; the driver writes one integer.
        let answer = unsafe { sys::cuFuncGetAttribute(&raw mut value, attribute, function) };
        check("cuFuncGetAttribute", answer).map(|()| value)
    };
    let shared_bytes = read(Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)?;
    if shared_bytes > DYNAMIC_SHARED_BYTES_DEFAULT {
        kernel.max_dynamic_shared_bytes = shared_bytes.unsigned_abs();
    }
    kernel.non_portable_cluster = read(Attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED)? != 0;
    // -1 where the driver chooses.
    let carveout = read(Attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)?;
    kernel.preferred_carveout = u32::try_from(carveout).ok();
    Ok(())
}

/// The bytes of an attribute's value. They are not looked at as the union that the driver writes, since its enums may have
/// values that the bindings do not know.
type Value = [u8; size_of::<sys::CUlaunchAttributeValue>()];

fn read(node: sys::CUgraphNode, attribute: Attribute) -> Result<Value, DeviceError> {
    let (answer, value) = ask(node, attribute);
    check(&format!("cuGraphKernelNodeGetAttribute({attribute:?})"), answer)?;
    Ok(value)
}

fn read_known(node: sys::CUgraphNode, attribute: Attribute) -> Result<Option<Value>, DeviceError> {
    match ask(node, attribute) {
        (sys::CUresult::CUDA_ERROR_INVALID_VALUE | sys::CUresult::CUDA_ERROR_NOT_SUPPORTED, _) => Ok(None),
        (answer, value) => {
            check(&format!("cuGraphKernelNodeGetAttribute({attribute:?})"), answer)?;
            Ok(Some(value))
        }
    }
}

fn ask(node: sys::CUgraphNode, attribute: Attribute) -> (sys::CUresult, Value) {
    let mut value = MaybeUninit::<sys::CUlaunchAttributeValue>::zeroed();
    // SAFETY: the node is a kernel's, and the driver writes at most a value.
    let answer = unsafe { sys::cuGraphKernelNodeGetAttribute(node, attribute, value.as_mut_ptr()) };
    // SAFETY: every byte was zeroed first, and any bytes are an array of bytes.
    (answer, unsafe { std::mem::transmute::<MaybeUninit<sys::CUlaunchAttributeValue>, Value>(value) })
}

fn extent(value: &Value) -> Option<proto::Extent3> {
    let [x, y, z] = [0, 4, 8].map(|at| word(value, at));
    (x != 0).then_some(proto::Extent3 { x, y, z })
}

/// `CUaccessPolicyWindow`: a pointer, a length, a ratio and two properties.
fn window(value: &Value) -> Option<proto::AccessWindow> {
    let long = |at| u64::from(word(value, at)) | u64::from(word(value, at + 4)) << 32;
    let (address, bytes) = (long(0), long(8));
    (bytes != 0).then(|| proto::AccessWindow {
        address,
        bytes,
        hit_ratio: f32::from_bits(word(value, 16)),
        hit: word(value, 20).cast_signed(),
        miss: word(value, 24).cast_signed(),
    })
}

fn word(value: &Value, at: usize) -> u32 {
    u32::from_le_bytes([value[at], value[at + 1], value[at + 2], value[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_read_as_the_driver_lays_it_out() {
        use std::mem::offset_of;
        type Window = sys::CUaccessPolicyWindow;
        let mut bytes = [0; size_of::<Value>()];
        for (at, word) in [
            (offset_of!(Window, base_ptr), 0x1234_5678u32),
            (offset_of!(Window, base_ptr) + 4, 0x2000),
            (offset_of!(Window, num_bytes), 4096),
            (offset_of!(Window, hitRatio), 0.25f32.to_bits()),
            (offset_of!(Window, hitProp), sys::CUaccessProperty::CU_ACCESS_PROPERTY_PERSISTING as u32),
            (offset_of!(Window, missProp), sys::CUaccessProperty::CU_ACCESS_PROPERTY_STREAMING as u32),
        ] {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        let expected = proto::AccessWindow {
            address: 0x2000_1234_5678,
            bytes: 4096,
            hit_ratio: 0.25,
            hit: proto::AccessProperty::Persisting as i32,
            miss: proto::AccessProperty::Streaming as i32,
        };
        assert_eq!(window(&bytes), Some(expected));
        assert_eq!(window(&[0; size_of::<Value>()]), None);
        assert_eq!(extent(&[0; size_of::<Value>()]), None);
    }
}
