//! Credentials of Google Cloud Storage: a key in a variable, or in a file that a variable names, or the file of `gcloud`.

use std::path::Path;

use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};

use crate::store::backend::cloud::bucket::Cloud;
use crate::store::backend::cloud::check::Invalid;
use crate::store::backend::cloud::provider::{EMULATOR, Provider};
use crate::store::backend::cloud::variables::Variables;

const BEARER: &str = "GOOGLE_BEARER_TOKEN";
const KEY: &str = "GOOGLE_SERVICE_ACCOUNT_KEY";
/// Files with the key of a service account.
const KEY_FILES: &[&str] =
    &["SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH"];
const APPLICATION: &str = "GOOGLE_APPLICATION_CREDENTIALS";
/// Where `gcloud auth application-default login` writes its file, below HOME. `object_store` reads it if nothing is set.
const DEFAULT_FILE: &str = ".config/gcloud/application_default_credentials.json";

impl Cloud {
    /// Checks the file of `gcloud` below HOME, if these credentials are used. The error names the file.
    pub fn check_default_credentials(&self, home: Option<&str>) -> Result<(), String> {
        let names = KEY_FILES.iter().chain(&[KEY, EMULATOR, BEARER, APPLICATION]);
        if self.provider != Provider::Gcs
            || names.into_iter().any(|name| self.variables.is_set(name))
        {
            return Ok(());
        }
        let Some(path) = home.map(|home| Path::new(home).join(DEFAULT_FILE)) else { return Ok(()) };
        let Some(text) = path.to_str().filter(|_| path.is_file()) else { return Ok(()) };
        if is_usable(GoogleConfigKey::ApplicationCredentials, text) {
            return Ok(());
        }
        Err(format!(
            "{text}: expected {OF_APPLICATION}\nhint: set {APPLICATION} to another file, or remove this one"
        ))
    }
}

impl Variables {
    pub(super) fn check_google(&self) -> Result<(), Invalid> {
        let file = KEY_FILES.iter().copied().find(|name| self.is_set(name));
        if let Some(file) = file
            && self.is_set(KEY)
        {
            return Err((KEY, format!("{file} is set too\nhint: set one of them")));
        }
        for name in KEY_FILES {
            self.check_credentials(name, GoogleConfigKey::ServiceAccount)?;
        }
        self.check_credentials(KEY, GoogleConfigKey::ServiceAccountKey)?;
        // Where these are used, the others are not read.
        let others = [KEY, EMULATOR, BEARER];
        if file.is_none() && !others.into_iter().any(|name| self.is_set(name)) {
            self.check_credentials(APPLICATION, GoogleConfigKey::ApplicationCredentials)?;
        }
        Ok(())
    }

    /// Whether `object_store` reads these credentials. Its error may show a part of a key, so it is not passed on.
    fn check_credentials(&self, name: &'static str, key: GoogleConfigKey) -> Result<(), Invalid> {
        let Some(value) = self.get(name) else { return Ok(()) };
        let is_key = name == KEY;
        if !is_key {
            self.check_file(name)?;
            // A pipe can be read only once.
            if !std::fs::metadata(value).is_ok_and(|meta| meta.is_file()) {
                return Ok(());
            }
        }
        if is_usable(key, value) {
            return Ok(());
        }
        let account = "the key of a service account in JSON, as Google creates it";
        Err((
            name,
            match name {
                KEY => format!("expected {account}"),
                APPLICATION => format!("expected {OF_APPLICATION}"),
                _ => format!("expected a file with {account}"),
            },
        ))
    }
}

/// What a file of application default credentials must have.
const OF_APPLICATION: &str = "a file with the key of a service account in JSON, as Google creates it, or with the credentials \
                              of `gcloud auth application-default login` (`external_account` is not supported)";

fn is_usable(key: GoogleConfigKey, value: &str) -> bool {
    let builder = GoogleCloudStorageBuilder::new().with_bucket_name("bucket");
    builder.with_config(key, value).build().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::backend::cloud::provider::Provider;

    fn check(texts: &[(&str, &str)]) -> Result<(), Invalid> {
        let find = |name: &str| {
            let found = texts.iter().find(|(variable, _)| *variable == name)?;
            Some(found.1.to_owned())
        };
        Variables::read(Provider::Gcs, &find).check_google()
    }

    #[test]
    fn credentials_that_cannot_be_read_are_named_and_not_shown() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key.json");
        let path = file.to_str().unwrap();
        let with_pem = r#"{"private_key":"hush","private_key_id":"x","client_email":"y"}"#;
        for invalid in ["\"hush\"", "{\"type\": \"hush\"}", "", with_pem] {
            std::fs::write(&file, invalid).unwrap();
            for name in KEY_FILES.iter().chain([&APPLICATION]) {
                let (named, reason) = check(&[(name, path)]).unwrap_err();
                assert_eq!(named, *name);
                assert!(reason.starts_with("expected a file with the key"), "{reason}");
                assert!(!reason.contains("hush"), "{reason}");
            }
            if !invalid.is_empty() {
                let (named, reason) = check(&[(KEY, invalid)]).unwrap_err();
                assert_eq!(named, KEY);
                assert!(reason.starts_with("expected the key of"), "{reason}");
                assert!(!reason.contains("hush"), "{reason}");
            }
        }
        for name in KEY_FILES.iter().chain([&APPLICATION]) {
            for (path, expected) in [
                ("/nonexistent/key", "cannot read the file that it names: No such file"),
                ("/", "cannot read the file that it names: is a directory"),
                // A key where a file is expected.
                (with_pem, "cannot read the file that it names: No such file"),
            ] {
                let (named, reason) = check(&[(name, path)]).unwrap_err();
                assert!(named == *name && reason.starts_with(expected), "{named}: {reason}");
            }
        }
        check(&[(EMULATOR, "localhost"), (APPLICATION, path)]).unwrap();
        let (named, reason) = check(&[(KEY, with_pem), (KEY_FILES[0], path)]).unwrap_err();
        assert!(named == KEY && reason.starts_with("SERVICE_ACCOUNT is set too"), "{reason}");
    }

    #[test]
    fn the_file_of_gcloud_is_checked_where_nothing_is_set() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join(DEFAULT_FILE);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let check = |set: &[(&str, &str)]| {
            let find = |name: &str| {
                let found = set.iter().find(|(variable, _)| *variable == name)?;
                Some(found.1.to_owned())
            };
            let cloud = Cloud::parse(Provider::Gcs, "bucket").unwrap();
            let variables = Variables::read(Provider::Gcs, &find);
            Cloud { variables, ..cloud }.check_default_credentials(home.path().to_str())
        };
        check(&[]).unwrap();
        std::fs::write(&file, r#"{"type": "external_account", "audience": "hush"}"#).unwrap();
        let reason = check(&[]).unwrap_err();
        assert!(reason.starts_with(file.to_str().unwrap()), "{reason}");
        assert!(reason.contains("is not supported") && !reason.contains("hush"), "{reason}");
        check(&[(EMULATOR, "localhost")]).unwrap();
        std::fs::remove_file(&file).unwrap();
        check(&[]).unwrap();
    }

    #[test]
    fn credentials_of_a_user_are_accepted() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key.json");
        let user =
            r#"{"type":"authorized_user","client_id":"a","client_secret":"b","refresh_token":"c"}"#;
        std::fs::write(&file, user).unwrap();
        check(&[(APPLICATION, file.to_str().unwrap())]).unwrap();
    }
}
