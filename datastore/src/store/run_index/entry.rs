//! The names of entries in the index of runs. It knows no storage.
//!
//! The first PUT of an attempt writes an empty object whose name sorts by time, newest first:
//! `<u64::MAX - unix milliseconds, 16 hex digits>-<run>`. A run whose name is not safe as a file name gets
//! `...~<sha256 of its name>`, with the name as content.

use datastore_api::Sha256;

const HEX_DIGITS: usize = 16;

/// The name and the content of a run's entry.
pub(in crate::store) fn entry(now: u64, run: &str) -> (String, String) {
    let time = u64::MAX - now;
    if is_plain(run) {
        (format!("{time:016x}-{run}"), String::new())
    } else {
        (format!("{time:016x}~{}", Sha256::of(run.as_bytes())), run.to_owned())
    }
}

/// Start time in milliseconds, and the run's name or digest with its sign.
pub(in crate::store) fn parse_entry(entry: &str) -> Option<(i64, &str)> {
    let (time, run) = entry.split_at_checked(HEX_DIGITS)?;
    let time = u64::MAX - u64::from_str_radix(time, 16).ok()?;
    run.starts_with(['-', '~']).then_some((i64::try_from(time).ok()?, run))
}

/// Whether a run's name is safe as a file name: a DNS name of at most 200 bytes.
pub(in crate::store) fn is_plain(run: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label = |label: &str| {
        label.bytes().all(|c| inner(c) || c == b'-')
            && label.bytes().next().is_some_and(inner)
            && label.bytes().last().is_some_and(inner)
    };
    run.len() <= 200 && run.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_sort_newest_first_and_read_back() {
        let (old, _) = entry(1_700_000_000_000, "zz-plan-1");
        let (new, content) = entry(1_700_000_000_001, "aa-plan-1");
        assert!(new < old);
        assert_eq!(content, "");
        insta::assert_snapshot!(new, @"fffffe74301a97fe-aa-plan-1");
        assert_eq!(parse_entry(&new), Some((1_700_000_000_001, "-aa-plan-1")));
    }

    #[test]
    fn an_unsafe_run_name_is_kept_as_content() {
        for run in ["Run 7", "a_b", "-a", "a.", "", &"a".repeat(201)] {
            let (name, content) = entry(1_700_000_000_000, run);
            assert_eq!(content, run);
            assert_eq!(name.len(), HEX_DIGITS + 1 + 64);
            assert!(parse_entry(&name).is_some_and(|(_, run)| run.starts_with('~')));
        }
    }

    #[test]
    fn an_invalid_entry_name_is_rejected() {
        for name in ["", "x", "fffffe7431a597fe", "fffffe7431a597feé-a", "ffffé8f1e75fa9ffd-a"] {
            assert_eq!(parse_entry(name), None, "{name}");
        }
    }
}
