//! How callers are to be told apart, as flags, variables and files say it.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use datastore_api::Name;

use crate::auth::{
    Auth, Callers, Isolation, KubeApi, Kubernetes, NewToken, Policy, ServiceAccount, Verb,
};
use crate::cli::args::{AuthFlags, NewTokenFlags};
use crate::config::settings::{Given, Settings, parse};

/// What Kubernetes mounts into every pod that may know who it is.
const MOUNTED: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const SERVICE_ACCOUNTS: &str = "BURRITO_DATASTORE_SERVICEACCOUNTS";
const MAIN_NAMESPACE: &str = "BURRITO_CONTROLLER_MAINNAMESPACE";

/// The ways that `--auth` names.
#[derive(Debug, Default)]
struct Ways {
    none: bool,
    kubernetes: bool,
    tokens: Vec<PathBuf>,
}

impl Settings<'_> {
    pub(super) fn auth(
        &mut self,
        flags: AuthFlags,
        as_burrito: bool,
        listen: &[SocketAddr],
    ) -> Result<Auth, String> {
        let AuthFlags { auth, insecure_no_auth, policy, isolation } = flags;
        let given = (!auth.is_empty()).then(|| auth.join(","));
        let (source, ways) = match self.given(given, "--auth", &["PLANCHA_AUTH"]) {
            Some(Given { source, place, text }) => (source, parse::<Ways>(&place, &text)?),
            None if insecure_no_auth => ("--insecure-no-auth", Ways::none()),
            None if as_burrito || self.is_mounted("token") => ("default", Ways::kubernetes()),
            None => ("default", Ways::none()),
        };
        if ways.none {
            self.needs_callers(policy, "--policy", "PLANCHA_POLICY")?;
            self.needs_callers(isolation, "--isolation", "PLANCHA_ISOLATION")?;
            self.note("--auth", &Auth::None, source);
            if let Some(Given { place, .. }) = self.variable(SERVICE_ACCOUNTS) {
                self.warnings.push(format!(
                    "{place} has no effect: --auth is `none`, so everybody may do everything"
                ));
            }
            return if insecure_no_auth {
                Ok(Auth::None)
            } else {
                loopback_only(self.source("--listen"), listen).map(|()| Auth::None)
            };
        }
        let policy = self.policy(policy, &ways.tokens)?;
        let kubernetes = ways.kubernetes.then(|| self.kubernetes(isolation)).transpose()?;
        let callers = Callers { tokens: !ways.tokens.is_empty(), kubernetes, policy };
        let auth = Auth::Callers(Box::new(callers));
        self.note("--auth", &auth, source);
        Ok(auth)
    }

    /// Refuses a setting that would be for nothing where everybody may do everything.
    fn needs_callers(
        &self,
        flag: Option<String>,
        name: &'static str,
        variable: &'static str,
    ) -> Result<(), String> {
        match self.given(flag, name, &[variable]) {
            Some(Given { place, .. }) => Err(format!(
                "{place}: callers are not told apart here, so everybody may do everything: say by \
                 --auth how they are, or leave this out"
            )),
            None => Ok(()),
        }
    }

    fn policy(&mut self, flag: Option<String>, tokens: &[PathBuf]) -> Result<Policy, String> {
        let mut policy = Policy::default();
        for file in tokens {
            self.rules(&mut policy, "--auth", file)?;
        }
        if let Some(Given { source, place, text }) =
            self.given(flag, "--policy", &["PLANCHA_POLICY"])
        {
            self.rules(&mut policy, &place, Path::new(&text))?;
            self.note("--policy", &text, source);
        }
        if !tokens.is_empty() && !policy.has_tokens() {
            let files = tokens.iter().map(|file| file.display().to_string()).collect::<Vec<_>>();
            self.warnings.push(format!(
                "no rule in {} allows a token anything: no token is accepted or may do anything; make one with \
                 `datastore token ID --rules FILE`",
                files.join(", ")
            ));
        }
        for who in policy.useless() {
            self.warnings.push(format!(
                "a rule for {who} allows nothing: its verbs, namespaces or kinds are empty"
            ));
        }
        match policy.unknown_token() {
            Some(id) if !tokens.is_empty() => Err(format!(
                "a rule is about the token `{id}`, and none has a `sha256` for it: make one with \
                 `datastore token {id}`"
            )),
            _ => Ok(policy),
        }
    }

    fn rules(&self, policy: &mut Policy, place: &str, file: &Path) -> Result<(), String> {
        let cannot = |reason: &dyn Display| format!("{place}: {}: {reason}", file.display());
        let yaml = self.outside.file(file).map_err(|error| cannot(&error))?;
        policy.add(&yaml).map_err(|reason| cannot(&reason))
    }

    fn kubernetes(&mut self, isolation: Option<String>) -> Result<Kubernetes, String> {
        let isolation = self
            .take(isolation, "--isolation", &["PLANCHA_ISOLATION"], || Ok(Isolation::default()))?;
        let allowed = match self.variable(SERVICE_ACCOUNTS) {
            Some(Given { source, place, text }) => {
                let accounts = accounts(&place, &text)?;
                let shown = if accounts.is_empty() { "(none)" } else { &*text };
                self.note("serviceAccounts", &shown, source);
                Some(accounts)
            }
            None => None,
        };
        if allowed.is_none() && isolation == Isolation::Burrito {
            return Err(format!(
                "{}: `burrito` lets everybody on the list of ServiceAccounts do everything, and there \
                 is no list: name them in {SERVICE_ACCOUNTS} (namespace/name, with commas)",
                self.source("--isolation")
            ));
        }
        let main_namespace = self.main_namespace();
        Ok(Kubernetes { api: self.kube_api()?, allowed, main_namespace, isolation })
    }

    /// Where upstream's controllers and server live; if nobody says, it is where we live.
    fn main_namespace(&mut self) -> Option<String> {
        let given = self.variable(MAIN_NAMESPACE).map(|given| (given.source, given.text));
        let own = || self.outside.file(&Path::new(MOUNTED).join("namespace")).ok();
        let given = given.or_else(|| Some(("default", own()?.trim().to_owned())));
        let (source, namespace) = given?;
        self.note("mainNamespace", &namespace, source);
        (!namespace.is_empty()).then_some(namespace)
    }

    /// In the order of upstream's own client.
    fn kube_api(&mut self) -> Result<KubeApi, String> {
        let kubeconfig = self.outside.env("KUBECONFIG");
        let in_cluster = self.outside.env("KUBERNETES_SERVICE_HOST").is_some();
        let home = self.outside.env("HOME").map(|home| format!("{home}/.kube/config"));
        let home = home.filter(|path| self.outside.file(Path::new(path)).is_ok());
        let (source, paths) = match (kubeconfig, home) {
            (Some(paths), _) => ("KUBECONFIG", paths),
            _ if in_cluster => return Ok(KubeApi::InCluster),
            (None, Some(path)) => ("default", path),
            (None, None) => {
                return Err("--auth: `kubernetes` needs a Kubernetes API, and there is none: this is \
                            no pod, KUBECONFIG is not set, and there is no ~/.kube/config. Ways out: \
                            one of these, or --auth tokens=FILE"
                    .to_owned());
            }
        };
        self.note("kubeconfig", &paths, source);
        Ok(KubeApi::Kubeconfig(std::env::split_paths(&paths).collect()))
    }

    fn is_mounted(&self, file: &str) -> bool {
        self.outside.file(&Path::new(MOUNTED).join(file)).is_ok()
    }
}

fn loopback_only(place: &str, listen: &[SocketAddr]) -> Result<(), String> {
    match listen.iter().find(|address| !address.ip().is_loopback()) {
        None => Ok(()),
        Some(address) => Err(format!(
            "{place}: {address} is refused, since without authentication whoever reaches it could \
             read and replace every plan. Ways out: tell callers apart (--auth tokens=FILE, --auth \
             kubernetes); listen on a loopback address (--listen 127.0.0.1:{}); or, where nobody else \
             can reach it, --insecure-no-auth",
            address.port()
        )),
    }
}

fn accounts(place: &str, text: &str) -> Result<Vec<ServiceAccount>, String> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    items.map(|item| item.parse().map_err(|reason| format!("{place}: {reason}"))).collect()
}

/// The token that the word `token` was told to make.
pub(super) fn new_token(flags: &NewTokenFlags) -> Result<NewToken, String> {
    fn all<T: FromStr<Err = String>>(name: &str, texts: &[String]) -> Result<Vec<T>, String> {
        let parse = |text: &String| text.parse().map_err(|reason| format!("{name}: {reason}"));
        texts.iter().map(parse).collect()
    }
    let NewTokenFlags { id, namespace, kind, verb, rules: _ } = flags;
    if id.is_empty() || id.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return Err(format!(
            "the id `{}` is empty, or has spaces or control characters: name the token in one word, like `ci`",
            id.escape_debug()
        ));
    }
    for namespace in namespace {
        // With any text for `*` it must be able to be a name.
        if let Err(error) = namespace.replace('*', "x").parse::<Name>() {
            let pattern = namespace.escape_debug();
            return Err(if namespace.contains('*') {
                format!("--namespace `{pattern}`: {error}")
            } else {
                format!("--namespace: {error}")
            });
        }
    }
    let (kinds, verbs) = (all("--kind", kind)?, all("--verb", verb)?);
    if verbs.contains(&Verb::Admin) && !(kinds.is_empty() && namespace.iter().any(|n| n == "*")) {
        return Err("--verb: `admin` only counts in a rule for everything: use it with --namespace '*' and \
                    without --kind"
            .to_owned());
    }
    Ok(NewToken { id: id.clone(), namespaces: namespace.clone(), kinds, verbs })
}

impl Ways {
    fn none() -> Self {
        Self { none: true, ..Self::default() }
    }

    fn kubernetes() -> Self {
        Self { kubernetes: true, ..Self::default() }
    }
}

impl FromStr for Ways {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut ways = Self::default();
        for way in text.split(',') {
            match way.split_once('=') {
                None if way == "none" => ways.none = true,
                None if way == "kubernetes" => ways.kubernetes = true,
                Some(("tokens", file)) if !file.is_empty() => ways.tokens.push(file.into()),
                Some(("oidc", _)) => {
                    return Err("cannot be had: this version does not know `oidc` yet".to_owned());
                }
                _ => {
                    return Err(
                        "is no way to tell callers apart: use kubernetes, tokens=FILE or none"
                            .to_owned(),
                    );
                }
            }
        }
        if ways.none && (ways.kubernetes || !ways.tokens.is_empty()) {
            return Err("has `none`, which lets everybody in, beside another way".to_owned());
        }
        Ok(ways)
    }
}
