//! Creates tokens, and adds their rules to a file.

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use datastore_api::Sha256;
use secrecy::SecretString;

use crate::auth::glob::Glob;
use crate::auth::policy::{Kinds, Policy, RulesFile, Verb, YamlRule, YamlWho};

/// A token to create, and its permissions.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// Its name in rules and in the log.
    pub id: String,
    /// The namespaces; `*` matches any text.
    pub namespaces: Vec<String>,
    /// The kinds; empty means every kind.
    pub kinds: Vec<Kinds>,
    /// The allowed verbs.
    pub verbs: Vec<Verb>,
}

/// How many random bytes a token has.
const RANDOM_BYTES: usize = 32;

impl NewToken {
    /// Creates the token. Returns it, and its rule as YAML.
    pub fn create(&self) -> Result<(SecretString, String), String> {
        let mut random = [0; RANDOM_BYTES];
        rand::fill(&mut random)
            .map_err(|_| "the operating system provides no random numbers".to_owned())?;
        let token = format!("plancha_{}", BASE64_URL_SAFE_NO_PAD.encode(random));
        let rule = YamlRule {
            who: YamlWho {
                token: Some(self.id.clone()),
                sha256: Some(Sha256::of(token.as_bytes()).to_string()),
                ..YamlWho::default()
            },
            namespaces: self.namespaces.iter().map(|text| Glob::new(text)).collect(),
            kinds: (!self.kinds.is_empty()).then(|| self.kinds.clone()),
            verbs: self.verbs.clone(),
            browser: None,
        };
        let yaml = serde_saphyr::to_string(&RulesFile { rules: vec![rule] });
        Ok((token.into(), yaml.map_err(|error| error.to_string())?))
    }
}

/// A file of rules with further rules at its end. Its comments are kept.
pub(crate) fn add_rules(before: &str, more: &str) -> Result<String, String> {
    let count = |text: &str| {
        let mut policy = Policy::default();
        policy.add(text).map(|()| policy.len())
    };
    let all = count(before)? + count(more)?;
    // The existing rules may be indented or not: the right text is the one that parses to all rules.
    let items = more.trim_start_matches("rules:\n");
    let indented = format!("  {}\n", items.trim_end().replace('\n', "\n  "));
    let end = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
    let tries = [more, items, &indented].map(|rules| format!("{before}{end}{rules}"));
    let tries = tries.into_iter().chain(replace_empty_list(before, items));
    tries.into_iter().find(|text| count(text) == Ok(all)).ok_or_else(|| {
        "the rule cannot be added at its end\nhint: write its `rules` as a list of lines that begin with `-`; or \
         leave --rules out, and add the printed rule yourself"
            .to_owned()
    })
}

/// A file with the line `rules: []`, in which these items replace the empty list.
fn replace_empty_list(before: &str, items: &str) -> Option<String> {
    let is_empty_list = |line: &&str| {
        let text = line.split('#').next().unwrap_or_default();
        let list = text.strip_prefix("rules:").map(|list| list.split_whitespace());
        list.is_some_and(|list| list.collect::<String>() == "[]")
    };
    let line = before.split_inclusive('\n').find(is_empty_list)?;
    let with = line.replacen("[]", "", 1);
    let with = if with == line { line.replace(['[', ']'], "") } else { with };
    let with = format!("{}\n{items}", with.trim_end());
    Some(before.replacen(line, &with, 1))
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    fn id<'a>(policy: &'a Policy, token: &SecretString) -> Option<&'a str> {
        policy.tokens.id(Sha256::of(token.expose_secret().as_bytes()))
    }

    fn new(id: &str) -> NewToken {
        let (namespaces, kinds) = (vec!["team-a".to_owned()], vec![Kinds::Plan]);
        NewToken { id: id.to_owned(), namespaces, kinds, verbs: vec![Verb::Read, Verb::List] }
    }

    #[test]
    fn a_new_token_is_authenticated_by_its_rule() {
        let (token, yaml) = new("ci").create().unwrap();
        assert!(token.expose_secret().len() > 50);
        assert!(!yaml.contains(token.expose_secret()));
        let mut policy = Policy::default();
        policy.add(&yaml).unwrap();
        assert_eq!(id(&policy, &token), Some("ci"));
        assert_eq!(id(&policy, &SecretString::from("plancha_other")), None);
        assert_eq!(policy.unknown_token(), None);
        let yaml = yaml.replace(&Sha256::of(token.expose_secret().as_bytes()).to_string(), "HEX");
        insta::assert_snapshot!(yaml, @"
        rules:
        - who:
            token: ci
            sha256: HEX
          namespaces:
          - team-a
          kinds:
          - plan
          verbs:
          - read
          - list
        ");
    }

    #[test]
    fn rules_are_added_to_existing_ones() {
        let (_, more) = new("ci").create().unwrap();
        let rule = "{who: {serviceaccount: a/b}, namespaces: [a], verbs: [read]}";
        for before in [
            String::new(),
            "# nothing yet\n".to_owned(),
            format!("rules:\n- {rule} # mine"),
            format!("# mine\nrules:\n  - {rule}\n"),
            add_rules("", &more).unwrap(),
        ] {
            let after = add_rules(&before, &more).unwrap();
            assert!(after.starts_with(&before), "{after}");
            let mut policy = Policy::default();
            policy.add(&after).unwrap();
            assert!(policy.tokens.has("ci"));
        }
        for before in ["rules: []", "# mine\nrules: [ ] # none yet\n# the end\n"] {
            let after = add_rules(before, &more).unwrap();
            let comments = |text: &str| text.matches('#').count();
            assert_eq!(comments(&after), comments(before), "{after}");
            let mut policy = Policy::default();
            policy.add(&add_rules(&after, &more).unwrap()).unwrap();
            assert!(policy.tokens.has("ci") && policy.len() == 2);
        }
        for before in ["x: 1", "rules: [", &format!("rules: [{rule}]")] {
            assert!(add_rules(before, &more).is_err(), "{before}");
        }
    }

    #[test]
    fn tokens_are_unique_and_an_id_may_have_two() {
        let [(old, first), (new, second)] =
            [new("ci").create().unwrap(), new("ci").create().unwrap()];
        assert_ne!(old.expose_secret(), new.expose_secret());
        let mut policy = Policy::default();
        policy.add(&first).unwrap();
        policy.add(&second).unwrap();
        assert_eq!([&old, &new].map(|token| id(&policy, token)), [Some("ci"), Some("ci")]);
    }
}
