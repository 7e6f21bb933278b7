//! The JSON of plans, as terraform and tofu write it (`show -json`).

/// Whether both programs can read plans of this `format_version`: 0.1 to 1.x.
pub fn is_readable(format_version: &str) -> bool {
    let mut numbers = format_version.split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(0)), Some(Ok(minor))) => minor >= 1,
        (Some(Ok(1)), Some(Ok(_)) | None) => true,
        _ => false,
    }
}
