//! Variables that need others, or exclude them.

use std::fs::File;

use crate::store::backend::cloud::check::{CREDENTIAL_TYPE, Invalid, SSE_C};
use crate::store::backend::cloud::provider::Provider;
use crate::store::backend::cloud::variables::Variables;

const ACCESS_KEY: &str = "AWS_ACCESS_KEY_ID";
const SECRET_KEY: &str = "AWS_SECRET_ACCESS_KEY";
const WEB_IDENTITY: &str = "AWS_WEB_IDENTITY_TOKEN_FILE";
const ROLE: &str = "AWS_ROLE_ARN";
const CONTAINER_TOKEN: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";
const FEDERATED_TOKEN: &str = "AZURE_FEDERATED_TOKEN_FILE";

const AZURE_KEYS: &[&str] = &["AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY"];
const AZURE_SAS: &[&str] = &["AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"];
const AZURE_TOKEN: &[&str] = &["AZURE_STORAGE_TOKEN"];
const AZURE_CLIENT: &[&str] = &["AZURE_CLIENT_ID", "AZURE_STORAGE_CLIENT_ID"];
const AZURE_SECRET: &[&str] = &["AZURE_CLIENT_SECRET", "AZURE_STORAGE_CLIENT_SECRET"];
const AZURE_TENANT: &[&str] = &["AZURE_TENANT_ID", "AZURE_STORAGE_TENANT_ID"];

impl Variables {
    pub(super) fn check_pairs(&self, provider: Provider) -> Result<(), Invalid> {
        match provider {
            Provider::S3 => self.check_s3(),
            Provider::Gcs => self.check_google(),
            Provider::Azure => self.check_azure(),
        }
    }

    pub(super) fn is_set(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    fn is_any_set(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.is_set(name))
    }

    fn check_s3(&self) -> Result<(), Invalid> {
        for (one, other) in [(ACCESS_KEY, SECRET_KEY), (SECRET_KEY, ACCESS_KEY)] {
            if self.is_set(one) && !self.is_set(other) {
                let why = format!("it needs {other}, which is not set\nhint: set both or neither");
                return Err((one, why));
            }
        }
        let (encryption, key) = ("AWS_SERVER_SIDE_ENCRYPTION", "AWS_SSE_CUSTOMER_KEY_BASE64");
        if self.get(encryption) == Some(SSE_C) && !self.is_set(key) {
            return Err((encryption, format!("{SSE_C} needs {key}, which is not set")));
        }
        if self.is_set(ACCESS_KEY) || self.skip_signature() {
            return Ok(());
        }
        // `object_store` would pass over one that lacks the other, and ask the metadata service.
        let needs = |one: &'static str, other: &str| {
            if self.is_set(one) && !self.is_set(other) {
                return Err((one, format!("it needs {other}, which is not set")));
            }
            Ok(())
        };
        needs(WEB_IDENTITY, ROLE)?;
        if self.uses_web_identity() {
            self.check_file(WEB_IDENTITY)?;
        } else if !self.is_set("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") {
            needs("AWS_CONTAINER_CREDENTIALS_FULL_URI", CONTAINER_TOKEN)?;
            self.check_file(CONTAINER_TOKEN)?;
        }
        Ok(())
    }

    /// Whether the credentials come from IRSA, as `object_store` decides.
    pub(super) fn uses_web_identity(&self) -> bool {
        self.is_set(WEB_IDENTITY)
            && self.is_set(ROLE)
            && !self.is_any_set(&[ACCESS_KEY, SECRET_KEY])
    }

    fn check_azure(&self) -> Result<(), Invalid> {
        if self.is_true("AZURE_STORAGE_USE_EMULATOR") {
            return Ok(());
        }
        let kind = self.get(CREDENTIAL_TYPE).unwrap_or("auto");
        let needed: &[&[&str]] = match kind {
            "bearer_token" => &[AZURE_TOKEN],
            "access_key" => &[AZURE_KEYS],
            "client_secret" => &[AZURE_CLIENT, AZURE_SECRET, AZURE_TENANT],
            "workload_identity" => &[AZURE_CLIENT, AZURE_TENANT, &[FEDERATED_TOKEN]],
            "sas_token" => &[AZURE_SAS],
            _ => &[],
        };
        if let Some([missing, ..]) = needed.iter().find(|names| !self.is_any_set(names)) {
            return Err((CREDENTIAL_TYPE, format!("{kind} needs {missing}, which is not set")));
        }
        let has_client = self.is_any_set(AZURE_CLIENT) && self.is_any_set(AZURE_TENANT);
        let has_key = self.is_any_set(AZURE_TOKEN) || self.is_any_set(AZURE_KEYS);
        if kind == "workload_identity" || kind == "auto" && has_client && !has_key {
            self.check_file(FEDERATED_TOKEN)?;
        }
        Ok(())
    }

    /// Checks that the file that a variable names can be opened, if it is set.
    pub(super) fn check_file(&self, name: &'static str) -> Result<(), Invalid> {
        let Some(path) = self.get(name) else { return Ok(()) };
        let opened = std::fs::metadata(path).and_then(|meta| {
            if meta.is_dir() {
                return Err(std::io::ErrorKind::IsADirectory.into());
            }
            // Opening a pipe waits for its writer.
            if meta.is_file() { File::open(path).map(drop) } else { Ok(()) }
        });
        // The value is not shown: it may be a key where a file is expected.
        opened.map_err(|error| (name, format!("cannot read the file that it names: {error}")))
    }
}
