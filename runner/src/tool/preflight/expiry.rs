//! Credentials that expire.

use std::time::Duration;

use jiff::Timestamp;

/// When credentials expire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expiry {
    /// Which credentials, and whose.
    pub(crate) what: String,
    pub(crate) at: Timestamp,
}

impl Expiry {
    /// A warning, if they expire before a run that starts now and takes its `usual` time has ended.
    pub(crate) fn warning(&self, now: Timestamp, usual: Duration) -> Option<String> {
        let left = self.left(now);
        (left < usual).then(|| {
            format!(
                "{} expires in {}, and the last runs of this layer took {}: the run may lose its credentials before its end",
                self.what,
                shown(left),
                shown(usual)
            )
        })
    }

    /// The time that is left.
    pub(crate) fn left(&self, now: Timestamp) -> Duration {
        Duration::try_from(self.at.duration_since(now)).unwrap_or_default()
    }
}

/// A duration as people say it: `3 min`.
fn shown(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_that_outlive_the_run_have_no_warning() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let expiry = Expiry { what: "the token".to_owned(), at: at(600) };
        assert_eq!(expiry.warning(at(0), Duration::from_mins(10)), None);
        let warning = expiry.warning(at(500), Duration::from_mins(5)).unwrap();
        assert!(warning.starts_with("the token expires in 100 s, and the last runs"), "{warning}");
        assert!(warning.contains(" took 5 min: "), "{warning}");
        assert!(expiry.warning(at(700), Duration::from_secs(1)).unwrap().contains("in 0 s"));
    }
}
