//! How callers are authenticated, read from flags, variables and files.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use datastore_api::Name;

use crate::auth::site::is_loopback_address;
use crate::auth::{
    Auth, Callers, Isolation, Kinds, KubeApi, Kubernetes, NewToken, Oidc, Policy, ServiceAccount,
    Verb,
};
use crate::cli::args::{AuthFlags, NewTokenFlags};
use crate::config::oidc::OidcMode;
use crate::config::settings::{Settings, parse};
use crate::config::sources::RawSetting;
use crate::kind::Kind;

/// The directory in which Kubernetes mounts the token and namespace of a pod.
const SERVICE_ACCOUNT_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const SERVICE_ACCOUNTS: &str = "BURRITO_DATASTORE_SERVICEACCOUNTS";
const MAIN_NAMESPACE: &str = "BURRITO_CONTROLLER_MAINNAMESPACE";

/// The values of `--auth`.
#[derive(Debug, Default)]
struct AuthModes {
    none: bool,
    kubernetes: bool,
    tokens: Vec<PathBuf>,
    oidc: Vec<OidcMode>,
}

impl Settings<'_> {
    pub(super) fn auth(
        &mut self,
        flags: AuthFlags,
        as_burrito: bool,
        listen: &[SocketAddr],
    ) -> Result<Auth, String> {
        let AuthFlags { auth, insecure_no_auth, policy, isolation } = flags;
        let flag = (!auth.is_empty()).then(|| auth.join(","));
        let (source, modes) = match self.raw(flag, "--auth", &["PLANCHA_AUTH"]) {
            Some(RawSetting { source, location, text }) => {
                (source, parse::<AuthModes>(&location, &text)?)
            }
            None if insecure_no_auth => ("--insecure-no-auth", AuthModes::none()),
            None if as_burrito || self.is_mounted("token") => ("default", AuthModes::kubernetes()),
            None => ("default", AuthModes::none()),
        };
        if modes.none {
            self.requires_authentication(policy, "--policy", "PLANCHA_POLICY")?;
            self.requires_authentication(isolation, "--isolation", "PLANCHA_ISOLATION")?;
            self.record("--auth", &Auth::None, source);
            if let Some(RawSetting { location, .. }) = self.variable(SERVICE_ACCOUNTS) {
                self.warnings.push(format!(
                    "{location} has no effect: --auth is `none`, so every caller has every permission"
                ));
            }
            return if insecure_no_auth {
                Ok(Auth::None)
            } else {
                loopback_only(self.source("--listen"), listen).map(|()| Auth::None)
            };
        }
        let (policy, rule_files) = self.policy(policy, &modes.tokens)?;
        let kubernetes = modes.kubernetes.then(|| self.kubernetes(isolation)).transpose()?;
        let oidc = self.oidc(modes.oidc, &policy)?;
        let tokens = !modes.tokens.is_empty();
        let callers = Callers { tokens, kubernetes, oidc, policy, rule_files };
        let auth = Auth::Callers(Box::new(callers));
        self.record("--auth", &auth, source);
        Ok(auth)
    }

    /// Rejects a setting that has no effect where callers are not authenticated.
    fn requires_authentication(
        &self,
        flag: Option<String>,
        name: &'static str,
        variable: &'static str,
    ) -> Result<(), String> {
        match self.raw(flag, name, &[variable]) {
            Some(RawSetting { location, .. }) => Err(format!(
                "{location} has no effect: callers are not authenticated, so every caller has every \
                 permission\nhint: set --auth, or leave this out"
            )),
            None => Ok(()),
        }
    }

    /// The configured issuers. Rules must be about these.
    fn oidc(&mut self, modes: Vec<OidcMode>, policy: &Policy) -> Result<Vec<Oidc>, String> {
        let mut all = Vec::<Oidc>::new();
        for mode in modes {
            let is_known = all.iter().any(|one| one.issuer.name() == mode.issuer.name());
            if is_known {
                return Err(format!(
                    "--auth oidc={}: this issuer is given twice\nhint: give audience and client-id in one value",
                    mode.issuer
                ));
            }
            all.push(mode.read(self.sources)?);
        }
        let issuers = all.iter().map(|oidc| oidc.issuer.to_string()).collect::<Vec<_>>();
        policy.check_issuers(&issuers)?;
        for issuer in issuers.iter().filter(|issuer| !policy.has_issuer(issuer)) {
            self.warnings.push(format!(
                "no rule in --policy is about the issuer {issuer}: its tokens are refused"
            ));
        }
        Ok(all)
    }

    /// The rules, and the files that they come from.
    fn policy(
        &mut self,
        flag: Option<String>,
        tokens: &[PathBuf],
    ) -> Result<(Policy, Vec<PathBuf>), String> {
        let (mut policy, mut rule_files) = (Policy::default(), tokens.to_vec());
        for file in tokens {
            self.rules(&mut policy, "--auth", file)?;
        }
        if let Some(RawSetting { source, location, text }) =
            self.raw(flag, "--policy", &["PLANCHA_POLICY"])
        {
            self.rules(&mut policy, &location, Path::new(&text))?;
            rule_files.push(PathBuf::from(&text));
            self.record("--policy", &text, source);
        }
        if !tokens.is_empty() && !policy.has_tokens() {
            let files = tokens.iter().map(|file| file.display().to_string()).collect::<Vec<_>>();
            self.warnings.push(format!(
                "no rule in {} grants a token any permission; create one with `datastore token ID --namespace NAMESPACE --rules FILE`",
                files.join(", ")
            ));
        }
        for who in policy.without_effect() {
            self.warnings.push(format!(
                "a rule for {who} grants no permission: its verbs, namespaces or kinds are empty"
            ));
        }
        match policy.unknown_token() {
            Some(id) if !tokens.is_empty() => Err(format!(
                "a rule names the token `{id}`, but no rule has its `sha256`\nhint: create the token with `datastore \
                 token {id} --namespace NAMESPACE --rules FILE`"
            )),
            _ => Ok((policy, rule_files)),
        }
    }

    fn rules(&self, policy: &mut Policy, location: &str, file: &Path) -> Result<(), String> {
        let cannot = |reason: &dyn Display| format!("{location}: {}: {reason}", file.display());
        let yaml = self.sources.file(file).map_err(|error| {
            let message = cannot(&error);
            if location == "--auth" && error.kind() == io::ErrorKind::NotFound {
                let file = file.display();
                return format!(
                    "{message}\nhint: create it with `datastore token ID --namespace NAMESPACE --rules {file}`"
                );
            }
            message
        })?;
        policy.add(&yaml).map_err(|reason| cannot(&reason))
    }

    fn kubernetes(&mut self, isolation: Option<String>) -> Result<Kubernetes, String> {
        let isolation =
            self.take(isolation, "--isolation", &["PLANCHA_ISOLATION"], Isolation::default)?;
        let allowed = match self.variable(SERVICE_ACCOUNTS) {
            Some(RawSetting { source, location, text }) => {
                let accounts = accounts(&location, &text)?;
                let shown = if accounts.is_empty() { "(none)" } else { &*text };
                self.record("serviceAccounts", &shown, source);
                Some(accounts)
            }
            None => None,
        };
        if allowed.is_none() && isolation == Isolation::Burrito {
            return Err(format!(
                "{}: `burrito` requires a list of ServiceAccounts\nhint: set {SERVICE_ACCOUNTS} to \
                 NAMESPACE/NAME, separated by commas",
                self.source("--isolation")
            ));
        }
        let main_namespace = self.main_namespace();
        Ok(Kubernetes { api: self.kube_api()?, allowed, main_namespace, isolation })
    }

    /// The namespace of Burrito's controllers and server; by default our own.
    fn main_namespace(&mut self) -> Option<String> {
        let set = self.variable(MAIN_NAMESPACE).map(|raw| (raw.source, raw.text));
        let own = || self.sources.file(&Path::new(SERVICE_ACCOUNT_DIR).join("namespace")).ok();
        let set = set.or_else(|| Some(("default", own()?.trim().to_owned())));
        let (source, namespace) = set?;
        self.record("mainNamespace", &namespace, source);
        (!namespace.is_empty()).then_some(namespace)
    }

    /// Searched in the same order as by Burrito's client.
    fn kube_api(&mut self) -> Result<KubeApi, String> {
        let kubeconfig = self.sources.env("KUBECONFIG");
        let in_cluster = self.sources.env("KUBERNETES_SERVICE_HOST").is_some();
        let home = self.sources.env("HOME").map(|home| format!("{home}/.kube/config"));
        let home = home.filter(|path| self.sources.file(Path::new(path)).is_ok());
        let (source, paths) = match (kubeconfig, home) {
            (Some(paths), _) => ("KUBECONFIG", paths),
            _ if in_cluster => return Ok(KubeApi::InCluster),
            (None, Some(path)) => ("default", path),
            (None, None) => {
                return Err("--auth: `kubernetes` requires a Kubernetes API: this is not a pod, KUBECONFIG is \
                            not set, and ~/.kube/config does not exist\nhint: provide one of these, or use --auth \
                            tokens=FILE"
                    .to_owned());
            }
        };
        self.record("kubeconfig", &paths, source);
        Ok(KubeApi::Kubeconfig(std::env::split_paths(&paths).collect()))
    }

    fn is_mounted(&self, file: &str) -> bool {
        self.sources.file(&Path::new(SERVICE_ACCOUNT_DIR).join(file)).is_ok()
    }
}

fn loopback_only(location: &str, listen: &[SocketAddr]) -> Result<(), String> {
    match listen.iter().find(|address| !is_loopback_address(address.ip())) {
        None => Ok(()),
        Some(address) => Err(format!(
            "{location}: refusing to listen on {address} without authentication: anyone who reaches it could read \
             and replace every plan\nhint: authenticate callers (--auth tokens=FILE, --auth kubernetes); listen on a \
             loopback address (--listen 127.0.0.1:{}); or use --insecure-no-auth if only trusted clients reach it",
            address.port()
        )),
    }
}

fn accounts(location: &str, text: &str) -> Result<Vec<ServiceAccount>, String> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    items.map(|item| item.parse().map_err(|reason| format!("{location}: {reason}"))).collect()
}

/// The token that `datastore token` is to create.
pub(super) fn new_token(flags: &NewTokenFlags) -> Result<NewToken, String> {
    fn all<T: FromStr<Err = String>>(name: &str, texts: &[String]) -> Result<Vec<T>, String> {
        let parse =
            |text: &String| text.trim().parse().map_err(|reason| format!("{name}: {reason}"));
        texts.iter().map(parse).collect()
    }
    let NewTokenFlags { id, namespace, kind, verb, rules: _ } = flags;
    if id.is_empty() || id.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return Err(format!(
            "invalid id `{}`: expected one word without spaces and control characters, such as ci",
            id.escape_debug()
        ));
    }
    let namespaces = namespace.iter().map(|text| text.trim().to_owned()).collect::<Vec<_>>();
    for namespace in &namespaces {
        // With any text in place of `*` it must be a valid name.
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
    let is_for_all = kinds.is_empty() && namespaces.iter().any(|n| n == "*");
    let has_states = kinds.contains(&Kinds::One(Kind::State));
    if verbs.contains(&Verb::Admin) && !is_for_all && !has_states {
        return Err("--verb: `admin` has an effect only in a rule for everything, or for states\nhint: use it with \
                    --namespace '*' and without --kind, or with --kind state"
            .to_owned());
    }
    Ok(NewToken { id: id.clone(), namespaces, kinds, verbs })
}

impl AuthModes {
    fn none() -> Self {
        Self { none: true, ..Self::default() }
    }

    fn kubernetes() -> Self {
        Self { kubernetes: true, ..Self::default() }
    }
}

impl FromStr for AuthModes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut modes = Self::default();
        // Options follow their issuer.
        let mut is_oidc = false;
        for mode in text.split(',') {
            let (name, value) = mode.split_once('=').unwrap_or((mode, ""));
            if is_oidc
                && let Some(oidc) = modes.oidc.last_mut()
                && oidc.add(name, value)?
            {
                continue;
            }
            is_oidc = name == "oidc";
            match mode.split_once('=') {
                None if mode == "none" => modes.none = true,
                None if mode == "kubernetes" => modes.kubernetes = true,
                Some(("tokens", file)) if !file.is_empty() => modes.tokens.push(file.into()),
                Some(("oidc", issuer)) => modes.oidc.push(OidcMode::new(issuer)?),
                _ => {
                    return Err("expected kubernetes, tokens=FILE, oidc=ISSUER with audience=NAME or client-id=ID, or none"
                        .to_owned());
                }
            }
        }
        let others = modes.kubernetes || !modes.tokens.is_empty() || !modes.oidc.is_empty();
        if modes.none && others {
            return Err("`none` cannot be combined with other values".to_owned());
        }
        Ok(modes)
    }
}
