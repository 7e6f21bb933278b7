//! A git repository elsewhere: its URL, credentials and revision.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::Path;

use fs_err as fs;
use percent_encoding::percent_decode_str;
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use crate::cli::Environment;
use crate::process::url_secrets;

/// How a git bundle begins (gitformat-bundle).
const BUNDLES: [&[u8]; 2] = [b"# v2 git bundle\n", b"# v3 git bundle\n"];

/// A repository elsewhere, and the requested revision.
#[derive(Clone, Debug)]
pub(crate) struct GitSource {
    /// The URL for git, without credentials, or the path of a bundle.
    pub(super) url: String,
    /// The credentials that the URL held.
    pub(super) credentials: Option<Credentials>,
    /// A branch, tag or commit; the remote's HEAD where none is named.
    pub(super) revision: Option<String>,
}

/// A user and a password, for one origin only.
#[derive(Clone, Debug)]
pub(super) struct Credentials {
    origin: String,
    user: String,
    password: SecretString,
}

/// The variables of the helper that gives git the credentials.
const USER: &str = "PLANCHA_GIT_USER";
const PASSWORD: &str = "PLANCHA_GIT_PASSWORD";

impl GitSource {
    /// `None` if the text is no git URL.
    pub(crate) fn parse(text: &str, revision: Option<&str>) -> Result<Option<Self>, String> {
        let source = if is_mistyped(text) {
            return Err(
                "the source is neither a directory, an archive nor a git URL, and is not shown, because it may hold a \
                 password; next: check it, a git URL begins with https://, http://, ssh://, git:// or file://, or is \
                 user@host:path"
                    .to_owned(),
            );
        } else if text.contains("://") {
            from_url(text)?
        } else if is_scp_like(text) {
            Self { url: text.to_owned(), credentials: None, revision: None }
        } else {
            return Ok(None);
        };
        source.with_revision(revision).map(Some)
    }

    /// A git bundle in a file. `None` if the file is something else, or cannot be read.
    pub(in crate::source) fn of_bundle(
        file: &Path,
        revision: Option<&str>,
    ) -> Result<Option<Self>, String> {
        let mut start = Vec::new();
        let read = fs::File::open(file).and_then(|file| file.take(16).read_to_end(&mut start));
        if read.is_err() || !BUNDLES.iter().any(|first| start.starts_with(first)) {
            return Ok(None);
        }
        // Git works in another directory.
        let file = std::path::absolute(file).map_err(|error| error.to_string())?;
        let url = file.display().to_string();
        Self { url, credentials: None, revision: None }.with_revision(revision).map(Some)
    }

    fn with_revision(self, revision: Option<&str>) -> Result<Self, String> {
        let Some(revision) = revision else { return Ok(self) };
        // Git reads options, refspecs and globs out of what it takes for a ref's name.
        let foreign = |c: char| c.is_control() || c.is_whitespace() || ":*?[^~\\".contains(c);
        if revision.is_empty() || revision.starts_with(['-', '+']) || revision.contains(foreign) {
            return Err(format!("--revision `{revision}` is not a branch, tag or commit"));
        }
        Ok(Self { revision: Some(revision.to_owned()), ..self })
    }

    /// The variables that give git the credentials: only this user and root can read them. They are never in argv or a
    /// file. Git asks the helper anew for each origin, so that a redirect to another one does not get them, as it would get an
    /// `http.extraHeader`.
    pub(super) fn git_credentials(&self, environment: &Environment) -> Vec<(String, OsString)> {
        let Some(Credentials { origin, user, password }) = &self.credentials else {
            return Vec::new();
        };
        let helper = format!(
            "!f() {{ test \"$1\" != get || printf 'username=%s\\npassword=%s\\n' \"${USER}\" \"${PASSWORD}\"; }}; f"
        );
        // The empty value turns off the user's helpers, which would be asked first and told the password.
        let keys = origins(origin).map(|origin| format!("credential.{origin}.helper"));
        let keys = keys.collect::<Vec<_>>();
        let mut settings =
            keys.iter().flat_map(|key| [(&**key, ""), (key, &helper)]).collect::<Vec<_>>();
        // As of git 2.46: at once, also to a server that offers other ways, or whose repository strangers may read in part.
        let at_once = format!("http.{origin}.proactiveAuth");
        settings.push((&at_once, "basic"));
        let mut variables = environment.git_config(&settings);
        variables.push((USER.to_owned(), user.into()));
        variables.push((PASSWORD.to_owned(), password.expose_secret().into()));
        variables
    }

    /// The URL for git, without credentials.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Whether it is a bundle: no git URL starts with a slash.
    pub(crate) fn is_bundle(&self) -> bool {
        self.url.starts_with('/')
    }

    /// The requested branch, tag or commit.
    pub(crate) fn revision(&self) -> Option<&str> {
        self.revision.as_deref()
    }

    /// The requested revision, `HEAD` where none is named.
    pub(crate) fn named(&self) -> &str {
        self.revision.as_deref().unwrap_or("HEAD")
    }

    /// The same repository at another commit.
    pub(in crate::source) fn at(&self, commit: &str) -> Self {
        Self { revision: Some(commit.to_owned()), ..self.clone() }
    }

    /// The last part of its URL, without query, fragment, `.git` and `.bundle`.
    pub(crate) fn name(&self) -> &str {
        let path = self.url.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
        let name = path.rsplit(['/', ':']).next().unwrap_or_default();
        let name = name.strip_suffix(".bundle").unwrap_or(name);
        name.strip_suffix(".git").unwrap_or(name)
    }
}

/// The origin, and that with TLS to which its host may redirect.
fn origins(origin: &str) -> impl Iterator<Item = String> {
    let host = origin.strip_prefix("http://").filter(|host| !host.contains(':'));
    std::iter::once(origin.to_owned()).chain(host.map(|host| format!("https://{host}")))
}

fn from_url(text: &str) -> Result<GitSource, String> {
    // A URL that does not parse may hold a password: it is not shown.
    let mut url =
        Url::parse(text).map_err(|error| format!("the source is not a valid URL: {error}"))?;
    let known = matches!(url.scheme(), "https" | "http" | "ssh" | "git" | "file");
    if !known || url.cannot_be_a_base() {
        return Err(
            "the source cannot be fetched: a git URL begins with https://, http://, ssh://, git:// \
             or file://, or is user@host:path"
                .to_owned(),
        );
    }
    // Git shows them, and so does its command line.
    if let Some(name) = url_secrets::secret_parameter(text) {
        return Err(format!(
            "the source has a secret in its parameter `{name}`, where messages and the process list would show it; \
             next: write it into the URL as https://user:password@host/path, or use a credential helper of git"
        ));
    }
    let mut credentials = None;
    if matches!(url.scheme(), "https" | "http") && !url.username().is_empty() {
        let plain = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let (user, password) = (plain(url.username()), plain(url.password().unwrap_or_default()));
        // Git reads them line by line.
        if user.contains(char::is_control) || password.contains(char::is_control) {
            return Err(
                "the user or the password in the source's URL contains a control character"
                    .to_owned(),
            );
        }
        let origin = url.origin().ascii_serialization();
        credentials = Some(Credentials { origin, user, password: password.into() });
        url.set_username("")
            .and_then(|()| url.set_password(None))
            .map_err(|()| "the source has no host")?;
    } else if url.password().is_some() {
        return Err(format!("a {} URL cannot contain a password", url.scheme()));
    }
    Ok(GitSource { url: url.into(), credentials, revision: None })
}

/// Whether a text may be a git URL with a typing error, such as `https:/user:password@host`, and is no file or directory.
fn is_mistyped(text: &str) -> bool {
    let scheme = text.split(['/', ':']).next().unwrap_or_default().to_ascii_lowercase();
    let has_scheme = matches!(&*scheme, "http" | "https" | "ssh") && text.contains(':');
    let has_password = text.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'));
    !text.contains("://")
        && (has_scheme || has_password)
        && !is_scp_like(text)
        && !Path::new(text).exists()
}

/// `user@host:path`, the spelling of scp.
fn is_scp_like(text: &str) -> bool {
    let Some((host, path)) = text.split_once(':') else { return false };
    let word = |text: &str| {
        !text.is_empty()
            && !text.starts_with('-')
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    match host.split_once('@') {
        Some((user, host)) => word(user) && word(host) && !path.is_empty(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> GitSource {
        GitSource::parse(text, None).unwrap().unwrap()
    }

    #[test]
    fn credentials_leave_the_url_and_show_nowhere() {
        let source = parsed("https://user:p%40ss+w@git.example.com:8443/infra.git");
        assert_eq!(source.url, "https://git.example.com:8443/infra.git");
        let known = source.credentials.as_ref().unwrap();
        assert_eq!(
            (&*known.origin, &*known.user, known.password.expose_secret()),
            ("https://git.example.com:8443", "user", "p@ss+w")
        );
        let of = |origin| origins(origin).collect::<Vec<_>>();
        assert_eq!(of(&known.origin), ["https://git.example.com:8443"]);
        assert_eq!(of("http://h"), ["http://h", "https://h"]);
        assert_eq!(of("http://h:8080"), ["http://h:8080"]);
        let shown = format!("{source:?}");
        assert!(!shown.contains("p@ss") && !shown.contains("p%40ss"), "{shown}");
        assert!(GitSource::parse("https://user:p%0Ahost=evil@host/x", None).is_err());
        assert!(GitSource::parse("ssh://git:pw@host/x", None).is_err());
    }

    #[test]
    fn a_secret_in_the_query_is_refused_and_not_shown() {
        for text in [
            "https://me:p@h/x.git?token=hunter2",
            "https://h/x.git?a=b&Private-Token=hunter2",
            "https://h/x.git#access_token=hunter2",
            "https://h/x.git;token=hunter2",
            "https://h/x.git%3Ftoken%3Dhunter2",
            "ssh://git@h/x.git;a=b;api-key=hunter2",
            "https:/me:hunter2@h/x.git",
            "https//me:hunter2@h/x.git",
            "https:/h/x.git?token=hunter2",
            "me:hunter2@h/x.git",
        ] {
            let error = GitSource::parse(text, None).unwrap_err();
            assert!(error.contains("next:") && !error.contains("hunter2"), "{error}");
        }
        assert!(GitSource::parse("a:b/c", None).unwrap().is_none());
    }

    #[test]
    fn an_existing_file_is_no_mistyped_url() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("job:12/infra@abc.tar.gz");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let text = file.to_str().unwrap();
        GitSource::parse(text, None).unwrap_err();
        fs::write(&file, "").unwrap();
        assert!(GitSource::parse(text, None).unwrap().is_none());
    }

    #[test]
    fn a_repository_is_named_by_the_end_of_its_url() {
        for (url, name) in [
            ("https://git.example.com/team/infra.git", "infra"),
            ("git@git.example.com:infra", "infra"),
            ("ssh://git@host/infra/", "infra"),
            ("https://host/infra.git?a=b/c#d/e", "infra"),
        ] {
            assert_eq!(parsed(url).name(), name);
        }
    }
}
