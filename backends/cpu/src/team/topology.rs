//! How many threads to start when nobody says.

use std::collections::BTreeSet;

/// Physical cores this process may use: CPU affinity and cgroup quotas count, hyperthreads do not.
pub fn default_threads() -> usize {
    let parallelism = std::thread::available_parallelism().map_or(1, usize::from);
    match physical_cores() {
        Some(cores) if cores > 0 => parallelism.min(cores),
        _ => parallelism,
    }
}

/// Physical cores among the CPUs that this process may run on, as Linux tells; `None` elsewhere.
fn physical_cores() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let allowed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let mut cores = BTreeSet::new();
    for cpu in parse_cpu_list(allowed.trim())? {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}/topology");
        let siblings = std::fs::read_to_string(format!("{folder}/thread_siblings_list")).ok()?;
        cores.insert(siblings.trim().to_owned());
    }
    Some(cores.len())
}

/// Parses a list such as `0-3,8,10-11`.
fn parse_cpu_list(list: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        // Larger than any machine: a malformed list.
        if last < first || last > 1 << 16 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists() {
        assert_eq!(
            parse_cpu_list("0-3,8,10-11"),
            Some(vec![0, 1, 2, 3, 8, 10, 11])
        );
        assert_eq!(parse_cpu_list("5"), Some(vec![5]));
        assert_eq!(parse_cpu_list("3-1"), None);
        assert_eq!(parse_cpu_list(""), None);
    }

    #[test]
    fn at_least_one_thread() {
        assert!(default_threads() >= 1);
    }
}
