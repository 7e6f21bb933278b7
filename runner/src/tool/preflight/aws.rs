//! Credentials of AWS, in the order in which its SDKs look for them: keys in variables, a web identity, a profile, a
//! container's service, the metadata service.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use reqwest::Client;

use crate::source::regular;
use crate::tool::preflight::expiry::Expiry;
use crate::tool::preflight::findings::Findings;
use crate::tool::preflight::question::{Question, User};
use crate::tool::preflight::token::{examine_token_file, second};

/// Settings with which a provider or backend does not use the variables alone.
const OWN: [&str; 8] = [
    "access_key",
    "secret_key",
    "token",
    "profile",
    "shared_config_files",
    "shared_credentials_file",
    "shared_credentials_files",
    "assume_role_with_web_identity",
];
/// Settings that replace the files of profiles, or their use.
const OTHER_PROFILES: [&str; 5] = [
    "access_key",
    "secret_key",
    "shared_config_files",
    "shared_credentials_file",
    "shared_credentials_files",
];
/// What a service beside the container is found by.
const CONTAINER: [&str; 2] =
    ["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"];
const EXPIRATIONS: [&str; 3] =
    ["AWS_CREDENTIAL_EXPIRATION", "AWS_CREDENTIALS_EXPIRATION", "AWS_SESSION_EXPIRATION"];
/// A larger file of profiles is not read to its end.
const MAX_FILE: u64 = 1 << 20;
/// How long the metadata service may take.
const METADATA_LIMIT: Duration = Duration::from_secs(1);
/// The variable with which tools do not query the metadata service.
pub(crate) const METADATA_DISABLED: &str = "AWS_EC2_METADATA_DISABLED";

/// The providers and the backend that use these credentials.
pub(super) fn users<'a>(question: &'a Question<'_>) -> Vec<User<'a>> {
    question.users(&["aws", "awscc"], "s3")
}

/// Whether no setting of it replaces the variables.
pub(super) fn uses_variables(user: &User<'_>) -> bool {
    !user.has_any(&OWN)
}

pub(super) fn examine(question: &Question<'_>, findings: &mut Findings) {
    for user in users(question) {
        examine_profiles(question, &user, findings);
        if uses_variables(&user) {
            examine_tokens(question, &user, findings);
            examine_expiration(question, &user, findings);
        }
    }
}

/// Whether keys are in variables.
pub(super) fn has_keys(question: &Question<'_>) -> bool {
    ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]
        .iter()
        .all(|name| question.variable(name).is_some())
}

fn examine_profiles(question: &Question<'_>, user: &User<'_>, findings: &mut Findings) {
    const HINT: &str = "correct the name, or add the profile to the file of AWS_CONFIG_FILE or \
        AWS_SHARED_CREDENTIALS_FILE (by default ~/.aws/config and ~/.aws/credentials)";
    let Some(files) = profile_files(question) else { return };
    let others = ["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"];
    let is_certain = user.is_started && !question.is_any_set(&others);
    let is_missing = |profile: &str| profile != "default" && !has_profile(&files, profile);
    let shown = files.each_ref().map(|file| file.display().to_string()).join(" and ");
    let named = user.blocks.iter().filter(|block| !OTHER_PROFILES.iter().any(|own| block.has(own)));
    let named = named.filter_map(|block| block.literal("profile"));
    for profile in named.filter(|profile| is_missing(profile)) {
        let text =
            format!("{} uses the AWS profile `{profile}`, which is not in {shown}", user.name);
        findings.add(is_certain && user.blocks.len() == 1, text, HINT);
    }
    if let Some(profile) = question.variable("AWS_PROFILE")
        && !user.has_any(&OWN)
        && is_missing(profile)
    {
        let text = format!(
            "AWS_PROFILE names the profile `{profile}`, which is not in {shown} ({} uses it)",
            user.name
        );
        findings.add(is_certain, text, HINT);
    }
}

/// The files of profiles. `None`: their place is not known.
fn profile_files(question: &Question<'_>) -> Option<[PathBuf; 2]> {
    let file = |variable, name: &str| match question.variable(variable) {
        Some(file) => expanded(question, file),
        None => Some(question.home?.join(".aws").join(name)),
    };
    Some([file("AWS_CONFIG_FILE", "config")?, file("AWS_SHARED_CREDENTIALS_FILE", "credentials")?])
}

/// A path of a variable. `~` is the home directory.
fn expanded(question: &Question<'_>, path: &str) -> Option<PathBuf> {
    match path.strip_prefix("~/") {
        Some(rest) => Some(question.home?.join(rest)),
        None => Some(question.file(path)),
    }
}

/// Whether one of the files has this profile. What cannot be read may have it.
fn has_profile(files: &[PathBuf; 2], profile: &str) -> bool {
    files.iter().any(|file| match regular::beginning(file, MAX_FILE) {
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
        Ok(None) => true,
        Ok(Some(bytes)) if bytes.len() as u64 == MAX_FILE => true,
        Ok(Some(bytes)) => String::from_utf8_lossy(&bytes).lines().any(|line| {
            let name = line.trim_start_matches('\u{feff}').trim().strip_prefix('[');
            let name = name.and_then(|name| name.split(']').next()).unwrap_or_default().trim();
            let name = name
                .strip_prefix("profile")
                .filter(|rest| rest.starts_with([' ', '\t']))
                .unwrap_or(name);
            name.trim().trim_matches(['"', '\'']) == profile
        }),
    })
}

fn examine_tokens(question: &Question<'_>, user: &User<'_>, findings: &mut Findings) {
    if has_keys(question) {
        return;
    }
    if let Some(file) = question.variable("AWS_WEB_IDENTITY_TOKEN_FILE") {
        let is_certain = user.is_started && question.variable("AWS_ROLE_ARN").is_some();
        examine_token_file(
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            file,
            (question, user),
            is_certain,
            findings,
        );
        return;
    }
    let name = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";
    if let Some(file) = question.variable(name)
        && question.is_any_set(&CONTAINER)
        && question.variable("AWS_PROFILE").is_none()
    {
        // A profile comes first.
        let files = profile_files(question);
        let is_certain =
            user.is_started && files.is_some_and(|files| !files.iter().any(|file| file.exists()));
        examine_token_file(name, file, (question, user), is_certain, findings);
    }
}

/// A variable that says when the keys expire may be of earlier keys.
fn examine_expiration(question: &Question<'_>, user: &User<'_>, findings: &mut Findings) {
    if !has_keys(question) {
        return;
    }
    for name in EXPIRATIONS {
        let at = question.variable(name).and_then(|at| at.trim().parse::<Timestamp>().ok());
        let Some(at) = at else { continue };
        let what = format!("the key in AWS_ACCESS_KEY_ID ({name})");
        if at > question.now {
            findings.expiries.push(Expiry { what, at });
        } else {
            let text = format!("{what} expired at {} ({} uses it)", second(at), user.name);
            findings.add(false, text, "provide fresh keys");
        }
        return;
    }
}

/// Whether nothing but the metadata service can supply credentials.
fn depends_on_metadata(question: &Question<'_>) -> bool {
    const OTHERS: [&str; 4] =
        ["AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", METADATA_DISABLED];
    let users = users(question);
    let has_files =
        profile_files(question).is_none_or(|files| files.iter().any(|file| file.exists()));
    !users.is_empty()
        && !users.iter().any(|user| user.has_any(&OWN))
        && !question.is_any_set(&OTHERS)
        && !question.is_any_set(&CONTAINER)
        && !has_files
}

/// Asks the metadata service once, if nothing else can supply credentials. `true`: it is silent, and the tool need not wait
/// for it.
pub(crate) async fn ask_metadata_service(question: &Question<'_>) -> bool {
    if !depends_on_metadata(question) {
        return false;
    }
    let mode = question.variable("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
    let is_six = mode.is_some_and(|mode| mode.eq_ignore_ascii_case("ipv6"));
    let default = if is_six { "http://[fd00:ec2::254]" } else { "http://169.254.169.254" };
    let endpoint = question.variable("AWS_EC2_METADATA_SERVICE_ENDPOINT").unwrap_or(default);
    let endpoint = endpoint.trim_end_matches('/');
    // It is on this machine's own network, never behind a proxy.
    let Ok(client) = Client::builder().no_proxy().timeout(METADATA_LIMIT).build() else {
        return false;
    };
    let token = client
        .put(format!("{endpoint}/latest/api/token"))
        .header("x-aws-ec2-metadata-token-ttl-seconds", "60")
        .send();
    // The first version answers also where the hop limit of the second one keeps its answers from containers.
    let first = client.get(format!("{endpoint}/latest/meta-data/")).send();
    let (token, first) = tokio::join!(token, first);
    token.is_err() && first.is_err()
}

#[cfg(test)]
mod tests {
    use fs_err as fs;

    use super::*;

    /// To open a pipe could block forever, and to read it would take its contents from the tool.
    #[test]
    fn profile_may_be_in_a_file_that_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::File::create(at("large")).unwrap().set_len(MAX_FILE + 1).unwrap();
        fs::write(at("file"), "[profile ops]\n").unwrap();
        for (file, expected) in
            [("pipe", true), ("large", true), ("file", false), ("missing", false), (".", true)]
        {
            let files = [at(file), at("missing")];
            let (sender, receiver) = std::sync::mpsc::channel();
            std::thread::spawn(move || sender.send(has_profile(&files, "no")));
            assert_eq!(receiver.recv_timeout(Duration::from_mins(1)), Ok(expected), "{file}");
        }
    }
}
