//! What this machine's processor can do, in the names that cores use.

use crate::device::DeviceError;

/// The processor's features as /proc/cpuinfo spells them.
pub fn features() -> Result<Vec<String>, DeviceError> {
    let text = std::fs::read_to_string("/proc/cpuinfo")
        .map_err(|error| crate::device::io_error("reading /proc/cpuinfo", &error))?;
    Ok(parse(&text))
}

/// The first processor's feature list; the processors of a machine are taken to be alike.
fn parse(cpuinfo: &str) -> Vec<String> {
    cpuinfo
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| matches!(key.trim(), "flags" | "Features"))
        .map(|(_, features)| features.split_whitespace().map(str::to_owned).collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_processors_flags_are_taken() {
        let text =
            "processor\t: 0\nflags\t\t: fpu avx2 fma\nbugs\t\t: none\n\nprocessor\t: 1\nflags\t\t: fpu\n";
        assert_eq!(parse(text), ["fpu", "avx2", "fma"]);
        assert_eq!(parse("processor: 0\n"), Vec::<String>::new());
    }

    #[test]
    fn this_machine_has_features() {
        assert!(!features().unwrap().is_empty());
    }
}
