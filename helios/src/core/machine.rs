//! Whether a core's programs can run on this machine.

use super::CoreError;
use super::contract::DeviceIdentity;

/// A CUDA device, as far as cores depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaDevice {
    pub compute_major: u32,
    pub compute_minor: u32,
    pub multiprocessors: u32,
}

/// Checks a host core's device against a processor: its architecture as Rust spells it and its features as /proc/cpuinfo
/// does. No processor runs a CUDA core.
pub fn check_processor(
    identity: &DeviceIdentity,
    architecture: &str,
    features: &[String],
) -> Result<(), CoreError> {
    match identity {
        DeviceIdentity::Cuda { .. } => Err(other_device(identity, "this is a processor".to_owned())),
        DeviceIdentity::Host { architecture: prepared, .. } if prepared != architecture => {
            Err(other_device(identity, format!("this one is {architecture}")))
        }
        DeviceIdentity::Host { isa, .. } => {
            let missing: Vec<String> =
                isa.iter().filter(|feature| !features.contains(feature)).cloned().collect();
            if missing.is_empty() { Ok(()) } else { Err(CoreError::WrongProcessor { missing }) }
        }
    }
}

/// Checks a CUDA core's device against one: kernels are for one compute capability, and their grids for one number of
/// multiprocessors.
pub fn check_cuda(identity: &DeviceIdentity, present: CudaDevice) -> Result<(), CoreError> {
    let CudaDevice { compute_major, compute_minor, multiprocessors } = present;
    if *identity == (DeviceIdentity::Cuda { compute_major, compute_minor, multiprocessors }) {
        return Ok(());
    }
    let present = format!(
        "this one has compute capability {compute_major}.{compute_minor} and {multiprocessors} multiprocessors"
    );
    Err(other_device(identity, present))
}

/// The core is for another device than `present` says.
pub fn other_device(identity: &DeviceIdentity, present: String) -> CoreError {
    let prepared = match identity {
        DeviceIdentity::Host { architecture, .. } => format!("{architecture} processors"),
        DeviceIdentity::Cuda { compute_major, compute_minor, multiprocessors } => format!(
            "a CUDA device of compute capability {compute_major}.{compute_minor} with {multiprocessors} multiprocessors"
        ),
    };
    CoreError::WrongDevice { prepared, present }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(architecture: &str, isa: &[&str]) -> DeviceIdentity {
        let isa = isa.iter().map(|&feature| feature.to_owned()).collect();
        DeviceIdentity::Host { architecture: architecture.to_owned(), isa }
    }

    #[test]
    fn missing_features_are_named() {
        let features = ["avx2".to_owned(), "fma".to_owned()];
        check_processor(&host("x86_64", &["avx2"]), "x86_64", &features).unwrap();
        let error =
            check_processor(&host("x86_64", &["avx2", "avx512_bf16", "avx512f"]), "x86_64", &features)
                .unwrap_err();
        assert!(error.to_string().contains("avx512_bf16, avx512f"), "{error}");
    }

    #[test]
    fn other_devices_are_named() {
        let error = check_processor(&host("aarch64", &[]), "x86_64", &[]).unwrap_err();
        assert!(error.to_string().contains("aarch64 processors, and this one is x86_64"), "{error}");
        let cuda = DeviceIdentity::Cuda { compute_major: 12, compute_minor: 0, multiprocessors: 188 };
        assert!(check_processor(&cuda, "x86_64", &[]).is_err());
        let device =
            |compute_major, multiprocessors| CudaDevice { compute_major, compute_minor: 0, multiprocessors };
        check_cuda(&cuda, device(12, 188)).unwrap();
        for other in [device(12, 170), device(9, 188)] {
            let error = check_cuda(&cuda, other).unwrap_err().to_string();
            assert!(
                error.contains("compute capability 12.0 with 188 multiprocessors, and this one"),
                "{error}"
            );
        }
        assert!(check_cuda(&host("x86_64", &[]), device(9, 132)).is_err());
    }
}
