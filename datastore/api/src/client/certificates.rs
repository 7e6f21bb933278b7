//! Certificates to trust besides the system's.

use std::path::Path;

use super::ClientError;

/// The certificates in a file; at least one.
pub(super) fn certificates(file: &Path) -> Result<Vec<reqwest::Certificate>, ClientError> {
    let pem = fs_err::read(file)?;
    let refused = |reason: &str| ClientError::Setup(format!("{}: {reason}", file.display()));
    match reqwest::Certificate::from_pem_bundle(&pem) {
        Ok(certificates) if certificates.is_empty() => Err(refused("no certificate in PEM")),
        Ok(certificates) => Ok(certificates),
        Err(_) => Err(refused("not a certificate in PEM")),
    }
}
