//! How much memory this process may take: what the machine has available, within the limits of its control groups.

use std::path::{Path, PathBuf};

const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// Bytes that the process can take without pushing out what others use; file cache counts as available.
pub fn available_bytes() -> std::io::Result<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo")?;
    let machine = field(&meminfo, "MemAvailable:").map(|kibibytes| kibibytes.saturating_mul(1024));
    let machine = machine.ok_or_else(|| {
        std::io::Error::new(std::io::ErrorKind::InvalidData, "/proc/meminfo has no line MemAvailable")
    })?;
    let group = std::fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| group_folder(&text));
    let limits = group
        .iter()
        .flat_map(|folder| folder.ancestors())
        .map_while(|folder| folder.starts_with(CGROUP_ROOT).then(|| group_available_bytes(folder)));
    Ok(limits.flatten().fold(machine, u64::min))
}

/// The folder of the process's group (version 2), from /proc/self/cgroup.
fn group_folder(text: &str) -> Option<PathBuf> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(Path::new(CGROUP_ROOT).join(path))
}

/// What a group's limit leaves; `None` where it has no limit.
fn group_available_bytes(folder: &Path) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let limit: u64 = read("memory.max")?.trim().parse().ok()?;
    let current: u64 = read("memory.current")?.trim().parse().ok()?;
    let statistics = read("memory.stat")?;
    let cache = field(&statistics, "inactive_file")? + field(&statistics, "active_file")?;
    Some(limit.saturating_sub(current.saturating_sub(cache)))
}

/// The number that follows `name` on its line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(name)).then(|| words.next()?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "MemTotal: 16 kB\nMemAvailable:    8 kB\nfile 3\nfile_mapped 4\n";
        assert_eq!(field(text, "MemAvailable:"), Some(8));
        assert_eq!(field(text, "file"), Some(3));
        assert_eq!(field(text, "fil"), None);
    }

    #[test]
    fn the_group_is_the_unified_one() {
        let text = "1:memory:/old\n0::/user.slice/app\n";
        assert_eq!(group_folder(text), Some(PathBuf::from("/sys/fs/cgroup/user.slice/app")));
        assert_eq!(group_folder("1:memory:/old\n"), None);
    }

    #[test]
    fn a_groups_limit_leaves_what_is_not_used_but_for_cache() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("memory.current", "700\n");
        write("memory.stat", "anon 400\ninactive_file 200\nactive_file 100\n");
        write("memory.max", "1000\n");
        assert_eq!(group_available_bytes(folder.path()), Some(600));
        write("memory.max", "max\n");
        assert_eq!(group_available_bytes(folder.path()), None);
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(available_bytes().unwrap() > 1 << 20);
    }
}
