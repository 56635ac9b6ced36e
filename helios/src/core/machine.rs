//! Whether a core's programs can run on this processor.

use super::CoreError;
use super::contract::DeviceIdentity;

/// Checks a core's device against a processor: its architecture as Rust spells it and its features as /proc/cpuinfo does.
pub fn check_processor(
    identity: &DeviceIdentity,
    architecture: &str,
    features: &[String],
) -> Result<(), CoreError> {
    match identity {
        DeviceIdentity::Cuda { compute_major, compute_minor, .. } => Err(CoreError::WrongDevice {
            prepared: format!("a CUDA device of compute capability {compute_major}.{compute_minor}"),
            present: "this release serves host cores".to_owned(),
        }),
        DeviceIdentity::Host { architecture: prepared, .. } if prepared != architecture => {
            Err(CoreError::WrongDevice {
                prepared: format!("{prepared} processors"),
                present: format!("this one is {architecture}"),
            })
        }
        DeviceIdentity::Host { isa, .. } => {
            let missing: Vec<String> =
                isa.iter().filter(|feature| !features.contains(feature)).cloned().collect();
            if missing.is_empty() { Ok(()) } else { Err(CoreError::WrongProcessor { missing }) }
        }
    }
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
        let error = check_processor(&cuda, "x86_64", &[]).unwrap_err();
        assert!(error.to_string().contains("compute capability 12.0"), "{error}");
    }
}
