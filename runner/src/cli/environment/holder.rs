//! Who runs this, for people who wait for it: a job of a CI system, or a user of this machine.

#![expect(clippy::disallowed_methods, reason = "part of the module that reads the environment")]

use std::env;

use url::Url;

use crate::process::url_secrets;

/// Variables with the URL of a job: of GitLab, Jenkins, Buildkite, `CircleCI` and Drone.
const JOB_URLS: [&str; 5] =
    ["CI_JOB_URL", "BUILD_URL", "BUILDKITE_BUILD_URL", "CIRCLE_BUILD_URL", "DRONE_BUILD_LINK"];
/// Longer names are cut.
const MAX_LEN: usize = 250;

/// The job or user that runs this.
pub(super) fn holder() -> String {
    let set = |name: &str| env::var(name).ok().filter(|text| !text.trim().is_empty());
    let mut holder = job(set).unwrap_or_else(user);
    holder.retain(|sign| !sign.is_control());
    holder.chars().take(MAX_LEN).collect()
}

/// The machine's name.
pub(super) fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "an unknown host".to_owned(),
        name => name.chars().take(MAX_LEN).collect(),
    }
}

fn job(set: impl Fn(&str) -> Option<String>) -> Option<String> {
    let url = github_url(&set).or_else(|| JOB_URLS.into_iter().find_map(&set))?;
    let url = Url::parse(&url).ok().filter(Url::has_host)?;
    let url = url_secrets::without_secrets(&url);
    // Terraform shows `HOLDER@HOST`, in which a scheme would make a user of what follows it.
    let job = url.as_str().split_once("://").map_or(url.as_str(), |(_, job)| job);
    let actor = ["GITHUB_ACTOR", "GITLAB_USER_LOGIN"].into_iter().find_map(&set);
    Some(actor.map_or_else(|| job.to_owned(), |actor| format!("{actor} in {job}")))
}

fn github_url(set: impl Fn(&str) -> Option<String>) -> Option<String> {
    let [server, repository, run] =
        ["GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID"].map(set);
    Some(format!("{}/{}/actions/runs/{}", server?, repository?, run?))
}

fn user() -> String {
    let uid = nix::unistd::geteuid();
    let user = nix::unistd::User::from_uid(uid).ok().flatten();
    user.map_or_else(|| format!("user {uid}"), |user| user.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Option<String> {
        job(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn job_is_named_by_its_url_without_secrets() {
        let github = [
            ("GITHUB_SERVER_URL", "https://github.com"),
            ("GITHUB_REPOSITORY", "me/infra"),
            ("GITHUB_RUN_ID", "7"),
            ("GITHUB_ACTOR", "me"),
        ];
        assert_eq!(of(&github).unwrap(), "me in github.com/me/infra/actions/runs/7");
        let jenkins = [("BUILD_URL", "https://u:hunter2@ci.example.com/job/x/3/?token=hunter2")];
        assert_eq!(of(&jenkins).unwrap(), "ci.example.com/job/x/3/");
        assert_eq!(of(&[("BUILD_URL", "3")]), None);
        assert_eq!(of(&[]), None);
    }
}
